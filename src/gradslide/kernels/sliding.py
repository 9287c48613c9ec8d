"""The inner iterations of primal-dual sliding by compiled code: where it can be had, and when it is_worthwhile."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gradslide._support.types import Array, Sparse
from gradslide.kernels import startup
from gradslide.kernels.sets import Sets
from gradslide.kernels.threads import run_in_threads, shares, thread_count

# Seconds that NumPy takes for one inner iteration, and for each number that it touches.
_PLAIN, _PLAIN_NUMBER = 4e-5, 1e-9
# Numbers of an array for which a second thread is worth its while, where all threads meet after each iteration.
_WORTH_MEETING = 1 << 17


class InnerSteps(NamedTuple):
    """The parameters of T inner iterations. alphas: of the extrapolations, etas, scales: of the prox steps; (T,)."""

    p: float
    ascent: float
    alphas: Array
    etas: Array
    scales: Array

    def cast(self, dtype: Any) -> tuple[Any, ...]:
        """p, ascent, alphas, etas, scales and 1/scales, in the precision of x."""
        arrays = (self.alphas, self.etas, self.scales, 1 / self.scales)
        return dtype.type(self.p), dtype.type(self.ascent), *(array.astype(dtype) for array in arrays)


class InnerStart(NamedTuple):
    """Where inner iterations start; y: the gradient."""

    x: Array
    x_before: Array
    s: Array
    w: Array
    y: Array


class Buffers(NamedTuple):
    """Arrays to overwrite, beside x_before, s and w of the starting point.

    bars: the averages of s and w so far, of which the new means are to have this share. x, x_mean: where these results
    go. scratch: for anything in between.
    """

    bars: tuple[Array, Array]
    share: float
    x: Array
    x_mean: Array
    scratch: Array


class KernelResult(NamedTuple):
    """Where the iterations led; the mean of x over them; the averages of s and w."""

    x: Array
    x_before: Array
    s: Array
    w: Array
    x_mean: Array
    s_bar: Array
    w_bar: Array


class InnerLoopKernel:
    """Inner iterations over one graph and one domain, for as long as a run goes on."""

    def __init__(self, laplacian: Sparse, coupling: str, sets: Sets, d: int, dtype: Any) -> None:
        # Copies can be written to: the compiler would start anew for arrays that cannot.
        self._graph = (np.array(laplacian.indptr), np.array(laplacian.indices), np.array(laplacian.data, dtype=dtype))
        self._sets, self._d, self._dtype = sets, d, np.dtype(dtype)
        self._is_incidence = coupling == "incidence"
        kind = "tiles" if sets.are_separable else "sweeps"
        self._startup = startup.startup_of(f"{kind}-{coupling}-{self._dtype}")

    def is_worthwhile(self, T: int) -> bool:
        """Whether T inner iterations are better done here."""
        indptr, indices, _ = self._graph
        numbers = (len(indices) + 6 * len(indptr)) * self._d * (1 if self._is_incidence else 2)
        return self._startup.is_over or self._startup.is_worthwhile(T * (_PLAIN + _PLAIN_NUMBER * numbers))

    def time_plain(self, work: Callable[[], Any]) -> Any:
        """Do the same by the plain path."""
        return self._startup.time_plain(work)

    def run(self, at: InnerStart, steps: InnerSteps, buffers: Buffers | None = None) -> KernelResult:
        """Run all iterations. Without buffers nothing is overwritten, and s_bar and w_bar are the means alone."""
        at = InnerStart(*(_writable(each) for each in at))
        if buffers is None:
            x, x_before, s, w, y = at
            # From zero, a share of 1 is the mean to the bit.
            bars = (np.zeros_like(s), np.zeros_like(w))
            at = InnerStart(x, x_before.copy(), s.copy(), w.copy(), y)
            buffers = Buffers(bars, 1.0, *(np.empty_like(x) for _ in range(3)))
        else:
            s_bar, w_bar = map(_writable, buffers.bars)
            x, x_mean, scratch = map(_writable, buffers[2:])
            buffers = Buffers((s_bar, w_bar), buffers.share, x, x_mean, scratch)
        found = (self._tiles if self._sets.are_separable else self._sweeps)(at, steps, buffers)
        self._startup.mark(self._code().stats.cache_path)
        return found

    def _code(self) -> Any:
        from gradslide.kernels import sweeps, tiles

        kind: Any = tiles if self._sets.are_separable else sweeps
        return kind.incidence if self._is_incidence else kind.laplacian

    def _tiles(self, at: InnerStart, steps: InnerSteps, buffers: Buffers) -> KernelResult:
        from gradslide.kernels import tiles

        share = buffers.share
        results = KernelResult(buffers.x, at.x_before, at.s, at.w, buffers.x_mean, *buffers.bars)
        panels = self._code()
        given, found = tuple(map(_flat, at)), tuple(map(_flat, results))
        parameters = steps.cast(self._dtype)
        own_sets = any(len(each) > self._d for each in self._sets.intervals)

        def work(k: int, first: int, end: int) -> None:
            own = tiles.buffers(len(at.x), own_sets, self._dtype, at.s.dtype)
            panels(first, end, self._d, self._graph, self._sets.intervals, given, found, share, own, parameters)

        run_in_threads(work, shares(-(-self._d // tiles.LANES), thread_count()))
        return results

    def _sweeps(self, at: InnerStart, steps: InnerSteps, buffers: Buffers) -> KernelResult:
        T, m = len(steps.etas), len(at.x)
        u, s, w, x, u_next = at.x_before, at.s, at.w, buffers.x, buffers.scratch
        np.subtract(at.x, at.x_before, out=u)
        u *= float(steps.alphas[0])
        u += at.x
        x[...] = at.x
        buffers.x_mean[...] = 0
        sums = [buffers.x_mean, np.zeros_like(s), np.zeros_like(w)]
        sets = (*self._sets.intervals, self._sets.origin)
        fixed, state = (_flat(at.x), _flat(at.y)), tuple(map(_flat, (x, s, w, *sums)))
        parameters = steps.cast(self._dtype)
        move = self._code()

        def go(phase: int, t: int, t_end: int, k: int, first: int, end: int) -> None:
            ahead = (_flat(u), _flat(u_next)) if t % 2 == 0 else (_flat(u_next), _flat(u))
            work = tuple(np.empty(self._d, dtype=self._dtype) for _ in range(3))
            move(
                first,
                end,
                phase,
                t,
                t_end,
                self._graph,
                sets,
                self._sets.kind,
                self._sets.radius,
                fixed,
                state,
                *ahead,
                work,
                parameters,
            )

        threads = thread_count() if x.size >= _WORTH_MEETING else 1
        if threads == 1:
            go(0, 0, T, 0, 0, m)
        else:
            for t in range(T):
                for phase in (2,) if self._is_incidence else (1, 2):
                    run_in_threads(partial(go, phase, t, t + 1), shares(m, threads))
        for each in sums:
            each /= T
        for bar, mean in zip(buffers.bars, sums[1:], strict=True):
            mean -= bar
            mean *= buffers.share
            bar += mean
        if T % 2:
            # x_before must not be the scratch, which others write to.
            u[...] = u_next
        return KernelResult(x, u, s, w, sums[0], *buffers.bars)


def _writable(array: Array) -> Array:
    """As it is where it can be: of the one kind for which the code was compiled."""
    return np.require(array, requirements=["C", "W"])


def _flat(array: Array) -> Array:
    return array.reshape(-1)
