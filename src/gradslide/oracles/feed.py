"""The samples of one agent's stream, from batches of any size."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from gradslide._support.errors import InputError, StreamEnded, StreamError
from gradslide._support.types import Array
from gradslide.losses.inputs import stack_rows

Batch = Array | tuple[Array, ...]


class Feed:
    """The samples of one agent that have arrived and are not used yet. `read` checks a batch."""

    def __init__(self, agent: int, batches: Iterator[Any], read: Callable[[Any], Batch]) -> None:
        self.agent = agent
        self.waiting = False
        self.arrived = 0
        self.closed = False
        self._batches = batches
        self._read = read
        self._form: tuple[bool, list[tuple[int, ...]]] | None = None
        self._kept: list[tuple[Array, ...]] = []
        self._count = 0

    def fill(self, count: int) -> None:
        """Wait until so many samples are there."""
        while self._count < count and not self.closed:
            self.waiting = True
            try:
                parts = self._parts(self._read(next(self._batches)))
            except StopIteration:
                raise StreamEnded(self.agent) from None
            except Exception as error:
                raise StreamError(self.agent, f"{type(error).__name__}: {error}") from error
            self.waiting = False
            size = parts[0].shape[0]
            self.arrived += size > 0
            self._kept.append(parts)
            self._count += size

    def take(self, count: int) -> Batch:
        """The first so many of them as one batch, in the form in which batches come."""
        columns = [stack_rows(column) if len(column) > 1 else column[0] for column in zip(*self._kept, strict=True)]
        self._kept = [tuple(column[count:] for column in columns)]
        self._count -= count
        parts = tuple(column[:count] for column in columns)
        return parts if self._form is not None and self._form[0] else parts[0]

    def _parts(self, batch: Batch) -> tuple[Array, ...]:
        """The parts of a batch, which can be put beside those of earlier ones."""
        bundled = isinstance(batch, tuple)
        parts: tuple[Array, ...] = batch if isinstance(batch, tuple) else (batch,)
        form = bundled, [part.shape[1:] for part in parts]
        before = self._form = self._form or form
        if form != before:
            raise InputError(f"batches must have the form of the first, {before[1]} per sample", form[1], "mend it")
        return parts


class OneAtATime:
    """An iterator that several runs may share: whoever comes second waits."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator = iterator
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        with self._lock:
            return next(self._iterator)


def read_arrays(batch: Any) -> Batch:
    """An array, or a tuple of arrays, with one leading entry per sample; anything that NumPy can read will do."""
    bundled = isinstance(batch, tuple)
    given = batch if bundled else (batch,)
    try:
        parts = tuple(sp.csr_array(part) if sp.issparse(part) else np.asarray(part) for part in given)
    except ValueError as error:
        raise InputError("a batch must be an array, or a tuple of arrays", str(error), "yield a tuple") from None
    lengths = {part.shape[0] if part.ndim else None for part in parts}
    if len(lengths) != 1 or None in lengths:
        raise InputError(
            "a batch must be an array, or a tuple of arrays, with one leading entry per sample",
            f"shapes {', '.join(str(part.shape) for part in parts)}",
            "give all parts the same length",
        )
    return parts if bundled else parts[0]
