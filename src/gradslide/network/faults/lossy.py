"""Messages that are lost one by one."""

import numpy as np

from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.network.faults.chain import draws, level
from gradslide.network.faults.fault import require_share
from gradslide.network.faults.links import Directed
from gradslide.network.protocol import Network


class Lossy(Directed):
    """Every message is lost with probability `lost`, whatever else is lost.

    direction: "both": the two directions of a link fail together, so that sums over the agents are kept; "each": each
    alone, so that they are not.
    """

    def __init__(self, network: Network | Graph, lost: float = 0.1, *, direction: str = "both", seed: int = 0) -> None:
        require_share("lost", lost, "0.1 loses a tenth of the messages")
        super().__init__(network, seed, direction, lost=float(lost))
        self._level = level(lost)

    def _failures(self, random: np.random.Generator) -> Array:
        return draws(self._independent, random) < self._level
