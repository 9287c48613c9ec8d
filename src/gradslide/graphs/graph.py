"""The network of agents: an undirected, connected graph."""

import hashlib
import operator
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gradslide._support.errors import InputError, kind_of, require
from gradslide._support.html import facts_html
from gradslide._support.keywords import CheckedArguments, argument_order, checked_arguments
from gradslide._support.randomness import Seed
from gradslide._support.types import Array, Sparse
from gradslide.graphs import bounded_degree, distances, spectrum, topologies
from gradslide.graphs.display import in_words

if TYPE_CHECKING:
    import networkx
    from matplotlib.figure import Figure

_DENSE = 1_000  # up to here the two extreme eigenvalues come from the dense spectrum
_EXTREMES = ("laplacian_norm", "algebraic_connectivity")
_EXACT = 2_000  # up to here the whole spectrum and all eccentricities are computed
_ORDER = "the number of agents comes first"

# Edges as users give them: an array (e, 2) or pairs.
Pairs: TypeAlias = Array | Iterable[Sequence[int]]


class NetworkXGraph(Protocol):
    """A graph of networkx, for type checkers."""

    def is_directed(self) -> bool: ...
    def is_multigraph(self) -> bool: ...


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Graph(CheckedArguments):
    """An undirected, connected graph on the agents 0, ..., m-1, without loops or parallel edges.

    Graphs are immutable. Equal graphs have equal hashes.

    Parameters
    ----------
    m : int
        Number of agents.
    edges : array_like of int, shape (e, 2), or iterable of pairs
        The edges, in any order and orientation.
    weights : array_like of float, shape (e,), optional
        Positive weights of the edges, 1 by default. They enter the Laplacian.

    Attributes
    ----------
    m : int
        Number of agents.
    edges : ndarray of int, shape (e, 2)
        The edges, sorted, with u < v in each row.
    weights : ndarray, shape (e,)
        The weights, in the order of `edges`.

    Raises
    ------
    InputError
        If the graph is not connected, or an edge is a loop, repeated or out of range.

    Examples
    --------
    >>> import gradslide as gs
    >>> graph = gs.Graph.ring(6)
    >>> graph.diameter, graph.degrees.tolist()
    (3, [2, 2, 2, 2, 2, 2])
    >>> gs.Graph(3, [(0, 1), (1, 2)], weights=[1.0, 0.5])
    Graph(m=3, edges=2, max_degree=2, weighted)
    """

    m: int
    edges: Array
    weights: Array

    @argument_order(_ORDER)
    def __init__(self, m: int, edges: Pairs, weights: npt.ArrayLike | None = None) -> None:
        _check_order(m, edges)
        m = count(m)
        pairs = edge_pairs(edges, m)
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))
        pairs, ordered = pairs[order], edge_weights(weights, len(pairs))[order]
        repeated = (pairs[1:] == pairs[:-1]).all(axis=1)
        if repeated.any():
            first = tuple(pairs[repeated.argmax()].tolist())
            raise InputError(
                "each edge must be given once",
                f"{first} more than once",
                "merge parallel edges, adding weights",
            )
        parts = topologies.components(m, pairs)
        require(parts == 1, "graph must be connected", f"{parts} components", "add edges or solve each separately")
        object.__setattr__(self, "m", m)
        object.__setattr__(self, "edges", _frozen(pairs))
        object.__setattr__(self, "weights", _frozen(ordered))

    # Construction

    @classmethod
    @argument_order(_ORDER)
    def from_edges(cls, m: int, pairs: Pairs, weights: npt.ArrayLike | None = None) -> "Graph":
        """Build a graph from pairs of agents.

        Parameters
        ----------
        m : int
            Number of agents.
        pairs : array_like of int, shape (e, 2), or iterable of pairs
            The edges.
        weights : array_like of float, shape (e,), optional
            Weights in the same order, 1 by default.

        Returns
        -------
        Graph

        Examples
        --------
        >>> import gradslide as gs
        >>> gs.Graph.from_edges(4, [(0, 1), (1, 2), (2, 3)])
        Graph(m=4, edges=3, max_degree=2)
        """
        return cls(m, pairs, weights)

    @classmethod
    def from_networkx(cls, graph: "networkx.Graph", weight: str | None = None) -> "Graph":
        """Build a graph from an undirected networkx graph.

        Parameters
        ----------
        graph : networkx.Graph
            Its nodes become the agents 0, 1, ..., in the order of iteration.
        weight : str, optional
            Name of the edge attribute that holds the weights; by default all weights are 1.

        Returns
        -------
        Graph
        """
        require(
            hasattr(graph, "is_directed"), "graph must be a networkx graph", kind_of(graph), "or use Graph.from_edges"
        )
        require(
            not graph.is_directed(),
            "graph must be undirected",
            "a directed one",
            "call graph.to_undirected()",
        )
        number = {node: i for i, node in enumerate(graph)}
        links = list(graph.edges(data=weight or "weight"))
        require(
            weight is None or all(value is not None for _, _, value in links),
            f"every edge must have the attribute {weight!r}",
            "an edge without it",
            "set it or leave weight out",
        )
        pairs = [(number[u], number[v]) for u, v, _ in links]
        return cls(len(number), pairs, None if weight is None else [value for _, _, value in links])

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Graph":
        """Read an edge list from a text file.

        Parameters
        ----------
        path : str or path-like
            One edge per line: "u v" or "u v weight". Agents are counted from 0; # starts a comment.

        Returns
        -------
        Graph
        """
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                "an edge list must be a readable text file", f"{path} ({error})", "check the path"
            ) from None
        pairs: list[tuple[int, int]] = []
        weights: list[list[float]] = []
        for number, line in enumerate(lines, start=1):
            if not (fields := line.partition("#")[0].split()):
                continue
            try:
                pairs.append((int(fields[0]), int(fields[1])))
                weights.append([float(field) for field in fields[2:]])
                regular = len(weights[-1]) < 2 and len(weights[-1]) == len(weights[0])
            except (ValueError, IndexError):
                regular = False
            require(
                regular,
                f"line {number} of {path} must read 'u v' or, on all lines, 'u v weight'",
                repr(line.strip()),
                "correct that line",
            )
        require(bool(pairs), "an edge list must hold edges", f"none in {path}", "write one 'u v' per line")
        first = min(map(min, pairs))
        require(first == 0, "agents must be counted from 0", f"{first} as the lowest in {path}", "renumber them")
        m = max(map(max, pairs)) + 1
        return cls(m, pairs, [weight for (weight,) in weights] if weights[0] else None)

    @classmethod
    def ring(cls, m: int) -> "Graph":
        """Return a cycle.

        Parameters
        ----------
        m : int
            Number of agents.

        Returns
        -------
        Graph
            Agent i is joined to i + 1, and the last one to agent 0.
        """
        return cls(m, topologies.ring(count(m)))

    @classmethod
    def path(cls, m: int) -> "Graph":
        """Return agents in a row.

        Parameters
        ----------
        m : int
            Number of agents.

        Returns
        -------
        Graph
            Agent i is joined to i + 1.
        """
        return cls(m, topologies.path(count(m)))

    @classmethod
    def star(cls, m: int) -> "Graph":
        """Return a star.

        Parameters
        ----------
        m : int
            Number of agents.

        Returns
        -------
        Graph
            Agent 0 is joined to all others.
        """
        return cls(m, topologies.star(count(m)))

    @classmethod
    def complete(cls, m: int) -> "Graph":
        """Return the complete graph.

        Parameters
        ----------
        m : int
            Number of agents.

        Returns
        -------
        Graph
            All agents are joined to each other.
        """
        return cls(m, topologies.complete(count(m)))

    @classmethod
    def grid(cls, rows: int, cols: int) -> "Graph":
        """Return a grid of rows x cols agents.

        Parameters
        ----------
        rows, cols : int
            Size of the grid.

        Returns
        -------
        Graph
            Agents are numbered row by row.
        """
        return cls(count(rows, "rows") * count(cols, "cols"), topologies.grid(rows, cols))

    @classmethod
    def torus(cls, rows: int, cols: int) -> "Graph":
        """Return a grid whose opposite sides are joined.

        Parameters
        ----------
        rows, cols : int
            Size of the grid.

        Returns
        -------
        Graph
            Agents are numbered row by row.
        """
        return cls(count(rows, "rows") * count(cols, "cols"), topologies.torus(rows, cols))

    @classmethod
    def hypercube(cls, dimension: int) -> "Graph":
        """Return the hypercube on 2^dimension agents.

        Parameters
        ----------
        dimension : int
            Number of neighbours of each agent, at most 20.

        Returns
        -------
        Graph
            Neighbours differ in one binary digit.
        """
        dimension = count(dimension, "dimension", least=0)
        require(dimension <= 20, "dimension must be at most 20", dimension, "2^20 agents are a million")
        return cls(2**dimension, topologies.hypercube(dimension))

    @classmethod
    def regular(cls, m: int, degree: int, seed: Seed = 0) -> "Graph":
        """Draw a random connected graph in which every agent has the same number of neighbours.

        Parameters
        ----------
        m : int
            Number of agents.
        degree : int
            Number of neighbours of every agent; m * degree must be even.
        seed : int or numpy.random.Generator
            Source of randomness.

        Returns
        -------
        Graph
        """
        return cls(m, topologies.regular(count(m), count(degree, "degree", least=0), seed))

    @classmethod
    def small_world(cls, m: int, neighbours: int = 4, rewire: float = 0.1, seed: Seed = 0) -> "Graph":
        """Draw a Watts-Strogatz graph: a ring whose edges are rewired at random.

        Parameters
        ----------
        m : int
            Number of agents.
        neighbours : int
            Each agent is joined to so many nearest agents on the ring; even.
        rewire : float
            Probability that an edge is rewired.
        seed : int or numpy.random.Generator
            Source of randomness.

        Returns
        -------
        Graph
        """
        return cls(m, topologies.small_world(count(m), count(neighbours, "neighbours"), rewire, seed))

    @classmethod
    def geometric(cls, m: int, radius: float | None = None, seed: Seed = 0) -> "Graph":
        """Draw random points of the unit square and join those that are close to each other.

        Parameters
        ----------
        m : int
            Number of agents.
        radius : float, optional
            Largest distance of neighbours. By default sqrt(2 log m / (pi m)), and points are drawn
            again until the graph is connected. With a given radius, a graph that is not connected
            is an error.
        seed : int or numpy.random.Generator
            Source of randomness.

        Returns
        -------
        Graph
        """
        return cls(m, topologies.geometric(count(m), radius, seed))

    @classmethod
    def random(cls, m: int, max_degree: int, seed: Seed = 0, edges: int | None = None) -> "Graph":
        """Draw a random connected graph with a given maximum degree.

        A hub gets `max_degree` random neighbours, every other agent is attached to a random one
        with spare capacity, then random edges are added.

        Parameters
        ----------
        m : int
            Number of agents.
        max_degree : int
            The maximum degree, which is attained.
        seed : int or numpy.random.Generator
            Source of randomness.
        edges : int, optional
            Number of edges. By default as many as an Erdos-Renyi graph with median maximum degree
            `max_degree` has, but at least min(1.5 m, 3/4 m max_degree / 2).

        Returns
        -------
        Graph

        Examples
        --------
        >>> import gradslide as gs
        >>> gs.Graph.random(100, max_degree=4, seed=0)
        Graph(m=100, edges=150, max_degree=4)
        """
        most = None if edges is None else count(edges, "edges", least=0)
        return cls(m, bounded_degree.random_pairs(count(m), count(max_degree, "max_degree"), seed, most))

    # Structure

    @cached_property
    def degrees(self) -> Array:
        """Number of neighbours of each agent.

        Returns
        -------
        ndarray of int, shape (m,)
            Read-only.
        """
        return _frozen(np.bincount(self.edges.ravel(), minlength=self.m))

    @cached_property
    def weighted_degrees(self) -> Array:
        """Sum of the weights at each agent.

        Returns
        -------
        ndarray, shape (m,)
            The diagonal of the Laplacian, read-only.
        """
        return _frozen(np.bincount(self.edges.ravel(), np.repeat(self.weights, 2), minlength=self.m).astype(float))

    @cached_property
    def adjacency(self) -> Sparse:
        """Weights of the edges as a symmetric matrix.

        Returns
        -------
        scipy.sparse.csr_array, shape (m, m)
            Entry (u, v) is the weight of that edge; read-only.
        """
        u, v = self.edges.T
        links = sp.csr_array((self.weights, (u, v)), shape=(self.m, self.m))
        return _frozen(sp.csr_array(links + links.T))

    @cached_property
    def laplacian(self) -> Sparse:
        """Laplacian: weighted degrees minus adjacency.

        Returns
        -------
        scipy.sparse.csr_array, shape (m, m)
            Symmetric and positive semidefinite; read-only.
        """
        return _frozen(sp.csr_array(sp.diags_array(self.weighted_degrees) - self.adjacency))

    @cached_property
    def incidence(self) -> Sparse:
        """Incidence matrix B: each column has sqrt(w) at u and -sqrt(w) at v.

        B B^T is the Laplacian.

        Returns
        -------
        scipy.sparse.csr_array, shape (m, e)
            One column per edge, in the order of `edges`; read-only.
        """
        e = len(self.edges)
        root = np.sqrt(self.weights)
        rows, cols = self.edges.T.ravel(), np.tile(np.arange(e), 2)
        return _frozen(sp.csr_array((np.concatenate([root, -root]), (rows, cols)), shape=(self.m, e)))

    def neighbours(self, agent: int) -> Array:
        """Return the neighbours of an agent.

        Parameters
        ----------
        agent : int
            One of 0, ..., m-1.

        Returns
        -------
        ndarray of int
            The neighbours in ascending order.

        Raises
        ------
        InputError
            If there is no such agent.
        """
        require(0 <= agent < self.m, f"agent must be between 0 and {self.m - 1}", agent, "agents count from 0")
        return self.adjacency.indices[self.adjacency.indptr[agent] : self.adjacency.indptr[agent + 1]]

    def scaled(self, factor: float) -> "Graph":
        """Return the same graph with all weights, and cached eigenvalues, multiplied by a factor.

        Parameters
        ----------
        factor : float
            Positive.

        Returns
        -------
        Graph
            The scaled graph.
        """
        new = replace(self, weights=factor * self.weights)
        known = {name: self.__dict__[name] for name in _EXTREMES if name in self.__dict__}
        new.__dict__.update({name: factor * value for name, value in known.items()})
        return new

    # Spectrum

    def spectrum(self) -> Array:
        """Return all eigenvalues of the Laplacian; for m up to 2,000.

        Returns
        -------
        ndarray, shape (m,)
            The eigenvalues in ascending order.

        Raises
        ------
        InputError
            If the graph is larger.
        """
        require(
            self.m <= _EXACT,
            f"the whole spectrum needs m <= {_EXACT}",
            self.m,
            "use laplacian_norm and algebraic_connectivity",
        )
        return self._eigenvalues

    @cached_property
    def _eigenvalues(self) -> Array:
        return _frozen(spectrum.all_eigenvalues(self.laplacian))

    @cached_property
    def laplacian_norm(self) -> float:
        """Largest eigenvalue of the Laplacian.

        Returns
        -------
        float
            Exact to rounding up to m = 1,000; for larger graphs an upper bound within 1e-4
            relative.
        """
        if self.m <= _DENSE:
            return float(self._eigenvalues[-1])
        return spectrum.largest_eigenvalue(self.laplacian, self.norm_bound)

    @cached_property
    def algebraic_connectivity(self) -> float:
        """Smallest nonzero eigenvalue of the Laplacian.

        Returns
        -------
        float
            Infinite for one agent.
        """
        if self.m == 1:
            return float("inf")
        if self.m <= _DENSE:
            return float(self._eigenvalues[1])
        return spectrum.second_eigenvalue(self.laplacian, self.norm_bound, self._width)

    @property
    def condition(self) -> float:
        """Ratio of `laplacian_norm` to `algebraic_connectivity`.

        Returns
        -------
        float
            At least 1; 1 for one agent.
        """
        return 1.0 if self.m == 1 else self.laplacian_norm / self.algebraic_connectivity

    @cached_property
    def norm_bound(self) -> float:
        """Upper bound of `laplacian_norm`: the largest sum of weighted degrees over an edge.

        Agents find it with one exchange and one maximum.

        Returns
        -------
        float
            At most twice the largest weighted degree.
        """
        return float(self.weighted_degrees[self.edges].sum(axis=1).max(initial=0.0))

    @cached_property
    def _width(self) -> int:
        end = int(distances.hop_distances(self.adjacency, 0).argmax())
        return int(np.bincount(distances.hop_distances(self.adjacency, end)).max())

    @cached_property
    def degree_weights(self) -> tuple[Array, float, float]:
        """Weights D of the agents, and the extreme nonzero eigenvalues of D^-1 Lap.

        D reduces what a few agents with many neighbours do to the spectrum.

        Returns
        -------
        D : ndarray, shape (m,)
            Positive, with mean 1; all 1 for m > 1,000.
        least, most : float
            The smallest nonzero eigenvalue of D^-1 Lap and the largest.
        """
        D = np.maximum(1.0, self.weighted_degrees / (2 * self.weighted_degrees.mean()))
        D = D / D.mean()
        if self.m > _DENSE or np.all(D == 1):
            return np.ones(self.m), self.algebraic_connectivity, self.laplacian_norm
        root = sp.diags_array(1 / np.sqrt(D))
        values = np.linalg.eigvalsh((root @ self.laplacian @ root).toarray())
        return D, float(values[1]), float(values[-1])

    # Distances

    @cached_property
    def _extent(self) -> distances.Extent:
        if self.m > _EXACT:
            return distances.estimated_extent(self.adjacency)
        hops = distances.eccentricities(self.adjacency)
        center, diameter = int(hops.argmin()), int(hops.max())
        return distances.Extent(center, int(hops[center]), diameter, diameter)

    @property
    def diameter(self) -> int:
        """Largest number of hops between two agents.

        Returns
        -------
        int
            Exact.

        Raises
        ------
        InputError
            For m > 2,000, if a few breadth-first searches do not determine it; then use
            `diameter_bound`.
        """
        low, high = self._extent.diameter_low, self._extent.diameter_high
        require(
            low == high,
            f"the diameter of more than {_EXACT} agents must follow from a few searches",
            f"one between {low} and {high}",
            "use diameter_bound",
        )
        return high

    @property
    def diameter_bound(self) -> int:
        """Upper bound of the diameter.

        Returns
        -------
        int
            At most twice the diameter; exact where `diameter` is.
        """
        return self._extent.diameter_high

    @property
    def radius(self) -> int:
        """Number of hops from the root of a shallow breadth-first tree to the farthest agent.

        Returns
        -------
        int
            For m <= 2,000 the radius of the graph.
        """
        return self._extent.radius

    def radius_center(self) -> tuple[int, int]:
        """Find the root of a shallow breadth-first tree.

        Returns
        -------
        root : int
            An agent; for m <= 2,000 the center of the graph.
        depth : int
            Depth of the tree from there; for m <= 2,000 the radius of the graph.
        """
        return self._extent.center, self._extent.radius

    # Identity

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of m, edges and weights.

        Returns
        -------
        str
            Hexadecimal; the same on every machine.
        """
        content = self.edges.astype("<i8").tobytes() + self.weights.astype("<f8").tobytes()
        return hashlib.sha256(f"graph {self.m} {len(self.edges)}\n".encode() + content).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        weighted = "" if (self.weights == 1).all() else ", weighted"
        return f"Graph(m={self.m}, edges={len(self.edges)}, max_degree={self.degrees.max()}{weighted})"

    @checked_arguments
    def plot(self, values: Array | None = None, *, label: str = "", title: str = "") -> "Figure":
        """Draw up to 2,000 agents.

        Parameters
        ----------
        values : array_like, shape (m,), optional
            One number per agent, shown as its color; by default the degree.
        label : str
            Label of the color bar.
        title : str
            Title of the figure.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from gradslide._support.plotting import shown_once
        from gradslide.graphs.display import plot_graph

        return shown_once(plot_graph(self, values, label=label, title=title))

    def _repr_html_(self) -> str:
        """For notebooks."""
        return facts_html(repr(self), in_words(self.describe()))

    def describe(self) -> dict[str, int | float | None]:
        """Return the figures of the graph: size, degrees, diameter and eigenvalues.

        Returns
        -------
        dict
            Numbers by name; None where a number is not known.
        """
        known = self._extent.diameter_low == self._extent.diameter_high
        return {
            "m": self.m,
            "edges": len(self.edges),
            "degree_min": int(self.degrees.min()),
            "degree_mean": float(self.degrees.mean()),
            "degree_max": int(self.degrees.max()),
            "diameter": self.diameter if known else None,
            "diameter_bound": self.diameter_bound,
            "lmax": self.laplacian_norm,
            "l2": self.algebraic_connectivity if self.m > 1 else None,
            "condition": self.condition,
        }


