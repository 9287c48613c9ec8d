"""Compiled Euclidean projections of one row, with the same bits as those in `gradslide.domains`."""

import math
from typing import Any

import numpy as np
from numba import njit

from gradslide.kernels.sets import L1_BALL, L2_BALL, SIMPLEX
from gradslide.kernels.vectors import entry, load

_options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
# Up to this length NumPy sums with eight accumulators; longer arrays are halved. The stack is deep enough for 2^64.
_BLOCK, _DEEP = 128, 128


@njit(**_options)
def pairwise_sum(v: Any, n: Any) -> Any:
    """Return v[0] + ... + v[n - 1], summed in the order of NumPy.

    That is by recursive halves, with eight accumulators for each block.
    """
    if n <= _BLOCK:
        return _block_sum(v, 0, n)
    # A stack of ranges, the next one on top; a range of length 0 means: add the last two sums.
    first, length, sums = np.zeros(_DEEP, np.int64), np.zeros(_DEEP, np.int64), np.zeros(_DEEP, v.dtype)
    length[0], waiting, known = n, 1, 0
    while waiting > 0:
        waiting -= 1
        at, count = first[waiting], length[waiting]
        if count == 0:
            known -= 1
            sums[known - 1] += sums[known]
        elif count <= _BLOCK:
            sums[known] = _block_sum(v, at, count)
            known += 1
        else:
            half = count // 2
            half -= half % 8
            length[waiting] = 0
            first[waiting + 1], length[waiting + 1] = at + half, count - half
            first[waiting + 2], length[waiting + 2] = at, half
            waiting += 3
    return sums[0]


@njit(**_options)
def _block_sum(v: Any, first: Any, n: Any) -> Any:
    whole = n - n % 8 if n >= 8 else 0
    total = v.dtype.type(0.0)
    if n >= 8:
        strands = load(v, first, 8)
        for c in range(first + 8, first + whole, 8):
            strands = strands + load(v, c, 8)
        total = ((entry(strands, 0) + entry(strands, 1)) + (entry(strands, 2) + entry(strands, 3))) + (
            (entry(strands, 4) + entry(strands, 5)) + (entry(strands, 6) + entry(strands, 7))
        )
    for c in range(first + whole, first + n):
        total += v[c]
    return total


@njit(**_options)
def places(sets: Any, i: Any, d: Any) -> Any:
    """Return where center, weight, lo, hi and origin of agent i's set begin; all agents may share them."""
    return (
        i * d if len(sets[0]) > d else 0,
        i * d if len(sets[1]) > d else 0,
        i * d if len(sets[2]) > d else 0,
        i * d if len(sets[3]) > d else 0,
        i * d if len(sets[4]) > d else 0,
    )


@njit(**_options)
def project(v: Any, kind: Any, origin: Any, at: Any, radius: Any, work: Any, largest: Any) -> None:
    """v <- its projection, in place.

    origin[at:] is the centre of a ball; work and largest are as long as v.
    """
    n = len(v)
    if kind == SIMPLEX:
        _on_simplex(v, radius, largest)
    elif kind == L2_BALL:
        for c in range(n):
            v[c] -= origin[at + c]
            work[c] = v[c] * v[c]
        distance = math.sqrt(pairwise_sum(work, n))
        factor = radius / distance if distance > radius else v.dtype.type(1.0)
        for c in range(n):
            v[c] = origin[at + c] + factor * v[c]
    elif kind == L1_BALL:
        for c in range(n):
            v[c] -= origin[at + c]
            work[c] = abs(v[c])
        if pairwise_sum(work, n) > radius:
            _on_simplex(work, radius, largest)
            for c in range(n):
                v[c] = math.copysign(work[c], v[c])
        for c in range(n):
            v[c] = origin[at + c] + v[c]


@njit(**_options)
def _on_simplex(v: Any, total: Any, largest: Any) -> None:
    """v <- its projection on {x >= 0, sum x = total}."""
    n, top = len(v), v[0]
    for c in range(n):
        # NaN propagates to all entries.
        top = top if top >= v[c] else v[c]
    count = 0
    for c in range(n):
        v[c] -= top
        # Entries below -total end up at zero: the threshold is at least -total.
        if not v[c] < -total:
            largest[count] = -v[c]
            count += 1
    largest[:count].sort()
    gathered = v.dtype.type(0.0)
    threshold = -total
    for k in range(count):
        gathered += -largest[k]
        candidate = (gathered - total) / v.dtype.type(k + 1)
        if not -largest[k] > candidate:
            break
        threshold = candidate
    for c in range(n):
        v[c] -= threshold
        v[c] = v.dtype.type(0.0) if v[c] < 0 else v[c]
