"""Triton functions: prox steps of the rows in a block, onto the sets that `sets` describes."""

import triton
import triton.language as tl

from gradslide.kernels import sets

INTERVALS, L2_BALL, SIMPLEX = tl.constexpr(sets.INTERVALS), tl.constexpr(sets.L2_BALL), tl.constexpr(sets.SIMPLEX)
# Whether a parameter of the set has no effect, is shared by all agents, or differs between them.
ABSENT, SHARED, OWN = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def parameter(values, at, columns, inside, is_column, KIND: tl.constexpr):
    if KIND == OWN:
        found = tl.load(values + at, mask=inside, other=0.0)
    else:
        found = tl.load(values + columns, mask=is_column, other=0.0)[None, :]
    return found


@triton.jit
def _sum(v):
    """The sums of rows, in double precision."""
    return tl.sum(v.to(tl.float64), axis=1)


@triton.jit
def _on_simplex(v, is_column, total):
    """The projections of rows on {x >= 0, sum x = total}, by Michelot's algorithm.

    Comparisons let NaN pass: the threshold of its row becomes NaN and stays so.
    """
    v = tl.where(is_column[None, :], v, float("-inf"))
    # With the largest entry at 0, no digits are lost, and the threshold lies between -total and 0.
    v -= tl.max(v, axis=1)[:, None]
    threshold = -total
    count = tl.full((v.shape[0],), v.shape[1] + 1, tl.int32)
    falls = 1
    while falls > 0:
        is_below = v < threshold[:, None]
        left = tl.sum(tl.where(is_below, 0, 1), axis=1)
        found = ((_sum(tl.where(is_below, 0.0, v)) - total) / left).to(v.dtype)
        # It never falls, whatever the rounding, so that the loop ends.
        threshold = tl.where(found < threshold, threshold, found)
        falls = tl.max((left < count).to(tl.int32), axis=0)
        count = left
    v -= threshold[:, None]
    return tl.where(v < 0, 0.0, v)


@triton.jit
def _projected(v, origin, radius, is_column, SET: tl.constexpr):
    """The projections of whole rows on a ball around `origin`, or on a simplex with total `radius`."""
    if SET == SIMPLEX:
        found = _on_simplex(v, is_column, radius)
    else:
        offset = tl.where(is_column[None, :], v - origin, 0.0)
        if SET == L2_BALL:
            wide = offset.to(tl.float64)
            distance = tl.sqrt(tl.sum(wide * wide, axis=1))
            is_outside = distance > radius
            factor = tl.where(is_outside, radius / tl.where(is_outside, distance, 1.0), 1.0).to(v.dtype)
            found = origin + factor[:, None] * offset
        else:
            size = tl.abs(offset)
            on_sphere = _on_simplex(size, is_column, radius)
            on_sphere = tl.where(offset < 0, -on_sphere, on_sphere)
            found = origin + tl.where((_sum(size) > radius)[:, None], on_sphere, offset)
    return found


@triton.jit
def prox(
    v,
    step,
    weight,
    lo,
    hi,
    origin,
    radius,
    at,
    columns,
    inside,
    is_column,
    WEIGHT: tl.constexpr,
    LO: tl.constexpr,
    HI: tl.constexpr,
    ORIGIN: tl.constexpr,
    SET: tl.constexpr,
):
    """argmin over X of r(x) + |x - v|^2/(2 step). WEIGHT, ..., ORIGIN: ABSENT, SHARED or OWN.

    `radius` has one number per row. Comparisons let NaN pass. Sets other than intervals need whole rows.
    """
    if WEIGHT != ABSENT:
        threshold = step * parameter(weight, at, columns, inside, is_column, WEIGHT)
        v = tl.where(v > threshold, v - threshold, tl.where(v < -threshold, v + threshold, tl.where(v == v, 0.0, v)))
    if LO != ABSENT:
        least = parameter(lo, at, columns, inside, is_column, LO)
        v = tl.where(v < least, least, v)
    if HI != ABSENT:
        most = parameter(hi, at, columns, inside, is_column, HI)
        v = tl.where(v > most, most, v)
    if SET != INTERVALS:
        around = tl.zeros(v.shape, dtype=v.dtype)
        if ORIGIN != ABSENT:
            around += parameter(origin, at, columns, inside, is_column, ORIGIN)
        v = _projected(v, around, radius, is_column, SET)
    return v
