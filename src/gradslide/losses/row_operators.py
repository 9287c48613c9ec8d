"""The rows of all agents as one linear operator, in NumPy and SciPy and on devices.

On a device operators are asynchronous, and results do not depend on the order of its threads.
"""

from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace

from gradslide._support.types import Array, Tensor
from gradslide.losses.devices import Features, TorchRows, moved
from gradslide.losses.inputs import is_sparse

_PIECE = 64  # entries that one thread of the device adds up
_LARGEST_TILE = 64


class RowOperator(Protocol):
    """The linear map from x, (m, p, K), to the scores of all rows, (n, K)."""

    def apply(self, x: Array) -> Array:
        """Return a x_i for every row a of every agent i: (m, p, K) -> (n, K)."""
        ...

    def pull(self, r: Array) -> Array:
        """Apply the adjoint, the sum of r_row a over each agent's rows: (n, K) -> (m, p, K)."""
        ...

    def sums(self, values: Array) -> Array:
        """Return the sum over each agent's rows: (n,) -> (m,)."""
        ...


class DenseOperator:
    """Batched products, one for each run of consecutive agents with equally many rows."""

    def __init__(self, features: Array, sizes: Array) -> None:
        self._features, self._sizes = features, sizes
        first, ends = np.flatnonzero(np.diff(sizes, prepend=-1)), np.cumsum(sizes)
        # Which agents, which rows, and these as one block (k, rows, p).
        self._runs: list[tuple[slice, slice, Any]] = []
        for a, b in zip(first, [*first[1:], len(sizes)], strict=True):
            rows = slice(int(ends[a] - sizes[a]), int(ends[b - 1]))
            self._runs.append((slice(a, b), rows, features[rows].reshape(int(b - a), int(sizes[a]), -1)))

    def apply(self, x: Array) -> Array:
        K = x.shape[2]
        out = np.empty((len(self._features), K), dtype=np.result_type(x, self._features))
        for agents, rows, features in self._runs:
            np.matmul(features, x[agents], out=out[rows].reshape(*features.shape[:2], K))
        return out

    def pull(self, r: Array) -> Array:
        K = r.shape[1]
        out = np.empty((len(self._sizes), self._features.shape[1], K), dtype=np.result_type(r, self._features))
        for agents, rows, features in self._runs:
            np.matmul(features.swapaxes(1, 2), r[rows].reshape(*features.shape[:2], K), out=out[agents])
        return out

    def sums(self, values: Array) -> Array:
        sizes = self._sizes
        if (sizes == sizes[0]).all():
            return values.reshape(len(sizes), -1).sum(axis=1)
        return np.add.reduceat(values, np.cumsum(sizes) - sizes)


class SparseOperator(DenseOperator):
    """One block-diagonal CSR matrix (n, m p), whose column i p + j is feature j of agent i."""

    def __init__(self, features: Features, sizes: Array) -> None:
        self._sizes, self._p = sizes, features.shape[1]
        (n, p), m = features.shape, len(sizes)
        wide = max(m * p, features.nnz if is_sparse(features) else features.size) > np.iinfo(np.int32).max
        index_type: Any = np.int64 if wide else np.int32
        first_column = np.repeat(np.arange(m, dtype=index_type) * p, sizes)
        if is_sparse(features):
            data, indptr = features.data, features.indptr
            indices = features.indices + np.repeat(first_column, np.diff(indptr))
        else:
            data, indptr = features.reshape(-1), np.arange(n + 1, dtype=index_type) * p
            indices = (first_column[:, None] + np.arange(p, dtype=index_type)).reshape(-1)
        self._matrix = sp.csr_array((data, indices, indptr), shape=(n, m * p))
        self._adjoint = self._matrix.T  # a CSC view of the same data

    def apply(self, x: Array) -> Array:
        return self._matrix @ x.reshape(len(self._sizes) * self._p, -1)

    def pull(self, r: Array) -> Array:
        return (self._adjoint @ r).reshape(len(self._sizes), self._p, -1)


class DenseRuns(DenseOperator):
    """Batched products, one for each run of consecutive agents with equally many rows; for any array library."""

    def __init__(self, features: Tensor, sizes: Array) -> None:
        super().__init__(features, sizes)
        self._xp = array_namespace(features)

    def apply(self, x: Tensor) -> Tensor:
        return self._joined([self._xp.matmul(f, x[agents]).reshape(-1, x.shape[2]) for agents, _, f in self._runs])

    def pull(self, r: Tensor) -> Tensor:
        return self._joined(
            [self._xp.matmul(f.swapaxes(1, 2), r[own].reshape(*f.shape[:2], -1)) for _, own, f in self._runs]
        )

    def sums(self, values: Tensor) -> Tensor:
        return self._joined([self._xp.sum(values[own].reshape(f.shape[:2]), axis=1) for _, own, f in self._runs])

    def _joined(self, parts: list[Tensor]) -> Tensor:
        return parts[0] if len(parts) == 1 else self._xp.concat(parts)


