"""The operator A from an array, a sparse matrix, an operator or a pair of functions."""

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import array_api_compat as compat
import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace

from gradslide._support.arrays import (
    as_dtype,
    copied,
    doubles,
    dtype_of,
    is_numpy,
    on_device,
    sparse_like,
    to_numpy,
    vdot,
)
from gradslide._support.errors import InputError, kind_of, require
from gradslide._support.types import Array, Device, DType, Sparse
from gradslide.losses.devices import moved
from gradslide.problems.lsqr import lsqr
from gradslide.results.costs import Costs

Product = Callable[[Array], Array]
_RULE = "A must be a real matrix, a linear operator, or a pair of functions (forward, adjoint)"
_ITERATIONS, _TOLERANCE = 30, 1e-12


class LinearMap:
    """The products x (n,) -> A x (k,) and z (k,) -> A^T z (n,) in one dtype, on one device.

    `matrix` and `transposed` hold the entries where they are available: a dense array, a SciPy CSR
    matrix, or a CSR tensor of PyTorch. `device` is None for NumPy.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        dtype: DType,
        forward: Product,
        adjoint: Product,
        *,
        matrix: Any = None,
        transposed: Any = None,
        given: tuple[Product, Product] | None = None,
        device: Device = None,
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.matrix = matrix
        self.transposed = transposed
        self._forward = forward
        self._adjoint = adjoint
        self._given = given

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

        other = copy.copy(self)
        other._forward, other._adjoint = forward, adjoint
        return other

    def to(self, device: Device) -> "LinearMap":
        """Return the same map for arrays on a device; None for NumPy.

        Functions of users stay what they are, and are tried there.
        """
        if device == self.device:
            return self
        if self._given is not None:
            return _from_products(self.shape, self.dtype, *self._given, device)
        travels_over_host = device is None or is_csr_tensor(self.matrix)
        return _with_entries(self.entries() if travels_over_host else self.matrix, self.dtype, device)

    def entries(self) -> Any:
        """Return the entries as a NumPy array or a SciPy CSR matrix; None where they are not known."""
        if self.matrix is None or sp.issparse(self.matrix):
            return self.matrix
        return _csr_of(self.matrix) if is_csr_tensor(self.matrix) else to_numpy(self.matrix)

    def fingerprint(self) -> str:
        """Distinguish maps by products with a fixed vector, to digits that do not depend on the
        machine.
        """
        x, z = _probes(self)
        # Devices need not add up in the same order twice.
        digits = 3 if self.device is not None and self.dtype == np.float32 else 7
        return f"{self.shape} {float(vdot(z, self.apply(x))):.{digits}e}"


def linear_map(A: Any, n: int, dtype: DType, device: Device = None) -> LinearMap:
    """Return A as a map from vectors of n entries.

    Parameters
    ----------
    A : array_like, sparse matrix, LinearOperator, PyLops operator, or pair of callables
        Anything with shape, matvec and rmatvec will do; or (x -> A x, z -> A^T z) for flat arrays.
        A flat array is one row.
    n : int
        Number of columns.
    dtype : dtype
        Precision of products.
    device : device or None
        Where the products are computed; entries are moved there. None for NumPy.

    Returns
    -------
    LinearMap

    Raises
    ------
    InputError
        If A is none of these, or an operator that does not compute on the device.
    """
    if isinstance(A, type):
        raise InputError(_RULE, kind_of(A), "give an instance of it")
    if isinstance(A, tuple | list) and len(A) == 2 and all(callable(part) for part in A):
        forward, adjoint = A
        found = _called("forward", forward, on_device(np.zeros(n, dtype=dtype), device))
        rows = np.size(found) if is_numpy(found) else math.prod(found.shape)
        return _from_products(_checked_shape((rows, n), n), dtype, forward, adjoint, device)
    if hasattr(A, "tocsr") and hasattr(A, "nnz"):
        require(len(A.shape) == 2, _RULE, f"shape {A.shape}", "give a (k, n) matrix")
        return _from_matrix(A.tocsr(), n, dtype, device)
    if hasattr(A, "rmatvec") and hasattr(A, "matvec"):
        require(len(A.shape) == 2, _RULE, f"shape {A.shape}", "give a (k, n) operator")
        return _from_products(_checked_shape(A.shape, n), dtype, A.matvec, A.rmatvec, device)
    if not is_numpy(A):
        return _from_foreign(A, n, dtype, device)
    try:
        matrix = np.asarray(A)
    except ValueError:
        matrix = np.asarray(None)
    got = f"shape {matrix.shape} of {matrix.dtype}" if matrix.dtype != object else kind_of(A)
    if matrix.ndim == 1 and matrix.dtype.kind in "fiub":
        # One row, as in scipy.optimize.LinearConstraint.
        matrix = matrix[None]
    require(matrix.ndim == 2 and matrix.dtype.kind in "fiub", _RULE, got, "for example a (k, n) array")
    return _from_matrix(matrix, n, dtype, device)


def least_squares(A: LinearMap, target: Array, *, adjoint: bool = False) -> Array:
    """Approximate the shortest v with the smallest |A v - target| or |A^T v - target|: 30 LSQR
    steps.
    """
    products = (A.apply_adjoint, A.apply) if adjoint else (A.apply, A.apply_adjoint)
    if A.device is not None:
        forward, backward = (lambda v, f=f: doubles(f(as_dtype(v, A.dtype))) for f in products)
        return lsqr(forward, backward, doubles(target), iterations=_ITERATIONS, tolerance=_TOLERANCE)
    from scipy.sparse import linalg

    forward, backward = (lambda v, product=product: product(v.astype(A.dtype)) for product in products)
    shape = A.shape[::-1] if adjoint else A.shape
    operator = linalg.LinearOperator(shape, matvec=forward, rmatvec=backward, dtype=np.float64)
    target = np.asarray(target, dtype=np.float64)
    found: Array = linalg.lsqr(operator, target, atol=_TOLERANCE, btol=_TOLERANCE, iter_lim=_ITERATIONS)[0]
    return found


def is_csr_tensor(matrix: Any) -> bool:
    """Return whether this is a CSR matrix on a device: a sparse tensor of PyTorch."""
    return "sparse" in str(getattr(matrix, "layout", ""))


def _csr_of(matrix: Any) -> Sparse:
    """A sparse tensor of PyTorch as a SciPy matrix."""
    with warnings.catch_warnings():
        # That they are new.
        warnings.simplefilter("ignore")
        rows = matrix.detach().to_sparse_csr()
    parts = (to_numpy(part) for part in (rows.values(), rows.col_indices(), rows.crow_indices()))
    return sp.csr_array(tuple(parts), shape=tuple(rows.shape))


def _from_matrix(matrix: Any, n: int, dtype: DType, device: Device) -> LinearMap:
    """A map from the entries as a NumPy array or a SciPy CSR matrix."""
    require(matrix.dtype.kind in "fiub", "A must be real", matrix.dtype, "split real and imaginary parts")
    _checked_shape(matrix.shape, n)
    matrix = matrix.astype(dtype, copy=False)
    entries = matrix.data if hasattr(matrix, "tocsr") else matrix
    require(bool(np.all(np.isfinite(entries))), "A must be finite", "NaN or infinity", "check A")
    return _with_entries(matrix, dtype, device)


def _from_foreign(A: Any, n: int, dtype: DType, device: Device) -> LinearMap:
    """A map from a matrix of PyTorch, CuPy or JAX, which stays where it is if the map is there."""
    require(len(A.shape) == 2, _RULE, f"shape {tuple(A.shape)}", "give a (k, n) matrix")
    if is_csr_tensor(A):
        return _from_matrix(_csr_of(A), n, dtype, device)
    if device is None:
        return _from_matrix(to_numpy(A), n, dtype, device)
    xp = array_namespace(A)
    is_real = xp.isdtype(A.dtype, ("bool", "integral", "real floating"))
    require(is_real, "A must be real", A.dtype, "split real and imaginary parts")
    _checked_shape(A.shape, n)
    require(bool(xp.all(xp.isfinite(A))), "A must be finite", "NaN or infinity", "check A")
    return _with_entries(as_dtype(A.detach() if compat.is_torch_array(A) else A, dtype), dtype, device)


def _with_entries(matrix: Any, dtype: DType, device: Device) -> LinearMap:
    """A map from entries that were checked, moved to the device."""
    transposed: Any
    if device is not None:
        home = on_device(np.empty(0, dtype=dtype), device)
        if sp.issparse(matrix):
            rule, remedy = "a sparse A on a device needs PyTorch", "move the loss: loss.to(device)"
            require(compat.is_torch_array(home), rule, str(device), remedy)
            if not matrix.has_canonical_format:
                matrix = matrix.copy()
                matrix.sum_duplicates()
            matrix, transposed = sparse_like(matrix, home), sparse_like(matrix.T.tocsr(), home)
        else:
            matrix = moved(np.ascontiguousarray(matrix) if is_numpy(matrix) else matrix, home)
            transposed = matrix.T
    else:
        transposed = matrix.T.tocsr() if hasattr(matrix, "tocsr") else matrix.T
    shape = (int(matrix.shape[0]), int(matrix.shape[1]))
    products = (lambda x: matrix @ x, lambda z: transposed @ z)
    return LinearMap(shape, dtype, *products, matrix=matrix, transposed=transposed, device=device)


def _from_products(
    shape: tuple[int, int], dtype: DType, forward: Product, adjoint: Product, device: Device
) -> LinearMap:
    """A map from the user's functions, which are tried once."""
    k, n = shape
    products = _flat("forward", forward, k, dtype), _flat("adjoint", adjoint, n, dtype)
    A = LinearMap(shape, dtype, *products, given=(forward, adjoint), device=device)
    x, z = _probes(A)
    Ax, ATz = _tried("forward", forward, x, k, dtype), _tried("adjoint", adjoint, z, n, dtype)
    _require_adjoint(x, Ax, z, ATz)
    # A second look along A x, where the two sides do not cancel.
    _require_adjoint(x, Ax, Ax, A.apply_adjoint(Ax))
    return A


