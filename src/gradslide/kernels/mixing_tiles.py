"""Compiled exchanges of the gossip mode: the step before them, K Chebyshev rounds, dual and averages.

It takes a few columns of all agents (a tile) through all rounds, so that they stay in the cache.
Arrays (m, d) are flat, and d is at least LANES: the last tile has the last LANES columns, some of
which are computed twice. Each operation and each sum is in the order of the plain code
(`gradslide.methods.gossip.inner.Mixer`), so results have the same bits.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from gradslide.kernels.cached import cached
from gradslide.kernels.stamp import STAMP
from gradslide.kernels.vectors import load, splat, store, widened

# Columns of a tile.
LANES = 16
# Neighbouring tiles (a panel) are read and written together: contiguous parts of a row, not single cache lines.
_PANEL = 4
# What a tile stores for an agent, LANES numbers each.
_V, _Q, _STEP, _MOVED, _OWN = (k * LANES for k in range(5))

_options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_inline = _options | {"forceinline": True}


def buffers(m: int, d: int, dtype: Any) -> tuple[Any, ...]:
    """Return the memory of a panel: own, u, u_next. Agent i of tile k has index k m + i."""
    panel = min(_PANEL, -(-d // LANES))
    return tuple(np.empty(panel * m * size, dtype=dtype) for size in (_OWN, LANES, LANES))


def _compiled(stamp: int) -> Callable[..., None]:
    """Compile the loop over tiles.

    The compiled function takes: first, end: tiles. d: the number of all columns. graph: indptr,
    indices, data of N. scales: p D of each agent. given: x, y, g, s, w, x_bar, y_bar, w_bar. results: u, s,
    w, x_bar, y_bar, w_bar. rounds: p, the share of the new values in the averages, the first divisor, a
    and b of the rounds after the first, and the damping, 1 if there is none.
    """

    @cached
    def tiles(
        first: Any, end: Any, d: Any, graph: Any, scales: Any, given: Any, results: Any, buffers: Any, rounds: Any
    ) -> None:
        m = len(scales)
        panel = len(buffers[1]) // (m * LANES)
        for tile in range(first, end if stamp else first, panel):
            count = min(panel, end - tile)
            _start(tile, count, d, scales, given, buffers, rounds)
            for k in range(count):
                _exchange(graph, buffers, rounds, k * m)
            _finish(tile, count, d, scales, given, results, buffers, rounds)

    return tiles


@njit(**_inline)
def _averaged(bar: Any, new: Any, share: Any) -> Any:
    return bar + splat(share, LANES) * (new - bar)


@njit(**_options)
def _start(tile: Any, count: Any, d: Any, scales: Any, given: Any, buffers: Any, rounds: Any) -> None:
    """v = x - (g + w)/(p D), q = v/divisor."""
    x, _, g, _, w = given[:5]
    own, u = buffers[:2]
    divisor = splat(rounds[2], LANES)
    m = len(scales)
    for i in range(m):
        scale = splat(scales[i], LANES)
        for k in range(count):
            at, row = i * d + min((tile + k) * LANES, d - LANES), k * m + i
            v = load(x, at, LANES) - (load(g, at, LANES) + load(w, at, LANES)) / scale
            q = v / divisor
            store(own, row * _OWN + _V, v)
            store(own, row * _OWN + _Q, q)
            store(own, row * _OWN + _STEP, q)
            store(u, row * LANES, q)


@njit(**_inline)
def _neighbours(v: Any, graph: Any, i: Any, base: Any) -> Any:
    """Return sum_j N_ij v_j, in the order of the matrix."""
    indptr, indices, data = graph
    total = splat(v.dtype.type(0.0), LANES)
    for k in range(indptr[i], indptr[i + 1]):
        total = total + splat(data[k], LANES) * load(v, (base + indices[k]) * LANES, LANES)
    return total


@njit(**_options)
def _exchange(graph: Any, buffers: Any, rounds: Any, base: Any) -> None:
    """u = v - N q after the first round; then moved = a moved - b N u, u = u + moved, and q along with it."""
    own, u, u_next = buffers
    before, after = rounds[3], rounds[4]
    m = len(graph[0]) - 1
    minus = splat(own.dtype.type(-1.0), LANES)
    for i in range(m):
        row = base + i
        moved = minus * _neighbours(u, graph, i, base)
        store(own, row * _OWN + _MOVED, moved)
        store(u_next, row * LANES, load(own, row * _OWN + _V, LANES) + moved)
    u, u_next = u_next, u
    for t in range(len(before)):
        a, b = splat(before[t], LANES), splat(after[t], LANES)
        for i in range(m):
            row = base + i
            here = load(u, row * LANES, LANES)
            step = a * load(own, row * _OWN + _STEP, LANES) + b * here
            moved = a * load(own, row * _OWN + _MOVED, LANES) - b * _neighbours(u, graph, i, base)
            store(own, row * _OWN + _STEP, step)
            store(own, row * _OWN + _MOVED, moved)
            store(own, row * _OWN + _Q, load(own, row * _OWN + _Q, LANES) + step)
            store(u_next, row * LANES, here + moved)
        u, u_next = u_next, u
    if len(before) % 2 == 0:
        # The caller reads u from the array that was u at first.
        for c in range(base * LANES, (base + m) * LANES):
            u_next[c] = u[c]


@njit(**_options)
def _finish(tile: Any, count: Any, d: Any, scales: Any, given: Any, results: Any, buffers: Any, rounds: Any) -> None:
    """s + p q, w + p D (v - u), and the averages of u, y and w."""
    _, y, _, s, w, x_bar, y_bar, w_bar = given
    u_new, s_new, w_new, x_bar_new, y_bar_new, w_bar_new = results
    own, u = buffers[:2]
    p, share, damping = rounds[0], rounds[1], rounds[5]
    is_damped, part = damping != 1, splat(damping, LANES)
    m = len(scales)
    for i in range(m):
        scale = splat(scales[i], LANES)
        for k in range(count):
            at, row = i * d + min((tile + k) * LANES, d - LANES), k * m + i
            v, q = load(own, row * _OWN + _V, LANES), load(own, row * _OWN + _Q, LANES)
            mixed = load(u, row * LANES, LANES)
            if is_damped:
                mixed, q = v - part * (v - mixed), part * q
            dual = load(w, at, LANES) + scale * (v - mixed)
            s_here = load(s, at, LANES) + widened(splat(p, LANES) * q)
            store(s_new, at, s_here)
            store(w_new, at, dual)
            store(u_new, at, mixed)
            store(x_bar_new, at, _averaged(load(x_bar, at, LANES), mixed, share))
            y_here = _averaged(load(y_bar, at, LANES), load(y, at, LANES), share)
            store(y_bar_new, at, y_here)
            store(w_bar_new, at, _averaged(load(w_bar, at, LANES), dual, share))


tiles = _compiled(STAMP)
