"""Type names that all packages share."""

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy  # noqa: F401 - before its modules
import numpy.typing as npt
import scipy.sparse as sp

if TYPE_CHECKING:
    import torch

# Arrays of other libraries (CuPy, PyTorch, JAX) are used through the array API standard and typed as NumPy's.
Array: TypeAlias = npt.NDArray[Any]

# What NumPy turns into an array.
ArrayLike: TypeAlias = npt.ArrayLike

# A matrix of a network. On a device it is the library's own, with the same products.
Sparse: TypeAlias = sp.csr_array

# Features that users give; any format will do.
SparseInput: TypeAlias = sp.sparray | sp.spmatrix

# A PyTorch tensor, where its own methods are used; PyTorch need not be installed.
Tensor: TypeAlias = "torch.Tensor"

# What a file can hold, see `storage.flatten`: a nest of dataclasses, tuples, lists and dicts of arrays, numbers and
# strings. Who reads it back knows its form.
Storable: TypeAlias = object

# Anything that becomes a floating dtype: "float32", np.float64, np.dtype("f8").
DType: TypeAlias = npt.DTypeLike

# A device of PyTorch, CuPy or JAX, or its name for PyTorch; None stands for NumPy. It is only passed on and shown.
Device: TypeAlias = object

# A parameter that users give as a number or an array; an array once it is bound to a problem.
Parameter: TypeAlias = Array | float
