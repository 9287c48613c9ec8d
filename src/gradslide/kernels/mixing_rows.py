"""Compiled exchanges of the gossip mode: the step before them, K Chebyshev rounds, dual and averages.

A panel of columns of all agents goes through all rounds, so that it stays in the cache. Rows of
the arrays (m, d), which are flat, are read and written as a whole where they fit. Each operation
and each sum is in the order of the plain code (`gradslide.methods.gossip.inner.Mixer`), so results
have the same bits.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from gradslide.kernels.cached import cached
from gradslide.kernels.stamp import STAMP
from gradslide.kernels.vectors import load, splat, store, widened

# Columns that are computed together; a panel has a multiple of half as many.
LANES = 16
_HALF = LANES // 2
# Arrays of a panel.
ARRAYS = 5
# Bytes of a panel: of u, the next u, moved, step and q.
_PANEL_BYTES = 5 << 19

_options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}
_inline = _options | {"forceinline": True}


def panel_width(m: int, columns: int, dtype: Any) -> int:
    """Return how many columns go through all rounds together."""
    most = _PANEL_BYTES // (ARRAYS * m * np.dtype(dtype).itemsize)
    return min(-(-columns // _HALF) * _HALF, max(LANES, most // LANES * LANES))


def _bodies(n: int) -> tuple[Callable[..., Any], ...]:
    """The steps for n neighbouring columns of an agent."""

    @njit(**_inline)
    def prepared(x: Any, g: Any, w: Any, at: Any, inverse: Any) -> Any:
        """v = x - (g + w)/(p D)."""
        return load(x, at, n) - splat(inverse, n) * (load(g, at, n) + load(w, at, n))

    @njit(**_inline)
    def start(x: Any, g: Any, w: Any, at: Any, inverse: Any, part: Any, v: Any, step: Any, q: Any, to: Any) -> None:
        """v, and step = q = part v."""
        here = prepared(x, g, w, at, inverse)
        first = splat(part, n) * here
        store(v, to, here)
        store(step, to, first)
        store(q, to, first)

    @njit(**_inline)
    def product(v: Any, graph: Any, i: Any, width: Any, c: Any) -> Any:
        """sum_j N_ij v_j, in the order of the matrix."""
        indptr, indices, data = graph
        total = splat(v.dtype.type(0.0), n)
        # Unsigned: numba would allow for indices from the end.
        for k in range(np.uintp(indptr[i]), np.uintp(indptr[i + 1])):
            total = total + splat(data[k], n) * load(v, np.intp(indices[k]) * width + c, n)
        return total

    @njit(**_inline)
    def move_first(v: Any, product: Any, moved: Any, u: Any, at: Any) -> None:
        """moved = -N q, u = v + moved."""
        change = splat(v.dtype.type(-1.0), n) * product
        store(moved, at, change)
        store(u, at, load(v, at, n) + change)

    @njit(**_inline)
    def move(u: Any, product: Any, moved: Any, step: Any, q: Any, u_next: Any, at: Any, a: Any, b: Any) -> None:
        """step = a step + b u, moved = a moved - b N u, q = q + step, u = u + moved."""
        here = load(u, at, n)
        stepped = splat(a, n) * load(step, at, n) + splat(b, n) * here
        change = splat(a, n) * load(moved, at, n) - splat(b, n) * product
        store(step, at, stepped)
        store(moved, at, change)
        store(q, at, load(q, at, n) + stepped)
        store(u_next, at, here + change)

    @njit(**_inline)
    def first_round(graph: Any, i: Any, width: Any, c: Any, v: Any, moved: Any, q: Any, u: Any) -> None:
        """The first exchange, of q."""
        move_first(v, product(q, graph, i, width, c), moved, u, i * width + c)

    @njit(**_inline)
    def advance(
        graph: Any, i: Any, width: Any, c: Any, a: Any, b: Any, u: Any, moved: Any, step: Any, q: Any, u_next: Any
    ) -> None:
        """An exchange of u."""
        move(u, product(u, graph, i, width, c), moved, step, q, u_next, i * width + c, a, b)

    @njit(**_inline)
    def finish(
        given: Any, results: Any, at: Any, scale: Any, inverse: Any, numbers: Any, u: Any, q: Any, of: Any
    ) -> None:
        """r = v - u, u = v - r with damping, s + p q, w + p D r, and the averages of u, y and w."""
        x, y, g, s, w, x_bar, y_bar, w_bar = given
        p, share, damping = numbers
        v = prepared(x, g, w, at, inverse)
        r, sums, part = v - load(u, of, n), load(q, of, n), splat(share, n)
        if damping != 1:
            r, sums = splat(damping, n) * r, splat(damping, n) * sums
        new, dual = v - r, load(w, at, n) + splat(scale, n) * r
        slope, total = load(y, at, n), load(s, at, n) + widened(splat(p, n) * sums)
        if share == 1:
            store(results[3], at, new)
            store(results[4], at, slope)
            store(results[5], at, dual)
        else:
            before, y_before, w_before = load(x_bar, at, n), load(y_bar, at, n), load(w_bar, at, n)
            store(results[3], at, before + part * (new - before))
            store(results[4], at, y_before + part * (slope - y_before))
            store(results[5], at, w_before + part * (dual - w_before))
        store(results[0], at, new)
        store(results[1], at, total)
        store(results[2], at, dual)

    @njit(**_inline)
    def first_round_given(v: Any, product: Any, moved: Any, u: Any, at: Any) -> None:
        """As `first_round`, with N q given."""
        move_first(v, load(product, at, n), moved, u, at)

    @njit(**_inline)
    def advance_given(
        u: Any, product: Any, moved: Any, step: Any, q: Any, u_next: Any, at: Any, a: Any, b: Any
    ) -> None:
        """As `advance`, with N u given."""
        move(u, load(product, at, n), moved, step, q, u_next, at, a, b)

    return start, first_round, advance, finish, first_round_given, advance_given


_start, _first, _advance, _finish, _first_round_given, _advance_given = _bodies(LANES)
_, _first_half, _advance_half, _, _, _ = _bodies(_HALF)
_start_one, _, _, _finish_one, _first_round_given_one, _advance_given_one = _bodies(1)


@njit(**_options)
def _rounds(graph: Any, width: Any, a: Any, b: Any, u: Any, u_next: Any, moved: Any, step: Any, q: Any) -> Any:
    """Advance from v, in u, by the first exchange and for every a and b. Returns 1 if u_next is u now, else 0."""
    m, whole = len(graph[0]) - 1, width - width % LANES
    for i in range(m):
        for c in range(0, whole, LANES):
            _first(graph, i, width, c, u, moved, q, u_next)
        if whole < width:
            _first_half(graph, i, width, whole, u, moved, q, u_next)
    for t in range(len(a)):
        u, u_next = u_next, u
        for i in range(m):
            for c in range(0, whole, LANES):
                _advance(graph, i, width, c, a[t], b[t], u, moved, step, q, u_next)
            if whole < width:
                _advance_half(graph, i, width, whole, a[t], b[t], u, moved, step, q, u_next)
    return 1 - len(a) % 2


@njit(**_options)
def _panel(
    first: Any,
    end: Any,
    width: Any,
    d: Any,
    graph: Any,
    scales: Any,
    inverses: Any,
    given: Any,
    results: Any,
    buffers: Any,
    rounds: Any,
) -> None:
    """Columns first, ..., end - 1, which are at most `width`."""
    one, other, moved, step, q = buffers
    part, a, b, numbers = rounds
    x, _, g, _, w = given[:5]
    m, n = len(scales), end - first
    whole = n - n % LANES
    for i in range(m):
        at, to = i * d + first, i * width
        for c in range(0, whole, LANES):
            _start(x, g, w, at + c, inverses[i], part, one, step, q, to + c)
        for c in range(whole, n):
            _start_one(x, g, w, at + c, inverses[i], part, one, step, q, to + c)
        for c in range(to + n, to + width):
            one[c] = step[c] = q[c] = 0
    u = other if _rounds(graph, width, a, b, one, other, moved, step, q) else one
    for i in range(m):
        at, of = i * d + first, i * width
        for c in range(0, whole, LANES):
            _finish(given, results, at + c, scales[i], inverses[i], numbers, u, q, of + c)
        for c in range(whole, n):
            _finish_one(given, results, at + c, scales[i], inverses[i], numbers, u, q, of + c)


def _compiled_exchanges(stamp: int) -> Callable[..., None]:
    """Compile the loop over panels of columns first, ..., end - 1.

    The compiled function takes: d: the number of all columns. graph: indptr, indices, data of N.
    scales, inverses: p D of each agent, and 1/(p D). given: x, y, g, s, w, x_bar, y_bar, w_bar.
    results: u, s, w, x_bar, y_bar, w_bar; averages may be overwritten. buffers: `ARRAYS` arrays of
    m `width` numbers. rounds: the first factor, a and b of the rounds after the first, and (p, the
    share of the new values in the averages, damping).
    """

    @cached
    def exchanges(
        first: Any,
        end: Any,
        width: Any,
        d: Any,
        graph: Any,
        scales: Any,
        inverses: Any,
        given: Any,
        results: Any,
        buffers: Any,
        rounds: Any,
    ) -> None:
        for start in range(first, end if stamp else first, width):
            _panel(start, min(end, start + width), width, d, graph, scales, inverses, given, results, buffers, rounds)

    return exchanges


exchanges = _compiled_exchanges(STAMP)


# The same in parts, between which others exchange q, then u: rows are those of the agents here.


def _compiled_parts(stamp: int) -> tuple[Callable[..., None], ...]:
    """Compile what is done before, between and after the exchanges, for all agents; see `exchanges`."""

    @cached
    def begin(d: Any, inverses: Any, x: Any, g: Any, w: Any, part: Any, v: Any, step: Any, q: Any) -> None:
        whole = d - d % LANES
        for i in range(len(inverses) if stamp else 0):
            for c in range(i * d, i * d + whole, LANES):
                _start(x, g, w, c, inverses[i], part, v, step, q, c)
            for c in range(i * d + whole, (i + 1) * d):
                _start_one(x, g, w, c, inverses[i], part, v, step, q, c)

    @cached
    def after_first(v: Any, product: Any, moved: Any, u: Any) -> None:
        count = len(v) if stamp else 0
        whole = count - count % LANES
        for c in range(0, whole, LANES):
            _first_round_given(v, product, moved, u, c)
        for c in range(whole, count):
            _first_round_given_one(v, product, moved, u, c)

    @cached
    def after_next(u: Any, product: Any, moved: Any, step: Any, q: Any, u_next: Any, a: Any, b: Any) -> None:
        count = len(u) if stamp else 0
        whole = count - count % LANES
        for c in range(0, whole, LANES):
            _advance_given(u, product, moved, step, q, u_next, c, a, b)
        for c in range(whole, count):
            _advance_given_one(u, product, moved, step, q, u_next, c, a, b)

    @cached
    def end(d: Any, scales: Any, inverses: Any, given: Any, results: Any, numbers: Any, u: Any, q: Any) -> None:
        whole = d - d % LANES
        for i in range(len(scales) if stamp else 0):
            for c in range(i * d, i * d + whole, LANES):
                _finish(given, results, c, scales[i], inverses[i], numbers, u, q, c)
            for c in range(i * d + whole, (i + 1) * d):
                _finish_one(given, results, c, scales[i], inverses[i], numbers, u, q, c)

    return begin, after_first, after_next, end


begin, after_first, after_next, end = _compiled_parts(STAMP)
