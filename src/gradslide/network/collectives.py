"""Reductions over the rows of all agents, with sums that do not depend on the order.

Every number is cut into two pieces on grids so coarse that sums of the pieces are exact, and exact
sums have no order (Demmel, Nguyen, "Parallel reproducible summation", 2015). The remainder is below
the rounding of any plain sum.
"""

import math
from collections.abc import Callable

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import is_numpy, to_numpy
from gradslide._support.errors import unknown_name
from gradslide._support.types import Array
from gradslide.network.protocol import Network, Reduction

# Bits of a double, less the one that a rounded sum may need.
_BITS = 52
# Beyond this the grids themselves would overflow.
_HUGE = 2.0**900
_BLOCK = 1 << 14
# Up to so many columns, a copy with long rows is worthwhile.
_NARROW = 64

REDUCTIONS = ("max", "or", "sum")
Reduce = Callable[[Array], Array]


def exact_sum(values: Array, count: int, largest: Reduce, add: Reduce) -> Array:
    """Sum over the rows of all processes, in double precision, rounded to that of the values.

    Parameters
    ----------
    values : array of shape (rows here, ...)
    count : int
        Rows in all processes.
    largest, add : callable
        The entrywise maximum, and sum, over all processes.
    """
    shape = values.shape[1:]
    if 0 in shape:
        return np.zeros(shape, dtype=values.dtype)
    # Blocks of rows that stay in the cache, one column after the other: sums of long rows are fast.
    columns = math.prod(shape)
    rows = max(1, _BLOCK // columns)
    blocks = [values[start : start + rows].reshape(-1, columns).T for start in range(0, len(values), rows)]
    if columns <= _NARROW:
        blocks = [np.ascontiguousarray(block) for block in blocks]
    sizes = [np.zeros(columns), *(np.abs(block).max(axis=1) for block in blocks)]
    size = np.maximum(*sizes) if len(sizes) == 2 else np.max(sizes, axis=0)
    # Not a number counts as infinite: no maximum over processes would show it for certain.
    if not np.isfinite(size).all():
        size = np.where(np.isfinite(size), size, np.inf)
    size = largest(size.reshape(shape)).reshape(-1, 1)
    is_plain = ~(size <= _HUGE)
    has_plain = bool(is_plain.any())
    exponent = np.frexp(np.where(is_plain, 0.0, size) if has_plain else size)[1]
    room = int(count).bit_length() + 1
    coarse, fine = np.ldexp(1.5, exponent + room), np.ldexp(1.5, exponent + 2 * room - _BITS)
    if has_plain:
        coarse, fine = np.where(is_plain, 0.0, coarse), np.where(is_plain, 0.0, fine)
    pieces = np.zeros((2, columns))
    for block in blocks:
        values_here = np.asarray(block, dtype=np.float64)
        piece = (values_here + coarse) - coarse
        pieces[0] += piece.sum(axis=1)
        if has_plain:
            with np.errstate(invalid="ignore"):
                rest = np.where(is_plain, 0.0, values_here - piece)
        else:
            rest = values_here - piece
        pieces[1] += ((rest + fine) - fine).sum(axis=1)
    first, second = add(pieces.reshape(2, *shape))
    return np.asarray(first + second, dtype=values.dtype)


def reduced(values: Array, reduction: str) -> Array:
    """Reduce the rows of all agents to one array of NumPy's."""
    if reduction not in REDUCTIONS:
        require_reduction(reduction)
    xp = np if is_numpy(values) else array_namespace(values)
    reduce = xp.max if reduction == "max" else xp.any if reduction == "or" else xp.sum
    return reduce(values, axis=0) if xp is np else to_numpy(reduce(values, axis=0))


def require_reduction(reduction: str) -> None:
    """Refuse an unknown reduction."""
    if reduction not in REDUCTIONS:
        raise unknown_name("reduction", reduction, list(REDUCTIONS))


def reduce_constant(network: Network, values: Array, reduction: Reduction) -> Array:
    """Reduce rows that do not change during a run, such as properties of domains.

    This is free where one user sees all agents; elsewhere the agents agree on it.
    """
    return network.session.observe(values, reduction) if network.session.sees_all else network.agree(values, reduction)
