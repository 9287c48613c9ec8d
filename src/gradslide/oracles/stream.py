"""Live streams: samples as they arrive."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace

from gradslide._support.arrays import as_dtype, dtype_of, is_numpy, like, to_numpy
from gradslide._support.errors import InputError, StreamEnded, StreamError, kind_of, require, require_number
from gradslide._support.keywords import CheckedArguments
from gradslide._support.types import Array
from gradslide.losses import Loss
from gradslide.losses.base import no_rows
from gradslide.losses.inputs import stack_rows
from gradslide.oracles.base import Sampler
from gradslide.oracles.prefetch import Prefetch

# What a stream yields, once it is checked: arrays whose leading axis counts samples.
Batch = Array | tuple[Array, ...]
# One entry per share of the agents: what went wrong, if anything.
Outcomes = queue.SimpleQueue[list[BaseException]]
Sources = Sequence[Iterable[Any]] | Callable[[int], Iterable[Any]]


@dataclass(frozen=True)
class Stream(CheckedArguments):
    """Samples from one iterator per agent, which may block until data arrives.

    Gradients are unbiased if samples are independent of each other and of the past, with the
    distribution whose mean is ft_i. The loss's own rows then only serve to compute L and the
    objective.

    Parameters
    ----------
    sources : sequence of iterables, or callable
        One iterable (generator, iterator, list) of batches per agent of the network; or a function
        i -> iterable, called for the agents that this process holds. A batch holds any number of
        samples; surplus samples are kept for later. It is a pair (features, labels) as the loss
        takes them; or, with `gradient`, an array or a tuple of arrays whose leading axis counts
        samples.
    gradient : callable, optional
        (x_i, batch) -> (d,), the mean gradient of the batch's samples, for your own losses.
    overlap : bool
        Collect the samples of the next outer iteration while the network communicates.
    timeout : float, optional
        Give up when no batch arrives for so many seconds while the run waits; no limit by default.
    workers : int
        Threads that draw in parallel, each from its own share of the agents; use more than one
        where streams block and are independent.

    Notes
    -----
    Iterators are used up: samples that were collected ahead when a run ends, and the rest of a
    batch, are lost.
    """

    sources: Sources
    gradient: Callable[[Array, Any], Array] | None = None
    overlap: bool = True
    timeout: float | None = None
    workers: int = 1

    def __post_init__(self) -> None:
        sources = self.sources
        if isinstance(sources, Sequence) and not isinstance(sources, str | bytes):
            # A run that ended may still wait for a batch when the next one asks for it.
            shared = [OneAtATime(source) if isinstance(source, Iterator) else source for source in sources]
            object.__setattr__(self, "sources", shared)
        elif not callable(sources):
            raise InputError(
                "sources must be a list with one iterable per agent, or a function of the agent's number",
                kind_of(self.sources),
                "for example [stream(i) for i in range(m)]",
            )
        if self.gradient is not None and not callable(self.gradient):
            raise InputError("gradient must be callable", kind_of(self.gradient), "give a function of (x_i, batch)")
        if self.timeout is not None:
            remedy = "or leave it out to wait for ever"
            require_number("timeout", self.timeout, remedy, above=0, most=threading.TIMEOUT_MAX)
        require(isinstance(self.overlap, bool), "overlap must be true or false", repr(self.overlap), "overlap=True")
        require_number("workers", self.workers, "1 draws from one stream after the other", least=1, whole=True)

    def __repr__(self) -> str:
        return "Stream()"

    def open(self, loss: Loss, agents: Sequence[int], seed: int) -> Sampler:
        """Return a sampler; see `Sampling`."""
        if self.gradient is None and loss.rows_per_agent is None:
            raise no_rows(loss)
        iterators = [_iterator(self.sources, agent) for agent in agents]
        readers = [partial(loss.read_samples, i) if self.gradient is None else read_arrays for i in range(loss.m)]
        feeds = [Feed(*one) for one in zip(agents, iterators, readers, strict=True)]
        return Prefetch(_Live(loss, feeds, self.gradient, self.workers), overlap=self.overlap, timeout=self.timeout)


class Feed:
    """The unused samples of one agent that have arrived. `read` checks a batch."""

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
        """Remove the first samples and return them as one batch, in the form of the stream's
        batches.
        """
        columns = [stack_rows(column) if len(column) > 1 else column[0] for column in zip(*self._kept, strict=True)]
        self._kept = [tuple(column[count:] for column in columns)]
        self._count -= count
        parts = tuple(column[:count] for column in columns)
        return parts if self._form is not None and self._form[0] else parts[0]

    def _parts(self, batch: Batch) -> tuple[Array, ...]:
        """The parts of a batch, which must match those of earlier ones."""
        bundled = isinstance(batch, tuple)
        parts: tuple[Array, ...] = batch if isinstance(batch, tuple) else (batch,)
        form = bundled, [part.shape[1:] for part in parts]
        before = self._form = self._form or form
        if form != before:
            raise InputError(f"batches must have the form of the first, {before[1]} per sample", form[1], "correct it")
        return parts


class OneAtATime:
    """An iterator that several runs may share: calls wait for each other."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator = iterator
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        with self._lock:
            return next(self._iterator)


