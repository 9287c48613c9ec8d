"""An interior point method for convex quadratic programs with linear constraints.

    minimize  x'Px/2 + q'x   over x and v = [K x, x]   subject to  lower <= v <= upper

The method follows the homogeneous embedding with Mehrotra's predictor and corrector as in

P. J. Goulart, Y. Chen, "Clarabel: An interior-point solver for conic programs with quadratic
objectives", 2024,

for intervals only. The embedding always has a solution: of the program, or a certificate that there
is none. What it needs of P and K is in a `KKTSystem`, so that blocks of x may live elsewhere.
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp
from scipy import linalg
from scipy.sparse.linalg import splu

from gradslide._support.types import Array, Sparse
from gradslide.problems.model import LowRank

# Relative residuals at which a program counts as solved, and those to which iterations go on if they can.
ACCURATE, _SHARP = 1e-8, 1e-12
# A ray counts as a certificate if it violates its conditions by this share.
_CERTAIN = 1e-8
# By this share, where iterations cannot go on and no point was nearly a solution.
_NEARLY_CERTAIN, _FAR_OFF = 1e-7, 1e-3
_MOST_ITERATIONS = 100
# The share of the way to the boundary that a step takes.
_SHARE = 0.99
# Steps shorter than this make no progress; after so many iterations without a better point the search ends.
_SHORTEST, _PATIENCE = 1e-6, 12
# Added to the diagonal of the KKT matrix, and corrected by refinement; relative to its largest entry.
_REGULARIZATION = 1e-8
_REFINEMENTS, _REFINED = 10, 1e-13
# Rounds of equilibration.
_RUIZ_ITERATIONS = 10
# Matrices with more unknowns, and with fewer entries than this share of all, are factored as sparse ones.
_SMALL, _SPARSE = 200, 0.3


# From the right-hand sides of variables and rows to dx and y.
_Solver = Callable[[Array, Array], tuple[Array, Array]]


class Outcome(Enum):
    """How the search ended."""

    SOLVED = "the residuals are small"
    INFEASIBLE = "a combination of the constraints proves that they contradict each other"
    UNBOUNDED = "the objective falls for ever along a direction that the constraints allow"
    INACCURATE = "iterations ended before the residuals were small"


class QPResult(NamedTuple):
    """What `minimize_qp` returns.

    Attributes
    ----------
    outcome : Outcome
        How the search ended.
    x : ndarray, shape (n,)
        The minimizer; the direction, if the program is unbounded.
    multipliers : ndarray, shape (k + n,)
        Of the intervals for K x and for x, positive at upper ends; the combination of constraints
        that proves it, if the program is infeasible.
    residual : float
        The largest of the relative primal and dual residuals and the relative gap.
    iterations : int
        Factorizations of the KKT matrix.
    products : int
        Products with K or its transpose.
    """

    outcome: Outcome
    x: Array
    multipliers: Array
    residual: float
    iterations: int
    products: int = 0


class KKTSystem(ABC):
    """The matrices of a program, as the interior point method uses them.

    Vectors of constraints have k + n entries, for K x and for x. In several processes every one
    holds its blocks of x; all of them see the entries of K x that they have in common.
    """

    @abstractmethod
    def hessian(self, x: Array) -> Array:
        """Return P x."""

    @abstractmethod
    def values(self, x: Array) -> Array:
        """Return [K x, x]."""

    @abstractmethod
    def adjoint(self, multipliers: Array) -> Array:
        """Return [K', I] times multipliers."""

    @abstractmethod
    def factor(self, weights: Array, is_equation: Array) -> None:
        """Prepare `solve` for D = diag(weights); equations have infinite weights."""

    @abstractmethod
    def solve(self, a: Array, b: Array) -> tuple[Array, Array]:
        """Solve P dx + D_x dx + K' y = a, K dx - y / D = b (for equations K dx = b).

        Parameters
        ----------
        a : ndarray, shape (n,)
            Right-hand side of the variables.
        b : ndarray, shape (k,)
            Of the rows of K.

        Returns
        -------
        dx : ndarray, shape (n,)
        y : ndarray, shape (k,)
        """

    def total(self, numbers: Sequence[float]) -> Array:
        """Return sums over all processes."""
        return np.asarray(numbers, dtype=np.float64)

    def largest(self, numbers: Sequence[float]) -> Array:
        """Return maxima over all processes."""
        return np.asarray(numbers, dtype=np.float64)

    def is_own(self, constraints: int) -> Array:
        """Return which constraints this process adds to sums over all of them."""
        return np.ones(constraints, dtype=bool)


def interior_point(system: KKTSystem, q: Array, lower: Array, upper: Array) -> QPResult:
    """Minimize x'Px/2 + q'x subject to lower <= [K x, x] <= upper.

    Parameters
    ----------
    system : KKTSystem
        P and K, in units in which their entries are about 1.
    q : ndarray, shape (n,)
        Linear term.
    lower, upper : ndarray, shape (k + n,)
        Intervals; equal ends are equations, which only rows of K may have. Every row of K has an end.

    Returns
    -------
    QPResult
    """
    sides = _Sides.of(lower, upper)
    own = system.is_own(len(lower))
    point = _start(system, q, sides)
    best: QPResult | None = None
    since_best, nearest, tau = 0, math.inf, 1.0
    for iteration in range(1, _MOST_ITERATIONS + 1):
        at = _Residuals.at(system, q, sides, own, point)
        if min(at.contradiction, at.descent) < nearest:
            # It comes nearer to a proof that there is no solution.
            nearest, since_best = min(at.contradiction, at.descent), -1
        if point.tau > 2 * tau:
            # After a first step that went too far it takes a while to come back.
            since_best = -1
        tau = point.tau
        if best is None or at.relative < best.residual:
            since_best = 0
            best = QPResult(Outcome.INACCURATE, point.x / point.tau, at.multipliers / point.tau, at.relative, iteration)
        else:
            since_best += 1
        if at.relative <= _SHARP or not math.isfinite(at.mu):
            break
        if at.contradiction <= _CERTAIN and best.residual > ACCURATE:
            return QPResult(Outcome.INFEASIBLE, point.x, at.multipliers, at.relative, iteration)
        if at.descent <= _CERTAIN and best.residual > ACCURATE:
            return QPResult(Outcome.UNBOUNDED, point.x, at.multipliers, at.relative, iteration)
        if since_best >= _PATIENCE or (since_best and best.residual <= ACCURATE):
            break
        try:
            step = _step(system, q, sides, own, point, at)
        except (RuntimeError, linalg.LinAlgError):
            # Singular in floating point.
            break
        if step is None:
            break
        point = step
    assert best is not None
    if best.residual > _FAR_OFF and min(at.contradiction, at.descent) <= _NEARLY_CERTAIN:
        outcome = Outcome.INFEASIBLE if at.contradiction <= at.descent else Outcome.UNBOUNDED
        return QPResult(outcome, point.x, at.multipliers, at.relative, iteration)
    return best._replace(outcome=Outcome.SOLVED) if best.residual <= ACCURATE else best


class _Sides(NamedTuple):
    """Every finite end of an interval as a constraint sign v <= bound; equations apart.

    Attributes
    ----------
    entries, sign, bound : ndarray
        Which entry of v = [K x, x], whether its upper (1) or lower (-1) end, and sign times the end.
    equations : ndarray
        Entries of v with equal ends.
    targets : ndarray
        These ends.
    size : int
        Length of v.
    """

    entries: Array
    sign: Array
    bound: Array
    equations: Array
    targets: Array
    size: int

    @classmethod
    def of(cls, lower: Array, upper: Array) -> "_Sides":
        is_equation = lower == upper
        above, below = (np.flatnonzero(np.isfinite(ends) & ~is_equation) for ends in (upper, lower))
        equations = np.flatnonzero(is_equation)
        sign = np.concatenate([np.ones(len(above)), -np.ones(len(below))])
        bound = np.concatenate([upper[above], -lower[below]])
        return cls(np.concatenate([above, below]), sign, bound, equations, lower[equations], len(lower))

    def of_values(self, v: Array) -> Array:
        """Return sign v of each constraint."""
        return self.sign * v[self.entries]

    def summed(self, z: Array) -> Array:
        """Return the sums of z over the constraints of each entry of v."""
        return np.bincount(self.entries, weights=z, minlength=self.size).astype(np.float64)


@dataclass(frozen=True)
class _Point:
    """Iterates of the embedding: x/tau and z/tau are those of the program."""

    x: Array
    s: Array
    z: Array
    y: Array
    tau: float
    kappa: float


@dataclass(frozen=True)
class _Residuals:
    """The residuals of the embedding at a point, and how good it is.

    `contradiction` and `descent` are small where z proves that the program is infeasible, and x that
    it is unbounded.
    """

    x: Array
    s: Array
    y: Array
    tau: float
    Px: Array
    multipliers: Array
    mu: float
    curvature: float
    relative: float
    contradiction: float
    descent: float

    @classmethod
    def at(cls, system: KKTSystem, q: Array, sides: _Sides, own: Array, point: _Point) -> "_Residuals":
        x, s, z, y, tau, kappa = point.x, point.s, point.z, point.y, point.tau, point.kappa
        is_own, is_own_equation = own[sides.entries], own[sides.equations]
        Px, v = system.hessian(x), system.values(x)
        multipliers = sides.summed(sides.sign * z)
        multipliers[sides.equations] = y
        pull = system.adjoint(multipliers)
        gap_of_sides, missed = sides.of_values(v) + s, v[sides.equations]
        r_x, r_s, r_y = Px + pull + tau * q, gap_of_sides - tau * sides.bound, missed - tau * sides.targets
        held = float(sides.bound[is_own] @ z[is_own] + sides.targets[is_own_equation] @ y[is_own_equation])
        complements = float(s[is_own] @ z[is_own])
        sums = system.total([float(q @ x), float(x @ Px), held, complements, float(np.count_nonzero(is_own))])
        qx, xPx, held, complements, number = sums.tolist()
        sizes = (r_x, r_s, r_y, Px, pull, q, v, sides.bound, sides.targets, gap_of_sides, missed, multipliers, x)
        dual, above, off, P_size, pull_size, q_size, v_size, *rest = system.largest([_size(each) for each in sizes])
        b_size, f_size, sides_size, missed_size, z_size, x_size = rest
        primal_value = xPx / (2 * tau**2) + qx / tau
        dual_value = -xPx / (2 * tau**2) - held / tau
        gap = abs(primal_value - dual_value) / (1 + min(abs(primal_value), abs(dual_value)))
        relative = max(
            max(above, off) / (tau + max(v_size, tau * max(b_size, f_size))),
            dual / (tau + max(P_size, pull_size, tau * q_size)),
            gap,
        )
        return cls(
            r_x,
            r_s,
            r_y,
            qx + held + kappa + xPx / tau,
            Px,
            multipliers,
            (complements + tau * kappa) / (number + 1),
            xPx / tau**2,
            relative if math.isfinite(relative) else math.inf,
            pull_size * max(1.0, x_size / z_size if z_size else 1.0) / -held if held < 0 else math.inf,
            max(P_size, sides_size, missed_size) / -qx if qx < 0 else math.inf,
        )


def _start(system: KKTSystem, q: Array, sides: _Sides) -> _Point:
    """The minimizer with squared violations as penalties, and slacks and multipliers moved into their cone."""
    weights = sides.summed(np.ones(len(sides.entries)))
    weights[sides.equations] = math.inf
    n = len(q)
    system.factor(weights, np.isinf(weights))
    x, dz, y = _solved(system, sides, weights, np.ones(len(sides.entries)), -q, sides.bound, sides.targets, n)
    return _Point(x, _inside(system, -dz), _inside(system, dz), y, 1.0, 1.0)


def _inside(system: KKTSystem, v: Array) -> Array:
    """Return v, moved by a constant so that all entries are well above 0."""
    positive = np.maximum(v, 0.0)
    least, number = system.largest([float(np.max(-v, initial=-math.inf))]), float(len(v))
    mean = system.total([float(positive.sum()), number])
    target = max(1.0, 0.1 * float(mean[0]) / max(1.0, float(mean[1])))
    return v + max(0.0, target + float(least[0])) if math.isfinite(float(least[0])) else v


def _step(system: KKTSystem, q: Array, sides: _Sides, own: Array, point: _Point, at: _Residuals) -> _Point | None:
    """Return the next point; None if the step has no length."""
    x, s, z, y, tau, kappa = point.x, point.s, point.z, point.y, point.tau, point.kappa
    squares = s / z
    weights = sides.summed(1 / squares)
    weights[sides.equations] = math.inf
    system.factor(weights, np.isinf(weights))
    n, is_own, is_own_equation = len(x), own[sides.entries], own[sides.equations]
    constant = _solved(system, sides, weights, squares, -q, sides.bound, sides.targets, n)

    def products(dx: Array, dz: Array, dy: Array) -> float:
        held = float(sides.bound[is_own] @ dz[is_own] + sides.targets[is_own_equation] @ dy[is_own_equation])
        return held + float(q @ dx) + 2 * float(at.Px @ dx) / tau

    def direction(sigma: float, target: Array, target_tau: float) -> tuple[Array, Array, Array, Array, float, float]:
        keep = 1 - sigma
        a = -target / z
        moving = _solved(system, sides, weights, squares, -keep * at.x, -keep * at.s - a, -keep * at.y, n)
        first, second = system.total([products(*moving), products(*constant)]).tolist()
        a_kappa = -target_tau / tau
        dtau = (-keep * at.tau - a_kappa - first) / (second - at.curvature - kappa / tau)
        dx, dz, dy = (one + dtau * other for one, other in zip(moving, constant, strict=True))
        return dx, a - squares * dz, dz, dy, dtau, a_kappa - kappa / tau * dtau

    def reach(ds: Array, dz: Array, dtau: float, dkappa: float) -> float:
        ratios = [float(np.max(-d / v, initial=0.0)) for d, v in ((ds, s), (dz, z))]
        most = system.largest([max(*ratios, -dtau / tau, -dkappa / kappa)])
        return min(1.0, 1 / float(most[0])) if most[0] > 0 else 1.0

    dx, ds, dz, dy, dtau, dkappa = direction(0.0, s * z, tau * kappa)
    alpha = reach(ds, dz, dtau, dkappa)
    sigma = (1 - alpha) ** 3
    target = s * z + ds * dz - sigma * at.mu
    dx, ds, dz, dy, dtau, dkappa = direction(sigma, target, tau * kappa + dtau * dkappa - sigma * at.mu)
    alpha = _SHARE * reach(ds, dz, dtau, dkappa)
    if not alpha > _SHORTEST:
        return None
    tau, kappa = tau + alpha * dtau, kappa + alpha * dkappa
    # The embedding is homogeneous: all parts may be divided by one number.
    size = max(tau, kappa)
    x, s, z, y = ((v + alpha * dv) / size for v, dv in ((x, dx), (s, ds), (z, dz), (y, dy)))
    return _Point(x, s, z, y, tau / size, kappa / size)


def _solved(
    system: KKTSystem, sides: _Sides, weights: Array, squares: Array, a: Array, b: Array, f: Array, n: int
) -> tuple[Array, Array, Array]:
    """Solve P dx + [K', I] y = a, sign v - squares dz = b, v = f for equations, with v = [K dx, dx]."""
    k = sides.size - n
    held = sides.summed(sides.sign * b / squares)
    rows = np.where(np.isinf(weights[:k]), 0.0, held[:k] / np.where(weights[:k] > 0, weights[:k], 1.0))
    rows[sides.equations] = f
    dx, y = system.solve(a + held[k:], rows)
    dz = (sides.of_values(system.values(dx)) - b) / squares
    # Weights are huge where a constraint is active: multipliers of rows are those that were solved for.
    missed = -sides.summed(sides.sign * dz)
    missed[:k] += y
    missed[k:] = 0.0
    dz += sides.sign * missed[sides.entries] / (squares * weights[sides.entries])
    return dx, dz, y[sides.equations]


def _size(v: Array) -> float:
    return float(np.max(np.abs(v), initial=0.0))


class DirectKKT(KKTSystem):
    """P and K in one place: the KKT matrix is factored.

    Parameters
    ----------
    P : ndarray, sparse matrix or LowRank, shape (n, n)
        Positive semidefinite.
    K : ndarray or sparse matrix, shape (k, n)
        Rows.

    Attributes
    ----------
    products : int
        Products with K or its transpose so far.
    """

    def __init__(self, P: "Array | Sparse | LowRank", K: "Array | Sparse") -> None:
        self._P, self._n, self.products = P, K.shape[1], 0
        base: Any = sp.diags_array(P.diagonal) if isinstance(P, LowRank) else P
        entries = sum(each.nnz if sp.issparse(each) else each.size for each in (base, cast(Any, K)))
        unknowns = self._n + K.shape[0]
        self._is_sparse = bool(unknowns > _SMALL and entries < _SPARSE * (self._n**2 + math.prod(K.shape)))
        self._base: Any = sp.csr_array(base) if self._is_sparse else _dense(base)
        self._matrix: Any = sp.csr_array(K) if self._is_sparse else _dense(K)
        self._transposed: Any = sp.csr_array(self._matrix.T) if self._is_sparse else self._matrix.T
        if isinstance(P, LowRank) and not self._is_sparse:
            self._base = P.dense()
        self._is_low_rank = isinstance(P, LowRank) and self._is_sparse

    def hessian(self, x: Array) -> Array:
        return cast(Array, self._P @ x if self._is_low_rank else self._base @ x)

    def values(self, x: Array) -> Array:
        self.products += 1
        return np.concatenate([self._matrix @ x, x])

    def adjoint(self, multipliers: Array) -> Array:
        self.products += 1
        k = len(multipliers) - self._n
        return cast(Array, self._transposed @ multipliers[:k] + multipliers[k:])

    def factor(self, weights: Array, is_equation: Array) -> None:
        k = len(weights) - self._n
        self._diagonal, rows = weights[k:], weights[:k]
        self._inverses = np.where(is_equation[:k], 0.0, 1 / np.maximum(rows, 1e-200))
        self._equations = np.flatnonzero(is_equation[:k])
        self._inequalities = np.flatnonzero(~is_equation[:k])
        self._row_weights = rows[self._inequalities]
        self._solve = self._factored_sparse() if self._is_sparse else self._factored_dense()

    def _factored_dense(self) -> _Solver:
        E, G = self._matrix[self._equations], self._matrix[self._inequalities]
        C = self._base + (G.T * self._row_weights) @ G
        C[np.diag_indices(self._n)] += self._diagonal + _REGULARIZATION
        if len(E):
            C = np.block([[C, E.T], [E, -_REGULARIZATION * np.eye(len(E))]])
        inner = _dense_solver(C, is_definite=not len(E))

        def solve(a: Array, b: Array) -> tuple[Array, Array]:
            pushed = self._row_weights * b[self._inequalities]
            found = inner(np.concatenate([a + G.T @ pushed, b[self._equations]]))
            dx, y = found[: self._n], np.empty(len(b))
            y[self._equations] = found[self._n :]
            y[self._inequalities] = self._row_weights * (G @ dx) - pushed
            return dx, y

        return solve

    def _factored_sparse(self) -> _Solver:
        n, k = self._n, len(self._inverses)
        top = self._base + sp.diags_array(self._diagonal + _REGULARIZATION)
        # An inactive row has a huge entry, which would spoil the scale of others.
        bottom = sp.diags_array(-np.minimum(self._inverses, 1e20) - _REGULARIZATION)
        matrix = sp.block_array([[top, self._transposed], [self._matrix, bottom]], format="csc")
        options = {"SymmetricMode": True}
        lu = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)

        def base(a: Array, b: Array) -> Array:
            return cast(Array, lu.solve(np.concatenate([a, b])))

        if not self._is_low_rank:
            return lambda a, b: _split(base(a, b), n)
        P = cast(LowRank, self._P)
        columns = np.vstack([P.factors, np.zeros((k, P.factors.shape[1]))])
        pulled = cast(Array, lu.solve(columns))
        inner = np.diag(1 / P.weights) + columns.T @ pulled

        def corrected(a: Array, b: Array) -> tuple[Array, Array]:
            found = base(a, b)
            return _split(found - pulled @ np.linalg.solve(inner, columns.T @ found), n)

        return corrected

    def solve(self, a: Array, b: Array) -> tuple[Array, Array]:
        dx, y = np.zeros_like(a), np.zeros_like(b)
        left_a, left_b = a, b
        size = _size(a) + _size(b)
        missed = math.inf
        with np.errstate(all="ignore"):
            for _ in range(_REFINEMENTS):
                more_x, more_y = self._solve(left_a, left_b)
                new_x, new_y = dx + more_x, y + more_y
                self.products += 2
                left_a = a - (self.hessian(new_x) + self._diagonal * new_x + self._transposed @ new_y)
                left_b = b - (self._matrix @ new_x - self._inverses * new_y)
                now = max(_size(left_a), _size(left_b))
                if not now < missed:
                    break
                dx, y, missed, before = new_x, new_y, now, missed
                if missed <= _REFINED * size or missed > before / 2:
                    break
        return dx, y


