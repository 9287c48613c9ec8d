"""The operator A from an array, a sparse matrix, an operator or a pair of functions."""

from collections.abc import Callable
from typing import Any

import numpy as np

from gradslide._support.errors import InputError, kind_of, require
from gradslide._support.types import Array, DType
from gradslide.results.costs import Costs

Product = Callable[[Array], Array]
_RULE = "A must be a real matrix, a linear operator, or a pair of functions (forward, adjoint)"


class LinearMap:
    """The products x (n,) -> A x (k,) and z (k,) -> A^T z (n,) in one dtype.

    `matrix` holds the entries where they are available.
    """

    def __init__(self, shape: tuple[int, int], dtype: DType, forward: Product, adjoint: Product, matrix: Any) -> None:
        self.shape = shape
        self.dtype = dtype
        self.matrix = matrix
        self._forward = forward
        self._adjoint = adjoint

    def apply(self, x: Array) -> Array:
        """Return A x."""
        return self._forward(x)

    def apply_adjoint(self, z: Array) -> Array:
        """Return A^T z."""
        return self._adjoint(z)

    def counted(self, costs: Costs) -> "LinearMap":
        """Return the same map with every product counted in `costs`."""

        def forward(x: Array) -> Array:
            costs.operator_products += 1
            return self._forward(x)

        def adjoint(z: Array) -> Array:
            costs.operator_products += 1
            return self._adjoint(z)

        return LinearMap(self.shape, self.dtype, forward, adjoint, self.matrix)

    def fingerprint(self) -> str:
        """Distinguish maps by products with a fixed vector, to digits that do not depend on the
        machine.
        """
        x, z = _probes(self)
        return f"{self.shape} {float(np.vdot(z, self.apply(x))):.7e}"


def linear_map(A: Any, n: int, dtype: DType) -> LinearMap:
    """Return A as a map from vectors of n entries.

    Parameters
    ----------
    A : array_like, sparse matrix, LinearOperator, PyLops operator, or pair of callables
        Anything with shape, matvec and rmatvec will do; or (x -> A x, z -> A^T z) for flat arrays.
    n : int
        Number of columns.
    dtype : dtype
        Precision of products.

    Returns
    -------
    LinearMap
    """
    if isinstance(A, type):
        raise InputError(_RULE, kind_of(A), "give an instance of it")
    if isinstance(A, tuple | list) and len(A) == 2 and all(callable(part) for part in A):
        forward, adjoint = A
        rows = np.size(_called("forward", forward, np.zeros(n, dtype=dtype)))
        return _from_products(_checked_shape((rows, n), n), dtype, forward, adjoint)
    if hasattr(A, "tocsr") and hasattr(A, "nnz"):
        require(len(A.shape) == 2, _RULE, f"shape {A.shape}", "give a (k, n) matrix")
        return _from_matrix(A.tocsr(), n, dtype)
    if hasattr(A, "rmatvec") and hasattr(A, "matvec"):
        require(len(A.shape) == 2, _RULE, f"shape {A.shape}", "give a (k, n) operator")
        return _from_products(_checked_shape(A.shape, n), dtype, A.matvec, A.rmatvec)
    try:
        matrix = np.asarray(A)
    except ValueError:
        matrix = np.asarray(None)
    got = f"shape {matrix.shape} of {matrix.dtype}" if matrix.dtype != object else kind_of(A)
    require(matrix.ndim == 2 and matrix.dtype.kind in "fiub", _RULE, got, "for example a (k, n) array")
    return _from_matrix(matrix, n, dtype)


def least_squares(A: LinearMap, target: Array, *, adjoint: bool = False) -> Array:
    """Approximate the shortest v with the smallest |A v - target| or |A^T v - target|: 30 LSQR
    steps.
    """
    from scipy.sparse.linalg import LinearOperator, lsqr

    products = (A.apply_adjoint, A.apply) if adjoint else (A.apply, A.apply_adjoint)
    forward, backward = (lambda v, product=product: product(v.astype(A.dtype)) for product in products)
    shape = A.shape[::-1] if adjoint else A.shape
    operator = LinearOperator(shape, matvec=forward, rmatvec=backward, dtype=np.float64)
    found: Array = lsqr(operator, np.asarray(target, dtype=np.float64), atol=1e-12, btol=1e-12, iter_lim=30)[0]
    return found


