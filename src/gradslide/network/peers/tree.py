"""The breadth-first tree of a graph, as every agent works it out alike."""

from gradslide.graphs.distances import hop_distances
from gradslide.graphs.graph import Graph


class Tree:
    """Rooted at the centre of the graph; a parent is the smallest-numbered neighbour one step closer to it.

    height: hops from the root to the agents farthest away. Steps count from 0.
    """

    def __init__(self, graph: Graph) -> None:
        self.root, self.height = graph.radius_center()
        self._depths: list[int] = hop_distances(graph.adjacency, self.root).tolist()
        self._parents = [-1 if i == self.root else self._parent(graph, i) for i in range(graph.m)]

    def _parent(self, graph: Graph, agent: int) -> int:
        closer = self._depths[agent] - 1
        return min(int(j) for j in graph.neighbours(agent) if self._depths[j] == closer)

    def links(self, agent: int) -> int:
        """How many links of the tree an agent has."""
        return self._parents.count(agent) + (agent != self.root)

    def children(self, agent: int) -> int:
        """How many children an agent has."""
        return self._parents.count(agent)

    def goes_up(self, sender: int, receiver: int, step: int) -> bool:
        """Whether the sender passes on what it has to its parent in this step: those farthest away begin."""
        return self._parents[sender] == receiver and self._depths[sender] == self.height - step

    def goes_down(self, sender: int, receiver: int, step: int) -> bool:
        """Whether the sender passes on what it has to its children in this step: the root begins."""
        return self._parents[receiver] == sender and self._depths[sender] == step
