"""Compiled inner loop of primal-dual sliding for products of intervals.

It takes a few columns of all agents (a tile) through all T iterations, so that they stay in the
cache. The Laplacian acts on rows, so columns are independent. Arrays (m, d) are flat. Each
operation and each sum is in the order of the plain code, so results have the same bits.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import literal_unroll, njit

from gradslide.kernels.cached import cached
from gradslide.kernels.stamp import STAMP
from gradslide.kernels.vectors import load, maximum, minimum, prefetch, splat, store, widened

# Columns of a tile.
LANES = 16
_HALF = LANES // 2
# Neighbouring tiles (a panel) are read and written together, up to this many and this size: contiguous parts of a row,
# not single cache lines.
_PANEL, _PANEL_BYTES = 4, 1 << 23
# Rows ahead that are requested from memory: pieces of rows are too short for the processor to predict.
_AHEAD = 4
_PAGE, _LINE = 1 << 21, 64
# What a tile stores for an agent, LANES numbers each: what every iteration needs, and, separately, sums.
_X, _W, _ANCHOR, _KEPT = (k * LANES for k in range(4))
_X_SUM, _W_SUM, _SUMS = (k * LANES for k in range(3))
# Its dual, which may have a higher precision.
_S, _S_SUM, _DUAL = (k * LANES for k in range(3))
# Its set.
_CENTER, _WEIGHT, _LO, _HI, _SET = (k * LANES for k in range(5))

# Without counting references to arrays, which would be calls in the innermost loops.
_options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}
_inline = _options | {"forceinline": True}


def buffers(m: int, own_sets: bool, dtype: Any, dual_dtype: Any) -> tuple[Any, ...]:
    """Return the memory of a panel: kept, sums, dual, u, u_next, sets.

    Agent i of tile k has index k m + i.
    """
    dtype, dual_dtype = np.dtype(dtype), np.dtype(dual_dtype)
    set_rows = m if own_sets else 1
    parts = [(m * _KEPT, dtype), (m * _SUMS, dtype), (m * _DUAL, dual_dtype)]
    parts += [(m * LANES, dtype), (m * LANES, dtype), (set_rows * _SET, dtype)]
    panel = max(1, min(_PANEL, _PANEL_BYTES // sum(count * kind.itemsize for count, kind in parts)))
    ends = np.cumsum([panel * count * kind.itemsize for count, kind in parts])
    memory = np.split(_memory(int(ends[-1])), ends[:-1])
    return tuple(part.view(kind) for part, (_, kind) in zip(memory, parts, strict=True))


def _memory(size: int) -> Any:
    """Return that many bytes, aligned to cache lines, on large memory pages if worthwhile.

    The cache holds large pages better. NumPy requests them from 4 MB on.
    """
    is_large = size >= _PAGE // 4
    memory = np.empty(max(size + _PAGE, 2 * _PAGE) if is_large else size + _LINE, dtype=np.uint8)
    start = -memory.ctypes.data % (_PAGE if is_large else _LINE)
    return memory[start : start + size]


def _compiled(stamp: int, is_incidence: bool) -> Callable[..., None]:
    """Compile the loop over panels.

    The compiled function takes: first, end: tiles. d: the number of all columns. graph: indptr,
    indices, data. domain: center, weight, lo, hi, of shape (1, d) or (m, d). given: x, x_before, s,
    w, y. results: x, x_before, s, w, which may be the same arrays as those given, the mean of x,
    and averages of s and w, which their means enter with a share. buffers: see `buffers`. steps: p,
    1/q, and alpha, eta, scale, 1/scale of each iteration.
    """

    @cached
    def panels(
        first: Any,
        end: Any,
        d: Any,
        graph: Any,
        domain: Any,
        given: Any,
        results: Any,
        share: Any,
        buffers: Any,
        steps: Any,
    ) -> None:
        m, width = len(graph[0]) - 1, _panel_width(graph, buffers)
        for panel in range(first, end if stamp else first, width):
            count = min(width, end - panel)
            _read(domain, given, buffers, panel, count, m, d, steps)
            for k in range(count):
                is_narrow = d - (panel + k) * LANES <= _HALF
                if is_incidence and is_narrow:
                    _incidence_half(buffers, graph, k * m, steps)
                elif is_incidence:
                    _incidence(buffers, graph, k * m, steps)
                elif is_narrow:
                    _laplacian_half(buffers, graph, k * m, steps)
                else:
                    _laplacian(buffers, graph, k * m, steps)
            _write(results, buffers, panel, count, m, d, len(steps[2]), share)

    return panels


@njit(**_inline)
def _panel_width(graph: Any, buffers: Any) -> Any:
    return len(buffers[3]) // ((len(graph[0]) - 1) * LANES)


@njit(**_options)
def _read_sets(domain: Any, sets: Any, rows: Any, panel: Any, count: Any, d: Any) -> None:
    for i in range(rows):
        for k in range(count):
            start = (panel + k) * LANES
            own = (k * rows + i) * _SET
            for part in range(4):
                row = i * d if len(domain[part]) > d else 0
                _copy_in(domain[part], row + start, sets, own + part * LANES, min(LANES, d - start))


@njit(**_options)
def _read(domain: Any, given: Any, buffers: Any, panel: Any, count: Any, m: Any, d: Any, steps: Any) -> None:
    kept, _, dual, u, _, sets = buffers
    p, alpha = steps[0], steps[2][0]
    _read_sets(domain, sets, len(sets) // (_SET * (len(kept) // (m * _KEPT))), panel, count, d)
    x, x_before, s, w, y = given
    next_set = _sets_of_tile(sets, kept, 0, m)[1]
    next_tile = m * _SET if next_set > 0 else _SET
    for i in range(m):
        for k in range(count):
            row, start = k * m + i, (panel + k) * LANES
            at, width = i * d + start, min(LANES, d - start)
            for each in literal_unroll(given):
                _request(each, at + _AHEAD * d)
            _copy_in(x, at, kept, row * _KEPT + _X, width)
            _copy_in(w, at, kept, row * _KEPT + _W, width)
            _copy_in(y, at, kept, row * _KEPT + _ANCHOR, width)
            _copy_in(s, at, dual, row * _DUAL + _S, width)
            _copy_in(x_before, at, u, row * LANES, width)
            here = load(kept, row * _KEPT + _X, LANES)
            offset = here - load(sets, k * next_tile + i * next_set + _CENTER, LANES)
            store(kept, row * _KEPT + _ANCHOR, splat(p, LANES) * offset - load(kept, row * _KEPT + _ANCHOR, LANES))
            store(u, row * LANES, here + splat(alpha, LANES) * (here - load(u, row * LANES, LANES)))


@njit(**_options)
def _write(results: Any, buffers: Any, panel: Any, count: Any, m: Any, d: Any, T: Any, share: Any) -> None:
    kept, sums, dual, u = buffers[:4]
    x, x_before, s, w, x_mean, s_bar, w_bar = results
    for i in range(m):
        for k in range(count):
            row, start = k * m + i, (panel + k) * LANES
            at, width = i * d + start, min(LANES, d - start)
            for each in literal_unroll(results):
                _request(each, at + _AHEAD * d)
            _copy(kept, row * _KEPT + _X, x, at, width)
            _copy(u, row * LANES, x_before, at, width)
            _copy(dual, row * _DUAL + _S, s, at, width)
            _copy(kept, row * _KEPT + _W, w, at, width)
            _copy_mean(sums, row * _SUMS + _X_SUM, x_mean, at, width, T)
            _take_mean(dual, row * _DUAL + _S_SUM, s_bar, at, width, T, share)
            _take_mean(sums, row * _SUMS + _W_SUM, w_bar, at, width, T, share)


@njit(**_inline)
def _request(array: Any, at: Any) -> None:
    """Request all cache lines of LANES numbers."""
    prefetch(array, at)
    prefetch(array, at + LANES // 2)
    prefetch(array, at + LANES - 1)


@njit(**_inline)
def _copy(source: Any, at: Any, target: Any, to: Any, width: Any) -> None:
    if width == LANES:
        store(target, to, load(source, at, LANES))
    else:
        for c in range(width):
            target[to + c] = source[at + c]


@njit(**_inline)
def _copy_in(source: Any, at: Any, target: Any, to: Any, width: Any) -> None:
    # Unused entries must be ordinary numbers: denormal ones are slow.
    if width < LANES:
        store(target, to, splat(target.dtype.type(0.0), LANES))
    _copy(source, at, target, to, width)


@njit(**_inline)
def _copy_mean(sums: Any, at: Any, target: Any, to: Any, width: Any, T: Any) -> None:
    count = target.dtype.type(T)
    if width == LANES:
        store(target, to, load(sums, at, LANES) / splat(count, LANES))
    else:
        for c in range(width):
            target[to + c] = sums[at + c] / count


@njit(**_inline)
def _take_mean(sums: Any, at: Any, bar: Any, to: Any, width: Any, T: Any, share: Any) -> None:
    """bar <- bar + share (mean - bar)."""
    count, part = bar.dtype.type(T), bar.dtype.type(share)
    if width == LANES:
        old = load(bar, to, LANES)
        mean = load(sums, at, LANES) / splat(count, LANES)
        store(bar, to, old + splat(part, LANES) * (mean - old))
    else:
        for c in range(width):
            bar[to + c] += part * (sums[at + c] / count - bar[to + c])


@njit(**_inline)
def _sets_of_tile(sets: Any, kept: Any, base: Any, m: Any) -> Any:
    """Return where the set of a tile's first agent begins, and the distance to the next."""
    is_own = len(sets) // _SET == len(kept) // _KEPT
    return (base if is_own else base // m) * _SET, (_SET if is_own else 0)


@njit(**_options)
def _traits(sets: Any) -> Any:
    """Return whether any set has a center, or a penalty: zeros change no bit."""
    has_center, has_weight = False, False
    for own in range(0, len(sets), _SET):
        for c in range(own, own + LANES):
            has_center = has_center or sets[_CENTER + c] != 0
            has_weight = has_weight or sets[_WEIGHT + c] != 0
    return has_center, has_weight


def _loops(n: int) -> tuple[Callable[..., None], Callable[..., None]]:
    """The iterations of the first n columns of a tile, with the incidence matrix and with the Laplacian."""

    @njit(**_inline)
    def neighbours(v: Any, graph: Any, i: Any, base: Any) -> Any:
        """Return sum_j a_ij v_j, in the order of the matrix."""
        indptr, indices, data = graph
        total = splat(v.dtype.type(0.0), n)
        # Unsigned: numba adds instructions for negative indices otherwise.
        for k in range(np.uintp(indptr[i]), np.uintp(indptr[i + 1])):
            total = total + splat(data[k], n) * load(v, (base + indices[k]) * LANES, n)
        return total

    @njit(**_inline)
    def prox(x: Any, w: Any, anchor: Any, sets: Any, own: Any, traits: Any, eta: Any, scale: Any, step: Any) -> Any:
        """Return argmin over X of <y + w, .> + r + p V(x_0, .) + eta V(x, .); anchor has p and y."""
        has_center, has_weight = traits
        if has_center:
            center = load(sets, own + _CENTER, n)
            theta = (splat(eta, n) * (x - center) + anchor) - w
            v = (splat(scale, n) * center + theta) * splat(step, n)
        else:
            v = ((splat(eta, n) * x + anchor) - w) * splat(step, n)
        if has_weight:
            threshold = splat(step, n) * load(sets, own + _WEIGHT, n)
            v = v - maximum(minimum(v, threshold), splat(sets.dtype.type(0.0), n) - threshold)
        return minimum(maximum(v, load(sets, own + _LO, n)), load(sets, own + _HI, n))

    @njit(**_options)
    def incidence(buffers: Any, graph: Any, base: Any, steps: Any) -> None:
        """w <- w + Lap u/q, s <- s + u/q."""
        kept, sums, dual, u, u_next, sets = buffers
        _, ascent, alphas, etas, scales, inverses = steps
        m, T, up = len(graph[0]) - 1, len(etas), splat(ascent, n)
        first_set, next_set = _sets_of_tile(sets, kept, base, m)
        traits = _traits(sets[first_set : first_set + (m * _SET if next_set > 0 else _SET)])
        zero, zero_dual = splat(kept.dtype.type(0.0), n), splat(dual.dtype.type(0.0), n)
        for t in range(T):
            # Sums are updated after every second iteration, when both iterates are available: half the memory traffic.
            is_second, is_last = t % 2 == 1, t + 1 == T
            alpha = splat(alphas[t if is_last else t + 1], n)
            eta, scale, inverse = etas[t], scales[t], inverses[t]
            for i in range(m):
                row = base + i
                own, own_sums, own_dual, here = row * _KEPT, row * _SUMS, row * _DUAL, row * LANES
                x, w_before = load(kept, own + _X, n), load(kept, own + _W, n)
                w = w_before + up * neighbours(u, graph, i, base)
                anchor = load(kept, own + _ANCHOR, n)
                v = prox(x, w, anchor, sets, first_set + i * next_set, traits, eta, scale, inverse)
                store(kept, own + _X, v)
                store(kept, own + _W, w)
                if is_second or is_last:
                    x_sum, w_sum, s_sum = zero, zero, zero_dual
                    if t > 1:
                        x_sum, w_sum = load(sums, own_sums + _X_SUM, n), load(sums, own_sums + _W_SUM, n)
                        s_sum = load(dual, own_dual + _S_SUM, n)
                    s = load(dual, own_dual + _S, n)
                    if is_second:
                        x_sum, w_sum = x_sum + x, w_sum + w_before
                        s = s + widened(up * load(u_next, here, n))
                        s_sum = s_sum + s
                    s = s + widened(up * load(u, here, n))
                    store(sums, own_sums + _X_SUM, x_sum + v)
                    store(sums, own_sums + _W_SUM, w_sum + w)
                    store(dual, own_dual + _S, s)
                    store(dual, own_dual + _S_SUM, s_sum + s)
                store(u_next, here, x if is_last else v + alpha * (v - x))
            u, u_next = u_next, u
        if T % 2 == 1:
            # The caller reads the iterate before the last from the array that was u at first.
            for c in range(base * LANES, (base + m) * LANES):
                u_next[c] = u[c]

    @njit(**_options)
    def laplacian(buffers: Any, graph: Any, base: Any, steps: Any) -> None:
        """s <- s + Lap u/q, w = Lap s."""
        kept, sums, dual, u, z, sets = buffers
        _, ascent, alphas, etas, scales, inverses = steps
        m, T, up = len(graph[0]) - 1, len(etas), splat(ascent, n)
        first_set, next_set = _sets_of_tile(sets, kept, base, m)
        traits = _traits(sets[first_set : first_set + (m * _SET if next_set > 0 else _SET)])
        zero, zero_dual = splat(kept.dtype.type(0.0), n), splat(dual.dtype.type(0.0), n)
        for t in range(T):
            is_last = t + 1 == T
            alpha = splat(alphas[t if is_last else t + 1], n)
            eta, scale, inverse = etas[t], scales[t], inverses[t]
            for i in range(m):
                row = base + i
                s = load(dual, row * _DUAL + _S, n) + up * neighbours(u, graph, i, base)
                store(z, row * LANES, s)
                store(dual, row * _DUAL + _S, s)
                s_sum = load(dual, row * _DUAL + _S_SUM, n) if t > 0 else zero_dual
                store(dual, row * _DUAL + _S_SUM, s_sum + s)
            for i in range(m):
                row = base + i
                own, own_sums = row * _KEPT, row * _SUMS
                x, w = load(kept, own + _X, n), neighbours(z, graph, i, base)
                anchor = load(kept, own + _ANCHOR, n)
                v = prox(x, w, anchor, sets, first_set + i * next_set, traits, eta, scale, inverse)
                store(kept, own + _X, v)
                store(kept, own + _W, w)
                x_sum, w_sum = zero, zero
                if t > 0:
                    x_sum, w_sum = load(sums, own_sums + _X_SUM, n), load(sums, own_sums + _W_SUM, n)
                store(sums, own_sums + _X_SUM, x_sum + v)
                store(sums, own_sums + _W_SUM, w_sum + w)
                store(u, row * LANES, x if is_last else v + alpha * (v - x))

    return incidence, laplacian


_incidence, _laplacian = _loops(LANES)
# The last tile may have few columns.
_incidence_half, _laplacian_half = _loops(_HALF)

incidence, laplacian = _compiled(STAMP, True), _compiled(STAMP, False)
