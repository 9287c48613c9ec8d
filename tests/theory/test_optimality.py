"""Residuals of saddle point problems: zero at solutions, what OSQP measures, and no scale of the data matters much."""

import numpy as np
import pytest

import gradslide as gs
from gradslide.domains import Box, NonNegative, Simplex
from gradslide.theory.optimality import residuals_at, saddle_residuals


def residuals(problem, x, z):
    return residuals_at(problem, problem.loss, problem.A, np.asarray(x)[None], np.asarray(z)[None])


def program(seed, domain=None):
    rng = np.random.default_rng(seed)
    half, A = rng.normal(size=(6, 6)), rng.normal(size=(4, 6))
    # The point of ones/6 lies in all sets.
    Q, c, b = half.T @ half, rng.normal(size=6), A.sum(axis=1) / 6 + 0.1 * rng.exponential(size=4)
    return Q, c, A, b, gs.LinearlyConstrained(gs.losses.Quadratic(Q, c), A, b, domain, sense="<=")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("domain", [None, NonNegative(), Box(-0.3, 0.3), Simplex(1.0)], ids=str)
def test_residuals_vanish_at_a_solution_and_nowhere_else(seed, domain):
    *_, problem = program(seed, domain)
    solution = gs.solve(problem, stop=gs.Stop(kkt=1e-9, iterations=20))
    x, z = solution.mean, solution.dual
    assert residuals(problem, x, z).largest <= 1e-9
    rng = np.random.default_rng(100 + seed)
    for _ in range(5):
        moved = problem.domain.project((x + 1e-3 * rng.normal(size=6))[None])[0]
        if np.linalg.norm(moved - x) > 1e-4:
            assert residuals(problem, moved, z).largest > 1e-6
        assert residuals(problem, x, np.abs(z + 1e-2 * rng.normal(size=4))).largest > 1e-5


@pytest.mark.parametrize("seed", range(5))
def test_without_bounds_they_are_the_residuals_of_OSQP(seed):
    Q, c, A, b, problem = program(seed)
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=6), rng.exponential(size=4)
    found = residuals(problem, x, z)
    product = A @ x
    nearest = np.minimum(product, b)
    primal = np.abs(product - nearest).max() / (1 + max(np.abs(product).max(), np.abs(nearest).max()))
    slope, y, pull = Q @ x + c + A.T @ z, Q @ x + c, A.T @ z
    unit = min(1.0, np.abs(c).max())
    dual = np.abs(slope).max() / (unit + max(np.abs(y).max(), np.abs(pull).max()))
    assert found.primal == pytest.approx(primal, rel=1e-12)
    assert found.dual == pytest.approx(dual, rel=1e-12)
    # With P x, which Newton knows.
    row, curved = np.atleast_2d, 1e6 * Q @ x
    arrays = (row(each) for each in (x, z, y, product, pull))
    with_curvature = saddle_residuals(problem, problem.duals, *arrays, 1.0, unit=unit, curved=row(curved))
    assert with_curvature.dual == pytest.approx(np.abs(slope).max() / (unit + np.abs(curved).max()), rel=1e-12)


def test_complementarity_is_the_duality_gap():
    """With bounds on all of x and constraints, x and z feasible: primal less dual objective over 1 + |f|."""
    Q, c, A, b, problem = program(0, Box(-1.0, 1.0))
    rng = np.random.default_rng(1)
    x = np.zeros(6)
    problem = gs.LinearlyConstrained(gs.losses.Quadratic(Q, c), A, np.abs(b) + 1, Box(-1.0, 1.0), sense="<=")
    z = rng.exponential(size=4)
    slope = Q @ x + c + A.T @ z
    value = x @ Q @ x / 2 + c @ x
    dual_value = value - (Q @ x + c) @ x - (np.abs(b) + 1) @ z - np.abs(slope).sum()
    found = residuals(problem, x, z)
    assert found.primal == 0
    assert found.complementarity == pytest.approx(
        (value - dual_value) / (min(1.0, np.abs(c).max()) + abs(value)), rel=1e-12
    )


def test_a_term_of_ones_own_without_values_leaves_complementarity_unknown():
    loss = gs.losses.Quadratic(np.eye(3), -np.ones(3))
    mine = gs.terms.Prox(lambda v, step: np.clip(v, -1, 1))
    problem = gs.Saddle(loss, np.eye(3), h=mine)
    found = residuals(problem, np.zeros(3), np.ones(3))
    assert found.complementarity is None
    assert found.largest == max(found.primal, found.dual) < 1e-12
    assert "unknown" in str(found)


def test_units_of_the_objective_change_nothing():
    Q, c, A, b, _ = program(2, Box(-1.0, 1.0))
    rng = np.random.default_rng(3)
    x, z = np.clip(rng.normal(size=6), -1, 1), rng.exponential(size=4)
    size = 0.5 / np.abs(c).max()
    found = []
    for unit in (size, 1e-9 * size):
        small = gs.LinearlyConstrained(gs.losses.Quadratic(unit * Q, unit * c), A, b, Box(-1.0, 1.0), sense="<=")
        found.append(residuals(small, x, unit * z))
    assert found[0].dual == pytest.approx(found[1].dual, rel=1e-9)
    assert found[0].complementarity == pytest.approx(found[1].complementarity, rel=1e-9)


def test_bounds_that_are_very_far_away_are_none():
    loss = gs.losses.Quadratic(np.diag([1.0, 2.0, 3.0]), [1.0, -1.0, 0.0])
    for size in (1e12, 1e18, 1e20):
        solution = gs.solve(gs.LinearlyConstrained(loss, np.ones((1, 3)), 1.0, Box(-size, size)))
        assert solution.status is gs.Status.CONVERGED
        np.testing.assert_allclose(solution.mean, np.array([-2.0, 10.0, 3.0]) / 11, atol=1e-7)
