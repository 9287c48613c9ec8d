"""Accelerated gradient tracking: iterate by iterate against loops over agents, its rates, its costs, and how many
exchanges it needs."""

import math

import numpy as np
import pytest
from baselines import (
    check_invariant,
    check_lone_agent,
    check_needs_common_domain,
    check_needs_euclidean,
    check_norm_is_paid_for_once,
    check_optimum,
    check_refusals,
    check_resume,
    check_states,
    gradient,
    last_x,
    metropolis,
    own_starts,
    rate_of,
    small_problem,
    smoothness,
)
from error_messages import check_message
from paper_twins import iterates
from problems import logistic, quadratic, random_case

import gradslide as gs
from gradslide.graphs.chebyshev import fast_mix, fast_mix_exchanges
from gradslide.theory.reference import reference


def naive(problem, graph, x, *, a, K, prox, iterations, restart=False):
    """Agent by agent, message by message: x_k and s."""
    m, mu = graph.m, problem.mu
    W = (np.eye(m) + metropolis(graph)) / 2
    second = np.sort(np.linalg.eigvalsh(W))[-2]
    e = (1 - math.sqrt(1 - second**2)) / (1 + math.sqrt(1 - second**2))

    def mixed(v):
        now = before = [row.copy() for row in v]
        for _ in range(K):
            heard = [sum(W[i, j] * now[j] for j in range(m)) for i in range(m)]
            now, before = [(1 + e) * h - e * b for h, b in zip(heard, before, strict=True)], now
        return np.array(now)

    y, t, s, g_last = x, 0, None, None
    for _ in range(iterations):
        g = gradient(problem, y)
        s = g if s is None else mixed(s + g - g_last)
        x_new = np.array([prox(row, a) for row in mixed(y - a * s)])
        t += 1
        theta = (t - 1) / (t + 2) if mu == 0 else (1 - math.sqrt(a * mu)) / (1 + math.sqrt(a * mu))
        if restart and sum((y[i] - x_new[i]) @ (x_new[i] - x[i]) for i in range(m)) > 0:
            t, theta = 1, 0.0
        y, x, g_last = x_new + theta * (x_new - x), x_new, g
        yield x, s


PROX = {
    "free": (gs.domains.Free(), lambda v, a: v),
    "centred": (gs.domains.Free(center=0.3), lambda v, a: v),
    "box": (gs.domains.Box(-0.2, 0.3), lambda v, a: np.clip(v, -0.2, 0.3)),
    "l1": (gs.domains.Free(penalty=gs.L1(0.4)), lambda v, a: np.sign(v) * np.maximum(np.abs(v) - 0.4 * a, 0)),
}


