"""SDCS: the iterates of the paper with sampled gradients, what it counts, and how it ends."""

import itertools

import numpy as np
import pytest
from baselines import stepped_twice
from dcs_twin import SETS, check_iterates, paper, setting
from error_messages import check_message
from five_agents import Recorded
from paper_twins import iterates
from problems import logistic

import gradslide as gs
from gradslide.oracles import Noise, Stream, WithoutReplacement, WithReplacement


@pytest.mark.parametrize("mu", [0.0, 1.5])
@pytest.mark.parametrize("kind", SETS)
def test_without_noise_it_is_dcs(kind, mu):
    problem, graph = setting(kind, mu)
    given, stop = {"ratio": 0.7, "growth": 3, "most": 8, "norm": 5.0}, gs.Stop(iterations=5)
    sampled = iterates(problem, graph, gs.SDCS(oracle=Noise(0.0), batch=2, **given), stop)
    for one, other in zip(sampled, iterates(problem, graph, gs.DCS(**given), stop), strict=True):
        for name in ("x", "x_prev", "x_hat", "x_bar", "y", "y_bar", "w"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("mu", [0.0, 1.5])
@pytest.mark.parametrize("kind", ["ball", "entropy", "one each"])
def test_the_algorithm_as_printed(kind, mu):
    problem, graph = setting(kind, mu)
    oracle = Recorded(WithReplacement())
    states = iterates(problem, graph, gs.SDCS(growth=3, most=10, oracle=oracle, seed=4), gs.Stop(iterations=6))
    sampled = [asked.v for asked in oracle.seen]
    check_iterates(states, paper(problem, graph, 6, growth=3, most=10, sampled=sampled))
    assert all(np.linalg.norm(asked.v - problem.loss.gradient(asked.x)) > 1e-3 for asked in oracle.seen)


@pytest.mark.parametrize("batch", [1, 3])
def test_every_inner_iteration_takes_new_samples(batch):
    problem, graph = setting("ball", 0.0)
    oracle = Recorded(WithReplacement())
    solution = gs.solve(problem, graph, gs.SDCS(growth=2, batch=batch, oracle=oracle), stop=gs.Stop(iterations=5))
    assert [(asked.start, asked.count) for asked in oracle.seen] == [(batch * n, batch) for n in range(30)]
    taken = list(itertools.accumulate(2 * k * batch for k in range(1, 6)))
    assert [record.samples for record in solution.history] == taken
    assert [record.rounds for record in solution.history] == [2 * k for k in range(1, 6)]
    costs = solution.costs
    assert (costs.gradients, costs.values, costs.control_rounds) == (0, 0, 0)
    assert costs.floats_sent == 2 * 5 * 2 * len(graph.edges) * problem.d


@pytest.mark.parametrize("mu", [0.0, 1.5])
def test_the_noise_averages_out_over_seeds(mu):
    """Samples are unbiased: where f is quadratic, the mean of many runs is the run without noise."""
    graph = gs.Graph.ring(4)
    rng = np.random.default_rng(0)
    problem = gs.Problem(gs.losses.Quadratic(np.tile(np.eye(2), (4, 1, 1)), rng.normal(size=(4, 2))), mu=mu)
    stop = gs.Stop(iterations=3)

    def run(seed, sigma):
        method = gs.SDCS(growth=4, oracle=Noise(sigma), seed=seed)
        return gs.solve(problem, graph, method, stop=stop, record_every=3).x

    exact, runs = run(0, 0.0), np.array([run(seed, 1.0) for seed in range(150)])
    spread = runs.std(axis=0)
    assert spread.min() > 1e-3
    np.testing.assert_array_less(np.abs(runs.mean(axis=0) - exact), 4.5 * spread / np.sqrt(len(runs)))


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_it_converges_with_the_default_rule(mu):
    """The noise falls as the inner loops get longer; short inner loops keep it."""
    graph = gs.Graph.complete(4)
    problem = gs.Problem(logistic(np.random.default_rng(5), 4, 3), gs.domains.L2Ball(0.7), mu)
    optimum = gs.reference.reference(problem).objective
    start = abs(float(np.sum(problem.objective(problem.start()))) - optimum)
    errors = {}
    for most in (5000, 2):
        method = gs.SDCS(most=most, oracle=Noise(6.0))
        last = gs.solve(problem, graph, method, stop=gs.Stop(iterations=24), record_every=24).history[-1]
        errors[most] = abs(last.objective - optimum)
    assert errors[5000] < 0.1 * start
    assert errors[5000] < errors[2] / 3


def test_seeds_tell_runs_apart():
    problem, graph = setting("ball", 0.0)
    xs = [gs.solve(problem, graph, gs.SDCS(seed=seed), stop=gs.Stop(iterations=2)).x for seed in (0, 0, 1)]
    np.testing.assert_array_equal(xs[0], xs[1])
    assert np.abs(xs[0] - xs[2]).max() > 1e-6


@pytest.mark.parametrize("oracle", [WithReplacement(), WithoutReplacement(), Noise(1.0)])
def test_a_run_goes_on_to_the_bit(oracle, tmp_path):
    problem, graph = setting("ball", 0.7)
    method = gs.SDCS(growth=3, oracle=oracle, batch=2, seed=3)
    whole = gs.solve(problem, graph, method, stop=gs.Stop(iterations=7))
    for iterations in (3, 7):
        stop = gs.Stop(iterations=iterations)
        parts = gs.solve(problem, graph, method, stop=stop, checkpoint=tmp_path / "run.npz")
    for name, x in whole.outputs.items():
        np.testing.assert_array_equal(parts.outputs[name], x)
    assert parts.costs.samples == whole.costs.samples


def test_a_stream_that_ends_leaves_what_was_reached():
    """T_k = 2, 4, 6, 8: fourteen samples end in the fourth outer iteration."""
    problem, graph = setting("ball", 0.0)
    rng = np.random.default_rng(1)
    batches = [[(rng.normal(size=(1, 4)), rng.choice([-1, 1], size=1)) for _ in range(14)] for _ in range(6)]
    method = gs.SDCS(growth=2, oracle=Stream(batches))
    ended = gs.solve(problem, graph, method, stop=gs.Stop(iterations=10))
    assert ended.status is gs.Status.STREAM_ENDED
    assert ended.history[-1].iteration == 3
    stopped = gs.solve(problem, graph, gs.SDCS(growth=2, oracle=Stream(batches)), stop=gs.Stop(iterations=3))
    np.testing.assert_array_equal(ended.x, stopped.x)


def test_a_copied_state_can_be_gone_on_from_again():
    problem, graph = setting("ball", 0.0)
    for first, second in stepped_twice(problem, graph, gs.SDCS(growth=2), 4):
        np.testing.assert_array_equal(first.x_bar, second.x_bar)
        assert first.samples == second.samples


def test_float32_stays_float32():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(40, 4)).astype(np.float32)
    loss = gs.losses.Logistic(features, rng.choice([-1, 1], size=40), agents=5)
    for oracle in (WithReplacement(), Noise(1.0)):
        method = gs.SDCS(growth=2, oracle=oracle)
        for state in iterates(gs.Problem(loss, mu=0.3), gs.Graph.ring(5), method, gs.Stop(iterations=3)):
            for name in ("x", "x_hat", "x_bar", "y", "y_bar", "w"):
                assert getattr(state, name).dtype == np.float32


def test_a_lone_agent_solves_its_problem():
    problem = gs.Problem(logistic(np.random.default_rng(0), 1, 3), gs.domains.L2Ball(1.0), 0.5)
    solution = gs.solve(problem, gs.Graph.complete(1), gs.SDCS(batch=8), stop=gs.Stop(iterations=20))
    assert solution.history[-1].objective == pytest.approx(gs.reference.reference(problem).objective, abs=0.05)
    assert solution.costs.rounds == 0


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"batch": 0}, "batch"),
        ({"batch": 1.5}, "batch"),
        ({"seed": -1}, "seed"),
        ({"oracle": "rows"}, "oracle"),
        ({"oracle": WithReplacement}, "oracle"),
        ({"ratio": -1.0}, "ratio"),
        ({"growth": 0}, "growth"),
        ({"most": True}, "most"),
        ({"norm": 0}, "norm"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(given, word):
    check_message(lambda: gs.SDCS(**given), [word])


def test_a_saddle_point_problem_is_refused():
    problem = gs.LinearlyConstrained(gs.losses.LeastSquares(np.eye(3), np.ones(3)), np.eye(3)[:1], 0.3)
    check_message(lambda: gs.solve(problem, method=gs.SDCS()), ["network"])
