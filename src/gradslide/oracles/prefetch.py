"""Samples drawn on a background thread."""

import threading
import time
from collections.abc import Callable
from typing import Any

from gradslide._support.errors import StreamError, WaitEnded
from gradslide._support.types import Array
from gradslide.oracles.base import Sampler

_GLANCE = 0.1  # seconds


class Prefetch(Sampler):
    """Draws the samples of another sampler on a thread.

    With `overlap` drawing starts when samples are announced, else when they are requested. After
    `timeout` seconds without a new batch StreamError is raised.
    """

    def __init__(self, sampler: Sampler, *, overlap: bool, timeout: float | None = None) -> None:
        self._sampler = sampler
        self._overlap = overlap
        self._timeout = timeout
        self._pending: _PendingDraw | None = None

    def prepare(self, start: int, count: int) -> None:
        if self._overlap:
            self._pending = _PendingDraw(self._sampler, start, count)

    def draw(self, start: int, count: int) -> Any:
        pending, self._pending = self._pending, None
        if pending is None:
            pending = _PendingDraw(self._sampler, start, count)
        assert pending.wanted == (start, count), "the samples that were announced are the ones to ask for"
        return pending.result(self._timeout, self.give_up)

    def gradient(self, x: Array, samples: Any) -> Array:
        return self._sampler.gradient(x, samples)

    def close(self) -> None:
        self._sampler.close()


class _PendingDraw:
    """One draw in progress. Its thread is a daemon: a blocked stream does not keep the program
    alive.
    """

    def __init__(self, sampler: Sampler, start: int, count: int) -> None:
        self.wanted = start, count
        self._sampler = sampler
        self._done = threading.Event()
        self._samples: Any = None
        self._errors: list[BaseException] = []
        threading.Thread(target=self._run, name="gradslide-samples", daemon=True).start()

    def _run(self) -> None:
        try:
            self._samples = self._sampler.draw(*self.wanted)
        # Whatever it is, who waits must hear of it.
        except BaseException as error:
            self._errors.append(error)
        finally:
            self._done.set()

    def result(self, timeout: float | None, give_up: Callable[[], bool]) -> Any:
        arrived, since = self._sampler.waiting()[1], time.monotonic()
        # A look now and then shows whether anything arrives, and whether anybody still waits for it.
        while not self._done.wait(_GLANCE if timeout is None else min(_GLANCE, timeout / 20)):
            if give_up():
                raise WaitEnded
            agent, now = self._sampler.waiting()
            if now != arrived:
                arrived, since = now, time.monotonic()
            elif timeout is not None and time.monotonic() - since >= timeout:
                raise StreamError(agent, f"it gave nothing for {timeout:g} seconds")
        if self._errors:
            # Popped: an error and the frames that name it would keep each other, and the streams, alive.
            raise self._errors.pop()
        return self._samples