def _tried(name: str, product: Product, at: Array, size: int, dtype: DType) -> Array:
    """A first product, with a clear error where it fails."""
    found = _called(name, product, at)
    if is_numpy(at):
        found = to_numpy(found)
    xp, kind = array_namespace(found), dtype_of(found).kind
    rule = f"A's {name} product must hold finite real numbers"
    require(kind in "fiub", rule, f"type {found.dtype}", "check it")
    require(bool(xp.all(xp.isfinite(found))), rule, "NaN or infinity", "check it")
    return _flattened(name, found, size, dtype)


def _called(name: str, product: Product, at: Array) -> Any:
    try:
        found = product(at)
    except InputError:
        raise
    except Exception as error:
        if not is_numpy(at):
            raise _host_only(name, at, f"{type(error).__name__}: {error}") from error
        rule = f"A's {name} product must take a flat array of {at.size} entries"
        raise InputError(rule, f"{type(error).__name__}: {error}", "flatten and reshape inside it") from error
    if is_numpy(at):
        return found
    if is_numpy(found) or compat.device(found) != compat.device(at):
        raise _host_only(name, at, kind_of(found))
    return found


def _host_only(name: str, at: Array, got: str) -> InputError:
    """The error for an operator of NumPy's that is to compute on a device."""
    rule = f"an operator A for a problem on {compat.device(at)} must take and return arrays there"
    remedy = "give A as an array or a sparse matrix, or leave the problem on the host"
    return InputError(rule, f"{got} from its {name} product", remedy)


