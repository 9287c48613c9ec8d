"""The inner loop of primal-dual sliding on a CPU: `tiles` or `sweeps`, in threads.

`InnerLoopKernel` is the counterpart of `gradslide.methods.pds.inner_loop` and gives the same bits.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gradslide._support.types import Array, Sparse
from gradslide.kernels import startup
from gradslide.kernels.sets import Sets
from gradslide.kernels.threads import run_in_threads, shares, thread_count

# Seconds that NumPy takes for one inner iteration, and for each number in it.
_PLAIN, _PLAIN_NUMBER = 4e-5, 1e-9
# Entries of an array from which on a second thread is worthwhile if threads synchronize after each iteration.
_WORTH_SYNCHRONIZING = 1 << 17


class InnerSteps(NamedTuple):
    """The parameters of T inner iterations.

    Attributes
    ----------
    p : float
        p_k.
    ascent : float
        1/q_k, the step of the dual variable.
    alphas : Array
        alpha_k^t of the extrapolations, shape (T,).
    etas, scales : Array
        eta_k^t and mu + eta_k^t + p_k of the prox steps, shape (T,).
    """

    p: float
    ascent: float
    alphas: Array
    etas: Array
    scales: Array

    def cast(self, dtype: Any) -> tuple[Any, ...]:
        """Return p, ascent, alphas, etas, scales and 1/scales in the precision of x."""
        arrays = (self.alphas, self.etas, self.scales, 1 / self.scales)
        return dtype.type(self.p), dtype.type(self.ascent), *(array.astype(dtype) for array in arrays)


class InnerStart(NamedTuple):
    """x_{k-1}, the inner iterate before it, the dual (s, w) and the gradient y."""

    x: Array
    x_before: Array
    s: Array
    w: Array
    y: Array


class Buffers(NamedTuple):
    """Arrays to overwrite, besides x_before, s and w of the start.

    Attributes
    ----------
    bars : tuple of Array
        The averages of s and w so far.
    share : float
        The weight of the new means in them.
    x, x_mean : Array
        Where these results are stored.
    scratch : Array
        Memory for intermediate results.
    """

    bars: tuple[Array, Array]
    share: float
    x: Array
    x_mean: Array
    scratch: Array


class KernelResult(NamedTuple):
    """x_k, the inner iterate before it, the dual, the mean of x over the loop, and averages."""

    x: Array
    x_before: Array
    s: Array
    w: Array
    x_mean: Array
    s_bar: Array
    w_bar: Array


class InnerLoopKernel:
    """The compiled inner loop for one graph and one domain.

    Parameters
    ----------
    laplacian : Sparse
        The Laplacian of the graph.
    coupling : {"incidence", "laplacian"}
        The matrix A.
    sets : Sets
        The domain.
    d : int
        The number of columns.
    dtype : data type
        The precision of x.
    """

    def __init__(self, laplacian: Sparse, coupling: str, sets: Sets, d: int, dtype: Any) -> None:
        # Writable copies: for read-only arrays numba would compile another version.
        self._graph = (np.array(laplacian.indptr), np.array(laplacian.indices), np.array(laplacian.data, dtype=dtype))
        self._sets, self._d, self._dtype = sets, d, np.dtype(dtype)
        self._is_incidence = coupling == "incidence"
        kind = "tiles" if sets.are_separable else "sweeps"
        self._startup = startup.startup_of(f"{kind}-{coupling}-{self._dtype}")

    def is_worthwhile(self, T: int) -> bool:
        """Return whether T inner iterations should use compiled code."""
        indptr, indices, _ = self._graph
        numbers = (len(indices) + 6 * len(indptr)) * self._d * (1 if self._is_incidence else 2)
        return self._startup.is_over or self._startup.is_worthwhile(T * (_PLAIN + _PLAIN_NUMBER * numbers))

    def time_plain(self, work: Callable[[], Any]) -> Any:
        """Run the plain inner loop, and count its time towards compiling."""
        return self._startup.time_plain(work)

    def run(self, at: InnerStart, steps: InnerSteps, buffers: Buffers | None = None) -> KernelResult:
        """Run all T inner iterations.

        Parameters
        ----------
        at : InnerStart
            Where they start. x_before, s and w are overwritten if there are buffers.
        steps : InnerSteps
            Their parameters.
        buffers : Buffers, optional
            Arrays to overwrite. Without them nothing is overwritten, and s_bar and w_bar are the
            means over the loop.

        Returns
        -------
        KernelResult
            The last iterates and the averages.
        """
        at = InnerStart(*(_writable(each) for each in at))
        if buffers is None:
            x, x_before, s, w, y = at
            # Starting from zero, a share of 1 gives the mean to the bit.
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

        threads = thread_count() if x.size >= _WORTH_SYNCHRONIZING else 1
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
            # x_before must not be the scratch array, which is overwritten later.
            u[...] = u_next
        return KernelResult(x, u, s, w, sums[0], *buffers.bars)


def _writable(array: Array) -> Array:
    """Return the array itself if it has the layout for which the code was compiled, else a copy."""
    return np.require(array, requirements=["C", "W"])


def _flat(array: Array) -> Array:
    return array.reshape(-1)
