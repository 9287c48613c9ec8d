"""Sets given by several linear inequalities and equations."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import as_dtype, doubles, dtype_of, like, to_numpy
from gradslide._support.errors import InputError, require
from gradslide._support.types import Array, Parameter
from gradslide.domains.euclidean import Euclidean, half_square
from gradslide.domains.parameters import Fit, checked, share
from gradslide.programs.interior_point import Outcome, QPResult
from gradslide.programs.quadratic_program import minimize_qp

# A point inside of all constraints up to this share of their size is its own projection.
_ROUNDING = 3e-13
# Projections of projections, each of which removes what the one before left of violations.
_PROJECTIONS = 3
# What the minimum of a linear function may be wrong by, in residuals of the linear program.
_ERRORS = 10.0


@dataclass(frozen=True, eq=False)
class Polyhedron(Euclidean):
    """The set lower <= A x <= upper with lo <= x <= hi.

    Each projection solves a quadratic program, by an interior point method: some milliseconds. So it
    suits methods that take few steps (`Newton`, `LBFGS`, agents with a coupling) and few agents.

    Parameters
    ----------
    A : array_like
        Matrix of shape (p, d) or (m, p, d).
    lower, upper : array_like
        Bounds on A x: a number, (p,) or (m, p). Equal entries are equations; infinite ones none.
    lo, hi : array_like
        Bounds on x: a number, (d,) or (m, d).
    center : array_like
        Where nu is smallest: a number, (d,) or (m, d).
    penalty : None
        This set supports no penalty.

    Raises
    ------
    InputError
        If no point fulfils all constraints.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> triangle = gs.domains.Polyhedron([[1.0, 1.0]], upper=1.0, lo=0.0).bind(m=1, d=2, dtype=float)
    >>> triangle.project(np.array([[1.0, 1.0]])).round(6).tolist()
    [[0.5, 0.5]]
    """

    A: Array
    lower: Parameter = -np.inf
    upper: Parameter = np.inf
    lo: Parameter = -np.inf
    hi: Parameter = np.inf

    row_fields: ClassVar[tuple[str, ...]] = (*Euclidean.row_fields, "A", "lower", "upper", "lo", "hi")

    def __post_init__(self) -> None:
        super().__post_init__()
        A = checked("A", self.A)
        require(A.ndim in (2, 3) and A.size > 0, "A must be (p, d) or (m, p, d)", f"shape {A.shape}", "check it")
        for low, high in (("lower", "upper"), ("lo", "hi")):
            least, most = (checked(name, getattr(self, name), infinite=True) for name in (low, high))
            try:
                ordered = bool(np.all(least <= most) and np.all(least < np.inf) and np.all(most > -np.inf))
            except ValueError:
                shapes = f"{least.shape} and {most.shape}"
                raise InputError(f"{low} and {high} must fit together", shapes, "give equal shapes") from None
            got = f"{low}={getattr(self, low)}, {high}={getattr(self, high)}"
            require(ordered, f"{low} <= {high}, {low} < inf and {high} > -inf must hold", got, "swap or correct them")

    def kind(self) -> Hashable:
        return super().kind(), self.A.shape[1]

    def bind_fields(self, fit: Fit) -> dict[str, Any]:
        A = checked("A", self.A)
        A = A if A.ndim == 3 else A[None]
        rule = f"A must fit {fit.m} agents in {fit.d} dimensions"
        require(A.shape[2] == fit.d and len(A) in (1, fit.m), rule, np.shape(self.A), "give (p, d) or (m, p, d)")
        exact, rows = Fit(fit.m, fit.d, np.float64), Fit(fit.m, A.shape[1], np.float64)
        fields: dict[str, Array] = {
            "A": share(A),
            "lower": rows.vector("lower", self.lower),
            "upper": rows.vector("upper", self.upper),
            "lo": exact.vector("lo", self.lo),
            "hi": exact.vector("hi", self.hi),
        }
        found = self.replaced(m=fit.m, d=fit.d, **fields)
        for i in range(max(len(each) for each in fields.values())):
            outcome = found.solve_program(i, np.ones(fit.d), np.zeros(fit.d)).outcome
            got = f"constraints that contradict each other{f', of agent {i}' if fit.m > 1 else ''}"
            remedy = "relax lower, upper, lo or hi"
            require(outcome is not Outcome.INFEASIBLE, "the set must contain a point", got, remedy)
        return {**super().bind_fields(fit), **fields}

    def of_agent(self, i: int) -> tuple[Array, Array, Array]:
        """Return the constraints of one agent.

        Parameters
        ----------
        i : int
            The agent.

        Returns
        -------
        A : ndarray, shape (p, d)
        lower, upper : ndarray, shape (p + d,)
            Bounds on A x, then on x.
        """
        fields = (to_numpy(each) for each in (self.A, self.lower, self.lo, self.upper, self.hi))
        A, *ends = (each[min(i, len(each) - 1)] for each in fields)
        return A, np.concatenate(ends[:2]), np.concatenate(ends[2:])

    def solve_program(self, i: int, curvature: Array, slope: Array) -> QPResult:
        """Minimize x' diag(curvature) x / 2 + slope' x over the set of one agent.

        Parameters
        ----------
        i : int
            The agent.
        curvature, slope : ndarray, shape (d,)
            The function.

        Returns
        -------
        QPResult
        """
        return minimize_qp(np.diag(curvature), slope, *self.of_agent(i))

    def multipliers(self, x: Array, slope: Array) -> Array:
        """Return the multipliers of the constraints at minimizers of functions with these gradients.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            The minimizers over the sets.
        slope : ndarray, shape (m, d)
            Gradients of the functions there; with a coupling, A_i^T z added.

        Returns
        -------
        ndarray, shape (m, p + d)
            Multipliers y with slope + A^T y_A + y_x = 0, of the rows of A, then of the bounds on x:
            positive at upper ends, negative at lower ones.
        """
        found = []
        for i, (point, gradient) in enumerate(zip(to_numpy(x), to_numpy(slope), strict=True)):
            A, lower, upper = self.of_agent(i)
            values = np.concatenate([A @ point, point])
            found.append(minimize_qp(np.eye(len(point)), gradient, A, lower - values, upper - values).multipliers)
        return np.stack(found)

    @property
    def bounded(self) -> bool:
        """Whether lo and hi are finite: what A contributes is not looked at."""
        return all(bool(np.all(np.isfinite(to_numpy(side)))) for side in (self.lo, self.hi))

    def project(self, x: Array) -> Array:
        points = np.array(to_numpy(x), dtype=np.float64)
        for i, point in enumerate(points):
            points[i] = _nearest(point, *self.of_agent(i))
        return as_dtype(like(points, x), dtype_of(x))

    def minimize_linear(self, c: Array) -> Array:
        # Bounds are in double precision, whatever x is.
        least = np.empty(len(c))
        for i, slope in enumerate(np.asarray(to_numpy(c), dtype=np.float64)):
            found = self.solve_program(i, np.zeros(len(slope)), slope)
            value = float(slope @ found.x)
            least[i] = -np.inf if found.outcome is Outcome.UNBOUNDED else value - _ERRORS * found.residual * abs(value)
        return like(least, doubles(c[:, 0]))

    def distance_bound(self, x0: Array) -> Array:
        if not self.bounded:
            return super().distance_bound(x0)
        xp = array_namespace(x0)
        return half_square(xp.maximum(xp.abs(x0 - like(self.lo, x0)), xp.abs(like(self.hi, x0) - x0)))


def _nearest(point: Array, A: Array, lower: Array, upper: Array) -> Array:
    """The nearest point with lower <= [A x, x] <= upper."""
    for _ in range(_PROJECTIONS):
        values = np.concatenate([A @ point, point])
        excess = np.maximum(lower - values, values - upper)
        if not np.any(excess > _ROUNDING * (1 + np.abs(values))):
            break
        # In units of the violation, so that what the solver leaves of it is much smaller.
        unit, zeros = float(np.max(excess)), np.zeros(len(point))
        step = minimize_qp(np.eye(len(point)), zeros, A, (lower - values) / unit, (upper - values) / unit).x
        point = np.clip(point + unit * step, lower[len(A) :], upper[len(A) :])
    return point