def _split(v: Array, n: int) -> tuple[Array, Array]:
    return v[:n], v[n:]


def _dense_solver(matrix: Array, *, is_definite: bool) -> Callable[[Array], Array]:
    """Factor a symmetric matrix, by Cholesky if it is definite and rounding leaves it so."""
    if is_definite:
        try:
            factor = linalg.cho_factor(matrix, check_finite=False)
            return lambda right: cast(Array, linalg.cho_solve(factor, right, check_finite=False))
        except linalg.LinAlgError:
            pass
    with warnings.catch_warnings():
        warnings.simplefilter("error", linalg.LinAlgWarning)
        try:
            lu = linalg.lu_factor(matrix, check_finite=False)
        except linalg.LinAlgWarning as singular:
            raise linalg.LinAlgError(str(singular)) from None
    return lambda right: cast(Array, linalg.lu_solve(lu, right, check_finite=False))


def minimize_qp(P: "Array | Sparse | LowRank", q: Array, K: "Array | Sparse", lower: Array, upper: Array) -> QPResult:
    """Minimize x'Px/2 + q'x subject to lower <= [K x, x] <= upper, whatever the units.

    Parameters
    ----------
    P : ndarray, sparse matrix or LowRank, shape (n, n)
        Positive semidefinite.
    q : ndarray, shape (n,)
        Linear term.
    K : ndarray or sparse matrix, shape (k, n)
        Rows.
    lower, upper : ndarray, shape (k + n,)
        Intervals for K x, then for x; infinite where there is no bound.

    Returns
    -------
    QPResult
    """
    n, k = len(q), K.shape[0]
    rows = np.flatnonzero(np.isfinite(lower[:k]) | np.isfinite(upper[:k]))
    moving = np.flatnonzero(~(lower[k:] == upper[k:]))
    x, multipliers = np.zeros(n), np.zeros(k + n)
    fixed = np.setdiff1d(np.arange(n), moving)
    x[fixed] = lower[k:][fixed]
    chosen = np.concatenate([rows, k + moving])
    shift = K @ x
    inner_P = P.within(moving) if isinstance(P, LowRank) else _indexed(P)[moving][:, moving]
    inner_K = _indexed(K)[rows][:, moving]
    inner_q = q[moving] + (P @ x)[moving]
    moved = np.concatenate([shift[rows], np.zeros(len(moving))])
    scaled = _Equilibrated.of(inner_P, inner_q, inner_K)
    system = DirectKKT(scaled.P, scaled.K)
    ends = ((each[chosen] - moved) / scaled.of_constraints for each in (lower, upper))
    found = interior_point(system, scaled.q, *ends)

    x[moving] = scaled.columns * found.x
    if found.outcome is Outcome.UNBOUNDED:
        x[fixed] = 0.0
    multipliers[chosen] = found.multipliers / (scaled.cost * scaled.of_constraints)
    if found.outcome is not Outcome.INFEASIBLE and len(fixed):
        slope = P @ x + q + K.T @ multipliers[:k]
        multipliers[k + fixed] = -slope[fixed]
    elif len(fixed):
        multipliers[k + fixed] = -(K.T @ multipliers[:k])[fixed]
    return found._replace(x=x, multipliers=multipliers, products=system.products)


