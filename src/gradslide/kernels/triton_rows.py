"""Triton kernel: values and gradients of losses with one score per row, in one pass over dense rows.

It is the counterpart of `rows_pass`. A program takes the rows of one agent, a few at a time. Scores
and values are double.
"""

import triton
import triton.language as tl

from gradslide.kernels.triton_numbers import number

# Entries of the rows that a program holds, and scores that it holds.
ENTRIES, LONG = 8192, 128
# The kinds of phi, as in `rows_phi`.
LOGISTIC, RESIDUAL, HINGE = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def _log1p(e):
    """log(1 + e), accurate for small e as well."""
    u = 1.0 + e
    return tl.where(u == 1.0, e, tl.log(u) * (e / tl.where(u == 1.0, 1.0, u - 1.0)))


@triton.jit
def _value(score, target, width, KIND: tl.constexpr):
    if KIND == LOGISTIC:
        margin = target * score
        found = _log1p(tl.exp(-tl.abs(margin))) + tl.where(margin < 0, -margin, 0.0)
    elif KIND == HINGE:
        shortfall = 1.0 - target * score
        shortfall = tl.where(shortfall < 0, 0.0, shortfall)
        clipped = tl.where(shortfall > width, width, shortfall)
        found = clipped * (shortfall - 0.5 * clipped) / width
    else:
        size = tl.abs(score - target)
        found = tl.where(size > width, width * (size - 0.5 * width), 0.5 * size * size)
    return found


@triton.jit
def _slope(score, target, width, KIND: tl.constexpr):
    if KIND == LOGISTIC:
        margin = target * score
        small = tl.exp(-tl.abs(margin))
        found = -target * tl.where(margin > 0, small, 1.0) / (1.0 + small)
    elif KIND == HINGE:
        shortfall = 1.0 - target * score
        shortfall = tl.where(shortfall < 0, 0.0, shortfall)
        found = -target * tl.where(shortfall > width, width, shortfall) / width
    else:
        residual = score - target
        found = tl.where(residual > width, width, tl.where(residual < -width, -width, residual))
    return found


@triton.jit
def rows_pass(
    features,
    targets,
    weights,
    bounds,
    x,
    before,
    stored,
    slopes,
    gradients,
    values,
    ahead,
    width_high,
    width_low,
    width_exponent,
    theta_high,
    theta_low,
    theta_exponent,
    p,
    KIND: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
    VALUE: tl.constexpr,
    GRADIENT: tl.constexpr,
    GIVEN: tl.constexpr,
    AHEAD: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    LONG: tl.constexpr,
):
    """Scores, values and gradients of one agent; `rows_pass.rows_pass` says what the flags mean.

    Scores come first, then slopes and values of LONG rows at a time, so that no two threads compute
    the same one, then the gradient, for which most rows are still in the cache.
    """
    i = tl.program_id(0).to(tl.int64)
    first, end = tl.load(bounds + i), tl.load(bounds + i + 1)
    columns = tl.arange(0, COLUMNS)
    is_column = columns < p
    if not GIVEN:
        point = tl.load(x + i * p + columns, mask=is_column, other=0.0).to(tl.float64)
        for row in range(first, end, ROWS):
            rows = row + tl.arange(0, ROWS)
            there = rows < end
            at = rows.to(tl.int64)[:, None] * p + columns[None, :]
            tile = tl.load(features + at, mask=there[:, None] & is_column[None, :], other=0.0)
            tl.store(stored + rows, tl.sum(tile.to(tl.float64) * point[None, :], axis=1), mask=there)
        tl.debug_barrier()
    if VALUE or GRADIENT:
        theta = number(theta_high, theta_low, theta_exponent, tl.float64)
        width = number(width_high, width_low, width_exponent, tl.float64)
        value, value_ahead = tl.zeros((LONG,), dtype=tl.float64), tl.zeros((LONG,), dtype=tl.float64)
        for row in range(first, end, LONG):
            rows = row + tl.arange(0, LONG)
            there = rows < end
            scores = tl.load(stored + rows, mask=there, other=0.0)
            target = tl.load(targets + rows, mask=there, other=1.0).to(tl.float64)
            weight = tl.where(there, 1.0, 0.0).to(tl.float64)
            if HAS_WEIGHTS:
                weight = tl.load(weights + rows, mask=there, other=0.0).to(tl.float64)
            if VALUE:
                value += weight * _value(scores, target, width, KIND)
            if AHEAD:
                scores += theta * (scores - tl.load(before + rows, mask=there, other=0.0))
                value_ahead += weight * _value(scores, target, width, KIND)
            if GRADIENT:
                slope = weight * _slope(scores, target, width, KIND)
                tl.store(slopes + rows, slope.to(slopes.dtype.element_ty), mask=there)
        if VALUE:
            tl.store(values + i, tl.sum(value, axis=0))
        if AHEAD:
            tl.store(ahead + i, tl.sum(value_ahead, axis=0))
    if GRADIENT:
        tl.debug_barrier()
        total = tl.zeros((COLUMNS,), dtype=features.dtype.element_ty)
        for row in range(first, end, ROWS):
            rows = row + tl.arange(0, ROWS)
            there = rows < end
            at = rows.to(tl.int64)[:, None] * p + columns[None, :]
            tile = tl.load(features + at, mask=there[:, None] & is_column[None, :], other=0.0)
            total += tl.sum(tl.load(slopes + rows, mask=there, other=0.0)[:, None] * tile, axis=0)
        tl.store(gradients + i * p + columns, total, mask=is_column)
