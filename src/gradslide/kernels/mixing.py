"""An outer iteration of the gossip mode on a CPU: `mixing_rows`, `row_dots` and `prox_rows`, in threads.

`MixingKernel` and `ProxKernel` are the counterparts of `gradslide.methods.gossip.inner.Mixer` and
give the same bits.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from gradslide._support.arrays import RecycledMemory
from gradslide._support.types import Array, DType, Sparse
from gradslide.graphs.chebyshev import Coefficients
from gradslide.kernels.sets import Sets
from gradslide.kernels.startup import startup_of
from gradslide.kernels.threads import run_in_threads, shares, thread_count

_Result = TypeVar("_Result")

# Seconds that NumPy takes for an exchange, and for each number in it.
_PLAIN, _PLAIN_NUMBER = 3e-5, 1e-9
# And for each number in a prox step.
_PLAIN_PROX_NUMBER = 1e-8

# Results of which nobody uses the memory, and which are kept for the next ones.
_SPARE = 1
# A thread is worthwhile from so many numbers of an array on.
_NUMBERS_PER_THREAD = 1 << 15


class MixingInput(NamedTuple):
    """What an outer iteration starts from: x, the gradients y and g = y + mu grad nu, the dual, and averages."""

    x: Array
    y: Array
    g: Array
    s: Array
    w: Array
    x_bar: Array
    y_bar: Array
    w_bar: Array


class MixingOutput(NamedTuple):
    """u = mix(v, K), the dual after it, and averages."""

    u: Array
    s: Array
    w: Array
    x_bar: Array
    y_bar: Array
    w_bar: Array


class DotsInput(NamedTuple):
    """Arrays whose inner products an outer iteration needs."""

    x: Array
    x_bar_before: Array
    y: Array
    g: Array
    w: Array
    x_bar: Array


class ProxInput(NamedTuple):
    """Arrays that the stationarity of x_under depends on: x, the average, g and w."""

    x: Array
    x_bar: Array
    g: Array
    w: Array


class _Panels(NamedTuple):
    """How columns are shared among threads: first and end, the width of a panel, and its arrays."""

    ranges: list[tuple[int, int]]
    widths: list[int]
    buffers: list[tuple[Array, ...]]


class MixingKernel:
    """The compiled exchanges of one network.

    Parameters
    ----------
    N : Sparse
        The matrix that is applied in every exchange.
    D : Array
        The weights of the agents, a column.
    is_local : bool
        Whether all agents are here; else `run_between` takes the place of `run`.
    """

    def __init__(self, N: Sparse, D: Array, *, is_local: bool = True) -> None:
        dtype = D.dtype
        # As a network converts it: scipy may change the order of the entries.
        N = N.astype(dtype, copy=False)
        # Writable copies: for read-only arrays numba would compile another version.
        self._graph = np.array(N.indptr), np.array(N.indices), np.array(N.data)
        self._D, self._inverse_D = np.array(D[:, 0]), 1 / D[:, 0]
        self._startup = startup_of(f"mixing-{dtype}" if is_local else f"mixing-parts-{dtype}")
        self._memory, self._buffers = RecycledMemory(), RecycledMemory()
        # The last rounds, as arrays; and panels for the last shape and number of threads.
        self._rounds: dict[Coefficients, tuple[Any, ...]] = {}
        self._panels: dict[tuple[int, int, int], _Panels] = {}

    def is_worthwhile(self, K: int, d: int) -> bool:
        """Return whether K exchanges of d columns should use compiled code."""
        indptr, indices, _ = self._graph
        numbers = (len(indices) + 8 * len(indptr)) * d
        return self._startup.is_over or self._startup.is_worthwhile(K * (_PLAIN + _PLAIN_NUMBER * numbers))

    @property
    def is_over(self) -> bool:
        """Whether compiled code is in use."""
        return self._startup.is_over

    def time_plain(self, work: Callable[[], _Result]) -> _Result:
        """Run the plain code, and count its time towards compiling."""
        return self._startup.time_plain(work)

    def run(
        self, at: MixingInput, p: float, share: float, rounds: Coefficients, out: Mapping[str, Array] | None = None
    ) -> MixingOutput:
        """Run the step before the exchanges, the exchanges, and what follows from them.

        Parameters
        ----------
        at : MixingInput
            Where they start.
        p : float
            The weight of the distance to x.
        share : float
            The weight of the new values in the averages.
        rounds : Coefficients
            Of the Chebyshev polynomial.
        out : mapping of str to Array, optional
            Arrays for fields of the result, which may be those of the same agents in `at`.
        """
        from gradslide.kernels import mixing_rows

        (m, d), dtype = at.x.shape, at.x.dtype
        real = dtype.type
        at = MixingInput(*map(_writable, at))
        found = self._results(at, out or {})
        self._memory.release(_SPARE)
        if rounds not in self._rounds:
            steps = np.array(rounds.steps, dtype=real).reshape(-1, 2).T.copy()
            self._rounds = {rounds: (real(rounds.first), *steps)}
        numbers = *self._rounds[rounds], (real(p), real(share), real(rounds.damping))
        given, results = (tuple(each.reshape(-1) for each in arrays) for arrays in (at, found))
        scales = real(p) * self._D
        inverses = 1 / scales

        panels = self._panels_of(m, d, dtype)

        def work(k: int, first: int, end: int) -> None:
            width, buffers = panels.widths[k], panels.buffers[k]
            mixing_rows.exchanges(first, end, width, d, self._graph, scales, inverses, given, results, buffers, numbers)

        run_in_threads(work, panels.ranges)
        code: Any = mixing_rows.exchanges
        self._startup.mark(code.stats.cache_path)
        return found

    def run_between(
        self,
        at: MixingInput,
        p: float,
        share: float,
        rounds: Coefficients,
        out: Mapping[str, Array],
        multiply: Callable[[Array], Array],
    ) -> MixingOutput:
        """Run the same where exchanges are those of a network.

        Parameters
        ----------
        at, p, share, rounds, out
            As for `run`; agents are those of this process.
        multiply : callable
            q -> N q, one exchange.
        """
        from gradslide.kernels import mixing_rows

        (m, d), dtype = at.x.shape, at.x.dtype
        real = dtype.type
        at = MixingInput(*map(_writable, at))
        found = self._results(at, out)
        self._memory.release(_SPARE)
        scales = real(p) * self._D
        inverses = 1 / scales
        v, u, moved, step, q, sent = (self._buffers.empty((m, d), dtype) for _ in range(6))
        given, results = (tuple(each.reshape(-1) for each in arrays) for arrays in (at, found))
        v, moved, step, q = (each.reshape(-1) for each in (v, moved, step, q))
        mixing_rows.begin(d, inverses, given[0], given[2], given[4], real(rounds.first), v, step, q)
        # A network may hold what it was given: q changes.
        sent.reshape(-1)[:] = q
        mixing_rows.after_first(v, _writable(multiply(sent)).reshape(-1), moved, u.reshape(-1))
        for a, b in rounds.steps:
            # New memory, unless nobody refers to an older u.
            product, u_next = _writable(multiply(u)).reshape(-1), self._buffers.empty((m, d), dtype)
            mixing_rows.after_next(u.reshape(-1), product, moved, step, q, u_next.reshape(-1), real(a), real(b))
            u = u_next
        numbers = real(p), real(share), real(rounds.damping)
        mixing_rows.end(d, scales, inverses, given, results, numbers, u.reshape(-1), q)
        code: Any = mixing_rows.end
        self._startup.mark(code.stats.cache_path)
        return found

    def _panels_of(self, m: int, d: int, dtype: DType) -> _Panels:
        from gradslide.kernels.mixing_rows import ARRAYS, LANES, panel_width

        key = m, d, _threads(m * d)
        if key not in self._panels:
            parts = shares(-(-d // LANES), key[-1])
            ranges = [(first * LANES, min(d, end * LANES)) for first, end in parts]
            widths = [panel_width(m, end - first, dtype) for first, end in ranges]
            buffers = [tuple(np.empty(m * width, dtype=dtype) for _ in range(ARRAYS)) for width in widths]
            self._panels = {key: _Panels(ranges, widths, buffers)}
        return self._panels[key]

    def release(self) -> None:
        """Free memory that was kept for further steps."""
        self._panels = {}
        self._memory.release(0)
        self._buffers.release(0)

    def _results(self, at: MixingInput, out: Mapping[str, Array]) -> MixingOutput:
        """Return arrays for the results, those in `out` where they are given."""

        shape, dtype = at.x.shape, at.x.dtype
        return MixingOutput(
            *[
                out[name] if name in out else self._memory.empty(shape, at.s.dtype if name == "s" else dtype)
                for name in MixingOutput._fields
            ]
        )

    def dots(self, at: DotsInput, share: float, p: float) -> Array:
        """Return the inner products of `Mixer.products` per agent.

        Parameters
        ----------
        at : DotsInput
            The arrays.
        share : float
            As in `Mixer.products`.
        p : float
            Is not needed here.

        Returns
        -------
        Array, shape (7, agents)
            In double precision.
        """
        from gradslide.kernels.row_dots import COUNT, row_dots

        m, d = at.x.shape
        real, found = at.x.dtype.type, np.empty((m, COUNT))
        arrays = tuple(_writable(each).reshape(-1) for each in at)

        def work(k: int, first: int, end: int) -> None:
            row_dots(first, end, d, arrays, real(share), self._inverse_D, found)

        run_in_threads(work, shares(m, _threads(m * d)))
        return found.T


class ProxKernel:
    """The compiled prox steps onto one Euclidean set, of all agents.

    Parameters
    ----------
    sets : Sets
        The set and its penalty.
    D : Array
        The weights of the agents, a column.
    """

    def __init__(self, sets: Sets, D: Array) -> None:
        self._sets = (*sets.intervals, sets.origin), sets.kind, sets.radius
        self._D, self._inverse_D = np.array(D[:, 0]), 1 / D[:, 0]
        self._startup = startup_of(f"prox-{D.dtype}")

    def is_worthwhile(self, numbers: int) -> bool:
        """Return whether a prox step of arrays of so many numbers should use compiled code."""
        return self._startup.is_over or self._startup.is_worthwhile(_PLAIN + _PLAIN_PROX_NUMBER * numbers)

    def time_plain(self, work: Callable[[], _Result]) -> _Result:
        """Run the plain code, and count its time towards compiling."""
        return self._startup.time_plain(work)

    def stationarity(self, at: ProxInput, p: float, share: float) -> Array:
        """Return <Q, Q/D> of each agent, with Q = p D (x_under - prox(x_under - (g + w)/(p D))).

        Parameters
        ----------
        at : ProxInput
            The arrays, with x_under = x_bar + share (x - x_bar).
        p, share : float
            As in `MixingKernel.run`.
        """
        from gradslide.kernels import prox_rows

        (m, d), real = at.x.shape, at.x.dtype.type
        scales, found = real(p) * self._D, np.empty(m)
        arrays, steps = tuple(_writable(each).reshape(-1) for each in at), _rounded(1 / scales)

        def work(k: int, first: int, end: int) -> None:
            prox_rows.stationarity(
                first, end, d, arrays, real(share), scales, self._inverse_D, *self._sets, steps, found
            )

        run_in_threads(work, shares(m, _threads(m * d)))
        return found

    def step(self, x_bar: Array, before: Array, u: Array, step: float, ratio: float) -> None:
        """Replace x_bar by its prox step, and u by before + ratio (x_bar - before).

        Parameters
        ----------
        x_bar, u : Array
            Arrays in C order, which are overwritten.
        before : Array
            The average before.
        step : float
            The step of the prox.
        ratio : float
            Of x - before to x_bar - before.
        """
        from gradslide.kernels import prox_rows

        (m, d), real = x_bar.shape, x_bar.dtype.type
        steps = _rounded(np.array([step])).astype(x_bar.dtype, copy=False)
        arrays = x_bar.reshape(-1), _writable(before).reshape(-1), u.reshape(-1)

        def work(k: int, first: int, end: int) -> None:
            prox_rows.prox(first, end, d, *arrays, real(ratio), *self._sets, steps)

        run_in_threads(work, shares(m, _threads(m * d)))
        code: Any = prox_rows.prox
        self._startup.mark(code.stats.cache_path)


def _rounded(step: Array) -> Array:
    """Return rows of step, 1/step and 1 over that, which plain prox steps use."""
    inverse = 1 / step
    return np.array([step, inverse, 1 / inverse])


def _threads(numbers: int) -> int:
    """Return how many threads to use for arrays of so many numbers: few take less time than a thread's start."""
    return max(1, min(thread_count(), numbers // _NUMBERS_PER_THREAD))


def _writable(array: Array) -> Array:
    """Return the array, in C order: for others, and read-only ones, numba would compile another version."""
    flags = array.flags
    return array if flags.c_contiguous and flags.writeable else np.require(array, requirements=["C", "W"])
