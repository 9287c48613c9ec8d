"""Mixing matrices W, with which agents average with their neighbours.

W is symmetric, its rows sum to 1, and W_ij is nonzero only where i and j are neighbours.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import scipy.sparse as sp

from gradslide._support.errors import require_number, unknown_name
from gradslide._support.keywords import checked_arguments
from gradslide._support.types import Sparse
from gradslide.graphs.graph import Graph

__all__ = ["Mixing", "best_constant", "laplacian", "metropolis", "spectral_gaps"]


@dataclass(frozen=True)
class Mixing:
    """A mixing matrix W = I - Lap, with Lap the Laplacian of a graph weighted by the W_ij.

    Parameters
    ----------
    links : Graph
        The graph, weighted with the off-diagonal entries W_ij.

    Examples
    --------
    >>> import gradslide as gs
    >>> W = gs.mixing.metropolis(gs.Graph.ring(4))
    >>> W.matrix.toarray()[0].round(3).tolist()
    [0.333, 0.333, 0.0, 0.333]
    """

    links: Graph

    @cached_property
    def matrix(self) -> Sparse:
        """W as a CSR matrix (m, m)."""
        W = sp.csr_array(sp.eye_array(self.links.m, format="csr") - self.links.laplacian)
        W.sort_indices()
        W.data.flags.writeable = False
        return W

    @property
    def second(self) -> float:
        """Second largest eigenvalue; 0 for one agent."""
        return 0.0 if self.links.m == 1 else 1 - self.links.algebraic_connectivity

    @property
    def least(self) -> float:
        """Smallest eigenvalue; 1 for one agent."""
        return 1 - self.links.laplacian_norm

    @property
    def spectral_gap(self) -> float:
        """1 - max(|second|, |least|): an exchange reduces the disagreement by 1 minus this factor."""
        return 1.0 if self.links.m == 1 else 1 - max(abs(self.second), abs(self.least))

    @cached_property
    def lazy(self) -> "Mixing":
        """(I + W)/2, which has no negative eigenvalue; W itself where W has none."""
        # On large graphs the largest eigenvalue of a Laplacian is known to about 1e-4, from above.
        return self if self.least >= -1e-3 else Mixing(self.links.scaled(0.5))

    def __repr__(self) -> str:
        return f"Mixing(m={self.links.m}, second={self.second:.6g}, least={self.least:.6g})"


@lru_cache(maxsize=64)
@checked_arguments
def metropolis(graph: Graph) -> Mixing:
    """Return Metropolis weights W_ij = 1/(1 + max(deg_i, deg_j)).

    Neighbours need to know each other's degree only. The graph's own weights are ignored.

    Parameters
    ----------
    graph : Graph
        The network.

    Returns
    -------
    Mixing
    """
    degrees = graph.degrees[graph.edges]
    return Mixing(replace(graph, weights=1 / (1.0 + degrees.max(axis=1, initial=0))))


@lru_cache(maxsize=64)
@checked_arguments
def laplacian(graph: Graph, norm: float | None = None) -> Mixing:
    """Return W = I - Lap/norm, which has no negative eigenvalue.

    Parameters
    ----------
    graph : Graph
        The network; its weights enter Lap.
    norm : float, optional
        The largest eigenvalue of Lap or an upper bound; by default `graph.laplacian_norm`.

    Returns
    -------
    Mixing
    """
    if norm is not None and graph.m > 1:
        require_number("norm", norm, "leave it out for the exact one", above=0)
    return _scaled(graph, graph.laplacian_norm if norm is None else norm)


@lru_cache(maxsize=64)
@checked_arguments
def best_constant(graph: Graph) -> Mixing:
    """Return W = I - 2 Lap/(lmax + l2), with the largest spectral gap for equal edge weights.

    Parameters
    ----------
    graph : Graph
        The network.

    Returns
    -------
    Mixing

    Notes
    -----
    Xiao, Boyd, "Fast linear iterations for distributed averaging", Syst. Control Lett. 53, 2004.
    """
    return _scaled(graph, (graph.laplacian_norm + graph.algebraic_connectivity) / 2 if graph.m > 1 else 1.0)


def _scaled(graph: Graph, norm: float) -> Mixing:
    return Mixing(graph.scaled(1 / norm)) if len(graph.edges) else Mixing(graph)


MIXINGS: dict[str, Callable[..., Mixing]] = {
    "metropolis": metropolis,
    "laplacian": laplacian,
    "best_constant": best_constant,
}


@checked_arguments
def spectral_gaps(graph: Graph) -> dict[str, float]:
    """Return the spectral gap of each mixing matrix.

    Parameters
    ----------
    graph : Graph
        The network.

    Returns
    -------
    dict
        Names and spectral gaps, as `Mixing.spectral_gap` defines them.
    """
    return {name: make(graph).spectral_gap for name, make in MIXINGS.items()}


def require_mixing(name: str) -> None:
    """Refuse an unknown name of a mixing matrix."""
    if name not in MIXINGS:
        raise unknown_name("mixing", name, MIXINGS)