def _from_matrix(matrix: Any, n: int, dtype: DType) -> LinearMap:
    require(matrix.dtype.kind in "fiub", "A must be real", matrix.dtype, "split real and imaginary parts")
    shape = _checked_shape(matrix.shape, n)
    matrix = matrix.astype(dtype, copy=False)
    entries = matrix.data if hasattr(matrix, "tocsr") else matrix
    require(bool(np.all(np.isfinite(entries))), "A must be finite", "NaN or infinity", "check A")
    transposed = matrix.T.tocsr() if hasattr(matrix, "tocsr") else matrix.T
    return LinearMap(shape, dtype, lambda x: matrix @ x, lambda z: transposed @ z, matrix)


def _from_products(shape: tuple[int, int], dtype: DType, forward: Product, adjoint: Product) -> LinearMap:
    """A map from the user's functions, which are tried once."""
    k, n = shape
    A = LinearMap(shape, dtype, _flat("forward", forward, k, dtype), _flat("adjoint", adjoint, n, dtype), None)
    x, z = _probes(A)
    Ax, ATz = _tried("forward", forward, x, k, dtype), _tried("adjoint", adjoint, z, n, dtype)
    _require_adjoint(x, Ax, z, ATz)
    # A second look along A x, where the two sides do not cancel.
    _require_adjoint(x, Ax, Ax, A.apply_adjoint(Ax))
    return A


def _tried(name: str, product: Product, at: Array, size: int, dtype: DType) -> Array:
    """A first product, with a clear error where it fails."""
    found = np.asarray(_called(name, product, at))
    rule = f"A's {name} product must hold finite real numbers"
    require(found.dtype.kind in "fiub", rule, f"type {found.dtype}", "check it")
    require(bool(np.all(np.isfinite(found))), rule, "NaN or infinity", "check it")
    return _flattened(name, found, size, dtype)


def _called(name: str, product: Product, at: Array) -> Any:
    try:
        return product(at)
    except InputError:
        raise
    except Exception as error:
        rule = f"A's {name} product must take a flat array of {at.size} entries"
        raise InputError(rule, f"{type(error).__name__}: {error}", "flatten and reshape inside it") from error


def _flat(name: str, product: Product, size: int, dtype: DType) -> Product:
    """The product as a new flat array of that size, in the problem's dtype."""

    def flat(v: Array) -> Array:
        return _flattened(name, product(v), size, dtype)

    return flat


def _flattened(name: str, found: Any, size: int, dtype: DType) -> Array:
    result = np.asarray(found).reshape(-1)
    if result.size != size:
        rule = f"A's {name} product must have {size} entries"
        raise InputError(rule, result.size, "check forward and adjoint against each other")
    # A copy: some operators write into the same array each time.
    return result.astype(dtype)


def _checked_shape(shape: Any, n: int) -> tuple[int, int]:
    k, columns = (int(size) for size in shape)
    require(
        columns == n and k > 0,
        f"A must have one column for each of the {n} unknowns (all blocks of x, one after the other), and a row",
        f"shape {(k, columns)}",
        "check A against the loss",
    )
    return k, columns


def _require_adjoint(x: Array, Ax: Array, z: Array, ATz: Array) -> None:
    """Refuse products that are not adjoint to each other, which would make methods fail silently."""
    one, other = float(np.vdot(z, Ax)), float(np.vdot(ATz, x))
    scale = float(np.linalg.norm(z) * np.linalg.norm(Ax))
    rule = "the second product of A must be the adjoint of the first: <A x, z> = <x, A^T z>"
    close = abs(one - other) <= 100 * float(np.sqrt(np.finfo(x.dtype).eps)) * scale
    require(close, rule, f"{one:.6g} and {other:.6g} at a random x", "correct the adjoint")


def _probes(A: LinearMap) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    k, n = A.shape
    return rng.normal(size=n).astype(A.dtype), rng.normal(size=k).astype(A.dtype)
