"""Counts what passes over a network."""

import numpy as np

from gradslide._types import Array
from gradslide.compressors import Compressor
from gradslide.costs import Costs
from gradslide.network.base import Network, Reduction
from gradslide.network.wrapper import Wrapper
from gradslide.timeline import Timeline


class Counted(Wrapper):
    """The same network, with every exchange entered into `costs` and on the timeline. Observations stay free."""

    def __init__(self, network: Network, costs: Costs, timeline: Timeline | None = None) -> None:
        super().__init__(network)
        self._costs = costs
        self._timeline = timeline

    def combine(self, v: Array, weights: Array, encoding: Compressor | None = None) -> Array:
        # A lone agent has nobody to talk to.
        if self.m > 1:
            self._costs.rounds += 1
            floats = self._network.exchange_size(v, encoding)
            self._costs.floats_sent += floats
            if self._timeline is not None:
                messages = 2 * len(self.graph.edges)
                self._timeline.exchange(floats / messages * v.dtype.itemsize)
        return super().combine(v, weights, encoding)

    def agree(self, values: Array, reduction: Reduction) -> Array:
        self._control(self._network.control_rounds(reduction), np.asarray(values).nbytes / len(values))
        return super().agree(values, reduction)

    def norm_bound(self) -> float:
        self._control(self._network.norm_rounds, np.dtype(np.float64).itemsize)
        return super().norm_bound()

    def _control(self, rounds: int, size: float) -> None:
        """Rounds in which every agent sends so many bytes."""
        self._costs.control_rounds += rounds
        if self._timeline is not None:
            self._timeline.exchange(size, rounds)
