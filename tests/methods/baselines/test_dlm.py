"""DLM: against a loop over agents and against Condat and Vu's method, its rate, its costs, and what it refuses."""

import numpy as np
import pytest
from baselines import check_warm_start, stepped_twice
from error_messages import check_message
from multiplier_cases import GRAPHS, check_linear, errors_of, weighted
from paper_twins import iterates
from problems import huber, least_squares, logistic, quadratic, smoothed_hinge, softmax

import gradslide as gs


def naive(problem, graph, x, c, rho, iterations):
    """The paper's lines, agent by agent."""
    W = graph.adjacency.toarray()
    phi = np.zeros_like(x)
    for _ in range(iterations):
        g = problem.loss.gradient(x) + problem.mu * problem.domain.grad_nu(x)
        new = np.empty_like(x)
        for i in range(graph.m):
            apart = sum(W[i, j] * (x[i] - x[j]) for j in range(graph.m))
            new[i] = x[i] - (g[i] + phi[i] + c * apart) / (2 * c * W[i].sum() + rho)
        for i in range(graph.m):
            phi[i] += c * sum(W[i, j] * (new[i] - new[j]) for j in range(graph.m))
        x = new
        yield x, phi.copy()


@pytest.mark.parametrize("mu", [0.0, 0.7])
@pytest.mark.parametrize("make_loss", [logistic, quadratic])
def test_agents_agree_with_a_naive_version(make_loss, mu):
    graph, rng = weighted(), np.random.default_rng(1)
    problem = gs.Problem(make_loss(rng, 6, 3), mu=mu)
    rho, c, x0 = 40.0, 0.4, rng.normal(size=(6, 3))
    states = iterates(problem, graph, gs.DLM(c=c, rho=rho), gs.Stop(iterations=25), x0=x0)
    views = naive(problem, graph, x0, c, rho, 25)
    for k, (state, (x, phi)) in enumerate(zip(states, views, strict=True), start=1):
        np.testing.assert_allclose(state.x, x, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(gs.DLM().invariant(state), phi, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(gs.DLM().dual(state), c * sum(s.x for s in states[:k]), rtol=1e-10)
        np.testing.assert_allclose(graph.laplacian @ gs.DLM().dual(state), phi, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("graph", [gs.Graph.ring(6), gs.Graph.complete(5), gs.Graph.hypercube(3)], ids=str)
def test_on_a_regular_graph_it_is_condat_and_vu(graph):
    loss = logistic(np.random.default_rng(1), graph.m, 3)
    problem, c, rho = gs.Problem(loss), 0.4, 30.0
    tau = 1 / (2 * c * graph.degrees[0] + rho)
    stop = gs.Stop(iterations=30)
    ours = iterates(problem, graph, gs.DLM(c=c, rho=rho), stop)
    theirs = iterates(problem, graph, gs.CondatVu(tau=tau, sigma=c, coupling="incidence"), stop)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one.x, other.x, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(one.dual.w + c * one.lap, other.dual.w, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("graph", GRAPHS, ids=str)
@pytest.mark.parametrize("make_loss", [logistic, quadratic, huber])
def test_it_converges_linearly_with_its_defaults_if_f_is_strongly_convex(make_loss, graph):
    problem = gs.Problem(make_loss(np.random.default_rng(3), graph.m, 3), mu=1.0)
    check_linear(errors_of(problem, graph, gs.DLM(), 120, 10))


@pytest.mark.parametrize("make_loss", [least_squares, smoothed_hinge, softmax, logistic])
def test_it_converges_without_strong_convexity(make_loss):
    graph = gs.Graph.random(8, 3, seed=1)
    problem = gs.Problem(make_loss(np.random.default_rng(4), 8, 3))
    optimum = gs.reference.reference(problem).objective
    last = gs.solve(problem, graph, gs.DLM(), stop=gs.Stop(iterations=1500), record_every=1500).history[-1]
    assert last.objective == pytest.approx(optimum, abs=1e-5 * (1 + abs(optimum)))
    assert last.disagreement < 1e-2


def alike(graph):
    """Agents with one quadratic, whose curvature is L in one direction."""
    Q = np.tile(np.diag([4.0, 0.5]), (graph.m, 1, 1))
    return gs.Problem(gs.losses.Quadratic(Q, np.ones((graph.m, 2))))


def test_half_of_L_is_what_rho_needs():
    """2 c deg - c Lap has the eigenvalue 0 on a bipartite graph: just above L/2 x converges, below it does not."""
    graph = gs.Graph.path(2)
    problem, optimum = alike(graph), np.array([[-0.25, -2.0]])
    # Agents that start as opposites stay so: only their difference moves.
    x0 = optimum + np.array([[1.0, 0.0], [-1.0, 0.0]])
    for rho, converges in ((2.1, True), (1.9, False)):
        method = gs.DLM(c=1e-3, rho=rho, L=3.0)
        last = gs.solve(problem, graph, method, stop=gs.Stop(iterations=400), x0=x0, record_every=400).x
        assert (np.linalg.norm((last - optimum)[:, 0]) < 1e-3) == converges


@pytest.mark.parametrize(("mu", "counted"), [(0.0, 0.09), (0.01, 0.0901), (1.0, 1.0)])
def test_the_default_c_comes_from_L_mu_and_the_network(mu, counted):
    graph = weighted()
    problem = gs.Problem(logistic(np.random.default_rng(1), 6, 3), mu=mu)
    eigenvalues = np.linalg.eigvalsh(graph.laplacian.toarray())
    for L, method in ((9.0, gs.DLM(L=9.0)), (float(np.max(problem.smoothness())), gs.DLM())):
        found = gs.solve(problem, graph, method, stop=gs.Stop(iterations=1)).parameters["c"]
        assert found == pytest.approx(
            np.sqrt(max(mu, (L + mu) / 100) * (L + mu) / (eigenvalues[-1] * eigenvalues[1])), rel=1e-9
        )
        assert L != 9 or max(mu, (L + mu) / 100) == pytest.approx(counted)


def test_the_default_c_is_near_the_best_of_a_grid():
    for graph in GRAPHS:
        problem = gs.Problem(logistic(np.random.default_rng(3), graph.m, 3), mu=0.5)
        c = gs.solve(problem, graph, gs.DLM(), stop=gs.Stop(iterations=1)).parameters["c"]
        errors = [errors_of(problem, graph, gs.DLM(c=c * factor), 60, 60)[-1] for factor in (1 / 64, 1, 64)]
        assert errors[1] < min(errors[0], errors[2])


# ---- costs


def test_an_iteration_takes_one_gradient_and_one_exchange():
    graph = weighted()
    problem = gs.Problem(logistic(np.random.default_rng(1), 6, 3))
    solution = gs.solve(problem, graph, gs.DLM(c=0.3, L=10.0), stop=gs.Stop(iterations=20))
    assert [record.gradients for record in solution.history] == list(range(1, 21))
    assert [record.rounds for record in solution.history] == list(range(2, 22))
    costs = solution.costs
    assert (costs.values, costs.samples, costs.control_rounds) == (0, 0, 0)
    assert costs.floats_sent == 21 * 2 * len(graph.edges) * problem.d


def test_what_the_defaults_cost():
    graph = weighted()
    network = gs.network.Local(graph)
    problem = gs.Problem(logistic(np.random.default_rng(1), 6, 3))
    costs = gs.solve(problem, graph, gs.DLM(), stop=gs.Stop(iterations=20)).costs
    assert costs.gradients == 20
    assert costs.rounds == 21
    assert costs.control_rounds == network.costs.control_rounds("max")


# ---- how it starts and goes on


def test_a_run_goes_on_to_the_bit(tmp_path):
    graph, problem = weighted(), gs.Problem(logistic(np.random.default_rng(1), 6, 3))
    whole = gs.solve(problem, graph, gs.DLM(), stop=gs.Stop(iterations=9))
    for iterations in (4, 9):
        stop = gs.Stop(iterations=iterations)
        parts = gs.solve(problem, graph, gs.DLM(), stop=stop, checkpoint=tmp_path / "run.npz")
    np.testing.assert_array_equal(parts.x, whole.x)
    np.testing.assert_array_equal(parts.dual, whole.dual)
    assert parts.costs.rounds == whole.costs.rounds


def test_float32_stays_float32():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(40, 4)).astype(np.float32)
    problem = gs.Problem(gs.losses.Logistic(features, rng.choice([-1, 1], size=40), agents=5), mu=0.1)
    for method in (gs.DLM(), gs.DLM(c=np.float64(0.3), rho=np.float64(20.0), L=np.float64(9.0))):
        for state in iterates(problem, gs.Graph.ring(5), method, gs.Stop(iterations=3)):
            assert {state.x.dtype, state.lap.dtype, state.dual.w.dtype} == {np.dtype(np.float32)}


def test_a_lone_agent_solves_its_problem():
    problem = gs.Problem(logistic(np.random.default_rng(0), 1, 3), mu=0.5)
    solution = gs.solve(problem, gs.Graph.complete(1), gs.DLM(), stop=gs.Stop(iterations=200))
    np.testing.assert_allclose(solution.x[0], gs.reference.reference(problem).x, atol=1e-6)
    assert solution.costs.rounds == 0


def test_a_copied_state_can_be_gone_on_from_again():
    problem = gs.Problem(logistic(np.random.default_rng(0), 6, 3))
    for first, second in stepped_twice(problem, weighted(), gs.DLM()):
        np.testing.assert_array_equal(first.x, second.x)
        np.testing.assert_array_equal(first.dual.w, second.dual.w)


def test_a_warm_start_brings_its_multipliers():
    problem = gs.Problem(logistic(np.random.default_rng(0), 6, 3), mu=0.5)
    check_warm_start(problem, weighted(), gs.DLM(), iterations=400)


def test_what_is_exchanged_adds_up_to_nothing():
    graph, problem = weighted(), gs.Problem(quadratic(np.random.default_rng(0), 6, 3))
    state = iterates(problem, graph, gs.DLM(), gs.Stop(iterations=300))[-1]
    x = gs.reference.reference(problem).x
    np.testing.assert_allclose(gs.DLM().invariant(state).sum(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(gs.DLM().invariant(state), -problem.loss.gradient(np.tile(x, (6, 1))), atol=1e-2)


# ---- what it refuses

CANNOT = {
    "set": gs.domains.L2Ball(0.5),
    "penalty": gs.domains.Free(penalty=gs.L1(0.1)),
    "entropy": gs.domains.EntropySimplex(),
    "box": gs.domains.Box(-5.0, 5.0),
}


@pytest.mark.parametrize("domain", CANNOT.values(), ids=CANNOT)
def test_sets_and_penalties_are_refused(domain):
    problem = gs.Problem(logistic(np.random.default_rng(0), 6, 3), domain)
    check_message(lambda: gs.solve(problem, weighted(), gs.DLM()), ["DLM needs"])


@pytest.mark.parametrize("given", [{"c": 0.0}, {"c": -1.0}, {"rho": 0.0}, {"L": 0.0}, {"c": np.inf}, {"rho": "high"}])
def test_parameters_that_do_not_fit_are_refused(given):
    check_message(lambda: gs.DLM(**given), [next(iter(given))])


def test_a_rho_without_a_proof_is_refused():
    problem = gs.Problem(logistic(np.random.default_rng(0), 6, 3), mu=1.0)
    stop = gs.Stop(iterations=1)
    gs.solve(problem, weighted(), gs.DLM(rho=3.01, L=5.0), stop=stop)
    check_message(lambda: gs.solve(problem, weighted(), gs.DLM(rho=3.0, L=5.0), stop=stop), ["rho", "L/2 = 3"])


def test_a_saddle_point_problem_is_refused():
    problem = gs.LinearlyConstrained(gs.losses.Quadratic(np.eye(3), np.ones(3)), np.eye(3)[:1], 0.3)
    check_message(lambda: gs.solve(problem, method=gs.DLM()), ["network"])


def test_parameters_are_reported():
    problem = gs.Problem(logistic(np.random.default_rng(0), 6, 3), mu=1.0)
    solution = gs.solve(problem, weighted(), gs.DLM(c=2, L=9), stop=gs.Stop(iterations=1))
    assert solution.parameters == {"c": 2.0, "rho": pytest.approx(5.5)}
    assert gs.DLM.tuned == "c"
