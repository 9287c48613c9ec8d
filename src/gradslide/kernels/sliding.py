"""The inner iterations of primal-dual sliding by compiled code: where it can be had, and when it pays."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gradslide._support.types import Array, Sparse
from gradslide.kernels import startup
from gradslide.kernels.sets import Sets
from gradslide.kernels.threads import shares, side_by_side, thread_count

# Seconds that NumPy takes for one inner iteration, and for each number that it touches.
_PLAIN, _PLAIN_NUMBER = 4e-5, 1e-9
# Numbers of an array for which a second thread is worth its while, where all threads meet after each iteration.
_WORTH_MEETING = 1 << 17


class Steps(NamedTuple):
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


class Point(NamedTuple):
    """Where inner iterations start; y: the gradient."""

    x: Array
    x_before: Array
    s: Array
    w: Array
    y: Array


class Results(NamedTuple):
    """Where they led; the mean of x over them; averages into which those of s and w were taken; arrays left over."""

    x: Array
    x_before: Array
    s: Array
    w: Array
    x_mean: Array
    s_bar: Array
    w_bar: Array
    spare: Sequence[Array]


class Slider:
    """Inner iterations over one graph and one domain, for as long as a run goes on."""

    def __init__(self, laplacian: Sparse, coupling: str, sets: Sets, d: int, dtype: Any) -> None:
        # Copies can be written to: the compiler would start anew for arrays that cannot.
        self._graph = (np.array(laplacian.indptr), np.array(laplacian.indices), np.array(laplacian.data, dtype=dtype))
        self._sets, self._d, self._dtype = sets, d, np.dtype(dtype)
        self._is_incidence = coupling == "incidence"
        kind = "tiles" if sets.are_separable else "sweeps"
        self._startup = startup.startup_of(f"{kind}-{coupling}-{self._dtype}")

    def pays(self, T: int) -> bool:
        """Whether T inner iterations are better done here."""
        indptr, indices, _ = self._graph
        numbers = (len(indices) + 6 * len(indptr)) * self._d * (1 if self._is_incidence else 2)
        return self._startup.is_over or self._startup.pays(T * (_PLAIN + _PLAIN_NUMBER * numbers))

    def without(self, work: Callable[[], Any]) -> Any:
        """Do the same by the plain path."""
        return self._startup.without(work)

    def slide(
        self,
        at: Point,
        steps: Steps,
        bars: tuple[Array, Array] | None = None,
        share: float = 1.0,
        spare: Sequence[Array] = (),
    ) -> Results:
        """bars: the averages of s and w so far, which are overwritten, and of which the new means are to have this
        share; none: the means alone. spare: arrays that nobody needs any more, maybe some of `at` among them, to put
        results into."""
        at = Point(*(_writable(each) for each in at))
        outlet = _Outlet(spare, at)
        if bars is None:
            # From zero, a share of 1 is the mean to the bit.
            bars, share = (outlet.zeros(at.s), outlet.zeros(at.w)), 1.0
        bars = (_writable(bars[0]), _writable(bars[1]))
        found = (self._tiles if self._sets.are_separable else self._sweeps)(at, steps, bars, share, outlet)
        self._startup.mark(self._code().stats.cache_path)
        return found

    def _code(self) -> Any:
        from gradslide.kernels import sweeps, tiles

        kind: Any = tiles if self._sets.are_separable else sweeps
        return kind.incidence if self._is_incidence else kind.laplacian

    def _tiles(self, at: Point, steps: Steps, bars: tuple[Array, Array], share: float, outlet: "_Outlet") -> Results:
        from gradslide.kernels import tiles

        results = Results(
            x_before=outlet.in_place(at.x_before),
            s=outlet.in_place(at.s),
            w=outlet.in_place(at.w),
            x=outlet.like(at.x),
            x_mean=outlet.like(at.x),
            s_bar=bars[0],
            w_bar=bars[1],
            spare=outlet.spare,
        )
        panels = self._code()
        given, found = tuple(map(_flat, at)), tuple(map(_flat, results[:-1]))
        parameters = steps.cast(self._dtype)
        own_sets = any(len(each) > self._d for each in self._sets.intervals)

        def work(k: int, first: int, end: int) -> None:
            buffers = tiles.buffers(len(at.x), own_sets, self._dtype, at.s.dtype)
            panels(first, end, self._d, self._graph, self._sets.intervals, given, found, share, buffers, parameters)

        side_by_side(work, shares(-(-self._d // tiles.LANES), thread_count()))
        return results

    def _sweeps(self, at: Point, steps: Steps, bars: tuple[Array, Array], share: float, outlet: "_Outlet") -> Results:
        T, m = len(steps.etas), len(at.x)
        u = outlet.in_place(at.x_before)
        np.subtract(at.x, at.x_before, out=u)
        u *= float(steps.alphas[0])
        u += at.x
        s, w, x = outlet.copy(at.s), outlet.copy(at.w), outlet.copy(at.x)
        sums = [outlet.zeros(each) for each in (x, s, w)]
        u_next = outlet.like(u)
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
                    side_by_side(partial(go, phase, t, t + 1), shares(m, threads))
        for each in sums:
            each /= T
        for bar, mean in zip(bars, sums[1:], strict=True):
            mean -= bar
            mean *= share
            bar += mean
        return Results(x, u if T % 2 == 0 else u_next, s, w, sums[0], *bars, outlet.spare)


class _Outlet:
    """Arrays to put results into: spare ones first. What is read from is only overwritten in its own place."""

    def __init__(self, spare: Sequence[Array], at: Point) -> None:
        usable = [each for each in spare if each.flags.writeable and each.flags.c_contiguous]
        self._read = [each for each in usable if any(each is other for other in at)]
        self.spare = [each for each in usable if not any(each is other for other in at)]

    def in_place(self, array: Array) -> Array:
        """The array itself, if it is spare."""
        return array if any(each is array for each in self._read) else self.like(array)

    def copy(self, array: Array) -> Array:
        result = self.in_place(array)
        if result is not array:
            result[...] = array
        return result

    def zeros(self, array: Array) -> Array:
        result = self.like(array)
        result[...] = 0
        return result

    def like(self, array: Array) -> Array:
        for k, each in enumerate(self.spare):
            if each.dtype == array.dtype and each.shape == array.shape:
                return self.spare.pop(k)
        return np.empty(array.shape, dtype=array.dtype)


def _writable(array: Array) -> Array:
    """As it is where it can be: of the one kind for which the code was compiled."""
    return np.require(array, requirements=["C", "W"])


def _flat(array: Array) -> Array:
    return array.reshape(-1)
