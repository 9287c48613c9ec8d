"""The rows of all agents, stacked."""

from collections.abc import Sequence
from functools import cached_property

import array_api_compat as compat
import numpy as np
import scipy.sparse as sp

from gradslide._support.errors import InputError
from gradslide._support.types import Array
from gradslide.losses.compiled import CompiledRows
from gradslide.losses.devices import Features, TorchRows, home_of, moved
from gradslide.losses.inputs import is_sparse
from gradslide.losses.maps import DenseMap, Map, SparseMap
from gradslide.losses.partition import as_slice
from gradslide.losses.spectral import DENSE_LIMIT, chunks, gram_norm, gram_norms

_MOST_DENSE_RUNS = 8


class RowBlocks:
    """Features (n, p), dense or CSR, whose rows are sorted by agent; agent i holds sizes[i] of them.

    They may be on a device; sizes are not.
    """

    def __init__(self, features: Features, sizes: Array) -> None:
        self.features = features
        self.sizes = sizes
        self.ends = np.cumsum(sizes)
        self.starts = self.ends - sizes
        self.m = len(sizes)
        self.n, self.p = features.shape

    @property
    def entries(self) -> int:
        """Numbers that are stored: all of dense features, those of CSR that are there."""
        return int(self.features.indptr[-1]) if is_sparse(self.features) else self.n * self.p

    @cached_property
    def compiled(self) -> CompiledRows:
        """What compiled code needs of NumPy's and scipy's rows."""
        return CompiledRows(self)

    @cached_property
    def _map(self) -> Map:
        many = 1 + np.count_nonzero(np.diff(self.sizes)) > _MOST_DENSE_RUNS
        if home_of(self.features) is None:
            return SparseMap(self) if many or is_sparse(self.features) else DenseMap(self)
        from gradslide.losses.device_maps import DeviceRuns, TorchDense, TorchSparse

        if isinstance(self.features, TorchRows):
            return TorchSparse(self)
        # Other libraries than PyTorch do without what it has for many runs.
        return TorchDense(self) if many and compat.is_torch_array(self.features) else DeviceRuns(self)

    def apply(self, x: Array) -> Array:
        """Row a of agent i to a x_i: (m, p, K) -> (n, K)."""
        return self._map.apply(x)

    def pull(self, r: Array) -> Array:
        """The adjoint, sums of r_row a over each agent's rows: (n, K) -> (m, p, K)."""
        return self._map.pull(r)

    def sums(self, values: Array) -> Array:
        """Sum over each agent's rows: (n,) -> (m,)."""
        return self._map.sums(values)

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

    def on_host(self) -> "RowBlocks":
        """The same in NumPy or scipy."""
        return self if home_of(self.features) is None else RowBlocks(moved(self.features, None), self.sizes)

    def column_norms(self, weights: Array) -> Array:
        """max_j sum_row w_row a_row,j^2 per agent, the largest entry of its weighted Gram matrix; (m,)."""
        features = self.features.astype(np.float64)  # a copy: squaring works in place, or merges duplicates
        if is_sparse(features):
            return RowBlocks(features.power(2), self.sizes).pull(weights[:, None])[:, :, 0].max(axis=1)
        np.square(features, out=features)
        features *= weights[:, None]
        return np.add.reduceat(features, self.starts, axis=0).max(axis=1)

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

    def _scaled(self, rows: slice, factors: Array) -> Features:
        if is_sparse(self.features):
            return sp.csr_array(sp.diags_array(factors[rows]) @ self.features[rows])
        return self.features[rows] * factors[rows, None]
