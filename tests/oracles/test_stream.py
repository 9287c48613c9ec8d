"""Live streams: the same iterates as from memory, drawn ahead or not, from all kinds of sources."""

import time
from itertools import cycle, islice

import numpy as np
import pytest
import scipy.sparse as sp
from five_streams import (
    BATCHES,
    EXCHANGES,
    FEATURES,
    GRAPH,
    LABELS,
    MU,
    ORDER,
    RNG,
    ROWS,
    SAMPLES,
    SCHEDULE,
    D,
    M,
    N,
    assert_same_run,
    batches,
    before,
    logistic,
    run,
    spds,
    threads_that_end,
    traced,
)

import gradslide as gs
from gradslide.oracles import Stream, WithoutReplacement, WithReplacement


def test_the_schedule_of_these_tests_is_worth_testing():
    assert SCHEDULE.Delta < N
    assert min(EXCHANGES) >= 2
    assert BATCHES[0] == 1
    assert BATCHES[5] >= 3


# The same iterates, whenever and by whomever samples are drawn


def jittery(i):
    """Streams that are not ready in any fixed order."""
    rng = np.random.default_rng(i)
    for batch in batches(i, sizes=(1, 30, 20)):
        time.sleep(rng.uniform(0, 1e-3))
        yield batch


@pytest.mark.parametrize("mu", [0.0, MU])
@pytest.mark.parametrize("delay", [None, 2e-4])
def test_overlap_and_workers_do_not_change_an_iterate(mu, delay):
    network = GRAPH if delay is None else gs.network.Delayed(GRAPH, delay)
    settings = {"mu": mu, "network": network}
    plain = traced(Stream(batches, overlap=False), mu=mu)
    assert plain[0].status is gs.Status.COMPLETED
    assert len(plain[1]) == N
    for overlap in (False, True):
        for workers in (1, 2, M, 3 * M):
            assert_same_run(plain, traced(Stream(jittery, overlap=overlap, workers=workers), **settings))


@pytest.mark.covering
@pytest.mark.parametrize("sampling", [WithReplacement, WithoutReplacement])
@pytest.mark.parametrize("mu", [0.0, MU])
@pytest.mark.parametrize("delay", [0.0, 2e-4])
def test_rows_drawn_ahead_are_the_same_rows(sampling, mu, delay):
    settings = {"mu": mu, "network": gs.network.Delayed(GRAPH, delay), "method": {"seed": 3}}
    assert_same_run(traced(sampling(overlap=False), **settings), traced(sampling(overlap=True), **settings))
    other_seed = traced(sampling(overlap=True), **{**settings, "method": {"seed": 4}})
    assert np.any(other_seed[1] != traced(sampling(), **settings)[1])


@pytest.mark.parametrize("oracle", [Stream(batches), WithReplacement(overlap=True), WithoutReplacement(overlap=True)])
def test_found_parameters_do_not_depend_on_overlap(oracle):
    """The 64 samples that they are found from are not announced ahead."""
    found = {"L": None, "R": None, "c": None}
    without = type(oracle)(**({"sources": batches} if isinstance(oracle, Stream) else {}), overlap=False)
    with_overlap, plain = (traced(each, method=found) for each in (oracle, without))
    assert_same_run(with_overlap, plain)
    assert with_overlap[0].parameters == plain[0].parameters
    assert plain[0].costs.samples > 64


# Gradients of samples


SIGNS = np.where(LABELS > 0, 1, 0)
NUMBERS = RNG.normal(size=(M, ROWS))
CLASSES = RNG.integers(3, size=(M, ROWS))
KINDS = {
    "logistic": (gs.losses.Logistic, LABELS, {}),
    "logistic, labels 0 and 1": (gs.losses.Logistic, SIGNS, {}),
    "least squares": (gs.losses.LeastSquares, NUMBERS, {}),
    "huber": (gs.losses.Huber, NUMBERS, {"delta": 0.3}),
    "smoothed hinge": (gs.losses.SmoothedHinge, LABELS, {"gamma": 0.5}),
    "softmax": (gs.losses.Softmax, CLASSES, {"classes": 3}),
    "poisson": (gs.losses.Poisson, CLASSES, {}),
}
LAYOUTS = {"dense": np.asarray, "sparse": sp.csr_array}
SIZES = {"one by one": (1,), "in threes": (3,), "of any size": (2, 0, 5, 1, 4), "all at once": (600,)}


