"""Counts what passes over a network."""

from gradslide._types import Array
from gradslide.costs import Costs
from gradslide.graph import Graph
from gradslide.network.base import Network, Reduction


class Counted:
    """The same network, with every exchange entered into `costs`. Observations stay free."""

    def __init__(self, network: Network, costs: Costs) -> None:
        self._network = network
        self._costs = costs

    @property
    def graph(self) -> Graph:
        return self._network.graph

    @property
    def agents(self) -> range:
        return self._network.agents

    @property
    def laplacian(self) -> Array:
        return self._network.laplacian

    def combine(self, v: Array, weights: Array) -> Array:
        # A lone agent has nobody to talk to.
        if self.graph.m > 1:
            self._costs.rounds += 1
            self._costs.floats_sent += self._network.exchange_size(v)
        return self._network.combine(v, weights)

    def agree(self, values: Array, reduction: Reduction) -> Array:
        self._costs.control_rounds += self._network.control_rounds(reduction)
        return self._network.agree(values, reduction)

    def norm_bound(self) -> float:
        self._costs.control_rounds += self._network.norm_rounds
        return self._network.norm_bound()

    @property
    def norm_rounds(self) -> int:
        return self._network.norm_rounds

    def exchange_size(self, v: Array) -> int:
        return self._network.exchange_size(v)

    def control_rounds(self, reduction: Reduction) -> int:
        return self._network.control_rounds(reduction)

    def observe(self, values: Array, reduction: Reduction) -> Array:
        return self._network.observe(values, reduction)
