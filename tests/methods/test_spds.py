"""SPDS: the iterates of Algorithm 3, what it counts, how it ends, and what it refuses."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from five_agents import COUPLINGS, GRAPHS, Recorded, norm_of, small_problem
from paper_twins import agent_view, check_iterates, edge_form, iterates, theorem_2_rows
from problems import least_squares, logistic

import gradslide as gs
from gradslide._support.errors import InputError
from gradslide.oracles import Noise, WithoutReplacement, WithReplacement
from gradslide.theory import schedules


def batches(solution):
    """The batch sizes c_k of a run's parameters, and its T_k."""
    given = {name: value for name, value in solution.parameters.items() if name != "sigma"}
    schedule = schedules.theorem_2(**given)
    rows = [schedule.row(k) for k in range(1, schedule.N + 1)]
    return [row.c for row in rows], [row.T for row in rows]


# ---- iterates

SETS = {
    "free": lambda: gs.domains.Free(),
    "ball": lambda: gs.domains.L2Ball(0.5),
    "box with l1 penalty": lambda: gs.domains.Box(-0.4, 0.3, penalty=gs.L1(0.2)),
    "centred": lambda: gs.domains.Free(center=0.5, penalty=gs.ElasticNet(0.2, 0.1)),
    "simplex": lambda: gs.domains.Simplex(),
    "one each": lambda: gs.domains.PerAgent(
        [
            gs.domains.L2Ball(0.4),
            gs.domains.Box(-0.3, 0.2),
            gs.domains.Free(penalty=gs.L1(0.3)),
            gs.domains.NonNegative(),
            gs.domains.L2Ball(0.7),
            gs.domains.Simplex(),
        ]
    ),
}
# tau = 3.46 is rounded up to 3.5 and Delta is 8: mu > 0 goes past it.
L, R, C, N = 3.0, 1.0, 2.0, 13


def setting(mu, kind):
    graph = gs.Graph.random(6, 3, seed=2)
    return gs.Problem(logistic(np.random.default_rng(0), graph.m, 4), SETS[kind](), mu), graph


def pds_with(schedule, coupling):
    """PDS that walks along a given schedule."""

    class Given(gs.PDS):
        def init(self, context):
            return dataclasses.replace(super().init(context), schedule=schedule)

    return Given(L=schedule.L, R=schedule.R, coupling=coupling)


