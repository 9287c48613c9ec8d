"""Reductions that ride on the exchanges of a method, and the wishes of a run that ride along with them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradslide._support.types import Array
from gradslide.network.collectives import require_reduction
from gradslide.network.peers.passages import Flood, OverTree, Passage, Wish, is_over
from gradslide.network.peers.surroundings import Surroundings
from gradslide.network.protocol import Reduction


@dataclass(frozen=True)
class Rider:
    """One reduction: how it goes on, and how its result looks."""

    reduction: Reduction
    dtype: str
    shape: tuple[int, ...]
    passage: Flood | OverTree

    @classmethod
    def of(cls, values: Array, reduction: Reduction, around: Surroundings) -> "Rider":
        """values: one row. Sums are added up in float64, whatever they are wanted in."""
        require_reduction(reduction)
        values = np.asarray(values)
        dtype = "bool" if reduction == "or" else values.dtype.str
        flat = values.astype(bool) if reduction == "or" else values
        return cls(reduction, dtype, values.shape[1:], around.reducing(flat.ravel().astype(np.float64), reduction))

    @property
    def result(self) -> Array:
        found = self.passage.values.astype(self.dtype).reshape(self.shape)
        # All agents know it alike: nobody changes it.
        found.flags.writeable = False
        return found

    def memory(self) -> dict[str, Any]:
        about = {"reduction": self.reduction, "dtype": self.dtype, "shape": self.shape}
        return {**about, "step": self.passage.step, "values": self.passage.values}

    @classmethod
    def from_memory(cls, memory: Mapping[str, Any], around: Surroundings) -> "Rider":
        reduction = memory["reduction"]
        passage = around.reducing(memory["values"], reduction, memory["step"])
        return cls(reduction, memory["dtype"], tuple(memory["shape"]), passage)


class Riders:
    """All that is on its way. iteration: the outer iteration that the agent is in, as `settle` tells."""

    def __init__(self) -> None:
        self._posts: list[Rider] = []
        self._wishes: list[Wish] = []
        self.iteration = 0

    def aboard(self) -> list[Passage]:
        """What rides on the next exchange, in the order that all agents have alike."""
        passages: list[Passage] = [rider.passage for rider in self._posts]
        return [passage for passage in (*passages, *self._wishes) if not is_over(passage)]

    def start(self, rider: Rider) -> None:
        self._posts.append(rider)

    def completed(self, reduction: Reduction | None) -> list[Array]:
        def is_known(rider: Rider) -> bool:
            return is_over(rider.passage) and reduction in (None, rider.reduction)

        known = [rider.result for rider in self._posts if is_known(rider)]
        self._posts = [rider for rider in self._posts if not is_known(rider)]
        return known

    def settle(self, wish: int, around: Surroundings) -> int:
        """Wishes between two exchanges travel as one."""
        if not self._wishes or self._wishes[-1].step > 0:
            # One more exchange than a flood takes: everybody must hear of its own wish, too.
            self._wishes.append(Wish(around.graph.diameter_bound + 1))
            self.iteration += 1
        self._wishes[-1].own = max(self._wishes[-1].own, wish)
        told = max((wish.result for wish in self._wishes if is_over(wish)), default=0)
        self._wishes = [wish for wish in self._wishes if not is_over(wish)]
        for wished in self._wishes:
            wished.answered = max(wished.answered, told)
        return told

    def memory(self) -> dict[str, Any]:
        posts, wishes = [rider.memory() for rider in self._posts], [wish.memory() for wish in self._wishes]
        return {"iteration": self.iteration, "posts": posts, "wishes": wishes}

    @classmethod
    def from_memory(cls, memory: Mapping[str, Any], around: Surroundings) -> "Riders":
        riders = cls()
        riders.iteration = memory["iteration"]
        riders._posts = [Rider.from_memory(post, around) for post in memory["posts"]]
        riders._wishes = [Wish(around.graph.diameter_bound + 1, *wish) for wish in memory["wishes"]]
        return riders
