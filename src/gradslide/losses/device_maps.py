"""The same maps for arrays on a device: nothing waits for it, and nothing depends on the order of its threads."""

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.types import Tensor
from gradslide.losses.devices import TorchRows, moved
from gradslide.losses.maps import Rows, runs_of

_PIECE = 64  # entries that one thread of the device adds up
_LARGEST_TILE = 64


class DeviceRuns:
    """Batched products, one for each run of consecutive agents with equally many rows; for any array library."""

    def __init__(self, rows: Rows) -> None:
        self._runs = [(agents, own, rows.features[own].reshape(shape)) for agents, own, shape in runs_of(rows)]
        self._xp = array_namespace(rows.features)

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
    """Sums of consecutive rows, (count, K) -> (sums, K), in an order that is always the same. ends: where each ends."""

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
    """Dense rows of agents with many different numbers of them, without a copy and without padding.

    The rows are cut into tiles of equal size. One agent owns a tile; the few rows in it that are not its own are
    done one by one.
    """

    def __init__(self, rows: Rows) -> None:
        features = self._features = rows.features
        self._m = rows.m
        size = max(1, min(_LARGEST_TILE, rows.n // rows.m // 8))
        count = rows.n // size
        row_owners = np.repeat(np.arange(rows.m), rows.sizes)
        owners = row_owners[: count * size : size]
        own = np.append(np.repeat(owners, size), np.full(rows.n - count * size, -1)) == row_owners
        single = np.flatnonzero(~own)
        all_owners = np.append(owners, row_owners[single])
        order = np.argsort(all_owners, kind="stable")
        ends = np.searchsorted(all_owners[order], np.arange(rows.m), side="right")
        self._tiles = features[: count * size].reshape(count, size, rows.p)
        self._owners, self._own, self._single, self._single_owners, self._order = (
            moved(array, features) for array in (owners, own[: count * size, None], single, row_owners[single], order)
        )
        self._added = TorchSums(moved(ends, features), len(order))
        self._row_sums = TorchSums(moved(rows.ends, features), rows.n)

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

    def __init__(self, rows: Rows) -> None:
        features: TorchRows = rows.features
        data = self._data = features.data
        xp = array_namespace(data)
        self._m, self._p = rows.m, rows.p
        lengths, count = np.diff(features.indptr), int(features.indptr[-1])

        def repeated(values: Tensor, repeats: Tensor) -> Tensor:
            return moved(values, data).repeat_interleave(moved(repeats, data), output_size=count)

        first_columns = repeated(np.arange(rows.m) * rows.p, np.add.reduceat(lengths, rows.starts))
        self._columns = features.indices + first_columns
        order = xp.argsort(self._columns, stable=True)
        self._sorted, self._rows = data[order], repeated(np.arange(rows.n), lengths)[order]
        numbers = xp.arange(rows.m * rows.p, device=data.device)
        ends = xp.searchsorted(self._columns[order], numbers, right=True)
        self._column_sums = TorchSums(ends, count)
        self._entry_sums = TorchSums(moved(features.indptr[1:].astype(np.int64), data), count)
        self._row_sums = TorchSums(moved(rows.ends, data), rows.n)

    def apply(self, x: Tensor) -> Tensor:
        flat = x.reshape(self._m * self._p, -1)
        return self._entry_sums(self._data[:, None] * flat.index_select(0, self._columns))

    def pull(self, r: Tensor) -> Tensor:
        return self._column_sums(self._sorted[:, None] * r.index_select(0, self._rows)).reshape(self._m, self._p, -1)

    def sums(self, values: Tensor) -> Tensor:
        return self._row_sums(values[:, None])[:, 0]
