"""Hop distances in a connected graph: eccentricities, centre, diameter."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from gradslide._support.types import Array, Sparse

_GATHER_WORDS = 4_000_000  # bounds the memory of one bit-parallel step (32 MB)


def hop_distances(adjacency: Sparse, source: int) -> Array:
    """Return the number of hops from `source` to every node."""
    from scipy.sparse.csgraph import breadth_first_order

    order, predecessor = breadth_first_order(adjacency, source)
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    parent = np.zeros(len(order), dtype=np.int64)
    parent[1:] = position[predecessor[order[1:]]]
    # Pointer doubling: log(diameter) vector passes instead of one Python step per level.
    depth = np.ones(len(order), dtype=np.int64)
    depth[0] = 0
    while parent.any():
        depth += depth[parent]
        parent = parent[parent]
    return depth[position]


def eccentricities(adjacency: Sparse) -> Array:
    """Return all eccentricities, by breadth-first search from 64 sources per machine word."""
    m = adjacency.shape[0]
    closed = sp.csr_array(adjacency + sp.eye_array(m, format="csr"))
    starts, members = closed.indptr[:-1], closed.indices
    sources = 64 * max(1, _GATHER_WORDS // len(members))
    result = np.zeros(m, dtype=np.int64)
    for first in range(0, m, sources):
        count = min(sources, m - first)
        seed = np.zeros((m, -(-count // 64) * 64), dtype=bool)
        seed[first + np.arange(count), np.arange(count)] = True
        reached = np.packbits(seed, axis=1).view(np.uint64)
        while True:
            by_all = np.unpackbits(np.bitwise_and.reduce(reached, axis=0).view(np.uint8))[:count]
            if by_all.all():
                break
            result[first : first + count] += 1 - by_all
            reached = np.bitwise_or.reduceat(reached[members], starts, axis=0)
    return result


@dataclass(frozen=True)
class Extent:
    """Bounds of a graph's size in hops: diameter_low <= diameter <= diameter_high."""

    center: int
    radius: int  # eccentricity of `center`
    diameter_low: int
    diameter_high: int


def estimated_extent(adjacency: Sparse, searches: int = 48) -> Extent:
    """Bound the diameter by breadth-first searches: double sweeps, then Takes and Kosters."""
    m = adjacency.shape[0]
    if (np.diff(adjacency.indptr) == 2).all():  # a connected 2-regular graph is a ring
        return Extent(0, m // 2, m // 2, m // 2)
    low = np.zeros(m, dtype=np.int64)
    high = np.full(m, m, dtype=np.int64)
    exact: dict[int, int] = {}

    def search(source: int) -> Array:
        hops = hop_distances(adjacency, source)
        eccentricity = exact[source] = int(hops.max())
        np.maximum(low, np.maximum(hops, eccentricity - hops), out=low)
        np.minimum(high, eccentricity + hops, out=high)
        return hops

    middle = 0
    for _ in range(3):
        end = int(search(middle).argmax())
        from_end = search(end)
        from_other = search(int(from_end.argmax()))
        on_path = from_end + from_other == from_end.max()
        middle = int(np.flatnonzero(on_path & (from_end == from_end.max() // 2))[0])
    search(middle)

    while len(exact) < searches and high.max() > max(exact.values()):
        search(int(high.argmax()) if len(exact) % 2 else int(np.where(low < high, low, m).argmin()))
    center = min(exact, key=lambda node: (exact[node], node))
    return Extent(center, exact[center], max(exact.values()), min(int(high.max()), 2 * exact[center]))
