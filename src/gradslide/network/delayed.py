"""A slow network, simulated."""

import time

from gradslide._types import Array
from gradslide.errors import InputError, kind_of, require_number
from gradslide.graph import Graph
from gradslide.network.base import Network, Reduction
from gradslide.network.local import Local
from gradslide.network.wrapper import Wrapper


class Delayed(Wrapper):
    """The same network, where every exchange (and every control round) takes `seconds` longer. Observations do not."""

    def __init__(self, network: Network | Graph, seconds: float) -> None:
        if not (isinstance(network, Graph) or hasattr(network, "combine")):
            raise InputError("Delayed needs a network", kind_of(network), "for example gs.network.Local(graph)")
        require_number("seconds", seconds, "0.001 is a millisecond per exchange", least=0)
        super().__init__(Local(network) if isinstance(network, Graph) else network)
        self._seconds = float(seconds)

    def combine(self, v: Array, weights: Array) -> Array:
        time.sleep(self._seconds)
        return super().combine(v, weights)

    def agree(self, values: Array, reduction: Reduction) -> Array:
        time.sleep(self._seconds * self._network.control_rounds(reduction))
        return super().agree(values, reduction)

    def norm_bound(self) -> float:
        time.sleep(self._seconds * self._network.norm_rounds)
        return super().norm_bound()
