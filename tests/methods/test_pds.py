"""PDS: its solutions and multipliers, what it costs, and the parameters that it finds."""

import math

import numpy as np
import pytest
from problems import logistic, quadratic
from scipy.optimize import minimize

import gradslide as gs
from gradslide.theory.schedules import theorem_1


@pytest.fixture
def problem():
    return gs.Problem(logistic(np.random.default_rng(0), 8, 4), gs.domains.L2Ball(0.6))


@pytest.fixture
def graph():
    return gs.Graph.random(8, 4, seed=1)


METHOD = gs.PDS(L=4.0, R=1.0)


def scipy_optimum(problem, constraint=None):
    """The pooled optimum by SLSQP, with no code of ours but the loss."""
    m, d = problem.m, problem.d

    def value(x):
        return float(problem.loss.value(np.tile(x, (m, 1))).sum() + m * problem.mu * 0.5 * x @ x)

    def gradient(x):
        return problem.loss.gradient(np.tile(x, (m, 1))).sum(axis=0) + m * problem.mu * x

    constraints = [] if constraint is None else [{"type": "ineq", "fun": constraint}]
    options = {"ftol": 1e-15, "maxiter": 1000}
    return minimize(value, np.full(d, 0.01), jac=gradient, method="SLSQP", constraints=constraints, options=options)


@pytest.mark.covering
@pytest.mark.parametrize("mu", [0.0, 0.5])
@pytest.mark.parametrize("coupling", ["incidence", "laplacian"])
def test_solutions_agree_with_scipy(problem, graph, mu, coupling):
    problem = gs.Problem(problem.loss, gs.domains.L2Ball(0.6), mu)
    exact = scipy_optimum(problem, lambda x: 0.36 - x @ x)
    agreed = 2e-7 if mu > 0 else 2e-5
    stop = gs.Stop(objective=gs.Relative(1e-12, to=exact.fun), disagreement=agreed, rounds=60_000)
    method = gs.PDS(R=0.3, coupling=coupling)
    solution = gs.solve(problem, graph, method, stop=stop, record_every=10, output="last")
    assert solution.status is gs.Status.CONVERGED
    np.testing.assert_allclose(solution.x, np.tile(exact.x, (graph.m, 1)), atol=5 * agreed)
    assert solution.history[-1].objective == pytest.approx(exact.fun, rel=1e-9)


def test_strongly_convex_solution_to_1e_6_in_x(graph):
    rng = np.random.default_rng(2)
    loss = quadratic(rng, 8, 4)
    problem = gs.Problem(loss, mu=1.0)
    c = loss.gradient(np.zeros((8, 4))).sum(axis=0)
    hessian = np.array([loss.gradient(np.tile(e, (8, 1))).sum(axis=0) - c for e in np.eye(4)]) + 8 * np.eye(4)
    exact = np.linalg.solve(hessian, -c)
    solution = gs.solve(problem, graph, stop=gs.Stop(iterations=2000), record_every=100)
    np.testing.assert_allclose(solution.x, np.tile(exact, (8, 1)), atol=1e-6)


@pytest.mark.parametrize(("coupling", "exchanges"), [("incidence", 1), ("laplacian", 2)])
@pytest.mark.parametrize("mu", [0.0, 0.2])
def test_costs_are_N_gradients_and_sum_T_rounds(problem, graph, coupling, exchanges, mu):
    problem = gs.Problem(problem.loss, gs.domains.L2Ball(0.6), mu)
    N = 25
    solution = gs.solve(problem, graph, gs.PDS(L=2.0, R=3.0, coupling=coupling), stop=gs.Stop(iterations=N))
    A_norm = graph.laplacian_norm ** (0.5 if coupling == "incidence" else 1.0)
    schedule = theorem_1(L=2.0, mu=mu, A_norm=A_norm, R=3.0)
    T = [schedule.row(k).T for k in range(1, N + 1)]
    assert sum(T) > N
    assert solution.costs.gradients == N
    assert solution.costs.rounds == exchanges * sum(T)
    assert solution.costs.floats_sent == solution.costs.rounds * 2 * len(graph.edges) * problem.d
    assert solution.costs.control_rounds == 0
    assert [record.rounds for record in solution.history] == list(exchanges * np.cumsum(T))


