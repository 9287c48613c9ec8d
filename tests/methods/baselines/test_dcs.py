"""DCS: the iterates of the paper, its bounds, what it counts, and how it goes on."""

import itertools
import math

import numpy as np
import pytest
from baselines import stepped_twice
from dcs_twin import SETS, check_iterates, paper, setting
from error_messages import check_message
from paper_twins import iterates
from problems import huber, logistic, quadratic, softmax

import gradslide as gs


@pytest.mark.covering
@pytest.mark.parametrize("mu", [0.0, 1.5])
@pytest.mark.parametrize("kind", SETS)
def test_the_algorithm_as_printed(kind, mu):
    problem, graph = setting(kind, mu)
    states = iterates(problem, graph, gs.DCS(growth=3, most=10), gs.Stop(iterations=8))
    check_iterates(states, paper(problem, graph, 8, growth=3, most=10))


@pytest.mark.parametrize("mu", [0.0, 1.5])
def test_the_ratio_moves_eta_and_tau_against_each_other(mu):
    problem, graph = setting("ball", mu)
    states = iterates(problem, graph, gs.DCS(ratio=0.3, growth=2), gs.Stop(iterations=6))
    check_iterates(states, paper(problem, graph, 6, ratio=0.3, growth=2))


# ---- bounds


def worst_share(problem, graph, optimum, N, **given):
    """The largest left side as a share of the right side of what the theorem is proved from:
    f(x_bar) - f* + <Lap x_bar, y> <= what V(x_0, x*), |y|^2 and M give, with the y for which it is tightest."""
    mu, m, norm = problem.mu, graph.m, graph.laplacian_norm
    radius = float(problem.domain.radius[0, 0])
    M = (float(np.max(problem.smoothness())) + mu) * radius
    # Where ft is linear, mu nu in the prox step leaves no error.
    M = 0.0 if np.max(problem.smoothness()) == 0 else M
    V = optimum.V(problem, problem.start())
    errors, total, worst = 0.0, 0.0, 0.0
    for k, state in enumerate(iterates(problem, graph, gs.DCS(**given), gs.Stop(iterations=N)), start=1):
        T, T_1 = min(10 * k, 5000), 10
        t = np.arange(1, T + 1)
        if mu == 0:
            theta, start, tau = 1, 2 * norm * (T_1 + 1) * (T_1 + 2) / (T_1 * (T_1 + 3)), norm
            errors += theta * 4 * m * M**2 / (2 * norm * (T + 3))
        else:
            theta, start, tau, eta = k + 1, mu, 4 * norm**2 / mu, k * mu / 2
            errors += theta * m * M**2 * np.sum(t / ((t + 1) * mu + (t - 1) * eta)) / np.sum(t)
        total += theta
        Ax = graph.laplacian @ state.x_bar
        y = total * Ax / tau
        left = np.sum(problem.objective(state.x_bar)) - optimum.objective + np.vdot(Ax, y)
        worst = max(worst, left * total / (start * V + tau / 2 * np.vdot(y, y) + errors))
    return worst


def in_a_ball(seed, mu, make_loss=None):
    rng = np.random.default_rng(seed)
    graph = (gs.Graph.ring(5), gs.Graph.star(6), gs.Graph.path(4), gs.Graph.random(8, 3, seed=seed))[seed % 4]
    loss = gs.losses.Linear(rng.normal(size=(graph.m, 3))) if make_loss is None else make_loss(rng, graph.m, 3)
    problem = gs.Problem(loss, gs.domains.L2Ball(0.7), mu)
    return problem, graph, gs.reference.reference(problem)


@pytest.mark.covering
@pytest.mark.parametrize("mu", [0.0, 0.8])
@pytest.mark.parametrize("make_loss", [None, logistic, quadratic])
def test_the_average_keeps_its_bound(make_loss, mu):
    for seed in range(4):
        assert worst_share(*in_a_ball(seed, mu, make_loss), 12) <= 1 + 1e-9


@pytest.mark.parametrize("mu", [0.0, 0.8])
def test_the_bound_breaks_with_a_norm_that_is_ten_times_too_small(mu):
    broken = 0
    for seed in range(4):
        problem, graph, optimum = in_a_ball(seed, mu)
        broken += worst_share(problem, graph, optimum, 12, norm=graph.laplacian_norm / 10) > 1
    assert broken >= 3


RATES = {
    "logistic loss in a ball": (gs.Graph.ring(5), logistic, lambda: gs.domains.L2Ball(0.7)),
    "huber loss in a box": (gs.Graph.path(4), huber, lambda: gs.domains.Box(-0.3, 0.2)),
    "logistic loss with l1 penalty": (gs.Graph.complete(4), logistic, lambda: gs.domains.Free(penalty=gs.L1(0.3))),
    "softmax loss": (gs.Graph.random(6, 3, seed=1), softmax, gs.domains.Free),
}


