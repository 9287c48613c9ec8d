"""Distributed gradient descent: against a naive loop, its closed form with constant steps, rates, costs, step sizes."""

import itertools
import math

import numpy as np
import pytest
from baselines import (
    EUCLIDEAN_SEEDS,
    check_costs,
    check_lone_agent,
    check_needs_common_domain,
    check_needs_euclidean,
    check_norm_is_paid_for_once,
    check_refusals,
    check_resume,
    check_states,
    gradient,
    last_x,
    metropolis,
    own_starts,
    small_problem,
    strongly_convex_case,
)
from error_messages import check_message
from paper_twins import iterates
from problems import random_case

import gradslide as gs
from gradslide.graphs.mixing import MIXINGS

GRAPH = gs.Graph.random(7, 3, seed=2)


def agent_by_agent(problem, W, step_size, decay, iterations, x):
    """Agent i averages over its neighbours and follows its own gradient, with the k-th step k = 1, 2, ..."""
    m = problem.m
    parts = [gs.Problem(problem.loss.take([i]), problem.domain.take([i]), problem.mu) for i in range(m)]
    for k in range(1, iterations + 1):
        a, x_old = step_size / k**decay, x
        x = []
        for i, part in enumerate(parts):
            mixed = sum(W[i, j] * x_old[j] for j in range(m) if W[i, j] != 0)
            v = mixed - a * gradient(part, x_old[i][None])[0]
            x.append(part.domain.prox((v - part.domain.center) / a, 1 / a)[0])
        yield np.stack(x)


@pytest.mark.covering
@pytest.mark.parametrize(
    "domain", [None, gs.domains.L2Ball(0.4), gs.domains.Free(penalty=gs.L1(0.3), center=0.5), gs.domains.Simplex()]
)
@pytest.mark.parametrize("given", [{}, {"decay": 0}, {"decay": 0.75}, {"mixing": "best_constant"}], ids=repr)
def test_it_agrees_with_agents_that_know_only_their_neighbours(domain, given):
    problem = small_problem(0, domain, 0.2)
    x0 = own_starts(problem)
    W = MIXINGS["best_constant"](GRAPH).matrix.toarray() if "mixing" in given else metropolis(GRAPH)
    states = iterates(problem, GRAPH, gs.DGD(step_size=0.2, **given), gs.Stop(iterations=25), x0)
    views = agent_by_agent(problem, W, 0.2, given.get("decay", 0.5), 25, x0)
    for state, x in zip(states, views, strict=True):
        np.testing.assert_allclose(state.x, x, rtol=1e-10, atol=1e-12)


def constant_step_limit(problem, W, a):
    """The minimiser of sum_i f_i(x_i) + |x|^2_{I - W}/(2 a), quadratic f_i."""
    m, d = problem.m, problem.d
    zero = np.zeros((m, d))
    c = problem.loss.gradient(zero)
    Q = [np.stack([problem.loss.gradient(zero + e)[i] - c[i] for e in np.eye(d)]) for i in range(m)]
    matrix = np.kron(np.eye(m) - W, np.eye(d)) / a
    for i in range(m):
        matrix[i * d : (i + 1) * d, i * d : (i + 1) * d] += Q[i]
    return np.linalg.solve(matrix, -c.reshape(-1)).reshape(m, d)


@pytest.mark.parametrize("graph", [gs.Graph.ring(6), gs.Graph.star(5)], ids=repr)
def test_constant_steps_end_at_a_distance_of_the_order_of_the_step(graph):
    problem, optimum = strongly_convex_case(graph, kappa=5.0)
    distances = []
    for a in (0.02, 0.01, 0.005):
        x = last_x(problem, graph, gs.DGD(step_size=a, decay=0), round(20 / a))
        np.testing.assert_allclose(x, constant_step_limit(problem, metropolis(graph), a), atol=1e-9)
        distances.append(np.linalg.norm(x - optimum))
    assert distances[-1] > 1e-4
    for longer, shorter in itertools.pairwise(distances):
        assert longer / shorter == pytest.approx(2, rel=0.1)


