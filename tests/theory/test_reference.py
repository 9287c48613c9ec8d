"""The reference optimum and its multipliers, against generic solvers."""

import cvxpy as cp
import numpy as np
import pytest
from problems import DOMAINS, quadratic

import gradslide as gs
from gradslide.theory.reference import multiplier_at, reference


@pytest.mark.parametrize("label", [name for name in DOMAINS if name != "entropy"])
def test_against_a_generic_solver(label):
    rng = np.random.default_rng(5)
    features, targets = rng.normal(size=(12, 4)), rng.normal(size=12)
    problem = gs.Problem(gs.losses.LeastSquares(features, targets, agents=3), DOMAINS[label](4))
    x = cp.Variable(4)
    constraints = {
        "box": [x >= -0.3, x <= 0.2],
        "nonnegative": [x >= 0],
        "l2 ball": [cp.norm(x) <= 0.4],
        "l1 ball": [cp.norm1(x) <= 0.5],
        "simplex": [x >= 0, cp.sum(x) == 1],
        "halfspace": [cp.sum(x) <= -0.2],
        "affine": [cp.sum(x) == 0.7],
        "elastic net in a ball": [cp.norm(x) <= 0.6],
    }.get(label, [])
    penalty = {
        "l1 penalty": 3 * 0.3 * cp.norm1(x),
        "elastic net in a ball": 3 * (0.2 * cp.norm1(x) + 0.05 * cp.sum_squares(x)),
    }
    objective = 0.5 * cp.sum_squares(features @ x - targets) + penalty.get(label, 0)
    cp.Problem(cp.Minimize(objective), constraints).solve(solver=cp.CLARABEL)
    optimum = reference(problem)
    assert optimum.objective == pytest.approx(float(objective.value), rel=1e-6)
    np.testing.assert_allclose(optimum.x, x.value, atol=1e-4)


def test_entropy_finds_the_same_point_as_the_simplex():
    loss = quadratic(np.random.default_rng(0), 4, 5)
    entropy, simplex = (
        reference(gs.Problem(loss, domain)) for domain in (gs.domains.EntropySimplex(), gs.domains.Simplex())
    )
    np.testing.assert_allclose(entropy.x, simplex.x, atol=1e-6)


@pytest.mark.parametrize("coupling", ["incidence", "laplacian"])
@pytest.mark.parametrize("label", ["free", "l2 ball", "box", "nonnegative"])
def test_multipliers_are_the_smallest(coupling, label):
    """min ||z|| with -(g + A^T z) in the normal cone of X at x*, by a generic solver."""
    rng = np.random.default_rng(7)
    graph = gs.Graph.random(6, 3, seed=3)
    loss = gs.losses.LeastSquares(rng.normal(size=(18, 4)), 3 * rng.normal(size=18), agents=6)
    problem = gs.Problem(loss, DOMAINS[label](4))
    optimum = reference(problem)
    A = graph.incidence.toarray().T if coupling == "incidence" else graph.laplacian.toarray()
    g = problem.loss.gradient(np.tile(optimum.x, (6, 1)))
    z = cp.Variable((A.shape[0], 4))
    normal = -(g + A.T @ z)
    if label == "free":
        constraints = [normal == 0]
    elif label == "l2 ball":
        assert np.linalg.norm(optimum.x) == pytest.approx(0.4)
        share = cp.Variable((6, 1), nonneg=True)
        constraints = [normal == share @ optimum.x[None]]
    else:
        lo, hi = {"box": (-0.3, 0.2), "nonnegative": (0.0, np.inf)}[label]
        at_lo, at_hi = optimum.x <= lo + 1e-6, optimum.x >= hi - 1e-6
        assert at_lo.any() or at_hi.any()
        constraints = [
            normal[:, j] <= 0 if at_lo[j] else normal[:, j] >= 0 if at_hi[j] else normal[:, j] == 0 for j in range(4)
        ]
    smallest = cp.Problem(cp.Minimize(cp.norm(cp.vec(z, order="F"))), constraints).solve(solver=cp.CLARABEL)
    assert optimum.multiplier(problem, graph, coupling) == pytest.approx(smallest, rel=1e-4)


def test_multiplier_at_a_point_solves_its_equation():
    rng = np.random.default_rng(8)
    graph = gs.Graph.ring(5)
    problem = gs.Problem(quadratic(rng, 5, 3))
    x = rng.normal(size=3)
    g = problem.loss.gradient(np.tile(x, (5, 1)))
    z = np.linalg.lstsq(graph.incidence.toarray(), g.mean(axis=0) - g, rcond=None)[0]
    assert multiplier_at(problem, graph, "incidence", x) == pytest.approx(np.linalg.norm(z))


def test_a_domain_per_agent_is_refused():
    domain = gs.domains.L2Ball(np.array([1.0, 2.0, 3.0]))
    problem = gs.Problem(quadratic(np.random.default_rng(0), 3, 2), domain)
    with pytest.raises(gs.InputError, match="common to all agents"):
        reference(problem)


@pytest.mark.parametrize("label", ["free", "l2 ball", "l1 penalty", "simplex"])
def test_float32_data_reach_what_float32_can_hold(label):
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(60, 4)), np.sign(rng.normal(size=60))
    single, double = (
        reference(gs.Problem(gs.losses.Logistic(features.astype(dtype), labels, agents=6), DOMAINS[label](4)))
        for dtype in (np.float32, np.float64)
    )
    assert single.objective == pytest.approx(double.objective, rel=1e-6)


def test_a_problem_without_a_minimizer_is_refused():
    loss = gs.losses.Custom(
        gradient=lambda x: np.ones_like(x), value=lambda x: x[:, 0], smoothness=1.0, agents=2, dimension=1
    )
    with pytest.raises(gs.InputError, match="minimizer exists"):
        reference(gs.Problem(loss), iterations=50)


RAW = np.random.default_rng(0).normal(size=(200, 4)) @ np.diag([1.0, 50.0, 8e3, 0.4])
LABELS = np.sign(RAW @ [1.0, 0.02, 1e-4, 1.0] + 2 * np.random.default_rng(1).normal(size=200))


def without_hessians(features):
    logistic = gs.losses.Logistic(features, LABELS, agents=4)
    given = {"agents": 4, "dimension": features.shape[1]}
    return logistic, gs.losses.Custom(value=logistic.value, gradient=logistic.gradient, **given)


@pytest.mark.parametrize("label", ["free", "box", "l1 penalty"])
def test_losses_without_hessians_and_with_wild_columns(label):
    built_in, custom = (gs.Problem(loss, DOMAINS[label](4)) for loss in without_hessians(RAW))
    expected, found = reference(built_in), reference(custom)
    assert found.objective == pytest.approx(expected.objective, rel=1e-8)
    assert found.error <= 1e-8 * expected.objective


def test_what_is_not_proved_is_refused_or_said():
    """More columns than Newton's method takes without Hessians."""
    wide = np.hstack([RAW, np.random.default_rng(2).normal(size=(200, 250))])
    _, custom = without_hessians(wide)
    with pytest.raises(gs.InputError, match=r"a lower bound .* below it"):
        reference(gs.Problem(custom, gs.domains.Box(-1.0, 1.0)), iterations=200)
    tall = gs.losses.Custom(value=lambda x: (x**2).sum(axis=1), gradient=lambda x: 2 * x, agents=1, dimension=250)
    with pytest.warns(RuntimeWarning, match="accuracy of this reference optimum is not known"):
        assert reference(gs.Problem(tall)).error is None
    assert reference(gs.Problem(tall, gs.domains.L2Ball(1.0))).error == pytest.approx(0.0, abs=1e-9)
