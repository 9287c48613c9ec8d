"""All agents in one process, as rows of one array: a simulation that counts what a real network would spend."""

from collections.abc import Callable
from typing import Any, ClassVar

import array_api_compat as compat
import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import checked_device, is_numpy, sparse_like, to_numpy
from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.network.base import Done, Reduction, WorkOut
from gradslide.network.compressors import Compressor
from gradslide.network.exact_sums import exact_sum
from gradslide.network.on_graph import OnGraph, require_reduction


class Local(OnGraph):
    """A network in one process.

    graph: who may talk to whom. exact_norm: use the exact largest eigenvalue of the Laplacian; otherwise the
    bound that agents find with one exchange and a flooded maximum. device: where `solve` moves the problem first, such
    as "cuda" (PyTorch); by default its arrays stay what they are. What is agreed on, observed and returned are arrays
    of NumPy's.
    """

    is_together: ClassVar[bool] = True

    def __init__(self, graph: Graph, *, exact_norm: bool = True, device: Any = None) -> None:
        super().__init__(graph, exact_norm=exact_norm)
        self.device = None if device is None else checked_device(device)
        self._cast: dict[tuple[int, str, str], Any] = {}

    @property
    def agents(self) -> range:
        return range(self.m)

    def combine(self, v: Array, weights: Array, encoding: Compressor | None = None) -> Array:
        self._move()
        return self._as(weights, v) @ v

    def at_once(self, exchanges: int, v: Array, work: Callable[[], Done]) -> Done:
        self._move(exchanges)
        return work()

    def survey(self, values: Array, work_out: WorkOut) -> Array:
        return work_out(self.graph, to_numpy(values))

    def agree(self, values: Array, reduction: Reduction) -> Array:
        # Decisions hang on it, and must be the same wherever the agents live.
        values = to_numpy(values)
        if reduction == "sum" and values.dtype.kind == "f":
            return exact_sum(values, self.m, np.asarray, np.asarray)
        return reduced(values, reduction)

    def observe(self, values: Array, reduction: Reduction) -> Array:
        return reduced(values, reduction)

    def _as(self, weights: Array, v: Array) -> Array:
        """The weights in v's precision, so that float32 stays float32, and where v is."""
        if is_numpy(v) and weights.dtype == v.dtype:
            return weights
        key = (id(weights), str(v.dtype), str(compat.device(v)))
        if key not in self._cast:
            # The original is kept beside its copy: its id stays taken as long as the entry lives.
            self._cast[key] = (weights, sparse_like(weights, v))
        return self._cast[key][1]


def reduced(values: Array, reduction: Reduction) -> Array:
    """One value from the rows of all agents, among NumPy's arrays."""
    require_reduction(reduction)
    xp = np if is_numpy(values) else array_namespace(values)
    reduce = xp.max if reduction == "max" else xp.any if reduction == "or" else xp.sum
    return reduce(values, axis=0) if xp is np else to_numpy(reduce(values, axis=0))
