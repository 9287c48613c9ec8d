"""EXTRA and PG-EXTRA: against the form with a sum over all iterates and a naive loop, rates, costs, step sizes."""

import numpy as np
import pytest
from baselines import (
    EUCLIDEAN_SEEDS,
    UNLIKE,
    check_costs,
    check_gradient_steps,
    check_needs_euclidean,
    check_optimum,
    check_refusals,
    check_unlike_domains,
    gradient,
    metropolis,
    own_starts,
    rate_of,
    small_problem,
    strongly_convex_case,
)
from paper_twins import iterates
from problems import random_case

import gradslide as gs
from gradslide.graphs.mixing import MIXINGS

GRAPH = gs.Graph.random(7, 3, seed=2)


def with_sums(problem, W, a, iterations, x0):
    """x_{k+1} = W x_k - a g(x_k) + sum over t < k of (W - (I + W)/2) x_t: a correction of gradient descent."""
    xs = [x0]
    for _ in range(iterations):
        correction = sum(((W - (np.eye(problem.m) + W) / 2) @ x for x in xs[:-1]), np.zeros_like(xs[0]))
        xs.append(W @ xs[-1] - a * gradient(problem, xs[-1]) + correction)
        yield xs[-1]


def agent_by_agent(problem, W, a, iterations, x):
    """PG-EXTRA, where agent i knows its own rows and what its neighbours sent."""
    m = problem.m
    parts = [gs.Problem(problem.loss.take([i]), problem.domain.take([i]), problem.mu) for i in range(m)]
    x_before, v = None, None
    for _ in range(iterations):
        v_new = []
        for i in range(m):
            received = {j: x[j] for j in range(m) if W[i, j] != 0}
            new = sum(W[i, j] * received[j] for j in received) - a * gradient(parts[i], x[i][None])[0]
            if v is not None:
                earlier = {j: x_before[j] for j in received}
                half = (x_before[i] + sum(W[i, j] * earlier[j] for j in earlier)) / 2
                new = new + v[i] - half + a * gradient(parts[i], x_before[i][None])[0]
            v_new.append(new)
        x_before, v = x, v_new
        domains = [part.domain for part in parts]
        x = [d.prox((u - d.center) / a, 1 / a)[0] for d, u in zip(domains, v, strict=True)]
        yield np.stack(x)


@pytest.mark.parametrize("mu", [0.0, 0.3])
@pytest.mark.parametrize("name", sorted(MIXINGS))
def test_smooth_problems_agree_with_the_form_with_sums(name, mu):
    problem = small_problem(0, gs.domains.Free(center=0.2), mu)
    x0 = own_starts(problem)
    W = metropolis(GRAPH) if name == "metropolis" else MIXINGS[name](GRAPH).matrix.toarray()
    states = iterates(problem, GRAPH, gs.EXTRA(step_size=0.05, mixing=name), gs.Stop(iterations=40), x0)
    for state, x in zip(states, with_sums(problem, W, 0.05, 40, x0), strict=True):
        np.testing.assert_allclose(state.x, x, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("domain", [gs.domains.L2Ball(0.4), gs.domains.Box(-0.1, 0.2, center=0.1), *UNLIKE.values()])
def test_it_agrees_with_agents_that_know_only_their_neighbours(domain):
    problem = small_problem(1, domain, 0.1)
    x0 = own_starts(problem)
    states = iterates(problem, GRAPH, gs.EXTRA(step_size=0.1), gs.Stop(iterations=25), x0)
    for state, x in zip(states, agent_by_agent(problem, metropolis(GRAPH), 0.1, 25, x0), strict=True):
        np.testing.assert_allclose(state.x, x, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("graph", [gs.Graph.ring(8), gs.Graph.complete(6), gs.Graph.star(9)], ids=repr)
def test_strongly_convex_problems_converge_linearly(graph):
    problem, optimum = strongly_convex_case(graph, kappa=10.0)
    states = iterates(problem, graph, gs.EXTRA(), gs.Stop(iterations=300))
    errors = np.array([np.linalg.norm(s.x - optimum) for s in states])
    errors = errors[errors > 1e-12]
    first, second = rate_of(errors[20 : len(errors) // 2]), rate_of(errors[len(errors) // 2 :])
    assert first < 0.96
    assert second == pytest.approx(first, abs=0.03)


@pytest.mark.first(5)
@pytest.mark.parametrize("seed", EUCLIDEAN_SEEDS[1::3])
def test_it_converges_to_the_optimum(seed):
    check_optimum(random_case(seed, mu=0.2), gs.EXTRA(), 1000, 1e-6)


@pytest.mark.covering
@pytest.mark.parametrize("graph", [gs.Graph.ring(6), gs.Graph.complete(4), gs.Graph.grid(2, 4)], ids=repr)
@pytest.mark.parametrize("mixing", sorted(MIXINGS))
def test_steps_that_are_too_long_diverge(graph, mixing):
    """For agents alike the end is (5 + 3 lmin(W))/(4 L) (Li, Yan 2021); the default is 0.95 (1 + lmin(W))/L."""
    loss = gs.losses.Quadratic(np.tile(np.diag([4.0, 1.0]), (graph.m, 1, 1)), np.ones((graph.m, 2)))
    problem = gs.Problem(loss, mu=1.0)
    x0 = np.random.default_rng(0).normal(size=(graph.m, 2))
    least = np.linalg.eigvalsh(MIXINGS[mixing](graph).matrix.toarray())[0]
    default, end = 0.95 * (1 + least) / 5, (5 + 3 * least) / 20
    found = gs.solve(problem, graph, gs.EXTRA(mixing=mixing), stop=gs.Stop(iterations=1)).parameters["step_size"]
    assert found == pytest.approx(default, rel=1e-6)
    errors = []
    for step_size in (None, 0.96 * end, 1.04 * end):
        method, stop = gs.EXTRA(step_size=step_size, mixing=mixing), gs.Stop(iterations=800)
        x = gs.solve(problem, graph, method, stop=stop, record_every=800, x0=x0).x
        errors.append(np.max(np.abs(x - [-1 / 5, -1 / 2])))
    assert max(errors[:2]) < 1e-6
    assert not errors[2] < 1


def test_the_default_step_takes_the_L_that_was_given():
    problem = small_problem(mu=0.3)
    steps = [
        gs.solve(problem, GRAPH, gs.EXTRA(L=L), stop=gs.Stop(iterations=1)).parameters["step_size"] for L in (2.0, 5.0)
    ]
    assert steps[0] / steps[1] == pytest.approx(5.3 / 2.3)


def test_agents_with_domains_of_their_own():
    check_unlike_domains(gs.EXTRA())


def test_an_iteration_costs_one_gradient_and_one_exchange():
    check_costs(gs.EXTRA(step_size=0.1), gradients=1, rounds=1)
    check_costs(gs.EXTRA(L=3.0), gradients=1, rounds=1)
    check_costs(gs.EXTRA(), gradients=1, rounds=1, control_rounds=GRAPH.diameter_bound)


def test_states_checkpoints_the_invariant_and_a_lone_agent(tmp_path):
    check_gradient_steps(gs.EXTRA, tmp_path)


def test_what_it_cannot_solve_is_refused():
    check_refusals(gs.EXTRA)
    check_needs_euclidean(gs.EXTRA())
