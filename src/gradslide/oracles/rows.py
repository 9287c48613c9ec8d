"""Samples of the rows that an agent holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradslide._support.keywords import CheckedArguments
from gradslide._support.randomness import Streams
from gradslide._support.types import Array
from gradslide.losses import Loss
from gradslide.losses.base import no_rows
from gradslide.losses.partition import Draw, drawn, draws_rows, with_replacement
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
        return _overlapping(_Independent(loss, sizes, streams), self.overlap)


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
        return _overlapping(_Epochs(loss, sizes, Streams(seed, agents)), self.overlap)


def _overlapping(sampler: Sampler, overlap: bool) -> Sampler:
    return Prefetch(sampler, overlap=True) if overlap else sampler


class _Rows(Sampler):
    """Samples are row numbers: arrays (m, count) where possible, and everything is done for all agents at once."""

    def __init__(self, loss: Loss, sizes: Array, streams: Streams) -> None:
        self._loss, self._sizes, self._streams = loss, sizes, streams

    def gradient(self, x: Array, samples: Draw) -> Array:
        return self._loss.gradient_of_rows(x, samples.rows, samples.counts)


class _Independent(_Rows):
    def draw(self, start: int, count: int) -> Draw:
        sizes = self._sizes
        is_drawn = draws_rows(sizes, count)
        agents = np.flatnonzero(is_drawn)
        rows = self._streams.integers(agents, start, sizes[agents], count)
        has_more = sizes[agents] > count
        if has_more.all() and is_drawn.all():
            return Draw(rows, np.ones(rows.shape))
        few = zip(agents[~has_more].tolist(), rows[~has_more], strict=True)
        others = {i: drawn(own, int(sizes[i])) for i, own in few}
        for i in np.flatnonzero(~is_drawn).tolist():
            others[i] = with_replacement(self._streams.at(i, start), int(sizes[i]), count)
        return _of_agents(agents[has_more], rows[has_more], others)


class _Epochs(_Rows):
    def __init__(self, loss: Loss, sizes: Array, streams: Streams) -> None:
        super().__init__(loss, sizes, streams)
        # The orders of all agents, one after the other, each with the number of its epoch.
        self._orders = np.empty(int(sizes.sum()), dtype=np.int64)
        self._epochs = np.full(len(sizes), -1)
        self._ends = np.cumsum(sizes)

    def draw(self, start: int, count: int) -> Draw:
        sizes, end = self._sizes, start + count
        epochs, skip = np.divmod(start, sizes)
        is_within = epochs == max(start, end - 1) // sizes
        agents = np.flatnonzero(is_within)
        for i in agents[epochs[agents] != self._epochs[agents]].tolist():
            self._shuffled(i, int(sizes[i]), int(epochs[i]))
        # Nobody is within an epoch if the batch is longer than all of them.
        columns = np.arange(min(count, int(sizes.max())))
        rows = self._orders[(self._ends - sizes + skip)[agents, None] + columns]
        if is_within.all():
            return Draw(rows, np.ones(rows.shape))
        others = np.flatnonzero(~is_within).tolist()
        return _of_agents(agents, rows, {i: self._of(i, int(sizes[i]), start, end) for i in others})

    def _of(self, i: int, n: int, start: int, end: int) -> Draw:
        """Rows start, ..., end - 1, of more than one epoch, of one random order of the n rows after another."""
        (first, skip), (last, at) = divmod(start, n), divmod(end - 1, n)
        counts = np.full(n, float(last - first - 1))
        counts[self._shuffled(i, n, first)[skip:]] += 1
        counts[self._shuffled(i, n, last)[: at + 1]] += 1
        return Draw(np.arange(n), counts)

    def _shuffled(self, i: int, n: int, epoch: int) -> Array:
        """The order of agent i's rows in an epoch, until the next call."""
        order = self._orders[self._ends[i] - n : self._ends[i]]
        if self._epochs[i] != epoch:
            order[:], self._epochs[i] = self._streams.at(i, epoch).permutation(n), epoch
        return order


def _of_agents(agents: Array, rows: Array, others: Mapping[int, Draw]) -> Draw:
    """The draws of all agents: rows of some, (agents, count), each of which counts once, and those of the others."""
    ones = np.ones(rows.shape)
    draws = {**dict(zip(agents.tolist(), zip(rows, ones, strict=True), strict=True)), **others}
    return Draw(*zip(*(draws[i] for i in range(len(draws))), strict=True))


class _Own(Sampler):
    """The loss itself draws and evaluates; generators stand for the samples."""

    def __init__(self, loss: Loss, streams: Streams) -> None:
        self._loss, self._streams = loss, streams

    def draw(self, start: int, count: int) -> tuple[int, list[Any]]:
        return count, [self._streams.at(i, start) for i in range(self._loss.m)]

    def gradient(self, x: Array, samples: tuple[int, list[Any]]) -> Array:
        return self._loss.sample_gradient(x, *samples)
