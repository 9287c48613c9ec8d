"""NIDS: against its primal-dual form, its rate, its costs."""

import itertools

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
    last_x,
    metropolis,
    own_starts,
    rate_of,
    small_problem,
    strongly_convex_case,
)
from paper_twins import iterates
from problems import least_squares, logistic, quadratic, random_case

import gradslide as gs
from gradslide.graphs.mixing import MIXINGS
from gradslide.theory.reference import reference


def primal_dual(problem, W, a, iterations, x):
    """z+ = x - a g(x) - a d+, x+ = prox of z+, with a multiplier d that sees the disagreement."""
    domain, d, z = problem.domain, np.zeros_like(x), None
    for _ in range(iterations):
        g = gradient(problem, x)
        if z is not None:
            d = d + (np.eye(problem.m) - W) @ (2 * x - z - a * g - a * d) / (2 * a)
        z = x - a * g - a * d
        x = domain.prox((z - domain.center) / a, 1 / a)
        yield x, d


@pytest.mark.parametrize("domain", [None, gs.domains.Free(center=0.5), gs.domains.L2Ball(0.4), UNLIKE["penalties"]])
@pytest.mark.parametrize("mu", [0.0, 0.3])
def test_it_is_a_primal_dual_method(domain, mu):
    problem, graph = small_problem(0, domain, mu), gs.Graph.random(7, 3, seed=2)
    x0 = own_starts(problem)
    states = iterates(problem, graph, gs.NIDS(step_size=0.2), gs.Stop(iterations=40), x0)
    views = primal_dual(problem, metropolis(graph), 0.2, 40, x0)
    for state, (x, d) in zip(states, views, strict=True):
        np.testing.assert_allclose(state.x, x, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(-gs.NIDS().invariant(state), d, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("name", sorted(MIXINGS))
def test_the_mixing_matrix_is_the_one_asked_for(name):
    problem, graph = small_problem(), gs.Graph.star(7)
    W = MIXINGS[name](graph).matrix.toarray()
    *_, (x, _) = primal_dual(problem, W, 0.1, 15, problem.start())
    np.testing.assert_allclose(last_x(problem, graph, gs.NIDS(step_size=0.1, mixing=name), 15), x, rtol=1e-9)


@pytest.mark.covering
@pytest.mark.parametrize(
    "graph", [gs.Graph.ring(8), gs.Graph.complete(6), gs.Graph.path(5), gs.Graph.star(9)], ids=repr
)
@pytest.mark.parametrize("kappa", [2.0, 20.0])
def test_strongly_convex_problems_converge_at_the_rate_of_theory(graph, kappa):
    """With a = 1/L, |x - x*|^2 falls by max(1 - mu/L, (1 + l2(W))/2) per iteration."""
    problem, optimum = strongly_convex_case(graph, kappa)
    states = iterates(problem, graph, gs.NIDS(), gs.Stop(iterations=200))
    errors = np.array([np.sum((s.x - optimum) ** 2) for s in states])
    errors = errors[errors > 1e-24]
    second = np.linalg.eigvalsh(metropolis(graph))[-2]
    bound = max(1 - 1 / kappa, (1 + second) / 2)
    assert len(errors) > 20
    assert rate_of(errors[len(errors) // 4 :]) <= bound + 1e-3
    # A step ten times shorter does not keep it.
    if 1 - 1 / kappa >= (1 + second) / 2:
        slow = iterates(problem, graph, gs.NIDS(step_size=0.1 / kappa), gs.Stop(iterations=200))
        assert rate_of([np.sum((s.x - optimum) ** 2) for s in slow][50:]) > bound + 1e-3


@pytest.mark.first(5)
@pytest.mark.parametrize("seed", EUCLIDEAN_SEEDS[::3])
def test_it_converges_to_the_optimum(seed):
    check_optimum(random_case(seed, mu=0.2), gs.NIDS(), 1000, 1e-6)


@pytest.mark.parametrize("make_loss", [logistic, least_squares, quadratic])
def test_without_strong_convexity_the_residual_falls_faster_than_1_over_k(make_loss):
    graph = gs.Graph.path(6)
    problem = small_problem(4, gs.domains.L1Ball(0.5), make_loss=make_loss, m=6, d=8)
    states = iterates(problem, graph, gs.NIDS(), gs.Stop(iterations=500))
    moves = [np.sum((new.x - old.x) ** 2) for old, new in itertools.pairwise(states)]
    scaled = [k * max(moves[k - 1 :]) for k in (30, 120, 498)]
    assert scaled[0] >= scaled[1] >= scaled[2]
    objective = sum(problem.objective(np.tile(states[-1].x.mean(axis=0), (6, 1))))
    assert objective == pytest.approx(reference(problem).objective, abs=1e-4)


def test_steps_beyond_2_over_L_diverge_and_those_below_converge():
    graph = gs.Graph.ring(6)
    loss = gs.losses.Quadratic(np.tile(np.diag([4.0, 1.0]), (6, 1, 1)), np.ones((6, 2)))
    problem = gs.Problem(loss, mu=1.0)
    optimum = [-1 / 5, -1 / 2]
    np.testing.assert_allclose(last_x(problem, graph, gs.NIDS(step_size=1.9 / 5), 600), np.tile(optimum, (6, 1)))
    far = gs.solve(problem, graph, gs.NIDS(step_size=2.1 / 5), stop=gs.Stop(iterations=600), record_every=600)
    assert not np.max(np.abs(far.x - optimum)) < 1


def test_the_default_step_is_1_over_L():
    for mu, given in ((0.0, {}), (0.3, {}), (0.3, {"L": 2.0})):
        problem = small_problem(mu=mu)
        solution = gs.solve(problem, gs.Graph.ring(7), gs.NIDS(**given), stop=gs.Stop(iterations=1))
        L = given.get("L", float(np.max(problem.smoothness()))) + mu
        assert solution.parameters["step_size"] == pytest.approx(1 / L)


def test_agents_with_domains_of_their_own():
    check_unlike_domains(gs.NIDS())


def test_costs():
    graph = gs.Graph.random(7, 3, seed=2)
    flood = graph.diameter_bound
    check_costs(gs.NIDS(step_size=0.1), gradients=1, rounds=1, first_rounds=-1)
    check_costs(gs.NIDS(), gradients=1, rounds=1, first_rounds=-1, control_rounds=flood)


def test_states_checkpoints_the_invariant_and_a_lone_agent(tmp_path):
    check_gradient_steps(gs.NIDS, tmp_path)


def test_what_it_cannot_solve_is_refused():
    check_refusals(gs.NIDS)
    check_needs_euclidean(gs.NIDS())
