"""Edge lists of named networks: pairs (e, 2) of a graph on the nodes 0, ..., m-1."""

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from gradslide._support.errors import InputError, require
from gradslide._support.randomness import Seed, generator
from gradslide._support.types import Array

_DRAWS = 100  # attempts at a connected draw before giving up


def path(m: int) -> Array:
    """Nodes in a row."""
    nodes = np.arange(m)
    return np.column_stack([nodes[:-1], nodes[1:]])


def ring(m: int) -> Array:
    """A cycle."""
    # Rings of one and two nodes are paths: closing them would add a loop or a second edge.
    return path(m) if m < 3 else np.vstack([path(m), [[0, m - 1]]])


def star(m: int) -> Array:
    """Node 0 joined to all others."""
    return np.column_stack([np.zeros(m - 1, dtype=np.int64), np.arange(1, m)])


def complete(m: int) -> Array:
    """All pairs."""
    return np.column_stack(np.triu_indices(m, k=1))


def grid(rows: int, cols: int) -> Array:
    """A grid, numbered row by row."""
    nodes = np.arange(rows * cols).reshape(rows, cols)
    across = np.column_stack([nodes[:, :-1].ravel(), nodes[:, 1:].ravel()])
    down = np.column_stack([nodes[:-1].ravel(), nodes[1:].ravel()])
    return np.vstack([across, down])


def torus(rows: int, cols: int) -> Array:
    """A grid whose opposite sides are joined."""
    nodes = np.arange(rows * cols).reshape(rows, cols)
    wraps = [grid(rows, cols)]
    if cols > 2:
        wraps.append(nodes[:, [0, -1]])
    if rows > 2:
        wraps.append(nodes[[0, -1]].T)
    return np.vstack(wraps)


def hypercube(dimension: int) -> Array:
    """Nodes that differ in one binary digit are joined."""
    nodes = np.arange(2**dimension)
    faces = [np.column_stack([low, low | 1 << k]) for k in range(dimension) for low in [nodes[nodes >> k & 1 == 0]]]
    return np.vstack([np.empty((0, 2), dtype=np.int64), *faces])


def regular(m: int, degree: int, seed: Seed) -> Array:
    """A random connected graph of constant degree."""
    require(
        0 <= degree < m and m * degree % 2 == 0,
        "degree must be below m with m * degree even",
        f"m = {m}, degree = {degree}",
        "change one of them by one",
    )
    require(
        degree > 1 or m == degree + 1,
        "a connected regular graph needs degree >= 2",
        f"m = {m}, degree = {degree}",
        "raise the degree",
    )
    rng = generator(seed)
    if degree == m - 1:
        return complete(m)
    if degree == 2:  # the ring is the only connected one; a random draw would seldom be connected
        return rng.permutation(m)[ring(m)]
    if 2 * degree >= m:  # its complement is quicker to draw, and any such graph is connected
        absent = np.eye(m, dtype=bool)
        absent[tuple(_draw_regular(m, m - 1 - degree, rng).T)] = True
        return np.argwhere(np.triu(~(absent | absent.T)))
    return _first_connected(m, lambda: _draw_regular(m, degree, rng))


def _draw_regular(m: int, degree: int, rng: np.random.Generator) -> Array:
    import networkx

    return np.array(networkx.random_regular_graph(degree, m, seed=int(rng.integers(2**32))).edges)


def small_world(m: int, neighbours: int, rewire: float, seed: Seed) -> Array:
    """A Watts-Strogatz graph."""
    require(
        2 <= neighbours < m and neighbours % 2 == 0,
        "neighbours must be even, at least 2 and below m",
        f"m = {m}, neighbours = {neighbours}",
        "each agent starts with neighbours / 2 on either side of a ring",
    )
    require(0 <= rewire <= 1, "rewire must be a probability", rewire, "choose it between 0 and 1")
    import networkx

    rng = generator(seed)

    def draw() -> Array:
        graph = networkx.watts_strogatz_graph(m, neighbours, rewire, seed=int(rng.integers(2**32)))
        return np.array(graph.edges)

    return _first_connected(m, draw)


def geometric(m: int, radius: float | None, seed: Seed) -> Array:
    """Random points of the unit square, joined where their distance is at most `radius`."""
    from scipy.spatial import KDTree

    require(radius is None or radius > 0, "radius must be positive", radius, "leave it out for one that connects")
    # The graph becomes connected near sqrt(log m / (pi m)); twice that area connects nearly every draw.
    reach = float(np.sqrt(2 * np.log(max(m, 2)) / (np.pi * m))) if radius is None else radius
    rng = generator(seed)

    def draw() -> Array:
        return KDTree(rng.random((m, 2))).query_pairs(reach, output_type="ndarray")

    return _first_connected(m, draw) if radius is None else draw()


def _first_connected(m: int, draw: Callable[[], Array]) -> Array:
    for _ in range(_DRAWS):
        pairs = draw()
        if components(m, pairs) == 1:
            return pairs
    raise InputError("a random graph must be connected", f"{_DRAWS} draws that were not", "raise the degree")


def components(m: int, pairs: Array) -> int:
    """Return the number of connected components."""
    from scipy.sparse.csgraph import connected_components

    links = sp.csr_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(m, m))
    return int(connected_components(links, directed=False)[0])
