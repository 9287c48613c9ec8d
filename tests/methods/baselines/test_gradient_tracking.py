"""Gradient tracking: against its form with two earlier iterates and a naive loop, rates, hard networks, costs."""

import numpy as np
import pytest
from baselines import (
    EUCLIDEAN_SEEDS,
    check_costs,
    check_gradient_steps,
    check_needs_common_domain,
    check_needs_euclidean,
    check_optimum,
    check_refusals,
    gradient,
    last_x,
    metropolis,
    own_starts,
    rate_of,
    small_problem,
    smoothness,
    strongly_convex_case,
)
from paper_twins import iterates
from problems import random_case

import gradslide as gs
from gradslide.graphs.mixing import MIXINGS

GRAPH = gs.Graph.random(7, 3, seed=2)


def lazy(W):
    return W if np.linalg.eigvalsh(W)[0] >= -1e-12 else (np.eye(len(W)) + W) / 2


def agent_by_agent(problem, W, a, iterations, x):
    """Agent i knows its own rows and what its neighbours sent; s_i is its estimate of the mean gradient."""
    m, domain = problem.m, problem.domain.take([0])
    parts = [gs.Problem(problem.loss.take([i]), problem.domain.take([i]), problem.mu) for i in range(m)]
    g = [gradient(part, x_i[None])[0] for part, x_i in zip(parts, x, strict=True)]
    s = list(g)

    def received(sent, i):
        return sum(W[i, j] * sent[j] for j in range(m) if W[i, j] != 0)

    for _ in range(iterations):
        moved = [x[i] - a * s[i] for i in range(m)]
        mixed = [received(moved, i) for i in range(m)]
        x = [domain.prox((v - domain.center) / a, 1 / a)[0] for v in mixed]
        g_new = [gradient(part, x_i[None])[0] for part, x_i in zip(parts, x, strict=True)]
        corrected = [s[i] + g_new[i] - g[i] for i in range(m)]
        s, g = [received(corrected, i) for i in range(m)], g_new
        yield np.stack(x), np.stack(s)


def with_two_earlier_iterates(problem, W, a, iterations, before):
    """x_{k+1} = 2 W x_k - W^2 x_{k-1} - a W^2 (g(x_k) - g(x_{k-1})), without any s."""
    x = W @ (before - a * gradient(problem, before))
    for _ in range(iterations):
        yield x
        change = a * (gradient(problem, x) - gradient(problem, before))
        before, x = x, 2 * W @ x - W @ W @ (before + change)