def _frozen(array: Any) -> Any:
    """Make an array, or a CSR matrix with sorted indices, read-only."""
    if sp.issparse(array):
        array.sort_indices()
    for part in (array.data, array.indices, array.indptr) if sp.issparse(array) else (array,):
        part.flags.writeable = False
    return array


def count(value: Any, name: str = "m", least: int = 1) -> int:
    """Return a whole number that is at least `least`; refuse anything else."""
    rule = f"{name} must be a whole number, at least {least}"
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(rule, kind_of(value), f"for example {name}={max(least, 10)}") from None
    require(number >= least, rule, number, f"raise {name}")
    return number


# What `as_graph` takes for a graph.
GraphLike: TypeAlias = Graph | NetworkXGraph


def as_graph(value: object) -> Graph | None:
    """Return a Graph, or a networkx graph as one; None for anything else. networkx is not imported."""
    if isinstance(value, Graph):
        return value
    if not hasattr(type(value), "is_directed"):
        return None
    is_networkx = any(base.__module__.partition(".")[0] == "networkx" for base in type(value).__mro__)
    return Graph.from_networkx(value) if is_networkx else None


def _check_order(m: object, edges: object) -> None:
    """Refuse edges before the number of agents."""
    if isinstance(m, Iterable) and isinstance(edges, int | np.integer):
        rule = "the number of agents m comes first, then the edges"
        raise InputError(rule, f"edges, then {edges}", f"swap them: Graph.from_edges({edges}, pairs)")


