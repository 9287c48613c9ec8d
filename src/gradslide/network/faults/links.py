"""Faults under which some messages do not arrive."""

from abc import ABC, abstractmethod

import numpy as np

from gradslide._support.errors import unknown_name
from gradslide._support.types import Array, Sparse
from gradslide.graphs.graph import Graph
from gradslide.network.compressors import Compressor
from gradslide.network.faults.fault import Fault
from gradslide.network.faults.pattern import Pattern
from gradslide.network.protocol import Network
from gradslide.network.wrapper import wrappers


class LinkFault(Fault, ABC):
    """Agents use their own value in the place of one that does not arrive."""

    def __init__(self, network: Network | Graph, seed: int, **shown: object) -> None:
        super().__init__(network, seed, **shown)
        self._pattern = Pattern(self.graph)
        self._lost = np.zeros(len(self._pattern.senders), dtype=bool)

    @property
    def delivered(self) -> Array:
        """Which messages this fault let pass in the last exchange, as an array of shape (edges, 2).

        For each of `graph.edges` (u, v): that from u to v, and that from v to u. All, before the
        first exchange.
        """
        return ~self._lost.reshape(2, -1).T

    def _begin(self) -> None:
        super()._begin()
        self._lost = np.zeros_like(self._lost)

    def combine(self, v: Array, weights: Sparse, encoding: Compressor | None = None) -> Array:
        self._lost = self._losses(self._next())
        return super().combine(v, self._pattern.without(self._lost, weights, v.dtype), encoding)

    @abstractmethod
    def _losses(self, random: np.random.Generator) -> Array:
        """Which messages do not arrive in this exchange, (2e,), in the order of `Pattern`."""


class Directed(LinkFault):
    """Links whose two directions fail together ("both"), or each alone ("each")."""

    def __init__(self, network: Network | Graph, seed: int, direction: str, **shown: object) -> None:
        if direction not in ("both", "each"):
            raise unknown_name("direction", direction, ["both", "each"])
        super().__init__(network, seed, **shown, direction=direction)
        self._together = direction == "both"
        self._independent = len(self.graph.edges) * (1 if self._together else 2)

    def _losses(self, random: np.random.Generator) -> Array:
        lost = self._failures(random)
        return np.concatenate([lost, lost]) if self._together else lost

    @abstractmethod
    def _failures(self, random: np.random.Generator) -> Array:
        """Which links, or which of their directions, fail: (`_independent`,)."""


def lost_within(fault: Fault) -> Array | None:
    """The messages that the links inside lost in the last exchange; None without such links."""
    masks = [inner._lost for inner in wrappers(fault._network) if isinstance(inner, LinkFault)]
    return np.any(masks, axis=0) if masks else None
