"""All agents in one process, as rows of one array: a simulation that counts what a real network would spend."""

from typing import Any

import numpy as np

from gradslide._types import Array
from gradslide.compressors import Compressor
from gradslide.graph import Graph
from gradslide.network.base import Reduction, WorkOut
from gradslide.network.exact_sums import exact_sum
from gradslide.network.on_graph import OnGraph, require_reduction


class Local(OnGraph):
    """A network in one process.

    graph: who may talk to whom. exact_norm: use the exact largest eigenvalue of the Laplacian; otherwise the
    bound that agents find with one exchange and a flooded maximum.
    """

    def __init__(self, graph: Graph, *, exact_norm: bool = True) -> None:
        super().__init__(graph, exact_norm=exact_norm)
        self._cast: dict[tuple[int, str], Any] = {}

    @property
    def agents(self) -> range:
        return range(self.m)

    def combine(self, v: Array, weights: Array, encoding: Compressor | None = None) -> Array:
        self._move()
        return self._as(weights, v.dtype) @ v

    def survey(self, values: Array, work_out: WorkOut) -> Array:
        return work_out(self.graph, values)

    def agree(self, values: Array, reduction: Reduction) -> Array:
        # Decisions hang on it, and must be the same wherever the agents live.
        values = np.asarray(values)
        if reduction == "sum" and values.dtype.kind == "f":
            return exact_sum(values, self.m, np.asarray, np.asarray)
        return reduced(values, reduction)

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
    require_reduction(reduction)
    reduce = np.max if reduction == "max" else np.any if reduction == "or" else np.sum
    return reduce(values, axis=0)
