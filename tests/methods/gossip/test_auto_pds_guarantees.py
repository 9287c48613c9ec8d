"""Auto mode: what is guaranteed."""

import dataclasses
import math

import numpy as np
import pytest
from auto_twins import AGREEMENTS, GRAPHS, Net, followed, opened
from baselines import UNLIKE, check_invariant, small_problem
from problems import DOMAINS, LOSSES, alike_case, logistic

import gradslide as gs
from gradslide.methods.gossip.inner import Own
from gradslide.methods.gossip.state import StepWeights
from gradslide.network.coupling import Dual
from gradslide.theory.reference import reference


def total(problem, x):
    """sum_i f_i(x_i), the ridge and the penalty in it."""
    return float(np.sum(problem.loss.value(x) + problem.mu * problem.domain.nu(x) + problem.domain.r(x)))


def accelerated_errors(problem, graph, method, iterations=20):
    """Of each iteration, f(xbar) - f*, and P |x0 - x*|_D^2/(2 S_k), with what rounding may add."""
    optimum = reference(problem)
    states, _ = followed(problem, graph, method, iterations, record_every=iterations)
    assert all(state.epoch == 0 for state in states)
    start = problem.start() - optimum.x
    distance = float(np.sum(Net(graph).D * start * start))
    f = optimum.objective
    rounding = 1e-11 * (1 + abs(f))
    iterates = [state.iterate for state in states]
    return [(total(problem, it.x_bar) - f, it.P * distance / (2 * it.S) + rounding) for it in iterates]


EUCLIDEAN = [name for name in DOMAINS if name != "entropy"]


