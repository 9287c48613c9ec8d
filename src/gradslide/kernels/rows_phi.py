"""Compiled slopes and values of rows from their scores, in loops that vectorize.

A row must give the same bits wherever it stands in a block: nothing may be reordered here, and
products are fused only with sums that contain no other product, so that there is one way to fuse
them.
"""

from typing import Any

from numba import njit

from gradslide.kernels.logistic_steps import (
    _BIAS,
    _LARGEST,
    _LN2_HIGH,
    _LN2_LOW,
    _LOG2_E,
    _MANTISSA_BITS,
    _SHIFT,
    _exp_near_zero,
)

LOGISTIC, RESIDUAL, HINGE = range(3)
GRADIENT, VALUE, KEEP, GIVEN, AHEAD = (1 << bit for bit in range(5))

# Called by compiled code only: without a Python wrapper it compiles faster.
INNER = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


@njit(**INNER)
def slopes_and_values(
    kind: Any, width: Any, targets: Any, first: Any, n: Any, want: Any, scores: Any, phi: Any, work: Any, bits: Any
) -> None:
    """Replace the scores of rows first, ..., first + n - 1 by slopes, and set phi.

    bits: an integer view of work.
    """
    if kind == LOGISTIC:
        _logistic(targets, first, n, want, scores, phi, work, bits)
    elif kind == HINGE:
        _hinge(width, targets, first, n, want, scores, phi)
    else:
        _residual(width, targets, first, n, want, scores, phi)


@njit(**INNER)
def weigh(weights: Any, first: Any, n: Any, want: Any, slopes: Any, phi: Any) -> None:
    for r in range(n):
        slopes[r] *= weights[first + r]
    if want & VALUE:
        for r in range(n):
            phi[r] *= weights[first + r]


@njit(**INNER, fastmath={"contract"})
def _logistic(targets: Any, first: Any, n: Any, want: Any, scores: Any, phi: Any, work: Any, bits: Any) -> None:
    # work <- exp(-|score|), at most 1.
    for r in range(n):
        v = -abs(scores[r])
        # NaN passes the test.
        v = -_LARGEST if v < -_LARGEST else v
        work[r] = v * _LOG2_E + _SHIFT
        k = work[r] - _SHIFT
        phi[r] = _exp_near_zero(v - k * _LN2_HIGH - k * _LN2_LOW)
    for r in range(n):
        bits[r] = (bits[r] + _BIAS) << _MANTISSA_BITS
    for r in range(n):
        work[r] *= phi[r]
    if want & VALUE:
        for r in range(n):
            margin = targets[first + r] * scores[r]
            phi[r] = _log1p(work[r]) + (-margin if margin < 0 else 0.0)
    for r in range(n):
        y = targets[first + r]
        scores[r] = -y * (work[r] if y * scores[r] > 0 else 1.0) / (1.0 + work[r])


@njit(**INNER, fastmath={"contract"})
def _log1p(e: Any) -> Any:
    """log(1 + e) = 2 artanh(e/(2 + e)) for 0 <= e <= 1, to the last digit or two."""
    s = e / (2.0 + e)
    z = s * s
    tail = 1 / 27 + z * (1 / 29 + z * (1 / 31 + z * (1 / 33 + z * (1 / 35))))
    tail = 1 / 17 + z * (1 / 19 + z * (1 / 21 + z * (1 / 23 + z * (1 / 25 + z * tail))))
    tail = 1 / 7 + z * (1 / 9 + z * (1 / 11 + z * (1 / 13 + z * (1 / 15 + z * tail))))
    return 2.0 * s * (1.0 + z * (1 / 3 + z * (1 / 5 + z * tail)))


@njit(**INNER)
def _residual(width: Any, targets: Any, first: Any, n: Any, want: Any, scores: Any, phi: Any) -> None:
    """Huber's loss; least squares where the width is infinite."""
    for r in range(n):
        residual = scores[r] - targets[first + r]
        size = abs(residual)
        if want & VALUE:
            phi[r] = width * (size - 0.5 * width) if size > width else 0.5 * size * size
        clipped = width if residual > width else residual
        scores[r] = -width if clipped < -width else clipped


@njit(**INNER)
def _hinge(width: Any, targets: Any, first: Any, n: Any, want: Any, scores: Any, phi: Any) -> None:
    for r in range(n):
        y = targets[first + r]
        shortfall = 1.0 - y * scores[r]
        shortfall = 0.0 if shortfall < 0 else shortfall
        clipped = width if shortfall > width else shortfall
        if want & VALUE:
            phi[r] = clipped * (shortfall - 0.5 * clipped) / width
        scores[r] = -y * clipped / width
