"""Messages that arrive with noise."""

from gradslide._support.errors import require_number
from gradslide._support.types import Array, Sparse
from gradslide.graphs.graph import Graph
from gradslide.network.compressors import Compressor
from gradslide.network.faults.fault import Fault
from gradslide.network.faults.links import lost_within
from gradslide.network.faults.pattern import Pattern
from gradslide.network.protocol import Network


class Noisy(Fault):
    """Messages arrive with Gaussian noise, different for each receiver.

    This does not preserve sums over the agents.

    Parameters
    ----------
    network : Network or Graph
        A network with all agents in one process, or one under other faults.
    sigma : float
        Standard deviation of the noise in each entry.
    seed : int
        Of the random numbers.

    Notes
    -----
    The noise in sum_j w_ij v_j is Gaussian with variance sigma^2 sum_{j != i} w_ij^2, and is drawn
    from that.

    Examples
    --------
    >>> import gradslide as gs
    >>> gs.network.Noisy(gs.Graph.ring(4), 0.01)
    Noisy(Graph(m=4, edges=4, max_degree=2), sigma=0.01, seed=0)
    """

    def __init__(self, network: Network | Graph, sigma: float, *, seed: int = 0) -> None:
        require_number("sigma", sigma, "0.01 is the standard deviation in each entry", least=0)
        self._sigma = float(sigma)
        super().__init__(network, seed, sigma=self._sigma)
        self._pattern = Pattern(self.graph)

    def combine(self, v: Array, weights: Sparse, encoding: Compressor | None = None) -> Array:
        result = super().combine(v, weights, encoding)
        scale = (self._sigma * self._pattern.noise_scale(weights, lost_within(self))).astype(v.dtype)
        noise = self._next().standard_normal(v.shape, dtype=v.dtype)
        noise *= scale.reshape(-1, *(1,) * (v.ndim - 1))
        return result + noise
