"""Compiled inner products per agent that follow an outer iteration of the gossip mode, in one pass.

Sums are pairwise in the order of NumPy, so results have the same bits as the plain code.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from gradslide.kernels.cached import cached
from gradslide.kernels.stamp import STAMP
from gradslide.kernels.vectors import load, store, widened

LANES = 16
# The products of a row, in the order of the results.
COUNT = 4

_options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def _compiled(stamp: int) -> Callable[..., None]:
    """Compile the loop over agents first, ..., end - 1.

    The compiled function takes flat arrays (m, d), and sets the rows of found, (m, COUNT), to <g, e> and |e|^2 with
    e = x_bar - x_under, <w, x_bar> and <w, x_bar_before>.
    """

    @cached
    def row_dots(
        first: Any, end: Any, d: Any, x_under: Any, g: Any, x_bar: Any, x_bar_before: Any, w: Any, found: Any
    ) -> None:
        products = np.empty(COUNT * d)
        whole = d - d % LANES
        for i in range(first, end if stamp else first):
            row = i * d
            for c in range(0, whole, LANES):
                at = row + c
                x, dual = load(x_bar, at, LANES), widened(load(w, at, LANES))
                e = widened(x - load(x_under, at, LANES))
                store(products, c, widened(load(g, at, LANES)) * e)
                store(products, d + c, e * e)
                store(products, 2 * d + c, dual * widened(x))
                store(products, 3 * d + c, dual * widened(load(x_bar_before, at, LANES)))
            for c in range(whole, d):
                at = row + c
                e, dual = np.float64(x_bar[at] - x_under[at]), np.float64(w[at])
                products[c] = g[at] * e
                products[d + c] = e * e
                products[2 * d + c] = dual * x_bar[at]
                products[3 * d + c] = dual * x_bar_before[at]
            for k in range(COUNT):
                found[i, k] = _pairwise(products, k * d, d)

    return row_dots


@njit(**_options)
def _pairwise(a: Any, start: Any, n: Any) -> Any:
    """Return the sum of n entries in the order in which NumPy adds them."""
    if n < 8:
        total = 0.0
        for i in range(start, start + n):
            total += a[i]
        return total
    if n > 128:
        half = n // 2
        half -= half % 8
        return _pairwise(a, start, half) + _pairwise(a, start + half, n - half)
    s0, s1, s2, s3 = a[start], a[start + 1], a[start + 2], a[start + 3]
    s4, s5, s6, s7 = a[start + 4], a[start + 5], a[start + 6], a[start + 7]
    end = start + n - n % 8
    for i in range(start + 8, end, 8):
        s0 += a[i]
        s1 += a[i + 1]
        s2 += a[i + 2]
        s3 += a[i + 3]
        s4 += a[i + 4]
        s5 += a[i + 5]
        s6 += a[i + 6]
        s7 += a[i + 7]
    total = ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))
    for i in range(end, start + n):
        total += a[i]
    return total


row_dots = _compiled(STAMP)
