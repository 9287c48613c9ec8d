"""Compiled inner products per agent that follow the exchanges of the gossip mode, in one pass.

Sums are pairwise in the order of NumPy, so results have the same bits as the plain code.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from gradslide.kernels.cached import cached
from gradslide.kernels.stamp import STAMP
from gradslide.kernels.vectors import entry, load, splat, widened

# The products of a row, in the order of the results.
COUNT = 7
# NumPy adds up to so many numbers with eight accumulators; longer rows are halved.
_BLOCK = 128
# Deep enough for 2^40 columns.
_DEEP = 128

_options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}


def _products(n: int) -> Callable[..., Any]:
    """The products of n neighbouring columns of an agent."""

    @njit(**_options, forceinline=True)
    def products(arrays: Any, at: Any, share: Any, inverse: Any) -> Any:
        x, x_bar_before, y, g, w, x_bar = arrays
        before, new, dual = load(x_bar_before, at, n), load(x_bar, at, n), load(w, at, n)
        under = before + splat(share, n) * (load(x, at, n) - before)
        slope = load(g, at, n)
        step = slope + dual
        e, wide, point = widened(new - under), widened(dual), widened(under)
        return (
            widened(slope) * e,
            e * e,
            wide * widened(new),
            wide * widened(before),
            widened(step) * widened(step * splat(inverse, n)),
            point * widened(load(y, at, n)),
            point * point,
        )

    return products


_eight, _one = _products(8), _products(1)


@njit(**_options, forceinline=True)
def _total(strands: Any) -> Any:
    return ((entry(strands, 0) + entry(strands, 1)) + (entry(strands, 2) + entry(strands, 3))) + (
        (entry(strands, 4) + entry(strands, 5)) + (entry(strands, 6) + entry(strands, 7))
    )


@njit(**_options)
def _add_block(arrays: Any, at: Any, n: Any, share: Any, inverse: Any, out: Any, to: Any) -> None:
    """Sums over n <= _BLOCK columns, with eight accumulators."""
    whole = n - n % 8
    for k in range(to, to + COUNT):
        out[k] = 0.0
    if whole > 0:
        s0, s1, s2, s3, s4, s5, s6 = _eight(arrays, at, share, inverse)
        for c in range(at + 8, at + whole, 8):
            p0, p1, p2, p3, p4, p5, p6 = _eight(arrays, c, share, inverse)
            s0, s1, s2, s3, s4, s5, s6 = s0 + p0, s1 + p1, s2 + p2, s3 + p3, s4 + p4, s5 + p5, s6 + p6
        out[to], out[to + 1], out[to + 2], out[to + 3] = _total(s0), _total(s1), _total(s2), _total(s3)
        out[to + 4], out[to + 5], out[to + 6] = _total(s4), _total(s5), _total(s6)
    for c in range(at + whole, at + n):
        q0, q1, q2, q3, q4, q5, q6 = _one(arrays, c, share, inverse)
        out[to] += entry(q0, 0)
        out[to + 1] += entry(q1, 0)
        out[to + 2] += entry(q2, 0)
        out[to + 3] += entry(q3, 0)
        out[to + 4] += entry(q4, 0)
        out[to + 5] += entry(q5, 0)
        out[to + 6] += entry(q6, 0)


@njit(**_options)
def _add_row(arrays: Any, at: Any, n: Any, share: Any, inverse: Any, out: Any, ranges: Any) -> None:
    """Sums over n columns by recursive halves, with a stack: numba does not cache functions that call themselves.

    ranges: pairs of a start and a length, the next one on top; a length of 0 means: add the last two sums.
    """
    ranges[0], ranges[1], waiting, known = at, n, 1, 0
    while waiting > 0:
        waiting -= 1
        first, count = ranges[2 * waiting], ranges[2 * waiting + 1]
        if count == 0:
            known -= 1
            for k in range((known - 1) * COUNT, known * COUNT):
                out[k] += out[k + COUNT]
        elif count <= _BLOCK:
            _add_block(arrays, first, count, share, inverse, out, known * COUNT)
            known += 1
        else:
            half = count // 2
            half -= half % 8
            ranges[2 * waiting + 1] = 0
            ranges[2 * waiting + 2], ranges[2 * waiting + 3] = first + half, count - half
            ranges[2 * waiting + 4], ranges[2 * waiting + 5] = first, half
            waiting += 3


def _compiled(stamp: int) -> Callable[..., None]:
    """Compile the loop over agents first, ..., end - 1.

    The compiled function takes flat arrays (m, d): x, x_bar_before, y, g, w and x_bar. With
    x_under = x_bar_before + share (x - x_bar_before) and e = x_bar - x_under, it sets the rows of
    found, (m, COUNT), to <g, e>, |e|^2, <w, x_bar>, <w, x_bar_before>, <g + w, (g + w)/D>,
    <x_under, y> and |x_under|^2.
    """

    @cached
    def row_dots(first: Any, end: Any, d: Any, arrays: Any, share: Any, inverses: Any, found: Any) -> None:
        sums, ranges = np.empty(_DEEP * COUNT), np.empty(2 * _DEEP, np.intp)
        for i in range(first, end if stamp else first):
            _add_row(arrays, i * d, d, share, inverses[i], sums, ranges)
            for k in range(COUNT):
                found[i, k] = sums[k]

    return row_dots


row_dots = _compiled(STAMP)