def row_loss(kind, *, layout="dense", dtype=np.float64, **settings):
    make, targets, parameters = KINDS[kind]
    features = LAYOUTS[layout](FEATURES.reshape(-1, D).astype(dtype))
    return make(features, targets.ravel(), agents=M, **parameters, **settings)


def streams_of(targets, *, sizes=(1,), layout=np.asarray, order=ORDER):
    """A function i -> stream of the rows `order[i]`, for ever."""

    def source(i):
        first = 0
        for size in cycle(sizes):
            rows = order[i][np.arange(first, first + size) % len(order[i])]
            first += size
            yield layout(FEATURES[i, rows]), targets[i, rows]

    return source


def test_a_batch_is_read_without_being_printed():
    """Which takes far longer than to read it."""

    class Silent(np.ndarray):
        def __repr__(self):
            raise AssertionError("printed")

    loss = row_loss("logistic")
    features, labels = loss.read_samples(0, (FEATURES[0].view(Silent), LABELS[0]))
    np.testing.assert_array_equal(features, FEATURES[0])
    np.testing.assert_array_equal(labels, LABELS[0])


def points(loss, seed=0):
    return np.random.default_rng(seed).normal(size=(loss.m, loss.d)).astype(loss.dtype)


def assert_gradients_of_rows(loss, oracle, order=ORDER):
    tolerance = 1e-11 if loss.dtype == np.float64 else 1e-4
    sampler = oracle.open(loss, range(loss.m), 0)
    start = 0
    for count in (1, 3, 2, 7, 1, 11):
        x = points(loss, seed=start)
        got = sampler.gradient(x, sampler.draw(start, count))
        expected = loss.gradient_of_rows(x, [order[i][start : start + count] for i in range(loss.m)])
        assert got.dtype == loss.dtype
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)
        start += count


@pytest.mark.covering
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", SIZES)
def test_an_agents_own_rows_give_the_gradient_of_those_rows(kind, layout, sizes):
    source = streams_of(KINDS[kind][1], sizes=SIZES[sizes], layout=LAYOUTS[layout])
    for reduction in ("sum", "mean")[: 2 if sizes == "in threes" else 1]:
        assert_gradients_of_rows(row_loss(kind, layout=layout, reduction=reduction), Stream(source))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("held", LAYOUTS)
def test_batches_may_come_in_any_layout_whatever_the_loss_holds(kind, held):
    layouts = cycle([sp.coo_array, np.asarray, list, sp.csr_matrix])
    source = streams_of(KINDS[kind][1], sizes=(2,), layout=lambda rows: next(layouts)(rows))
    assert_gradients_of_rows(row_loss(kind, layout=held), Stream(source))


