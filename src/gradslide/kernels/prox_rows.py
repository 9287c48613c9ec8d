"""Compiled prox steps around the exchanges of the gossip mode, agent by agent.

Each operation and each sum is in the order of the plain code (`gradslide.methods.gossip.inner`), so
results have the same bits.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from gradslide.kernels.cached import cached
from gradslide.kernels.projections import pairwise_sum, places, project
from gradslide.kernels.sets import INTERVALS
from gradslide.kernels.stamp import STAMP
from gradslide.kernels.vectors import load, maximum, minimum, splat, store, widened

# Columns that are computed together.
_LANES = 8

_options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_inline = _options | {"forceinline": True}


def _bodies(n: int) -> tuple[Callable[..., Any], ...]:
    """The steps for n neighbouring columns of an agent, from c on."""

    @njit(**_inline)
    def point(arrays: Any, at: Any, share: Any) -> Any:
        """x_under = x_bar + share (x - x_bar)."""
        before = load(arrays[1], at, n)
        return before + splat(share, n) * (load(arrays[0], at, n) - before)

    @njit(**_inline)
    def stepped(arrays: Any, at: Any, c: Any, share: Any, scale: Any, v: Any) -> None:
        """v <- x_under - (g + w)/(p D)."""
        slope = load(arrays[2], at, n) + load(arrays[3], at, n)
        store(v, c, point(arrays, at, share) - slope / splat(scale, n))

    @njit(**_inline)
    def within(v: Any, c: Any, sets: Any, own: Any, step: Any, weight: Any, inverse: Any) -> None:
        """v <- argmin of r(x) + |x - v|^2/(2 step) over an interval."""
        center = load(sets[0], own[0] + c, n)
        theta = (load(v, c, n) - center) / splat(step, n)
        inside = (splat(weight, n) * center + theta) * splat(inverse, n)
        threshold = splat(inverse, n) * load(sets[1], own[1] + c, n)
        inside = inside - maximum(minimum(inside, threshold), splat(v.dtype.type(0.0), n) - threshold)
        store(v, c, minimum(maximum(inside, load(sets[2], own[2] + c, n)), load(sets[3], own[3] + c, n)))

    @njit(**_inline)
    def squared(arrays: Any, at: Any, c: Any, share: Any, scale: Any, inverse_D: Any, v: Any, terms: Any) -> None:
        """terms <- Q Q/D with Q = p D (x_under - v)."""
        Q = splat(scale, n) * (point(arrays, at, share) - load(v, c, n))
        store(terms, c, widened(Q) * widened(splat(inverse_D, n) * Q))

    @njit(**_inline)
    def moved(x_bar: Any, before: Any, x: Any, at: Any, c: Any, ratio: Any, v: Any) -> None:
        """x_bar <- v, x = x_bar_before + ratio (x_bar - x_bar_before)."""
        new, old = load(v, c, n), load(before, at, n)
        store(x_bar, at, new)
        store(x, at, old + splat(ratio, n) * (new - old))

    return stepped, within, squared, moved


_stepped, _within, _squared, _moved = _bodies(_LANES)
_stepped_one, _within_one, _squared_one, _moved_one = _bodies(1)


@njit(**_options)
def _prox(v: Any, i: Any, sets: Any, kinds: Any, radius: Any, steps: Any, work: Any) -> None:
    """v <- the prox step of agent i."""
    d, k = len(v), i if steps.shape[1] > 1 else 0
    whole = d - d % _LANES
    own = places(sets, i, d)
    for c in range(0, whole, _LANES):
        _within(v, c, sets, own, steps[0, k], steps[1, k], steps[2, k])
    for c in range(whole, d):
        _within_one(v, c, sets, own, steps[0, k], steps[1, k], steps[2, k])
    kind = kinds[i if len(kinds) > 1 else 0]
    if kind != INTERVALS:
        project(v, kind, sets[4], own[4], radius[i if len(radius) > 1 else 0], work[0], work[1])


def _compiled(stamp: int) -> tuple[Callable[..., None], Callable[..., None]]:
    """Compile the loops over agents first, ..., end - 1. Arrays (m, d) are flat.

    sets: center, weight, lo, hi, origin, of shape (1, d) or (m, d); kinds, radius: (1,) or (m,).
    steps: rows of step, 1/step, and 1 over that, (3, 1) or (3, m).

    The first function takes arrays: x, x_bar, g, w. With x_under = x_bar + share (x - x_bar),
    scales p D and Q = p D (x_under - prox(x_under - (g + w)/(p D))), it sets found to <Q, Q/D>.

    The second one replaces x_bar by its prox step, and sets x to before + ratio (x_bar - before).
    """

    @cached
    def stationarity(
        first: Any,
        end: Any,
        d: Any,
        arrays: Any,
        share: Any,
        scales: Any,
        inverses_D: Any,
        sets: Any,
        kinds: Any,
        radius: Any,
        steps: Any,
        found: Any,
    ) -> None:
        whole = d - d % _LANES
        v, work, terms = np.empty(d, arrays[0].dtype), np.empty((2, d), arrays[0].dtype), np.empty(d)
        for i in range(first, end if stamp else first):
            for c in range(0, whole, _LANES):
                _stepped(arrays, i * d + c, c, share, scales[i], v)
            for c in range(whole, d):
                _stepped_one(arrays, i * d + c, c, share, scales[i], v)
            _prox(v, i, sets, kinds, radius, steps, work)
            for c in range(0, whole, _LANES):
                _squared(arrays, i * d + c, c, share, scales[i], inverses_D[i], v, terms)
            for c in range(whole, d):
                _squared_one(arrays, i * d + c, c, share, scales[i], inverses_D[i], v, terms)
            found[i] = pairwise_sum(terms, d)

    @cached
    def prox(
        first: Any,
        end: Any,
        d: Any,
        x_bar: Any,
        before: Any,
        x: Any,
        ratio: Any,
        sets: Any,
        kinds: Any,
        radius: Any,
        steps: Any,
    ) -> None:
        whole = d - d % _LANES
        v, work = np.empty(d, x.dtype), np.empty((2, d), x.dtype)
        for i in range(first, end if stamp else first):
            v[:] = x_bar[i * d : (i + 1) * d]
            _prox(v, i, sets, kinds, radius, steps, work)
            for c in range(0, whole, _LANES):
                _moved(x_bar, before, x, i * d + c, c, ratio, v)
            for c in range(whole, d):
                _moved_one(x_bar, before, x, i * d + c, c, ratio, v)

    return stationarity, prox


stationarity, prox = _compiled(STAMP)
