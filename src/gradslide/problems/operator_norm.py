"""||A|| in the norms of nu and zeta: the largest <A x, z> over |x| <= 1 and |z| <= 1."""

import importlib
import math
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import as_dtype, doubles, length, on_device, to_numpy
from gradslide._support.errors import require
from gradslide._support.types import Array
from gradslide.domains import Domain
from gradslide.problems.linear_map import LinearMap, is_csr_tensor

# The power iteration misses more than this share of ||A||^2 with no more than that probability.
_SHORTFALL, _RISK = 0.1, 1e-6
# Products that finding the entries of an operator may take.
_MOST_PRODUCTS = 5_000


def operator_norm(A: LinearMap, domain: Domain, dual_domain: Domain) -> float:
    """Return ||A||, or a slightly larger number.

    Euclidean on both sides: power iteration. Entropy on both: the largest |A_ij|. Entropy on one
    side: the largest length of a column (of x) or a row (of z). Blocks of x with entropy add up in
    squares.
    """
    if domain.norm == dual_domain.norm == 2:
        return _spectral(A, _root_weights(domain), _root_weights(dual_domain))
    if domain.norm == 2:
        return float(np.sqrt(np.max(_squares(A, axis=1, roots=_root_weights(domain)))))
    columns = _squares(A, axis=0, roots=_root_weights(dual_domain)) if dual_domain.norm == 2 else _largest(A) ** 2
    return math.sqrt(float(np.sum(np.max(columns.reshape(domain.m, domain.d), axis=1))))


def _root_weights(domain: Domain) -> Array | float:
    """The square roots of nu's weights, flat; 1 where there are none."""
    weights = domain.weights
    if weights is None:
        return 1.0
    xp = array_namespace(weights)
    return cast(Array, xp.sqrt(xp.broadcast_to(weights, (domain.m, domain.d))).reshape(-1))


def _spectral(A: LinearMap, x_roots: Array | float, z_roots: Array | float) -> float:
    """The largest singular value of Z^-1/2 A X^-1/2 by power iteration from a seeded random vector, with a margin.

    Of all combinations of the iterates the one that A stretches most is taken (Lanczos): far fewer products for the
    same margin. It falls short of ||A||^2 by a share e with probability at most 1.648 sqrt(n) exp(-sqrt(e) (2 k - 1))
    after k iterations (Kuczynski and Wozniakowski 1992), so ||A||^2/(1 - e) is safe.
    """
    n = A.shape[1]
    iterations = math.ceil((math.log(1.648 * math.sqrt(n) / _RISK) / math.sqrt(_SHORTFALL) + 1) / 2)
    if min(A.shape) <= iterations:
        return _spectral_of_few(A, x_roots, z_roots)
    start = np.random.default_rng(0).normal(size=n)
    v, before = on_device(start / np.linalg.norm(start), A.device), on_device(np.zeros(n), A.device)
    diagonal: list[float] = []
    beside: list[float] = []
    for _ in range(iterations):
        stretched = doubles(A.apply(as_dtype(v / x_roots, A.dtype))) / z_roots**2
        # In units of its own: the squares of entries may leave the range of float32.
        size = float(abs(stretched).max()) or 1.0
        pulled = A.apply_adjoint(as_dtype(stretched / size, A.dtype))
        u = doubles(pulled) * (size / x_roots)
        diagonal.append(float(v @ u))
        ritz = _largest_eigenvalue(diagonal, beside)
        u = u - diagonal[-1] * v - (beside[-1] if beside else 0.0) * before
        size = length(u)
        # The iterates have run out of directions: this is the norm itself.
        if size <= math.sqrt(np.finfo(A.dtype).eps) * ritz:
            return math.sqrt(ritz + 2 * size)
        beside.append(size)
        v, before = u / size, v
    return math.sqrt(ritz / (1 - _SHORTFALL))