@pytest.mark.covering
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_float32_stays_float32_whatever_arrives(kind, layout):
    loss = row_loss(kind, layout=layout, dtype=np.float32)
    assert loss.dtype == np.float32
    assert_gradients_of_rows(loss, Stream(streams_of(KINDS[kind][1], sizes=(3, 1), layout=LAYOUTS[layout])))
    oracle = Stream(streams_of(KINDS[kind][1], layout=LAYOUTS[layout]))
    solution = run(oracle, problem=gs.Problem(loss))
    assert {x.dtype for x in (*solution.outputs.values(), solution.dual)} == {np.dtype(np.float32)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_with_weights_the_mean_is_on_the_scale_of_the_agents_total_weight(kind, reduction):
    """Where every row comes as often as it weighs, the mean is the whole gradient."""
    weights = np.random.default_rng(1).integers(4, size=(M, ROWS))
    weights[:, 0] = 1
    loss = row_loss(kind, sample_weight=weights.ravel(), reduction=reduction)
    order = [np.repeat(np.arange(ROWS), own) for own in weights]
    x = points(loss)
    for i in range(M):
        alone = Stream([streams_of(KINDS[kind][1], order=order)(i)]).open(loss.take([i]), range(1), 0)
        got = alone.gradient(x[[i]], alone.draw(0, weights[i].sum()))
        np.testing.assert_allclose(got[0], loss.gradient(x)[i], rtol=1e-11, atol=1e-12)


def test_weights_that_are_alike_within_an_agent_only_scale_it():
    weights = np.repeat([0.5, 1.0, 2.0, 3.0, 10.0], ROWS)
    assert_gradients_of_rows(row_loss("logistic", sample_weight=weights), Stream(batches))


def mixed():
    """Losses of several kinds, sparse and dense, side by side: one per agent."""
    kinds = ["logistic", "logistic, labels 0 and 1", "least squares", "huber", "smoothed hinge"]
    layouts = ["dense", "sparse", "dense", "sparse", "dense"]
    parts = [
        row_loss(kind, layout=layout).take([i]) for i, (kind, layout) in enumerate(zip(kinds, layouts, strict=True))
    ]
    return gs.losses.stack(parts), np.stack([KINDS[kind][1][i] for i, kind in enumerate(kinds)])


@pytest.mark.parametrize("sizes", SIZES)
def test_stacked_losses_read_each_agents_batches_in_its_own_way(sizes):
    loss, targets = mixed()
    assert len(loss.parts) == M
    assert_gradients_of_rows(loss, Stream(streams_of(targets, sizes=SIZES[sizes])))


class Known:
    """Samples start, ..., end - 1 by a function of one's own, and their gradient: no stream, no thread."""

    def __init__(self, draw, gradient):
        self._draw, self._gradient = draw, gradient

    def open(self, loss, agents, seed):
        return self

    def draw(self, start, count):
        return [self._draw(i, slice(start, start + count)) for i in range(M)]

    def gradient(self, x, samples):
        return self._gradient(x, samples)

    def close(self):
        pass

    def prepare(self, start, count):
        pass


@pytest.mark.covering
@pytest.mark.parametrize("kind", [*KINDS, "mixed"])
@pytest.mark.parametrize("sizes", SIZES)
def test_a_run_on_streams_is_the_run_on_those_rows(kind, sizes):
    loss, targets = mixed() if kind == "mixed" else (row_loss(kind), KINDS[kind][1])
    problem = gs.Problem(loss, mu=MU)
    streamed, seen = traced(Stream(streams_of(targets, sizes=SIZES[sizes])), problem=problem)
    known, seen_too = traced(Known(lambda i, some: ORDER[i, some], loss.gradient_of_rows), problem=problem)
    np.testing.assert_allclose(seen, seen_too, rtol=1e-9, atol=1e-11)
    assert streamed.costs.samples == known.costs.samples == SAMPLES
    assert streamed.history[-1].objective == pytest.approx(known.history[-1].objective, rel=1e-10)


# A gradient of one's own


def least_squares_gradient(x, batch):
    features, targets = batch
    return ROWS * features.T @ (features @ x - targets) / len(targets)


def pull(x, batch):
    return x - batch.mean(axis=0)


def centres(i, sizes=(1,)):
    for features, _ in batches(i, sizes):
        yield features


@pytest.mark.parametrize("sizes", SIZES)
def test_a_gradient_of_ones_own_takes_tuples_of_arrays(sizes):
    problem = gs.Problem(row_loss("least squares"), mu=MU)
    source = streams_of(NUMBERS, sizes=SIZES[sizes])
    theirs, seen = traced(Stream(source, gradient=least_squares_gradient), problem=problem)
    _, seen_too = traced(Stream(source), problem=problem)
    np.testing.assert_allclose(seen, seen_too, rtol=1e-9, atol=1e-11)
    assert theirs.history[-1].objective is not None


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("as_list", [False, True])
def test_a_gradient_of_ones_own_takes_plain_arrays_and_knows_its_batch(sizes, as_list):
    shapes = []

    def gradient(x, batch):
        shapes.append(batch.shape)
        return pull(x, batch)

    def source(i):
        return (batch.tolist() if as_list else batch for batch in centres(i, SIZES[sizes]) if len(batch))

    _, seen = traced(Stream(source, gradient=gradient), problem=live_problem())
    means = Known(lambda i, some: FEATURES[i, ORDER[i, some]].mean(axis=0), lambda x, samples: x - np.stack(samples))
    np.testing.assert_allclose(seen, traced(means, problem=live_problem())[1], rtol=1e-9, atol=1e-11)
    assert shapes == [(count, D) for count in BATCHES for _ in range(M)]


def live_problem(dtype=np.float64):
    """Nothing is known but L: no data, no value, no gradient."""
    return gs.Problem(gs.losses.Custom(agents=M, dimension=D, smoothness=1.0, dtype=dtype), mu=MU)


def test_a_loss_that_only_streams_know_runs_without_an_objective(tmp_path, capsys):
    method = {"L": None, "R": None, "c": None}
    oracle = Stream(centres, gradient=pull)
    solution = run(oracle, problem=live_problem(), method=method, progress=True, checkpoint=tmp_path / "run.npz")
    assert solution.status is gs.Status.COMPLETED
    assert len(solution.history) == N
    assert {(record.objective, record.local_objective) for record in solution.history} == {(None, None)}
    assert all(record.disagreement is not None and record.residual is not None for record in solution.history)
    assert "samples" in capsys.readouterr().err
    # The streams' mean is what is looked for: sum of |x - rows|^2/2 + mu |x|^2/2.
    np.testing.assert_allclose(solution.mean, FEATURES.mean(axis=(0, 1)) / (1 + MU), atol=0.15)
    solution.save(tmp_path / "solution.npz")
    np.testing.assert_array_equal(gs.load(tmp_path / "solution.npz").x, solution.x)


def test_a_gradient_of_ones_own_keeps_the_precision_of_the_loss():
    solution = run(Stream(centres, gradient=pull), problem=live_problem(np.float32))
    assert solution.x.dtype == np.float32


@pytest.mark.parametrize(
    "wrong",
    [lambda x, b: x[:-1], lambda x, b: float(x @ x), lambda x, b: b - x, lambda x, b: 1j * x, lambda x, b: None],
)
def test_a_gradient_of_the_wrong_shape_is_refused_with_the_agent(wrong):
    def source(i):
        return cycle([np.full((1, D), float(i == 3))])

    def gradient(x, batch):
        return wrong(x, batch) if batch.any() else pull(x, batch)

    message = rf"agent 3 failed in outer iteration 1: its gradient must be real numbers of shape \({D},\)"
    with pytest.raises(gs.StreamError, match=message):
        run(Stream(source, gradient=gradient), problem=live_problem())


def test_an_error_in_ones_own_gradient_loses_nothing(tmp_path):
    calls = []

    def gradient(x, batch):
        calls.append(batch)
        if len(calls) > 3 * M:
            raise ZeroDivisionError("in the gradient")
        return pull(x, batch)

    checkpoint = tmp_path / "run.npz"
    with threads_that_end(), pytest.raises(gs.StreamError, match=r"agent 0 .* iteration 4.*in the gradient") as caught:
        run(Stream(centres, gradient=gradient), problem=live_problem(), checkpoint=checkpoint)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert len(caught.value.solution.history) == 3
    assert caught.value.solution.costs.samples == before(4)
    assert checkpoint.exists()


@pytest.mark.parametrize("sizes", [(1,), (3, 1)])
def test_a_tuple_of_one_array_stays_a_tuple(sizes):
    def source(i):
        return ((batch,) for batch in centres(i, sizes))

    def gradient(x, batch):
        (only,) = batch
        return pull(x, only)

    one = traced(Stream(source, gradient=gradient), problem=live_problem())
    assert_same_run(one, traced(Stream(centres, gradient=pull), problem=live_problem()))


def test_batches_of_other_kinds_arrive_as_arrays():
    pd = pytest.importorskip("pandas")
    kinds = set()

    def source(i):
        return (pd.DataFrame(batch) for batch in centres(i, (1, 5)))

    def gradient(x, batch):
        kinds.add(type(batch))
        return pull(x, batch)

    one = traced(Stream(source, gradient=gradient), problem=live_problem())
    assert kinds == {np.ndarray}
    assert_same_run(one, traced(Stream(centres, gradient=pull), problem=live_problem()))


def test_a_batch_may_be_a_single_sample():
    def source(i):
        return ((features[0], labels[0]) for features, labels in batches(i))

    assert_same_run(traced(Stream(source)), traced(Stream(batches)))


# Sources


@pytest.mark.parametrize(
    "sources",
    [
        [batches(i) for i in range(M)],
        tuple(batches(i) for i in range(M)),
        [list(islice(batches(i), SAMPLES)) for i in range(M)],
        [iter(list(islice(batches(i, (7, 2)), SAMPLES))) for i in range(M)],
        batches,
        lambda i: list(islice(batches(i, (SAMPLES,)), 1)),
    ],
    ids=["generators", "tuple", "lists", "iterators", "function", "function with lists"],
)
def test_sources_may_be_lists_or_functions_of_any_iterables(sources):
    assert_same_run(traced(Stream(sources)), traced(Stream(batches)))


@pytest.mark.parametrize("given", ["function", "list"])
def test_only_the_agents_that_live_here_are_asked(given):
    asked = []

    def source(i):
        asked.append(i)
        return batches(i)

    def stream(i):
        asked.append(i)
        yield from batches(i)

    here = range(2, 4)
    loss = logistic().loss.take(here)
    sampler = Stream(source if given == "function" else [stream(i) for i in range(M)]).open(loss, here, 0)
    x = points(loss)
    got = sampler.gradient(x, sampler.draw(0, 6))
    np.testing.assert_allclose(got, loss.gradient_of_rows(x, [ORDER[i, :6] for i in here]), rtol=1e-12)
    assert sorted(asked) == list(here)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sources": "abcde"}, "sources must be a list with one iterable per agent, or a function"),
        ({"sources": b"abcde"}, "sources must be a list with one iterable per agent, or a function"),
        ({"sources": None}, "sources must be a list with one iterable per agent, or a function"),
        ({"sources": 5}, "sources must be a list with one iterable per agent, or a function"),
        ({"sources": (batches(i) for i in range(M))}, "sources must be a list with one iterable per agent"),
        ({"sources": {i: batches(i) for i in range(M)}}, "sources must be a list with one iterable per agent"),
        ({"sources": batches, "gradient": 3}, "gradient must be callable; got int 3"),
        ({"sources": batches, "timeout": 0}, "timeout must be > 0"),
        ({"sources": batches, "timeout": -1.0}, "timeout must be > 0"),
        ({"sources": batches, "timeout": float("nan")}, "timeout must be > 0"),
        ({"sources": batches, "timeout": "1"}, "timeout must be > 0"),
        ({"sources": batches, "workers": 0}, "workers must be a whole number >= 1"),
        ({"sources": batches, "workers": 1.5}, "workers must be a whole number >= 1"),
        ({"sources": batches, "workers": True}, "workers must be a whole number >= 1"),
    ],
)
def test_a_stream_refuses_what_it_cannot_use_when_it_is_made(given, message):
    with pytest.raises(gs.InputError, match=message):
        Stream(**given)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([batches(0), 5, *map(batches, range(2, M))], "the stream of agent 1 must be iterable; got int 5"),
        (lambda i: None if i == 2 else batches(i), "the stream of agent 2 must be iterable; got NoneType None"),
        ([batches(0), batches(1)], "sources must hold one stream per agent; got 2; give one for agent 2 too"),
        ([], "sources must hold one stream per agent; got 0; give one for agent 0 too"),
    ],
)
def test_a_run_refuses_wrong_sources_before_it_starts(sources, message):
    with pytest.raises(gs.InputError, match=message):
        run(Stream(sources))


