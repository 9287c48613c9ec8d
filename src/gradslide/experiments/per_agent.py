"""What is recorded of single agents: distances from the mean along the run, and costs. Observed,
never counted.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradslide._support.types import Array
from gradslide.graphs.display import DRAWABLE
from gradslide.graphs.graph import Graph
from gradslide.network import Network
from gradslide.results.costs import Costs, work
from gradslide.results.history import Record

_MOST = 60
_COUNTS = ("rounds", "control_rounds")


class Frames:
    """|x_i - mean| of all agents after some outer iterations: the first, the last, and at most
    twice _MOST between them, evenly spaced. Networks that are too large to be drawn have none."""

    def __init__(self, network: Network, *, keep_means: bool = False) -> None:
        """keep_means: keep the means too, for bounds that depend on them."""
        self._network, self._keeps_means = network.session.uncounted(), keep_means
        self._every = 1
        self.iterations: list[int] = []
        self.distances: list[list[float]] = []
        self.means: list[Array | None] = []

    @property
    def is_enabled(self) -> bool:
        return self._network.m <= DRAWABLE

    def record(self, iteration: int, x: Array) -> None:
        """Record distances if it is time to. All processes must call it, each with the rows of its
        own agents.
        """
        if self.is_enabled and self._is_due(iteration):
            self._keep(iteration, x)
            self._thin()

    def record_last(self, iteration: int, x: Array) -> None:
        """Record the distances of the answer, which replace those of the same outer iteration."""
        if not self.is_enabled:
            return
        if self.iterations and self.iterations[-1] == iteration:
            self._select(range(len(self.iterations) - 1))
        self._keep(iteration, x)

    def to_dict(self) -> dict[str, Any] | None:
        """For JSON; None where nothing was recorded."""
        return {"iterations": [*self.iterations], "distances": [*self.distances]} if self.iterations else None

    def _keep(self, iteration: int, x: Array) -> None:
        mean = self._network.session.observe(x, "sum") / self._network.m
        own = np.linalg.norm(x - mean, axis=1, keepdims=True)
        self.means.append(mean if self._keeps_means else None)
        self.iterations.append(iteration)
        self.distances.append([float(f"{distance:.3g}") for distance in self._network.session.gather(own)[:, 0]])

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


def split_costs(costs: Costs | Record, graph: Graph) -> dict[str, list[int]]:
    """The costs of each agent, from those of a run in one process.

    All agents compute the same amount; they differ in what they send, a vector over each link in
    every round. Piggybacked sums travel over some links only, but are split like the rest.
    """
    links = np.cumsum(graph.degrees)
    # Rounded together, so that they add up to what was counted.
    sent = np.diff(np.rint(costs.floats_sent * (links / max(1, links[-1]))), prepend=0).astype(int).tolist()
    alike = {name: [getattr(costs, name)] * graph.m for name in (*work([costs]), *_COUNTS)}
    return {**alike, "floats_sent": sent}


def costs_by_agent(spent: Sequence[Costs]) -> dict[str, list[int]]:
    """The costs of agents in processes of their own, each of which counted its own."""
    return {name: [getattr(each, name) for each in spent] for name in (*work(spent), *_COUNTS, "floats_sent")}
