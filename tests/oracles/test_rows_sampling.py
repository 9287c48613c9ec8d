"""Sampled gradients: unbiased, with the variance that is promised, from streams that hang on seed, agent and position
alone."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp
from loss_cases import KINDS, LAYOUTS, make_loss, make_quadratic, point

import gradslide as gs
from gradslide._support.errors import InputError
from gradslide._support.randomness import Streams
from gradslide.losses import Custom, LeastSquares, Quadratic, stack
from gradslide.losses.partition import Draw, with_replacement
from gradslide.oracles import Noise, WithoutReplacement, WithReplacement, estimate_sigma
from gradslide.oracles import rows as rows_module

DRAWS = 400
WAYS = [WithReplacement(), WithoutReplacement(), Noise(2.0)]


def row_gradients(kind, features, targets, rows, factors, x):
    """What one sample of each agent may be: its rows' own losses, n_i times weighted. One (n_i, d) per agent."""
    make = KINDS[kind][0]
    return [
        np.concatenate(
            [
                make(features[[r]], targets[[r]], sample_weight=[len(own) * w_r]).gradient(x_i[None])
                for w_r, r in zip(w, own, strict=True)
            ]
        )
        for x_i, own, w in zip(x, rows, factors, strict=True)
    ]


def variance_of(gradients):
    """E|G - mean|^2 where each row is equally likely."""
    return float(np.mean(np.sum((gradients - gradients.mean(axis=0)) ** 2, axis=1)))


def draw_gradients(loss, oracle, x, count, draws=DRAWS, seed=0):
    """Gradients of one batch after another, (draws, m, d)."""
    sampler = oracle.open(loss, range(loss.m), seed)
    return np.stack([sampler.gradient(x, sampler.draw(k * count, count)) for k in range(draws)])


def check_moments(drawn, gradients, count):
    """Mean and variance of what one agent drew, (draws, d), within a few standard errors of what all its rows give."""
    exact, variance = gradients.mean(axis=0), variance_of(gradients) / count
    errors = gradients.std(axis=0) / math.sqrt(count * len(drawn))
    np.testing.assert_array_less(np.abs(drawn.mean(axis=0) - exact), 5 * errors + 1e-12 * (1 + np.abs(exact)))
    squares = np.sum((drawn - exact) ** 2, axis=1)
    assert squares.mean() == pytest.approx(variance, rel=1e-9, abs=5 * squares.std() / math.sqrt(len(drawn)) + 1e-20)


def assert_same_draws(one, other):
    """The rows of each agent, and how often each counts."""
    for (rows, counts), (same, alike) in zip(zip(*one, strict=True), zip(*other, strict=True), strict=True):
        np.testing.assert_array_equal(rows, same)
        np.testing.assert_array_equal(counts, alike)


# ---- rows with replacement


@pytest.mark.covering
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_is_one_row_and_their_mean_is_the_gradient(kind, layout):
    for weighted, reduction in itertools.product([False, True], ["sum", "mean"]):
        loss, *rows = make_loss(kind, layout, weighted=weighted, reduction=reduction)
        x = point(loss)
        enumerated = row_gradients(kind, *rows, x)
        np.testing.assert_allclose([own.mean(axis=0) for own in enumerated], loss.gradient(x), rtol=1e-10, atol=1e-12)
        # One draw of one row: nothing but these can come.
        drawn = draw_gradients(loss, WithReplacement(), x, 1, draws=20)
        for i, own in enumerate(enumerated):
            distances = np.abs(drawn[:, i, None] - own[None]).max(axis=2).min(axis=1)
            assert distances.max() < 1e-10


@pytest.mark.covering
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_unbiased_with_variance_sigma_squared_over_c(kind, layout):
    for weighted, reduction, count in [(True, "mean", 1), (True, "sum", 4), (False, "mean", 30)]:
        loss, *rows = make_loss(kind, layout, weighted=weighted, reduction=reduction)
        x = point(loss)
        assert count == 4 or (count < loss.rows_per_agent.max()) == (count == 1)
        drawn = draw_gradients(loss, WithReplacement(), x, count)
        for i, own in enumerate(row_gradients(kind, *rows, x)):
            check_moments(drawn[:, i], own, count)


