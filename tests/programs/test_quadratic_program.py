"""Quadratic programs: minima fulfil the optimality conditions, and certificates prove what they say."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog

from gradslide.programs.interior_point import Outcome
from gradslide.programs.low_rank import LowRank
from gradslide.programs.quadratic_program import minimize_qp


def random_program(seed, n=20, k=30, rank=15, fixed=0):
    """A feasible and bounded program, with equations, inequalities and bounds on both or one side."""
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(rank, n))
    K, q = rng.normal(size=(k, n)), rng.normal(size=n)
    inside = rng.normal(size=n)
    widths = rng.exponential(size=k)
    lower, upper = K @ inside - widths, K @ inside + rng.exponential(size=k)
    lower[: k // 3] = -np.inf
    upper[k // 3 : k // 2] = np.inf
    lower[-4:] = upper[-4:] = (K @ inside)[-4:]
    low, high = inside - rng.exponential(size=n), inside + rng.exponential(size=n)
    low[:fixed] = high[:fixed] = inside[:fixed]
    return half.T @ half, q, K, np.concatenate([lower, low]), np.concatenate([upper, high])


def worst_residual(P, q, K, lower, upper, found):
    """The largest violation of the optimality conditions, written out."""
    x, z = found.x, found.multipliers
    v = np.concatenate([K @ x, x])
    slope = P @ x + q + K.T @ z[: len(K)] + z[len(K) :]
    ends = np.where(z > 0, upper, lower)
    slack = np.where(z == 0, 0.0, v - ends)
    violation = np.maximum(0, np.maximum(lower - v, v - upper))
    return max(np.abs(slope).max(), violation.max(), np.abs(z * np.where(np.isfinite(slack), slack, 1.0)).max())


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("fixed", [0, 3])
def test_minima_fulfil_the_optimality_conditions(seed, fixed):
    program = random_program(seed, fixed=fixed)
    found = minimize_qp(*program)
    assert found.outcome is Outcome.SOLVED
    assert found.residual <= 1e-8
    assert worst_residual(*program, found) <= 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_sparse_matrices_and_low_rank_give_the_same_minimum(seed):
    rng = np.random.default_rng(seed)
    n, k = 150, 120
    K = sp.random_array((k, n), density=0.05, rng=rng, format="csr")
    diagonal, factors = rng.uniform(0.5, 2, n), rng.normal(size=(n, 4))
    weights = np.array([1.0, 2.0, -0.001, 0.5])
    P, q = LowRank(diagonal, factors, weights), rng.normal(size=n)
    assert np.linalg.eigvalsh(P.dense())[0] > 0
    inside = rng.normal(size=n)
    lower = np.concatenate([K @ inside - 0.1, np.full(n, -np.inf)])
    upper = np.concatenate([K @ inside + 0.1, inside + 0.5])
    first = minimize_qp(P, q, K, lower, upper)
    second = minimize_qp(P.dense(), q, K.toarray(), lower, upper)
    third = minimize_qp(sp.csr_array(P.dense()), q, K, lower, upper)
    assert {each.outcome for each in (first, second, third)} == {Outcome.SOLVED}
    np.testing.assert_allclose(first.x, second.x, atol=1e-6)
    np.testing.assert_allclose(third.x, second.x, atol=1e-6)
    np.testing.assert_allclose(first.multipliers, second.multipliers, atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_linear_programs_equal_linprog(seed):
    rng = np.random.default_rng(seed)
    A, x = rng.normal(size=(60, 100)), rng.exponential(size=100)
    c = A.T @ rng.normal(size=60) + rng.exponential(size=100)
    b = A @ x
    found = minimize_qp(
        np.zeros((100, 100)), c, A, np.concatenate([b, np.zeros(100)]), np.append(b, np.full(100, np.inf))
    )
    expected = linprog(c, A_eq=A, b_eq=b)
    assert found.outcome is Outcome.SOLVED
    assert c @ found.x == pytest.approx(expected.fun, rel=1e-8)
    np.testing.assert_allclose(-found.multipliers[:60], expected.eqlin.marginals, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_units_of_rows_and_columns_do_not_matter(scale):
    P, q, K, lower, upper = random_program(0)
    n, k = len(q), len(K)
    columns, rows = np.where(np.arange(n) % 2, scale, 1.0), np.where(np.arange(k) % 3, 1.0, scale)
    units = np.concatenate([rows, 1 / columns])
    found = minimize_qp(
        P * np.outer(columns, columns), q * columns, rows[:, None] * K * columns, lower * units, upper * units
    )
    assert found.outcome is Outcome.SOLVED
    np.testing.assert_allclose(columns * found.x, minimize_qp(P, q, K, lower, upper).x, atol=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_infeasible_programs_are_proved_to_be(seed):
    P, q, K, lower, upper = random_program(seed)
    rng = np.random.default_rng(seed)
    # One more row contradicts a combination of others.
    combination = rng.normal(size=4)
    row, target = combination @ K[-4:], combination @ upper[len(K) - 4 : len(K)] + 0.1
    K = np.vstack([K, row])
    lower, upper = (np.insert(each, len(K) - 1, end) for each, end in ((lower, target), (upper, np.inf)))
    found = minimize_qp(P, q, K, lower, upper)
    assert found.outcome is Outcome.INFEASIBLE
    z = found.multipliers
    ends = np.where(z > 0, upper, np.where(z < 0, lower, 0.0))
    # Every feasible point would have <z, [K x, x]> <= <z, ends> < 0, but the left-hand side is 0.
    assert np.abs(K.T @ z[: len(K)] + z[len(K) :]).max() <= 1e-6 * -(z @ ends)


@pytest.mark.parametrize("seed", range(20))
def test_unbounded_programs_are_proved_to_be(seed):
    rng = np.random.default_rng(seed)
    n, k = 12, 6
    ray = rng.exponential(size=n)
    K = rng.normal(size=(k, n))
    K -= np.outer(K @ ray, ray) / (ray @ ray)
    half = rng.normal(size=(5, n))
    half -= np.outer(half @ ray, ray) / (ray @ ray)
    q = rng.normal(size=n)
    q -= ray * (q @ ray + 1) / (ray @ ray)
    lower, upper = np.append(np.full(k, -1.0), np.zeros(n)), np.full(k + n, np.inf)
    found = minimize_qp(half.T @ half, q, K, lower, upper)
    assert found.outcome is Outcome.UNBOUNDED
    x = found.x / np.abs(found.x).max()
    assert q @ x < 0
    assert np.abs(half @ x).max() <= 1e-3 * abs(q @ x)
    assert min(x.min(), (K @ x).min()) >= -1e-6 * abs(q @ x)


def test_a_program_without_rows_or_without_free_variables():
    n = 3
    free = minimize_qp(np.eye(n), -np.ones(n), np.zeros((0, n)), np.full(n, -np.inf), np.full(n, 0.5))
    np.testing.assert_allclose(free.x, 0.5, atol=1e-8)
    fixed = minimize_qp(
        np.eye(n), -np.ones(n), np.ones((1, n)), np.append(-np.inf, np.ones(n)), np.append(5.0, np.ones(n))
    )
    assert fixed.outcome is Outcome.SOLVED
    np.testing.assert_array_equal(fixed.x, 1.0)
    outside = minimize_qp(
        np.eye(n), -np.ones(n), np.ones((1, n)), np.append(-np.inf, np.ones(n)), np.append(2.0, np.ones(n))
    )
    assert outside.outcome is Outcome.INFEASIBLE


def test_redundant_equations():
    K = np.vstack([np.ones((3, 4)), np.eye(1, 4)])
    b = np.array([2.0, 2.0, 2.0, 0.5])
    found = minimize_qp(np.eye(4), np.zeros(4), K, np.append(b, np.full(4, -np.inf)), np.append(b, np.full(4, np.inf)))
    assert found.outcome is Outcome.SOLVED
    np.testing.assert_allclose(found.x, [0.5, 0.5, 0.5, 0.5], atol=1e-8)
