"""Messages that are lost in bursts.

Gilbert, "Capacity of a burst-noise channel", Bell Syst. Tech. J. 39, 1960. Elliott, "Estimates of
error rates for codes on burst-noise channels", Bell Syst. Tech. J. 42, 1963.
"""

import numpy as np

from gradslide._support.errors import require, require_number
from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.network.faults.chain import Chain, draws, level
from gradslide.network.faults.fault import require_share
from gradslide.network.faults.links import Directed
from gradslide.network.protocol import Network


class Bursty(Directed):
    """Messages are lost in bursts.

    Every link is good or bad, a Markov chain, and only a bad one loses messages.

    Chains start in their stationary distribution (Gilbert-Elliott model).

    Parameters
    ----------
    network : Network or Graph
        A network with all agents in one process, or one under other faults.
    lost : float
        Long-run share of the messages that are lost.
    length : float
        Exchanges for which a link stays bad, on average.
    lost_when_bad : float
        Probability that a bad link loses a message.
    direction : {"both", "each"}
        "both": the two directions of a link are one chain and lose together; "each": one chain
        each.
    seed : int
        Of the random numbers.

    Examples
    --------
    >>> import gradslide as gs
    >>> network = gs.network.Bursty(gs.Graph.ring(4), 0.1, length=5)
    >>> network.delivered.shape
    (4, 2)
    """

    def __init__(
        self,
        network: Network | Graph,
        lost: float = 0.1,
        *,
        length: float = 5,
        lost_when_bad: float = 1.0,
        direction: str = "both",
        seed: int = 0,
    ) -> None:
        require_share("lost", lost, "0.1 loses a tenth of the messages")
        require_number("lost_when_bad", lost_when_bad, "1 loses all of them", above=0, most=1)
        rule = "lost must be less than lost_when_bad"
        require(lost < lost_when_bad, rule, f"{lost} and {lost_when_bad}", "a link is bad part of the time only")
        self._bad = Chain(float(lost) / float(lost_when_bad), length)
        self._always, self._level = lost_when_bad == 1, level(lost_when_bad)
        shown = {"lost": float(lost), "length": float(length), "lost_when_bad": float(lost_when_bad)}
        super().__init__(network, seed, direction, **shown)

    def _start(self, random: np.random.Generator) -> Array:
        return self._bad.start(self._independent, random)

    def _failures(self, random: np.random.Generator) -> Array:
        assert self._state is not None
        self._state = self._bad.step(self._state, random)
        if self._always:
            return self._state
        return self._state & (draws(self._independent, random) < self._level)
