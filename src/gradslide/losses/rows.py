"""The rows of all agents, stacked: selection, norms, and the operators that act on them."""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

import array_api_compat as compat
import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace

from gradslide._support.arrays import doubles, to_numpy
from gradslide._support.types import Array, Tensor
from gradslide.losses.compiled import CompiledRows, DeviceRows
from gradslide.losses.devices import Features, TorchRows, home_of, moved, rows_at
from gradslide.losses.inputs import is_sparse
from gradslide.losses.partition import as_slice
from gradslide.losses.row_operators import (
    DenseOperator,
    DenseRuns,
    RowOperator,
    SparseOperator,
    TorchDense,
    TorchSparse,
)

_MOST_DENSE_RUNS = 8
_DENSE_LIMIT = 500  # up to this order a full eigendecomposition is cheap, and exact to rounding
_CHUNK_ENTRIES = 4_000_000  # bounds the memory of one batch
_LANCZOS_TOLERANCE = 1e-10
# On a device: up to this order eigenvalues are bounded by powers of Gram matrices, whose batches hold so many numbers.
_DEVICE_LIMIT, _DEVICE_ENTRIES = 1024, 2**26
_MOST_SQUARINGS = 44  # eigenvalues that are equal take the most
_SMALL = 64  # agents with at most so many rows are multiplied together
_DENSE_SHARE = 0.05  # from this share of nonzeros on, dense products are faster