@pytest.mark.parametrize("count", [1, 3, 40])
def test_stacked_losses_are_sampled_like_their_parts(count):
    made = [make_loss(kind, layout, weighted=True) for kind, layout in [("squares", "sparse"), ("logistic", "equal")]]
    loss = stack([made[0][0], made[1][0], made[0][0]])
    assert loss.rows_per_agent.tolist() == [6, 6, 6, 5, 5, 5, 5, 5, 6, 6, 6, 5]
    x = point(loss)
    own = row_gradients("squares", *made[0][1:], x[:4]) + row_gradients("logistic", *made[1][1:], x[4:8])
    own += row_gradients("squares", *made[0][1:], x[8:])
    drawn = draw_gradients(loss, WithReplacement(), x, count)
    for i in range(loss.m):
        check_moments(drawn[:, i], own[i], count)


def test_the_check_of_moments_can_fail():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(6, 2))
    honest = rows[rng.integers(6, size=(DRAWS, 4))].mean(axis=1)
    check_moments(honest, rows, 4)
    for wrong in (honest + 0.2, rows[rng.integers(6, size=(DRAWS, 2))].mean(axis=1), rows[rng.integers(5, size=DRAWS)]):
        with pytest.raises(AssertionError):
            check_moments(wrong, rows, 4)


@pytest.mark.parametrize("count", [1, 4, 5, 6, 1000])
def test_every_draw_holds_so_many_rows_each_equally_likely(count):
    rng = np.random.default_rng(1)
    totals = np.zeros(5)
    for _ in range(2000):
        draw = with_replacement(rng, 5, count)
        assert draw.counts.sum() == count
        assert draw.counts.min() >= 0
        np.add.at(totals, draw.rows, draw.counts)
    expected = 2000 * count / 5
    # Each total is binomial.
    assert np.all(np.abs(totals - expected) <= 4.5 * math.sqrt(expected * 0.8))


