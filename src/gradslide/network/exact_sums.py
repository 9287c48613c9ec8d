"""Sums whose bits do not depend on who adds up what, in which order.

Every number is cut into two pieces on grids so coarse that sums of the pieces are exact, and exact sums have no order
(Demmel, Nguyen, "Parallel reproducible summation", 2015). What is left over is below the rounding of any plain sum.
"""

from collections.abc import Callable

import numpy as np

from gradslide._types import Array

_PIECES = 2
# Bits of a double, less the one that a rounded sum may need.
_BITS = 52
# Beyond this the grids themselves would overflow.
_HUGE = 2.0**900

Reduce = Callable[[Array], Array]


def exact_sum(values: Array, count: int, largest: Reduce, add: Reduce) -> Array:
    """The sum over the rows of all processes, in the precision of the values, though worked out in double. values: the
    rows here, (n, ...); count: rows in all.

    largest, add: the entrywise maximum, and sum, over all processes.
    """
    dtype, values = values.dtype, values.astype(np.float64, copy=False)
    size = np.max(np.abs(values), axis=0, initial=0.0)
    # Not a number counts as infinite: no maximum over processes would show it for certain.
    size = largest(np.where(np.isfinite(size), size, np.inf))
    if not np.all(size <= _HUGE):
        return add(np.sum(values, axis=0)).astype(dtype)
    exponent = np.frexp(size)[1]
    room = int(count).bit_length() + 1
    pieces = []
    for _ in range(_PIECES):
        grid = np.ldexp(1.5, exponent + room)
        piece = (values + grid) - grid
        pieces.append(np.sum(piece, axis=0))
        values = values - piece
        exponent = exponent + room - _BITS
    first, second = add(np.stack(pieces))
    return np.asarray(first + second, dtype=dtype)
