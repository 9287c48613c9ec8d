"""Links that come and go."""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

from gradslide._support.errors import InputError, kind_of, require, require_number
from gradslide._support.types import Array
from gradslide.graphs.graph import Graph, edge_pairs
from gradslide.network.faults.chain import Chain
from gradslide.network.faults.links import LinkFault
from gradslide.network.protocol import Network


class Varying(LinkFault):
    """Links come and go: at random, or in turn.

    A link is up in both directions or in none, which preserves sums.

    Parameters
    ----------
    network : Network or Graph
        A network with all agents in one process, or one under other faults.
    up : float, optional
        At random: share of the time that a link is up (default 0.7). Each link is a Markov chain
        that starts in its stationary distribution.
    length : float, optional
        At random: exchanges for which a link stays down, on average (default 5).
    graphs : sequence of Graph or of lists of edges, optional
        In turn: the links that are up, on the same agents. None of them need be connected; every
        link of the network must be in one of them.
    every : int
        In turn: exchanges that each graph lasts; after the last comes the first again.
    seed : int
        Of the random numbers.

    Examples
    --------
    >>> import gradslide as gs
    >>> network = gs.network.Varying(gs.Graph.ring(4), graphs=[[(0, 1), (2, 3)], [(1, 2), (3, 0)]])
    >>> network.m
    4
    """

    def __init__(
        self,
        network: Network | Graph,
        *,
        up: float | None = None,
        length: float | None = None,
        graphs: Sequence[Graph | Iterable[tuple[int, int]]] | None = None,
        every: int = 1,
        seed: int = 0,
    ) -> None:
        self._away: Array | None = None
        if graphs is not None:
            require(up is None and length is None, "give up and length, or graphs", "both", "leave one out")
            require_number("every", every, "1 changes the links in every exchange", least=1, whole=True)
            super().__init__(network, seed)
            self._away = ~_turns(graphs, self.graph)
            digest = hashlib.sha256(np.packbits(self._away).tobytes()).hexdigest()[:12]
            self._shown = {"graphs": f"{len(self._away)} of {digest}", "every": int(every)}
            self._every = int(every)
            return
        up, length = 0.7 if up is None else up, 5 if length is None else length
        require_number("up", up, "0.7 is there for seven exchanges in ten", above=0, most=1)
        require(every == 1, "every needs graphs", every, "use length instead")
        self._down = Chain(1 - float(up), length)
        super().__init__(network, seed, up=float(up), length=float(length))

    def _start(self, random: np.random.Generator) -> Array | None:
        return self._down.start(len(self.graph.edges), random) if self._away is None else None

    def _losses(self, random: np.random.Generator) -> Array:
        if self._away is None:
            assert self._state is not None
            down = self._state = self._down.step(self._state, random)
        else:
            down = self._away[(self._exchange - 1) // self._every % len(self._away)]
        return np.concatenate([down, down])


def _turns(graphs: object, whole: Graph) -> Array:
    """Which edges of the whole graph are in each of the others, (graphs, e)."""
    if isinstance(graphs, Graph) or not isinstance(graphs, Sequence) or not len(graphs):
        raise InputError("graphs must be a list of Graphs or of lists of edges", kind_of(graphs), "give at least one")
    keys = whole.edges @ (whole.m, 1)
    turns = np.zeros((len(graphs), len(keys)), dtype=bool)
    for turn, graph in zip(turns, graphs, strict=True):
        if isinstance(graph, Graph):
            rule = f"graphs must be on the {whole.m} agents of the network"
            require(graph.m == whole.m, rule, f"{graph.m} agents", "use lists of edges for parts of them")
        elif not isinstance(graph, Iterable):
            raise InputError("graphs must be Graphs or lists of edges", kind_of(graph), "for example [(0, 1), (2, 3)]")
        pairs = graph.edges if isinstance(graph, Graph) else edge_pairs(graph, whole.m)
        here = pairs @ (whole.m, 1)
        unknown = pairs[~np.isin(here, keys)]
        rule = "graphs must consist of links of the network"
        require(not len(unknown), rule, unknown[:1].tolist(), "give the network all links that ever occur")
        turn[np.searchsorted(keys, here)] = True
    missing = whole.edges[~turns.any(axis=0)]
    rule = "every link of the network must be in one of the graphs"
    require(not len(missing), rule, f"none with {missing[:1].tolist()}", "add it, or take it out of the network")
    return turns