@pytest.mark.first(4)
@pytest.mark.parametrize("seed", EUCLIDEAN_SEEDS[::4])
def test_decaying_steps_reach_the_optimum_like_1_over_sqrt_k(seed):
    """sqrt(k)/log(k) times the error of the worst agent stays bounded, and the error falls."""
    case = random_case(seed, mu=0.2)
    problem, m = case.problem, case.graph.m
    errors = {}

    def look(record, x):
        if record.iteration in (30, 120, 480):
            worst = max(float(np.sum(problem.objective(np.tile(x_i, (m, 1))))) for x_i in x)
            errors[record.iteration] = max(worst - case.reference.objective, 0.0)

    gs.solve(problem, case.graph, gs.DGD(), stop=gs.Stop(iterations=480), record_every=480, callback=look)
    scaled = [math.sqrt(k) / math.log(k) * error for k, error in errors.items()]
    floor = 1e-9 * (1 + abs(case.reference.objective))
    for sooner, later in itertools.pairwise(scaled):
        assert later <= 1.05 * sooner + floor, case.label


def test_the_steps_fall_as_they_are_told():
    """The disagreement falls like a_k."""
    problem, graph = small_problem(2), gs.Graph.ring(7)
    for decay in (0.5, 0.8):
        history = gs.solve(problem, graph, gs.DGD(decay=decay), stop=gs.Stop(iterations=800)).history
        assert history[799].disagreement / history[199].disagreement == pytest.approx(4**-decay, rel=0.1)


@pytest.mark.parametrize("mixing", sorted(MIXINGS))
def test_the_default_step_is_just_short_of_where_constant_steps_diverge(mixing):
    """(1 + lmin(W))/L is the end, for agents alike."""
    graph, x0 = gs.Graph.ring(6), np.random.default_rng(0).normal(size=(6, 2))
    loss = gs.losses.Quadratic(np.tile(np.diag([4.0, 1.0]), (6, 1, 1)), np.ones((6, 2)))
    problem = gs.Problem(loss, mu=1.0)
    end = (1 + np.linalg.eigvalsh(MIXINGS[mixing](graph).matrix.toarray())[0]) / 5
    errors = []
    for step_size in (None, 1.02 * end):
        method = gs.DGD(step_size=step_size, decay=0, mixing=mixing)
        solution = gs.solve(problem, graph, method, stop=gs.Stop(iterations=700), record_every=700, x0=x0)
        errors.append(np.max(np.abs(solution.x - [-1 / 5, -1 / 2])))
        if step_size is None:
            assert solution.parameters == {"step_size": pytest.approx(0.95 * end, rel=1e-6), "decay": 0.0}
    assert errors[0] < 1e-6
    assert not errors[1] < 1


def test_the_default_step_takes_the_L_that_was_given():
    stop = gs.Stop(iterations=1)
    steps = [gs.solve(small_problem(mu=0.3), GRAPH, gs.DGD(L=L), stop=stop).parameters["step_size"] for L in (2.0, 5.0)]
    assert steps[0] / steps[1] == pytest.approx(5.3 / 2.3)


def test_an_iteration_costs_one_gradient_and_one_exchange():
    check_costs(gs.DGD(step_size=0.1), gradients=1, rounds=1)
    check_costs(gs.DGD(), gradients=1, rounds=1, control_rounds=GRAPH.diameter_bound)


def test_states(tmp_path):
    check_states(gs.DGD(step_size=np.float64(0.1), decay=np.float64(0.5), L=np.float64(2.0)))
    check_states(gs.DGD(), gs.domains.L2Ball(0.5))
    check_resume(gs.DGD(), tmp_path)
    check_norm_is_paid_for_once(gs.DGD, tmp_path)


def test_a_lone_agent():
    check_lone_agent(gs.DGD())
    check_lone_agent(gs.DGD(decay=0, mixing="laplacian"), domain=gs.domains.L2Ball(0.2))


def test_what_it_cannot_solve_is_refused():
    check_refusals(gs.DGD)
    check_needs_euclidean(gs.DGD())
    check_needs_common_domain(gs.DGD())
    for decay in (-0.1, 1.5, math.nan, "0.5", None):
        check_message(lambda decay=decay: gs.DGD(decay=decay), ["decay", ">= 0", "<= 1", repr(decay)])
