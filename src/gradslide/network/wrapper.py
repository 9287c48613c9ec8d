"""A network around another one."""

from gradslide._types import Array
from gradslide.graph import Graph
from gradslide.network.base import Network, Reduction


class Wrapper:
    """Passes everything on; subclasses change what they are about."""

    def __init__(self, network: Network) -> None:
        self._network = network

    @property
    def graph(self) -> Graph:
        return self._network.graph

    @property
    def m(self) -> int:
        return self._network.m

    @property
    def agents(self) -> range:
        return self._network.agents

    @property
    def laplacian(self) -> Array:
        return self._network.laplacian

    def combine(self, v: Array, weights: Array) -> Array:
        return self._network.combine(v, weights)

    def agree(self, values: Array, reduction: Reduction) -> Array:
        return self._network.agree(values, reduction)

    def norm_bound(self) -> float:
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


def beneath(network: Network) -> Network:
    """The network under all wrappers: what observations look at."""
    while isinstance(network, Wrapper):
        network = network._network
    return network
