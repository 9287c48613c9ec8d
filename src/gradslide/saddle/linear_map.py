"""The operator A in the forms that people have it in: an array, a sparse matrix, an operator, a pair of functions."""

from collections.abc import Callable
from typing import Any

import numpy as np

from gradslide._types import Array
from gradslide.costs import Costs
from gradslide.errors import InputError, kind_of, require

Product = Callable[[Array], Array]


class LinearMap:
    """x (n,) -> A x (k,) and z (k,) -> A^T z (n,), in one dtype. matrix: its entries, where they are at hand."""

    def __init__(self, shape: tuple[int, int], dtype: Any, forward: Product, adjoint: Product, matrix: Any) -> None:
        self.shape = shape
        self.dtype = dtype
        self.matrix = matrix
        self._forward = forward
        self._adjoint = adjoint

    def apply(self, x: Array) -> Array:
        return self._forward(x)

    def apply_adjoint(self, z: Array) -> Array:
        return self._adjoint(z)

    def counted(self, costs: Costs) -> "LinearMap":
        """The same map, every product entered into `costs`."""

        def forward(x: Array) -> Array:
            costs.operator_products += 1
            return self._forward(x)

        def adjoint(z: Array) -> Array:
            costs.operator_products += 1
            return self._adjoint(z)

        return LinearMap(self.shape, self.dtype, forward, adjoint, self.matrix)

    def fingerprint(self) -> str:
        """Tells maps apart by what they do to a fixed vector, to digits that do not hang on the machine."""
        x, z = _probes(self)
        return f"{self.shape} {float(np.vdot(z, self.apply(x))):.7e}"


def linear_map(A: Any, n: int, dtype: Any) -> LinearMap:
    """A as a map from vectors of n entries.

    A: an array, a scipy sparse matrix, a scipy LinearOperator, a PyLops operator or anything else with shape, matvec
    and rmatvec, or a pair of functions (x -> A x, z -> A^T z) of flat arrays.
    """
    if isinstance(A, tuple | list) and len(A) == 2 and all(callable(part) for part in A):
        return _from_functions(A[0], A[1], n, dtype)
    if hasattr(A, "tocsr") and hasattr(A, "nnz"):
        return _from_matrix(A.tocsr(), n, dtype)
    if hasattr(A, "rmatvec") and hasattr(A, "matvec"):
        return _from_operator(A, n, dtype)
    try:
        matrix = np.asarray(A)
    except ValueError:
        matrix = np.asarray(None)
    require(
        matrix.ndim == 2 and matrix.dtype.kind in "fiub",
        "A must be a matrix of real numbers, a linear operator, or a pair of functions (forward, adjoint)",
        f"shape {matrix.shape} of {matrix.dtype}" if matrix.dtype != object else kind_of(A),
        "for example a (k, n) array",
    )
    return _from_matrix(matrix, n, dtype)


def _from_matrix(matrix: Any, n: int, dtype: Any) -> LinearMap:
    _require_real(matrix.dtype)
    shape = _checked_shape(matrix.shape, n)
    matrix = matrix.astype(dtype, copy=False)
    entries = matrix.data if hasattr(matrix, "tocsr") else matrix
    require(bool(np.all(np.isfinite(entries))), "A must be finite", "NaN or infinity", "check A")
    transposed = matrix.T.tocsr() if hasattr(matrix, "tocsr") else matrix.T
    return LinearMap(shape, dtype, lambda x: matrix @ x, lambda z: transposed @ z, matrix)


def _from_operator(A: Any, n: int, dtype: Any) -> LinearMap:
    _require_real(np.dtype(A.dtype) if A.dtype is not None else np.dtype(dtype))
    shape = _checked_shape(A.shape, n)
    return _adjoint_checked(
        LinearMap(shape, dtype, _flat(A.matvec, shape[0], dtype), _flat(A.rmatvec, shape[1], dtype), None)
    )


def _from_functions(forward: Product, adjoint: Product, n: int, dtype: Any) -> LinearMap:
    try:
        k = np.size(forward(np.zeros(n, dtype=dtype)))
    except Exception as error:
        rule = f"A's first function must take a flat array of {n} entries"
        raise InputError(rule, f"{type(error).__name__}: {error}", "flatten and reshape inside it") from error
    return _adjoint_checked(LinearMap((k, n), dtype, _flat(forward, k, dtype), _flat(adjoint, n, dtype), None))


def _flat(product: Product, size: int, dtype: Any) -> Product:
    """The product as a flat array of that size, in the problem's dtype."""

    def flat(v: Array) -> Array:
        result = np.asarray(product(v)).reshape(-1)
        if result.size != size:
            raise InputError(f"a product with A must have {size} entries", result.size, "check forward and adjoint")
        return result.astype(dtype, copy=False)

    return flat


def _checked_shape(shape: Any, n: int) -> tuple[int, int]:
    k, columns = (int(size) for size in shape)
    require(
        columns == n and k > 0,
        f"A must have one column for each of the {n} unknowns (all blocks of x, one after the other), and a row",
        f"shape {(k, columns)}",
        "check A against the loss",
    )
    return k, columns


def _require_real(dtype: np.dtype[Any]) -> None:
    require(dtype.kind in "fiub", "A must be real", dtype, "split real and imaginary parts")


def _adjoint_checked(A: LinearMap) -> LinearMap:
    """Refuse a pair of products of which one is not the other's adjoint: everything else would fail silently."""
    x, z = _probes(A)
    Ax, ATz = A.apply(x), A.apply_adjoint(z)
    finite = bool(np.all(np.isfinite(Ax)) and np.all(np.isfinite(ATz)))
    require(finite, "products with A must be finite", "NaN or infinity", "check A")
    one, other = float(np.vdot(z, Ax)), float(np.vdot(ATz, x))
    scale = float(np.linalg.norm(z) * np.linalg.norm(Ax) + np.linalg.norm(ATz) * np.linalg.norm(x))
    tolerance = 100 * float(np.sqrt(np.finfo(A.dtype).eps)) * scale
    rule = "the second product of A must be the adjoint of the first: <A x, z> = <x, A^T z>"
    require(
        abs(one - other) <= tolerance, rule, f"{one:.6g} and {other:.6g} at a random x and z", "correct the adjoint"
    )
    return A


def _probes(A: LinearMap) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    k, n = A.shape
    return rng.normal(size=n).astype(A.dtype), rng.normal(size=k).astype(A.dtype)