def test_the_oracle_must_be_made_not_named():
    with pytest.raises(gs.InputError, match=r"oracle must be one of gs\.oracles; got the class Stream"):
        spds(Stream)


ROW, LABEL = np.zeros((1, D)), np.ones(1)
WRONG_BATCHES = {
    "not a pair": (ROW, "a batch must be a pair of features and labels"),
    "three parts": ((ROW, LABEL, LABEL), "a batch must be a pair of features and labels"),
    "nothing": (None, "a batch must be a pair of features and labels"),
    "a row too short": ((ROW[:, 1:], LABEL), f"the features of a batch must have {D} columns"),
    "a sample without its axis": ((ROW[0], LABEL), "features must be 2-D"),
    "more labels than rows": ((ROW, np.ones(2)), "labels must be 1-D with one entry per row of features, 1 in all"),
    "unknown labels": ((ROW, 3 * LABEL), "labels must be in"),
    "words": ((np.full((1, D), "a"), LABEL), "features must hold real numbers"),
    "complex numbers": ((1j * ROW, LABEL), "features must hold real numbers"),
    "NaN": ((np.nan * ROW, LABEL), "features must be finite"),
    "a label that is NaN": ((ROW, np.nan * LABEL), "labels must be finite"),
    "sparse NaN": ((sp.csr_array([[np.nan, 0, 0, 1.0]]), LABEL), "features must be finite"),
}


