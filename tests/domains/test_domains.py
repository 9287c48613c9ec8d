"""Domains: prox and linear minimum against a generic solver, optimality conditions, a loop over agents."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradslide._support.errors import InputError
from gradslide.domains import (
    Affine,
    Box,
    Domain,
    EntropySimplex,
    Free,
    Halfspace,
    L1Ball,
    L2Ball,
    NonNegative,
    PerAgent,
    Polyhedron,
    Simplex,
)
from gradslide.domains.penalties import L1, ElasticNet, GroupL1

M, D = 3, 4


def solve_tightly(problem: cp.Problem) -> float:
    """The optimal value to the last digits that the interior point method can find."""
    with warnings.catch_warnings():
        # Rounding may stop it short of these tolerances; the comparison decides whether that matters.
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")
        return problem.solve(
            solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12, max_step_fraction=0.9
        )


@dataclass(frozen=True)
class Case:
    """A set: how to make it, its constraints for the solver, how far a point lies outside."""

    make: Callable[..., Domain]
    constraints: Callable[[Any], list[Any]]
    violation: Callable[[np.ndarray], float]


def l2_ball(d, radius=1.5, origin=0.0):
    return Case(
        lambda **kw: L2Ball(radius, **({"origin": origin} if np.any(origin) else {}), **kw),
        # Squared, the solver finds three digits more; a point needs the norm.
        lambda x: [cp.sum_squares(x - origin) <= radius**2 if radius else cp.norm2(x - origin) <= 0],
        lambda x: np.linalg.norm(x - origin) - radius,
    )


def l1_ball(d, radius=1.5, origin=0.0):
    return Case(
        lambda **kw: L1Ball(radius, **({"origin": origin} if np.any(origin) else {}), **kw),
        lambda x: [cp.norm1(x - origin) <= radius],
        lambda x: np.abs(x - origin).sum() - radius,
    )


def box(d, lo, hi):
    return Case(
        lambda **kw: Box(lo, hi, **kw),
        lambda x: (
            [x[j] >= lo[j] for j in range(d) if lo[j] > -np.inf] + [x[j] <= hi[j] for j in range(d) if hi[j] < np.inf]
        ),
        lambda x: max(np.max(lo - x), np.max(x - hi)),
    )


def simplex(d, total=1.0, kind=Simplex):
    arguments = () if kind is EntropySimplex else (total,)
    return Case(
        lambda **kw: kind(*arguments, **kw),
        lambda x: [x >= 0, cp.sum(x) == total],
        lambda x: max(abs(x.sum() - total), -x.min()),
    )


def affine(d, A, b):
    return Case(lambda **kw: Affine(A, b, **kw), lambda x: [A @ x == b], lambda x: np.abs(A @ x - b).max())


def sets(d: int) -> dict[str, Case]:
    """One of each kind, with parameters that make interior, boundary and degenerate solutions happen."""
    rng = np.random.default_rng(d)
    a, A = rng.normal(size=d), rng.normal(size=(max(1, d // 2), d))
    b = A @ rng.normal(size=d)
    lo = np.where(np.arange(d) % 3 == 1, -np.inf, np.linspace(-0.8, 0.3, d))
    hi = np.where(np.arange(d) % 3 == 2, np.inf, np.linspace(0.2, 0.9, d))
    rows = np.vstack([a, np.ones(d)])
    inside = rows @ np.linspace(-0.2, 0.3, d)
    return {
        "free": Case(lambda **kw: Free(**kw), lambda x: [], lambda x: 0.0),
        "box": box(d, np.linspace(-0.8, 0.3, d), np.linspace(0.2, 0.9, d)),
        "box half open": box(d, lo, hi),
        "box point": box(d, np.full(d, 0.7), np.full(d, 0.7)),
        "non-negative": Case(lambda **kw: NonNegative(**kw), lambda x: [x >= 0], lambda x: -x.min()),
        "l2 ball": l2_ball(d),
        "l2 ball elsewhere": l2_ball(d, origin=np.linspace(1, 2, d)),
        "l2 point": l2_ball(d, radius=0.0),
        "l1 ball": l1_ball(d),
        "l1 ball elsewhere": l1_ball(d, origin=np.linspace(1, 2, d)),
        "l1 point": l1_ball(d, radius=0.0),
        "simplex": simplex(d),
        "simplex of 2.5": simplex(d, 2.5),
        "halfspace": Case(
            lambda **kw: Halfspace(a, -0.3, **kw),
            lambda x: [a @ x <= -0.3],
            lambda x: (a @ x + 0.3) / np.linalg.norm(a),
        ),
        "affine": affine(d, A, b),
        "affine redundant": affine(d, np.vstack([A, 2 * A[:1], 0 * A[:1]]), np.concatenate([b, 2 * b[:1], [0.0]])),
        "entropy": simplex(d, kind=EntropySimplex),
        "polyhedron": polyhedron(d, rows, [-np.inf, inside[1]], [inside[0] + 0.1, inside[1]], -2.0, np.inf),
        "polytope": polyhedron(d, rows, inside - 0.3, inside + 0.2, -0.8, np.linspace(0.4, 0.9, d)),
    }


def polyhedron(d, A, lower, upper, lo, hi):
    low, high = (np.broadcast_to(each, len(A)) for each in (lower, upper))

    def constraints(x):
        rows = [A[i] @ x >= low[i] for i in range(len(A)) if np.isfinite(low[i])]
        rows += [A[i] @ x <= high[i] for i in range(len(A)) if np.isfinite(high[i])]
        bounds = [(x >= lo) if np.all(np.isfinite(lo)) else None, (x <= hi) if np.all(np.isfinite(hi)) else None]
        return rows + [each for each in bounds if each is not None]

    def excess(x):
        values = A @ x
        return max(np.max(low - values), np.max(values - high), np.max(lo - x), np.max(x - hi))

    return Case(lambda **kw: Polyhedron(A, lower, upper, lo, hi, **kw), constraints, excess)


ALL = sorted(sets(D))
GROUPS = {"l2 ball", "l2 point", "free"}
L1_SETS = {"box", "box half open", "box point", "non-negative", "l1 ball", "l1 point", *GROUPS}


def penalties(name: str, d: int) -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    """The penalties a set can carry, with their formulas for the solver."""
    none = {"": (None, lambda x: 0.0)}
    weights = np.linspace(0.1, 0.5, d)
    l1 = {
        "l1": (L1(0.3), lambda x: 0.3 * cp.norm1(x)),
        "l1 weighted": (L1(weights), lambda x: cp.sum(cp.multiply(weights, cp.abs(x)))),
        "elastic net": (ElasticNet(0.2, 0.8), lambda x: 0.2 * cp.norm1(x) + 0.4 * cp.sum_squares(x)),
    }
    labels = np.arange(d) % 2
    group = {
        "groups": (
            GroupL1(0.4, labels),
            lambda x: 0.4 * sum(cp.norm2(x[labels == g]) for g in np.unique(labels)),
        )
    }
    return {**none, **(l1 if name in L1_SETS else {}), **(group if name in GROUPS else {})}


WITH_PENALTIES = [(name, penalty) for name in ALL for penalty in penalties(name, D)]


def centers(name: str, d: int) -> list[Any]:
    if name == "entropy":
        uneven = np.arange(1.0, d + 1)
        return [np.full(d, 1 / d), uneven / uneven.sum()]
    return [np.zeros(d), np.linspace(-1, 2, d)]


def build(
    name: str, penalty: str = "", *, m: int = M, d: int = D, dtype: Any = np.float64, center: Any = None
) -> Domain:
    r = penalties(name, d)[penalty][0]
    extra = {} if r is None else {"penalty": r}
    if center is not None:
        extra["center"] = center
    return sets(d)[name].make(**extra).bind(m, d, dtype)


def generic_minimum(name: str, penalty: str, theta: np.ndarray, scale: float, center: np.ndarray) -> tuple[Any, float]:
    """min over X of scale nu(x) + r(x) - <theta, x> by an interior point method."""
    d = len(theta)
    x = cp.Variable(d)
    objective = penalties(name, d)[penalty][1](x) - theta @ x
    if scale:
        nu = cp.sum(cp.rel_entr(x, center)) if name == "entropy" else cp.sum_squares(x - center) / 2
        objective += scale * nu
    problem = cp.Problem(cp.Minimize(objective), sets(d)[name].constraints(x))
    least = solve_tightly(problem)
    return x.value, least


def objective(domain: Domain, x: np.ndarray, theta: np.ndarray, scale: Any) -> np.ndarray:
    return np.reshape(scale, -1) * domain.nu(x) + domain.r(x) - np.sum(theta * x, axis=1)


def feasible(name: str, domain: Domain, rng: np.random.Generator) -> np.ndarray:
    """A random point of X, checked without the library."""
    if name == "entropy":
        return rng.dirichlet(np.ones(domain.d), size=domain.m)
    x = domain.project(rng.normal(size=(domain.m, domain.d)) * rng.choice([0.3, 1, 5]))
    assert max(sets(domain.d)[name].violation(row) for row in x) <= 1e-12 * (1 + np.abs(x).max())
    return x


@pytest.mark.covering
@pytest.mark.parametrize("which", [0, 1], ids=["center zero", "center elsewhere"])
@pytest.mark.parametrize(("name", "penalty"), WITH_PENALTIES)
def test_prox_matches_a_generic_solver(name, penalty, which):
    rng = np.random.default_rng(7)
    center = centers(name, D)[which]
    domain = build(name, penalty, center=center)
    theta, scale = rng.normal(size=(M, D)) * np.array([[0.2], [1], [4]]), 1.3
    x = domain.prox(theta, scale)
    for i in range(M):
        expected, _ = generic_minimum(name, penalty, theta[i], scale, center)
        np.testing.assert_allclose(x[i], expected, atol=1e-6)


@settings(deadline=None, derandomize=True, max_examples=12)
@given(
    d=st.integers(1, 6),
    seed=st.integers(0, 100_000),
    size=st.sampled_from([0.0, 0.1, 1.0, 30.0]),
    ties=st.booleans(),
    scale=st.sampled_from([0.05, 1.0, 20.0, "per agent"]),
)
@pytest.mark.parametrize("name", ALL)
def test_prox_is_optimal(name, d, seed, size, ties, scale):
    """phi(y) >= phi(x) + scale V(x, y) for all y in X holds for the minimiser x of phi only."""
    rng = np.random.default_rng(seed)
    theta = size * rng.normal(size=(M, d))
    theta = np.round(theta) if ties else theta
    scale = rng.uniform(0.1, 3, size=(M, 1)) if scale == "per agent" else scale
    violation = sets(d)[name].violation
    for penalty in penalties(name, d):
        domain = build(name, penalty, d=d, center=centers(name, d)[seed % 2])
        x = domain.prox(theta, scale)
        assert x.shape == (M, d)
        assert max(violation(row) for row in x) <= 1e-12 * (1 + np.abs(x).max())
        least = objective(domain, x, theta, scale)
        for _ in range(8):
            y = feasible(name, domain, rng)
            margin = objective(domain, y, theta, scale) - least - np.reshape(scale, -1) * domain.V(x, y)
            assert np.all(margin >= -1e-10 * (1 + np.abs(least) + np.abs(objective(domain, y, theta, scale))))


@pytest.mark.parametrize(("name", "penalty"), WITH_PENALTIES)
def test_the_optimality_test_can_fail(name, penalty):
    """A point of X that is not the prox violates the inequality for some y."""
    rng = np.random.default_rng(3)
    domain = build(name, penalty)
    theta = rng.normal(size=(M, D))
    x = domain.prox(theta, 1.0)
    wrong = feasible(name, domain, rng)
    moved = np.linalg.norm(wrong - x, axis=1) > 1e-3
    margin = objective(domain, x, theta, 1.0) - objective(domain, wrong, theta, 1.0) - domain.V(wrong, x)
    assert np.all(margin[moved] < 0)
    assert moved.any() != (name.endswith("point"))


@pytest.mark.parametrize("name", ["free", "box", "l2 ball", "l1 ball", "non-negative"])
def test_scale_may_be_zero_with_an_elastic_net(name):
    theta = np.random.default_rng(5).normal(size=(M, D))
    x = build(name, "elastic net").prox(theta, 0.0)
    for i in range(M):
        expected, _ = generic_minimum(name, "elastic net", theta[i], 0.0, np.zeros(D))
        np.testing.assert_allclose(x[i], expected, atol=1e-6)


@pytest.mark.covering
@pytest.mark.parametrize("mu", [0.0, 0.6])
@pytest.mark.parametrize(("name", "penalty"), WITH_PENALTIES)
def test_linear_minimum_matches_a_generic_solver(name, penalty, mu):
    rng = np.random.default_rng(11)
    center = centers(name, D)[1]
    domain = build(name, penalty, center=center)
    c = rng.normal(size=(M, D)) * np.array([[0.1], [1], [3]])
    if isinstance(domain, Affine):
        # Only the part of c in the row space of A: the solver may not recognise an unbounded problem.
        c -= domain.project(c) - domain.project(np.zeros_like(c))
    least = domain.linear_minimum(c, mu)
    for i in range(M):
        _, expected = generic_minimum(name, penalty, -c[i], mu, center)
        np.testing.assert_allclose(least[i], expected, rtol=1e-6, atol=1e-6)
    for _ in range(20):
        y = feasible(name, domain, rng)
        assert np.all(least <= objective(domain, y, -c, mu) + 1e-10)


def linear_minimum(domain: Domain, c: Any) -> list[float]:
    rows = np.atleast_2d(np.asarray(c, dtype=float))
    return domain.bind(*rows.shape, np.float64).linear_minimum(rows).tolist()


def test_linear_minimum_of_unbounded_sets():
    inf = np.inf
    assert linear_minimum(Free(), [[0, 0], [0, 1e-9]]) == [0, -inf]
    assert linear_minimum(Free(penalty=L1(1.0)), [[1, -1], [1, 1.1]]) == [0, -inf]
    assert linear_minimum(Free(penalty=GroupL1(5.0, [0, 0])), [[3, 4], [3, 4.1]]) == [0, -inf]
    assert linear_minimum(NonNegative(), [[0, 2], [-1e-9, 2]]) == [0, -inf]
    assert linear_minimum(NonNegative(penalty=L1(1.0)), [[-1, 2], [-1.1, 2]]) == [0, -inf]
    assert linear_minimum(Box(1.0, inf, penalty=L1(0.5)), [[2, -0.5], [2, -0.6]]) == [2.5 + 0.0, -inf]
    assert linear_minimum(Box(-inf, -1.0), [[-1, -2], [0, 0], [0, 1]]) == [3, 0, -inf]
    np.testing.assert_allclose(linear_minimum(Halfspace([3, 4], 10.0), [[-6, -8], [0, 0]]), [-20, 0])
    assert linear_minimum(Halfspace([3, 4], 10.0), [[6, 8], [-6, -8.001], [-6, 0]]) == [-inf] * 3
    equations = Affine([[1, 1, 0], [0, 1, 1]], [2, 3])
    np.testing.assert_allclose(linear_minimum(equations, [[1, 2, 1], [-2, -2, 0], [0, 0, 0]]), [5, -4, 0])
    assert linear_minimum(equations, [[1, 2, 1.001]]) == [-inf]


def test_linear_minimum_is_the_limit_of_small_mu():
    c = np.random.default_rng(2).normal(size=(M, D))
    for name in ["box", "l2 ball", "l1 ball", "simplex", "entropy"]:
        domain = build(name)
        np.testing.assert_allclose(domain.linear_minimum(c, 1e-9), domain.linear_minimum(c), atol=1e-7)


@pytest.mark.parametrize("name", ALL)
def test_nu_gradient_and_distance(name):
    rng = np.random.default_rng(4)
    domain = build(name, center=centers(name, D)[1])
    a, x = rng.dirichlet(np.ones(D), size=(2, M)) + 0.01
    h = 1e-6
    slopes = np.stack([(domain.nu(x + h * e) - domain.nu(x - h * e)) / (2 * h) for e in np.eye(D)], axis=1)
    np.testing.assert_allclose(domain.grad_nu(x), slopes, atol=1e-7)
    bregman = domain.nu(x) - domain.nu(a) - np.sum(domain.grad_nu(a) * (x - a), axis=1)
    np.testing.assert_allclose(domain.V(a, x), bregman, atol=1e-13)
    assert np.all(domain.V(x, x) == 0)
    np.testing.assert_allclose(domain.nu(domain.start()), domain.linear_minimum(np.zeros((M, D)), 1.0), atol=1e-14)
    assert np.all(domain.contains(domain.start(), 1e-12))


@settings(deadline=None, derandomize=True, max_examples=60)
@given(d=st.integers(1, 8), seed=st.integers(0, 100_000))
@pytest.mark.parametrize("name", ["entropy", "simplex"])
def test_strong_convexity_in_its_norm(name, d, seed):
    rng = np.random.default_rng(seed)
    domain = build(name, d=d, center=centers(name, d)[seed % 2])
    a, x = rng.dirichlet(np.full(d, rng.choice([0.05, 1, 10])), size=(2, M))
    size = np.linalg.norm(x - a, ord=domain.norm, axis=1)
    assert np.all(domain.V(a, x) >= size**2 / 2 - 1e-14)


@pytest.mark.parametrize("name", ALL)
def test_distance_bound(name):
    rng = np.random.default_rng(6)
    domain = build(name)
    x0 = feasible(name, domain, rng)
    bound = domain.distance_bound(x0)
    if not domain.bounded:
        assert np.all(np.isinf(bound))
        return
    # Extreme points of X: where a long step in some direction ends.
    corners = [
        domain.prox(1e9 * c, 1.0) for c in np.concatenate([np.eye(D), -np.eye(D), rng.normal(size=(20, D))])[:, None]
    ]
    corners += [domain.prox(1e9 * (x0 - domain.start()) * sign, 1.0) for sign in (1, -1)]
    corners += [domain.prox(-1e9 * (x0 - getattr(domain, "origin", 0.5)), 1.0)]
    distances = np.array([domain.V(x0, corner) for corner in corners])
    assert np.all(distances <= bound * (1 + 1e-12) + 1e-12)
    # The bound of a polytope is that of the box around it.
    np.testing.assert_allclose(distances.max(axis=0), bound, rtol=0.5 if name == "polytope" else 0.2, atol=1e-12)


def test_bounded_and_distance_bound_of_named_cases():
    bounded = {name for name in ALL if build(name).bounded}
    unbounded = {"free", "box half open", "non-negative", "halfspace", "affine", "affine redundant", "polyhedron"}
    assert bounded == set(ALL) - unbounded
    point = Affine(np.eye(2), [1.0, 2.0]).bind(1, 2, np.float64)
    assert point.bounded
    assert point.distance_bound(np.zeros((1, 2))) == 2.5
    entropy = EntropySimplex().bind(1, 8, np.float64)
    np.testing.assert_allclose(entropy.distance_bound(entropy.start()), np.log(8))
    assert entropy.norm == 1
    assert not entropy.euclidean
    assert build("box").norm == 2
    assert build("box").euclidean


@pytest.mark.parametrize("name", ALL)
def test_contains_and_project(name):
    rng = np.random.default_rng(8)
    domain, violation = build(name), sets(D)[name].violation
    far = 4 * rng.normal(size=(M, D))
    kept = far.copy()
    x = domain.project(far)
    np.testing.assert_array_equal(far, kept)
    assert x is not far
    assert not np.shares_memory(x, far)
    assert np.all(domain.contains(x, 1e-12))
    np.testing.assert_allclose(domain.project(x), x, atol=1e-13)
    outside = np.array([violation(row) > 1e-3 for row in far])
    np.testing.assert_array_equal(domain.contains(far, 1e-6), ~outside)
    if name == "entropy":
        assert np.all(x > 0)
        assert np.all(np.isfinite(domain.grad_nu(x)))
    for i in range(M):
        y = cp.Variable(D)
        solve_tightly(cp.Problem(cp.Minimize(cp.sum_squares(y - far[i])), sets(D)[name].constraints(y)))
        np.testing.assert_allclose(x[i], y.value, atol=1e-6)


@pytest.mark.covering
@pytest.mark.parametrize("scale", [2.0, np.float64(2.0), np.full((M, 1), 2.0)], ids=["number", "numpy", "array"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "penalty"), WITH_PENALTIES)
def test_the_dtype_stays(name, penalty, dtype, scale):
    domain, exact = build(name, penalty, dtype=dtype), build(name, penalty)
    theta = np.random.default_rng(9).normal(size=(M, D))
    small = theta.astype(dtype)
    x = domain.prox(small, scale)
    points = [x, domain.start(), domain.project(small), domain.grad_nu(x)]
    assert {result.dtype for result in points} == {np.dtype(dtype)}
    # Numbers are sums in double precision.
    numbers = [
        domain.nu(x),
        domain.V(x, domain.start()),
        domain.r(x),
        domain.linear_minimum(small),
        domain.linear_minimum(small, np.float64(0.5)),
    ]
    assert {result.dtype for result in numbers} == {np.dtype(np.float64)}
    np.testing.assert_allclose(x, exact.prox(theta, 2.0), atol=20 * np.finfo(dtype).eps)


# Degenerate input


def test_ties_zeros_and_one_dimension():
    simplex = Simplex().bind(2, 3, np.float64)
    np.testing.assert_allclose(simplex.project(np.array([[5.0, 5, 5], [0, 0, -9]])), [[1 / 3] * 3, [0.5, 0.5, 0]])
    ball = L1Ball(1.0).bind(3, 2, np.float64)
    np.testing.assert_allclose(ball.project(np.array([[3.0, -3], [0, 0], [1, 0]])), [[0.5, -0.5], [0, 0], [1, 0]])
    np.testing.assert_array_equal(L1Ball(0.0).bind(2, 2, np.float64).project(np.array([[3.0, 3], [0, 0]])), 0)
    np.testing.assert_array_equal(L2Ball(0.0).bind(2, 2, np.float64).project(np.array([[3.0, 3], [0, 0]])), 0)
    np.testing.assert_array_equal(Simplex(2.0).bind(2, 1, np.float64).project(np.array([[-7.0], [7]])), 2)
    np.testing.assert_array_equal(EntropySimplex().bind(1, 1, np.float64).prox(np.array([[1e3]]), 1.0), 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_simplex_projection_keeps_its_digits_far_away(dtype):
    v = np.full((1, 101), 1e6, dtype=dtype)
    v[0, 0] += 0.5
    expected = np.full((1, 101), 0.5 / 101)
    expected[0, 0] += 0.5
    np.testing.assert_allclose(Simplex().bind(1, 101, dtype).project(v), expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_entropy_is_safe_at_the_boundary(dtype):
    domain = EntropySimplex().bind(1, 3, dtype)
    corner, start = np.array([[1, 0, 0]], dtype=dtype), domain.start()
    assert np.all(np.isfinite(domain.grad_nu(corner)))
    np.testing.assert_allclose(domain.nu(corner), np.log(3), rtol=1e-6)
    np.testing.assert_allclose(domain.V(start, corner), np.log(3), rtol=1e-6)
    assert np.isfinite(domain.V(corner, start))
    theta = np.array([[1e30, 0, -1e30]], dtype=dtype)
    np.testing.assert_array_equal(domain.prox(theta, 0.1), corner)
    np.testing.assert_allclose(domain.linear_minimum(-theta, 0.1), -theta.max(), rtol=1e-6)


# Agents that differ


def stacked_pair(kind: str, rng: np.random.Generator) -> tuple[Domain, list[Domain]]:
    """A domain with parameters stacked over agents, and the same as one domain per agent."""
    lo, a, center = rng.normal(size=(3, M, D))
    hi, radius, b = lo + rng.uniform(size=(M, D)), rng.uniform(0.5, 2, size=M), rng.normal(size=M)
    A, rhs, weight = rng.normal(size=(M, 2, D)), rng.normal(size=(M, 2)), rng.uniform(size=(M, D))
    inside = rng.dirichlet(np.ones(D), size=M)
    agents = range(M)
    return {
        "free": (
            Free(center=center, penalty=L1(weight)),
            [Free(center=center[i], penalty=L1(weight[i])) for i in agents],
        ),
        "box": (Box(lo, hi, center=center), [Box(lo[i], hi[i], center=center[i]) for i in agents]),
        "l2": (L2Ball(radius, origin=a), [L2Ball(radius[i], origin=a[i]) for i in agents]),
        "l1": (L1Ball(radius, center=center), [L1Ball(radius[i], center=center[i]) for i in agents]),
        "simplex": (Simplex(radius), [Simplex(radius[i]) for i in agents]),
        "halfspace": (Halfspace(a, b), [Halfspace(a[i], b[i]) for i in agents]),
        "affine": (Affine(A, rhs), [Affine(A[i], rhs[i]) for i in agents]),
        "affine one A": (Affine(A[0], rhs), [Affine(A[0], rhs[i]) for i in agents]),
        "entropy": (EntropySimplex(center=inside), [EntropySimplex(center=inside[i]) for i in agents]),
    }[kind]


def results(domain: Domain, theta: np.ndarray, scale: np.ndarray) -> dict[str, np.ndarray]:
    x, start = domain.prox(theta, scale), domain.start()
    return {
        "prox": x,
        "start": start,
        "project": domain.project(theta),
        "grad_nu": domain.grad_nu(x),
        "nu": domain.nu(x),
        "V": domain.V(start, x),
        "r": domain.r(x),
        "mu = 0": domain.linear_minimum(theta),
        "mu > 0": domain.linear_minimum(theta, 0.7),
        "distance": domain.distance_bound(start),
        "contains": domain.contains(theta, 0.5),
    }


def assert_like_single_agents(domain: Domain, singles: list[Domain], dtype: Any = np.float64) -> None:
    """The domain, and any selection of its agents, does what one domain per agent does."""
    m = len(singles)
    rng = np.random.default_rng(12)
    theta, scale = rng.normal(size=(m, D)).astype(dtype), rng.uniform(0.5, 2, size=(m, 1)).astype(dtype)
    alone = [results(s.bind(1, D, dtype), theta[[i]], scale[[i]]) for i, s in enumerate(singles)]
    for agents in (np.arange(m), np.arange(m)[::-1], [1, 0], [m - 1], [0, 2, 0]):
        part = domain.take(agents)
        assert part.m == len(agents)
        for name, values in results(part, theta[agents], scale[agents]).items():
            expected = np.concatenate([alone[i][name] for i in agents])
            assert values.dtype == expected.dtype
            np.testing.assert_allclose(values, expected, atol=1e-13 if dtype == np.float64 else 1e-5, err_msg=name)


KINDS = ["free", "box", "l2", "l1", "simplex", "halfspace", "affine", "affine one A", "entropy"]


@pytest.mark.parametrize("kind", KINDS)
def test_stacked_parameters_equal_a_loop_over_agents(kind):
    stacked, singles = stacked_pair(kind, np.random.default_rng(10))
    domain = stacked.bind(M, D, np.float64)
    assert not domain.common
    assert domain.take([1]).common
    assert_like_single_agents(domain, singles)


@pytest.mark.parametrize("kind", KINDS)
def test_per_agent_of_one_kind_is_a_stacked_domain(kind):
    stacked, singles = stacked_pair(kind, np.random.default_rng(10))
    domain = PerAgent(singles).bind(M, D, np.float64)
    assert type(domain) is type(stacked)
    assert_like_single_agents(domain, singles)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_per_agent_of_many_kinds_equals_a_loop_over_agents(dtype):
    rng = np.random.default_rng(13)
    a, A = rng.normal(size=D), rng.normal(size=(2, D))
    singles = [
        Box(-1, 0.5),
        L2Ball(1.0),
        Box(0, 1),
        Free(penalty=L1(0.1)),
        Free(),
        L2Ball(2.0, origin=a),
        Simplex(2.0),
        Affine(A, [1, 2]),
        Affine(A[:1], [1]),
        Affine(A[::-1], [0, 1]),
        Halfspace(a, 0.1),
        Free(penalty=L1(0.6)),
        NonNegative(center=a),
        L1Ball(1.0),
        Free(penalty=ElasticNet(0.1, 0.0)),
        Free(penalty=ElasticNet(0.1, 2.0)),
        L2Ball(1.0, penalty=GroupL1(0.3, [0, 0, 1, 1])),
        L2Ball(1.0, penalty=GroupL1([0.1, 0.2], [[0, 1], [2, 3]])),
        L2Ball(1.0, penalty=GroupL1(0.3, [0, 1, 1, 1])),
        Free(center=a),
    ]
    domain = PerAgent(singles).bind(len(singles), D, dtype)
    assert not domain.common
    assert not domain.bounded
    assert domain.norm == 2
    assert domain.take([0, 1]).bounded
    assert isinstance(domain.take([0, 2]), Box)
    assert_like_single_agents(domain, singles, dtype)


def test_operations_make_one_call_per_kind(monkeypatch):
    calls = []
    for kind in (Box, L2Ball):
        plain = kind.project
        monkeypatch.setattr(kind, "project", lambda self, v, plain=plain: calls.append(len(v)) or plain(self, v))
    domain = PerAgent([Box(-i, 1) if i % 2 else L2Ball(i) for i in range(50)]).bind(50, D, np.float64)
    domain.prox(np.ones((50, D)), 1.0)
    assert calls == [25, 25]


def test_common_is_seen_through_stacking():
    assert Box(np.zeros((M, D)), 1.0).bind(M, D, np.float64).common
    assert PerAgent([L2Ball(1.0)] * M).bind(M, D, np.float64).common
    assert not PerAgent([L2Ball(1.0, penalty=L1(i)) for i in range(M)]).bind(M, D, np.float64).common


@pytest.mark.parametrize(("name", "penalty"), WITH_PENALTIES)
def test_binding_twice_changes_nothing(name, penalty):
    once = build(name, penalty)
    twice = once.bind(M, D, np.float64)
    theta = np.random.default_rng(14).normal(size=(M, D))
    np.testing.assert_allclose(twice.prox(theta, 1.5), once.prox(theta, 1.5), atol=1e-14)


# Bad input


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: L2Ball(-1), "radius must not be negative"),
        (lambda: L1Ball([1, -1]), "radius must not be negative"),
        (lambda: L2Ball(np.nan), "radius must not be NaN"),
        (lambda: L2Ball(np.inf), "radius must be finite"),
        (lambda: L2Ball("large"), "radius must be a number"),
        (lambda: L2Ball(1, origin=np.nan), "origin must not be NaN"),
        (lambda: L2Ball(1, origin=1.0, penalty=L1(1)), "must have its origin at 0"),
        (lambda: L1Ball(1, penalty=GroupL1(1, [0, 0])), "L1Ball can be combined with L1, ElasticNet"),
        (lambda: Box(1, 0), "lo must not exceed hi"),
        (lambda: Box(np.nan, 0), "lo must not be NaN"),
        (lambda: Box(0, np.nan), "hi must not be NaN"),
        (lambda: Box(np.inf, np.inf), "lo < inf"),
        (lambda: Box(np.zeros(2), np.zeros(3)), "lo and hi must fit together"),
        (lambda: Box(0, 1, penalty=GroupL1(1, [0, 0])), "Box can be combined with"),
        (lambda: NonNegative(center=np.nan), "center must not be NaN"),
        (lambda: Free(center=np.inf), "center must be finite"),
        (lambda: Free(penalty=0.1), "Free can be combined with L1, GroupL1, ElasticNet"),
        (lambda: Simplex(0), "total must be positive"),
        (lambda: Simplex(np.nan), "total must not be NaN"),
        (lambda: Simplex(penalty=L1(1)), "Simplex can be combined with no penalty"),
        (lambda: Halfspace([0, 0], 1), "a must not be zero"),
        (lambda: Halfspace([[1, 0], [0, 0]], 1), "a must not be zero"),
        (lambda: Halfspace([1, np.nan], 1), "a must not be NaN"),
        (lambda: Halfspace([1, 1], np.nan), "b must not be NaN"),
        (lambda: Halfspace([1, 1], 1, penalty=L1(1)), "Halfspace can be combined with no penalty"),
        (lambda: Affine([1, 1], 1), "A must be"),
        (lambda: Affine([[1, 1]], [1, 2]), "A must be"),
        (lambda: Affine(np.zeros((0, 2)), []), "A must be"),
        (lambda: Affine([[1, np.nan]], [1]), "A must not be NaN"),
        (lambda: EntropySimplex(center=[0, 1]), "center must be positive"),
        (lambda: EntropySimplex(center=[0.5, 0.6]), "center must sum to 1"),
        (lambda: PerAgent([]), "PerAgent needs a domain"),
        (lambda: PerAgent([Free(), 3]), r"domains\[1\] must be a domain"),
        (lambda: PerAgent([Free(), EntropySimplex()]), "all agents must use one norm"),
    ],
)
def test_bad_parameters(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        (Box(np.zeros(2), 1), r"lo must have the shape a number, \(4,\) or \(3, 4\)"),
        (Box(0, np.ones((2, 4))), "hi must have the shape"),
        (Free(center=np.zeros((1, 3, 4))), "center must have the shape"),
        (Free(penalty=L1([1, 2])), "L1's weight must have the shape"),
        (L2Ball(np.ones(4)), r"radius must have the shape a number or \(3,\)"),
        (L2Ball(1, origin=np.zeros(3)), "origin must have the shape"),
        (Simplex(np.ones(4)), "total must have the shape"),
        (Halfspace(np.ones(3), 1), "a must have the shape"),
        (Halfspace(np.ones(4), np.ones(4)), "b must have the shape"),
        (Affine(np.ones((1, 3)), [1]), "A and b must fit"),
        (Affine(np.ones((2, 1, 4)), [1]), "A and b must fit"),
        (Affine(np.ones((1, 4)), np.ones((2, 1))), "A and b must fit"),
        (Affine([[1, 1, 0, 0], [2, 2, 0, 0]], [1, 3]), "A x = b must have a solution"),
        (Affine(np.zeros((1, 4)), [1]), "A x = b must have a solution"),
        (EntropySimplex(center=[0.5, 0.5]), "center must have the shape"),
        (PerAgent([Free()] * 2), "one domain for each agent; got 2 for 3 agents"),
        (PerAgent([Free(), L2Ball([1, 2, 3]), Free()]), r"domains\[1\] must fit one agent"),
    ],
)
def test_parameters_that_do_not_fit_the_problem(domain, message):
    with pytest.raises(InputError, match=message):
        domain.bind(M, D, np.float64)


def test_an_integer_dtype_is_refused():
    with pytest.raises(InputError, match="dtype must be floating"):
        Free().bind(M, D, np.int64)


def test_domains_do_not_follow_later_changes_of_the_input():
    lo = np.zeros(D)
    domain = Box(lo, 1.0).bind(M, D, np.float64)
    lo[:] = 1.0
    np.testing.assert_array_equal(domain.project(np.zeros((M, D))), 0)
