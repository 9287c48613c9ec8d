"""Triton kernels: prox steps around the exchanges of the gossip mode, the counterparts of `prox_rows`.

A program takes whole rows.
"""

import triton
import triton.language as tl

from gradslide.kernels.triton_numbers import number
from gradslide.kernels.triton_sets import prox


@triton.jit
def _rows(m, d, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The rows and columns of a block, which of them exist, and where they are."""
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    is_row, is_column = rows < m, columns < d
    at = rows.to(tl.int64)[:, None] * d + columns[None, :]
    return rows, columns, is_row, is_column, is_row[:, None] & is_column[None, :], at


@triton.jit
def stationarity(
    x,
    x_bar,
    g,
    w,
    D,
    weight,
    lo,
    hi,
    origin,
    radius,
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
    WEIGHT: tl.constexpr,
    LO: tl.constexpr,
    HI: tl.constexpr,
    ORIGIN: tl.constexpr,
    SET: tl.constexpr,
):
    """<Q, Q/D> of each agent with Q = p D (x_under - prox(x_under - (g + w)/(p D))), in double precision.

    x_under = x_bar + share (x - x_bar). The arguments from `weight` on are those of
    `triton_step.inner_iteration`; Euclidean prox steps do not depend on a center.
    """
    kind = x.dtype.element_ty
    rows, columns, is_row, is_column, inside, at = _rows(m, d, ROWS, COLUMNS)
    own = tl.load(D + rows, mask=is_row, other=1.0)
    scale = number(p_high, p_low, p_exponent, kind) * own
    before = tl.load(x_bar + at, mask=inside, other=0.0)
    under = before + number(share_high, share_low, share_exponent, kind) * (
        tl.load(x + at, mask=inside, other=0.0) - before
    )
    slope = tl.load(g + at, mask=inside, other=0.0) + tl.load(w + at, mask=inside, other=0.0)
    step = (1.0 / scale)[:, None]
    reached = prox(
        under - slope * step,
        step,
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
    Q = tl.where(inside, scale[:, None] * (under - reached), 0.0).to(tl.float64)
    tl.store(found + rows, tl.sum(Q * Q, axis=1) / own.to(tl.float64), mask=is_row)


@triton.jit
def step(
    x_bar,
    before,
    u,
    weight,
    lo,
    hi,
    origin,
    radius,
    step_high,
    step_low,
    step_exponent,
    ratio_high,
    ratio_low,
    ratio_exponent,
    m,
    d,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WEIGHT: tl.constexpr,
    LO: tl.constexpr,
    HI: tl.constexpr,
    ORIGIN: tl.constexpr,
    SET: tl.constexpr,
):
    """x_bar <- its prox step, u <- before + ratio (x_bar - before); see `stationarity`."""
    kind = x_bar.dtype.element_ty
    rows, columns, is_row, is_column, inside, at = _rows(m, d, ROWS, COLUMNS)
    new = prox(
        tl.load(x_bar + at, mask=inside, other=0.0),
        number(step_high, step_low, step_exponent, kind),
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
    old = tl.load(before + at, mask=inside, other=0.0)
    tl.store(x_bar + at, new, mask=inside)
    tl.store(u + at, old + number(ratio_high, ratio_low, ratio_exponent, kind) * (new - old), mask=inside)
