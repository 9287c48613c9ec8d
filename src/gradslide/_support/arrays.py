"""Arrays of any library: conversion to and from devices, and operations that libraries spell
differently.
"""

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

import array_api_compat as compat
import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from gradslide._support.errors import InputError
from gradslide._support.types import Array, Device, DType, Sparse

# Entries of an array that are worked on together.
BLOCK = 1 << 15

# By the library that a device belongs to: who makes arrays there. PyTorch's may be named by a string.
_MAKERS = {
    "builtins": "array_api_compat.torch",
    "torch": "array_api_compat.torch",
    "cupy": "array_api_compat.cupy",
    "jaxlib": "jax.numpy",
}


_KNOWN: dict[type, bool] = {}


def _is_array(kind: type, x: object) -> bool:
    """Whether a library of arrays knows x; remembered for its type, as asking takes microseconds."""
    if kind not in _KNOWN:
        _KNOWN[kind] = bool(compat.is_array_api_obj(x))
    return _KNOWN[kind]


def is_numpy(x: object) -> bool:
    """Return whether x is a NumPy array, or an object that no array library knows."""
    return isinstance(x, np.ndarray | np.generic) or not _is_array(type(x), x)


def is_cuda(x: object) -> bool:
    """Return whether x is a PyTorch array on a GPU."""
    return compat.is_torch_array(x) and bool(cast(Any, x).is_cuda)


_NAMESPACES: dict[type, Any] = {}


def namespace(x: Any) -> Any:
    """Return the functions of an array's library, remembered for its type."""
    if isinstance(x, np.ndarray):
        return np
    if type(x) not in _NAMESPACES:
        _NAMESPACES[type(x)] = array_namespace(x)
    return _NAMESPACES[type(x)]


def to_numpy(x: npt.ArrayLike) -> Array:
    """Return the array as a NumPy array, without a copy where it is one; waits for the device
    otherwise.
    """
    if is_numpy(x):
        return np.asarray(x)
    foreign = cast(Any, x)
    if compat.is_torch_array(x):
        return foreign.detach().cpu().numpy()
    return np.asarray(foreign.get() if compat.is_cupy_array(x) else x)


def like(values: npt.ArrayLike, other: Array) -> Array:
    """Return the values as an array of another array's library and device, in their own precision.

    Arrays of a library other than NumPy stay where they are: a run has one device.
    """
    if is_numpy(other):
        return to_numpy(values)
    if not is_numpy(values):
        return cast(Array, values)
    return array_namespace(other).asarray(np.asarray(values), device=compat.device(other), copy=True)


def on_device(values: npt.ArrayLike, device: Device) -> Array:
    """Return the values as an array on a device, in their own precision.

    `device` is a name or device of PyTorch, or a device of JAX or CuPy; None for NumPy.
    """
    if device is None:
        return to_numpy(values)
    library = type(device).__module__.partition(".")[0]
    maker = importlib.import_module(_MAKERS.get(library, library))
    return maker.asarray(to_numpy(values), device=device, copy=True)


def checked_device(device: Device) -> Device:
    """Return the PyTorch device of that name; refuse one that is not available."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        raise InputError("a device needs PyTorch", repr(device), "install gradslide[torch], or leave it out") from None
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    # What a missing device raises depends on its kind, and on how PyTorch was built.
    except Exception as error:
        got = f"{device!r} ({str(error).partition('. ')[0].splitlines()[0]})"
        raise InputError("device must be one that PyTorch finds here", got, 'for example "cuda", or "cpu"') from None
    return found


def dtype_of(x: Array) -> np.dtype[Any]:
    """Return the dtype as NumPy's."""
    return np.dtype(x.dtype) if is_numpy(x) else np.dtype(str(x.dtype).rpartition(".")[2])


def as_dtype(x: Array, dtype: DType) -> Array:
    """Convert to a NumPy dtype; no copy where the array has it already."""
    if is_numpy(x):
        return np.asarray(x, dtype=dtype)
    xp = array_namespace(x)
    return xp.astype(x, getattr(xp, np.dtype(dtype).name), copy=False)


def doubles(x: Array) -> Array:
    """Convert to float64; JAX has it only where it is enabled."""
    if is_numpy(x):
        return np.asarray(x, dtype=np.float64)
    if str(x.dtype) == "torch.float64":
        return x
    xp = namespace(x)
    widest = xp.result_type(float) if type(x).__module__.startswith("jax") else xp.float64
    return xp.astype(x, widest, copy=False)


def copied(x: Array) -> Array:
    """Return a copy on the same device, without waiting for it."""
    return array_namespace(x).asarray(x, copy=True)


def wait_for(x: Array) -> None:
    """Wait until the device has computed x and everything queued before."""
    if not is_numpy(x):
        to_numpy(x[:1])


def is_writable_in_c_order(x: Array) -> bool:
    """Return whether x, of NumPy or PyTorch, may be overwritten as one flat array."""
    if is_numpy(x):
        return bool(x.flags.c_contiguous and x.flags.writeable)
    return bool(cast(Any, x).is_contiguous())


def _references(arrays: list[Array], k: int) -> int:
    return sys.getrefcount(arrays[k])


