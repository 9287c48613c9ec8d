"""Triton function: numbers that Triton would round to single precision."""

import triton
import triton.language as tl


@triton.jit
def number(high, low, exponent, KIND: tl.constexpr):
    """A number that was passed in `device.parts`."""
    mantissa = tl.full((), high, tl.float64) + tl.full((), low, tl.float64)
    return (mantissa * tl.exp2(tl.full((), exponent, tl.float64))).to(KIND)
