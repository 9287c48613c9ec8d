"""Bounds on each coordinate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import doubles, to_numpy
from gradslide._support.errors import InputError, require
from gradslide._support.types import Array, Parameter
from gradslide.domains.euclidean import Euclidean
from gradslide.domains.parameters import Fit, checked
from gradslide.domains.penalties import L1, ElasticNet, Penalty


@dataclass(frozen=True, eq=False)
class Box(Euclidean):
    """Bounds on each coordinate: lo <= x <= hi.

    Parameters
    ----------
    lo, hi : array_like
        Bounds: a number, (d,) or (m, d); -inf and inf, the defaults, for no bound.
    penalty : L1 or ElasticNet, optional
        The penalty r.
    center : array_like
        Where nu is smallest: a number, (d,) or (m, d).

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> box = gs.domains.Box(-1.0, [1.0, 2.0]).bind(m=1, d=2, dtype=float)
    >>> box.project(np.array([[5.0, 5.0]])).tolist()
    [[1.0, 2.0]]
    """

    lo: Parameter = -np.inf
    hi: Parameter = np.inf

    row_fields: ClassVar[tuple[str, ...]] = (*Euclidean.row_fields, "lo", "hi")
    separable: ClassVar[bool] = True
    penalties: ClassVar[tuple[type[Penalty], ...]] = (L1, ElasticNet)

    def __post_init__(self) -> None:
        super().__post_init__()
        lo, hi = checked("lo", self.lo, infinite=True), checked("hi", self.hi, infinite=True)
        try:
            ordered = bool(np.all(lo <= hi))
        except ValueError:
            raise InputError("lo and hi must fit together", f"{lo.shape} and {hi.shape}", "give equal shapes") from None
        require(ordered, "lo must not exceed hi", f"lo={self.lo}, hi={self.hi}", "swap or correct them")
        inhabited = bool(np.all(lo < np.inf) and np.all(hi > -np.inf))
        require(inhabited, "lo < inf and hi > -inf must hold", f"lo={self.lo}, hi={self.hi}", "correct the bounds")

    def bind_fields(self, fit: Fit) -> dict[str, Any]:
        return {**super().bind_fields(fit), "lo": fit.vector("lo", self.lo), "hi": fit.vector("hi", self.hi)}

    @property
    def bounded(self) -> bool:
        return all(bool(np.all(np.isfinite(to_numpy(side)))) for side in (self.lo, self.hi))

    def project(self, x: Array) -> Array:
        xp = array_namespace(x)
        return xp.minimum(xp.maximum(x, self.lo), self.hi)

    def minimize_linear(self, c: Array) -> Array:
        xp = array_namespace(c)
        slope = self.beyond_penalty(c)
        nearest_zero = self.project(xp.zeros_like(c))
        x = xp.where(slope > 0, self.lo, xp.where(slope < 0, self.hi, nearest_zero))
        endless = xp.isinf(x)
        x = xp.where(endless, nearest_zero, x)
        return xp.where(xp.any(endless, axis=-1), -np.inf, xp.vecdot(doubles(c), doubles(x)) + self.r(x))

    def distance_bound(self, x0: Array) -> Array:
        xp = array_namespace(x0)
        furthest = xp.maximum(xp.abs(x0 - self.lo), xp.abs(self.hi - x0))
        return self.V(xp.zeros_like(x0), furthest)


@dataclass(frozen=True, eq=False)
class NonNegative(Box):
    """The nonnegative orthant, x >= 0.

    Parameters
    ----------
    penalty : L1 or ElasticNet, optional
        The penalty r.
    center : array_like
        Where nu is smallest: a number, (d,) or (m, d).
    """

    lo: Parameter = field(init=False, repr=False, default=0.0)
    hi: Parameter = field(init=False, repr=False, default=np.inf)
