"""A Euclidean ball for each group of coordinates: the dual ball of the group l1 norm."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from array_api_compat import array_namespace

from gradslide._support.types import Array
from gradslide.domains.euclidean import Euclidean, half_square
from gradslide.domains.parameters import Fit
from gradslide.domains.penalties import GroupL1


@dataclass(frozen=True, eq=False)
class GroupBall(Euclidean):
    """A Euclidean ball for each group, |x_g|_2 <= radius_g; coordinates in no group are 0.

    Parameters
    ----------
    radius : array_like
        A number, or one per group.
    groups : sequence
        Index arrays, or one integer label per coordinate, as for `GroupL1`.
    center : array_like
        Where nu is smallest: a number, (d,) or (m, d).
    penalty : None
        This set supports no penalty.
    """

    radius: Array
    groups: Any
    _norm: GroupL1 = field(init=False, repr=False, default=None)  # type: ignore[assignment]

    row_fields: ClassVar[tuple[str, ...]] = (*Euclidean.row_fields, "_norm")
    rebound_fields: ClassVar[tuple[str, ...]] = ("radius", "groups")

    def __post_init__(self) -> None:
        super().__post_init__()
        GroupL1(self.radius, self.groups)

    def bind_fields(self, fit: Fit) -> dict[str, Any]:
        # Bound before, it keeps the radii of its agents.
        norm = self._norm.to(None) if self._norm else GroupL1(self.radius, self.groups).bind(fit)
        return {**super().bind_fields(fit), "_norm": norm}

    def kind(self) -> Hashable:
        return super().kind(), self._norm.kind()

    @property
    def bounded(self) -> bool:
        return True

    def project(self, x: Array) -> Array:
        xp = array_namespace(x)
        norms = self._norm.norms(x)
        outside = norms > self._norm.weight
        factor = xp.where(outside, self._norm.weight / xp.where(outside, norms, 1), 1)
        return x * factor[:, self._norm.groups]

    def minimize_linear(self, c: Array) -> Array:
        return -self._norm.value(c)

    def distance_bound(self, x0: Array) -> Array:
        return half_square(self._norm.norms(x0) + self._norm.weight)
