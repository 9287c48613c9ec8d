"""Triton kernel: one inner iteration of primal-dual sliding, for X a product of intervals.

Blocks of columns are processed one after the other, so that the neighbours' rows of a block are in
the cache.
"""

import triton
import triton.language as tl

# Rows and columns of a block; a wide block, and the number of agents up to which its columns fit into the cache.
BLOCK, WIDE_BLOCK, WIDE_AGENTS = (16, 64), (16, 128), 1 << 15
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
):
    """x <- the next iterate, u_next <- its extrapolation (at the end, the iterate before it).

    This is iteration t = base + offset, counted from 0, of T. `steps` has rows (1/q, eta, scale,
    1/scale, next alpha). Sums are updated after every second iteration. CENTER, ..., HI: ABSENT,
    SHARED or OWN.
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
