"""What all networks in one run know of their graph: what things cost, and how to add up."""

import math
from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from gradslide._support.errors import kind_of, require, unknown_name
from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.network.base import Reduction
from gradslide.network.compressors import Compressor
from gradslide.network.riding import Riding


class OnGraph(Riding):
    """A network whose graph is known. Costs are those of agents that talk to their neighbours only, all of them
    together, wherever they live.

    exact_norm: use the exact largest eigenvalue of the Laplacian; otherwise the bound that agents find with one
    exchange and a flooded maximum.
    """

    def __init__(self, graph: Graph, *, exact_norm: bool = True) -> None:
        name = type(self).__name__
        require(isinstance(graph, Graph), f"{name} needs a graph", kind_of(graph), "for example gs.Graph.ring(10)")
        super().__init__()
        self.graph = graph
        self.m = graph.m
        self.laplacian: Array = graph.laplacian
        self._exact_norm = exact_norm

    @property
    @abstractmethod
    def agents(self) -> Sequence[int]: ...

    def __repr__(self) -> str:
        return repr(self.graph)

    def post_size(self, values: Array, reduction: Reduction) -> int:
        numbers = math.prod(np.shape(values)[1:])
        if reduction == "sum":
            return 2 * (self.m - 1) * numbers
        return self.control_rounds(reduction) * 2 * len(self.graph.edges) * numbers

    @property
    def survey_rounds(self) -> int:
        return self.graph.diameter_bound + self.graph.radius_center()[1]

    def survey_size(self, values: Array, answer: Array) -> int:
        edges = len(self.graph.edges)
        flooded = self.m * math.prod(values.shape[1:])
        numbers = edges * (2 if np.all(self.graph.weights == 1) else 3) + flooded
        return int(2 * edges * numbers + (self.m - 1) * answer.size)

    def norm_bound(self) -> float:
        return self.graph.laplacian_norm if self._exact_norm else self.graph.norm_bound

    @property
    def norm_rounds(self) -> int:
        return 0 if self._exact_norm else 1 + self.control_rounds("max")

    def exchange_size(self, v: Array, encoding: Compressor | None = None) -> int:
        floats_per_agent = math.prod(v.shape[1:]) if encoding is None else encoding.floats(v)
        return 2 * len(self.graph.edges) * floats_per_agent

    def control_rounds(self, reduction: Reduction) -> int:
        if reduction == "sum":
            return 2 * self.graph.radius_center()[1]
        return self.graph.diameter_bound


def require_reduction(reduction: str) -> None:
    """Refuse a reduction that there is none of."""
    if reduction not in ("max", "or", "sum"):
        raise unknown_name("reduction", reduction, ["max", "or", "sum"])