@pytest.mark.first(1)
@pytest.mark.parametrize("batch", range(6))
def test_the_accelerated_bound_holds_at_every_iteration_where_averages_are_exact(batch):
    """On a complete graph one exchange averages. 102 problems, of all kinds of losses and common sets: 54 in R^d."""
    for seed in range(batch, 102, 6):
        rng = np.random.default_rng(seed)
        loss = LOSSES[seed % 6](rng, int(rng.integers(2, 7)), 4)
        name = "free" if seed < 54 else EUCLIDEAN[seed // 6 % len(EUCLIDEAN)]
        problem = gs.Problem(loss, DOMAINS[name](loss.d), 0.1 * (seed % 4 == 3))
        graph = gs.Graph.complete(problem.m)
        errors = accelerated_errors(problem, graph, gs.AutoPDS(agreement="exact", restarts=False))
        for k, (error, bound) in enumerate(errors):
            assert error <= bound, (seed, name, k)


@pytest.mark.first(1)
@pytest.mark.parametrize("first", [1e-4, 1e3])
def test_the_accelerated_bound_holds_whatever_the_first_guess(first):
    for seed in range(10):
        problem = alike_case(seed).problem
        method = gs.AutoPDS(agreement="exact", restarts=False, first_L=first)
        assert all(error <= bound for error, bound in accelerated_errors(problem, gs.Graph.complete(problem.m), method))


@pytest.mark.parametrize("name", ["free", "l2 ball", "l1 penalty"])
def test_the_accelerated_bound_holds_in_the_weighted_norm(name):
    """A star with so many exchanges that the weighted average is exact."""
    graph = gs.Graph.star(9)
    assert np.ptp(Net(graph).D) > 0.3
    for seed in range(8):
        loss = LOSSES[seed % 6](np.random.default_rng(seed), 9, 4)
        problem = gs.Problem(loss, DOMAINS[name](loss.d), 0.05)
        method = gs.AutoPDS(agreement="exact", restarts=False, K=30)
        assert all(error <= bound for error, bound in accelerated_errors(problem, graph, method)), seed


def test_the_accelerated_bound_is_broken_by_an_L_that_is_far_too_small():
    problem = alike_case(0).problem
    L = float(np.max(problem.smoothness()))
    graph = gs.Graph.complete(problem.m)
    small, true = (gs.AutoPDS(agreement="exact", restarts=False, L=each) for each in (0.02 * L, L))
    assert any(error > 10 * bound for error, bound in accelerated_errors(problem, graph, small, 8))
    assert all(error <= bound for error, bound in accelerated_errors(problem, graph, true, 8))


@pytest.mark.covering
@pytest.mark.parametrize("share", [None, 1e-3, 1e2])
@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_L_never_passes_what_the_losses_need(agreement, share):
    """L rises only where the curvature that was seen, at most max_i L_i/D_i, is above it, and to 1.2 of it at most."""
    for name in ("star", "random"):
        graph = GRAPHS[name]
        problem = small_problem(4, None, 0.05, logistic, graph.m, 4)
        needed = float(np.max((problem.smoothness() + problem.mu) / Net(graph).D[:, 0]))
        first = None if share is None else share * needed
        states, _ = followed(problem, graph, gs.AutoPDS(agreement=agreement, first_L=first), 80, record_every=80)
        most = max(1.2 * needed, first or 0.0)
        assert max(state.smoothness.L for state in states) <= (1 + 1e-3) * most
        # Not because it was never asked to.
        assert share != 1e-3 or max(state.smoothness.L for state in states) > 50 * first


@pytest.mark.covering
@pytest.mark.parametrize("inner", ["shared", "own", "sliding"])
@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_multipliers_add_up_to_zero_and_come_from_the_laplacian(agreement, inner):
    method = gs.AutoPDS(agreement=agreement, inner=inner)
    check_invariant(method)
    graph = GRAPHS["star"]
    problem = small_problem(2, gs.domains.L2Ball(0.4), 0.1, logistic, graph.m)
    Lap = graph.laplacian.toarray()
    for state in followed(problem, graph, method, 40, record_every=40)[0]:
        last, average = state.iterate.dual, state.iterate.averages.dual_bar
        np.testing.assert_allclose(average.w.sum(axis=0), 0.0, atol=1e-11 * (1 + np.abs(average.w).max()))
        # Where epochs follow the Lagrangian the average of s is not needed, and not kept.
        for dual in (last,) if inner == "shared" else (last, average):
            np.testing.assert_allclose(dual.w, Lap @ dual.s, atol=1e-11 * (1 + np.abs(Lap @ dual.s).max()))


@pytest.mark.parametrize("name", UNLIKE)
@pytest.mark.parametrize("graph", [gs.Graph.ring(7), gs.Graph.star(7)], ids=["ring", "star"])
def test_one_step_with_sets_of_their_own_keeps_its_inequality(graph, name):
    """<y, v - x'> + r(v) - r(x') + <w', v> - <w+, x'> <= p/2 (|x - x'|_D^2 - |x+ - x'|_D^2 - |v - x|_D^2)
    + (|w' - w|^2 - |w' - w+|^2)_{M^+}/(2 p), M = D (I - mix), for all x' in X and w' that add up to zero."""
    problem = small_problem(0, UNLIKE[name])
    context, first = opened(problem, graph, gs.AutoPDS(inner="own"))
    mixer, net = context.prepared.mixer, Net(graph)
    rng = np.random.default_rng(0)
    tightest = math.inf

    def centred(scale):
        w = scale * rng.normal(size=(7, 3))
        return w - w.mean(axis=0)

    for trial in range(60):
        K, p = 1 + trial % 6, float(np.exp(rng.normal()))
        M = net.D * (np.eye(7) - net.mix(np.eye(7), K))
        inverse = np.linalg.pinv((M + M.T) / 2, rcond=1e-10)
        scale = 10.0 ** rng.integers(-2, 2)
        x, other = (problem.domain.project(scale * rng.normal(size=(7, 3))) for _ in range(2))
        y, w, w_other = scale * rng.normal(size=(7, 3)), centred(scale), centred(scale)
        iterate = first.iterate._replace(x=x, dual=Dual(np.zeros((7, 3)), w))
        state = dataclasses.replace(first, iterate=iterate, tuning=first.tuning._replace(K=K))
        gradient = first.gradient._replace(x_under=x, y=y)
        moved = Own().run(context, mixer, state, StepWeights(1.0, 2.0, p), gradient, y)
        v, r = moved.last, problem.domain.r
        left = np.sum(y * (v - other)) + np.sum(r(v) - r(other)) + np.sum(w_other * v) - np.sum(moved.dual.w * other)
        squares = [float(np.sum(net.D * a * a)) for a in (x - other, moved.x - other, v - x)]
        duals = [float(np.sum(a * (inverse @ a))) for a in (w_other - w, w_other - moved.dual.w)]
        terms = [p / 2 * squares[0], duals[0] / (2 * p)]
        right = p / 2 * (squares[0] - squares[1] - squares[2]) + (duals[0] - duals[1]) / (2 * p)
        assert left <= right + 1e-9 * (1 + sum(terms)), trial
        tightest = min(tightest, (right - left) / sum(terms))
        np.testing.assert_allclose(v, problem.domain.project(v), atol=1e-12)
    # A hundredth more on the left would often be too much.
    assert tightest < 0.01