@pytest.mark.covering
@pytest.mark.parametrize("mu", [0.0, 1.0])
@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("kind", SETS)
def test_without_noise_it_is_pds_with_the_same_schedule(kind, coupling, mu):
    problem, graph = setting(mu, kind)
    schedule = schedules.theorem_2(N=N, L=L, mu=mu, A_norm=norm_of(graph, coupling), R=R, c=C)
    assert mu == 0 or schedule.Delta < N
    sampled = iterates(problem, graph, gs.SPDS(N=N, L=L, R=R, c=C, coupling=coupling, oracle=Noise(0.0)))
    exact = iterates(problem, graph, pds_with(schedule, coupling), gs.Stop(iterations=N))
    for one, other in zip(sampled, exact, strict=True):
        for name in ("x", "x_prev", "x_before", "x_hat", "x_under", "x_bar", "y"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        np.testing.assert_array_equal(np.stack(one.dual), np.stack(other.dual))
        np.testing.assert_array_equal(np.stack(one.dual_bar), np.stack(other.dual_bar))


@pytest.mark.covering(2)
@pytest.mark.parametrize("mu", [0.0, 1.0])
@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("kind", ["ball", "box with l1 penalty", "one each"])
def test_algorithm_3_as_printed(kind, coupling, mu):
    problem, graph = setting(mu, kind)
    oracle = Recorded(WithReplacement())
    states = iterates(problem, graph, gs.SPDS(N=N, L=L, R=R, c=C, coupling=coupling, oracle=oracle, seed=4))
    rows = theorem_2_rows(N=N, L=L, mu=mu, A_norm=norm_of(graph, coupling), R=R, c=C)
    naive = agent_view if coupling == "laplacian" else edge_form
    views = naive(problem, graph, rows, [asked.v for asked in oracle.seen])
    B = graph.incidence.toarray()
    for view, state, asked in zip(views, states, oracle.seen, strict=True):
        check_iterates(state, view, rtol=1e-9)
        z = state.dual.s if coupling == "laplacian" else B.T @ state.dual.s
        np.testing.assert_allclose(z, view.z, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(asked.x, view.x_under, rtol=1e-9, atol=1e-12)
        assert np.linalg.norm(asked.v - problem.loss.gradient(view.x_under)) > 1e-3


def test_no_sample_is_used_twice():
    problem, graph = setting(0.0, "ball")
    for given in ({"R": R, "c": C}, {"c": C}):
        oracle = Recorded(WithReplacement())
        solution = gs.solve(problem, graph, gs.SPDS(N=N, L=L, oracle=oracle, **given))
        sizes = ([] if "R" in given else 64 * [1]) + batches(solution)[0]
        asked = [(asked.start, asked.count) for asked in oracle.seen]
        assert asked == list(zip(itertools.accumulate([0, *sizes]), sizes, strict=False))


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_gradients_are_asked_for_inside_the_set(mu):
    problem, graph = setting(mu, "one each")
    oracle = Recorded(Noise(30.0))
    gs.solve(problem, graph, gs.SPDS(N=N, L=L, R=R, c=C, oracle=oracle))
    assert len(oracle.seen) == N
    for asked in oracle.seen:
        assert problem.domain.contains(asked.x, 1e-12).all()


# ---- what it counts


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_samples_are_the_batches_of_the_schedule_whatever_the_graph(coupling, mu):
    problem, spent = small_problem(mu), set()
    for graph in GRAPHS.values():
        solution = gs.solve(problem, graph, gs.SPDS(N=14, R=1.1, c=5.0, L=3.0, coupling=coupling))
        # With R = 1 some T_k are whole numbers before they are rounded up, and the last digit of ||A|| matters.
        rows = theorem_2_rows(N=14, L=3.0, mu=mu, A_norm=norm_of(graph, coupling), R=1.1, c=5.0)
        assert solution.costs.samples == sum(row.c for row in rows)
        assert solution.costs.rounds == (2 if coupling == "laplacian" else 1) * sum(row.T for row in rows)
        assert (solution.costs.gradients, solution.costs.values) == (0, 0)
        spent.add(solution.costs.samples)
    assert len(spent) == 1


def test_samples_do_not_depend_on_the_graph_where_L_is_found_and_R_is_large():
    graphs = [gs.Graph.ring(5), gs.Graph.star(5), gs.Graph.complete(5)]
    method = gs.SPDS(N=4, R=300.0, c=50.0)
    assert len({gs.solve(small_problem(), graph, method).costs.samples for graph in graphs}) == 1


def test_what_the_batches_take_in_all_is_known_ahead():
    schedule = schedules.theorem_2(N=14, L=3.0, mu=0.5, A_norm=1.0, R=1.0, c=5.0)
    solution = gs.solve(small_problem(0.5), GRAPHS["ring"], gs.SPDS(N=14, R=1.0, c=5.0, L=3.0))
    assert solution.costs.samples == schedule.samples


def test_records_count_samples_and_rounds_batch_by_batch():
    solution = gs.solve(small_problem(), GRAPHS["ring"], gs.SPDS(N=8, R=1.0, c=5.0, L=3.0))
    sizes, slides = batches(solution)
    assert [record.samples for record in solution.history] == list(itertools.accumulate(sizes))
    assert [record.rounds for record in solution.history] == list(itertools.accumulate(slides))


@pytest.mark.parametrize(
    "left_out",
    [
        {"R": 1.0},
        {"c": 0.5},
        {},
        {"R": 1.0, "sigma": 2.0},
        {"R": 1.0, "distance": 2.0},
        {"sigma": 2.0, "distance": 2.0},
        {"R": 1.0, "L": 3.0},
    ],
)
def test_what_is_left_out_costs_64_samples(left_out):
    for graph in GRAPHS.values():
        solution = gs.solve(small_problem(), graph, gs.SPDS(N=6, **left_out))
        assert solution.costs.samples == 64 + sum(batches(solution)[0])
        assert solution.costs.gradients == 0


@pytest.mark.parametrize(
    "given",
    [
        {"N": 6, "c": 0.5},
        {"N": 6, "sigma": 2.0, "distance": 2.0},
        {"N": 6, "samples": 90},
        {"eps": 1.0, "sigma": 2.0, "distance": 2.0},
        {"eps": 1.0, "c": 0.5, "distance": 2.0},
        {"samples": 90, "sigma": 2.0, "distance": 2.0},
    ],
)
def test_what_is_given_costs_nothing(given):
    solution = gs.solve(small_problem(), GRAPHS["ring"], gs.SPDS(R=1.0, **given))
    assert solution.costs.samples == sum(batches(solution)[0])
    assert solution.parameters["R"] == 1.0


# ---- how it ends


def test_it_runs_its_N_outer_iterations_and_is_complete():
    solution = gs.solve(small_problem(), GRAPHS["ring"], gs.SPDS(N=7, R=1.0, c=0.5))
    assert solution.status is gs.Status.COMPLETED
    assert [record.iteration for record in solution.history] == list(range(1, 8))


def test_it_never_goes_past_N():
    for stop in (gs.Stop(iterations=100), gs.Stop(iterations=7), gs.Stop(residual=1e-300), gs.Stop(samples=10**9)):
        solution = gs.solve(small_problem(), GRAPHS["ring"], gs.SPDS(N=7, R=1.0, c=0.5), stop=stop)
        assert (solution.status, solution.history[-1].iteration) == (gs.Status.COMPLETED, 7)


def test_limits_and_targets_end_it_earlier():
    method = gs.SPDS(N=20, R=1.0, c=5.0, L=3.0)
    problem, graph = small_problem(), GRAPHS["ring"]
    whole = gs.solve(problem, graph, method)
    sizes, slides = (np.cumsum(counts) for counts in batches(whole))
    for stop, status, iteration in [
        (gs.Stop(iterations=3), gs.Status.ITERATION_LIMIT, 3),
        (gs.Stop(samples=int(sizes[4])), gs.Status.SAMPLE_LIMIT, 5),
        (gs.Stop(samples=int(sizes[4]) + 1), gs.Status.SAMPLE_LIMIT, 6),
        (gs.Stop(rounds=int(slides[8])), gs.Status.ROUND_LIMIT, 9),
        (gs.Stop(objective=whole.history[6].objective, iterations=20), gs.Status.CONVERGED, None),
    ]:
        solution = gs.solve(problem, graph, method, stop=stop)
        assert solution.status is status
        last = solution.history[-1].iteration
        assert last == iteration if iteration else last <= 7
        # Up to there it is the same run.
        assert solution.history[-1].objective == whole.history[last - 1].objective


@pytest.mark.parametrize("oracle", [WithReplacement(), WithoutReplacement(), Noise(2.0)], ids=repr)
def test_the_seed_decides_the_run(oracle):
    problem, graph = small_problem(), GRAPHS["ring"]
    runs = [gs.solve(problem, graph, gs.SPDS(N=6, R=1.0, c=0.5, oracle=oracle, seed=seed)).x for seed in (1, 1, 2)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert np.abs(runs[0] - runs[2]).max() > 1e-4


@pytest.mark.covering
@pytest.mark.parametrize("oracle", [WithReplacement(), WithoutReplacement(), Noise(2.0)], ids=repr)
@pytest.mark.parametrize("given", [{"R": 1.0, "c": 2.0}, {}], ids=["all given", "found"])
def test_a_run_that_goes_on_from_a_checkpoint_is_the_same_to_the_bit(oracle, given, tmp_path):
    problem, graph = small_problem(), GRAPHS["random"]
    method = gs.SPDS(N=9, oracle=oracle, seed=5, **given)
    whole = gs.solve(problem, graph, method)
    for iterations in (2, 3, 7):
        part = gs.solve(problem, graph, method, stop=gs.Stop(iterations=iterations), checkpoint=tmp_path / "run.npz")
        assert part.status is gs.Status.ITERATION_LIMIT
        assert part.history[-1].iteration == iterations
    rest = gs.solve(problem, graph, method, checkpoint=tmp_path / "run.npz")
    assert rest.status is gs.Status.COMPLETED
    for name, output in whole.outputs.items():
        np.testing.assert_array_equal(rest.outputs[name], output)
    np.testing.assert_array_equal(rest.dual, whole.dual)
    assert rest.parameters == whole.parameters
    assert (rest.costs.samples, rest.costs.rounds) == (whole.costs.samples, whole.costs.rounds)
    assert [record.samples for record in rest.history] == [record.samples for record in whole.history]
    # A run that is done is not run again.
    again = gs.solve(problem, graph, method, checkpoint=tmp_path / "run.npz")
    assert (again.status, again.costs.samples) == (gs.Status.COMPLETED, whole.costs.samples)
    with pytest.raises(InputError, match="must belong to this run"):
        gs.solve(problem, graph, dataclasses.replace(method, seed=6), checkpoint=tmp_path / "run.npz")


@pytest.mark.covering
@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("oracle", [WithReplacement(), WithoutReplacement(), Noise(0.5)], ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float32_stays_float32(dtype, oracle, coupling):
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(18, 3)).astype(dtype), rng.normal(size=18).astype(dtype)
    loss = gs.losses.LeastSquares(features, targets, agents=6, sample_weight=rng.uniform(0.5, 2, 18))
    problem, graph = gs.Problem(loss, gs.domains.Box(-1, 1)), gs.Graph.ring(6)
    for method in (
        gs.SPDS(N=5, coupling=coupling, oracle=oracle),
        gs.SPDS(N=5, R=np.float64(0.7), c=np.float64(0.3), L=np.float64(9.0), coupling=coupling, oracle=oracle),
    ):
        solution = gs.solve(problem, graph, method)
        assert all(array.dtype == dtype for array in [solution.dual, *solution.outputs.values()])
        for state in iterates(problem, graph, method):
            assert {state.x.dtype, state.y.dtype, state.x_bar.dtype} == {np.dtype(dtype)}


def test_a_lone_agent_needs_no_network():
    loss = least_squares(np.random.default_rng(0), 1, 3)
    solution = gs.solve(gs.Problem(loss), gs.Graph.from_edges(1, []), gs.SPDS(N=30, R=1.0, c=5.0))
    assert solution.costs.rounds == 0
    assert solution.costs.samples == sum(batches(solution)[0])


# ---- losses of one's own


def streaming(value=True, **wrong):
    """f_i(x) = |x - a_i|^2 / 2, of which only noisy gradients are known."""
    centers = np.arange(10.0).reshape(5, 2)

    def sampled(i):
        return lambda x, batch, rng: x - centers[i] + rng.normal(size=(batch, 2)).mean(axis=0)

    return gs.losses.Custom(
        sample_gradient=[sampled(i) for i in range(5)],
        value=(lambda x: 0.5 * np.sum((x - centers) ** 2, axis=1)) if value else None,
        smoothness=1.0,
        agents=5,
        dimension=2,
        **wrong,
    )


def test_a_loss_that_can_only_be_sampled_is_solved():
    problem, graph = gs.Problem(streaming()), GRAPHS["ring"]
    solution = gs.solve(problem, graph, gs.SPDS(N=40, c=0.1))
    # The mean of the centres is (4, 5).
    assert np.abs(solution.mean - [4.0, 5.0]).max() < 0.2
    assert solution.history[-1].objective == pytest.approx(40.0, abs=0.1)
    assert (solution.costs.gradients, solution.costs.samples) == (0, 64 + sum(batches(solution)[0]))


def test_a_loss_without_a_value_runs_without_an_objective():
    graph, method = GRAPHS["ring"], gs.SPDS(N=6, R=1.0, c=0.1)
    known, unknown = (gs.solve(gs.Problem(streaming(value)), graph, method) for value in (True, False))
    np.testing.assert_array_equal(known.x, unknown.x)
    assert [(record.objective, record.local_objective) for record in unknown.history] == 6 * [(None, None)]
    assert all(record.residual > 0 and record.disagreement > 0 for record in unknown.history)
    assert known.history[-1].objective is not None
    with pytest.raises(InputError, match=r"Stop\(objective=\.\.\.\) needs a loss that has a value"):
        gs.solve(gs.Problem(streaming(False)), graph, method, stop=gs.Stop(objective=1.0))


def test_a_run_without_a_value_goes_on_from_a_checkpoint(tmp_path):
    problem, method = gs.Problem(streaming(False)), gs.SPDS(N=6, R=1.0, c=0.1)
    whole = gs.solve(problem, GRAPHS["ring"], method)
    gs.solve(problem, GRAPHS["ring"], method, stop=gs.Stop(iterations=3), checkpoint=tmp_path / "run.npz")
    np.testing.assert_array_equal(gs.solve(problem, GRAPHS["ring"], method, checkpoint=tmp_path / "run.npz").x, whole.x)


# ---- what it refuses

FLAT = gs.losses.Logistic(np.zeros((10, 3)), np.tile([1, -1], 5), agents=5)
MISTAKES = {
    "no length": (lambda: gs.SPDS(), ["needs N, or samples, or eps and distance", "N=None", "for example N=100"]),
    "N is 0": (lambda: gs.SPDS(N=0), ["N must be a whole number >= 1", "got 0"]),
    "N is no whole number": (lambda: gs.SPDS(N=2.5), ["N must be a whole number", "2.5"]),
    "N is a truth value": (lambda: gs.SPDS(N=True), ["N must be a whole number", "True"]),
    "eps without a distance": (lambda: gs.SPDS(eps=0.1), ["eps needs a distance", "distance=None", "an estimate"]),
    "eps and N": (lambda: gs.SPDS(eps=0.1, distance=1.0, N=5), ["eps excludes the others", "N=5", "drop"]),
    "eps and samples": (
        lambda: gs.SPDS(eps=0.1, distance=1.0, samples=50),
        ["eps excludes", "samples=50", "drop"],
    ),
    "eps is 0": (lambda: gs.SPDS(eps=0.0, distance=1.0), ["eps must be > 0", "0.0"]),
    "c and samples": (lambda: gs.SPDS(N=5, c=1.0, samples=50), ["exclude each other", "c=1.0", "drop one"]),
    "fewer samples than N": (lambda: gs.SPDS(N=5, samples=4), ["samples must be a whole number >= 5", "got 4"]),
    "no samples": (lambda: gs.SPDS(samples=0), ["samples must be a whole number >= 1", "got 0"]),
    "samples is no whole number": (lambda: gs.SPDS(samples=9.5), ["samples must be a whole number", "9.5"]),
    "c below 0": (lambda: gs.SPDS(N=5, c=-1.0), ["c must be >= 0", "-1.0"]),
    "R is 0": (lambda: gs.SPDS(N=5, R=0.0), ["R must be > 0", "0.0"]),
    "L is 0": (lambda: gs.SPDS(N=5, L=0.0), ["L must be > 0", "0.0", "larger"]),
    "L is NaN": (lambda: gs.SPDS(N=5, L=math.nan), ["L must be > 0", "nan"]),
    "norm below 0": (lambda: gs.SPDS(N=5, norm=-1.0), ["||A|| must be >= 0", "-1.0"]),
    "sigma below 0": (lambda: gs.SPDS(N=5, sigma=-1.0), ["sigma must be >= 0", "-1.0", "estimate_sigma"]),
    "distance is 0": (lambda: gs.SPDS(N=5, distance=0.0), ["distance must be > 0", "0.0"]),
    "a word for sigma": (lambda: gs.SPDS(N=5, sigma="big"), ["sigma must be", "'big'"]),
    "negative seed": (lambda: gs.SPDS(N=5, seed=-1), ["seed must be a whole number >= 0", "-1", "seed=0"]),
    "seed is no whole number": (lambda: gs.SPDS(N=5, seed=0.5), ["seed must be a whole number", "0.5"]),
    "oracle is a class": (
        lambda: gs.SPDS(N=5, oracle=WithReplacement),
        ["one of gs.oracles", "the class WithReplacement", "WithReplacement()"],
    ),
    "oracle is a word": (lambda: gs.SPDS(N=5, oracle="rows"), ["one of gs.oracles", "str 'rows'"]),
    "unknown coupling": (lambda: gs.SPDS(N=5, coupling="laplace"), ["coupling", "'laplace'", "'laplacian'?"]),
    "batch beyond all measure": (
        lambda: gs.solve(small_problem(), GRAPHS["ring"], gs.SPDS(N=1000, L=1.0, R=1.0, c=1e9)),
        ["a batch can hold 1e+15 samples", "2.5e+17 in outer iteration 1000", "lower N or c"],
    ),
    "entropy": (
        lambda: gs.solve(gs.Problem(logistic(np.random.default_rng(0), 5, 3), gs.domains.EntropySimplex()), *FEW),
        ["Euclidean", "EntropySimplex", "use Simplex"],
    ),
    "flat losses": (lambda: gs.solve(gs.Problem(FLAT), *FEW), ["L of SPDS must be > 0", "0.0", "larger"]),
    "N beyond a stage": (
        lambda: gs.solve(small_problem(mu=4.0), GRAPHS["ring"], gs.SPDS(N=300, L=1.0, R=1.0, c=0.0)),
        ["N must be at most 58", "300", "lower N"],
    ),
    "rows of a quadratic": (
        lambda: gs.solve(gs.Problem(gs.losses.Quadratic(np.ones((5, 1, 1)), np.ones((5, 1)))), *FEW),
        ["needs a loss with rows", "Quadratic", "LeastSquares"],
    ),
    "an unknown smoothness": (
        lambda: gs.solve(gs.Problem(gs.losses.Custom(sample_gradient=lambda x, *_: x, agents=5, dimension=2)), *FEW),
        ["smoothness", "give smoothness="],
    ),
    "a loss without samples": (
        lambda: gs.solve(gs.Problem(gs.losses.Custom(gradient=lambda x: x, smoothness=1, agents=5, dimension=2)), *FEW),
        ["sample_gradient", "give sample_gradient="],
    ),
}
FEW = GRAPHS["ring"], gs.SPDS(N=5, R=1.0, c=0.5)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_one_clear_error(mistake):
    make, words = MISTAKES[mistake]
    with pytest.raises(InputError) as error:
        make()
    message = str(error.value)
    assert message.count("; got ") == 1
    assert all(word in message for word in words), message


def test_numbers_of_numpy_are_numbers():
    method = gs.SPDS(N=np.int64(5), R=np.float32(0.5), c=np.float64(1.0), seed=np.int64(3))
    assert type(method.R) is float
    assert gs.solve(small_problem(), GRAPHS["ring"], method).parameters["N"] == 5
