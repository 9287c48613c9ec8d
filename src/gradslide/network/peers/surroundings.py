"""What an agent knows of the network once it is discovered."""

from collections.abc import Mapping
from dataclasses import dataclass

from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.network.peers.passages import Flood, OverTree, Spread
from gradslide.network.peers.tree import Tree
from gradslide.network.protocol import Reduction


@dataclass(frozen=True)
class Surroundings:
    """own: the number of this agent. names: what it calls its neighbours, by number. keys: the public keys of all."""

    graph: Graph
    tree: Tree
    own: int
    names: Mapping[int, str]
    keys: tuple[str, ...]

    @property
    def degree(self) -> int:
        return len(self.names)

    def rounds(self, reduction: Reduction) -> int:
        """Exchanges after which all agents know a reduction."""
        return 2 * self.tree.height if reduction == "sum" else self.graph.diameter_bound

    def reducing(self, values: Array, reduction: Reduction, step: int = 0) -> Flood | OverTree:
        """The way to what all agents must know alike, from flat values here."""
        if reduction == "sum":
            return OverTree(self.tree, self.own, values, step)
        return Flood(values, self.rounds(reduction), step)

    def announcing(self, values: Array) -> OverTree:
        """The way of the root's values to all others, whose own tell how many."""
        return OverTree(self.tree, self.own, values, self.tree.height)

    def spreading(self, row: Array) -> Spread:
        """The way of all rows to all agents."""
        return Spread(self.graph, self.own, row)
