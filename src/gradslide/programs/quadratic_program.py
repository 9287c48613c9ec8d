"""Solve a quadratic program: presolve, interior point method, and polish of the active constraints."""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from gradslide._support.types import Array, Sparse
from gradslide.programs.direct import DirectKKT
from gradslide.programs.interior_point import ACCURATE, Outcome, QPResult, interior_point, size_of
from gradslide.programs.low_rank import LowRank
from gradslide.programs.presolve import Equilibrated, Reduced, indexed

# Along a ray, second derivatives of more than this share of those along the axes are no rounding.
_CURVED = 1e-9
# Residuals below this are rounding.
_EXACT = 1e-15


def minimize_qp(
    P: "Array | Sparse | LowRank",
    q: Array,
    K: "Array | Sparse",
    lower: Array,
    upper: Array,
    *,
    unit: float = 1.0,
) -> QPResult:
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
    unit : float
        In which x is a number that is not very large.

    Returns
    -------
    QPResult
    """
    found = _solved(P, q, K, lower, upper, unit)
    if found.outcome is not Outcome.UNBOUNDED or (far := _minimum_along(P, q, found.x)) is None:
        return found
    # In units in which the minimum is not as far away.
    again = _solved(P, q, K, lower, upper, far)
    return found.after(again) if again.outcome is Outcome.UNBOUNDED else again.after(found)


def _minimum_along(P: "Array | Sparse | LowRank", q: Array, ray: Array) -> float | None:
    """How far away the minimum along a ray is if P is definite there by more than rounding; None if it is not."""
    bend = float(ray @ (P @ ray))
    diagonal = (P.diagonal + P.factors**2 @ P.weights) if isinstance(P, LowRank) else P.diagonal()
    if not bend > _CURVED * float(np.abs(diagonal) @ ray**2):
        return None
    return max(1.0, -float(q @ ray) / bend * size_of(ray))


def _solved(
    P: "Array | Sparse | LowRank", q: Array, K: "Array | Sparse", lower: Array, upper: Array, unit: float
) -> QPResult:
    """Solve the program of x / unit, whose objective is that of x / unit, too."""
    own = P if unit == 1 else P.times(unit) if isinstance(P, LowRank) else unit * P
    reduced = Reduced.of(own, q, K, lower / unit, upper / unit)
    units = Equilibrated.of(reduced.P, reduced.q, reduced.K)
    units = units.with_cost(float(np.mean(units.sizes)) if len(units.sizes) else 0.0, size_of(units.q))
    system = DirectKKT(units.P, units.K)
    low, high = (each / units.of_constraints for each in (reduced.lower, reduced.upper))
    found = interior_point(system, units.q, low, high)
    if found.outcome in (Outcome.SOLVED, Outcome.INACCURATE):
        found = _polished(system, units.P, units.q, units.K, low, high, found)
    inner = units.columns * found.x, found.multipliers / (units.cost * units.of_constraints)
    x, multipliers = reduced.restored(*inner, found.outcome)
    x = x if found.outcome is Outcome.UNBOUNDED else unit * x
    return found._replace(x=x, multipliers=multipliers, products=system.products)


class _Conditions(NamedTuple):
    """How far a point misses the optimality conditions, relative to the size of their terms."""

    primal: float
    dual: float
    gap: float

    @classmethod
    def at(cls, system: DirectKKT, q: Array, lower: Array, upper: Array, x: Array, z: Array) -> "_Conditions":
        Px, v, pull = system.hessian(x), system.values(x), system.adjoint(z)
        violation = np.maximum(0.0, np.maximum(lower - v, v - upper))
        primal = size_of(violation) / (1 + size_of(v))
        ends = np.where(z > 0, upper, lower)
        # A multiplier of an end at infinity is an error of the gradient.
        wrong = np.where(np.isfinite(ends), 0.0, z)
        dual = max(size_of(Px + q + pull), size_of(wrong)) / (1 + max(size_of(Px), size_of(pull), size_of(q)))
        slack = np.where(np.isfinite(ends), np.abs(ends - v), 0.0)
        return cls(primal, dual, float(np.abs(z) @ slack) / (1 + abs(float(x @ Px / 2 + q @ x))))


def _polished(system: DirectKKT, P: Any, q: Array, K: Any, lower: Array, upper: Array, found: QPResult) -> QPResult:
    """Guess which constraints are active, and solve for them as equations; kept if no residual is larger.

    Points of the interior miss the active constraints by a little, and minimizers by the root of it.
    """
    n, k, z = len(q), K.shape[0], found.multipliers
    v = system.values(found.x)
    is_equation = lower == upper
    is_upper, is_lower = ~is_equation & (z > upper - v), ~is_equation & (-z > v - lower)
    if not np.any(is_upper | is_lower):
        # Nothing to guess. Without an objective, the point of the interior is better than any other.
        return found
    is_active, ends = is_upper | is_lower | is_equation, np.where(is_upper, upper, lower)
    rows, free, held = (
        np.flatnonzero(is_active[:k]),
        *(np.flatnonzero(each) for each in (~is_active[k:], is_active[k:])),
    )
    x, multipliers = np.zeros(n), np.zeros(k + n)
    x[held] = ends[k + held]
    inner = DirectKKT(
        P.within(free) if isinstance(P, LowRank) else indexed(P)[free][:, free], indexed(K)[rows][:, free]
    )
    try:
        inner.factor(np.concatenate([np.full(len(rows), math.inf), np.zeros(len(free))]), np.arange(k + n) < len(rows))
        x[free], multipliers[rows] = inner.refined(-q[free] - (P @ x)[free], ends[rows] - (K @ x)[rows])
    except (RuntimeError, linalg.LinAlgError):
        return found
    multipliers[k + held] = -(system.hessian(x) + q + system.adjoint(multipliers))[held]
    # Multipliers of the wrong sign are none: what is left of the gradient then counts.
    wrong = (multipliers > 0) & ~np.isfinite(upper) | (multipliers < 0) & ~np.isfinite(lower)
    before = _Conditions.at(system, q, lower, upper, found.x, z)
    multipliers[wrong] = 0.0
    after = _Conditions.at(system, q, lower, upper, x, multipliers)
    system.products += inner.products
    if not all(new <= max(old, _EXACT) for new, old in zip(after, before, strict=True)):
        return found
    outcome = Outcome.SOLVED if max(after) <= ACCURATE else found.outcome
    return found._replace(outcome=outcome, x=x, multipliers=multipliers, residual=min(found.residual, max(after)))