@pytest.mark.parametrize("wrong", WRONG_BATCHES)
@pytest.mark.parametrize("overlap", [False, True])
def test_a_wrong_batch_is_a_failure_of_its_stream(wrong, overlap):
    batch, message = WRONG_BATCHES[wrong]

    def source(i):
        yield from islice(batches(i), before(4))
        yield batch if i == 2 else next(batches(i))
        yield from batches(i)

    with threads_that_end(), pytest.raises(gs.StreamError, match=message) as caught:
        run(Stream(source, overlap=overlap))
    assert (caught.value.agent, caught.value.iteration) == (2, 4)
    assert isinstance(caught.value.__cause__, gs.InputError)
    assert len(caught.value.solution.history) == 3


OWN_WRONG_BATCHES = {
    "a number": 3.0,
    "nothing": None,
    "parts of different lengths": (np.zeros((2, D)), np.zeros(3)),
    "a part that is a number": (np.zeros((2, D)), 1.0),
    "no parts": (),
    "ragged": [[1.0], [1.0, 2.0]],
    "another width": np.zeros((1, D + 1)),
    "a part more": (np.zeros((1, D)), np.ones(1)),
}


@pytest.mark.parametrize("wrong", OWN_WRONG_BATCHES)
def test_a_wrong_batch_for_a_gradient_of_ones_own_is_a_failure_too(wrong):
    def source(i):
        yield from islice(centres(i), before(4))
        # A batch that is kept beside the wrong one.
        yield np.zeros((1, D))
        yield OWN_WRONG_BATCHES[wrong] if i == 2 else np.zeros((1, D))
        yield from centres(i)

    with threads_that_end(), pytest.raises(gs.StreamError) as caught:
        run(Stream(source, gradient=pull), problem=live_problem())
    assert caught.value.agent == 2
    assert caught.value.iteration in (4, 5)


def test_a_loss_without_rows_asks_for_a_gradient():
    with pytest.raises(gs.InputError, match=r"needs a loss that is a sum over rows.*gradient of your own"):
        run(Stream(centres), problem=live_problem())
