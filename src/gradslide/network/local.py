"""All agents in one process, as rows of one array: a simulation that counts what a real network would spend."""

from typing import Any

import numpy as np

from gradslide._types import Array
from gradslide.compressors import Compressor
from gradslide.errors import kind_of, require, unknown_name
from gradslide.graph import Graph
from gradslide.network.base import Reduction, WorkOut
from gradslide.network.riding import Riding


class Local(Riding):
    """A network in one process.

    graph: who may talk to whom. exact_norm: use the exact largest eigenvalue of the Laplacian; otherwise the
    bound that agents find with one exchange and a flooded maximum.
    """

    def __init__(self, graph: Graph, *, exact_norm: bool = True) -> None:
        require(isinstance(graph, Graph), "Local needs a graph", kind_of(graph), "for example gs.Graph.ring(10)")
        super().__init__()
        self.graph = graph
        self.m = graph.m
        self.agents = range(graph.m)
        self.laplacian: Array = graph.laplacian
        self._exact_norm = exact_norm
        self._cast: dict[tuple[int, str], Any] = {}

    def __repr__(self) -> str:
        return repr(self.graph)

    def combine(self, v: Array, weights: Array, encoding: Compressor | None = None) -> Array:
        self._move()
        return self._as(weights, v.dtype) @ v

    def agree(self, values: Array, reduction: Reduction) -> Array:
        return self.observe(values, reduction)

    def post_size(self, values: Array, reduction: Reduction) -> int:
        numbers = np.asarray(values).size // len(values)
        if reduction == "sum":
            return 2 * (self.m - 1) * numbers
        return self.control_rounds(reduction) * 2 * len(self.graph.edges) * numbers

    def survey(self, values: Array, work_out: WorkOut) -> Array:
        return work_out(self.graph, values)

    @property
    def survey_rounds(self) -> int:
        return self.graph.diameter_bound + self.graph.radius_center()[1]

    def survey_size(self, values: Array, answer: Array) -> int:
        edges = len(self.graph.edges)
        numbers = edges * (2 if np.all(self.graph.weights == 1) else 3) + int(values.size)
        return 2 * edges * numbers + (self.m - 1) * int(answer.size)

    def norm_bound(self) -> float:
        return self.graph.laplacian_norm if self._exact_norm else self.graph.norm_bound

    @property
    def norm_rounds(self) -> int:
        return 0 if self._exact_norm else 1 + self.control_rounds("max")

    def exchange_size(self, v: Array, encoding: Compressor | None = None) -> int:
        floats_per_agent: int = v.size // v.shape[0] if encoding is None else encoding.floats(v)
        return 2 * len(self.graph.edges) * floats_per_agent

    def control_rounds(self, reduction: Reduction) -> int:
        if reduction == "sum":
            return 2 * self.graph.radius_center()[1]
        return self.graph.diameter_bound

    def observe(self, values: Array, reduction: Reduction) -> Array:
        return reduced(values, reduction)

    def _as(self, weights: Array, dtype: Any) -> Array:
        """The weights in v's precision, so that float32 stays float32."""
        if weights.dtype == dtype:
            return weights
        key = (id(weights), str(dtype))
        if key not in self._cast:
            # The original is kept beside its copy: its id stays taken as long as the entry lives.
            self._cast[key] = (weights, weights.astype(dtype))
        return self._cast[key][1]


def reduced(values: Array, reduction: Reduction) -> Array:
    """One value from the rows of all agents."""
    if reduction == "max":
        return np.max(values, axis=0)
    if reduction == "or":
        return np.any(values, axis=0)
    if reduction == "sum":
        return np.sum(values, axis=0)
    raise unknown_name("reduction", reduction, ["max", "or", "sum"])
