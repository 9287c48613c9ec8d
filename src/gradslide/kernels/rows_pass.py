"""Compiled values and gradients of losses with one score per row, in one pass over the rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from gradslide.kernels.cached import cached
from gradslide.kernels.rows_phi import AHEAD, GIVEN, GRADIENT, INNER, KEEP, VALUE, slopes_and_values, weigh
from gradslide.kernels.stamp import STAMP

# Sums may be taken in any order; NaN and infinity stay what they are.
_SUMS = {"reassoc", "contract", "nsz"}


def _compiled(stamp: int) -> Callable[..., None]:
    @cached
    def rows_pass(
        kind: Any,
        width: Any,
        data: Any,
        indices: Any,
        indptr: Any,
        targets: Any,
        weights: Any,
        ends: Any,
        owners: Any,
        x: Any,
        before: Any,
        theta: Any,
        first: Any,
        last: Any,
        block: Any,
        want: Any,
        gradients: Any,
        values: Any,
        ahead: Any,
        stored: Any,
    ) -> None:
        """Add the gradients (segments, p) and values (segments,) of segments first, ..., last - 1.

        want: a sum of GRADIENT; VALUE; KEEP, the scores of x are written to stored; GIVEN, they are
        read from stored, and x is not used; AHEAD, the gradient is the one where the scores are scores
        + theta (scores - before), and ahead gets the value there.

        data, indices, indptr: CSR; or dense rows one after the other, with an empty indptr.
        weights: one per row, or empty. ends: where each segment's rows end. owners: the row of x at
        which each segment is evaluated. block: rows that fit into the cache, a multiple of 8, so
        that sums do not depend on it.
        """
        scores, phi, work = np.empty(block), np.empty(block), np.empty(block)
        here = np.empty(block if want & AHEAD else 0)
        bits = work.view(np.int64)
        sparse, p = len(indptr) > 0, x.shape[1]
        rows = data[: len(data) // p * p].reshape(-1, p)
        s, row = first, ends[first - 1] if first > 0 else 0
        while s < last and stamp:
            # As many whole segments as fit, or part of one: a short segment alone would not fill a vector.
            begin, t = row, s
            while t < last and (ends[t] - begin <= block or t == s):
                end = min(ends[t], begin + block)
                if want & GIVEN:
                    for r in range(row, end):
                        scores[r - begin] = stored[r]
                elif sparse:
                    _sparse_scores(data, indices, indptr, row, end, x, owners[t], scores, row - begin)
                else:
                    _dense_scores(rows, row, end, x, owners[t], scores, row - begin)
                row = end
                if end < ends[t]:
                    break
                t += 1
            n = row - begin
            if want & KEEP:
                for r in range(n):
                    stored[begin + r] = scores[r]
            if want & AHEAD:
                for r in range(n):
                    here[r] = scores[r]
                    scores[r] += theta * (scores[r] - before[begin + r])
                slopes_and_values(kind, width, targets, begin, n, VALUE, here, phi, work, bits)
                if len(weights) > 0:
                    weigh(weights, begin, n, VALUE, here, phi)
                _add_values(phi, ends, s, t, begin, row, values)
            if want & (GRADIENT | VALUE):
                slopes_and_values(kind, width, targets, begin, n, want, scores, phi, work, bits)
                if len(weights) > 0:
                    weigh(weights, begin, n, want, scores, phi)
            if want & VALUE:
                _add_values(phi, ends, s, t, begin, row, ahead if want & AHEAD else values)
            at = begin
            for q in range(s, max(t, s + 1) if want & GRADIENT else s):
                end = min(ends[q], row)
                if sparse:
                    _sparse_pull(data, indices, indptr, at, end, scores, at - begin, gradients, q)
                else:
                    _dense_pull(rows, at, end, scores, at - begin, gradients, q)
                at = end
            s = t

    return rows_pass


@njit(**INNER, fastmath=_SUMS)
def _dense_scores(rows: Any, first: Any, end: Any, x: Any, i: Any, out: Any, at: Any) -> None:
    """Eight rows at a time: fewer passes over x. Sums are double: values need them in single precision, too."""
    p = rows.shape[1]
    most = end - (end - first) % 8 if p < 64 else first
    for r in range(first, most, 8):
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
        for j in range(p):
            v = np.float64(x[i, j])
            s0 += rows[r, j] * v
            s1 += rows[r + 1, j] * v
            s2 += rows[r + 2, j] * v
            s3 += rows[r + 3, j] * v
            s4 += rows[r + 4, j] * v
            s5 += rows[r + 5, j] * v
            s6 += rows[r + 6, j] * v
            s7 += rows[r + 7, j] * v
        k = at + r - first
        out[k], out[k + 1], out[k + 2], out[k + 3] = s0, s1, s2, s3
        out[k + 4], out[k + 5], out[k + 6], out[k + 7] = s4, s5, s6, s7
    for r in range(most, end):
        total = 0.0
        for j in range(p):
            total += rows[r, j] * np.float64(x[i, j])
        out[at + r - first] = total


@njit(**INNER, fastmath=_SUMS)
def _dense_pull(rows: Any, first: Any, end: Any, slopes: Any, at: Any, out: Any, q: Any) -> None:
    """Eight rows at a time: fewer passes over the sums."""
    real = out.dtype.type
    p, most = rows.shape[1], end - (end - first) % 8
    for r in range(first, most, 8):
        k = at + r - first
        s0, s1, s2, s3 = real(slopes[k]), real(slopes[k + 1]), real(slopes[k + 2]), real(slopes[k + 3])
        s4, s5, s6, s7 = real(slopes[k + 4]), real(slopes[k + 5]), real(slopes[k + 6]), real(slopes[k + 7])
        for j in range(p):
            front = (s0 * rows[r, j] + s1 * rows[r + 1, j]) + (s2 * rows[r + 2, j] + s3 * rows[r + 3, j])
            back = (s4 * rows[r + 4, j] + s5 * rows[r + 5, j]) + (s6 * rows[r + 6, j] + s7 * rows[r + 7, j])
            out[q, j] += front + back
    for r in range(most, end):
        slope = real(slopes[at + r - first])
        for j in range(p):
            out[q, j] += slope * rows[r, j]


@njit(**INNER, fastmath=_SUMS)
def _sparse_scores(
    data: Any, indices: Any, indptr: Any, first: Any, end: Any, x: Any, i: Any, out: Any, at: Any
) -> None:
    # Unsigned indices skip the check for negative ones.
    own = x[i]
    for r in range(first, end):
        total = 0.0
        for k in range(np.uintp(indptr[r]), np.uintp(indptr[r + 1])):
            total += data[k] * np.float64(own[np.uintp(indices[k])])
        out[at + r - first] = total


@njit(**INNER, fastmath={"contract"})
def _sparse_pull(
    data: Any, indices: Any, indptr: Any, first: Any, end: Any, slopes: Any, at: Any, out: Any, q: Any
) -> None:
    for r in range(first, end):
        slope = out.dtype.type(slopes[at + r - first])
        for k in range(np.uintp(indptr[r]), np.uintp(indptr[r + 1])):
            out[q, np.uintp(indices[k])] += slope * data[k]


@njit(**INNER)
def _add_values(phi: Any, ends: Any, s: Any, t: Any, begin: Any, row: Any, values: Any) -> None:
    """Add phi of rows begin, ..., row - 1 to the values of the segments from s on that these belong to."""
    at = begin
    for q in range(s, max(t, s + 1)):
        end = min(ends[q], row)
        values[q] += _sum(phi, at - begin, end - begin)
        at = end


@njit(**INNER, fastmath=_SUMS)
def _sum(values: Any, first: Any, end: Any) -> Any:
    total = 0.0
    for r in range(first, end):
        total += values[r]
    return total


rows_pass = _compiled(STAMP)
