"""Collectives as one agent takes part in them: step by step, in what it sends to each neighbour.

Both ends of a link know from the step alone how many numbers pass over it.
"""

from collections.abc import Mapping
from typing import Protocol, TypeAlias

import numpy as np

from gradslide._support.types import Array
from gradslide.graphs.distances import hop_distances
from gradslide.graphs.graph import Graph

NOTHING = np.zeros(0)


class Collective(Protocol):
    """An operation that takes several exchanges. Arrays are float64 and flat.

    Attributes
    ----------
    step : int
        Exchanges that it has been part of.
    rounds : int
        Exchanges that it takes.
    """

    step: int

    @property
    def rounds(self) -> int: ...

    def sent(self, receiver: int) -> Array:
        """What goes to a neighbour in the next exchange."""
        ...

    def size(self, sender: int) -> int:
        """How many numbers come from a neighbour in the next exchange."""
        ...

    def advance(self, received: Mapping[int, Array]) -> None:
        """Take in what one exchange brought, by neighbour."""
        ...


class Tree:
    """The breadth-first tree of a graph, as every agent computes it.

    Its root is the centre of the graph; a parent is the smallest-numbered neighbour one step closer
    to the root. `height` is the number of hops from the root to the agents farthest away. Steps
    count from 0.
    """

    def __init__(self, graph: Graph) -> None:
        self.root, self.height = graph.radius_center()
        self._depths: list[int] = hop_distances(graph.adjacency, self.root).tolist()
        self._parents = [-1 if i == self.root else self._parent(graph, i) for i in range(graph.m)]

    def _parent(self, graph: Graph, agent: int) -> int:
        closer = self._depths[agent] - 1
        return min(int(j) for j in graph.neighbours(agent) if self._depths[j] == closer)

    def links(self, agent: int) -> int:
        """Number of links of the tree that an agent has."""
        return self.children(agent) + (agent != self.root)

    def children(self, agent: int) -> int:
        """Number of children that an agent has."""
        return self._parents.count(agent)

    def goes_up(self, sender: int, receiver: int, step: int) -> bool:
        """Whether the sender passes its values to its parent in this step: the agents farthest away
        begin.
        """
        return self._parents[sender] == receiver and self._depths[sender] == self.height - step

    def goes_down(self, sender: int, receiver: int, step: int) -> bool:
        """Whether the sender passes its values to its children in this step: the root begins."""
        return self._parents[receiver] == sender and self._depths[sender] == step


class Flood:
    """The largest values of all agents: each tells its neighbours the largest that it knows."""

    def __init__(self, values: Array, rounds: int, step: int = 0) -> None:
        # Neither of 0 and -0 is larger: without this not all agents would end with the same.
        self.values, self.rounds, self.step = values + 0.0, rounds, step

    def sent(self, receiver: int) -> Array:
        return self.values

    def size(self, sender: int) -> int:
        return int(self.values.size)

    def advance(self, received: Mapping[int, Array]) -> None:
        for each in received.values():
            self.values = np.maximum(self.values, each)
        self.step += 1


class TreeSum:
    """The sum of the values of all agents: up the tree, and down again.

    Each agent adds the sums of its children, in their order, to its own values.

    One that begins at step = height is a broadcast of the root's values; those of others only tell
    how many. One that ends there, by `rounds`, leaves the sum with the root.
    """

    def __init__(self, tree: Tree, own: int, values: Array, step: int = 0, rounds: int | None = None) -> None:
        self._tree, self._own = tree, own
        self.values, self.rounds, self.step = values, 2 * tree.height if rounds is None else rounds, step

    def sent(self, receiver: int) -> Array:
        return self.values if self._goes_up(self._own, receiver) or self._goes_down(self._own, receiver) else NOTHING

    def size(self, sender: int) -> int:
        return int(self.values.size) if self._goes_up(sender, self._own) or self._goes_down(sender, self._own) else 0

    def advance(self, received: Mapping[int, Array]) -> None:
        for sender in sorted(received):
            if self._goes_up(sender, self._own):
                # The method judges overflow.
                with np.errstate(over="ignore", invalid="ignore"):
                    self.values = self.values + received[sender]
            elif self._goes_down(sender, self._own):
                self.values = received[sender]
        self.step += 1

    def _goes_up(self, sender: int, receiver: int) -> bool:
        return self._tree.goes_up(sender, receiver, self.step)

    def _goes_down(self, sender: int, receiver: int) -> bool:
        return self._tree.goes_down(sender, receiver, self.step - self._tree.height)


class AllGather:
    """The rows of all agents, to all: each row passes over every link once in each direction."""

    def __init__(self, graph: Graph, own: int, row: Array) -> None:
        neighbours: list[int] = graph.neighbours(own).tolist()
        self._hops = {j: hop_distances(graph.adjacency, j) for j in (own, *neighbours)}
        self._own, self._numbers = own, int(row.size)
        self._known: dict[int, Array] = {own: row}
        self.rounds, self.step = graph.diameter_bound, 0

    def sent(self, receiver: int) -> Array:
        return np.concatenate([NOTHING, *(self._known[agent] for agent in self._new_to(self._own))])

    def size(self, sender: int) -> int:
        return len(self._new_to(sender)) * self._numbers

    def advance(self, received: Mapping[int, Array]) -> None:
        for sender, numbers in received.items():
            agents = self._new_to(sender)
            for agent, row in zip(agents, numbers.reshape(len(agents), self._numbers), strict=True):
                self._known.setdefault(agent, row)
        self.step += 1

    def rows(self) -> Array:
        """Of all agents in their order, when all steps are done."""
        return np.stack([self._known[agent] for agent in range(len(self._known))])

    def _new_to(self, sender: int) -> list[int]:
        """The agents whose rows the sender received last."""
        found: list[int] = np.flatnonzero(self._hops[sender] == self.step).tolist()
        return found


# What a checkpoint holds of a flood of signals: step, own, heard and answered.
SignalState: TypeAlias = tuple[int, float, float, int]


class SignalFlood:
    """The largest control signal of all agents, flooded.

    An agent's own signal counts only when neighbours have sent it back: after a restart it may
    differ from what they were told before, and the agent must end with what they know.

    `answered` is the signal that was decided while this flood was under way; no signal up to it
    counts again.
    """

    def __init__(self, rounds: int, step: int = 0, own: float = 0.0, heard: float = 0.0, answered: int = 0) -> None:
        self.rounds, self.step, self.own, self.answered = rounds, step, own, answered
        self._heard = heard

    def sent(self, receiver: int) -> Array:
        return np.array([self._heard if self.step else self.own])

    def size(self, sender: int) -> int:
        return 1

    def advance(self, received: Mapping[int, Array]) -> None:
        self._heard = max(self._heard, *(float(each[0]) for each in received.values()))
        self.step += 1

    @property
    def result(self) -> int:
        return int(self._heard) if self._heard > self.answered else 0

    def checkpoint(self) -> SignalState:
        return self.step, self.own, self._heard, self.answered


def is_done(collective: Collective) -> bool:
    return collective.step >= collective.rounds
