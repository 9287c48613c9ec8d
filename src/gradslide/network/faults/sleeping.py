"""Agents that are away for a while."""

import numpy as np

from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.network.faults.chain import Chain
from gradslide.network.faults.fault import require_share
from gradslide.network.faults.links import LinkFault
from gradslide.network.protocol import Network


class Sleeping(LinkFault):
    """Agents fall asleep and wake up, each a Markov chain.

    Chains start in their stationary distribution.

    One that is asleep neither sends nor receives: both directions of its links fail, which
    preserves sums over the agents. It goes on to compute with what it has.

    Parameters
    ----------
    network : Network or Graph
        A network with all agents in one process, or one under other faults.
    asleep : float
        Share of the time that an agent is asleep.
    length : float
        Exchanges for which it is asleep, on average.
    seed : int
        Of the random numbers.

    Examples
    --------
    >>> import gradslide as gs
    >>> gs.network.Sleeping(gs.Graph.ring(4), 0.2)
    Sleeping(Graph(m=4, edges=4, max_degree=2), asleep=0.2, length=5.0, seed=0)
    """

    def __init__(self, network: Network | Graph, asleep: float = 0.1, *, length: float = 5, seed: int = 0) -> None:
        require_share("asleep", asleep, "0.1 is a tenth of the time")
        self._asleep = Chain(float(asleep), length)
        super().__init__(network, seed, asleep=float(asleep), length=float(length))

    def _start(self, random: np.random.Generator) -> Array:
        return self._asleep.start(self.m, random)

    def _losses(self, random: np.random.Generator) -> Array:
        assert self._state is not None
        self._state = self._asleep.step(self._state, random)
        return self._state[self._pattern.senders] | self._state[self._pattern.receivers]
