"""The rows of all agents as one linear map and its adjoint, in NumPy: without a loop over agents."""

from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from gradslide._support.types import Array
from gradslide.losses.devices import Features
from gradslide.losses.inputs import is_sparse


class Rows(Protocol):
    """Features (n, p) whose rows are sorted by agent: agent i holds sizes[i] of them, from starts[i] to ends[i]."""

    features: Features
    sizes: Array
    starts: Array
    ends: Array
    m: int
    n: int
    p: int


class Map(Protocol):
    """x, (m, p, K), to the scores (n, K) of all rows, and back."""

    def apply(self, x: Array) -> Array:
        """Row a of agent i to a x_i."""
        ...

    def pull(self, r: Array) -> Array:
        """The adjoint: sums of r_row a over each agent's rows."""
        ...

    def sums(self, values: Array) -> Array:
        """Sum over each agent's rows: (n,) -> (m,)."""
        ...


def runs_of(rows: Rows) -> list[tuple[slice, slice, tuple[int, int, int]]]:
    """Consecutive agents with equally many rows: which agents, which rows, and the shape of these as one block."""
    first = np.flatnonzero(np.diff(rows.sizes, prepend=-1))
    return [
        (slice(a, b), slice(int(rows.starts[a]), int(rows.ends[b - 1])), (int(b - a), int(rows.sizes[a]), rows.p))
        for a, b in zip(first, [*first[1:], rows.m], strict=True)
    ]


class NumpyMap:
    """What both maps below have."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def sums(self, values: Array) -> Array:
        rows = self._rows
        if rows.n == rows.m * rows.sizes[0] and (rows.sizes == rows.sizes[0]).all():
            return values.reshape(rows.m, -1).sum(axis=1)
        return np.add.reduceat(values, rows.starts)


class DenseMap(NumpyMap):
    """Batched products, one for each run of consecutive agents with equally many rows."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        self._runs = [(agents, own, rows.features[own].reshape(shape)) for agents, own, shape in runs_of(rows)]

    def apply(self, x: Array) -> Array:
        K = x.shape[2]
        out = np.empty((self._rows.n, K), dtype=np.result_type(x, self._rows.features))
        for agents, rows, features in self._runs:
            np.matmul(features, x[agents], out=out[rows].reshape(*features.shape[:2], K))
        return out

    def pull(self, r: Array) -> Array:
        K = r.shape[1]
        out = np.empty((self._rows.m, self._rows.p, K), dtype=np.result_type(r, self._rows.features))
        for agents, rows, features in self._runs:
            np.matmul(features.swapaxes(1, 2), r[rows].reshape(*features.shape[:2], K), out=out[agents])
        return out


class SparseMap(NumpyMap):
    """One block-diagonal CSR matrix (n, m p), whose column i p + j is feature j of agent i."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        features, columns = rows.features, rows.m * rows.p
        wide = max(columns, features.nnz if is_sparse(features) else features.size) > np.iinfo(np.int32).max
        index_type: Any = np.int64 if wide else np.int32
        first_column = np.repeat(np.arange(rows.m, dtype=index_type) * rows.p, rows.sizes)
        if is_sparse(features):
            data, indptr = features.data, features.indptr
            indices = features.indices + np.repeat(first_column, np.diff(indptr))
        else:
            data, indptr = features.reshape(-1), np.arange(rows.n + 1, dtype=index_type) * rows.p
            indices = (first_column[:, None] + np.arange(rows.p, dtype=index_type)).reshape(-1)
        self._matrix = sp.csr_array((data, indices, indptr), shape=(rows.n, columns))
        self._adjoint = self._matrix.T  # a CSC view of the same data

    def apply(self, x: Array) -> Array:
        return self._matrix @ x.reshape(self._rows.m * self._rows.p, -1)

    def pull(self, r: Array) -> Array:
        return (self._adjoint @ r).reshape(self._rows.m, self._rows.p, -1)
