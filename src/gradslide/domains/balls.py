"""Balls of the Euclidean and the l1 norm."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.errors import require
from gradslide._support.types import Array, Parameter
from gradslide.domains.euclidean import Euclidean, half_square, length
from gradslide.domains.parameters import Fit, check_nonnegative, checked
from gradslide.domains.penalties import L1, ElasticNet, GroupL1, Penalty
from gradslide.domains.simplex import project_on_simplex


@dataclass(frozen=True, eq=False)
class _Ball(Euclidean):
    """A ball of some norm around an origin."""

    radius: Parameter
    origin: Parameter = field(default=0.0, kw_only=True)

    row_fields: ClassVar[tuple[str, ...]] = (*Euclidean.row_fields, "radius", "origin")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_nonnegative("radius", self.radius)
        origin = checked("origin", self.origin)
        require(
            self.penalty is None or not np.any(origin),
            "a ball with a penalty must have its origin at 0",
            f"origin={self.origin}",
            "remove the penalty or the origin",
        )

    def bind_fields(self, fit: Fit) -> dict[str, Any]:
        radius, origin = fit.number("radius", self.radius), fit.vector("origin", self.origin)
        return {**super().bind_fields(fit), "radius": radius, "origin": origin}

    @property
    def bounded(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class L2Ball(_Ball):
    """The Euclidean ball, |x - origin|_2 <= radius.

    Parameters
    ----------
    radius : array_like
        A number or (m,), nonnegative.
    origin : array_like
        Center of the ball: a number, (d,) or (m, d); 0 with a penalty.
    penalty : L1, GroupL1 or ElasticNet, optional
        The penalty r.
    center : array_like
        Where nu is smallest: a number, (d,) or (m, d).

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> ball = gs.domains.L2Ball(1.0).bind(m=1, d=2, dtype=float)
    >>> ball.project(np.array([[3.0, 4.0]])).round(6).tolist()
    [[0.6, 0.8]]
    """

    penalties: ClassVar[tuple[type[Penalty], ...]] = (L1, GroupL1, ElasticNet)

    def project(self, x: Array) -> Array:
        xp = array_namespace(x)
        offset = x - self.origin
        distance = length(offset)
        outside = distance > self.radius
        factor = xp.where(outside, self.radius / xp.where(outside, distance, 1), 1)
        return self.origin + factor * offset

    def minimize_linear(self, c: Array) -> Array:
        xp = array_namespace(c)
        return xp.vecdot(c, self.origin) - (self.radius * length(self.beyond_penalty(c)))[:, 0]

    def distance_bound(self, x0: Array) -> Array:
        return half_square(length(x0 - self.origin) + self.radius)


@dataclass(frozen=True, eq=False)
class L1Ball(_Ball):
    """The l1 ball, |x - origin|_1 <= radius.

    Parameters
    ----------
    radius : array_like
        A number or (m,), nonnegative.
    origin : array_like
        Center of the ball: a number, (d,) or (m, d); 0 with a penalty.
    penalty : L1 or ElasticNet, optional
        The penalty r.
    center : array_like
        Where nu is smallest: a number, (d,) or (m, d).
    """

    penalties: ClassVar[tuple[type[Penalty], ...]] = (L1, ElasticNet)

    def project(self, x: Array) -> Array:
        xp = array_namespace(x)
        offset = x - self.origin
        size = xp.abs(offset)
        outside = xp.sum(size, axis=-1, keepdims=True) > self.radius
        on_sphere = xp.sign(offset) * project_on_simplex(size, self.radius)
        return self.origin + xp.where(outside, on_sphere, offset)

    def minimize_linear(self, c: Array) -> Array:
        xp = array_namespace(c)
        largest = xp.max(xp.abs(self.beyond_penalty(c)), axis=-1)
        return xp.vecdot(c, self.origin) - xp.squeeze(self.radius, axis=-1) * largest

    def distance_bound(self, x0: Array) -> Array:
        xp = array_namespace(x0)
        offset, radius = x0 - self.origin, xp.squeeze(self.radius, axis=-1)
        to_furthest_vertex = xp.max(xp.abs(offset), axis=-1) * radius
        return half_square(offset) + to_furthest_vertex + radius * radius / 2
