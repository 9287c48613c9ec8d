"""Scaled variables: the sites agree on statistics of the columns and scale these; losses and
penalties to match.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from gradslide._support.types import Array
from gradslide.domains.penalties import L1, soft_threshold
from gradslide.losses.base import Loss
from gradslide.network import Counted, Network
from gradslide.results.costs import Costs

_EPS = float(np.finfo(np.float64).eps)


class AgreedSums:
    """Sums over the rows of all sites: each site sums its own rows, and the network sums the
    results in control rounds, which `costs` counts."""

    def __init__(self, network: Network, rows: Sequence[Array]) -> None:
        self.costs = Costs()
        self._network = Counted(network, self.costs)
        self._rows = rows

    def __call__(self, own: Callable[[Array], Sequence[Any]]) -> list[Array]:
        """own: from the row numbers of a site to its arrays; their sums over the sites."""
        parts = [[np.atleast_1d(np.asarray(each, dtype=np.float64)) for each in own(rows)] for rows in self._rows]
        ends = np.cumsum([len(each) for each in parts[0]])[:-1]
        return np.split(self._network.agree(np.stack([np.concatenate(part) for part in parts]), "sum"), ends)


@dataclass(frozen=True)
class ColumnStatistics:
    """Weighted statistics of the columns and of the targets, known to all sites.

    weight: the sum of the rows' weights. mean, target_mean: weighted; 0 where nothing is centred.
    squares, target_squares: weighted sums of squares around them.
    """

    weight: float
    mean: Array
    squares: Array
    target_mean: float
    target_squares: float

    @classmethod
    def agreed(cls, sums: AgreedSums, X: Any, targets: Array, weight: Array, centred: bool) -> "ColumnStatistics":
        """From two reductions: d + 2 numbers for the means, and d + 1 for the squares."""
        total, first, target_first = sums(
            lambda rows: (weight[rows].sum(), weight[rows] @ X[rows], weight[rows] @ targets[rows])
        )
        share = 1 / float(total[0]) if centred else 0.0
        mean, target_mean = share * first, share * float(target_first[0])
        squares, target_squares = sums(
            lambda rows: (_squares(X[rows], weight[rows], mean), weight[rows] @ (targets[rows] - target_mean) ** 2)
        )
        # A constant column has rounding errors of its mean for squares.
        noise = (4 * _EPS * mean) ** 2 * total
        squares = np.where(squares <= noise, 0.0, squares)
        return cls(float(total[0]), mean, squares, target_mean, float(target_squares[0]))


def _squares(X: Any, weight: Array, mean: Array) -> Array:
    if not sp.issparse(X):
        return weight @ (X - mean) ** 2
    return np.maximum(weight @ X.multiply(X) - 2 * mean * (weight @ X) + weight.sum() * mean**2, 0.0)


@dataclass(frozen=True)
class ScaledFeatures:
    """Rows with columns centred and divided by `scale`. Sparse rows stay uncentred: `Recentring`
    adds -shift u times their last column, which holds `ones`. has_ones: whether there is such a
    column."""

    rows: Any
    has_ones: bool
    shift: Array | None

    @classmethod
    def scaled(cls, X: Any, mean: Array, scale: Array, ones: float | None) -> "ScaledFeatures":
        """ones: the entries of a last column, if there is to be one."""
        is_sparse = sp.issparse(X)
        shift = mean / scale if is_sparse and np.any(mean) else None
        if shift is not None:
            ones = 1.0 if ones is None else ones
            shift = shift / ones
        rows = X.multiply(1 / scale) if is_sparse else (X - mean) / scale
        if ones is None:
            return cls(sp.csr_array(rows) if is_sparse else rows, False, shift)
        column = np.full((X.shape[0], 1), ones)
        rows = sp.csr_array(sp.hstack([rows, sp.csr_array(column)])) if is_sparse else np.hstack([rows, column])
        return cls(rows, True, shift)


@dataclass(frozen=True)
class Recentring:
    """The linear map T from the scaled variables u, (m, d), to the coefficients of the columns of
    the rows.

    It centres sparse rows without making them dense: shift times u is subtracted from the
    coefficient of the last column, which is constant. outputs: the number of copies of the columns.
    shift: None for T = 1. is_free: whether u has an entry of its own for the last column.
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
    """r(u) = sum_j weight_j (|anchor_j + u_j| - |anchor_j|): the l1 penalty, counted from an
    anchor, (d,).
    """

    anchor: Array

    def value(self, x: Array) -> Array:
        moved = self.anchor + x
        # Without a change of sign there is no rounding error.
        change = np.where(moved * self.anchor > 0, np.sign(self.anchor) * x, np.abs(moved) - np.abs(self.anchor))
        return np.sum(self.weight * change, axis=-1)

    def shrink(self, v: Array, step: Array | float) -> Array:
        return soft_threshold(v + self.anchor, step * self.weight) - self.anchor
