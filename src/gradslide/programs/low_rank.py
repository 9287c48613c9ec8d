"""A diagonal matrix and one of low rank, as L-BFGS has them."""

from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from gradslide._support.types import Array

# Eigenvalues, scaled to a diagonal of ones, below this are rounding.
_SINGULAR = 1e-13


@dataclass(frozen=True)
class LowRank:
    """The positive definite matrix diag(diagonal) + factors diag(weights) factors^T.

    Attributes
    ----------
    diagonal : ndarray, shape (d,)
        Positive.
    factors : ndarray, shape (d, k)
        Columns.
    weights : ndarray, shape (k,)
        Of any sign.
    """

    diagonal: Array
    factors: Array
    weights: Array

    def __matmul__(self, v: Array) -> Array:
        """Return the product with a vector (d,), or with each column of an array (d, p)."""
        return cast(Array, (self.diagonal * v.T).T + self.factors @ (self.weights * (self.factors.T @ v).T).T)

    def times(self, factor: float) -> "LowRank":
        """Return the product with a number."""
        return replace(self, diagonal=factor * self.diagonal, weights=factor * self.weights)

    def plus(self, diagonal: Array | float) -> "LowRank":
        """Return the sum with a diagonal matrix."""
        return replace(self, diagonal=self.diagonal + diagonal)

    def within(self, chosen: Array) -> "LowRank":
        """Return the rows and columns of the coordinates that a mask chooses."""
        return LowRank(self.diagonal[chosen], self.factors[chosen], self.weights)

    def spectrum(self) -> tuple[Array, Array, Array]:
        """Return root, values and vectors: the matrix is R (I + V diag(values - 1) V^T) R with R = diag(root)."""
        root = np.sqrt(self.diagonal)
        q, t = np.linalg.qr(self.factors / root[:, None])
        values, vectors = np.linalg.eigh((t * self.weights) @ t.T)
        return root, np.maximum(1 + values, _SINGULAR), q @ vectors

    def dense(self) -> Array:
        """Return all entries."""
        return np.diag(self.diagonal) + (self.factors * self.weights) @ self.factors.T

    def solve(self, rows: Array) -> Array:
        """Return the inverse times a vector (d,), or times each column of an array (d, p)."""
        root, values, vectors = self.spectrum()
        scaled = (rows.T / root).T
        along = vectors.T @ scaled
        return cast(Array, ((scaled + vectors @ ((along.T * (1 / values - 1)).T)).T / root).T)
