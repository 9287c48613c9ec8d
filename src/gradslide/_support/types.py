"""Type names that all packages share."""

from typing import Any, TypeAlias

import numpy.typing as npt

# Arrays of other libraries (CuPy, PyTorch, JAX) are used through the array API standard and typed as NumPy's.
Array: TypeAlias = npt.NDArray[Any]

# A scipy CSR matrix; scipy has no types.
Sparse: TypeAlias = Any

# A PyTorch tensor, where its own methods are used; PyTorch need not be installed.
Tensor: TypeAlias = Any

# What a file can hold, see `storage.flatten`: a nest of dataclasses, tuples, lists and dicts of arrays, numbers and
# strings. Who reads it back knows its form.
Storable: TypeAlias = object

# Anything that becomes a floating dtype: "float32", np.float64, np.dtype("f8").
DType: TypeAlias = npt.DTypeLike

# A device of PyTorch, CuPy or JAX, or its name for PyTorch; None stands for NumPy.
Device: TypeAlias = Any

# A parameter that users give as a number or an array; an array once it is bound to a problem.
Parameter: TypeAlias = Array | float
