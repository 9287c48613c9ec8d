"""What takes several exchanges to reach everybody, as one agent sees it: step by step, in what each neighbour is sent.

Both ends of a link know from the step alone how much passes over it.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from gradslide._support.types import Array
from gradslide.graphs.distances import hop_distances
from gradslide.graphs.graph import Graph
from gradslide.network.peers.tree import Tree

NOTHING = np.zeros(0)


class Passage(Protocol):
    """step: exchanges that it was part of; it is over after so many `rounds`. Arrays are float64 and flat."""

    step: int

    @property
    def rounds(self) -> int: ...

    def sent(self, receiver: int) -> Array:
        """What goes to a neighbour in the next exchange."""
        ...

    def size(self, sender: int) -> int:
        """How many numbers come from a neighbour in the next exchange."""
        ...

    def take(self, arrived: Mapping[int, Array]) -> None:
        """One exchange is over; arrived: by neighbour."""
        ...


class Flood:
    """The largest values of all agents: everybody tells all neighbours the largest that it knows of."""

    def __init__(self, values: Array, rounds: int, step: int = 0) -> None:
        # Of 0 and -0 neither is the larger one: without this not all would end with the same.
        self.values, self.rounds, self.step = values + 0.0, rounds, step

    def sent(self, receiver: int) -> Array:
        return self.values

    def size(self, sender: int) -> int:
        return int(self.values.size)

    def take(self, arrived: Mapping[int, Array]) -> None:
        for each in arrived.values():
            self.values = np.maximum(self.values, each)
        self.step += 1


class OverTree:
    """The values of all agents go up the tree, added up on the way (own, then children in their order), and the root's
    sum goes down. From step = height on it is only the root's values that go down; those of others tell how many."""

    def __init__(self, tree: Tree, own: int, values: Array, step: int = 0) -> None:
        self._tree, self._own = tree, own
        self.values, self.rounds, self.step = values, 2 * tree.height, step

    def sent(self, receiver: int) -> Array:
        return self.values if self._goes_up(self._own, receiver) or self._goes_down(self._own, receiver) else NOTHING

    def size(self, sender: int) -> int:
        return int(self.values.size) if self._goes_up(sender, self._own) or self._goes_down(sender, self._own) else 0

    def take(self, arrived: Mapping[int, Array]) -> None:
        for sender in sorted(arrived):
            if self._goes_up(sender, self._own):
                # What overflows is for the method to judge.
                with np.errstate(over="ignore", invalid="ignore"):
                    self.values = self.values + arrived[sender]
            elif self._goes_down(sender, self._own):
                self.values = arrived[sender]
        self.step += 1

    def _goes_up(self, sender: int, receiver: int) -> bool:
        return self._tree.goes_up(sender, receiver, self.step)

    def _goes_down(self, sender: int, receiver: int) -> bool:
        return self._tree.goes_down(sender, receiver, self.step - self._tree.height)


class Spread:
    """The rows of all agents, to all: each passes over every link once in each direction."""

    def __init__(self, graph: Graph, own: int, row: Array) -> None:
        neighbours: list[int] = graph.neighbours(own).tolist()
        self._hops = {j: hop_distances(graph.adjacency, j) for j in (own, *neighbours)}
        self._own, self._numbers = own, int(row.size)
        self._known: dict[int, Array] = {own: row}
        self.rounds, self.step = graph.diameter_bound, 0

    def sent(self, receiver: int) -> Array:
        return np.concatenate([NOTHING, *(self._known[agent] for agent in self._news(self._own))])

    def size(self, sender: int) -> int:
        return len(self._news(sender)) * self._numbers

    def take(self, arrived: Mapping[int, Array]) -> None:
        for sender, numbers in arrived.items():
            agents = self._news(sender)
            for agent, row in zip(agents, numbers.reshape(len(agents), self._numbers), strict=True):
                self._known.setdefault(agent, row)
        self.step += 1

    def rows(self) -> Array:
        """Of all agents, in their order, once all steps are over."""
        return np.stack([self._known[agent] for agent in range(len(self._known))])

    def _news(self, sender: int) -> list[int]:
        """The agents that the sender has just heard of."""
        found: list[int] = np.flatnonzero(self._hops[sender] == self.step).tolist()
        return found


class Wish:
    """The largest wish of all agents, flooded. An agent's own counts only once neighbours have told it back: after a
    restart it may wish something else than what they were told before, and must end with what they know.

    answered: what was decided while this was on its way; no more of that is wished.
    """

    def __init__(self, rounds: int, step: int = 0, own: float = 0.0, heard: float = 0.0, answered: int = 0) -> None:
        self.rounds, self.step, self.own, self.answered = rounds, step, own, answered
        self._heard = heard

    def sent(self, receiver: int) -> Array:
        return np.array([self._heard if self.step else self.own])

    def size(self, sender: int) -> int:
        return 1

    def take(self, arrived: Mapping[int, Array]) -> None:
        self._heard = max(self._heard, *(float(each[0]) for each in arrived.values()))
        self.step += 1

    @property
    def result(self) -> int:
        return int(self._heard) if self._heard > self.answered else 0

    def memory(self) -> tuple[Any, ...]:
        return self.step, self.own, self._heard, self.answered


def is_over(passage: Passage) -> bool:
    return passage.step >= passage.rounds