class RowBlocks:
    """Features (n, p), dense or CSR, whose rows are sorted by agent: agent i holds sizes[i] of them.

    Features may be on a device; sizes, starts and ends are NumPy arrays.
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
        """Number of stored entries: all of dense features, the nonzeros of CSR."""
        return int(self.features.indptr[-1]) if is_sparse(self.features) else self.n * self.p

    @cached_property
    def compiled(self) -> CompiledRows | DeviceRows:
        """The rows as compiled code takes them."""
        kind = CompiledRows if home_of(self.features) is None else DeviceRows
        return kind(self.features, self.starts, self.ends)

    @cached_property
    def row_lengths(self) -> Array:
        """|a|_2 of every row, (n,), where the features are."""
        features = self.features
        if isinstance(features, TorchRows):
            return moved(self.on_host().row_lengths, features.data)
        if is_sparse(features):
            return np.sqrt(np.asarray(features.multiply(features).sum(axis=1)).ravel())
        if home_of(features) is None:
            return np.sqrt(np.einsum("ij,ij->i", features, features))
        return array_namespace(features).linalg.vector_norm(features, axis=1)

    @cached_property
    def operator(self) -> RowOperator:
        """The rows as a linear operator, the fastest for their library and layout."""
        features, sizes = self.features, self.sizes
        many = 1 + np.count_nonzero(np.diff(sizes)) > _MOST_DENSE_RUNS
        if home_of(features) is None:
            return SparseOperator(features, sizes) if many or is_sparse(features) else DenseOperator(features, sizes)
        if isinstance(features, TorchRows):
            return TorchSparse(features, sizes)
        # Libraries other than PyTorch lack the operations of TorchDense.
        return TorchDense(features, sizes) if many and compat.is_torch_array(features) else DenseRuns(features, sizes)

    def feature_major(self, factors: Array) -> Array:
        """Dense rows times their factors (n,), flat: one (p, n_i) block after the other, one for each agent."""
        out = np.empty(self.n * self.p, dtype=self.features.dtype)
        for first, end in zip(self.starts, self.ends, strict=True):
            block = out[first * self.p : end * self.p].reshape(self.p, -1)
            np.multiply(self.features[first:end].T, factors[first:end], out=block)
        return out

    def rows_of(self, agents: Array) -> slice | Array:
        """Return the numbers of the stacked rows of these agents, in their order."""
        return as_slice(np.concatenate([np.arange(self.starts[i], self.ends[i]) for i in agents]))

    def on_host(self) -> "RowBlocks":
        """Return the same rows in NumPy or SciPy arrays."""
        return self if home_of(self.features) is None else RowBlocks(moved(self.features, None), self.sizes)

    def column_norms(self, weights: Array) -> Array:
        """max_j sum_row w_row a_row,j^2 per agent, the largest entry of its weighted Gram matrix; (m,)."""
        if home_of(self.features) is not None:
            return to_numpy(array_namespace(weights).max(self._squares_on_device(weights), axis=1))
        features = self.features.astype(np.float64)  # a copy: squaring works in place, or merges duplicates
        if is_sparse(features):
            return RowBlocks(features.power(2), self.sizes).operator.pull(weights[:, None])[:, :, 0].max(axis=1)
        np.square(features, out=features)
        features *= weights[:, None]
        return np.add.reduceat(features, self.starts, axis=0).max(axis=1)

    def spectral_norms(self, weights: Array) -> Array:
        """Largest eigenvalue of each agent's sum_row w_row a_row^T a_row, shape (m,)."""
        if home_of(self.features) is not None:
            return self._spectral_norms_on_device(weights)
        norms = np.empty(self.m)
        root = np.sqrt(weights)
        for size in np.unique(self.sizes):
            agents = np.flatnonzero(self.sizes == size)
            if is_sparse(self.features) or min(size, self.p) > _DENSE_LIMIT:
                for i in agents:
                    norms[i] = gram_norm(self._scaled(slice(self.starts[i], self.ends[i]), root))
            else:
                for chunk in chunks(len(agents), size * self.p):
                    rows = self.starts[agents[chunk], None] + np.arange(size)
                    norms[agents[chunk]] = gram_norms(self.features[rows] * root[rows][:, :, None])
        return norms

    def gram(self, weights: Array) -> Array:
        """sum_row w_row a_row^T a_row of each agent, in double precision, (m, p, p); weights have any sign."""
        found = np.empty((self.m, self.p, self.p))
        size = int(self.sizes[0])
        if home_of(self.features) is not None:
            every = zip(self.starts, self.ends, strict=True)
            return array_namespace(weights).stack([self._gram(slice(first, end), weights) for first, end in every])
        if is_sparse(self.features) or size > _SMALL or np.any(self.sizes != size):
            for i, (first, end) in enumerate(zip(self.starts, self.ends, strict=True)):
                found[i] = self._gram(slice(first, end), weights)
            return found
        for some in chunks(self.m, size * self.p):
            rows = self.features[some.start * size : some.stop * size].astype(np.float64, copy=False)
            scaled = rows * weights[some.start * size : some.stop * size, None]
            blocks = rows.reshape(-1, size, self.p).swapaxes(1, 2)
            np.matmul(blocks, scaled.reshape(-1, size, self.p), out=found[some])
        return found

    def total_gram(self, weights: Array) -> Array:
        """sum_row w_row a_row^T a_row over all agents, in double precision, (1, p, p)."""
        if self._is_thin:
            return self._gram(slice(0, self.n), weights)[None]
        first, *others = chunks(self.n, self.p)
        found = self._gram(first, weights)
        for chunk in others:
            found += self._gram(chunk, weights)
        return found[None]

    def column_squares(self) -> Array:
        """The sums of squares of the columns of each agent, in double precision, (m, p)."""
        features = self.features
        if (home := home_of(features)) is not None:
            return self._squares_on_device(doubles(moved(np.ones(self.n), home)))
        if is_sparse(features):
            owners = np.repeat(np.repeat(np.arange(self.m), self.sizes), np.diff(features.indptr))
            squares = features.data.astype(np.float64) ** 2
            return np.bincount(owners * self.p + features.indices, squares, self.m * self.p).reshape(self.m, self.p)
        found = np.empty((self.m, self.p))
        for i, (first, end) in enumerate(zip(self.starts, self.ends, strict=True)):
            np.einsum("ij,ij->j", features[first:end], features[first:end], dtype=np.float64, out=found[i])
        return found

    @property
    def _is_thin(self) -> bool:
        """Whether so few numbers are stored that sparse products are quicker than dense ones."""
        return sp.issparse(self.features) and self.entries < _DENSE_SHARE * self.n * self.p

    def _gram(self, chosen: slice, weights: Array) -> Array:
        rows, weights = self.features[chosen], weights[chosen]
        if self._is_thin:
            scaled = sp.csr_array(sp.diags_array(weights) @ rows)
            return np.asarray((rows.T @ scaled).toarray(), dtype=np.float64)
        if home_of(rows) is not None:
            rows = _dense(rows)
            return rows.swapaxes(0, 1) @ (rows * weights[:, None])
        rows = (rows.toarray() if is_sparse(rows) else rows).astype(np.float64, copy=False)
        if np.all(weights >= 0):
            # The product of an array with its own transpose takes half the operations.
            rows = rows * np.sqrt(weights[:, None])
            return np.asarray(rows.T @ rows)
        return np.asarray(rows.T @ (rows * weights[:, None]))

    def _squares_on_device(self, weights: Tensor) -> Tensor:
        """sum_row w_row a_row,j^2 of each agent and column, (m, p)."""
        features = self.features
        squares: Iterable[Features] = (
            doubles(features[:, some]) ** 2 for some in chunks(self.p, self.n, _DEVICE_ENTRIES)
        )
        if isinstance(features, TorchRows):
            squares = [TorchRows(doubles(features.data) ** 2, features.indices, features.indptr, self.p)]
        sums = [RowBlocks(each, self.sizes).operator.pull(weights[:, None])[:, :, 0] for each in squares]
        return array_namespace(weights).concat(sums, axis=1)

    def _spectral_norms_on_device(self, weights: Tensor) -> Array:
        norms, orders = np.empty(self.m), np.minimum(self.sizes, self.p)
        is_large = (orders > _DEVICE_LIMIT) | (self.sizes * self.p > _DEVICE_ENTRIES)
        for i in np.flatnonzero(is_large).tolist():
            norms[i] = self._norm_by_products(i, weights)
        # Batches of agents with about equally many rows; Gram matrices are padded with zeros.
        agents = np.flatnonzero(~is_large)
        agents = agents[np.argsort(self.sizes[agents], kind="stable")]
        batch = np.cumsum(self.sizes[agents] * self.p) // _DEVICE_ENTRIES
        starts = np.flatnonzero(np.diff(batch) + np.diff(np.log2(self.sizes[agents]).astype(int))) + 1
        for own in np.split(agents, starts) if len(agents) else []:
            norms[own] = to_numpy(largest_eigenvalues(self._gram_matrices(own, weights**0.5)))
        return norms

    def _gram_matrices(self, agents: Array, root: Tensor) -> Tensor:
        """The smaller Gram matrix of each agent's rows times factors, with zeros around it; sizes rise."""
        sizes = self.sizes[agents]
        k = min(int(sizes[-1]), self.p)
        found = root.new_zeros(len(agents), k, k)
        for size in np.unique(sizes):
            first, end = np.searchsorted(sizes, [size, size + 1])
            rows = as_slice((self.starts[agents[first:end], None] + np.arange(size)).ravel())
            block = _dense(rows_at(self.features, rows)) * rows_at(root, rows)[:, None]
            block = block.reshape(-1, size, self.p)
            other = block.swapaxes(1, 2)
            gram = block @ other if size <= self.p else other @ block
            found[first:end, : gram.shape[1], : gram.shape[1]] = gram
        return found

    def _norm_by_products(self, agent: int, weights: Tensor) -> float:
        rows = slice(self.starts[agent], self.ends[agent])
        features, weights = self.features[rows], weights[rows, None]
        if isinstance(features, TorchRows):
            features = TorchRows(doubles(features.data), features.indices, features.indptr, self.p)
        else:
            features = doubles(features)
        operator = RowBlocks(features, self.sizes[agent : agent + 1]).operator

        def product(v: Array) -> Array:
            scores = operator.apply(moved(v.reshape(1, -1, 1), weights))
            return to_numpy(operator.pull(weights * scores)).ravel()

        return _largest_by_products(product, self.p)

    def _scaled(self, rows: slice, factors: Array) -> Features:
        if is_sparse(self.features):
            return sp.csr_array(sp.diags_array(factors[rows]) @ self.features[rows])
        return self.features[rows] * factors[rows, None]


