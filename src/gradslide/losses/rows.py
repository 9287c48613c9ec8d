"""The rows of all agents, stacked: one linear map and its adjoint, without a loop over agents."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from gradslide._types import Array
from gradslide.errors import InputError
from gradslide.losses.inputs import is_sparse
from gradslide.losses.partition import as_slice
from gradslide.losses.spectral import DENSE_LIMIT, chunks, gram_norm, gram_norms

_MOST_DENSE_RUNS = 8


class RowBlocks:
    """Features (n, p), dense or CSR, whose rows are sorted by agent; agent i holds sizes[i] of them."""

    def __init__(self, features: Array, sizes: Array) -> None:
        self.features = features
        self.sizes = sizes
        self.ends = np.cumsum(sizes)
        self.starts = self.ends - sizes
        self.m = len(sizes)
        self.n, self.p = features.shape
        run_starts = np.flatnonzero(np.diff(sizes, prepend=-1))
        dense = not is_sparse(features) and len(run_starts) <= _MOST_DENSE_RUNS
        self._map: _DenseMap | _SparseMap = _DenseMap(self, run_starts) if dense else _SparseMap(self)

    def apply(self, x: Array) -> Array:
        """Row a of agent i to a x_i: (m, p, K) -> (n, K)."""
        return self._map.apply(x)

    def pull(self, r: Array) -> Array:
        """The adjoint, sums of r_row a over each agent's rows: (n, K) -> (m, p, K)."""
        return self._map.pull(r)

    def sums(self, values: Array) -> Array:
        """Sum over each agent's rows: (n,) -> (m,)."""
        if self.n == self.m * self.sizes[0] and (self.sizes == self.sizes[0]).all():
            return values.reshape(self.m, -1).sum(axis=1)
        return np.add.reduceat(values, self.starts)

    def feature_major(self, factors: Array) -> Array:
        """Dense rows times their factors, (n,), each agent's as one (p, n_i) block; these one after the other, flat."""
        out = np.empty(self.n * self.p, dtype=self.features.dtype)
        for first, end in zip(self.starts, self.ends, strict=True):
            block = out[first * self.p : end * self.p].reshape(self.p, -1)
            np.multiply(self.features[first:end].T, factors[first:end], out=block)
        return out

    def row_numbers(self, rows: Sequence[Array]) -> tuple[slice | Array, Array]:
        """Rows numbered within each agent as numbers of stacked rows, and how many each agent has."""
        numbers = [np.asarray(own) for own in rows]
        if len(numbers) != self.m or not all(own.ndim == 1 and own.size and own.dtype.kind in "iu" for own in numbers):
            raise InputError(
                f"rows must be one or more integers for each agent, {self.m} in all",
                f"{len(numbers)} of them, {'; '.join(f'{own.dtype} {own.shape}' for own in numbers[:3])}",
                "give every agent's row numbers",
            )
        sizes = np.array([len(own) for own in numbers])
        flat = np.concatenate(numbers)
        if (flat < 0).any() or (flat >= np.repeat(self.sizes, sizes)).any():
            raise InputError(
                "rows must lie in 0..n_i - 1 for each agent i",
                f"entries from {flat.min()} to {flat.max()}",
                "see rows_per_agent",
            )
        return as_slice(flat + np.repeat(self.starts, sizes)), sizes

    def rows_of(self, agents: Array) -> slice | Array:
        """Numbers of the stacked rows of these agents, in their order."""
        return as_slice(np.concatenate([np.arange(self.starts[i], self.ends[i]) for i in agents]))

    def column_norms(self, weights: Array) -> Array:
        """max_j sum_row w_row a_row,j^2 per agent, the largest entry of its weighted Gram matrix; (m,)."""
        features = self.features.astype(np.float64)  # a copy: squaring works in place, or merges duplicates
        squares = features.power(2) if is_sparse(features) else np.square(features, out=features)
        return RowBlocks(squares, self.sizes).pull(weights[:, None])[:, :, 0].max(axis=1)

    def spectral_norms(self, weights: Array) -> Array:
        """Largest eigenvalue of each agent's sum_row w_row a_row^T a_row, shape (m,)."""
        norms = np.empty(self.m)
        root = np.sqrt(weights)
        for size in np.unique(self.sizes):
            agents = np.flatnonzero(self.sizes == size)
            if is_sparse(self.features) or min(size, self.p) > DENSE_LIMIT:
                for i in agents:
                    norms[i] = gram_norm(self._scaled(slice(self.starts[i], self.ends[i]), root))
            else:
                for chunk in chunks(len(agents), size * self.p):
                    rows = self.starts[agents[chunk], None] + np.arange(size)
                    norms[agents[chunk]] = gram_norms(self.features[rows] * root[rows][:, :, None])
        return norms

    def _scaled(self, rows: slice, factors: Array) -> Array:
        if is_sparse(self.features):
            return sp.csr_array(sp.diags_array(factors[rows]) @ self.features[rows])
        return self.features[rows] * factors[rows, None]


class _DenseMap:
    """Batched products, one for each run of consecutive agents with equally many rows."""

    def __init__(self, blocks: RowBlocks, run_starts: Array) -> None:
        self._blocks = blocks
        self._runs: list[tuple[slice, slice, Array]] = []
        for first, last in zip(run_starts, [*run_starts[1:], blocks.m], strict=True):
            agents, rows = slice(first, last), slice(blocks.starts[first], blocks.ends[last - 1])
            shape = (last - first, blocks.sizes[first], blocks.p)
            self._runs.append((agents, rows, blocks.features[rows].reshape(shape)))

    def apply(self, x: Array) -> Array:
        K = x.shape[2]
        out = np.empty((self._blocks.n, K), dtype=np.result_type(x, self._blocks.features))
        for agents, rows, features in self._runs:
            np.matmul(features, x[agents], out=out[rows].reshape(*features.shape[:2], K))
        return out

    def pull(self, r: Array) -> Array:
        K = r.shape[1]
        out = np.empty((self._blocks.m, self._blocks.p, K), dtype=np.result_type(r, self._blocks.features))
        for agents, rows, features in self._runs:
            np.matmul(features.swapaxes(1, 2), r[rows].reshape(*features.shape[:2], K), out=out[agents])
        return out


class _SparseMap:
    """One block-diagonal CSR matrix (n, m p), whose column i p + j is feature j of agent i."""

    def __init__(self, blocks: RowBlocks) -> None:
        self._m, self._p = blocks.m, blocks.p
        features, columns = blocks.features, blocks.m * blocks.p
        wide = max(columns, features.nnz if is_sparse(features) else features.size) > np.iinfo(np.int32).max
        index_type: Any = np.int64 if wide else np.int32
        first_column = np.repeat(np.arange(blocks.m, dtype=index_type) * blocks.p, blocks.sizes)
        if is_sparse(features):
            data, indptr = features.data, features.indptr
            indices = features.indices + np.repeat(first_column, np.diff(indptr))
        else:
            data, indptr = features.reshape(-1), np.arange(blocks.n + 1, dtype=index_type) * blocks.p
            indices = (first_column[:, None] + np.arange(blocks.p, dtype=index_type)).reshape(-1)
        self._matrix = sp.csr_array((data, indices, indptr), shape=(blocks.n, columns))
        self._adjoint = self._matrix.T  # a CSC view of the same data

    def apply(self, x: Array) -> Array:
        return self._matrix @ x.reshape(self._m * self._p, -1)

    def pull(self, r: Array) -> Array:
        return (self._adjoint @ r).reshape(self._m, self._p, -1)
