"""OPAPC: iterate by iterate against the paper's lines with a dense polynomial, its linear rate, its costs."""

import math

import numpy as np
import pytest
from baselines import check_invariant, check_resume, check_states, gradient, rate_of, small_problem
from error_messages import check_message
from numpy.polynomial import chebyshev as series
from paper_twins import iterates
from problems import logistic, quadratic

import gradslide as gs
from gradslide.graphs.chebyshev import chebyshev, chebyshev_exchanges
from gradslide.theory.reference import reference

GRAPHS = {
    "ring": gs.Graph.ring(12),
    "path": gs.Graph.path(12),
    "star": gs.Graph.star(12),
    "complete": gs.Graph.complete(12),
    "random": gs.Graph.random(12, 4, seed=1),
    "weighted": gs.Graph.from_edges(12, [(i, (i + 1) % 12) for i in range(12)], np.linspace(0.5, 2, 12)),
}


def dense_gossip(graph):
    """I - T_K(c2 (I - c3 Lap))/T_K(c2), by eigenvalues."""
    values, vectors = np.linalg.eigh(graph.laplacian.toarray())
    least, most = values[1], values[-1]
    chi = most / least
    K = max(1, math.floor(math.sqrt(chi) + 1e-9))
    if most - least < 1e-9 * most:
        turned = 1 - values / most
    else:
        c2, c3 = (chi + 1) / (chi - 1), 2 * chi / ((chi + 1) * most)
        T = [0] * K + [1]
        turned = series.chebval(c2 * (1 - c3 * values), T) / series.chebval(c2, T)
    return K, (vectors * (1 - turned)) @ vectors.T


@pytest.mark.parametrize("name", GRAPHS)
def test_chebyshev_gossip_is_the_polynomial_with_the_eigenvalues_that_theory_gives(name):
    graph = GRAPHS[name]
    K, C = dense_gossip(graph)
    asked = []

    def multiply(v):
        asked.append(v)
        return graph.laplacian @ v

    least, most = graph.algebraic_connectivity, graph.laplacian_norm
    assert chebyshev_exchanges(most / least) == K
    found = chebyshev(multiply, np.eye(12), K, least=least, most=most)
    np.testing.assert_allclose(found, C, atol=1e-12)
    assert len(asked) == K
    eigenvalues = np.linalg.eigvalsh(C)
    assert abs(eigenvalues[0]) < 1e-12
    assert 2 / 5 <= eigenvalues[1] <= eigenvalues[-1] <= 8 / 5


@pytest.mark.parametrize("chi", [1.0, 3.999, 4.0, 8.999, 9.0, 15.999, 100.0, 12345.0, 1e6])
def test_the_eigenvalues_of_chebyshev_gossip_are_those_that_the_step_is_made_for(chi):
    """11/15 to 19/15 needs K >= sqrt(chi); the paper's floor(sqrt(chi)) may fall short of it."""
    values = np.append(np.geomspace(1, chi, 3000), chi)
    K = chebyshev_exchanges(chi)
    assert math.sqrt(chi) - 1 < K <= math.sqrt(chi) + 1e-6

    def eigenvalues(K):
        return chebyshev(lambda v: values * v, np.ones_like(values), K, least=1.0, most=chi)

    rounded_up = eigenvalues(math.ceil(math.sqrt(chi) - 1e-9))
    assert 11 / 15 - 1e-9 <= rounded_up.min() <= rounded_up.max() <= 19 / 15 + 1e-9
    rounded_down = eigenvalues(K)
    assert 2 / 5 <= rounded_down.min() <= rounded_down.max() <= 8 / 5
    if chi == 3.999:
        assert rounded_down.max() > 1.59


def test_it_converges_where_rounding_sqrt_chi_down_costs_most():
    """chi is 3.99 on two links of unequal weight: the largest eigenvalue of C is 8/5."""
    graph = gs.Graph.from_edges(3, [(0, 1), (1, 2), (0, 2)], [1.0, 1.0, 5.48])
    assert 3.9 < graph.condition < 4
    problem = gs.Problem(gs.losses.Linear(np.random.default_rng(0).normal(size=(3, 2))), mu=1.0)
    x = gs.solve(problem, graph, gs.OPAPC(L=1e3), stop=gs.Stop(iterations=2000), record_every=2000).x
    np.testing.assert_allclose(x, np.tile(reference(problem).x, (3, 1)), atol=1e-6)


