"""Sums whose bits do not depend on who adds up what, in which order.

Every number is cut into two pieces on grids so coarse that sums of the pieces are exact, and exact sums have no order
(Demmel, Nguyen, "Parallel reproducible summation", 2015). What is left over is below the rounding of any plain sum.
"""

from collections.abc import Callable

import numpy as np

from gradslide._support.types import Array

_PIECES = 2
# Bits of a double, less the one that a rounded sum may need.
_BITS = 52
# Beyond this the grids themselves would overflow.
_HUGE = 2.0**900
_BLOCK = 1 << 14

Reduce = Callable[[Array], Array]


def exact_sum(values: Array, count: int, largest: Reduce, add: Reduce) -> Array:
    """The sum over the rows of all processes, in the precision of the values, though worked out in double. values: the
    rows here, (n, ...); count: rows in all.

    largest, add: the entrywise maximum, and sum, over all processes.
    """
    blocks = [slice(start, start + _rows(values)) for start in range(0, len(values), _rows(values))]
    sizes = [np.max(np.abs(values[block]), axis=0) for block in blocks] or [np.zeros(values.shape[1:])]
    size = np.max(np.asarray(sizes, dtype=np.float64), axis=0)
    # Not a number counts as infinite: no maximum over processes would show it for certain.
    size = largest(np.where(np.isfinite(size), size, np.inf))
    is_plain = ~(size <= _HUGE)
    exponent = np.frexp(np.where(is_plain, 0.0, size))[1]
    room = int(count).bit_length() + 1
    grids = [np.where(is_plain, 0.0, np.ldexp(1.5, exponent + k * (room - _BITS) + room)) for k in range(_PIECES)]
    pieces = np.zeros((_PIECES, *values.shape[1:]))
    for block in blocks:
        rest = values[block].astype(np.float64)
        for number, grid in enumerate(grids):
            piece = (rest + grid) - grid
            pieces[number] += np.sum(piece, axis=0)
            with np.errstate(invalid="ignore"):
                rest = np.where(is_plain, 0.0, rest - piece)
    first, second = add(pieces)
    return np.asarray(first + second, dtype=values.dtype)


def _rows(values: Array) -> int:
    """Of a block that stays in the cache."""
    return max(1, _BLOCK // max(1, int(values[:1].size)))
