"""Dual averaging: against a naive loop, the bound of its theorem, any geometry, step sizes, costs."""

import math

import numpy as np
import pytest
from baselines import (
    UNLIKE,
    check_costs,
    check_lone_agent,
    check_norm_is_paid_for_once,
    check_refusals,
    check_resume,
    check_states,
    small_problem,
)
from error_messages import check_message
from paper_twins import iterates
from problems import logistic, random_case

import gradslide as gs
from gradslide.graphs.mixing import MIXINGS, metropolis
from gradslide.theory.reference import reference

GRAPH = gs.Graph.random(7, 3, seed=2)


def agent_by_agent(problem, W, step_size, iterations, argmin, x0):
    """z_i adds up what agent i hears of gradients; argmin(z, k, a) is min <z, x> + k (mu nu + r) + V(x_0, x)/a."""
    m = problem.m
    losses = [problem.loss.take([i]) for i in range(m)]
    x, z = list(x0), [np.zeros(problem.d) for _ in range(m)]
    sums = np.zeros_like(x0)
    for k in range(1, iterations + 1):
        g = [losses[i].gradient(x[i][None])[0] for i in range(m)]
        z = [sum(W[i, j] * z[j] for j in range(m) if W[i, j] != 0) + g[i] for i in range(m)]
        x = [argmin(z_i, k, step_size / math.sqrt(k)) for z_i in z]
        sums = sums + x
        yield np.stack(x), sums / k


def ball_argmin(start, mu, center, radius):
    def argmin(z, k, a):
        v = (start / a + k * mu * center - z) / (1 / a + k * mu)
        return v * min(1.0, radius / np.linalg.norm(v))

    return argmin


def l1_argmin(start, mu, weight):
    def argmin(z, k, a):
        v = start / a - z
        return np.sign(v) * np.maximum(np.abs(v) - k * weight, 0) / (1 / a + k * mu)

    return argmin


def entropy_argmin(start, mu):
    def argmin(z, k, a):
        # The centre is uniform, and log d in nu says nothing on the simplex.
        v = np.exp((np.log(start) / a - z) / (1 / a + k * mu))
        return v / v.sum()

    return argmin


POINTS = np.random.default_rng(8).dirichlet(np.ones(3), size=7)