def paper(problem, graph, x, iterations):
    """The paper's lines, with its tau, eta and theta: x, x_f, y."""
    _, C = dense_gossip(graph)
    mu = problem.mu
    L = float(np.max(problem.smoothness())) + mu
    tau = min(1.0, math.sqrt(19 / (15 * (L / mu))) / 2)
    eta = 1 / (4 * tau * L)
    theta = 15 / (19 * eta)
    x_f, y = x, np.zeros_like(x)
    for _ in range(iterations):
        x_g = tau * x + (1 - tau) * x_f
        slope = gradient(problem, x_g) - mu * x_g
        x_half = (x - eta * (slope + y)) / (1 + eta * mu)
        y = y + theta * C @ x_half
        x_new = (x - eta * (slope + y)) / (1 + eta * mu)
        x_f, x = x_g + 2 * tau / (2 - tau) * (x_new - x), x_new
        yield x, x_f, y


@pytest.mark.covering
@pytest.mark.parametrize("center", [0.0, 0.3])
@pytest.mark.parametrize("name", GRAPHS)
def test_iterates_agree_with_the_paper(name, center):
    graph = GRAPHS[name]
    problem = small_problem(1, gs.domains.Free(center=center), 0.3, m=12)
    x0 = np.random.default_rng(0).normal(size=(12, 3))
    states = iterates(problem, graph, gs.OPAPC(), gs.Stop(iterations=40), x0=x0)
    for state, (x, x_f, y) in zip(states, paper(problem, graph, x0, 40), strict=True):
        np.testing.assert_allclose(state.x, x, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(state.x_f, x_f, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(state.y, y, rtol=1e-8, atol=1e-9)


def test_a_centre_moves_the_optimum_and_the_method_follows():
    problem = small_problem(1, gs.domains.Free(center=0.7), 2.0)
    x = gs.solve(problem, gs.Graph.ring(7), gs.OPAPC(), stop=gs.Stop(iterations=400)).x
    np.testing.assert_allclose(x, np.tile(reference(problem).x, (7, 1)), atol=1e-6)
    assert np.max(np.abs(x - reference(small_problem(1, None, 2.0)).x)) > 0.1


def test_the_step_size_stands_for_the_papers_L():
    """eta gives tau and theta just as the L from which it follows does."""
    problem, graph, stop = small_problem(1, None, 0.3), gs.Graph.ring(7), gs.Stop(iterations=30)
    other = gs.solve(problem, graph, gs.OPAPC(L=3.0), stop=stop)
    eta = 1 / (2 * math.sqrt(19 / 15 * 0.3 * 3.3))
    tau = math.sqrt(19 * 0.3 / (15 * 3.3)) / 2
    assert other.parameters == pytest.approx({"step_size": eta, "tau": tau, "theta": 15 / (19 * eta), "K": 2})
    assert eta == pytest.approx(1 / (4 * tau * 3.3))
    same = gs.solve(problem, graph, gs.OPAPC(step_size=other.parameters["step_size"]), stop=stop)
    np.testing.assert_array_equal(same.x, other.x)
    assert gs.solve(problem, graph, gs.OPAPC(step_size=100.0), stop=gs.Stop(iterations=1)).parameters["tau"] == 1.0


@pytest.mark.first(3)
@pytest.mark.parametrize(("name", "make_loss"), [*((name, quadratic) for name in GRAPHS), ("ring", logistic)])
def test_the_error_falls_linearly_with_the_root_of_kappa_on_any_network(name, make_loss):
    graph, rates = GRAPHS[name], []
    for mu in (0.05, 1.0):
        problem = gs.Problem(make_loss(np.random.default_rng(5), 12, 4), mu=mu)
        optimum = reference(problem, tolerance=1e-12).x
        kappa = float(np.max(problem.smoothness())) / mu + 1
        states = iterates(problem, graph, gs.OPAPC(), gs.Stop(iterations=300))
        errors = np.array([np.linalg.norm(state.x - optimum) for state in states])
        # The proof has 1/25 of 1/sqrt(kappa) for |x - x*|^2.
        rates.append(rate_of(errors[errors > 1e-6]))
        assert rates[-1] <= 1 - 1 / (5 * math.sqrt(kappa))
    assert rates[0] > rates[1]


def test_it_reaches_the_optimum_where_agents_differ_much():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(12, 1, 4)) * np.geomspace(0.1, 10, 12)[:, None, None]
    problem = gs.Problem(gs.losses.Quadratic(rows.swapaxes(1, 2) @ rows, 10 * rng.normal(size=(12, 4))), mu=1.0)
    for graph in GRAPHS.values():
        x = gs.solve(problem, graph, gs.OPAPC(), stop=gs.Stop(iterations=2500), record_every=2500).x
        np.testing.assert_allclose(x, np.tile(reference(problem).x, (12, 1)), atol=1e-4)


@pytest.mark.parametrize("name", GRAPHS)
def test_an_iteration_takes_one_gradient_and_K_exchanges(name):
    graph = GRAPHS[name]
    solution = gs.solve(small_problem(mu=0.2, m=12), graph, gs.OPAPC(L=9.0), stop=gs.Stop(iterations=8))
    K = max(1, math.floor(math.sqrt(graph.condition) + 1e-9))
    assert [r.gradients for r in solution.history] == list(range(1, 9))
    assert [r.rounds for r in solution.history] == [K * k for k in range(1, 9)]
    costs = solution.costs
    assert (costs.samples, costs.values, costs.control_rounds) == (0, 0, 0)
    assert costs.floats_sent == 8 * K * 2 * len(graph.edges) * 3
    assert solution.parameters["K"] == K
    found = gs.solve(small_problem(mu=0.2, m=12), graph, gs.OPAPC(), stop=gs.Stop(iterations=1)).costs
    assert found.control_rounds == graph.diameter


def test_a_bound_on_the_norm_serves_as_well_and_is_paid_for_once(tmp_path):
    network, problem = gs.network.Local(gs.Graph.star(7), exact_norm=False), small_problem(mu=0.3)
    for iterations in (1, 200, 400):
        stop = gs.Stop(iterations=iterations)
        solution = gs.solve(problem, network, gs.OPAPC(L=9.0), stop=stop, checkpoint=tmp_path / "run.npz")
        assert solution.costs.control_rounds == network.costs.norm_rounds
    np.testing.assert_allclose(solution.x, np.tile(reference(problem).x, (7, 1)), atol=1e-6)


def test_the_invariant_adds_up_to_zero():
    check_invariant(gs.OPAPC())


def test_a_run_that_goes_on_later_gives_the_same_bits(tmp_path):
    check_resume(gs.OPAPC(), tmp_path)


def test_states_can_be_kept_and_float32_stays():
    check_states(gs.OPAPC(L=np.float64(20.0)))
    check_states(gs.OPAPC(step_size=np.float64(0.1)))


def test_a_lone_agent_needs_no_network():
    problem = small_problem(2, None, 0.5, m=1)
    solution = gs.solve(problem, gs.Graph.path(1), gs.OPAPC(), stop=gs.Stop(iterations=200))
    np.testing.assert_allclose(solution.x[0], reference(problem).x, atol=1e-7)
    assert solution.costs.rounds == solution.costs.control_rounds == 0


def test_what_it_cannot_solve_is_refused():
    graph = gs.Graph.ring(7)

    def solving(problem):
        return lambda: gs.solve(problem, graph, gs.OPAPC())

    check_message(solving(small_problem()), ["OPAPC needs mu > 0", "got 0;", "gs.PDS()"])
    for domain in (gs.domains.Box(-1, 1), gs.domains.L2Ball(5.0), gs.domains.Free(penalty=gs.L1(0.1))):
        check_message(solving(small_problem(domain=domain, mu=0.1)), ["OPAPC needs X = R^d and no penalty", "Problem("])
    saddle = gs.LinearlyConstrained(gs.losses.Quadratic(np.eye(3), np.ones(3)), np.eye(3), 0.3, mu=0.1)
    check_message(lambda: gs.solve(saddle, method=gs.OPAPC(), stop=gs.Stop(iterations=1)), ["needs a network"])
    for name in ("step_size", "L"):
        for value in (0.0, -1.0, math.nan, math.inf, "1", True):
            check_message(lambda given={name: value}: gs.OPAPC(**given), [name, "> 0", repr(value)])
    with pytest.raises(TypeError):
        gs.OPAPC(0.1)


def test_entropy_is_refused():
    problem = small_problem(domain=gs.domains.EntropySimplex(), mu=0.1)
    check_message(lambda: gs.solve(problem, gs.Graph.ring(7), gs.OPAPC()), ["OPAPC needs a Euclidean domain"])
