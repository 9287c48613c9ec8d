"""Sets given by linear conditions: one inequality, or equations."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import at_least, dtype_of, to_numpy
from gradslide._support.errors import require
from gradslide._support.types import Array, Parameter
from gradslide.domains.euclidean import Euclidean, half_square, length
from gradslide.domains.parameters import Fit, checked, share


@dataclass(frozen=True, eq=False)
class Halfspace(Euclidean):
    """The half-space <a, x> <= b.

    Once bound, a has length 1.

    Parameters
    ----------
    a : array_like
        Normal direction, not zero: (d,) or (m, d).
    b : array_like
        A number or (m,).
    center : array_like
        Where nu is smallest: a number, (d,) or (m, d).
    penalty : None
        This set supports no penalty.
    """

    a: Array
    b: Parameter

    row_fields: ClassVar[tuple[str, ...]] = (*Euclidean.row_fields, "a", "b")

    def __post_init__(self) -> None:
        super().__post_init__()
        checked("b", self.b)
        nonzero = bool(np.all(np.any(np.atleast_1d(checked("a", self.a)), axis=-1)))
        require(nonzero, "a must not be zero", self.a, "give a normal direction, or use Free")

    def bind_fields(self, fit: Fit) -> dict[str, Any]:
        exact = Fit(fit.m, fit.d, np.float64)
        a, b = exact.vector("a", self.a), exact.number("b", self.b)
        size = length(a)
        return {**super().bind_fields(fit), "a": (a / size).astype(fit.dtype), "b": (b / size).astype(fit.dtype)}

    def project(self, x: Array) -> Array:
        nearest = self._moved(x)
        # In single precision a far point leaves an error that is visible: a second step, from close by, removes it.
        return self._moved(nearest) if dtype_of(x) == np.float32 else nearest

    def _moved(self, x: Array) -> Array:
        excess = array_namespace(x).vecdot(x, self.a)[:, None] - self.b
        return x - at_least(excess, 0) * self.a

    def minimize_linear(self, c: Array) -> Array:
        xp = array_namespace(c)
        along = xp.vecdot(c, self.a)[:, None]
        normal = is_rounding(c - along * self.a, c) & (along <= 0)
        return xp.where(normal, along * self.b, -np.inf)[:, 0]


@dataclass(frozen=True, eq=False)
class Affine(Euclidean):
    """The affine set A x = b.

    Redundant rows are allowed if they agree. Once bound, A has orthonormal rows (and zero rows in
    place of redundant ones) that describe the same set.

    Parameters
    ----------
    A : array_like
        Matrix of shape (p, d) or (m, p, d).
    b : array_like
        Right-hand side of shape (p,) or (m, p).
    center : array_like
        Where nu is smallest: a number, (d,) or (m, d).
    penalty : None
        This set supports no penalty.

    Raises
    ------
    InputError
        If A x = b has no solution.
    """

    A: Array
    b: Array

    row_fields: ClassVar[tuple[str, ...]] = (*Euclidean.row_fields, "A", "b")

    def __post_init__(self) -> None:
        super().__post_init__()
        A, b = checked("A", self.A), checked("b", self.b)
        fit = A.ndim in (2, 3) and A.size > 0 and b.ndim in (1, 2) and b.shape[-1] == A.shape[-2]
        shapes = f"{A.shape} and {b.shape}"
        require(fit, "A must be (p, d) or (m, p, d), and b (p,) or (m, p)", shapes, "give one b for each row of A")

    def kind(self) -> Hashable:
        return super().kind(), self.A.shape[1]

    def bind_fields(self, fit: Fit) -> dict[str, Any]:
        A, b = checked("A", self.A), np.atleast_2d(checked("b", self.b))
        A = A if A.ndim == 3 else A[None]
        agree = A.shape[2] == fit.d and {len(A), len(b)} <= {1, fit.m}
        shapes = f"{np.shape(self.A)} and {np.shape(self.b)}"
        rule = f"A and b must fit {fit.m} agents in {fit.d} dimensions"
        require(agree, rule, shapes, "give (p, d) and (p,), or stack them over the agents")
        rows, offsets = orthonormal_rows(share(A), share(b), np.finfo(fit.dtype).eps)
        return {**super().bind_fields(fit), "A": rows.astype(fit.dtype), "b": offsets.astype(fit.dtype)}

    @property
    def bounded(self) -> bool:
        # The squares of k orthonormal rows sum to k; X is a point where k = d.
        A = to_numpy(self.A)
        return bool(np.all(np.sum(A * A, axis=(1, 2)) > self.d - 0.5))

    def project(self, x: Array) -> Array:
        return x - self._pull(self._apply(x) - self.b)

    def minimize_linear(self, c: Array) -> Array:
        xp = array_namespace(c)
        coefficients = self._apply(c)
        normal = is_rounding(c - self._pull(coefficients), c)[:, 0]
        return xp.where(normal, xp.vecdot(coefficients, self.b), -np.inf)

    def distance_bound(self, x0: Array) -> Array:
        return half_square(self.project(x0) - x0) if self.bounded else super().distance_bound(x0)

    def _apply(self, x: Array) -> Array:
        xp = array_namespace(x)
        return xp.matmul(x, self.A[0].T) if len(self.A) == 1 else xp.matmul(self.A, x[:, :, None])[:, :, 0]

    def _pull(self, z: Array) -> Array:
        xp = array_namespace(z)
        return xp.matmul(z, self.A[0]) if len(self.A) == 1 else xp.matmul(z[:, None, :], self.A)[:, 0, :]


def orthonormal_rows(A: Array, b: Array, eps: float) -> tuple[Array, Array]:
    """Return Q and c such that Q x = c exactly where A x = b, for stacks of A."""
    U, singular, Q = np.linalg.svd(A, full_matrices=False)
    kept = singular > max(A.shape[1:]) * eps * singular[:, :1]
    coefficients = (b[:, None, :] @ U)[:, 0, :] * kept
    error = np.linalg.norm(b - (U @ coefficients[:, :, None])[:, :, 0], axis=1)
    consistent = error <= np.sqrt(eps) * np.linalg.norm(b, axis=1)
    worst = f"a distance of {error.max():.3g} between b and the range of A"
    require(bool(np.all(consistent)), "A x = b must have a solution", worst, "remove contradicting rows")
    return Q * kept[:, :, None], coefficients / np.where(kept, singular, 1)


def is_rounding(residual: Array, whole: Array) -> Array:
    """Return whether what is left of a vector is no more than rounding, shape (m, 1)."""
    eps = array_namespace(whole).finfo(whole.dtype).eps
    return length(residual) <= 10 * whole.shape[-1] * eps * length(whole)