def test_found_parameters_cost_control_rounds_and_no_extra_gradient(problem, graph):
    solution = gs.solve(problem, graph, gs.PDS(), stop=gs.Stop(iterations=7))
    assert solution.costs.gradients == 7
    _, radius = graph.radius_center()
    assert solution.costs.control_rounds == graph.diameter + 2 * radius
    assert solution.parameters["L"] == pytest.approx(float(np.max(problem.smoothness())))
    assert solution.parameters["R"] > 0
    given = gs.PDS(L=solution.parameters["L"], R=solution.parameters["R"])
    again = gs.solve(problem, graph, given, stop=gs.Stop(iterations=7))
    np.testing.assert_array_equal(solution.x, again.x)


def test_the_bound_on_the_norm_costs_one_exchange_and_a_flooded_maximum(problem, graph):
    network = gs.network.Local(graph, exact_norm=False)
    solution = gs.solve(problem, network, METHOD, stop=gs.Stop(iterations=3))
    assert solution.costs.control_rounds == 1 + graph.diameter
    assert solution.parameters["A_norm"] == pytest.approx(math.sqrt(graph.norm_bound))
    assert graph.norm_bound >= graph.laplacian_norm


def test_multipliers_satisfy_the_optimality_conditions(graph):
    problem = gs.Problem(quadratic(np.random.default_rng(1), 8, 3), mu=0.5)
    solution = gs.solve(problem, graph, gs.AutoPDS(), stop=gs.Stop(iterations=1500), record_every=500)
    stationarity = problem.loss.gradient(solution.x) + 0.5 * solution.x + graph.laplacian @ solution.dual
    np.testing.assert_allclose(stationarity, 0, atol=1e-4)


def test_float32_multipliers_keep_their_digits(graph):
    """Far from the origin the sum of all u dwarfs what w = Lap s sees of it."""
    features = np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32)
    problem = gs.Problem(gs.losses.Logistic(features, np.tile([-1, 1], 32), agents=8), gs.domains.Box(50, 51))
    method = gs.PDS(R=0.3)
    solution = gs.solve(problem, graph, method, stop=gs.Stop(iterations=600), record_every=600)
    exact = gs.Problem(
        gs.losses.Logistic(features.astype(np.float64), np.tile([-1, 1], 32), agents=8), gs.domains.Box(50, 51)
    )
    double = gs.solve(exact, graph, method, stop=gs.Stop(iterations=600), record_every=600)
    w, w_double = graph.laplacian @ solution.dual, graph.laplacian @ double.dual
    assert np.linalg.norm(w - w_double) < 1e-2 * np.linalg.norm(w_double)


def test_a_tiny_L_does_not_make_the_first_step_endless(graph):
    features = 1e-4 * np.random.default_rng(1).normal(size=(64, 4))
    problem = gs.Problem(gs.losses.Logistic(features, np.tile([-1, 1], 32), agents=8), gs.domains.L2Ball(5.0))
    solution = gs.solve(problem, graph, stop=gs.Stop(iterations=3))
    assert solution.costs.rounds <= 50 * (1 + 2 + 3)


def test_the_estimate_of_R_has_no_unit(graph):
    """Multiplying the losses by a number multiplies L and R by it, and leaves the run as it is."""
    runs = []
    for factor in (1.0, 1e-6, 1e6):
        loss = gs.losses.LeastSquares(
            np.random.default_rng(0).normal(size=(32, 3)),
            np.random.default_rng(1).normal(size=32),
            agents=8,
            sample_weight=np.full(32, factor),
        )
        runs.append(gs.solve(gs.Problem(loss), graph, stop=gs.Stop(iterations=30)))
    assert {run.costs.rounds for run in runs} == {runs[0].costs.rounds}
    np.testing.assert_allclose(runs[1].x, runs[0].x, rtol=1e-6)
    np.testing.assert_allclose(runs[2].x, runs[0].x, rtol=1e-6)


def test_outputs(problem, graph):
    solution = gs.solve(problem, graph, METHOD, stop=gs.Stop(iterations=40))
    assert solution.output == "average"
    assert list(solution.outputs) == ["average", "hat", "last"]
    np.testing.assert_array_equal(solution.x, solution.outputs["average"])
    last = gs.solve(problem, graph, METHOD, stop=gs.Stop(iterations=40), output="last")
    np.testing.assert_array_equal(last.x, solution.outputs["last"])
    np.testing.assert_array_equal(solution.gather(), solution.x)
    np.testing.assert_allclose(solution.mean, solution.x.mean(axis=0))
    assert solution.agents == range(8)
    assert solution.certificate.lower == solution.history[-1].lower < solution.certificate.upper
    assert solution.certificate_reason == ""
    with pytest.raises(gs.InputError, match="average"):
        gs.solve(problem, graph, METHOD, output="averag")
