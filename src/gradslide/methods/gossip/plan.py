"""What auto mode takes from the network: weights, extreme eigenvalues, and how many exchanges a gradient is worth."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy.sparse as sp

from gradslide._support.arrays import like
from gradslide._support.errors import require
from gradslide._support.types import Array
from gradslide.graphs.chebyshev import chebyshev_rounds, damped_chebyshev
from gradslide.graphs.graph import Graph
from gradslide.methods.base import Context

# Up to here the spectrum of the weighted Laplacian is computed; beyond, all agents weigh the same.
_WEIGHED = 1_000
# Exchanges per gradient: this share of what averages over the whole network, or more where gradients are dear.
_SHARE = 1 / 3
_WORTH = 0.35
# Weights and norms may hide this much of what agents differ by.
_RESERVE = 2.0


@dataclass(frozen=True)
class Plan:
    """N = D^-1 Lap, its smallest eigenvalue but 0 and its largest, and the weights D, (agents here, 1).

    reach = sqrt(most/least) is about the number of exchanges after which all agents have heard of all.
    """

    D: Array
    matrix: Array
    least: float
    most: float

    @property
    def reach(self) -> float:
        return math.sqrt(self.most / self.least) if self.most > 0 else 0.0

    def exchanges(self, balance: float) -> int:
        """K to begin with, for gradients that are worth so many rounds."""
        return math.ceil(max(_SHARE * self.reach, math.sqrt(_WORTH * balance * self.reach)))

    @property
    def most_exchanges(self) -> int:
        """How far K may grow."""
        return math.ceil(2 * self.reach)

    def final_exchanges(self, apart: float = 1.0) -> int:
        """Rounds in which the answers are mixed at the end: what they differ by falls to a 25th, or to a share of
        1/apart with some reserve."""
        return max(math.ceil(2 * self.reach), chebyshev_rounds(_RESERVE * apart, least=self.least, most=self.most))

    def mix(self, context: Context, v: Array, K: int) -> tuple[Array, Array]:
        """v mixed by K exchanges, and q with v - N q the same."""
        if self.most == 0:
            return v, 0 * v
        least = max(self.least, self.most / K**2)
        return damped_chebyshev(lambda u: context.network.combine(u, self.matrix), v, K, least=least, most=self.most)


def plan_of(context: Context, D: Array, least: float, most: float) -> Plan:
    """D: the weights of all agents. least, most: of the Laplacian with these weights."""
    network, laplacian = context.network, context.network.laplacian
    matrix = laplacian if np.all(D == 1) else sp.csr_array(sp.diags_array(1 / D) @ laplacian)
    here = like(D[list(network.agents), None].astype(context.problem.dtype), context.x0)
    return Plan(here, matrix, least, most)


def uniform_plan(context: Context, spectrum: tuple[float, float] | None) -> Plan:
    """All agents weigh the same; without a spectrum nothing is mixed."""
    network = context.network
    if spectrum is None or network.m == 1:
        return plan_of(context, np.ones(network.m), math.inf, 0.0)
    most_at_least = float(network.laplacian.diagonal().max())
    rule, remedy = "spectrum[1] must be the largest eigenvalue of the Laplacian, or more", "leave spectrum out"
    require(spectrum[1] >= most_at_least, rule, f"{spectrum[1]:g}, less than a degree of {most_at_least:g}", remedy)
    return plan_of(context, np.ones(network.m), *spectrum)


@lru_cache(maxsize=16)
def weighed(graph: Graph) -> tuple[Array, float, float]:
    """D, and the extreme eigenvalues but 0 of D^-1 Lap. D evens out what a few agents with many neighbours do to the
    spectrum."""
    degrees = graph.weighted_degrees
    D = np.maximum(1.0, degrees / (2 * degrees.mean()))
    D = D / D.mean()
    if graph.m > _WEIGHED or np.all(D == 1):
        return np.ones(graph.m), graph.algebraic_connectivity, graph.laplacian_norm
    root = sp.diags_array(1 / np.sqrt(D))
    values = np.linalg.eigvalsh((root @ graph.laplacian @ root).toarray())
    return D, float(values[1]), float(values[-1])
