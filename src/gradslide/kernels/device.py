"""What the kernels for a GPU have in common."""

import ctypes
import importlib.util
import math
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import array_api_compat as compat

from gradslide._support.types import Tensor

# Numbers of up to so many binary digits before or behind the point have both parts in single precision.
_ORDINARY = 60
_NOTHING = nullcontext()
_Result = TypeVar("_Result")


class DeviceKernel:
    """A kernel for a GPU, which is always in use: there is nothing to compile in advance."""

    is_over = True

    def is_worthwhile(self, *sizes: int) -> bool:
        """Return True, whatever the sizes."""
        return True

    def time_plain(self, work: Callable[[], _Result]) -> _Result:
        """Run the plain code."""
        return work()


def has_kernels(x: Tensor) -> bool:
    """Return whether x is a PyTorch array on a GPU with Triton, or on its interpreter."""
    if not compat.is_torch_array(x) or importlib.util.find_spec("triton") is None:
        return False
    return bool(x.is_cuda) or os.environ.get("TRITON_INTERPRET") == "1"


def on_device_of(x: Tensor) -> AbstractContextManager[object]:
    """Make the GPU of x the current one: there Triton launches kernels, wherever their arguments are.

    Parameters
    ----------
    x : Tensor
        On a GPU, or on the CPU where kernels are interpreted.

    Returns
    -------
    context manager
        At its end the GPU is again the one before.
    """
    import torch

    if not x.is_cuda or x.device.index == torch.cuda.current_device():
        return _NOTHING
    return torch.cuda.device(x.device)


def parts(number: float) -> tuple[float, float, float]:
    """Return three numbers of single precision, as Triton passes them.

    Parameters
    ----------
    number : float
        In double precision.

    Returns
    -------
    high, low, exponent : float
        (high + low) 2^exponent is the number to 48 bits. The exponent is 0 unless the number is very large or small.
    """
    mantissa, exponent = math.frexp(number) if math.isfinite(number) else (number, 0)
    if abs(exponent) <= _ORDINARY:
        mantissa, exponent = number, 0
    high = _single(mantissa)
    return high, _single(mantissa - high) if math.isfinite(high) else 0.0, float(exponent)


def _single(number: float) -> float:
    return ctypes.c_float(number).value
