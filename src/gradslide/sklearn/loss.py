"""A loss, and a penalty, in the variables that the sites work in."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gradslide._support.types import Array
from gradslide.domains.penalties import L1, soft_threshold
from gradslide.losses.base import Loss


@dataclass(frozen=True)
class Recentring:
    """T: from what the sites work with, (m, d), to what stands at the columns of the rows.

    outputs: how often the columns are there. shift: times u, it is taken from what stands at the last column, so that
    sparse rows need not be centred; None: T = 1. is_free: whether u has an entry of its own for that column.
    """

    outputs: int
    shift: Array | None
    is_free: bool

    def turned(self, u: Array) -> Array:
        """T u."""
        if self.shift is None:
            return u
        m, width = len(u), len(self.shift)
        u = u.reshape(m, self.outputs, -1)
        missing = (u[..., :width] @ self.shift)[..., None]
        last = u[..., width:] - missing if self.is_free else -missing
        return np.concatenate([u[..., :width], last], axis=-1).reshape(m, -1)

    def returned(self, g: Array) -> Array:
        """T^t g."""
        if self.shift is None:
            return g
        m = len(g)
        g = g.reshape(m, self.outputs, -1)
        slopes, last = g[..., :-1] - g[..., -1:] * self.shift, g[..., -1:]
        return (np.concatenate([slopes, last], axis=-1) if self.is_free else slopes).reshape(m, -1)

    def norm(self, norm: int) -> float:
        """A bound on |T u|/|u|."""
        return 1.0 if self.shift is None else 1.0 + float(np.linalg.norm(self.shift, 2 if norm == 2 else np.inf))


class RidgedLoss(Loss):
    """ft_i(u) = base_i(T u) + 1/2 sum_j ridge_j u_j^2 + <slope_i, u>.

    ridge: (d,), the part of each agent. slope: (m, d), 0 by default.
    """

    def __init__(self, base: Loss, recentring: Recentring, ridge: Array, slope: Array | None = None) -> None:
        super().__init__(base.m, len(ridge), base.dtype)
        self._base, self._recentring, self._ridge = base, recentring, ridge
        self._slope = np.zeros((base.m, self.d)) if slope is None else slope

    @property
    def rows_per_agent(self) -> Array | None:
        return self._base.rows_per_agent

    def value(self, x: Array) -> Array:
        return self._base.value(self._turned(x)) + self._quadratic(x)

    def gradient(self, x: Array) -> Array:
        return self._with_ridge(self._base.gradient(self._turned(x)), x)

    def value_and_gradient(self, x: Array) -> tuple[Array, Array]:
        value, gradient = self._base.value_and_gradient(self._turned(x))
        return value + self._quadratic(x), self._with_ridge(gradient, x)

    def sample_gradient(self, x: Array, batch: int, streams: Sequence[np.random.Generator]) -> Array:
        return self._with_ridge(self._base.sample_gradient(self._turned(x), batch, streams), x)

    def _turned(self, x: Array) -> Array:
        return self._recentring.turned(self._checked(x))

    def _quadratic(self, x: Array) -> Array:
        return 0.5 * x**2 @ self._ridge + np.vecdot(self._slope, x)

    def _with_ridge(self, gradient: Array, x: Array) -> Array:
        return self._recentring.returned(gradient) + self._ridge * x + self._slope

    def compute_smoothness(self, norm: int) -> Array:
        return self._base.smoothness(norm) * self._recentring.norm(norm) ** 2 + np.max(self._ridge)

    def take_agents(self, agents: Array) -> "RidgedLoss":
        return RidgedLoss(self._base.take(agents), self._recentring, self._ridge, self._slope[agents])


@dataclass(frozen=True, eq=False)
class AnchoredL1(L1):
    """r(u) = sum_j weight_j (|anchor_j + u_j| - |anchor_j|): the l1 penalty, counted from an anchor, (d,)."""

    anchor: Array

    def value(self, x: Array) -> Array:
        moved = self.anchor + x
        # Without a change of sign there is nothing to be rounded off.
        change = np.where(moved * self.anchor > 0, np.sign(self.anchor) * x, np.abs(moved) - np.abs(self.anchor))
        return np.sum(self.weight * change, axis=-1)

    def shrink(self, v: Array, step: Array | float) -> Array:
        return soft_threshold(v + self.anchor, step * self.weight) - self.anchor
