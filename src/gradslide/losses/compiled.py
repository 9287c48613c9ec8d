"""Losses with one score per row in compiled code: one pass over the data, multithreaded."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gradslide._support.arrays import is_numpy
from gradslide._support.types import Array, Tensor
from gradslide.kernels.device import has_kernels, on_device_of, parts
from gradslide.kernels.threads import run_in_threads, thread_count
from gradslide.losses.devices import Features, TorchRows
from gradslide.losses.inputs import is_sparse

# The numbers of phi in compiled code: that of Huber is least squares if its width is infinite.
LOGISTIC, RESIDUAL, HINGE = range(3)
# What a pass computes.
_GRADIENT, _VALUE, _KEEP, _GIVEN, _AHEAD = (1 << bit for bit in range(5))

_LEAST_ENTRIES = 2**24  # below, the wait for the compiler is longer than what it saves in a hundred gradients
_BLOCK_ENTRIES = 2**15  # stay in the second cache from the scores to the gradient
_SPARSE_BLOCK = 256
_MOST_DEVICE_COLUMNS = 2048  # rows stay in registers
_SEGMENT_ENTRIES = 2**18
_ENTRIES_PER_THREAD = 2**19


def pays(entries: int) -> bool:
    """Return whether compiling pays for features with so many stored numbers."""
    return entries >= _LEAST_ENTRIES


class RowsPass(NamedTuple):
    """What one pass over the data computed; empty arrays for what was not wanted.

    Attributes
    ----------
    values : Array
        Shape (m,), in double precision.
    gradients : Array
        Shape (m, p).
    scores : Array
        Shape (n,), in double precision.
    values_ahead : Array or None
        Values at extrapolated points, shape (m,).
    """

    values: Array
    gradients: Array
    scores: Array
    values_ahead: Array | None


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
        x: Array | None,
        *,
        value: bool = False,
        gradient: bool = False,
        keep: bool = False,
        scores: Array | None = None,
        before: Array | None = None,
        theta: float = 0.0,
    ) -> "RowsPass":
        """Take one pass over the data.

        Parameters
        ----------
        kind, width : int and float
            phi and its parameter.
        targets, weights : Array
            Of the rows.
        x : Array or None
            The points; None if their scores are given.
        value, gradient, keep : bool
            Whether to compute values, gradients, and scores.
        scores : Array, optional
            The scores of x, if they are known: then gradients have the precision of the features.
        before, theta : Array and float, optional
            Scores of other points: gradients are those at x + theta (x - x_before), and `values_ahead` values there.
        """
        from gradslide.kernels.rows_pass import rows_pass

        dtype, none = self._data.dtype, np.empty(0)
        gradients = np.zeros((len(self._owners) if gradient else 0, self._p), dtype=dtype)
        values = np.zeros(len(self._owners) if value else 0)
        ahead = np.zeros(0 if before is None else len(self._owners))
        weights = np.empty(0, dtype=dtype) if weights is None else weights
        data = self._data, self._indices, self._indptr, _frozen(targets), _frozen(weights), self._ends, self._owners
        want = _GRADIENT * gradient + _VALUE * value + _KEEP * keep
        want += _GIVEN * (scores is not None) + _AHEAD * (before is not None)
        kept = np.empty(len(targets) if keep else 0) if scores is None else np.require(scores, requirements=["C", "W"])
        points = _frozen(np.empty((0, self._p), dtype=dtype) if x is None else x)
        at = points, _frozen(none if before is None else before), theta

        def run(k: int, first: int, last: int) -> None:
            rows_pass(kind, width, *data, *at, first, last, self._block, want, gradients, values, ahead, kept)

        run_in_threads(run, self._shares())
        if len(self._owners) > len(self._first):
            values, ahead = (np.add.reduceat(each, self._first) if len(each) else each for each in (values, ahead))
            gradients = np.add.reduceat(gradients, self._first, axis=0) if gradient else gradients
        return RowsPass(values, gradients, kept, None if before is None else ahead)

    def _shares(self) -> list[tuple[int, int]]:
        """The segments of each thread, (first, end), balanced by entries."""
        total = int(self._until[-1])
        count = max(1, min(thread_count(), total // _ENTRIES_PER_THREAD, len(self._owners)))
        inner = np.searchsorted(self._until, np.arange(1, count) * (total / count)).tolist()
        return list(pairwise([0, *inner, len(self._owners)]))


class DeviceRows:
    """The dense rows of all agents on a GPU, each agent's summed by one program of a Triton kernel."""

    def __init__(self, features: Tensor, starts: Array, ends: Array) -> None:
        import torch

        self._torch, self._features, self._p = torch, features.contiguous(), features.shape[1]
        bounds = np.append(starts, ends[-1:]).astype(np.int64)
        self._bounds = torch.as_tensor(bounds, device=features.device)

    def evaluate(
        self,
        kind: int | None,
        width: float,
        targets: Tensor,
        weights: "Tensor | None",
        x: "Tensor | None",
        *,
        value: bool = False,
        gradient: bool = False,
        keep: bool = False,
        scores: "Tensor | None" = None,
        before: "Tensor | None" = None,
        theta: float = 0.0,
    ) -> RowsPass:
        """Take one pass over the data, as `CompiledRows.evaluate` does."""
        from gradslide.kernels import triton_rows

        torch, features, p, m = self._torch, self._features, self._p, len(self._bounds) - 1

        def doubles(count: int) -> Tensor:
            return torch.empty(count, dtype=torch.float64, device=features.device)

        gradients = features.new_empty((m if gradient else 0, p))
        values, ahead = doubles(m if value else 0), doubles(0 if before is None else m)
        # A pass that is not asked for scores needs them in between.
        kept = doubles(len(targets)) if scores is None else scores.contiguous()
        slopes = features.new_empty(len(targets) if gradient else 0)
        columns = max(16, 1 << (p - 1).bit_length())
        rows = max(1, min(32, triton_rows.ENTRIES // columns))
        with on_device_of(features):
            triton_rows.rows_pass[(m,)](
                features,
                targets,
                features if weights is None else weights,
                self._bounds,
                features if x is None else x.contiguous(),
                kept if before is None else before,
                kept,
                slopes,
                gradients,
                values,
                ahead,
                *parts(width),
                *parts(theta),
                p,
                kind,
                weights is not None,
                value,
                gradient,
                scores is not None,
                before is not None,
                rows,
                columns,
                triton_rows.LONG,
                num_warps=max(1, min(4, rows * columns // 1024)),
            )
        return RowsPass(values, gradients, kept, None if before is None else ahead)


def can_be_compiled(features: Features) -> bool:
    """Return whether there is compiled code for these rows: of NumPy and SciPy, or dense on a GPU."""
    if is_sparse(features) or is_numpy(features):
        return not isinstance(features, TorchRows)
    return has_kernels(features) and features.shape[1] <= _MOST_DEVICE_COLUMNS


def _frozen(array: Array) -> Array:
    """A read-only view: the compiler treats other arrays as another type, and would start anew."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
