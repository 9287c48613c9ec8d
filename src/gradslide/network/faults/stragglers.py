"""Agents that are often late."""

import numbers
from collections.abc import Iterable

import numpy as np

from gradslide._support.errors import InputError, kind_of, require
from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.network.faults.chain import draws, level
from gradslide.network.faults.fault import require_share
from gradslide.network.faults.links import LinkFault
from gradslide.network.protocol import Network


class Stragglers(LinkFault):
    """Some agents are sometimes late.

    In that exchange their neighbours lack their message, though they have all of theirs.

    This does not preserve sums over the agents.

    Parameters
    ----------
    network : Network or Graph
        A network with all agents in one process, or one under other faults.
    agents : float or iterable of int
        Which agents; or their share of all agents, rounded up, chosen by the seed.
    late : float
        Probability that a straggler is late, in each exchange.
    seed : int
        Of the random numbers.

    Examples
    --------
    >>> import gradslide as gs
    >>> gs.network.Stragglers(gs.Graph.ring(4), [0, 3]).stragglers
    array([0, 3])
    """

    def __init__(
        self,
        network: Network | Graph,
        agents: float | Iterable[int] = 0.1,
        *,
        late: float = 0.3,
        seed: int = 0,
    ) -> None:
        require_share("late", late, "0.3 is late in three of ten exchanges")
        who = _who(agents)
        super().__init__(network, seed, agents=who, late=float(late))
        self._level = level(late)
        if isinstance(who, list):
            outside = [agent for agent in who if not 0 <= agent < self.m]
            require(not outside, f"agents must be numbered 0 to {self.m - 1}", outside[:1], "name agents of the graph")
            chosen = np.unique(np.array(who, dtype=np.int64))
        else:
            # Rounded first: 0.07 * 100 is a little more than 7.
            number = int(np.ceil(np.round(who * self.m, 9)))
            chosen = np.sort(self._streams.at(0, 0).permutation(self.m)[:number])
        self._stragglers = chosen

    @property
    def stragglers(self) -> Array:
        """The agents that are late now and then, ascending."""
        return self._stragglers.copy()

    def _losses(self, random: np.random.Generator) -> Array:
        late = np.zeros(self.m, dtype=bool)
        late[self._stragglers] = draws(len(self._stragglers), random) < self._level
        return late[self._pattern.senders]


def _who(agents: object) -> float | list[int]:
    """A share of the agents, or a list of them."""
    if isinstance(agents, numbers.Real):
        require_share("agents", agents, "0.1 is a tenth of them; a list names them")
        return float(agents)
    try:
        listed = np.asarray(list(agents))  # type: ignore[call-overload]
    except (TypeError, ValueError):
        listed = np.empty(0, dtype=object)
    if listed.dtype == object or listed.ndim != 1 or (len(listed) and listed.dtype.kind not in "iu"):
        raise InputError("agents must be a share or a list of agents", kind_of(agents), "for example 0.1 or [0, 3]")
    return [int(agent) for agent in listed]