def test_with_replacement_a_row_comes_twice_now_and_then():
    """Four of five rows at a time: without replacement none would."""
    rng = np.random.default_rng(2)
    alike = [len(set(with_replacement(rng, 5, 4).rows.tolist())) < 4 for _ in range(1000)]
    # 1 - 5 * 4 * 3 * 2 / 5^4
    assert np.mean(alike) == pytest.approx(0.808, abs=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_and_dense_rows_give_the_same_samples(kind):
    dense, sparse = (make_loss(kind, layout)[0] for layout in ("two sizes", "sparse"))
    x = point(dense)
    for count in (2, 9):
        one, other = (draw_gradients(loss, WithReplacement(), x, count, draws=5) for loss in (dense, sparse))
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_batches_far_larger_than_the_data_cost_no_more_than_the_data():
    loss = LeastSquares(sp.csr_array(np.eye(5)), np.ones(5), agents=2)
    sampler = WithReplacement().open(loss, range(2), 0)
    draws = sampler.draw(0, 10**12)
    assert [len(rows) for rows in draws.rows] == [3, 2]
    gradient = sampler.gradient(np.zeros((2, 5)), draws)
    np.testing.assert_allclose(gradient, loss.gradient(np.zeros((2, 5))), atol=1e-5)


# ---- streams


def test_a_stream_hangs_on_seed_agent_and_position_alone():
    one, other = Streams(3, range(5)), Streams(3, [4, 2])
    for position in (7, 0, 3, 2**40):
        for agent, here in ((4, 0), (2, 1)):
            np.testing.assert_array_equal(one.at(agent, position).random(9), other.at(here, position).random(9))
    # What was drawn before makes no difference, not even half a word that was left over.
    one.at(1, 5).integers(10, size=3, dtype=np.uint32)
    again = Streams(3, range(5))
    np.testing.assert_array_equal(
        one.at(1, 6).integers(10, size=8, dtype=np.uint32), again.at(1, 6).integers(10, size=8, dtype=np.uint32)
    )


def test_streams_of_other_agents_seeds_and_positions_differ():
    drawn = {
        (seed, agent, position): tuple(Streams(seed, range(9)).at(agent, position).random(4))
        for seed, agent, position in itertools.product([0, 1, 2**70], [0, 1, 8], [0, 1, 2, 63, 64, 10**12])
    }
    assert len(set(drawn.values())) == len(drawn)
    # Neither do long stretches run into each other.
    long = Streams(0, [0])
    first, second = (set(long.at(0, position).random(10_000)) for position in (0, 1))
    assert not first & second


def test_streams_of_neighbouring_positions_and_agents_are_uncorrelated():
    streams = Streams(5, range(3))
    x = np.array([[streams.at(i, k).standard_normal() for k in range(3000)] for i in range(3)])
    rows = [x[0, :-1], x[0, 1:], x[1, :-1], x[2, :-1]]
    off = np.corrcoef(rows) - np.eye(4)
    assert np.abs(off).max() < 4.5 / math.sqrt(3000)


def generators_at(seed, agents, position):
    """Generators of NumPy, one for each agent."""
    keys = [np.random.SeedSequence(seed, spawn_key=(agent,)).generate_state(2, np.uint64) for agent in agents]
    # Philox is seeded with a counter that it increments before the first block.
    return [np.random.Generator(np.random.Philox(key=key, counter=[0, 0, position, 0])) for key in keys]


@pytest.mark.first(8)
@pytest.mark.parametrize("case", range(40))
def test_integers_of_all_agents_are_those_of_their_generators(case):
    rng = np.random.default_rng(case)
    m, seed, position = int(rng.integers(1, 50)), int(rng.integers(2**40)), int(rng.integers(2 ** (1 + case)))
    count = int(rng.choice([1, 2, 7, 8, 9, 33, 256, 257]))
    # Near 2^32 a word in two is refused; bounds beyond it take words of 64 bits.
    highs = rng.integers(1, 2 ** int(rng.integers(1, 35)), size=m)
    held = rng.choice(10_000, size=m, replace=False)
    some = np.flatnonzero(rng.random(m) < 0.7)
    found = Streams(seed, held.tolist()).integers(some, position, highs[some], count)
    for i, drawn in zip(some.tolist(), found, strict=True):
        (generator,) = generators_at(seed, [int(held[i])], position)
        np.testing.assert_array_equal(drawn, generator.integers(highs[i], size=count))
    assert found.shape == (len(some), count)


@pytest.mark.parametrize("count", [1, 4, 8, 9, 20, 40])
def test_draws_are_those_of_one_generator_after_another(count):
    """Sizes below, about and above the batch: 2-D arrays, lists, and counts from a multinomial law."""
    for sizes in ([200] * 30, [8, 9, 50], [1, 2, 5, 11], [41, 300, 70]):
        rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
        rng = np.random.default_rng(count)
        loss = LeastSquares(rng.normal(size=(sum(sizes), 3)), rng.normal(size=sum(sizes)), splits=rows)
        sampler, x = WithReplacement().open(loss, range(loss.m), 5), point(loss)
        for start in (0, 3, 10**9):
            generators = generators_at(5, range(loss.m), start)
            expected = [with_replacement(rng, n, count) for rng, n in zip(generators, sizes, strict=True)]
            draws = sampler.draw(start, count)
            assert_same_draws(draws, tuple(zip(*expected, strict=True)))
            singly = loss.gradient_of_rows(x, [each.rows for each in expected], [each.counts for each in expected])
            np.testing.assert_array_equal(sampler.gradient(x, draws), singly)


def test_epochs_of_all_agents_are_those_of_their_generators():
    loss, sizes = ragged_loss()
    sampler, spans = WithoutReplacement().open(loss, range(5), 3), [(0, 1), (1, 1), (2, 1), (6, 4), (13, 1), (35, 1)]
    for start, count in spans:
        for n, agent, rows, counts in zip(sizes, range(5), *sampler.draw(start, count), strict=True):
            expected = np.zeros(n)
            for k in range(start, start + count):
                (generator,) = generators_at(3, [agent], k // n)
                expected[generator.permutation(n)[k % n]] += 1
            np.testing.assert_array_equal(np.bincount(rows, counts, n), expected)


@pytest.mark.parametrize(
    ("oracle", "owner", "singly"),
    [(WithReplacement(), rows_module, "drawn"), (WithoutReplacement(), rows_module._Epochs, "_of")],
    ids=["with replacement", "without"],
)
def test_an_agent_with_few_rows_leaves_the_others_together(monkeypatch, oracle, owner, singly):
    """Only what it draws itself takes a step of its own."""
    sizes, calls = [200] * 30 + [6] + [200] * 5, []
    plain = getattr(owner, singly)
    monkeypatch.setattr(owner, singly, lambda *given: calls.append(given) or plain(*given))
    rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    loss = LeastSquares(np.eye(sum(sizes), 3), np.ones(sum(sizes)), splits=rows)
    draws = oracle.open(loss, range(loss.m), 2).draw(16, 8)
    assert len(calls) == 1
    for i in (0, 30, 35):
        alone = oracle.open(loss.take([i]), [i], 2).draw(16, 8)
        assert_same_draws(Draw(draws.rows[i : i + 1], draws.counts[i : i + 1]), alone)


@pytest.mark.parametrize("oracle", [WithReplacement(), WithoutReplacement()], ids=repr)
def test_a_batch_of_no_rows_is_empty(oracle):
    loss, _ = ragged_loss()
    for start in (0, 5):
        draws = oracle.open(loss, range(5), 0).draw(start, 0)
        assert draws.rows.shape == draws.counts.shape == (5, 0)


@pytest.mark.parametrize("oracle", WAYS, ids=repr)
@pytest.mark.parametrize("layout", ["two sizes", "sparse", "splits"])
def test_agents_draw_the_same_wherever_they_live(oracle, layout):
    loss = make_loss("logistic", layout, weighted=True)[0]
    x, chosen = point(loss), [2, 3]
    whole, part = oracle.open(loss, range(loss.m), 7), oracle.open(loss.take(chosen), chosen, 7)
    for start, count in [(0, 1), (1, 3), (4, 50), (54, 2), (1, 3)]:
        samples, own = whole.draw(start, count), part.draw(start, count)
        if not isinstance(oracle, Noise):
            assert_same_draws(Draw(samples.rows[2:], samples.counts[2:]), own)
        np.testing.assert_allclose(part.gradient(x[chosen], own), whole.gradient(x, samples)[chosen], atol=1e-12)


@pytest.mark.parametrize("oracle", WAYS, ids=repr)
def test_agents_seeds_and_positions_draw_differently(oracle):
    """Agents with the same rows at the same point."""
    loss = LeastSquares(np.tile(np.eye(20), (3, 1)), np.tile(np.arange(20.0), 3), agents=3)
    x = np.zeros((3, 20))
    drawn = np.concatenate([draw_gradients(loss, oracle, x, 10, draws=4, seed=seed) for seed in (0, 1)])
    flat = drawn.reshape(-1, 20)
    assert len({tuple(np.round(row, 9)) for row in flat}) == len(flat) == 24
    np.testing.assert_array_equal(drawn[:4], draw_gradients(loss, oracle, x, 10, draws=4, seed=0))


@pytest.mark.parametrize("oracle", [WithReplacement, WithoutReplacement])
def test_drawing_on_a_thread_changes_nothing(oracle):
    loss = make_loss("squares", "ragged")[0]
    plain, ahead = oracle().open(loss, range(loss.m), 1), oracle(overlap=True).open(loss, range(loss.m), 1)
    assert repr(oracle()) == repr(oracle(overlap=True))
    for start, count in [(0, 2), (2, 3), (5, 9)]:
        if start:
            ahead.prepare(start, count)
        assert_same_draws(plain.draw(start, count), ahead.draw(start, count))


def test_a_run_that_draws_on_a_thread_is_the_same_run():
    problem, graph = gs.Problem(make_loss("logistic", "equal")[0]), gs.Graph.ring(4)
    for oracle in (WithReplacement, WithoutReplacement):
        runs = [
            gs.solve(problem, graph, gs.SPDS(N=8, R=0.5, c=3.0, oracle=oracle(overlap=overlap)))
            for overlap in (False, True)
        ]
        np.testing.assert_array_equal(runs[0].x, runs[1].x)
        assert runs[0].costs.samples == runs[1].costs.samples


def test_a_loss_of_ones_own_gets_each_agents_stream():
    loss = Custom(sample_gradient=lambda x, batch, streams: [rng.random(2) for rng in streams], agents=3, dimension=2)
    drawn = draw_gradients(loss, WithReplacement(), np.zeros((3, 2)), 5, draws=3, seed=4)
    streams = Streams(4, range(3))
    expected = [[streams.at(i, 5 * k).random(2) for i in range(3)] for k in range(3)]
    np.testing.assert_array_equal(drawn, expected)


# ---- rows without replacement


def ragged_loss():
    """Agents with 1, 2, 3, 5 and 7 rows; the gradient at 0 of row r is -n_i e_r."""
    rows = np.split(np.arange(18), np.cumsum([1, 2, 3, 5]))
    return LeastSquares(np.eye(18), np.ones(18), splits=rows), [len(own) for own in rows]


def counts_of(draws, sizes):
    """How often each row of each agent came."""
    found = [np.zeros(n) for n in sizes]
    for total, rows, counts in zip(found, *draws, strict=True):
        np.add.at(total, rows, counts)
    return found


@pytest.mark.parametrize("sizes", [[1], [2], [3, 1, 4], [7], [5, 30, 2], [64]], ids=str)
def test_each_row_comes_once_per_epoch(sizes):
    loss, rows = ragged_loss()
    sampler = WithoutReplacement().open(loss, range(5), 0)
    totals, start = [np.zeros(n) for n in rows], 0
    for size in itertools.islice(itertools.cycle(sizes), 60):
        for i, counts in enumerate(counts_of(sampler.draw(start, size), rows)):
            totals[i] += counts
        start += size
        for n, total in zip(rows, totals, strict=True):
            # After every batch all rows have come equally often, but for the part of an epoch that is under way.
            epochs, more = divmod(start, n)
            assert sorted(total) == (n - more) * [epochs] + more * [epochs + 1]


def orders(n, epochs, seed=0):
    """The rows one by one, an epoch per row."""
    loss = LeastSquares(np.eye(n), np.ones(n), agents=1)
    sampler = WithoutReplacement().open(loss, [0], seed)
    counts = np.array([counts_of(sampler.draw(k, 1), [n])[0] for k in range(n * epochs)])
    assert (counts.sum(axis=1) == 1).all()
    return counts.argmax(axis=1).reshape(epochs, n)


def test_every_epoch_has_an_order_of_its_own():
    found = orders(20, 30)
    assert (np.sort(found, axis=1) == np.arange(20)).all()
    assert len({tuple(order) for order in found}) == 30
    # All orders are equally likely.
    counts = np.unique(orders(3, 1200), axis=0, return_counts=True)[1]
    assert len(counts) == 6
    assert np.abs(counts - 200).max() < 4.5 * math.sqrt(200)


def test_a_batch_may_be_drawn_again_and_out_of_turn():
    loss, rows = ragged_loss()
    sampler = WithoutReplacement().open(loss, range(5), 3)
    spans = [(0, 4), (4, 9), (13, 1), (14, 30)]
    first = [sampler.draw(*span) for span in spans]
    for span, draws in reversed(list(zip(spans, first, strict=True))):
        for one, other in zip(counts_of(draws, rows), counts_of(sampler.draw(*span), rows), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_epoch_is_the_exact_gradient(kind, layout):
    loss, *_ = make_loss(kind, layout, weighted=True, reduction="mean")
    x = point(loss)
    for i, n in enumerate(loss.rows_per_agent.tolist()):
        alone = loss.take([i])
        sampler = WithoutReplacement().open(alone, [i], 0)
        for start, count in [(0, n), (n, n), (2 * n, 5 * n)]:
            gradient = sampler.gradient(x[[i]], sampler.draw(start, count))
            np.testing.assert_allclose(gradient, alone.gradient(x[[i]]), rtol=1e-10, atol=1e-12)
        # A part of one is not, where rows differ.
        if n > 1:
            part = sampler.gradient(x[[i]], sampler.draw(0, n - 1))
            assert np.abs(part - alone.gradient(x[[i]])).max() > 1e-6


@pytest.mark.parametrize(
    "loss",
    [
        Quadratic(*make_quadratic()),
        Custom(gradient=lambda x: x, sample_gradient=lambda x, *_: x, agents=3, dimension=4),
        stack([LeastSquares(np.eye(4), np.ones(4)), Quadratic(np.eye(4), np.ones(4))]),
    ],
    ids=["Quadratic", "Custom", "Stacked"],
)
def test_without_replacement_needs_rows(loss):
    with pytest.raises(InputError, match=f"needs a loss that is a sum over rows; got {type(loss).__name__}; use Log"):
        WithoutReplacement().open(loss, range(loss.m), 0)


def test_with_replacement_needs_rows_or_a_sample_gradient():
    for loss, words in [
        (Quadratic(*make_quadratic()), "needs a loss with rows; got Quadratic; use its exact gradient"),
        (Custom(gradient=lambda x: x, agents=3, dimension=4), "needs the sample_gradient of the loss; got Custom"),
    ]:
        with pytest.raises(InputError, match=words):
            draw_gradients(loss, WithReplacement(), np.zeros((loss.m, loss.d)), 1, draws=1)


# ---- noise


@pytest.mark.parametrize("count", [1, 10, 1000])
@pytest.mark.parametrize("d", [1, 7])
def test_noise_has_the_variance_that_is_asked_for(d, count):
    loss = Quadratic(np.tile(np.eye(d), (3, 1, 1)), np.ones((3, d)))
    x = np.full((3, d), 0.5)
    noise = draw_gradients(loss, Noise(2.0), x, count, draws=2000) - loss.gradient(x)
    squares = np.sum(noise**2, axis=2)
    # |noise|^2 d c / sigma^2 has the variance 2 d.
    error = 4.0 / count * math.sqrt(2 / d / squares.size)
    assert squares.mean() == pytest.approx(4.0 / count, abs=4.5 * error)
    assert np.abs(noise.mean(axis=0)).max() <= 4.5 * 2.0 / math.sqrt(d * count * 2000)


def test_no_noise_is_the_exact_gradient():
    loss = make_loss("logistic", dtype=np.float32)[0]
    drawn = draw_gradients(loss, Noise(0.0), point(loss), 3, draws=4)
    assert drawn.dtype == np.float32
    np.testing.assert_array_equal(drawn, np.stack(4 * [loss.gradient(point(loss))]))


@pytest.mark.parametrize("sigma", [-1.0, math.nan, math.inf, "much", None])
def test_noise_refuses_what_is_no_sigma(sigma):
    with pytest.raises(InputError, match=r"sigma must be >= 0 and finite; got .*; 0 gives exact gradients"):
        Noise(sigma)


# ---- estimates of sigma


@pytest.mark.first(2)
@pytest.mark.parametrize("kind", KINDS)
def test_estimate_sigma_against_all_rows(kind):
    loss, *rows = make_loss(kind, "splits", weighted=True)
    problem, x = gs.Problem(loss), point(loss)
    for at in (None, x):
        own = row_gradients(kind, *rows, problem.start(at))
        exact = math.sqrt(np.mean([variance_of(gradients) for gradients in own]))
        assert estimate_sigma(problem, at, samples=1500) == pytest.approx(exact, rel=0.08)


def test_estimates_of_the_variance_are_not_too_small_on_average():
    """Divided by n - 1: with three samples it would show."""
    loss, *rows = make_loss("squares", "equal")
    problem = gs.Problem(loss)
    exact = np.mean([variance_of(own) for own in row_gradients("squares", *rows, problem.start())])
    estimates = np.array([estimate_sigma(problem, samples=3, seed=seed) ** 2 for seed in range(600)])
    assert estimates.mean() == pytest.approx(exact, abs=4.5 * estimates.std() / math.sqrt(600))
    assert 4.5 * estimates.std() / math.sqrt(600) < 0.2 * exact


def test_estimate_sigma_of_noise_is_its_sigma():
    problem = gs.Problem(Quadratic(*make_quadratic()))
    assert estimate_sigma(problem, oracle=Noise(3.0), samples=2000) == pytest.approx(3.0, rel=0.05)
    assert estimate_sigma(problem, oracle=Noise(0.0)) == 0
    assert estimate_sigma(problem, oracle=Noise(3.0), seed=1) != estimate_sigma(problem, oracle=Noise(3.0), seed=2)


def test_agents_that_hold_one_row_have_no_variance():
    loss = LeastSquares(np.eye(3), np.ones(3), agents=3)
    assert estimate_sigma(gs.Problem(loss)) == pytest.approx(0.0, abs=1e-12)


def test_one_sample_shows_no_variance():
    with pytest.raises(InputError, match=r"samples must be a whole number >= 2; got 1"):
        estimate_sigma(gs.Problem(ragged_loss()[0]), samples=1)
