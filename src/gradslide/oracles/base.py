"""What a way of sampling offers."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from gradslide._support.types import Array
from gradslide.losses import Loss


class Sampler(abc.ABC):
    """Draws samples, which may take its time, and turns them into gradients, which takes the point x.

    Samples of an agent are numbered: `draw(start, count)` are its samples start, ..., start + count - 1.
    """

    give_up: Callable[[], bool] = staticmethod(lambda: False)
    """Asked now and then by a sampler that waits; raises WaitEnded when it says so."""

    @abc.abstractmethod
    def draw(self, start: int, count: int) -> Any:
        """So many samples of every agent here."""

    @abc.abstractmethod
    def gradient(self, x: Array, samples: Any) -> Array:
        """The mean of the samples' gradients at x, per agent; shape (agents, d)."""

    def prepare(self, start: int, count: int) -> None:
        """Begin to draw, where that can go on at the same time as other things. Changes no result."""
        return

    def waiting(self) -> tuple[int | None, int]:
        """The agent whose samples are being waited for, if any, and how many batches have arrived so far."""
        return None, 0

    def close(self) -> None:
        """No more samples are wanted."""
        return


class Sampling(Protocol):
    """A frozen description of a way of sampling."""

    def open(self, loss: Loss, agents: Sequence[int], seed: int) -> Sampler:
        """A sampler for the agents that live here, numbered as in the whole network."""
        ...