def _spectral_of_few(A: LinearMap, x_roots: Array | float, z_roots: Array | float) -> float:
    """The exact value where A has few rows or columns."""
    axis = 0 if A.shape[1] <= A.shape[0] else 1
    if A.device is not None and A.matrix is not None:
        return _largest_singular_value(A.matrix, x_roots, z_roots) * (1 + 1e-12)
    lines = A.matrix if A.matrix is not None else np.stack(list(_lines(A, axis)), axis=1 - axis)
    dense = np.asarray(lines.toarray() if hasattr(lines, "toarray") else lines, dtype=np.float64)
    x_row, z_row = np.broadcast_to(to_numpy(x_roots), A.shape[1]), np.broadcast_to(to_numpy(z_roots), A.shape[0])
    return float(np.linalg.norm(dense / x_row / z_row[:, None], 2)) * (1 + 1e-12)


def _largest_singular_value(matrix: Any, x_roots: Array | float, z_roots: Array | float) -> float:
    """Of a matrix on a device with few rows or columns: of its small triangular factor, on the host."""
    dense = doubles(matrix.to_dense() if is_csr_tensor(matrix) else matrix)
    scaled = dense / x_roots / (z_roots if isinstance(z_roots, float) else z_roots[:, None])
    tall = scaled if scaled.shape[0] >= scaled.shape[1] else scaled.T
    return float(np.linalg.norm(to_numpy(array_namespace(tall).linalg.qr(tall)[1]), 2))


def _largest_eigenvalue(diagonal: list[float], beside: list[float]) -> float:
    matrix = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    return max(0.0, float(np.linalg.eigvalsh(matrix)[-1]))


def _squares(A: LinearMap, axis: int, roots: Array | float) -> Array:
    """The squared length of each column (axis 0) or row (axis 1), entries divided by their root
    weights.
    """
    roots = to_numpy(roots)
    if A.matrix is None:
        return np.array([float(np.sum((line / roots) ** 2)) for line in _lines(A, axis)])
    weights = np.broadcast_to(np.asarray(roots, dtype=np.float64) ** -2.0, A.shape[axis])
    if A.device is not None:
        lines = A.transposed if axis == 0 else A.matrix
        return to_numpy(_squared(lines) @ on_device(weights, A.device))
    entries = A.matrix.astype(np.float64)
    squares = entries.multiply(entries) if hasattr(entries, "multiply") else entries**2
    return np.asarray(weights @ squares if axis == 0 else squares @ weights).reshape(-1)


def _squared(matrix: Any) -> Any:
    """The squares of all entries on a device, in double precision."""
    if not is_csr_tensor(matrix):
        return doubles(matrix) ** 2
    squares = doubles(matrix.values()) ** 2
    make = importlib.import_module("torch").sparse_csr_tensor
    return make(matrix.crow_indices(), matrix.col_indices(), squares, size=matrix.shape)


def _largest(A: LinearMap) -> Array:
    """The largest |A_ij| of each column."""
    if A.device is not None and A.matrix is not None:
        if not is_csr_tensor(A.matrix):
            return to_numpy(array_namespace(A.matrix).max(abs(A.matrix), axis=0))
        values, columns = A.matrix.values(), A.matrix.col_indices()
        return to_numpy(values.new_zeros(A.shape[1]).scatter_reduce(0, columns.long(), abs(values), "amax"))
    if A.matrix is not None:
        largest = abs(A.matrix).max(axis=0)
        return np.asarray(largest.toarray() if hasattr(largest, "toarray") else largest).reshape(-1)
    k, n = A.shape
    if n <= k:
        return np.array([float(np.max(np.abs(column))) for column in _lines(A, 0)])
    largest = np.zeros(n)
    for row in _lines(A, 1):
        largest = np.maximum(largest, np.abs(row))
    return largest


def _lines(A: LinearMap, axis: int) -> Iterator[Array]:
    """All columns (axis 0) or rows (axis 1) of an operator, one product each."""
    size, product = (A.shape[1], A.apply) if axis == 0 else (A.shape[0], A.apply_adjoint)
    require(
        size <= _MOST_PRODUCTS,
        f"||A|| in the norm of the entropy needs the entries of A; an operator may have {_MOST_PRODUCTS:,} lines",
        f"{size:,}",
        "give norm=, or A as a matrix",
    )
    for j in range(size):
        unit = np.zeros(size, dtype=A.dtype)
        unit[j] = 1
        yield np.asarray(to_numpy(product(on_device(unit, A.device))), dtype=np.float64)
