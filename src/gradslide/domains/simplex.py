"""The simplex with the Euclidean distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace, device

from gradslide._support.arrays import at_least
from gradslide._support.errors import require
from gradslide._support.types import Array, Parameter
from gradslide.domains.euclidean import Euclidean, half_square
from gradslide.domains.parameters import Fit, checked


@dataclass(frozen=True, eq=False)
class Simplex(Euclidean):
    """The simplex x >= 0, sum_j x_j = total, with Euclidean distances.

    `EntropySimplex` has Kullback-Leibler distances instead, which suit high dimensions.

    Parameters
    ----------
    total : array_like
        A positive number or (m,); 1 by default.
    center : array_like
        Where nu is smallest: a number, (d,) or (m, d).
    penalty : None
        This set supports no penalty.
    """

    total: Parameter = 1.0

    row_fields: ClassVar[tuple[str, ...]] = (*Euclidean.row_fields, "total")

    def __post_init__(self) -> None:
        super().__post_init__()
        positive = bool(np.all(checked("total", self.total) > 0))
        require(positive, "total must be positive", self.total, "use a number above 0")

    def bind_fields(self, fit: Fit) -> dict[str, Any]:
        return {**super().bind_fields(fit), "total": fit.number("total", self.total)}

    @property
    def bounded(self) -> bool:
        return True

    def project(self, x: Array) -> Array:
        return project_on_simplex(x, self.total)

    def minimize_linear(self, c: Array) -> Array:
        xp = array_namespace(c)
        return xp.squeeze(self.total, axis=-1) * xp.min(c, axis=-1)

    def distance_bound(self, x0: Array) -> Array:
        xp = array_namespace(x0)
        total = xp.squeeze(self.total, axis=-1)
        furthest_vertex = total * total / 2 - total * xp.min(x0, axis=-1)
        return half_square(x0) + furthest_vertex


def project_on_simplex(v: Array, total: Array | float) -> Array:
    """Project each row of v on {x >= 0, sum x = total} by sorting; total >= 0, (m, 1) or (1, 1)."""
    xp = array_namespace(v)
    # A constant added to a row does not move its projection; with the largest entry at 0 no digits are lost.
    v = v - xp.max(v, axis=-1, keepdims=True)
    descending = -xp.sort(-v, axis=-1)
    count = xp.arange(1, v.shape[-1] + 1, dtype=v.dtype, device=device(v))
    thresholds = (xp.cumulative_sum(descending, axis=-1) - total) / count
    positive = xp.sum(xp.astype(descending > thresholds, xp.int64), axis=-1, keepdims=True)
    # For total = 0 no entry exceeds its threshold: the first threshold, the largest entry, is right.
    threshold = xp.take_along_axis(thresholds, at_least(positive - 1, 0), axis=-1)
    return at_least(v - threshold, 0)
