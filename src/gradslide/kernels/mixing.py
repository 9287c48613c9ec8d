"""The exchanges of the gossip mode on a CPU: `mixing_tiles`, in threads.

`MixingKernel` is the counterpart of `gradslide.methods.gossip.inner.Mixer` and gives the same bits.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from gradslide._support.arrays import RecycledMemory
from gradslide._support.types import Array, Sparse
from gradslide.graphs.chebyshev import Coefficients
from gradslide.kernels.startup import startup_of
from gradslide.kernels.threads import run_in_threads, shares, thread_count

_Result = TypeVar("_Result")

# Seconds that NumPy takes for an exchange, and for each number in it.
_PLAIN, _PLAIN_NUMBER = 3e-5, 1e-9


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


class MixingKernel:
    """The compiled exchanges of one network.

    Parameters
    ----------
    N : Sparse
        The matrix that is applied in every exchange.
    D : Array
        The weights of the agents, a column.
    """

    def __init__(self, N: Sparse, D: Array) -> None:
        dtype = D.dtype
        # As a network converts it: scipy may change the order of the entries.
        N = N.astype(dtype, copy=False)
        # Writable copies: for read-only arrays numba would compile another version.
        self._graph = np.array(N.indptr), np.array(N.indices), np.array(N.data)
        self._D, self._startup, self._memory = D[:, 0], startup_of(f"mixing-{dtype}"), RecycledMemory()

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

    def run(self, at: MixingInput, p: float, share: float, rounds: Coefficients) -> MixingOutput:
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
        """
        from gradslide.kernels import mixing_tiles

        (m, d), real = at.x.shape, at.x.dtype.type
        if d < mixing_tiles.LANES:
            wide = MixingInput(*(_widened(each, mixing_tiles.LANES) for each in at))
            return MixingOutput(*(np.ascontiguousarray(each[:, :d]) for each in self.run(wide, p, share, rounds)))
        at = MixingInput(*(np.require(each, requirements=["C", "W"]) for each in at))
        found = MixingOutput(*(self._memory.empty((m, d), at.s.dtype if k == 1 else at.x.dtype) for k in range(6)))
        a, b = np.array(rounds.steps, dtype=real).reshape(-1, 2).T.copy()
        numbers = real(p), real(share), real(rounds.divisor), a, b, real(rounds.damping)
        given, results = (tuple(each.reshape(-1) for each in arrays) for arrays in (at, found))
        scales = real(p) * self._D

        def work(k: int, first: int, end: int) -> None:
            own = mixing_tiles.buffers(m, d, real)
            mixing_tiles.tiles(first, end, d, self._graph, scales, given, results, own, numbers)

        run_in_threads(work, shares(-(-d // mixing_tiles.LANES), thread_count()))
        code: Any = mixing_tiles.tiles
        self._startup.mark(code.stats.cache_path)
        return found

    def dots(self, x_under: Array, g: Array, x_bar: Array, x_bar_before: Array, w: Array) -> Array:
        """Return <g, e>, |e|^2, <w, x_bar> and <w, x_bar_before> per agent, with e = x_bar - x_under.

        Returns
        -------
        Array, shape (4, agents)
            In double precision.
        """
        from gradslide.kernels.row_dots import COUNT, row_dots

        (m, d), found = x_bar.shape, np.empty((len(x_bar), COUNT))
        arrays = [
            np.require(each, requirements=["C", "W"]).reshape(-1) for each in (x_under, g, x_bar, x_bar_before, w)
        ]
        run_in_threads(lambda k, first, end: row_dots(first, end, d, *arrays, found), shares(m, thread_count()))
        return found.T


def _widened(array: Array, columns: int) -> Array:
    """Return the array with columns of zeros."""
    wide = np.zeros((len(array), columns), dtype=array.dtype)
    wide[:, : array.shape[1]] = array
    return wide
