"""Shared type names."""

from typing import Any, TypeAlias

# An array of the array API standard: NumPy, and where it costs nothing CuPy, PyTorch or JAX.
Array: TypeAlias = Any