@pytest.mark.covering(2)
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("mu", [0.0, 0.3])
@pytest.mark.parametrize("name", PROX)
def test_iterates_agree_with_agents_that_send_messages(name, mu, K, restart):
    domain, prox = PROX[name]
    graph, problem = gs.Graph.random(7, 3, seed=2), small_problem(3, domain, mu, quadratic)
    a, x0 = 0.9 / smoothness(problem), own_starts(problem)
    method = gs.AcceleratedTracking(step_size=a, K=K, restart=restart)
    states = iterates(problem, graph, method, gs.Stop(iterations=80), x0=x0)
    views = naive(problem, graph, x0, a=a, K=K, prox=prox, iterations=80, restart=restart)
    for state, (x, s) in zip(states, views, strict=True):
        np.testing.assert_allclose(state.x, x, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(state.s, s, rtol=1e-9, atol=1e-9)
    if restart and (name, mu, K) == ("free", 0.0, 1):
        assert min(state.t for state in states[5:]) == 1, "the momentum was never started again"


@pytest.mark.parametrize("mu", [0.0, 0.4])
def test_where_one_exchange_averages_it_is_nesterovs_method_on_the_mean(mu):
    graph, problem = gs.Graph.complete(6), small_problem(1, gs.domains.L2Ball(0.3), mu, m=6)
    a = 1 / smoothness(problem)
    x = y = np.zeros(3)
    for k, state in enumerate(iterates(problem, graph, gs.AcceleratedTracking(), gs.Stop(iterations=30)), start=1):
        assert state.K == 1
        v = y - a * gradient(problem, np.tile(y, (6, 1))).mean(axis=0)
        x_new = v * min(1.0, 0.3 / np.linalg.norm(v))
        theta = (k - 1) / (k + 2) if mu == 0 else (1 - math.sqrt(a * mu)) / (1 + math.sqrt(a * mu))
        x, y = x_new, x_new + theta * (x_new - x)
        np.testing.assert_allclose(state.x, np.tile(x, (6, 1)), atol=1e-12)


@pytest.mark.first(3)
@pytest.mark.parametrize("seed", [seed for seed in range(18) if random_case(seed).problem.domain.euclidean])
def test_it_reaches_the_optimum_of_many_problems(seed):
    case = random_case(seed, (0.0, 0.2)[seed // 6 % 2])
    # Momentum that knows of no strong convexity swings: restarts shorten that.
    check_optimum(case, gs.AcceleratedTracking(restart=case.problem.mu == 0), 600, 1e-4)


def unlike(rng, m, d):
    """Quadratics of rank 1, of very unequal size."""
    rows = rng.normal(size=(m, 1, d)) * rng.uniform(0.1, 3, size=(m, 1, 1))
    return gs.losses.Quadratic(rows.swapaxes(1, 2) @ rows, 3 * rows[:, 0] * rng.normal(size=(m, 1)))


GRAPHS = {"ring": gs.Graph.ring(12), "path": gs.Graph.path(12), "star": gs.Graph.star(12)}


@pytest.mark.covering
@pytest.mark.parametrize("mixing", ["metropolis", "laplacian", "best_constant"])
@pytest.mark.parametrize("name", GRAPHS)
def test_for_mu_0_the_error_falls_like_1_over_k_squared(name, mixing):
    """2 L |x_0 - x*|^2/(k + 1)^2 per agent, as on one machine; half as much again for the network."""
    graph = GRAPHS[name]
    problem = gs.Problem(unlike(np.random.default_rng(4), 12, 5))
    optimum, L = reference(problem), smoothness(problem)
    solution = gs.solve(problem, graph, gs.AcceleratedTracking(mixing=mixing), stop=gs.Stop(iterations=400))
    bound = 1.5 * 2 * 12 * L * np.sum(optimum.x**2)
    assert max(r.iteration**2 * (r.objective - optimum.objective) for r in solution.history) <= bound
    assert solution.history[-1].disagreement < 1e-3


@pytest.mark.covering
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("domain", [None, gs.domains.Box(-0.3, 0.4)])
def test_for_mu_above_0_the_error_falls_linearly_with_the_root_of_kappa(name, domain):
    graph = GRAPHS[name]
    rates = {}
    for mu in (0.02, 0.5):
        problem = gs.Problem(unlike(np.random.default_rng(4), 12, 5), domain, mu)
        optimum, kappa = reference(problem, tolerance=1e-12).x, smoothness(problem) / mu
        states = iterates(problem, graph, gs.AcceleratedTracking(), gs.Stop(iterations=400))
        errors = np.array([np.linalg.norm(state.x - optimum) for state in states])
        errors = errors[errors > 1e-5]
        rates[mu] = rate_of(errors)
        assert rates[mu] <= 1 - 1 / (2 * math.sqrt(kappa)), mu
    if domain is None:
        assert rates[0.02] > rates[0.5], "strong convexity must matter, or the test shows nothing"


@pytest.mark.covering
@pytest.mark.parametrize("make_loss", [logistic, quadratic, unlike])
@pytest.mark.parametrize("domain", [None, gs.domains.Box(-0.3, 0.4)])
def test_too_few_exchanges_drive_the_agents_apart_and_the_default_does_not(make_loss, domain):
    graph = gs.Graph.ring(20)
    problem = gs.Problem(make_loss(np.random.default_rng(1), 20, 4), domain, 0.05)
    optimum = reference(problem).x
    errors = {K: np.max(np.abs(last_x(problem, graph, gs.AcceleratedTracking(K=K), 400) - optimum)) for K in (2, None)}
    assert errors[2] > 0.05
    assert errors[None] < 1e-4


def polynomial(K, second):
    """FastMix as a polynomial in the eigenvalues of W between 0 and the second largest."""
    eigenvalues = np.append(np.linspace(0, second, 2000), second)
    return fast_mix(lambda v: eigenvalues * v, np.ones_like(eigenvalues), K, second)


@pytest.mark.parametrize("chi", [1.0, 2.0, 4.0, 9.0, 30.0, 99.0, 150.0, 1e3, 2.5e3, 1e4, 1e6])
def test_the_default_exchanges_leave_what_momentum_can_bear(chi):
    """y = x + theta (x - x_-) and P x: stable for theta up to 1 where P > -1/3."""
    second = 1 - 1 / chi
    K = fast_mix_exchanges(second)
    left = polynomial(K, second)
    assert math.sqrt(chi) - 1e-6 <= K <= 1.1 * math.sqrt(chi) + 1
    assert left.min() > -1 / 3
    assert np.abs(left).max() < 0.6
    if chi >= 2500:
        assert polynomial(math.ceil(math.sqrt(chi) - 1e-6), second).min() < -1 / 3


def test_plain_root_chi_exchanges_diverge_on_a_long_ring():
    graph = gs.Graph.ring(200)
    rng = np.random.default_rng(1)
    problem, x0 = gs.Problem(unlike(rng, 200, 1)), 100 * rng.normal(size=(200, 1))
    disagreements = []
    for K in (64, None):
        method = gs.AcceleratedTracking(mixing="laplacian", K=K)
        solution = gs.solve(problem, graph, method, stop=gs.Stop(iterations=350), x0=x0, record_every=350)
        disagreements.append(solution.history[-1].disagreement)
    assert disagreements[0] > 1
    assert disagreements[1] < 1e-3
    assert solution.parameters["K"] == 70


def test_fast_mix_keeps_the_mean_and_brings_agents_together():
    graph = gs.Graph.path(30)
    W = gs.mixing.metropolis(graph).lazy
    v = np.random.default_rng(0).normal(size=(30, 2))
    off = []
    for K in range(0, 200, 20):
        mixed = fast_mix(lambda u: W.matrix @ u, v, K, W.second)
        np.testing.assert_allclose(mixed.mean(axis=0), v.mean(axis=0), atol=1e-13)
        off.append(np.linalg.norm(mixed - v.mean(axis=0)))
    assert off[-1] <= math.sqrt(14) * (1 - math.sqrt(1 - W.second)) ** 180 * off[0]
    assert off[0] == np.linalg.norm(v - v.mean(axis=0))


def test_the_invariant_adds_up_to_zero():
    check_invariant(gs.AcceleratedTracking())
    check_invariant(gs.AcceleratedTracking(restart=True), gs.domains.Box(-0.2, 0.3))


@pytest.mark.parametrize("domain", [None, gs.domains.Free(penalty=gs.L1(0.3))])
def test_restarts_save_iterations_where_strong_convexity_is_not_given(domain):
    problem = gs.Problem(unlike(np.random.default_rng(2), 20, 4), domain)
    optimum = reference(problem).x

    def iterations(restart):
        solution = gs.solve(
            problem,
            gs.Graph.ring(20),
            gs.AcceleratedTracking(restart=restart),
            stop=gs.Stop(iterations=2000),
            callback=lambda record, x: bool(np.max(np.abs(x - optimum)) < 1e-6),
            record_every=2000,
        )
        return solution.costs.gradients

    assert iterations(True) < 0.8 * iterations(False)


@pytest.mark.parametrize("K", [1, 4])
def test_an_iteration_takes_one_gradient_and_2_K_exchanges(K):
    graph, problem = gs.Graph.random(7, 3, seed=2), small_problem()
    solution = gs.solve(problem, graph, gs.AcceleratedTracking(K=K, L=9.0), stop=gs.Stop(iterations=10))
    assert [r.gradients for r in solution.history] == list(range(1, 11))
    assert [r.rounds for r in solution.history] == [(2 * k - 1) * K for k in range(1, 11)]
    costs = solution.costs
    assert (costs.samples, costs.values, costs.control_rounds) == (0, 0, 0)
    assert costs.floats_sent == 19 * K * 2 * len(graph.edges) * 3
    assert solution.parameters == {"step_size": 1 / 9, "K": K}


def test_restarts_and_an_unknown_L_cost_control_rounds():
    graph, problem, stop = gs.Graph.random(7, 3, seed=2), small_problem(), gs.Stop(iterations=10)
    network = gs.network.Local(graph)
    known = gs.solve(problem, graph, gs.AcceleratedTracking(restart=True, step_size=0.1), stop=stop).costs
    assert known.control_rounds == 10 * network.costs.control_rounds("sum") > 0
    found = gs.solve(problem, graph, gs.AcceleratedTracking(), stop=stop).costs
    assert found.control_rounds == network.costs.control_rounds("max") == graph.diameter


def test_a_run_that_goes_on_later_gives_the_same_bits(tmp_path):
    check_resume(gs.AcceleratedTracking(restart=True), tmp_path, gs.domains.Box(-0.3, 0.4))
    check_norm_is_paid_for_once(gs.AcceleratedTracking, tmp_path)


def test_states_can_be_kept_and_float32_stays():
    check_states(gs.AcceleratedTracking(step_size=np.float64(0.02)), gs.domains.Box(-0.3, 0.4))
    check_states(gs.AcceleratedTracking(restart=True))


def test_a_lone_agent_is_nesterovs_method():
    check_lone_agent(gs.AcceleratedTracking(restart=True), 500, 1e-9)
    check_lone_agent(gs.AcceleratedTracking(), 500, 1e-6, gs.domains.L2Ball(0.1))


def test_a_step_longer_than_1_over_mu_has_no_momentum():
    problem = small_problem(mu=1.0)
    states = iterates(problem, gs.Graph.ring(7), gs.AcceleratedTracking(step_size=2.0), gs.Stop(iterations=3))
    assert all(np.array_equal(state.x, state.y) for state in states)


def test_what_it_cannot_solve_is_refused():
    check_refusals(gs.AcceleratedTracking)
    check_needs_euclidean(gs.AcceleratedTracking())
    check_needs_common_domain(gs.AcceleratedTracking())
    for K in (0, -1, 1.5, True, "2"):
        check_message(lambda K=K: gs.AcceleratedTracking(K=K), ["K must be a whole number >= 1", repr(K)])
