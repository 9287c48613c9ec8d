"""Which agents live in which process: blocks of nearly equal size that cut few edges."""

import math
from collections.abc import Iterator

import numpy as np

from gradslide._support.types import Array
from gradslide.graphs.graph import Graph

# How much larger than the average a block may be.
_UNEVEN = 1.05


def partition(graph: Graph, parts: int) -> Array:
    """Assign agents to blocks of nearly equal size, (m,), so that few edges are cut."""
    return min(_candidates(graph, parts), key=lambda owner: cut(graph, owner))


def cut(graph: Graph, owner: Array) -> int:
    """How many edges join different blocks."""
    u, v = graph.edges.T
    return int(np.count_nonzero(owner[u] != owner[v]))


def _candidates(graph: Graph, parts: int) -> Iterator[Array]:
    even = np.arange(graph.m) * parts // graph.m
    yield even
    if parts == 1:
        return
    import scipy.sparse.csgraph as csgraph

    # Neighbours are close to each other in this order.
    order = csgraph.reverse_cuthill_mckee(graph.adjacency, symmetric_mode=True)
    near = np.empty_like(even)
    near[order] = even
    yield near
    owner = _by_metis(graph, parts)
    if owner is not None and _is_balanced(owner, parts):
        yield owner


def _by_metis(graph: Graph, parts: int) -> Array | None:
    """Nothing where METIS is not installed."""
    try:
        import pymetis
    except ImportError:
        return None
    links = graph.adjacency
    found = pymetis.part_graph(parts, adjacency=pymetis.CSRAdjacency(links.indptr, links.indices))
    return np.asarray(found.vertex_part, dtype=np.int64)


def _is_balanced(owner: Array, parts: int) -> bool:
    sizes = np.bincount(owner, minlength=parts)
    return bool(sizes.min() > 0 and sizes.max() <= max(_UNEVEN * len(owner) / parts, math.ceil(len(owner) / parts) + 1))
