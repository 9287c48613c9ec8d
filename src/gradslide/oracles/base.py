"""The interface of samplers."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from gradslide._support.errors import InputError, kind_of
from gradslide._support.types import Array
from gradslide.losses import Loss


class Sampler(abc.ABC):
    """Draws samples, which may take time, and computes gradients from them.

    Samples of an agent are numbered: `draw(start, count)` draws samples start, ..., start + count -
    1.

    Attributes
    ----------
    give_up : callable
        Called now and then by a sampler that waits. When it returns True, WaitEnded is raised.
    """

    give_up: Callable[[], bool] = staticmethod(lambda: False)
    """Asked now and then by a sampler that waits; raises WaitEnded when it says so."""

    @abc.abstractmethod
    def draw(self, start: int, count: int) -> Any:
        """Draw samples of every agent.

        Parameters
        ----------
        start : int
            Number of the first sample.
        count : int
            How many samples per agent.

        Returns
        -------
        object
            The samples, to be passed to `gradient`.
        """

    @abc.abstractmethod
    def gradient(self, x: Array, samples: Any) -> Array:
        """Return the mean gradient of each agent's samples at x.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.
        samples : object
            What `draw` returned.

        Returns
        -------
        ndarray, shape (m, d)
            On the scale of ft_i.
        """

    def prepare(self, start: int, count: int) -> None:
        """Start drawing in the background, where possible. Does not change results.

        Parameters
        ----------
        start : int
            Number of the first sample.
        count : int
            How many samples per agent.
        """
        return

    def waiting(self) -> tuple[int | None, int]:
        """Say which samples are awaited.

        Returns
        -------
        agent : int or None
            The agent whose samples are awaited; None if there is none.
        arrived : int
            How many batches have arrived so far.
        """
        return None, 0

    def close(self) -> None:
        """Stop: no more samples are needed."""
        return


class Sampling(Protocol):
    """A frozen description of a way of sampling."""

    def open(self, loss: Loss, agents: Sequence[int], seed: int) -> Sampler:
        """Return a sampler.

        Parameters
        ----------
        loss : Loss
            The loss of the agents that this process holds.
        agents : sequence of int
            Their numbers in the network.
        seed : int
            Seed of the run.

        Returns
        -------
        Sampler
            Draws the samples of these agents.
        """
        ...


def require_sampling(oracle: object) -> None:
    """Raise an error unless the object describes a way of sampling."""
    if not hasattr(oracle, "open") or isinstance(oracle, type):
        raise InputError("oracle must be one of gs.oracles", kind_of(oracle), "gs.oracles.WithReplacement()")