def chunks(count: int, entries_each: int, entries: int = _CHUNK_ENTRIES) -> Iterator[slice]:
    """Yield slices of range(count) such that one batch of matrices stays small."""
    step = max(1, entries // entries_each)
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def gram_norms(blocks: Array) -> Array:
    """Return ||B||^2 of each dense matrix in a batch (g, n, p), by its smaller Gram matrix; shape (g,)."""
    transposed = blocks.swapaxes(1, 2)
    gram = blocks @ transposed if blocks.shape[1] <= blocks.shape[2] else transposed @ blocks
    return np.maximum(np.linalg.eigvalsh(gram)[:, -1], 0.0)


def gram_norm(block: Array) -> float:
    """Return ||B||^2 of one matrix, dense or CSR, without forming a large Gram matrix; never below the truth."""
    n, p = block.shape
    if n > p:
        block = block.T
    k = min(n, p)
    if k <= _DENSE_LIMIT:
        gram = block @ block.T
        dense = gram if isinstance(gram, np.ndarray) else gram.toarray()
        return max(float(np.linalg.eigvalsh(dense)[-1]), 0.0)
    return _largest_by_products(lambda v: block @ (block.T @ v), k)


def _largest_by_products(product: Callable[[Array], Array], k: int) -> float:
    """The largest eigenvalue of a positive semidefinite matrix of order k; never below the truth."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    start = np.random.default_rng(0).standard_normal(k)
    if not product(start).any():
        return 0.0  # ARPACK refuses the zero operator
    operator = LinearOperator((k, k), matvec=product, dtype=np.float64)
    largest = eigsh(operator, k=1, which="LA", tol=_LANCZOS_TOLERANCE, v0=start, return_eigenvectors=False)
    return float(largest[0]) * (1 + 10 * _LANCZOS_TOLERANCE)


def largest_eigenvalues(matrices: Tensor) -> Tensor:
    """Return the largest eigenvalue of each positive semidefinite matrix on a device: (g, k, k) -> (g,).

    With M_0 = G/t_0 and M_j = M_{j-1}^2/t_j, all of trace 1, the largest eigenvalue of G is that of M_j to the power
    2^-j, times t_0 t_1^(1/2) ... t_j^(2^-j). That of M_j is between t_{j+1} and 1. A device multiplies matrices far
    more quickly than it finds eigenvalues.
    """
    xp = array_namespace(matrices)
    traces = _traces(matrices)
    logarithms = xp.zeros_like(traces)
    found, power = traces, 1.0
    for _ in range(_MOST_SQUARINGS):
        # A matrix of zeros stays one.
        matrices = matrices / xp.where(traces > 0, traces, 1.0)[:, None, None]
        matrices, power = matrices @ matrices, power / 2
        traces = _traces(matrices)
        change = xp.log(xp.where(traces > 0, traces, 1.0))
        if float(xp.max(-change)) * 2 * power <= np.finfo(np.float64).eps:
            break
        logarithms += power * change
    return found * xp.exp(logarithms)


def _traces(matrices: Tensor) -> Tensor:
    return matrices.diagonal(dim1=1, dim2=2).sum(axis=1)


def _dense(rows: Features) -> Tensor:
    """Rows on a device, dense and in double precision."""
    return doubles(rows.to_dense() if isinstance(rows, TorchRows) else rows)
