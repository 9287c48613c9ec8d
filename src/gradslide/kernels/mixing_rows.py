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
# Bytes of a panel: of v, step, q and the next q.
_PANEL_BYTES = 1 << 21

_options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}
_inline = _options | {"forceinline": True}


def panel_width(m: int, columns: int, dtype: Any) -> int:
    """Return how many columns go through all rounds together."""
    most = _PANEL_BYTES // (4 * m * np.dtype(dtype).itemsize)
    return min(-(-columns // _HALF) * _HALF, max(LANES, most // LANES * LANES))


def _bodies(n: int) -> tuple[Callable[..., Any], ...]:
    """The steps for n neighbouring columns of an agent."""

    @njit(**_inline)
    def start(x: Any, g: Any, w: Any, at: Any, inverse: Any, part: Any, v: Any, step: Any, q: Any, to: Any) -> None:
        """v = x - (g + w)/(p D), q = part v."""
        here = load(x, at, n) - splat(inverse, n) * (load(g, at, n) + load(w, at, n))
        first = splat(part, n) * here
        store(v, to, here)
        store(step, to, first)
        store(q, to, first)

    @njit(**_inline)
    def product(q: Any, graph: Any, i: Any, width: Any, c: Any) -> Any:
        """sum_j N_ij q_j, in the order of the matrix."""
        indptr, indices, data = graph
        total = splat(q.dtype.type(0.0), n)
        # Unsigned: numba would allow for indices from the end.
        for k in range(np.uintp(indptr[i]), np.uintp(indptr[i + 1])):
            total = total + splat(data[k], n) * load(q, np.intp(indices[k]) * width + c, n)
        return total

    @njit(**_inline)
    def advance(graph: Any, i: Any, width: Any, c: Any, a: Any, b: Any, v: Any, step: Any, q: Any, q_next: Any) -> None:
        """step = a step + b (v - N q), q = q + step."""
        at = i * width + c
        u = load(v, at, n) - product(q, graph, i, width, c)
        moved = splat(a, n) * load(step, at, n) + splat(b, n) * u
        store(step, at, moved)
        store(q_next, at, load(q, at, n) + moved)

    @njit(**_inline)
    def multiply(graph: Any, i: Any, width: Any, c: Any, q: Any, out: Any) -> None:
        """out = N q."""
        store(out, i * width + c, product(q, graph, i, width, c))

    @njit(**_inline)
    def finish(
        given: Any, results: Any, at: Any, scale: Any, numbers: Any, v: Any, q: Any, products: Any, of: Any
    ) -> None:
        """r = N q, u = v - r, s + p q, w + p D r, and the averages of u, y and w."""
        _, y, _, s, w, x_bar, y_bar, w_bar = given
        p, share, damping = numbers
        r, sums, part = load(products, of, n), load(q, of, n), splat(share, n)
        if damping != 1:
            r, sums = splat(damping, n) * r, splat(damping, n) * sums
        u, dual = load(v, of, n) - r, load(w, at, n) + splat(scale, n) * r
        store(results[0], at, u)
        store(results[1], at, load(s, at, n) + widened(splat(p, n) * sums))
        store(results[2], at, dual)
        if share == 1:
            store(results[3], at, u)
            store(results[4], at, load(y, at, n))
            store(results[5], at, dual)
        else:
            before, y_before, w_before = load(x_bar, at, n), load(y_bar, at, n), load(w_bar, at, n)
            store(results[3], at, before + part * (u - before))
            store(results[4], at, y_before + part * (load(y, at, n) - y_before))
            store(results[5], at, w_before + part * (dual - w_before))

    @njit(**_inline)
    def proceed(v: Any, step: Any, q: Any, product: Any, q_next: Any, at: Any, a: Any, b: Any) -> None:
        """As `advance`, with N q given."""
        u = load(v, at, n) - load(product, at, n)
        moved = splat(a, n) * load(step, at, n) + splat(b, n) * u
        store(step, at, moved)
        store(q_next, at, load(q, at, n) + moved)

    return start, advance, multiply, finish, proceed


_start, _advance, _multiply, _finish, _proceed = _bodies(LANES)
_, _advance_half, _multiply_half, _, _ = _bodies(_HALF)
_start_one, _, _, _finish_one, _proceed_one = _bodies(1)


@njit(**_options)
def _rounds(graph: Any, width: Any, a: Any, b: Any, v: Any, step: Any, q: Any, q_next: Any) -> Any:
    """Advance for every a and b. Returns 1 if q_next is q now, else 0."""
    m, whole = len(graph[0]) - 1, width - width % LANES
    for t in range(len(a)):
        for i in range(m):
            for c in range(0, whole, LANES):
                _advance(graph, i, width, c, a[t], b[t], v, step, q, q_next)
            if whole < width:
                _advance_half(graph, i, width, whole, a[t], b[t], v, step, q, q_next)
        q, q_next = q_next, q
    return len(a) % 2


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
    v, step, one, other = buffers
    part, a, b, numbers = rounds
    x, _, g, _, w = given[:5]
    m, n = len(scales), end - first
    whole, full = n - n % LANES, width - width % LANES
    for i in range(m):
        at, to = i * d + first, i * width
        for c in range(0, whole, LANES):
            _start(x, g, w, at + c, inverses[i], part, v, step, one, to + c)
        for c in range(whole, n):
            _start_one(x, g, w, at + c, inverses[i], part, v, step, one, to + c)
        for c in range(to + n, to + width):
            v[c] = step[c] = one[c] = 0
    q = other if _rounds(graph, width, a, b, v, step, one, other) else one
    for i in range(m):
        at, of = i * d + first, i * width
        for c in range(0, full, LANES):
            _multiply(graph, i, width, c, q, step)
        if full < width:
            _multiply_half(graph, i, width, full, q, step)
        for c in range(0, whole, LANES):
            _finish(given, results, at + c, scales[i], numbers, v, q, step, of + c)
        for c in range(whole, n):
            _finish_one(given, results, at + c, scales[i], numbers, v, q, step, of + c)


def _compiled_exchanges(stamp: int) -> Callable[..., None]:
    """Compile the loop over panels of columns first, ..., end - 1.

    The compiled function takes: d: the number of all columns. graph: indptr, indices, data of N.
    scales, inverses: p D of each agent, and 1/(p D). given: x, y, g, s, w, x_bar, y_bar, w_bar.
    results: u, s, w, x_bar, y_bar, w_bar; averages may be overwritten. buffers: four arrays of m
    `width` numbers. rounds: the first factor, a and b of the rounds after the first, and (p, the
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


# The same in three parts, between which others exchange q: rows are those of the agents here.


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
    def between(v: Any, step: Any, q: Any, product: Any, q_next: Any, a: Any, b: Any) -> None:
        count = len(v) if stamp else 0
        whole = count - count % LANES
        for c in range(0, whole, LANES):
            _proceed(v, step, q, product, q_next, c, a, b)
        for c in range(whole, count):
            _proceed_one(v, step, q, product, q_next, c, a, b)

    @cached
    def end(d: Any, scales: Any, given: Any, results: Any, numbers: Any, v: Any, q: Any, product: Any) -> None:
        whole = d - d % LANES
        for i in range(len(scales) if stamp else 0):
            for c in range(i * d, i * d + whole, LANES):
                _finish(given, results, c, scales[i], numbers, v, q, product, c)
            for c in range(i * d + whole, (i + 1) * d):
                _finish_one(given, results, c, scales[i], numbers, v, q, product, c)

    return begin, between, end


begin, between, end = _compiled_parts(STAMP)
