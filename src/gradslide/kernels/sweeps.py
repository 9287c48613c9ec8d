"""Compiled inner loop of primal-dual sliding for balls, the simplex and mixed domains.

These sets couple the columns of an agent. The loop goes through the agents one by one, with all
columns of an agent at once. Arrays (m, d) are flat. Each operation and each sum is in the order of
the plain code, so results have the same bits.
"""

from collections.abc import Callable
from typing import Any

from numba import njit

from gradslide.kernels.cached import cached
from gradslide.kernels.projections import places, project
from gradslide.kernels.sets import INTERVALS
from gradslide.kernels.stamp import STAMP
from gradslide.kernels.tiles import LANES
from gradslide.kernels.vectors import load, maximum, minimum, splat, store, widened

_options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def _columns(n: int) -> tuple[Callable[..., Any], ...]:
    """Compile the operations on n columns of an agent, from c on."""

    @njit(**_options)
    def neighbours(v: Any, graph: Any, i: Any, c: Any, d: Any) -> Any:
        indptr, indices, data = graph
        total = splat(v.dtype.type(0.0), n)
        for k in range(indptr[i], indptr[i + 1]):
            total = total + splat(data[k], n) * load(v, indices[k] * d + c, n)
        return total

    @njit(**_options)
    def forward(
        v: Any,
        w: Any,
        x: Any,
        at: Any,
        c: Any,
        sets: Any,
        own: Any,
        fixed: Any,
        p: Any,
        eta: Any,
        scale: Any,
        step: Any,
    ) -> None:
        """v <- theta/scale, soft-thresholded and clipped to [lo, hi]."""
        start, y = fixed
        center = load(sets[0], own[0] + c, n)
        anchor = splat(p, n) * (load(start, at, n) - center) - load(y, at, n)
        theta = (splat(eta, n) * (load(x, at, n) - center) + anchor) - w
        inside = (splat(scale, n) * center + theta) * splat(step, n)
        threshold = splat(step, n) * load(sets[1], own[1] + c, n)
        inside = inside - maximum(minimum(inside, threshold), splat(v.dtype.type(0.0), n) - threshold)
        inside = minimum(maximum(inside, load(sets[2], own[2] + c, n)), load(sets[3], own[3] + c, n))
        store(v, c, inside)

    @njit(**_options)
    def incidence(i: Any, c: Any, d: Any, graph: Any, u: Any, s: Any, s_sum: Any, w: Any, w_sum: Any, up: Any) -> Any:
        at = i * d + c
        new = load(w, at, n) + splat(up, n) * neighbours(u, graph, i, c, d)
        store(w, at, new)
        store(w_sum, at, load(w_sum, at, n) + new)
        dual = load(s, at, n) + widened(splat(up, n) * load(u, at, n))
        store(s, at, dual)
        store(s_sum, at, load(s_sum, at, n) + dual)
        return new

    @njit(**_options)
    def laplacian(i: Any, c: Any, d: Any, graph: Any, s: Any, w: Any, w_sum: Any) -> Any:
        at = i * d + c
        new = neighbours(s, graph, i, c, d)
        store(w, at, new)
        store(w_sum, at, load(w_sum, at, n) + new)
        return new

    @njit(**_options)
    def ascend(i: Any, c: Any, d: Any, graph: Any, u: Any, s: Any, s_sum: Any, up: Any) -> None:
        at = i * d + c
        dual = load(s, at, n) + splat(up, n) * neighbours(u, graph, i, c, d)
        store(s, at, dual)
        store(s_sum, at, load(s_sum, at, n) + dual)

    @njit(**_options)
    def after(v: Any, at: Any, c: Any, x: Any, x_sum: Any, u_next: Any, alpha: Any, is_last: Any) -> None:
        old, new = load(x, at, n), load(v, c, n)
        store(x, at, new)
        store(x_sum, at, load(x_sum, at, n) + new)
        store(u_next, at, old if is_last else new + splat(alpha, n) * (new - old))

    return forward, incidence, laplacian, ascend, after


_forward, _incidence, _laplacian, _ascend, _after = _columns(LANES)
_forward_1, _incidence_1, _laplacian_1, _ascend_1, _after_1 = _columns(1)


@njit(**_options)
def _ascend_all(first: Any, end: Any, d: Any, graph: Any, u: Any, s: Any, s_sum: Any, up: Any) -> None:
    """s <- s + Lap u/q for the agents first..end-1."""
    whole = d - d % LANES
    for i in range(first, end):
        for c in range(0, whole, LANES):
            _ascend(i, c, d, graph, u, s, s_sum, up)
        for c in range(whole, d):
            _ascend_1(i, c, d, graph, u, s, s_sum, up)


def _compiled(stamp: int, is_incidence: bool) -> Callable[..., None]:
    """Compile the loop over agents and iterations.

    The compiled function takes: first, end: agents. phase: 1 for s alone, which has an exchange of
    its own with the Laplacian, 2 for the rest, 0 for both. t_first, t_end: inner iterations. graph:
    indptr, indices, data. sets: center, weight, lo, hi, origin, of shape (1, d) or (m, d); kinds,
    radius: (1,) or (m,). fixed: x at the start, and y. state: x, s, w and their sums. u, u_next:
    this and the next extrapolation. work: three rows. steps: p, 1/q, and alpha, eta, scale, 1/scale
    of each iteration.
    """

    @cached
    def sweeps(
        first: Any,
        end: Any,
        phase: Any,
        t_first: Any,
        t_end: Any,
        graph: Any,
        sets: Any,
        kinds: Any,
        radius: Any,
        fixed: Any,
        state: Any,
        u: Any,
        u_next: Any,
        work: Any,
        steps: Any,
    ) -> None:
        x, s, w, x_sum, s_sum, w_sum = state
        v, squares, largest = work
        p, up, alphas, etas, scales, inverses = steps
        d = len(v)
        whole = d - d % LANES
        for t in range(t_first, t_end if stamp else t_first):
            if not is_incidence and phase != 2:
                _ascend_all(first, end, d, graph, u, s, s_sum, up)
            is_last = t + 1 == len(etas)
            alpha, eta, scale, inverse = alphas[t if is_last else t + 1], etas[t], scales[t], inverses[t]
            for i in range(first, end if phase != 1 else first):
                own = places(sets, i, d)
                for c in range(0, whole, LANES):
                    if is_incidence:
                        new = _incidence(i, c, d, graph, u, s, s_sum, w, w_sum, up)
                    else:
                        new = _laplacian(i, c, d, graph, s, w, w_sum)
                    _forward(v, new, x, i * d + c, c, sets, own, fixed, p, eta, scale, inverse)
                for c in range(whole, d):
                    if is_incidence:
                        one = _incidence_1(i, c, d, graph, u, s, s_sum, w, w_sum, up)
                    else:
                        one = _laplacian_1(i, c, d, graph, s, w, w_sum)
                    _forward_1(v, one, x, i * d + c, c, sets, own, fixed, p, eta, scale, inverse)
                kind = kinds[i if len(kinds) > 1 else 0]
                if kind != INTERVALS:
                    project(v, kind, sets[4], own[4], radius[i if len(radius) > 1 else 0], squares, largest)
                for c in range(0, whole, LANES):
                    _after(v, i * d + c, c, x, x_sum, u_next, alpha, is_last)
                for c in range(whole, d):
                    _after_1(v, i * d + c, c, x, x_sum, u_next, alpha, is_last)
            if phase != 1:
                u, u_next = u_next, u

    return sweeps


incidence, laplacian = _compiled(STAMP, True), _compiled(STAMP, False)