def _references_of_free() -> int | None:
    """Return `_references` of an array that only the list refers to; None if the interpreter does not count them."""
    arrays = [np.empty(0), np.empty(0)]
    held = arrays[1:]
    free, others = (_references(arrays, k) for k in range(2))
    return free if held and others == free + 1 else None


_FREE = _references_of_free()


class RecycledMemory:
    """New NumPy arrays in the memory of earlier ones that nobody refers to any more.

    A fresh array of some MB costs more to map into memory than to fill.
    """

    def __init__(self) -> None:
        # The one that was given out last comes last.
        self._arrays: list[Array] = []

    def empty(self, shape: tuple[int, ...], dtype: DType) -> Array:
        """Return an array with arbitrary contents; the caller owns it."""
        if _FREE is None:
            return np.empty(shape, dtype=dtype)
        arrays = self._arrays
        for k in range(len(arrays)):
            if _references(arrays, k) == _FREE and arrays[k].shape == shape and arrays[k].dtype == dtype:
                break
        else:
            arrays.append(np.empty(shape, dtype=dtype))
            return arrays[-1]
        arrays.append(arrays.pop(k))
        return arrays[-1]

    def release(self, spare: int) -> None:
        """Forget memory that nobody uses, but for a few arrays."""
        free = [k for k in range(len(self._arrays)) if _references(self._arrays, k) == _FREE]
        for k in reversed(free[: max(0, len(free) - spare)]):
            del self._arrays[k]


def without_columns(x: Array) -> Array:
    """Return an array with the rows of x and no columns. Unlike a slice, it does not keep the memory of x."""
    if is_numpy(x):
        return np.empty((len(x), 0), dtype=x.dtype)
    xp = array_namespace(x)
    return xp.empty((len(x), 0), dtype=x.dtype, device=compat.device(x))


def row_blocks(x: Array) -> Iterator[slice]:
    """Yield slices of rows that fit into the cache."""
    rows = max(1, BLOCK // max(1, x.size // max(1, len(x))))
    return (slice(first, first + rows) for first in range(0, len(x), rows))


def row_wise(work: Callable[..., Array], *arrays: Array, out: Array | None = None) -> Array:
    """Apply a row-wise function to NumPy arrays, a few rows at a time, in the cache.

    `out` is a NumPy array for the result and may be one of the arguments. Arrays of other libraries
    are passed to `work` as a whole.
    """
    first = arrays[0]
    if not is_numpy(first) or (out is None and first.size <= BLOCK):
        return work(*arrays)
    out = np.empty_like(first) if out is None else out
    for rows in row_blocks(first):
        out[rows] = work(*(each[rows] for each in arrays))
    return out


def dot(a: Array, b: Array) -> Array:
    """Return <a_i, b_i> per agent, in double precision."""
    if is_numpy(a) and a.size > BLOCK and a.shape == b.shape:
        return np.concatenate([_products(a[rows], b[rows]).sum(axis=1) for rows in row_blocks(a)])
    if is_numpy(a):
        return _products(a, b).sum(axis=1)
    return array_namespace(a, b).sum(doubles(a) * doubles(b), axis=1)


def _products(a: Array, b: Array) -> Array:
    """a times b in double precision: in single precision the products would be rounded, too."""
    return np.multiply(a, b, dtype=np.float64)


def lengths(rows: Array) -> Array:
    """Return |v_i|_2 per agent, in double precision."""
    return array_namespace(rows).linalg.vector_norm(doubles(rows), axis=1)


def vdot(a: Array, b: Array) -> Any:
    """Return the sum of a times b over all entries as a number; on a device in double precision, as an array."""
    if is_numpy(a) and is_numpy(b):
        return np.vdot(a, b)
    return array_namespace(a, b).sum(doubles(a) * doubles(b))


def length(v: Array) -> float:
    """Return the Euclidean norm of all entries, in double precision; waits for the device."""
    if is_numpy(v):
        return float(np.linalg.norm(np.asarray(v, dtype=np.float64)))
    return float(array_namespace(v).linalg.vector_norm(doubles(v)))


def total(values: Array) -> float:
    """Return the sum of all entries, in double precision; waits for the device."""
    if is_numpy(values):
        return float(np.sum(values, dtype=np.float64))
    return float(array_namespace(values).sum(doubles(values)))


def at_least(x: Array, least: float) -> Array:
    """Return max(x, least) without sending the number to the device as an array."""
    return np.maximum(x, least) if is_numpy(x) else array_namespace(x).clip(x, min=least)


def sparse_like(matrix: Sparse, other: Any) -> Sparse:
    """Convert a SciPy CSR matrix to the library, precision and device of another array."""
    matrix = matrix.astype(dtype_of(other), copy=False)
    if is_numpy(other):
        return matrix
    if compat.is_cupy_array(other):
        return importlib.import_module("cupyx.scipy.sparse").csr_matrix(matrix)
    if compat.is_jax_array(other):
        return importlib.import_module("jax.experimental.sparse").BCOO.from_scipy_sparse(matrix)
    torch = importlib.import_module("torch")
    parts = (torch.tensor(part, device=other.device) for part in (matrix.indptr, matrix.indices, matrix.data))
    with warnings.catch_warnings():
        # That they are new, and not checked.
        warnings.simplefilter("ignore")
        return torch.sparse_csr_tensor(*parts, size=matrix.shape)