class TorchSums:
    """Sums of consecutive rows, (count, K) -> (sums, K), in a fixed order; `ends` are their ends."""

    def __init__(self, ends: Tensor, count: int) -> None:
        xp = array_namespace(ends)
        # First in pieces, so that a long sum is not one thread's. How many there are does not depend on the ends.
        cuts = xp.concat([xp.arange(_PIECE, count, _PIECE, device=ends.device), ends]).sort().values
        zero = ends.new_zeros(1)
        self._pieces = xp.diff(cuts, prepend=zero)
        self._sums = xp.diff(xp.searchsorted(cuts, ends, right=True), prepend=zero)

    def __call__(self, values: Tensor) -> Tensor:
        reduce = array_namespace(values).segment_reduce
        pieces = reduce(values.contiguous(), "sum", lengths=self._pieces, unsafe=True, initial=0)
        return reduce(pieces, "sum", lengths=self._sums, unsafe=True, initial=0)


class TorchDense:
    """Dense rows of agents with many different numbers of rows, without a copy and without padding.

    The rows are cut into tiles of equal size. One agent owns a tile; the few rows in it that belong
    to other agents are processed one by one.
    """

    def __init__(self, features: Tensor, sizes: Array) -> None:
        self._features, self._m = features, len(sizes)
        (n, p), m = features.shape, len(sizes)
        size = max(1, min(_LARGEST_TILE, n // m // 8))
        count = n // size
        row_owners = np.repeat(np.arange(m), sizes)
        owners = row_owners[: count * size : size]
        own = np.append(np.repeat(owners, size), np.full(n - count * size, -1)) == row_owners
        single = np.flatnonzero(~own)
        all_owners = np.append(owners, row_owners[single])
        order = np.argsort(all_owners, kind="stable")
        ends = np.searchsorted(all_owners[order], np.arange(m), side="right")
        self._tiles = features[: count * size].reshape(count, size, p)
        self._owners, self._own, self._single, self._single_owners, self._order = (
            moved(array, features) for array in (owners, own[: count * size, None], single, row_owners[single], order)
        )
        self._added = TorchSums(moved(ends, features), len(order))
        self._row_sums = TorchSums(moved(np.cumsum(sizes), features), n)

    def apply(self, x: Tensor) -> Tensor:
        out = x.new_empty(len(self._features), x.shape[2])
        self._tiled(out)[...] = self._tiles @ x.index_select(0, self._owners)
        single = self._features.index_select(0, self._single)[:, None, :] @ x.index_select(0, self._single_owners)
        return out.index_copy_(0, self._single, single[:, 0, :])

    def pull(self, r: Tensor) -> Tensor:
        xp = array_namespace(r)
        parts = self._tiles.swapaxes(1, 2) @ self._tiled(xp.where(self._own, r[: len(self._own)], 0))
        rows = self._features.index_select(0, self._single)[:, :, None] * r.index_select(0, self._single)[:, None, :]
        together = xp.concat([parts, rows]).index_select(0, self._order)
        return self._added(together.reshape(len(together), -1)).reshape(self._m, *together.shape[1:])

    def sums(self, values: Tensor) -> Tensor:
        return self._row_sums(values[:, None])[:, 0]

    def _tiled(self, values: Tensor) -> Tensor:
        count, size, _ = self._tiles.shape
        return values[: count * size].reshape(count, size, -1)


class TorchSparse:
    """CSR rows, in their order for the scores, and sorted by agent and column for the adjoint."""

    def __init__(self, features: TorchRows, sizes: Array) -> None:
        (n, p), m = features.shape, len(sizes)
        data = self._data = features.data
        xp = array_namespace(data)
        self._m, self._p = m, p
        lengths, count = np.diff(features.indptr), int(features.indptr[-1])

        def repeated(values: Tensor, repeats: Tensor) -> Tensor:
            return moved(values, data).repeat_interleave(moved(repeats, data), output_size=count)

        first_columns = repeated(np.arange(m) * p, np.add.reduceat(lengths, np.cumsum(sizes) - sizes))
        self._columns = features.indices + first_columns
        order = xp.argsort(self._columns, stable=True)
        self._sorted, self._rows = data[order], repeated(np.arange(n), lengths)[order]
        numbers = xp.arange(m * p, device=data.device)
        ends = xp.searchsorted(self._columns[order], numbers, right=True)
        self._column_sums = TorchSums(ends, count)
        self._entry_sums = TorchSums(moved(features.indptr[1:].astype(np.int64), data), count)
        self._row_sums = TorchSums(moved(np.cumsum(sizes), data), n)

    def apply(self, x: Tensor) -> Tensor:
        flat = x.reshape(self._m * self._p, -1)
        return self._entry_sums(self._data[:, None] * flat.index_select(0, self._columns))

    def pull(self, r: Tensor) -> Tensor:
        return self._column_sums(self._sorted[:, None] * r.index_select(0, self._rows)).reshape(self._m, self._p, -1)

    def sums(self, values: Tensor) -> Tensor:
        return self._row_sums(values[:, None])[:, 0]
