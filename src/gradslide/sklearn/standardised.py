"""Columns brought to one size with means and sizes that the sites agree on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from gradslide._support.types import Array
from gradslide.network import Counted, Network
from gradslide.results.costs import Costs

_EPS = float(np.finfo(np.float64).eps)


class AgreedSums:
    """Sums over the rows of all sites: each adds up its own, and the network adds these up, in control rounds that
    `costs` counts."""

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
class Columns:
    """What all sites know of the columns, and of the targets as one more.

    weight: the sum of the rows' weights. mean, target_mean: weighted; 0 where nothing is centred. squares,
    target_squares: weighted sums of squares around them.
    """

    weight: float
    mean: Array
    squares: Array
    target_mean: float
    target_squares: float

    @classmethod
    def agreed(cls, sums: AgreedSums, X: Any, targets: Array, weight: Array, centred: bool) -> "Columns":
        """From two agreements: d + 2 numbers for the means, and d + 1 for the squares."""
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
class Features:
    """Rows whose columns are centred and divided by `scale`. Sparse rows stay uncentred: what is missing is -shift u
    times their last column, which holds `ones`. has_ones: whether there is such a column."""

    rows: Any
    has_ones: bool
    shift: Array | None

    @classmethod
    def scaled(cls, X: Any, mean: Array, scale: Array, ones: float | None) -> "Features":
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