def read_arrays(batch: Any) -> Batch:
    """Return an array, or a tuple of arrays, with one leading entry per sample."""
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


class _Live(Sampler):
    def __init__(self, loss: Loss, feeds: list[Feed], gradient: Callable[..., Array] | None, workers: int) -> None:
        self._loss, self._feeds, self._gradient = loss, feeds, gradient
        shares = [feeds[first::workers] for first in range(min(workers, len(feeds)))]
        self._workers = [_Worker(share) for share in shares] if len(shares) > 1 else []

    def draw(self, start: int, count: int) -> list[Any]:
        """The next samples: a live stream cannot go back, so `start` is not looked at."""
        outcomes: Outcomes = queue.SimpleQueue()
        if not self._workers:
            _fill(self._feeds, count, outcomes)
        for worker in self._workers:
            worker.ask(count, outcomes)
        for _ in range(max(1, len(self._workers))):
            # The first failure counts: other streams may block for long.
            if failures := outcomes.get():
                # Popped: an error and the frames that name it would keep each other, and the streams, alive.
                raise failures.pop()
        return [feed.take(count) for feed in self._feeds]

    def gradient(self, x: Array, samples: list[Any]) -> Array:
        if self._gradient is None:
            return self._loss.gradient_of_samples(x, samples)
        return array_namespace(x).stack(
            [self._own_gradient(feed.agent, *own) for feed, *own in zip(self._feeds, x, samples, strict=True)]
        )

    def waiting(self) -> tuple[int | None, int]:
        agent = next((feed.agent for feed in self._feeds if feed.waiting), None)
        return agent, sum(feed.arrived for feed in self._feeds)

    def close(self) -> None:
        for feed in self._feeds:
            feed.closed = True
        for worker in self._workers:
            worker.end()

    def _own_gradient(self, agent: int, x: Array, batch: Any) -> Array:
        assert self._gradient is not None
        try:
            given = self._gradient(x, batch)
            result = to_numpy(given) if is_numpy(given) or is_numpy(x) else given
        except Exception as error:
            raise StreamError(agent, f"its gradient raised {type(error).__name__}: {error}") from error
        if result.shape != x.shape or dtype_of(result).kind not in "biuf":
            got = f"type {result.dtype} and shape {tuple(result.shape)}"
            raise StreamError(agent, f"its gradient must be real numbers of shape {tuple(x.shape)}; got {got}")
        return as_dtype(like(result, x) if is_numpy(result) else result, self._loss.dtype)


class _Worker:
    """Fills its share of the feeds on request, on its own thread.

    The thread is a daemon: a blocked stream does not keep the program alive.
    """

    def __init__(self, feeds: list[Feed]) -> None:
        self._feeds = feeds
        self._tasks: queue.SimpleQueue[tuple[int, Outcomes] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def ask(self, count: int, outcomes: Outcomes) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gradslide-samples", daemon=True)
            self._thread.start()
        self._tasks.put((count, outcomes))

    def end(self) -> None:
        self._tasks.put(None)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            _fill(self._feeds, *task)


def _fill(feeds: list[Feed], count: int, outcomes: Outcomes) -> None:
    try:
        for feed in feeds:
            feed.fill(count)
    # Whatever it is, who waits must hear of it.
    except BaseException as error:
        outcomes.put([error])
    else:
        outcomes.put([])


def _iterator(sources: Sources, agent: int) -> Iterator[Any]:
    if callable(sources):
        try:
            source = sources(agent)
        except Exception as error:
            raise StreamError(agent, f"it could not be opened: {type(error).__name__}: {error}") from error
    else:
        require(
            agent < len(sources),
            "sources must hold one stream per agent",
            len(sources),
            f"give one for agent {agent} too",
        )
        source = sources[agent]
    try:
        return iter(source)
    except TypeError:
        raise InputError(f"the stream of agent {agent} must be iterable", kind_of(source), "give a generator") from None
