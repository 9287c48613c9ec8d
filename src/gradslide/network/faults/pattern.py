"""Where the messages of a graph stand in its sparse matrices."""

import numpy as np
import scipy.sparse as sp

from gradslide._support.errors import kind_of, require
from gradslide._support.types import Array, Sparse
from gradslide.graphs.graph import Graph

_KEPT = 64


class Pattern:
    """The 2e messages of a graph: those from u to v over all edges (u, v), then those from v to u.

    senders, receivers: agents (2e,). Values of weights are in the order of a CSR matrix with all
    links and a full diagonal.
    """

    def __init__(self, graph: Graph) -> None:
        self._m = graph.m
        u, v = graph.edges.T
        self.senders, self.receivers = np.concatenate([u, v]), np.concatenate([v, u])
        everyone = np.arange(graph.m)
        rows, cols = np.concatenate([self.receivers, everyone]), np.concatenate([self.senders, everyone])
        order = np.lexsort((cols, rows))
        places = np.argsort(order)
        self._of_messages, self._of_agents = places[: 2 * len(u)], places[2 * len(u) :]
        self._keys = (rows * graph.m + cols)[order]
        self._indices = cols[order].astype(np.int32)
        self._starts = np.searchsorted(rows[order], np.arange(graph.m + 1)).astype(np.int32)
        self._known: dict[int, tuple[Sparse, Array | None]] = {}
        self._effective: dict[str, Sparse] = {}

    def without(self, lost: Array, weights: Sparse, dtype: np.dtype) -> Sparse:
        """The weights where lost messages, (2e,), have given theirs to the receiver itself.

        Overwritten by the next.
        """
        effective = self._matrix(dtype)
        data = effective.data
        self._fill(data, weights)
        if len(messages := np.flatnonzero(lost)):
            places = self._of_messages[messages]
            data[self._of_agents] += np.bincount(self.receivers[messages], data[places], minlength=self._m)
            data[places] = 0
        return effective

    def noise_scale(self, weights: Sparse, lost: Array | None) -> Array:
        """The root of the sum of w_ij^2 over the messages that agent i heard, (m,)."""
        squares = np.empty(len(self._indices))
        self._fill(squares, weights)
        squares *= squares
        squares[self._of_agents] = 0
        if lost is not None:
            squares[self._of_messages[lost]] = 0
        return np.sqrt(np.add.reduceat(squares, self._starts[:-1]))

    def _matrix(self, dtype: np.dtype) -> Sparse:
        if dtype.str not in self._effective:
            parts = np.zeros(len(self._indices), dtype), self._indices, self._starts
            self._effective[dtype.str] = sp.csr_array(parts, shape=(self._m, self._m))
        return self._effective[dtype.str]

    def _fill(self, data: Array, weights: Sparse) -> None:
        places = self._places(weights)
        if places is None:
            data[:] = weights.data
        else:
            data[:] = 0
            data[places] = weights.data

    def _places(self, weights: Sparse) -> Array | None:
        """Where each of the weights goes; None if they are in place."""
        if id(weights) not in self._known:
            if len(self._known) >= _KEPT:
                self._known.clear()
            # The matrix is kept beside its places: its id stays taken as long as the entry lives.
            self._known[id(weights)] = weights, self._find(weights)
        return self._known[id(weights)][1]

    def _find(self, weights: Sparse) -> Array | None:
        rule, remedy = "weights must be a CSR matrix over the links of the graph", "for example graph.laplacian"
        fits = sp.issparse(weights) and weights.format == "csr" and weights.shape == (self._m, self._m)
        require(fits, rule, kind_of(weights), remedy)
        rows = np.repeat(np.arange(self._m), np.diff(weights.indptr))
        keys = rows * self._m + weights.indices
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        known = self._keys[places] == keys
        require(bool(known.all()), rule, f"entries for {int(np.sum(~known))} pairs that are no neighbours", remedy)
        return None if np.array_equal(places, np.arange(len(self._keys))) else places
