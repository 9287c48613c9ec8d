"""What the kernels for a GPU have in common."""

import ctypes
import importlib.util
import math
import os
from contextlib import AbstractContextManager, nullcontext

import array_api_compat as compat

from gradslide._support.types import Tensor

# Numbers of up to so many binary digits before or behind the point have both parts in single precision.
_ORDINARY = 60
_NOTHING = nullcontext()


def has_kernels(x: Tensor) -> bool:
    """Return whether x is a PyTorch array on a GPU with Triton, or on its interpreter."""
    if not compat.is_torch_array(x) or importlib.util.find_spec("triton") is None:
        return False
    return bool(x.is_cuda) or os.environ.get("TRITON_INTERPRET") == "1"


def on_device_of(x: Tensor) -> AbstractContextManager[object]:
    """Make the GPU of x the current one: there Triton launches kernels, wherever their arguments are."""
    import torch

    if not x.is_cuda or x.device.index == torch.cuda.current_device():
        return _NOTHING
    return torch.cuda.device(x.device)


def parts(number: float) -> tuple[float, float, float]:
    """Return three numbers of single precision, as Triton passes them.

    The sum of the first two is this one to 48 bits, times 2 to the power of the third, which is 0 unless the number
    is very large or small.
    """
    mantissa, exponent = math.frexp(number) if math.isfinite(number) else (number, 0)
    if abs(exponent) <= _ORDINARY:
        mantissa, exponent = number, 0
    high = _single(mantissa)
    return high, _single(mantissa - high) if math.isfinite(high) else 0.0, float(exponent)


def _single(number: float) -> float:
    return ctypes.c_float(number).value
