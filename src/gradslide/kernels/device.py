"""What the kernels for a GPU have in common."""

import ctypes
import importlib.util
import math
import os

import array_api_compat as compat

from gradslide._support.types import Tensor


def has_kernels(x: Tensor) -> bool:
    """Return whether x is a PyTorch array on a GPU with Triton, or on its interpreter."""
    if not compat.is_torch_array(x) or importlib.util.find_spec("triton") is None:
        return False
    return bool(x.is_cuda) or os.environ.get("TRITON_INTERPRET") == "1"


def parts(number: float) -> tuple[float, float]:
    """Return two numbers of single precision, as Triton passes them, whose sum is this one to 48 bits."""
    high = _single(number)
    return high, _single(number - high) if math.isfinite(high) else 0.0


def _single(number: float) -> float:
    return ctypes.c_float(number).value
