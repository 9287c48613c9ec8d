"""Samples of the rows that an agent holds."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradslide._support.keywords import CheckedArguments
from gradslide._support.randomness import Streams
from gradslide._support.types import Array
from gradslide.losses import Loss
from gradslide.losses.base import no_rows
from gradslide.losses.partition import Draw, with_replacement
from gradslide.oracles.base import Sampler
from gradslide.oracles.prefetch import Prefetch


@dataclass(frozen=True)
class WithReplacement(CheckedArguments):
    """Sample an agent's rows uniformly and independently: unbiased, as Theorem 2 assumes.

    A `Custom` loss uses its own `sample_gradient`.

    Parameters
    ----------
    overlap : bool
        Draw on a thread while the network communicates.

    Examples
    --------
    >>> import gradslide as gs
    >>> method = gs.SPDS(samples=1000, oracle=gs.oracles.WithReplacement())
    """

    overlap: bool = field(default=False, repr=False)

    def open(self, loss: Loss, agents: Sequence[int], seed: int) -> Sampler:
        """Return a sampler; see `Sampling`."""
        streams = Streams(seed, agents)
        sizes = loss.rows_per_agent
        if sizes is None:
            return _Own(loss, streams)
        return _overlapping(_Independent(loss, sizes.tolist(), streams), self.overlap)


@dataclass(frozen=True)
class WithoutReplacement(CheckedArguments):
    """Sample an agent's rows in epochs: each row once, in a new random order each time.

    Not covered by Theorem 2: the samples of an epoch depend on each other, so gradients are not
    unbiased given the past. Often good in practice.

    Parameters
    ----------
    overlap : bool
        Draw on a thread while the network communicates.
    """

    overlap: bool = field(default=False, repr=False)

    def open(self, loss: Loss, agents: Sequence[int], seed: int) -> Sampler:
        """Return a sampler; see `Sampling`."""
        sizes = loss.rows_per_agent
        if sizes is None:
            raise no_rows(loss)
        return _overlapping(_Epochs(loss, sizes.tolist(), Streams(seed, agents)), self.overlap)


def _overlapping(sampler: Sampler, overlap: bool) -> Sampler:
    return Prefetch(sampler, overlap=True) if overlap else sampler


class _Rows(Sampler):
    """Samples are row numbers."""

    def __init__(self, loss: Loss, sizes: list[int], streams: Streams) -> None:
        self._loss, self._sizes, self._streams = loss, sizes, streams

    def gradient(self, x: Array, samples: list[Draw]) -> Array:
        return self._loss.gradient_of_rows(x, [draw.rows for draw in samples], [draw.counts for draw in samples])


class _Independent(_Rows):
    def draw(self, start: int, count: int) -> list[Draw]:
        return [with_replacement(self._streams.at(i, start), n, count) for i, n in enumerate(self._sizes)]


class _Epochs(_Rows):
    def __init__(self, loss: Loss, sizes: list[int], streams: Streams) -> None:
        super().__init__(loss, sizes, streams)
        self._order: dict[int, tuple[int, Array]] = {}

    def draw(self, start: int, count: int) -> list[Draw]:
        return [self._of(i, n, start, start + count) for i, n in enumerate(self._sizes)]

    def _of(self, i: int, n: int, start: int, end: int) -> Draw:
        """Rows start, ..., end - 1 of one random order of the n rows after another."""
        (first, skip), (last, at) = divmod(start, n), divmod(end - 1, n)
        if first == last:
            return Draw(self._shuffled(i, n, first)[skip : at + 1], np.ones(end - start))
        counts = np.full(n, float(last - first - 1))
        counts[self._shuffled(i, n, first)[skip:]] += 1
        counts[self._shuffled(i, n, last)[: at + 1]] += 1
        return Draw(np.arange(n), counts)

    def _shuffled(self, i: int, n: int, epoch: int) -> Array:
        if i not in self._order or self._order[i][0] != epoch:
            self._order[i] = epoch, self._streams.at(i, epoch).permutation(n)
        return self._order[i][1]


class _Own(Sampler):
    """The loss itself draws and evaluates; generators stand for the samples."""

    def __init__(self, loss: Loss, streams: Streams) -> None:
        self._loss, self._streams = loss, streams

    def draw(self, start: int, count: int) -> tuple[int, list[Any]]:
        return count, [self._streams.at(i, start) for i in range(self._loss.m)]

    def gradient(self, x: Array, samples: tuple[int, list[Any]]) -> Array:
        return self._loss.sample_gradient(x, *samples)
