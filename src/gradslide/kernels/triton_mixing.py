"""Triton kernels: the exchanges of the gossip mode, inner products, and what follows from them.

They are the counterparts of `mixing_rows` and `row_dots`, and of `gradslide.methods.gossip.sums`.
Numbers that Triton would round to single precision are passed in `parts`.
"""

import triton
import triton.language as tl

from gradslide.kernels.triton_numbers import number

# Rows and columns of a block.
BLOCK = (16, 64)
# Entries of a block of `inner_products`, and its most columns.
DOTS, DOTS_COLUMNS = 2048, 256
# The inner products, in the order of the results.
COUNT = 9
# Agents of a block of `tally` and `completed`.
AGENTS = 128


@triton.jit
def _place(m, d, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The rows and columns of a block: blocks of the same columns follow each other."""
    blocks = tl.cdiv(m, ROWS)
    rows = (tl.program_id(0) % blocks) * ROWS + tl.arange(0, ROWS)
    columns = (tl.program_id(0) // blocks) * COLUMNS + tl.arange(0, COLUMNS)
    return rows, columns


@triton.jit
def _product(v, indptr, indices, data, rows, columns, m, d, KIND: tl.constexpr):
    """sum_j N_ij v_j."""
    is_row, is_column = rows < m, columns < d
    first = tl.load(indptr + rows, mask=is_row, other=0)
    count = tl.load(indptr + rows + 1, mask=is_row, other=0) - first
    total = tl.zeros((rows.shape[0], columns.shape[0]), dtype=KIND)
    for k in range(tl.max(count, axis=0)):
        there = k < count
        j = tl.load(indices + first + k, mask=there, other=0).to(tl.int64)
        a = tl.load(data + first + k, mask=there, other=0.0)
        near = v + j[:, None] * d + columns[None, :]
        total += a[:, None] * tl.load(near, mask=there[:, None] & is_column[None, :], other=0.0)
    return total


@triton.jit
def _prepared(x, g, w, at, scale, inside):
    """v = x - (g + w)/(p D)."""
    pull = tl.load(g + at, mask=inside, other=0.0) + tl.load(w + at, mask=inside, other=0.0)
    return tl.load(x + at, mask=inside, other=0.0) - (1.0 / scale)[:, None] * pull


@triton.jit
def start(
    x,
    g,
    w,
    D,
    v,
    step,
    q,
    p_high,
    p_low,
    p_exponent,
    first_high,
    first_low,
    first_exponent,
    m,
    d,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """v, and step = q = first v."""
    kind = x.dtype.element_ty
    rows, columns = _place(m, d, ROWS, COLUMNS)
    inside = (rows < m)[:, None] & (columns < d)[None, :]
    at = rows.to(tl.int64)[:, None] * d + columns[None, :]
    scale = number(p_high, p_low, p_exponent, kind) * tl.load(D + rows, mask=rows < m, other=1.0)
    here = _prepared(x, g, w, at, scale, inside)
    begun = number(first_high, first_low, first_exponent, kind) * here
    tl.store(v + at, here, mask=inside)
    tl.store(step + at, begun, mask=inside)
    tl.store(q + at, begun, mask=inside)


@triton.jit
def first_round(v, moved, q, u, indptr, indices, data, m, d, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """moved = -N q, u = v + moved."""
    rows, columns = _place(m, d, ROWS, COLUMNS)
    inside = (rows < m)[:, None] & (columns < d)[None, :]
    at = rows.to(tl.int64)[:, None] * d + columns[None, :]
    change = -_product(q, indptr, indices, data, rows, columns, m, d, v.dtype.element_ty)
    tl.store(moved + at, change, mask=inside)
    tl.store(u + at, tl.load(v + at, mask=inside, other=0.0) + change, mask=inside)


@triton.jit
def advance(
    u,
    moved,
    step,
    q,
    u_next,
    indptr,
    indices,
    data,
    a_high,
    a_low,
    a_exponent,
    b_high,
    b_low,
    b_exponent,
    m,
    d,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """step = a step + b u, moved = a moved - b N u, q = q + step, u_next = u + moved."""
    kind = u.dtype.element_ty
    rows, columns = _place(m, d, ROWS, COLUMNS)
    inside = (rows < m)[:, None] & (columns < d)[None, :]
    at = rows.to(tl.int64)[:, None] * d + columns[None, :]
    a, b = number(a_high, a_low, a_exponent, kind), number(b_high, b_low, b_exponent, kind)
    here = tl.load(u + at, mask=inside, other=0.0)
    stepped = a * tl.load(step + at, mask=inside, other=0.0) + b * here
    change = a * tl.load(moved + at, mask=inside, other=0.0)
    change -= b * _product(u, indptr, indices, data, rows, columns, m, d, kind)
    tl.store(step + at, stepped, mask=inside)
    tl.store(moved + at, change, mask=inside)
    tl.store(q + at, tl.load(q + at, mask=inside, other=0.0) + stepped, mask=inside)
    tl.store(u_next + at, here + change, mask=inside)


@triton.jit
def _average(bar, at, new, part, inside):
    before = tl.load(bar + at, mask=inside, other=0.0)
    return before + part * (new - before)


@triton.jit
def finish(
    u,
    q,
    x,
    y,
    g,
    s,
    w,
    x_bar,
    y_bar,
    w_bar,
    u_new,
    s_new,
    w_new,
    x_bar_new,
    y_bar_new,
    w_bar_new,
    D,
    p_high,
    p_low,
    p_exponent,
    share_high,
    share_low,
    share_exponent,
    damping_high,
    damping_low,
    damping_exponent,
    m,
    d,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """r = damping (v - u), u = v - r, s + p damping q, w + p D r, and the averages of u, y and w."""
    kind = u.dtype.element_ty
    rows, columns = _place(m, d, ROWS, COLUMNS)
    inside = (rows < m)[:, None] & (columns < d)[None, :]
    at = rows.to(tl.int64)[:, None] * d + columns[None, :]
    p, part = number(p_high, p_low, p_exponent, kind), number(share_high, share_low, share_exponent, kind)
    damping = number(damping_high, damping_low, damping_exponent, kind)
    scale = p * tl.load(D + rows, mask=rows < m, other=1.0)
    v = _prepared(x, g, w, at, scale, inside)
    r = damping * (v - tl.load(u + at, mask=inside, other=0.0))
    sums = p * (damping * tl.load(q + at, mask=inside, other=0.0))
    new = v - r
    dual = tl.load(w + at, mask=inside, other=0.0) + scale[:, None] * r
    slope = tl.load(y + at, mask=inside, other=0.0)
    tl.store(s_new + at, tl.load(s + at, mask=inside, other=0.0) + sums.to(s.dtype.element_ty), mask=inside)
    if (share_high == 1.0) & (share_low == 0.0):
        tl.store(x_bar_new + at, new, mask=inside)
        tl.store(y_bar_new + at, slope, mask=inside)
        tl.store(w_bar_new + at, dual, mask=inside)
    else:
        tl.store(x_bar_new + at, _average(x_bar, at, new, part, inside), mask=inside)
        tl.store(y_bar_new + at, _average(y_bar, at, slope, part, inside), mask=inside)
        tl.store(w_bar_new + at, _average(w_bar, at, dual, part, inside), mask=inside)
    tl.store(u_new + at, new, mask=inside)
    tl.store(w_new + at, dual, mask=inside)


@triton.jit
def inner_products(
    x,
    x_bar_before,
    y,
    g,
    w,
    x_bar,
    D,
    found,
    share_high,
    share_low,
    share_exponent,
    p_high,
    p_low,
    p_exponent,
    m,
    d,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The products of `row_dots`, <|w| + p D |x_bar|, |x_bar|> and |y|^2, (COUNT, m), in double precision."""
    kind = x.dtype.element_ty
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    is_row = rows < m
    share = number(share_high, share_low, share_exponent, kind)
    own = tl.load(D + rows, mask=is_row, other=1.0)
    inverse, scale = 1.0 / own, number(p_high, p_low, p_exponent, kind) * own
    linear = tl.zeros((ROWS, COLUMNS), dtype=tl.float64)
    squared = tl.zeros((ROWS, COLUMNS), dtype=tl.float64)
    at_bar = tl.zeros((ROWS, COLUMNS), dtype=tl.float64)
    at_before = tl.zeros((ROWS, COLUMNS), dtype=tl.float64)
    stationarity = tl.zeros((ROWS, COLUMNS), dtype=tl.float64)
    at_under = tl.zeros((ROWS, COLUMNS), dtype=tl.float64)
    under_squared = tl.zeros((ROWS, COLUMNS), dtype=tl.float64)
    drift = tl.zeros((ROWS, COLUMNS), dtype=tl.float64)
    y_squared = tl.zeros((ROWS, COLUMNS), dtype=tl.float64)
    for first in range(0, d, COLUMNS):
        columns = first + tl.arange(0, COLUMNS)
        inside = is_row[:, None] & (columns < d)[None, :]
        at = rows.to(tl.int64)[:, None] * d + columns[None, :]
        before = tl.load(x_bar_before + at, mask=inside, other=0.0)
        new = tl.load(x_bar + at, mask=inside, other=0.0)
        dual = tl.load(w + at, mask=inside, other=0.0)
        slope = tl.load(g + at, mask=inside, other=0.0)
        under = before + share * (tl.load(x + at, mask=inside, other=0.0) - before)
        moved = slope + dual
        e, wide, point = (new - under).to(tl.float64), dual.to(tl.float64), under.to(tl.float64)
        linear += slope.to(tl.float64) * e
        squared += e * e
        at_bar += wide * new.to(tl.float64)
        at_before += wide * before.to(tl.float64)
        stationarity += moved.to(tl.float64) * (moved * inverse[:, None]).to(tl.float64)
        gradient = tl.load(y + at, mask=inside, other=0.0).to(tl.float64)
        at_under += point * gradient
        y_squared += gradient * gradient
        drift += (tl.abs(dual) + scale[:, None] * tl.abs(new)).to(tl.float64) * tl.abs(new).to(tl.float64)
        under_squared += point * point
    tl.store(found + rows, tl.sum(linear, axis=1), mask=is_row)
    tl.store(found + m + rows, tl.sum(squared, axis=1), mask=is_row)
    tl.store(found + 2 * m + rows, tl.sum(at_bar, axis=1), mask=is_row)
    tl.store(found + 3 * m + rows, tl.sum(at_before, axis=1), mask=is_row)
    tl.store(found + 4 * m + rows, tl.sum(stationarity, axis=1), mask=is_row)
    tl.store(found + 5 * m + rows, tl.sum(at_under, axis=1), mask=is_row)
    tl.store(found + 6 * m + rows, tl.sum(under_squared, axis=1), mask=is_row)
    tl.store(found + 7 * m + rows, tl.sum(drift, axis=1), mask=is_row)
    tl.store(found + 8 * m + rows, tl.sum(y_squared, axis=1), mask=is_row)


@triton.jit
def tally(
    linear,
    d_squared,
    at_bar,
    at_before,
    at_under,
    under_squared,
    drift,
    y_squared,
    stationarity,
    coupling,
    stationarity_last,
    coupling_last,
    D,
    value_under,
    value_before,
    conjugate_bar,
    r_bar,
    r_before,
    found,
    share_high,
    share_low,
    share_exponent,
    eps,
    gradient_rounding,
    rounding_high,
    rounding_low,
    rounding_exponent,
    m,
    HAS_BAR: tl.constexpr,
    HAS_PENALTY: tl.constexpr,
    IS_SINGLE: tl.constexpr,
    AGENTS: tl.constexpr,
):
    """The fields of `sums.Sums`, and conjugates, reach and the average of conjugates: (14, m)."""
    i = tl.program_id(0) * AGENTS + tl.arange(0, AGENTS)
    there = i < m
    to = found + i
    slope, squared = tl.load(linear + i, mask=there), tl.load(d_squared + i, mask=there)
    lagrangian, before = tl.load(at_bar + i, mask=there), tl.load(at_before + i, mask=there)
    if HAS_PENALTY:
        lagrangian += tl.load(r_bar + i, mask=there)
        before += tl.load(r_before + i, mask=there)
    magnitude = tl.abs(slope)
    if IS_SINGLE:
        rounding = number(rounding_high, rounding_low, rounding_exponent, tl.float64)
        length = tl.sqrt(tl.load(y_squared + i, mask=there)) * tl.sqrt(squared)
        magnitude += tl.full((), gradient_rounding, tl.float64) * length / rounding
        tl.store(to + 9 * m, tl.full((), eps, tl.float64) * tl.load(drift + i, mask=there), mask=there)
        tl.store(to + 10 * m, 0.0 * length, mask=there)
    tl.store(to, -slope, mask=there)
    tl.store(to + m, tl.load(D + i, mask=there).to(tl.float64) * squared, mask=there)
    tl.store(to + 2 * m, magnitude, mask=there)
    tl.store(to + 3 * m, lagrangian, mask=there)
    tl.store(to + 4 * m, tl.load(value_before + i, mask=there) + before, mask=there)
    tl.store(to + 5 * m, tl.load(stationarity + i, mask=there), mask=there)
    tl.store(to + 6 * m, tl.load(coupling + i, mask=there), mask=there)
    tl.store(to + 7 * m, tl.load(stationarity_last + i, mask=there), mask=there)
    tl.store(to + 8 * m, tl.load(coupling_last + i, mask=there), mask=there)
    conjugate = tl.load(at_under + i, mask=there) - tl.load(value_under + i, mask=there)
    tl.store(to + 11 * m, conjugate, mask=there)
    tl.store(to + 12 * m, tl.sqrt(tl.load(under_squared + i, mask=there)), mask=there)
    if HAS_BAR:
        share = number(share_high, share_low, share_exponent, tl.float64)
        bar = tl.load(conjugate_bar + i, mask=there)
        conjugate = bar + share * (conjugate - bar)
    tl.store(to + 13 * m, conjugate, mask=there)


@triton.jit
def completed(
    bregman,
    d_squared,
    magnitude,
    lagrangian,
    lagrangian_before,
    stationarity,
    coupling,
    stationarity_last,
    coupling_last,
    drift,
    noise,
    value_under,
    value_bar,
    found,
    m,
    IS_SINGLE: tl.constexpr,
    AGENTS: tl.constexpr,
):
    """The fields of `sums.Sums` once f(x_bar) is known, (11, m); 9 in double precision."""
    i = tl.program_id(0) * AGENTS + tl.arange(0, AGENTS)
    there = i < m
    to = found + i
    under, value = tl.load(value_under + i, mask=there), tl.load(value_bar + i, mask=there)
    size = tl.maximum(tl.abs(under), tl.abs(value), propagate_nan=tl.PropagateNan.ALL)
    tl.store(to, value - under + tl.load(bregman + i, mask=there), mask=there)
    tl.store(to + m, tl.load(d_squared + i, mask=there), mask=there)
    tl.store(to + 2 * m, size + tl.load(magnitude + i, mask=there), mask=there)
    tl.store(to + 3 * m, value + tl.load(lagrangian + i, mask=there), mask=there)
    tl.store(to + 4 * m, tl.load(lagrangian_before + i, mask=there), mask=there)
    tl.store(to + 5 * m, tl.load(stationarity + i, mask=there), mask=there)
    tl.store(to + 6 * m, tl.load(coupling + i, mask=there), mask=there)
    tl.store(to + 7 * m, tl.load(stationarity_last + i, mask=there), mask=there)
    tl.store(to + 8 * m, tl.load(coupling_last + i, mask=there), mask=there)
    if IS_SINGLE:
        tl.store(to + 9 * m, tl.load(drift + i, mask=there), mask=there)
        tl.store(to + 10 * m, tl.load(noise + i, mask=there), mask=there)