def edge_pairs(edges: Any, m: int) -> Array:
    """Return edges as an array (e, 2) with u < v; refuse loops and agents out of range."""
    if not isinstance(edges, Iterable):
        raise InputError("edges must be pairs of whole numbers", kind_of(edges), "give one (u, v) per edge")
    given = edges if isinstance(edges, np.ndarray) else list(edges)
    try:
        pairs = np.asarray(given) if len(given) else np.empty((0, 2), dtype=np.int64)
    except ValueError:
        pairs = np.empty(0)
    require(
        pairs.ndim == 2 and pairs.shape[1] == 2 and pairs.dtype.kind in "iu",
        "edges must be pairs of whole numbers",
        f"shape {pairs.shape} of {pairs.dtype}",
        "give one (u, v) per edge",
    )
    outside = pairs[(pairs < 0) | (pairs >= m)]
    require(
        not len(outside),
        f"agents must be numbered 0 to {m - 1}",
        outside[:1].tolist(),
        "raise m or renumber the agents",
    )
    loops = pairs[pairs[:, 0] == pairs[:, 1]]
    require(not len(loops), "an agent must not be its own neighbour", loops[:1].tolist(), "remove self-loops")
    return np.sort(pairs.astype(np.int64), axis=1)


def edge_weights(weights: Any, e: int) -> Array:
    """Return positive, finite weights (e,), ones by default."""
    if weights is None:
        return np.ones(e)
    try:
        values = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("weights must be numbers", repr(weights), "give one number per edge") from None
    require(
        values.shape == (e,),
        f"weights must have one value per edge, shape ({e},)",
        values.shape,
        "match the edges",
    )
    bad = values[~(np.isfinite(values) & (values > 0))]
    require(
        not len(bad),
        "weights must be positive and finite",
        bad[:1].tolist(),
        "leave out edges without weight",
    )
    return values
