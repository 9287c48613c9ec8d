"""Mixing matrices W: weighted averages of oneself and one's neighbours. W is symmetric and its rows sum to 1."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import scipy.sparse as sp

from gradslide._support.errors import require_number, unknown_name
from gradslide._support.types import Sparse
from gradslide.graphs.graph import Graph

__all__ = ["Mixing", "best_constant", "laplacian", "metropolis", "spectral_gaps"]


@dataclass(frozen=True)
class Mixing:
    """W = I - Lap of the links, which are weighted with the W_ij."""

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
        """The second largest eigenvalue (0 for a lone agent)."""
        return 0.0 if self.links.m == 1 else 1 - self.links.algebraic_connectivity

    @property
    def least(self) -> float:
        """The smallest eigenvalue (1 for a lone agent)."""
        return 1 - self.links.laplacian_norm

    @property
    def spectral_gap(self) -> float:
        """1 - max(|second|, |least|): averaging errs by a factor of 1 less this per exchange."""
        return 1.0 if self.links.m == 1 else 1 - max(abs(self.second), abs(self.least))

    @cached_property
    def lazy(self) -> "Mixing":
        """(I + W)/2, whose eigenvalues are not negative; W itself where its own are not."""
        # On large graphs the largest eigenvalue of a Laplacian is known to about 1e-4, from above.
        return self if self.least >= -1e-3 else Mixing(self.links.scaled(0.5))

    def __repr__(self) -> str:
        return f"Mixing(m={self.links.m}, second={self.second:.6g}, least={self.least:.6g})"


@lru_cache(maxsize=64)
def metropolis(graph: Graph) -> Mixing:
    """W_ij = 1/(1 + max(deg_i, deg_j)): neighbours need to know each other's degrees and nothing else. The graph's own
    weights do not count."""
    degrees = graph.degrees[graph.edges]
    return Mixing(replace(graph, weights=1 / (1.0 + degrees.max(axis=1, initial=0))))


@lru_cache(maxsize=64)
def laplacian(graph: Graph, norm: float | None = None) -> Mixing:
    """W = I - Lap/norm, with no negative eigenvalue. norm: lmax of the Laplacian, or a bound on it."""
    if norm is not None and graph.m > 1:
        require_number("norm", norm, "leave it out for the exact one", above=0)
    return _scaled(graph, graph.laplacian_norm if norm is None else norm)


@lru_cache(maxsize=64)
def best_constant(graph: Graph) -> Mixing:
    """W = I - 2 Lap/(lmax + l2): the largest spectral gap with one weight for all links (Xiao, Boyd 2004)."""
    return _scaled(graph, (graph.laplacian_norm + graph.algebraic_connectivity) / 2 if graph.m > 1 else 1.0)


def _scaled(graph: Graph, norm: float) -> Mixing:
    return Mixing(graph.scaled(1 / norm)) if len(graph.edges) else Mixing(graph)


MIXINGS: dict[str, Callable[..., Mixing]] = {
    "metropolis": metropolis,
    "laplacian": laplacian,
    "best_constant": best_constant,
}


def spectral_gaps(graph: Graph) -> dict[str, float]:
    """Of each mixing matrix, by name."""
    return {name: make(graph).spectral_gap for name, make in MIXINGS.items()}


def require_mixing(name: str) -> None:
    """Refuse a mixing matrix that there is none of."""
    if name not in MIXINGS:
        raise unknown_name("mixing", name, MIXINGS)
