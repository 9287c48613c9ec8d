"""Messages that are lost one by one."""

import numpy as np

from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.network.faults.chain import draws, level
from gradslide.network.faults.fault import require_share
from gradslide.network.faults.links import Directed
from gradslide.network.protocol import Network


class Lossy(Directed):
    """Messages are lost, each with the same probability, independently of all others.

    Parameters
    ----------
    network : Network or Graph
        A network with all agents in one process, or one under other faults.
    lost : float
        Probability that a message is lost, in [0, 1).
    direction : {"both", "each"}
        "both": the two directions of a link fail together, which preserves sums over the agents;
        "each": each alone, which does not.
    seed : int
        Of the random numbers.

    Examples
    --------
    >>> import gradslide as gs
    >>> gs.network.Lossy(gs.Graph.ring(4), 0.1, seed=1)
    Lossy(Graph(m=4, edges=4, max_degree=2), lost=0.1, direction='both', seed=1)
    """

    def __init__(self, network: Network | Graph, lost: float = 0.1, *, direction: str = "both", seed: int = 0) -> None:
        require_share("lost", lost, "0.1 loses a tenth of the messages")
        super().__init__(network, seed, direction, lost=float(lost))
        self._level = level(lost)

    def _failures(self, random: np.random.Generator) -> Array:
        return draws(self._independent, random) < self._level
