"""A slow network, simulated."""

import time

from gradslide._support.errors import require_number
from gradslide._support.types import Array, Sparse
from gradslide.graphs.graph import Graph
from gradslide.network.compressors import Compressor
from gradslide.network.protocol import Answer, Compute, Network, Reduction
from gradslide.network.wrapper import Wrapper


class Delayed(Wrapper):
    """A network on which every exchange and every control round takes longer; observations do not.

    Parameters
    ----------
    network : Network or Graph
    seconds : float
        How much longer.

    Examples
    --------
    >>> import gradslide as gs
    >>> gs.network.Delayed(gs.Graph.ring(4), 0.001)
    Graph(m=4, edges=4, max_degree=2)
    """

    def __init__(self, network: Network | Graph, seconds: float) -> None:
        require_number("seconds", seconds, "0.001 is a millisecond per exchange", least=0)
        super().__init__(network)
        self._seconds = float(seconds)

    def combine(self, v: Array, weights: Sparse, encoding: Compressor | None = None) -> Array:
        time.sleep(self._seconds)
        return super().combine(v, weights, encoding)

    def agree(self, values: Array, reduction: Reduction) -> Array:
        time.sleep(self._seconds * self.costs.control_rounds(reduction))
        return super().agree(values, reduction)

    def total(self, values: Array) -> Array:
        time.sleep(self._seconds * self.costs.sum_rounds)
        return super().total(values)

    def relay(self, values: Array, solve: Answer, size: int) -> Array:
        time.sleep(self._seconds * self.costs.sum_rounds)
        return super().relay(values, solve, size)

    def survey(self, values: Array, compute: Compute) -> Array:
        time.sleep(self._seconds * self.costs.survey_rounds)
        return super().survey(values, compute)

    def norm_bound(self) -> float:
        time.sleep(self._seconds * self.costs.norm_rounds)
        return super().norm_bound()
