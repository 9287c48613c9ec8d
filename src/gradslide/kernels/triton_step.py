"""Triton kernel: one inner iteration of primal-dual sliding.

If X is a product of intervals, blocks of columns are processed one after the other, so that the
neighbours' rows of a block are in the cache. If X couples columns, a block holds whole rows.
"""

import triton
import triton.language as tl

from gradslide.kernels import sets

# Rows and columns of a block; a wide block, and the number of agents up to which its columns fit into the cache.
BLOCK, WIDE_BLOCK, WIDE_AGENTS = (16, 64), (16, 128), 1 << 15
# Entries of a block of whole rows, and its most rows.
WHOLE_ROWS, MOST_ROWS = 2048, 64
INTERVALS, L2_BALL, SIMPLEX = tl.constexpr(sets.INTERVALS), tl.constexpr(sets.L2_BALL), tl.constexpr(sets.SIMPLEX)
# Whether a parameter of the set has no effect, is shared by all agents, or differs between them.
ABSENT, SHARED, OWN = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def _read(place, mask):
    """Load values that will be evicted from the cache before they are needed again."""
    return tl.load(place, mask=mask, other=0.0, eviction_policy="evict_first")


@triton.jit
def _write(place, value, mask):
    tl.store(place, value, mask=mask, eviction_policy="evict_first")


@triton.jit
def _parameter(values, at, columns, inside, is_column, KIND: tl.constexpr):
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
def inner_iteration(
    u,
    u_next,
    x,
    w,
    anchor,
    x_sum,
    x_sum_sum,
    indptr,
    indices,
    data,
    center,
    weight,
    lo,
    hi,
    origin,
    radius,
    steps,
    base,
    offset,
    T,
    m,
    d,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    CENTER: tl.constexpr,
    WEIGHT: tl.constexpr,
    LO: tl.constexpr,
    HI: tl.constexpr,
    ORIGIN: tl.constexpr,
    SET: tl.constexpr,
):
    """x <- the next iterate, u_next <- its extrapolation (at the end, the iterate before it).

    This is iteration t = base + offset, counted from 0, of T. `steps` has rows (1/q, eta, scale,
    1/scale, next alpha). Sums are updated after every second iteration. CENTER, ..., ORIGIN: ABSENT,
    SHARED or OWN. `radius` has one number per agent. SET is the kind of set.
    """
    blocks = tl.cdiv(m, ROWS)
    rows = (tl.program_id(0) % blocks) * ROWS + tl.arange(0, ROWS)
    columns = (tl.program_id(0) // blocks) * COLUMNS + tl.arange(0, COLUMNS)
    is_row, is_column = rows < m, columns < d
    inside = is_row[:, None] & is_column[None, :]
    t = tl.load(base) + offset
    row_of_steps = steps + t * 5
    up, eta, scale = tl.load(row_of_steps), tl.load(row_of_steps + 1), tl.load(row_of_steps + 2)
    inverse, alpha = tl.load(row_of_steps + 3), tl.load(row_of_steps + 4)

    first = tl.load(indptr + rows, mask=is_row, other=0)
    count = tl.load(indptr + rows + 1, mask=is_row, other=0) - first
    total = tl.zeros((ROWS, COLUMNS), dtype=x.dtype.element_ty)
    for k in range(tl.max(count, axis=0)):
        there = k < count
        j = tl.load(indices + first + k, mask=there, other=0).to(tl.int64)
        a = tl.load(data + first + k, mask=there, other=0.0)
        near = u + j[:, None] * d + columns[None, :]
        seen = there[:, None] & is_column[None, :]
        total += a[:, None] * tl.load(near, mask=seen, other=0.0, eviction_policy="evict_last")

    at = rows.to(tl.int64)[:, None] * d + columns[None, :]
    old = _read(x + at, inside)
    w_new = _read(w + at, inside) + up * total
    _write(w + at, w_new, inside)
    theta = _read(anchor + at, inside) - w_new
    if CENTER == ABSENT:
        v = (eta * old + theta) * inverse
    else:
        middle = _parameter(center, at, columns, inside, is_column, CENTER)
        v = (scale * middle + (eta * (old - middle) + theta)) * inverse
    # Comparisons let NaN pass.
    if WEIGHT != ABSENT:
        threshold = inverse * _parameter(weight, at, columns, inside, is_column, WEIGHT)
        v = tl.where(v > threshold, v - threshold, tl.where(v < -threshold, v + threshold, tl.where(v == v, 0.0, v)))
    if LO != ABSENT:
        least = _parameter(lo, at, columns, inside, is_column, LO)
        v = tl.where(v < least, least, v)
    if HI != ABSENT:
        most = _parameter(hi, at, columns, inside, is_column, HI)
        v = tl.where(v > most, most, v)
    if SET != INTERVALS:
        around = tl.zeros((ROWS, COLUMNS), dtype=v.dtype)
        if ORIGIN != ABSENT:
            around += _parameter(origin, at, columns, inside, is_column, ORIGIN)
        v = _projected(v, around, tl.load(radius + rows, mask=is_row, other=1.0), is_column, SET)
    _write(x + at, v, inside)
    tl.store(u_next + at, tl.where(t + 1 == T, old, v + alpha * (v - old)), mask=inside)

    is_second = t % 2 == 1
    if is_second or t + 1 == T:
        one = _read(x_sum + at, inside)
        sums = _read(x_sum_sum + at, inside)
        if is_second:
            one += old
            sums += one
        one += v
        _write(x_sum + at, one, inside)
        _write(x_sum_sum + at, sums + one, inside)
