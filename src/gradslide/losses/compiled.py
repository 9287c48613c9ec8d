"""Losses with one score per row in compiled code: one pass over the data, multithreaded."""

from itertools import pairwise

import numpy as np

from gradslide._support.types import Array
from gradslide.kernels.threads import run_in_threads, thread_count
from gradslide.losses.devices import Features
from gradslide.losses.inputs import is_sparse

# The numbers of phi in compiled code: that of Huber is least squares if its width is infinite.
LOGISTIC, RESIDUAL, HINGE = range(3)
_GRADIENT, _VALUE = 1, 2

_LEAST_ENTRIES = 2**24  # below, the wait for the compiler is longer than what it saves in a hundred gradients
_BLOCK_ENTRIES = 2**12  # stay in the first cache from the scores to the gradient
_SPARSE_BLOCK = 256
_SEGMENT_ENTRIES = 2**18
_ENTRIES_PER_THREAD = 2**19


def pays(entries: int) -> bool:
    """Return whether compiling pays for features with so many stored numbers."""
    return entries >= _LEAST_ENTRIES


class CompiledRows:
    """The rows of all agents, cut into segments, each summed by one thread.

    Where agents are cut depends on their own rows only, so an agent's sums depend neither on its
    neighbours nor on the number of threads.
    """

    def __init__(self, features: Features, starts: Array, ends: Array) -> None:
        n, p = features.shape
        self._p, sizes = p, ends - starts
        if is_sparse(features):
            self._data, self._indices, self._indptr = map(_frozen, (features.data, features.indices, features.indptr))
            row_ends = features.indptr
            self._block = _SPARSE_BLOCK
        else:
            none = _frozen(np.empty(0, dtype=np.int32))
            self._data, self._indices, self._indptr = _frozen(features.reshape(-1)), none, none
            row_ends = np.arange(n + 1) * p
            self._block = max(8, _BLOCK_ENTRIES // p // 8 * 8)
        entries = row_ends[ends] - row_ends[starts]
        # A partial gradient has p numbers: no more of them than there are entries.
        parts = np.maximum(-(-entries // max(_SEGMENT_ENTRIES, 4 * p)), 1)
        steps = -(-sizes // (8 * parts)) * 8
        parts = -(-sizes // steps)
        owners = np.repeat(np.arange(len(sizes)), parts)
        self._first = np.cumsum(parts) - parts
        number = np.arange(len(owners)) - self._first[owners] + 1
        segment_ends = np.minimum(starts[owners] + number * steps[owners], ends[owners])
        self._ends, self._owners = _frozen(segment_ends), _frozen(owners)
        self._until = np.asarray(row_ends[segment_ends])

    def evaluate(
        self,
        kind: int | None,
        width: float,
        targets: Array,
        weights: Array | None,
        x: Array,
        *,
        value: bool = False,
        gradient: bool = False,
    ) -> tuple[Array, Array]:
        """Return values (m,), in double precision, and gradients (m, p); those not wanted are undefined."""
        from gradslide.kernels.rows_pass import rows_pass

        gradients = np.zeros((len(self._owners) if gradient else 0, self._p), dtype=x.dtype)
        values = np.zeros(len(self._owners) if value else 0)
        weights = np.empty(0, dtype=x.dtype) if weights is None else weights
        data = self._data, self._indices, self._indptr, _frozen(targets), _frozen(weights), self._ends, self._owners
        want = _GRADIENT * gradient + _VALUE * value

        def run(k: int, first: int, last: int) -> None:
            rows_pass(kind, width, *data, _frozen(x), first, last, self._block, want, gradients, values)

        run_in_threads(run, self._shares())
        if len(self._owners) > len(self._first):
            values = np.add.reduceat(values, self._first) if value else values
            gradients = np.add.reduceat(gradients, self._first, axis=0) if gradient else gradients
        return values, gradients

    def _shares(self) -> list[tuple[int, int]]:
        """The segments of each thread, (first, end), balanced by entries."""
        total = int(self._until[-1])
        count = max(1, min(thread_count(), total // _ENTRIES_PER_THREAD, len(self._owners)))
        inner = np.searchsorted(self._until, np.arange(1, count) * (total / count)).tolist()
        return list(pairwise([0, *inner, len(self._owners)]))


def _frozen(array: Array) -> Array:
    """A read-only view: the compiler treats other arrays as another type, and would start anew."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