@pytest.mark.covering
@pytest.mark.parametrize(("mu", "power", "growth"), [(0.0, 1, 1.3), (1.0, 2, 1.5)])
@pytest.mark.parametrize("case", RATES)
def test_the_average_converges_at_the_rate_of_the_theorem(case, mu, power, growth):
    """The error times N (or N^2 for mu > 0) does not grow but for a logarithm."""
    graph, make_loss, make_set = RATES[case]
    problem = gs.Problem(make_loss(np.random.default_rng(5), graph.m, 3), make_set(), mu)
    optimum = gs.reference.reference(problem).objective
    method, stop = gs.DCS(growth=1), gs.Stop(iterations=64)
    early, late = gs.solve(problem, graph, method, stop=stop, record_every=32).history
    errors = [abs(record.objective - optimum) + record.residual for record in (early, late)]
    assert errors[1] * 64**power <= growth * errors[0] * 32**power
    assert abs(late.objective - optimum) < 0.06 * abs(float(np.sum(problem.objective(problem.start()))) - optimum)


def test_entropy_reaches_the_optimum_at_that_rate_too():
    graph = gs.Graph.complete(4)
    problem = gs.Problem(logistic(np.random.default_rng(5), 4, 3), gs.domains.EntropySimplex())
    optimum = gs.reference.reference(problem).objective
    method, stop = gs.DCS(growth=1), gs.Stop(iterations=80)
    early, late = gs.solve(problem, graph, method, stop=stop, record_every=40).history
    assert late.objective - optimum < 0.55 * (early.objective - optimum) < 0.2
    assert late.disagreement < 0.6 * early.disagreement < 0.01


# ---- what it counts


def test_gradients_and_rounds_of_the_schedule():
    problem, graph = setting("free", 0.0)
    solution = gs.solve(problem, graph, gs.DCS(growth=4, most=9), stop=gs.Stop(iterations=6))
    gradients = list(itertools.accumulate(min(4 * k, 9) for k in range(1, 7)))
    assert [record.gradients for record in solution.history] == gradients
    assert [record.rounds for record in solution.history] == [2 * k for k in range(1, 7)]
    costs = solution.costs
    assert (costs.values, costs.samples, costs.control_rounds) == (0, 0, 0)
    assert costs.floats_sent == 2 * 6 * 2 * len(graph.edges) * problem.d


def test_the_norm_is_found_by_the_agents_unless_it_is_given():
    problem, graph = setting("free", 0.0)
    network, stop = gs.network.Local(graph, exact_norm=False), gs.Stop(iterations=2)
    found = gs.solve(problem, network, gs.DCS(), stop=stop)
    assert found.costs.control_rounds == network.costs.norm_rounds > 0
    assert found.parameters["A_norm"] == graph.norm_bound
    given = gs.solve(problem, network, gs.DCS(norm=graph.norm_bound), stop=stop)
    assert given.costs.control_rounds == 0
    np.testing.assert_array_equal(given.x, found.x)


def count(rounds):
    """The gradients of so many rounds, on a problem whose gradients cost nothing."""
    targets = np.array([[1.0], [3.0]])
    loss = gs.losses.Custom(gradient=lambda x: x - targets, smoothness=1.0, agents=2, dimension=1)
    stop = gs.Stop(rounds=rounds)
    solution = gs.solve(gs.Problem(loss), gs.Graph.path(2), gs.DCS(), stop=stop, record_every=10**6)
    assert solution.costs.rounds == rounds
    np.testing.assert_allclose(solution.outputs["last"], 2.0, atol=1e-3)
    return solution.costs.gradients


def test_the_gradients_of_fewer_rounds_than_the_table_has():
    assert count(120) == sum(10 * k for k in range(1, 61)) == 18_300


@pytest.mark.slow
def test_3110_rounds_take_6527500_gradients_as_in_table_1():
    assert count(3110) == sum(min(10 * k, 5000) for k in range(1, 1556)) == 6_527_500


# ---- how it starts, goes on and ends


def test_a_run_goes_on_to_the_bit(tmp_path):
    problem, graph = setting("ball", 0.7)
    whole = gs.solve(problem, graph, gs.DCS(), stop=gs.Stop(iterations=7))
    for iterations in (3, 7):
        stop = gs.Stop(iterations=iterations)
        parts = gs.solve(problem, graph, gs.DCS(), stop=stop, checkpoint=tmp_path / "run.npz")
    for name, x in whole.outputs.items():
        np.testing.assert_array_equal(parts.outputs[name], x)
    np.testing.assert_array_equal(parts.dual, whole.dual)
    assert parts.costs.gradients == whole.costs.gradients