def _flat(name: str, product: Product, size: int, dtype: DType) -> Product:
    """The product as a new flat array of that size, in the problem's dtype."""

    def flat(v: Array) -> Array:
        found = product(v)
        return _flattened(name, to_numpy(found) if is_numpy(v) else found, size, dtype)

    return flat


def _flattened(name: str, found: Any, size: int, dtype: DType) -> Array:
    result = found.reshape(-1)
    if len(result) != size:
        rule = f"A's {name} product must have {size} entries"
        raise InputError(rule, len(result), "check forward and adjoint against each other")
    # A copy: some operators write into the same array each time.
    return result.astype(dtype) if is_numpy(result) else copied(as_dtype(result, dtype))


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
    x, Ax, z, ATz = (to_numpy(each) for each in (x, Ax, z, ATz))
    one, other = float(np.vdot(z, Ax)), float(np.vdot(ATz, x))
    scale = float(np.linalg.norm(z) * np.linalg.norm(Ax))
    rule = "the second product of A must be the adjoint of the first: <A x, z> = <x, A^T z>"
    close = abs(one - other) <= 100 * float(np.sqrt(np.finfo(x.dtype).eps)) * scale
    require(close, rule, f"{one:.6g} and {other:.6g} at a random x", "correct the adjoint")


def _probes(A: LinearMap) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    k, n = A.shape
    x, z = rng.normal(size=n).astype(A.dtype), rng.normal(size=k).astype(A.dtype)
    return on_device(x, A.device), on_device(z, A.device)
