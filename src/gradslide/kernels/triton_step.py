"""Triton kernel: one inner iteration of primal-dual sliding.

If X is a product of intervals, blocks of columns are processed one after the other, so that the
neighbours' rows of a block are in the cache. If X couples columns, a block holds whole rows.
"""

import triton
import triton.language as tl

from gradslide.kernels.triton_sets import ABSENT, parameter, prox

# Rows and columns of a block; a wide block, and the number of agents up to which its columns fit into the cache.
BLOCK, WIDE_BLOCK, WIDE_AGENTS = (16, 64), (16, 128), 1 << 15


@triton.jit
def _read(place, mask):
    """Load values that will be evicted from the cache before they are needed again."""
    return tl.load(place, mask=mask, other=0.0, eviction_policy="evict_first")


@triton.jit
def _write(place, value, mask):
    tl.store(place, value, mask=mask, eviction_policy="evict_first")


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
        middle = parameter(center, at, columns, inside, is_column, CENTER)
        v = (scale * middle + (eta * (old - middle) + theta)) * inverse
    v = prox(
        v,
        inverse,
        weight,
        lo,
        hi,
        origin,
        tl.load(radius + rows, mask=is_row, other=1.0),
        at,
        columns,
        inside,
        is_column,
        WEIGHT,
        LO,
        HI,
        ORIGIN,
        SET,
    )
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
