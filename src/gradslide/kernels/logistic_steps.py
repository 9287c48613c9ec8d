"""Compiled inner loop of DCS for logistic losses: many gradient steps in one call."""

import math
import threading
from typing import Any

import numpy as np
from numba import njit, prange

from gradslide._support.types import Array

# Not every threading layer of numba supports calls from two Python threads at once.
_ONE_AT_A_TIME = threading.Lock()

# Sums may be taken in any order; NaN and infinity stay what they are.
_SUMS = {"reassoc", "contract", "nsz"}

# exp(v) = 2^k exp(v - k log 2). Adding _SHIFT to v/log 2 rounds it to a whole k, and leaves k in the lowest bits.
_SHIFT = 1.5 * 2.0**52
_LOG2_E = math.log2(math.e)
_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")  # so short that k times it is exact
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_BIAS, _MANTISSA_BITS = 1023, 52
# Beyond this the slope is 0 or 1 to all digits that matter, and 2^k is still an ordinary number.
_LARGEST = 700.0
_C = tuple(1 / math.factorial(k) for k in range(14))


def logistic_steps(
    signed: Array,
    ends: Array,
    weights: Array,
    start: Array,
    anchor: Array,
    pulls: Array,
    scales: Array,
    shares: Array,
) -> tuple[Array, Array]:
    """Return u_T and the weighted average of u_1, ..., u_T.

    u_t = (anchor + pull_t u - gradient(u))/scale_t at u = u_{t-1}, with u_0 = start.

    Parameters
    ----------
    signed : Array
        Rows y a of all agents, each agent's as one (p, n_i) block, flat.
    ends : Array
        Where each agent's rows end, shape (m,).
    weights : Array
        Of the rows, shape (n,).
    start, anchor : Array
        One row per agent, shape (m, p).
    pulls, scales : Array
        pull_t and scale_t, shape (T,).
    shares : Array
        The weight of u_t in the average so far, shape (T,).

    Returns
    -------
    tuple of Array
        u_T and the average, computed in float64, in the precision of `start`.
    """
    # Copies: for other layouts and read-only arrays numba would compile another version.
    u, u_hat, *given = (
        np.array(array, dtype=np.float64, order="C") for array in (start, start, weights, anchor, pulls, scales, shares)
    )
    with _ONE_AT_A_TIME:
        _all_agents(u, u_hat, signed, ends, *given)
    return u.astype(start.dtype, copy=False), u_hat.astype(start.dtype, copy=False)


@njit(parallel=True, nogil=True, cache=True, error_model="numpy")
def _all_agents(
    u: Any, u_hat: Any, signed: Any, ends: Any, weights: Any, anchor: Any, pulls: Any, scales: Any, shares: Any
) -> None:
    m, p = u.shape
    for i in prange(m):
        first, end = (ends[i - 1] if i > 0 else 0), ends[i]
        rows = signed[p * first : p * end].reshape(p, end - first)
        _one_agent(u[i], u_hat[i], rows, weights[first:end], anchor[i], pulls, scales, shares)


@njit(cache=True, error_model="numpy")
def _one_agent(u: Any, u_hat: Any, rows: Any, weights: Any, anchor: Any, pulls: Any, scales: Any, shares: Any) -> None:
    p, n = rows.shape
    margins, slopes, minus_gradient = np.empty(n), np.empty(n), np.empty(p)
    bits = slopes.view(np.int64)
    for t in range(len(pulls)):
        _margins(rows, u, margins)
        _falls(margins, weights, slopes, bits)
        _pull(rows, slopes, minus_gradient)
        for j in range(p):
            u[j] = (anchor[j] + pulls[t] * u[j] + minus_gradient[j]) / scales[t]
            u_hat[j] += shares[t] * (u[j] - u_hat[j])


@njit(cache=True, error_model="numpy", fastmath=_SUMS)
def _margins(rows: Any, u: Any, margins: Any) -> None:
    """margins <- rows^T u. Four features at a time: fewer passes over the margins."""
    p, n = rows.shape
    margins[:] = 0.0
    for j in range(0, p - 3, 4):
        a, b, c, d = rows[j], rows[j + 1], rows[j + 2], rows[j + 3]
        u_a, u_b, u_c, u_d = u[j], u[j + 1], u[j + 2], u[j + 3]
        for r in range(n):
            margins[r] += a[r] * u_a + b[r] * u_b + c[r] * u_c + d[r] * u_d
    for j in range(p - p % 4, p):
        a, u_a = rows[j], u[j]
        for r in range(n):
            margins[r] += a[r] * u_a


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def _falls(margins: Any, weights: Any, slopes: Any, bits: Any) -> None:
    """slopes <- weights/(1 + exp(margins)), in loops that vectorize; margins are overwritten.

    bits: an integer view of the slopes, not used in the loops that write them.
    """
    for r in range(len(margins)):
        v = margins[r]
        # NaN passes both tests.
        v = _LARGEST if v > _LARGEST else v
        v = -_LARGEST if v < -_LARGEST else v
        slopes[r] = v * _LOG2_E + _SHIFT
        k = slopes[r] - _SHIFT
        margins[r] = _exp_near_zero(v - k * _LN2_HIGH - k * _LN2_LOW)
    for r in range(len(margins)):
        bits[r] = (bits[r] + _BIAS) << _MANTISSA_BITS
    for r in range(len(margins)):
        slopes[r] = weights[r] / (1.0 + margins[r] * slopes[r])


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def _exp_near_zero(x: Any) -> Any:
    """exp(x) for |x| <= log(2)/2, to the last digit or two."""
    x2 = x * x
    x4 = x2 * x2
    low = (1.0 + x) + x2 * (_C[2] + _C[3] * x)
    middle = (_C[4] + _C[5] * x) + x2 * (_C[6] + _C[7] * x)
    high = (_C[8] + _C[9] * x) + x2 * (_C[10] + _C[11] * x) + x4 * (_C[12] + _C[13] * x)
    return low + x4 * middle + x4 * x4 * high


@njit(cache=True, error_model="numpy", fastmath=_SUMS)
def _pull(rows: Any, slopes: Any, out: Any) -> None:
    """out <- rows slopes. Four features at a time: fewer passes over the slopes."""
    p, n = rows.shape
    for j in range(0, p - 3, 4):
        a, b, c, d = rows[j], rows[j + 1], rows[j + 2], rows[j + 3]
        sum_a = sum_b = sum_c = sum_d = 0.0
        for r in range(n):
            sum_a += a[r] * slopes[r]
            sum_b += b[r] * slopes[r]
            sum_c += c[r] * slopes[r]
            sum_d += d[r] * slopes[r]
        out[j], out[j + 1], out[j + 2], out[j + 3] = sum_a, sum_b, sum_c, sum_d
    for j in range(p - p % 4, p):
        a, total = rows[j], 0.0
        for r in range(n):
            total += a[r] * slopes[r]
        out[j] = total
