"""Data of a loss on a device: moving it, and rows of CSR matrices in PyTorch."""

import importlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import array_api_compat as compat
import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace

from gradslide._support.arrays import checked_device, is_numpy, like, to_numpy
from gradslide._support.types import Array, Device, Sparse, Tensor


class TorchRows:
    """CSR rows whose numbers are PyTorch tensors; indptr stays a NumPy array."""

    def __init__(self, data: Tensor, indices: Tensor, indptr: Array, columns: int) -> None:
        self.data, self.indices, self.indptr = data, indices, indptr
        self.shape = (len(indptr) - 1, columns)
        self.dtype = data.dtype

    @classmethod
    def of(cls, rows: Sparse, home: Array) -> "TorchRows":
        """Convert the rows of a SciPy CSR array; entries that are stored twice are added up."""
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
        return cls(moved(rows.data, home), moved(rows.indices, home), rows.indptr, rows.shape[1])

    @classmethod
    def stacked(cls, parts: "Sequence[TorchRows]") -> "TorchRows":
        """Stack rows vertically."""
        xp = array_namespace(parts[0].data)
        lengths = np.concatenate([np.diff(part.indptr) for part in parts])
        data, indices = (xp.concat([getattr(part, name) for part in parts]) for name in ("data", "indices"))
        return cls(data, indices, np.concatenate([[0], np.cumsum(lengths)]), parts[0].shape[1])

    def __getitem__(self, rows: slice | Array) -> "TorchRows":
        if isinstance(rows, slice):
            first, last, _ = rows.indices(self.shape[0])
            inner = slice(int(self.indptr[first]), int(self.indptr[last]))
            indptr = self.indptr[first : last + 1] - self.indptr[first]
            return TorchRows(self.data[inner], self.indices[inner], indptr, self.shape[1])
        lengths = np.diff(self.indptr)[rows]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        at = moved(np.arange(indptr[-1]) + np.repeat(self.indptr[rows] - indptr[:-1], lengths), self.data)
        return TorchRows(self.data[at], self.indices[at], indptr, self.shape[1])

    def to_dense(self) -> Tensor:
        """Convert to a dense tensor."""
        (n, p), count = self.shape, int(self.indptr[-1])
        first = moved(np.arange(n) * p, self.data)
        at = first.repeat_interleave(moved(np.diff(self.indptr), self.data), output_size=count) + self.indices
        return self.data.new_zeros(n * p).index_copy_(0, at, self.data).reshape(n, p)

    def to_scipy(self) -> Sparse:
        """Convert to a SciPy CSR array."""
        return sp.csr_array((to_numpy(self.data), to_numpy(self.indices), self.indptr), shape=self.shape)


# Rows of features: a dense array of any library, a scipy CSR matrix, or TorchRows.
Features: TypeAlias = Any


def home_of(array: Features) -> Array | None:
    """Return an empty array on the device of this one; None for NumPy and SciPy."""
    if isinstance(array, TorchRows):
        array = array.data
    if sp.issparse(array) or is_numpy(array):
        return None
    return array_namespace(array).empty(0, dtype=array.dtype, device=compat.device(array))


def has_doubles(home: Array | None) -> bool:
    """Return whether Hessians are computed there: by NumPy (None) and PyTorch, which have double precision."""
    return home is None or compat.is_torch_array(home)


def torch_home(device: Device) -> Array:
    """Return an empty tensor on that device; refuse a device that is not available."""
    device = checked_device(device)
    return importlib.import_module("torch").empty(0, device=device)


def moved(array: Features, home: Array | None) -> Features:
    """Move an array, or CSR rows, to the device of `home`; no copy where they are there already."""
    if home is None:
        return array.to_scipy() if isinstance(array, TorchRows) else array if sp.issparse(array) else to_numpy(array)
    if isinstance(array, TorchRows):
        return TorchRows(moved(array.data, home), moved(array.indices, home), array.indptr, array.shape[1])
    if sp.issparse(array):
        return TorchRows.of(array, home)
    if is_numpy(array):
        array = np.asarray(array)
        if not compat.is_torch_array(home):
            return like(array, home)
        # PyTorch shares memory with NumPy, and knows no array that may not be written to.
        shared = array_namespace(home).from_numpy(array if array.flags.writeable else array.copy())
        return shared.to(home.device, non_blocking=True)
    if array_namespace(array) is not array_namespace(home):
        return like(to_numpy(array), home)
    return compat.to_device(array, compat.device(home))


def rows_at(array: Features, rows: slice | Array) -> Features:
    """Select rows of an array or of CSR rows; a view where they are consecutive."""
    if isinstance(rows, slice) or sp.issparse(array) or isinstance(array, TorchRows) or is_numpy(array):
        return array[rows]
    return array_namespace(array).take(array, moved(rows, array), axis=0)
