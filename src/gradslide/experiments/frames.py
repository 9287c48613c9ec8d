"""How far each agent was from the mean, at some outer iterations: to be drawn, never counted, never steering."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradslide._support.types import Array
from gradslide.graphs.display import DRAWABLE
from gradslide.graphs.graph import Graph
from gradslide.network import Network

_MOST = 60


class Frames:
    """|x_i - mean| of all agents after `iterations`: the first, at most twice _MOST evenly spaced, the last. None
    are kept of networks that cannot be drawn."""

    def __init__(self, network: Network, *, keeps_means: bool = False) -> None:
        """keeps_means: for whoever wants to work something out at them."""
        self._network, self._keeps_means = network.aside(), keeps_means
        self._every = 1
        self.iterations: list[int] = []
        self.distances: list[list[float]] = []
        self.means: list[Array | None] = []

    @property
    def are_kept(self) -> bool:
        return self._network.m <= DRAWABLE

    def look(self, iteration: int, x: Array) -> None:
        """All processes must call it, each with the rows of the agents that live there."""
        if self.are_kept and self._is_due(iteration):
            self._keep(iteration, x)
            self._thin()

    def look_last(self, iteration: int, x: Array) -> None:
        """At the answer, which takes the place of what was seen in the same outer iteration."""
        if not self.are_kept:
            return
        if self.iterations and self.iterations[-1] == iteration:
            self._select(range(len(self.iterations) - 1))
        self._keep(iteration, x)

    def to_dict(self) -> dict[str, Any] | None:
        """For JSON; None where there is nothing to be seen."""
        return {"iterations": [*self.iterations], "distances": [*self.distances]} if self.iterations else None

    def _keep(self, iteration: int, x: Array) -> None:
        mean = self._network.observe(x, "sum") / self._network.m
        own = np.linalg.norm(x - mean, axis=1, keepdims=True)
        self.means.append(mean if self._keeps_means else None)
        self.iterations.append(iteration)
        self.distances.append([float(f"{distance:.3g}") for distance in self._network.gather(own)[:, 0]])

    def _is_due(self, iteration: int) -> bool:
        return not self.iterations or iteration % self._every == 0

    def _thin(self) -> None:
        if len(self.iterations) <= 2 * _MOST:
            return
        self._every *= 2
        self._select([index for index, k in enumerate(self.iterations) if index == 0 or k % self._every == 0])

    def _select(self, kept: Sequence[int]) -> None:
        self.iterations = [self.iterations[index] for index in kept]
        self.distances = [self.distances[index] for index in kept]
        self.means = [self.means[index] for index in kept]


def drawn(name: str, graph: Graph, frames: dict[str, Any] | None, by_agent: dict[str, list[int]]) -> dict[str, Any]:
    """A network for JSON: its edges and what there is per agent, where it can be drawn."""
    shown = graph.m <= DRAWABLE
    return {
        "network": name,
        "m": graph.m,
        "facts": graph.describe(),
        "edges": graph.edges.tolist() if shown else None,
        "frames": frames,
        "by_agent": by_agent if shown else None,
        "is_shared_out": frames is not None,
    }