@pytest.mark.parametrize("domain", [None, gs.domains.L2Ball(0.4), gs.domains.Free(penalty=gs.L1(0.3), center=0.5)])
@pytest.mark.parametrize("mu", [0.0, 0.3])
def test_it_agrees_with_agents_that_know_only_their_neighbours(domain, mu):
    problem = small_problem(0, domain, mu)
    x0 = own_starts(problem)
    states = iterates(problem, GRAPH, gs.GradientTracking(step_size=0.2), gs.Stop(iterations=30), x0)
    assert np.linalg.eigvalsh(metropolis(GRAPH))[0] < -0.1
    for state, (x, s) in zip(states, agent_by_agent(problem, lazy(metropolis(GRAPH)), 0.2, 30, x0), strict=True):
        np.testing.assert_allclose(state.x, x, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(state.s, s, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("graph", [GRAPH, gs.Graph.star(7), gs.Graph.complete(7)], ids=repr)
@pytest.mark.parametrize("name", sorted(MIXINGS))
def test_smooth_problems_agree_with_the_form_with_two_earlier_iterates(graph, name):
    problem = small_problem(1, mu=0.1)
    x0 = own_starts(problem)
    W = lazy(MIXINGS[name](graph).matrix.toarray())
    states = iterates(problem, graph, gs.GradientTracking(step_size=0.1, mixing=name), gs.Stop(iterations=30), x0)
    for state, x in zip(states, with_two_earlier_iterates(problem, W, 0.1, 30, x0), strict=True):
        np.testing.assert_allclose(state.x, x, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("graph", [gs.Graph.ring(8), gs.Graph.complete(6), gs.Graph.star(9)], ids=repr)
def test_strongly_convex_problems_converge_linearly(graph):
    problem, optimum = strongly_convex_case(graph, kappa=10.0)
    states = iterates(problem, graph, gs.GradientTracking(), gs.Stop(iterations=500))
    errors = np.array([np.linalg.norm(s.x - optimum) for s in states])
    errors = errors[errors > 1e-12]
    first, second = rate_of(errors[20 : len(errors) // 2]), rate_of(errors[len(errors) // 2 :])
    # The network leaves (1 - l2)^2 of the error.
    gap = 1 - np.linalg.eigvalsh(lazy(metropolis(graph)))[-2]
    assert second <= max(1 - 1 / 10, 1 - gap**2) + 0.02
    assert second == pytest.approx(first, abs=0.03)


@pytest.mark.first(5)
@pytest.mark.parametrize("seed", EUCLIDEAN_SEEDS[2::3])
def test_it_converges_to_the_optimum(seed):
    check_optimum(random_case(seed, mu=0.2), gs.GradientTracking(), 1500, 1e-5)


HARD = {"path": gs.Graph.path(30), "ring": gs.Graph.ring(50), "star": gs.Graph.star(30)}


@pytest.mark.covering
@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize(
    ("domain", "share"), [(gs.domains.Free(), None), (gs.domains.Free(), 1.9), (gs.domains.L2Ball(0.5), None)]
)
def test_steps_below_2_over_L_are_stable_on_hard_networks(name, domain, share):
    """Convex f_i of very unlike sizes, flat in some direction for every agent: the pooled prox-gradient step and the
    disagreement fall, however slowly."""
    graph, rng = HARD[name], np.random.default_rng(6)
    rows = rng.normal(size=(graph.m, 2, 3)) * 10 ** rng.uniform(-1, 0, size=(graph.m, 1, 1))
    Q = rows.swapaxes(1, 2) @ rows
    c = -np.einsum("mij,mj->mi", Q, rng.normal(size=3) + 0.3 * rng.normal(size=(graph.m, 3)))
    problem = gs.Problem(gs.losses.Quadratic(Q, c), domain)
    method = gs.GradientTracking(step_size=None if share is None else share / smoothness(problem))
    errors, scale = {}, 1 / np.linalg.norm(Q.mean(axis=0), 2)

    def look(record, x):
        if record.iteration in (1, 500, 1000, 1500, 2000):
            mean = np.tile(x.mean(axis=0), (graph.m, 1))
            g = problem.loss.gradient(mean).mean(axis=0)
            step = problem.domain.prox((mean - scale * g) / scale, 1 / scale) - mean
            errors[record.iteration] = np.linalg.norm(step) + np.linalg.norm(x - mean)

    gs.solve(problem, graph, method, stop=gs.Stop(iterations=2000), record_every=2000, callback=look)
    assert list(errors.values()) == sorted(errors.values(), reverse=True)
    assert errors[2000] < 0.3 * errors[1]


def test_steps_beyond_2_over_L_diverge():
    loss = gs.losses.Quadratic(np.tile(np.diag([4.0, 1.0]), (6, 1, 1)), np.ones((6, 2)))
    problem, graph = gs.Problem(loss, mu=1.0), gs.Graph.ring(6)
    optimum = [-1 / 5, -1 / 2]
    near = last_x(problem, graph, gs.GradientTracking(step_size=1.9 / 5), 600)
    np.testing.assert_allclose(near, np.tile(optimum, (6, 1)), atol=1e-8)
    stop = gs.Stop(iterations=600)
    far = gs.solve(problem, graph, gs.GradientTracking(step_size=2.1 / 5), stop=stop, record_every=600)
    assert not np.max(np.abs(far.x - optimum)) < 1


def test_the_default_step_is_1_over_L():
    for given in ({}, {"L": 2.0}):
        problem = small_problem(mu=0.3)
        solution = gs.solve(problem, GRAPH, gs.GradientTracking(**given), stop=gs.Stop(iterations=1))
        L = given.get("L", float(np.max(problem.smoothness()))) + 0.3
        assert solution.parameters["step_size"] == pytest.approx(1 / L)


def test_an_iteration_costs_one_gradient_and_two_exchanges():
    check_costs(gs.GradientTracking(step_size=0.1), gradients=1, rounds=2, first_gradients=1)
    flood = GRAPH.diameter_bound
    check_costs(gs.GradientTracking(), gradients=1, rounds=2, first_gradients=1, control_rounds=flood)


def test_states_checkpoints_the_invariant_and_a_lone_agent(tmp_path):
    check_gradient_steps(gs.GradientTracking, tmp_path)


def test_what_it_cannot_solve_is_refused():
    check_refusals(gs.GradientTracking)
    check_needs_euclidean(gs.GradientTracking())
    check_needs_common_domain(gs.GradientTracking())