@dataclass(frozen=True)
class _Equilibrated:
    """A program in units in which the KKT matrix has rows of size 1 (Ruiz)."""

    P: Any
    q: Array
    K: Any
    columns: Array
    rows: Array
    cost: float

    @property
    def of_constraints(self) -> Array:
        """The units of [K x, x]: divided by them, intervals are those of the scaled program."""
        return np.concatenate([1 / self.rows, self.columns])

    @classmethod
    def of(cls, P: Any, q: Array, K: Any) -> "_Equilibrated":
        n, k = K.shape[1], K.shape[0]
        columns, rows = np.ones(n), np.ones(k)
        low_rank = isinstance(P, LowRank)
        absolute = abs(sp.csr_array(np.abs(P.diagonal) * sp.eye_array(n))) if low_rank else abs(P)
        for _ in range(_RUIZ_ITERATIONS):
            of_P = _largest(absolute, columns, columns, 0)
            of_K = _largest(abs(K), rows, columns, 0)
            sizes = np.maximum(of_P, of_K)
            row_sizes = _largest(abs(K), rows, columns, 1)
            columns = columns / np.sqrt(np.where(sizes > 0, np.clip(sizes, 1e-8, 1e8), 1.0))
            rows = rows / np.sqrt(np.where(row_sizes > 0, np.clip(row_sizes, 1e-8, 1e8), 1.0))
        columns, rows = np.clip(columns, 1e-6, 1e6), np.clip(rows, 1e-6, 1e6)
        scaled_P: Any
        if low_rank:
            scaled_P = LowRank(P.diagonal * columns**2, P.factors * columns[:, None], P.weights)
        else:
            scaled_P = _scaled(P, columns, columns)
        scaled_q = columns * q
        sizes = _largest(absolute, columns, columns, 0)
        cost = 1 / max(float(np.mean(sizes)) if n else 0.0, _size(scaled_q), 1e-12)
        cost = min(max(cost, 1e-8), 1e8)
        if low_rank:
            scaled_P = LowRank(cost * scaled_P.diagonal, scaled_P.factors, cost * scaled_P.weights)
        else:
            scaled_P = cost * scaled_P
        return cls(scaled_P, cost * scaled_q, _scaled(K, rows, columns), columns, rows, cost)


def _indexed(matrix: Any) -> Any:
    """A matrix whose rows and columns can be chosen."""
    return sp.csr_array(matrix) if sp.issparse(matrix) else matrix


def _scaled(matrix: Any, rows: Array, columns: Array) -> Any:
    if sp.issparse(matrix):
        return sp.diags_array(rows) @ matrix @ sp.diags_array(columns)
    return matrix * rows[:, None] * columns


def _largest(matrix: Any, rows: Array, columns: Array, axis: int) -> Array:
    """The largest entry of each column (axis 0) or row (axis 1) of the scaled matrix; 0 where there are none."""
    if 0 in matrix.shape:
        return np.zeros(matrix.shape[1 - axis])
    sizes = _scaled(matrix, rows, columns).max(axis=axis)
    return np.asarray(sizes.toarray() if sp.issparse(sizes) else sizes, dtype=np.float64).reshape(-1)


def _dense(matrix: Any) -> Array:
    return np.array(matrix.toarray() if sp.issparse(matrix) else matrix, dtype=np.float64)