@pytest.mark.covering
@pytest.mark.parametrize("mu", [0.0, 0.3])
@pytest.mark.parametrize("x0", [None, POINTS[0], POINTS], ids=["default", "one x0", "own x0"])
@pytest.mark.parametrize("kind", ["ball", "l1", "entropy"])
def test_it_agrees_with_agents_that_know_only_their_neighbours(kind, x0, mu):
    domain = {
        "ball": gs.domains.L2Ball(1.0, center=0.1),
        "l1": gs.domains.Free(penalty=gs.L1(0.3)),
        "entropy": gs.domains.EntropySimplex(),
    }[kind]
    problem = small_problem(0, domain, mu)
    starts = np.array(np.broadcast_to(problem.start() if x0 is None else x0, (7, 3)))
    # The mean of the agents' x_0, where nu measures it: geometric for entropy.
    start = np.exp(np.log(starts).mean(axis=0)) if kind == "entropy" else starts.mean(axis=0)
    argmin = {
        "ball": ball_argmin(start, mu, 0.1, 1.0),
        "l1": l1_argmin(start, mu, 0.3),
        "entropy": entropy_argmin(start, mu),
    }[kind]
    states = iterates(problem, GRAPH, gs.DualAveraging(step_size=0.6), gs.Stop(iterations=25), x0)
    W = metropolis(GRAPH).matrix.toarray()
    for state, (x, mean) in zip(states, agent_by_agent(problem, W, 0.6, 25, argmin, starts), strict=True):
        np.testing.assert_allclose(state.x, x, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(state.x_bar, mean, rtol=1e-9, atol=1e-12)
    if kind == "ball":
        # The set is felt.
        assert max(np.max(np.linalg.norm(state.x, axis=1)) for state in states) == pytest.approx(1.0)


def test_the_mixing_matrix_is_the_one_asked_for():
    problem = small_problem(0, gs.domains.L2Ball(0.9))
    for name, mixing in MIXINGS.items():
        method, W = gs.DualAveraging(step_size=0.3, mixing=name), mixing(GRAPH).matrix.toarray()
        *_, (x, _) = agent_by_agent(problem, W, 0.3, 9, ball_argmin(np.zeros(3), 0.0, 0.0, 0.9), problem.start())
        np.testing.assert_allclose(iterates(problem, GRAPH, method, gs.Stop(iterations=9))[-1].x, x, rtol=1e-9)


def worst_error(problem, x, optimum):
    """(1/m) sum_j f_j at the worst agent's point, above the optimum."""
    m = problem.m
    return (max(float(np.sum(problem.objective(np.tile(x_i, (m, 1))))) for x_i in x) - optimum) / m


def theorem_shares(graph, scale=1.0):
    """The errors of the averages for linear f_i with |g_i| = G = 1 on a ball, as shares of Theorem 1 of Duchi, Agarwal
    and Wainwright with their bound on |z_i - mean z|. scale: so many times R sqrt(1 - s2)/(4 G sqrt(k)) is the step."""
    m = graph.m
    c = np.random.default_rng(1).normal(size=(m, 3)) * 0.3 + [1.0, 0.0, 0.0]
    c /= np.linalg.norm(c, axis=1, keepdims=True)
    problem = gs.Problem(gs.losses.Quadratic(np.zeros((m, 3, 3)), c), gs.domains.L2Ball(2.0))
    optimum, R = -2 * np.linalg.norm(c.sum(axis=0)), math.sqrt(2.0**2 / 2)
    gap = 1 - np.linalg.svd(metropolis(graph).matrix.toarray(), compute_uv=False)[1]
    alpha = R * math.sqrt(gap) / 4
    shares = []

    def look(record, x):
        if (k := record.iteration) in (10, 100, 1000):
            apart = 2 * math.log(k * math.sqrt(m)) / gap + 3
            bound = R**2 / (alpha * math.sqrt(k)) + (1 / 2 + 3 * apart) * alpha * 2 / math.sqrt(k)
            shares.append(worst_error(problem, x, optimum) / bound)

    method = gs.DualAveraging(step_size=scale * alpha)
    gs.solve(problem, graph, method, stop=gs.Stop(iterations=1000), record_every=1000, callback=look)
    assert len(shares) == 3
    return shares


@pytest.mark.parametrize("graph", [gs.Graph.ring(8), gs.Graph.star(6), gs.Graph.complete(5)], ids=repr)
def test_the_averages_keep_the_bound_of_the_theorem(graph):
    assert max(theorem_shares(graph)) <= 1


def test_the_bound_is_broken_by_steps_that_are_far_too_short():
    assert max(theorem_shares(gs.Graph.complete(5), 1e-3)) > 1


@pytest.mark.first(4)
@pytest.mark.parametrize("seed", [0, 3, 5, 8, 16, 17, 26, 31])
def test_the_error_of_the_averages_falls_like_1_over_sqrt_k(seed):
    case = random_case(seed, (0.0, 0.2)[seed % 2])
    errors = {}

    def look(record, x):
        if record.iteration in (200, 800):
            errors[record.iteration] = worst_error(case.problem, x, case.reference.objective)

    stop = gs.Stop(iterations=800)
    solution = gs.solve(case.problem, case.graph, gs.DualAveraging(), stop=stop, record_every=800, callback=look)
    assert solution.output == "average"
    start = worst_error(case.problem, case.x0, case.reference.objective)
    # 1/2, but for the logarithm.
    assert errors[800] <= 0.75 * errors[200], case.label
    assert errors[800] <= 0.5 * start, case.label


def test_entropy_and_euclidean_geometry_reach_the_same_optimum():
    problems = [small_problem(3, domain) for domain in (gs.domains.EntropySimplex(), gs.domains.Simplex())]
    optimum = reference(problems[0]).objective
    for problem in problems:
        method, stop = gs.DualAveraging(step_size=0.5), gs.Stop(iterations=600)
        solution = gs.solve(problem, GRAPH, method, stop=stop, record_every=600, output="last")
        assert solution.history[-1].objective == pytest.approx(optimum, abs=0.02)


def found_step(problem, graph=GRAPH, **given):
    return gs.solve(problem, graph, gs.DualAveraging(**given), stop=gs.Stop(iterations=1)).parameters["step_size"]


def test_the_default_step_is_that_of_the_theorem_on_a_small_set():
    root = math.sqrt(metropolis(GRAPH).spectral_gap)
    for domain, order, V in (
        (gs.domains.L2Ball(0.1), 2, 0.1**2 / 2),
        (gs.domains.EntropySimplex(), np.inf, math.log(3)),
    ):
        problem = small_problem(0, domain)
        g = problem.loss.gradient(problem.start())
        G = max(np.linalg.norm(g_i, order) for g_i in g)
        assert found_step(problem, L=1e-3) == pytest.approx(math.sqrt(V) * root / (4 * G))


def test_the_default_step_is_no_longer_than_gradients_lead():
    root, problem = math.sqrt(metropolis(GRAPH).spectral_gap), small_problem(0)
    L = float(np.max(problem.smoothness()))
    for large in (problem, small_problem(0, gs.domains.L2Ball(1e9))):
        assert found_step(large) == pytest.approx(10 / L / math.sqrt(2) * root / 4)
    assert found_step(problem, L=3.0) == pytest.approx(10 / 3 / math.sqrt(2) * root / 4)
    assert found_step(small_problem(0, mu=40.0)) == pytest.approx(1 / 40 / math.sqrt(2) * root / 4)


def test_the_default_step_takes_the_singular_value_and_not_the_eigenvalue():
    """Two groups of three, each agent with all of the other group: W has the eigenvalues 1, 1/4 and -1/2."""
    graph = gs.Graph.from_edges(6, [(i, j) for i in range(3) for j in range(3, 6)])
    step = found_step(small_problem(0, m=6), graph, L=1.0)
    assert step == pytest.approx(10 / math.sqrt(2) * math.sqrt(1 / 2) / 4)


def test_a_set_of_one_point_is_no_trouble():
    problem = small_problem(0, gs.domains.Box(0.0, 0.0))
    solution = gs.solve(problem, GRAPH, gs.DualAveraging(), stop=gs.Stop(iterations=5))
    assert 0 < solution.parameters["step_size"] < math.inf
    np.testing.assert_array_equal(solution.x, 0)


@pytest.mark.parametrize("domain", [gs.domains.Free(), gs.domains.L2Ball(2.0), gs.domains.Box(0.0, 0.0)])
@pytest.mark.parametrize("curvature", [0.0, 1.0])
def test_where_gradients_vanish_there_is_a_step_and_nobody_moves(domain, curvature):
    loss = gs.losses.Quadratic(np.tile(curvature * np.eye(2), (7, 1, 1)), np.zeros((7, 2)))
    solution = gs.solve(gs.Problem(loss, domain), GRAPH, gs.DualAveraging(), stop=gs.Stop(iterations=5))
    assert 0 < solution.parameters["step_size"] < math.inf
    np.testing.assert_array_equal(solution.x, 0)


def test_a_linear_loss_takes_the_step_from_the_set():
    c = np.random.default_rng(0).normal(size=(7, 2))
    problem = gs.Problem(gs.losses.Quadratic(np.zeros((7, 2, 2)), c), gs.domains.L2Ball(50.0))
    G = np.linalg.norm(c, axis=1).max()
    root = math.sqrt(metropolis(GRAPH).spectral_gap)
    assert found_step(problem) == pytest.approx(50 / math.sqrt(2) * root / (4 * G))


def test_costs():
    flood, total = GRAPH.diameter_bound, 2 * GRAPH.radius_center()[1]
    check_costs(gs.DualAveraging(step_size=0.1), gradients=1, rounds=1, control_rounds=total)
    check_costs(gs.DualAveraging(L=1.0), gradients=1, rounds=1, first_gradients=1, control_rounds=total + flood)
    check_costs(gs.DualAveraging(), gradients=1, rounds=1, first_gradients=1, control_rounds=total + 2 * flood)


@pytest.mark.parametrize("domain", [gs.domains.L2Ball(0.5), gs.domains.EntropySimplex()])
def test_states(domain, tmp_path):
    check_states(gs.DualAveraging(step_size=np.float64(0.1), L=np.float64(2.0)), domain)
    check_states(gs.DualAveraging(), domain)
    check_resume(gs.DualAveraging(), tmp_path, domain)
    check_norm_is_paid_for_once(gs.DualAveraging, tmp_path)


def test_a_lone_agent():
    check_lone_agent(gs.DualAveraging(), tolerance=0.05, domain=gs.domains.L2Ball(0.2))
    check_lone_agent(gs.DualAveraging(mixing="laplacian"), tolerance=0.05, output="last")


def test_a_warm_start_stays_where_it_is_good():
    problem = small_problem(1, gs.domains.L2Ball(0.4))
    optimum = reference(problem)
    starts = optimum.x * (1 + 1e-3 * np.linspace(-1, -0.5, 7))[:, None]
    stop, errors = gs.Stop(iterations=20), []
    for x0 in (None, starts):
        x = gs.solve(problem, GRAPH, gs.DualAveraging(step_size=0.01), stop=stop, x0=x0).x
        errors.append(np.max(np.linalg.norm(x - optimum.x, axis=1)))
    assert errors[1] < 0.1 * errors[0]


def test_what_it_cannot_solve_is_refused():
    check_refusals(gs.DualAveraging)
    unlike = {
        **UNLIKE,
        "centres": gs.domains.Free(center=np.linspace(0, 1, 21).reshape(7, 3)),
        "entropies": gs.domains.EntropySimplex(center=POINTS),
    }
    for domain in unlike.values():
        problem = gs.Problem(logistic(np.random.default_rng(0), 7, 3), domain)
        check_message(
            lambda problem=problem: gs.solve(problem, GRAPH, gs.DualAveraging()),
            ["DualAveraging needs the same X, center and penalty for all agents", "Problem(", "gs.PDS()"],
        )
