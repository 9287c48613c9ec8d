"""All agents in one process, as rows of one array: a simulation."""

from collections.abc import Sequence
from typing import ClassVar

import array_api_compat as compat
import numpy as np

from gradslide._support.arrays import checked_device, is_numpy, sparse_like, to_numpy
from gradslide._support.errors import InputError, kind_of
from gradslide._support.types import Array, Device, Sparse
from gradslide.graphs.graph import GraphLike, as_graph
from gradslide.network.collectives import exact_sum, reduced
from gradslide.network.costs import CostModel, NormSource
from gradslide.network.piggyback import Piggybacking
from gradslide.network.protocol import Compute, Reduction


class OnGraph(Piggybacking):
    """A network over a known graph, whose costs are those of all agents, wherever they live."""

    agents: Sequence[int]
    # Where `solve` moves the problem first.
    device: Device = None

    def __init__(self, graph: GraphLike, *, exact_norm: bool = True) -> None:
        given, graph_or_none = graph, as_graph(graph)
        if graph_or_none is None:
            rule = f"{type(self).__name__} needs a graph"
            raise InputError(rule, kind_of(given), "for example gs.Graph.ring(10)")
        self.graph = graph = graph_or_none
        self.m = graph.m
        self.laplacian: Array = graph.laplacian
        self._exact_norm = exact_norm
        norm: NormSource = "known" if exact_norm else "flooded"
        self.costs = CostModel(graph, 2 * len(graph.edges), 2 * (graph.m - 1), graph.m - 1, norm)

    def __repr__(self) -> str:
        return repr(self.graph)

    def norm_bound(self) -> float:
        return self.graph.laplacian_norm if self._exact_norm else self.graph.norm_bound


class Local(OnGraph):
    """All agents in one process, as rows of one array: a simulation.

    Costs are those of a real network. `solve` makes one from a graph.

    Parameters
    ----------
    graph : Graph or networkx.Graph
        Which agents are linked.
    exact_norm : bool
        Use the exact largest eigenvalue of the Laplacian; otherwise the bound that agents find with
        one exchange and a flooded maximum.
    device : str or torch.device, optional
        Where `solve` moves the problem first, such as "cuda" (PyTorch). By default its arrays stay
        where they are. What is agreed on, observed and returned are NumPy arrays.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> network = gs.network.Local(gs.Graph.ring(4))
    >>> v = np.array([[1.0], [2.0], [3.0], [4.0]])
    >>> network.combine(v, network.laplacian).ravel()
    array([-4.,  0.,  0.,  4.])
    >>> network.agree(v, "sum")
    array([10.])
    >>> network.costs.control_rounds("sum"), network.costs.exchange_floats(v)
    (4, 8)
    """

    is_local: ClassVar[bool] = True

    def __init__(self, graph: GraphLike, *, exact_norm: bool = True, device: Device = None) -> None:
        super().__init__(graph, exact_norm=exact_norm)
        self.agents = range(self.m)
        self.device = None if device is None else checked_device(device)
        self._cast: dict[tuple[int, str, str], tuple[Sparse, Sparse]] = {}

    def _combine(self, v: Array, weights: Sparse) -> Array:
        if is_numpy(v) and weights.dtype == v.dtype:
            return weights @ v
        return self._as(weights, v) @ v

    def survey(self, values: Array, compute: Compute) -> Array:
        return compute(self.graph, to_numpy(values))

    def agree(self, values: Array, reduction: Reduction) -> Array:
        # Decisions depend on it, and must be the same wherever the agents live.
        values = to_numpy(values)
        if reduction == "sum" and values.dtype.kind == "f":
            return exact_sum(values, self.m, np.asarray, np.asarray)
        return reduced(values, reduction)

    def _as(self, weights: Sparse, v: Array) -> Sparse:
        """The weights in v's precision, so that float32 stays float32, and on v's device."""
        key = (id(weights), str(v.dtype), str(compat.device(v)))
        if key not in self._cast:
            # The original is stored beside its copy: its id stays taken as long as the entry lives.
            self._cast[key] = (weights, sparse_like(weights, v))
        return self._cast[key][1]