@pytest.mark.parametrize("mu", [0.0, 0.7])
def test_float32_stays_float32(mu):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(40, 4)).astype(np.float32)
    loss = gs.losses.Logistic(features, rng.choice([-1, 1], size=40), agents=5)
    method = gs.DCS(ratio=np.float64(0.9), norm=np.float64(4.0))
    for state in iterates(gs.Problem(loss, mu=mu), gs.Graph.ring(5), method, gs.Stop(iterations=3)):
        for name in ("x", "x_prev", "x_hat", "x_bar", "y", "y_bar", "w"):
            assert getattr(state, name).dtype == np.float32


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_a_lone_agent_solves_its_problem(mu):
    problem = gs.Problem(logistic(np.random.default_rng(0), 1, 3), gs.domains.L2Ball(1.0), mu)
    solution = gs.solve(problem, gs.Graph.complete(1), gs.DCS(), stop=gs.Stop(iterations=30))
    assert solution.history[-1].objective == pytest.approx(gs.reference.reference(problem).objective, abs=0.02)
    assert solution.costs.rounds == 0


def test_a_copied_state_can_be_gone_on_from_again():
    problem, graph = setting("ball", 0.0)
    for first, second in stepped_twice(problem, graph, gs.DCS(growth=2), 4):
        np.testing.assert_array_equal(first.x_bar, second.x_bar)
        np.testing.assert_array_equal(first.y, second.y)


def test_the_outputs_and_the_dual_of_each():
    problem, graph = setting("ball", 0.7)
    state = iterates(problem, graph, gs.DCS(), gs.Stop(iterations=5))[-1]
    expected = {"average": (state.x_bar, state.y_bar), "hat": (state.x_hat, state.y), "last": (state.x, state.y)}
    for name, (x, y) in expected.items():
        solution = gs.solve(problem, graph, gs.DCS(), stop=gs.Stop(iterations=5), output=name)
        np.testing.assert_array_equal(solution.x, x)
        np.testing.assert_allclose(solution.dual, y - y.mean(axis=0), atol=1e-12)
    assert gs.solve(problem, graph, gs.DCS(), stop=gs.Stop(iterations=5)).output == "average"


def test_the_multipliers_are_those_of_the_optimum():
    """Lap y tends to mean(g) - g_i, and what is exchanged adds up to nothing."""
    graph = gs.Graph.ring(5)
    problem = gs.Problem(quadratic(np.random.default_rng(1), 5, 3), mu=0.0)
    optimum = gs.reference.reference(problem)
    state = iterates(problem, graph, gs.DCS(growth=3), gs.Stop(iterations=60))[-1]
    g = problem.loss.gradient(np.tile(optimum.x, (5, 1)))
    np.testing.assert_allclose(state.w, g.mean(axis=0) - g, atol=0.025 * float(np.abs(g).max()))
    np.testing.assert_allclose(gs.DCS().invariant(state).sum(axis=0), 0.0, atol=1e-10)


def test_a_warm_start_brings_its_multipliers():
    problem, graph = setting("free", 1.0)
    first = gs.solve(problem, graph, gs.DCS(), stop=gs.Stop(iterations=30), output="last")
    warm = gs.solve(problem, graph, gs.DCS(), stop=gs.Stop(iterations=1), warm_start=first, output="last")
    cold = gs.solve(problem, graph, gs.DCS(), stop=gs.Stop(iterations=1), x0=first.x, output="last")
    x = gs.reference.reference(problem).x
    assert np.linalg.norm(warm.x - x) < 0.5 * np.linalg.norm(cold.x - x)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"ratio": 0.0}, "ratio"),
        ({"ratio": math.nan}, "ratio"),
        ({"growth": 0}, "growth"),
        ({"growth": 2.5}, "growth"),
        ({"most": 0}, "most"),
        ({"most": 1e3}, "most"),
        ({"norm": 0.0}, "norm"),
        ({"norm": -1.0}, "norm"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(given, word):
    check_message(lambda: gs.DCS(**given), [word])


def test_a_saddle_point_problem_is_refused():
    problem = gs.LinearlyConstrained(gs.losses.Quadratic(np.eye(3), np.ones(3)), np.eye(3)[:1], 0.3)
    for method in (gs.DCS(), gs.DCS(norm=1.0)):
        check_message(lambda method=method: gs.solve(problem, method=method), ["network"])


def test_parameters_are_reported():
    problem, graph = setting("free", 0.0)
    solution = gs.solve(problem, graph, gs.DCS(ratio=2, norm=9), stop=gs.Stop(iterations=1))
    assert solution.parameters == {"ratio": 2.0, "A_norm": 9.0}
    assert gs.DCS.tuned == "ratio"
