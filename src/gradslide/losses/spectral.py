"""Largest eigenvalues of Gram matrices."""

from collections.abc import Iterator

import numpy as np

from gradslide._support.types import Array

DENSE_LIMIT = 500  # up to this order a full eigendecomposition is cheap, and exact to rounding
_CHUNK_ENTRIES = 4_000_000  # bounds the memory of one batch
_LANCZOS_TOLERANCE = 1e-10


def chunks(count: int, entries_each: int) -> Iterator[slice]:
    """Slices of range(count) such that one batch of matrices stays small."""
    step = max(1, _CHUNK_ENTRIES // entries_each)
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def gram_norms(blocks: Array) -> Array:
    """||B||^2 of each dense matrix in a batch (g, n, p), by its smaller Gram matrix; shape (g,)."""
    transposed = blocks.swapaxes(1, 2)
    gram = blocks @ transposed if blocks.shape[1] <= blocks.shape[2] else transposed @ blocks
    return np.maximum(np.linalg.eigvalsh(gram)[:, -1], 0.0)


def gram_norm(block: Array) -> float:
    """||B||^2 of one matrix, dense or CSR, without forming a large Gram matrix; never below the truth."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    n, p = block.shape
    if n > p:
        block = block.T
    k = min(n, p)
    if k <= DENSE_LIMIT:
        gram = block @ block.T
        dense = gram if isinstance(gram, np.ndarray) else gram.toarray()
        return max(float(np.linalg.eigvalsh(dense)[-1]), 0.0)
    if abs(block).max() == 0:
        return 0.0  # ARPACK refuses the zero operator
    operator = LinearOperator((k, k), matvec=lambda v: block @ (block.T @ v), dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(k)
    largest = eigsh(operator, k=1, which="LA", tol=_LANCZOS_TOLERANCE, v0=start, return_eigenvectors=False)
    return float(largest[0]) * (1 + 10 * _LANCZOS_TOLERANCE)
