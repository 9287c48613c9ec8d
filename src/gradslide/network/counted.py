"""Counts what passes over a network."""

from gradslide._types import Array
from gradslide.compressors import Compressor
from gradslide.costs import Costs
from gradslide.network.base import Network, Reduction
from gradslide.network.wrapper import Wrapper


class Counted(Wrapper):
    """The same network, with every exchange entered into `costs`. Observations stay free."""

    def __init__(self, network: Network, costs: Costs) -> None:
        super().__init__(network)
        self._costs = costs

    def combine(self, v: Array, weights: Array, encoding: Compressor | None = None) -> Array:
        # A lone agent has nobody to talk to.
        if self.m > 1:
            self._costs.rounds += 1
            self._costs.floats_sent += self._network.exchange_size(v, encoding)
        return super().combine(v, weights, encoding)

    def agree(self, values: Array, reduction: Reduction) -> Array:
        self._costs.control_rounds += self._network.control_rounds(reduction)
        return super().agree(values, reduction)

    def norm_bound(self) -> float:
        self._costs.control_rounds += self._network.norm_rounds
        return super().norm_bound()
