"""The topology: the graph, which the agents discover together, and one agent's place in it.

In the discovery each agent floods its links, as pairs of public keys.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse.csgraph import connected_components

from gradslide._support.errors import InputError, require
from gradslide._support.types import Array
from gradslide.graphs.distances import eccentricities
from gradslide.graphs.graph import Graph
from gradslide.network.peers.collectives import AllGather, Flood, Tree, TreeSum
from gradslide.network.peers.errors import PeerError
from gradslide.network.peers.keys import public_text, raw
from gradslide.network.protocol import Reduction

# A key is 32 bytes: eight numbers that every float64 holds exactly.
_WORDS = 8
_SHOWN = 20
# Links in both directions: each takes about a kilobyte.
_MOST_LINKS = 100_000

Link = tuple[str, str]


@dataclass(frozen=True)
class Topology:
    """The graph and one agent's place in it.

    Attributes
    ----------
    graph : Graph
    tree : Tree
        For sums and broadcasts.
    own : int
        The number of this agent.
    names : mapping of int to str
        What this agent calls its neighbours, by number.
    keys : tuple of str
        The public keys of all agents, which are numbered in their order.
    """

    graph: Graph
    tree: Tree
    own: int
    names: Mapping[int, str]
    keys: tuple[str, ...]

    def rounds(self, reduction: Reduction) -> int:
        """Exchanges after which all agents know a reduction."""
        return 2 * self.tree.height if reduction == "sum" else self.graph.diameter_bound

    def reduction(self, values: Array, reduction: Reduction, step: int = 0) -> Flood | TreeSum:
        """Reduce the flat values of all agents."""
        if reduction == "sum":
            return TreeSum(self.tree, self.own, values, step)
        return Flood(values, self.rounds(reduction), step)

    def partial_sum(self, values: Array) -> TreeSum:
        """Sum up the tree only: the root knows the result."""
        return TreeSum(self.tree, self.own, values, rounds=self.tree.height)

    def broadcast(self, values: Array) -> TreeSum:
        """Send the root's values to all others, whose own tell how many."""
        return TreeSum(self.tree, self.own, values, self.tree.height)

    def all_gather(self, row: Array) -> AllGather:
        """Send the rows of all agents to all."""
        return AllGather(self.graph, self.own, row)


class Discovered(NamedTuple):
    """The graph, and the public keys of its agents: they are numbered in the order of these."""

    graph: Graph
    keys: tuple[str, ...]


def discover(
    own: str, neighbours: Iterable[str], diameter: int, exchange: Callable[[Array], Mapping[str, Array]]
) -> Discovered:
    """Learn the graph in `diameter` exchanges.

    Parameters
    ----------
    own : str
        The public key of this agent.
    neighbours : iterable of str
        The public keys of its neighbours.
    diameter : int
        A bound on the number of hops between any two agents.
    exchange : callable
        Sends one array to all neighbours, and returns what they sent, by name.

    Raises
    ------
    InputError
        If the bound is too small, or a link is named by one of its ends only.
    """
    fresh = {(own, key) for key in neighbours}
    known = set(fresh)
    for round in range(diameter):
        told = exchange(_packed(fresh))
        heard = set()
        for name, words in told.items():
            if words.size > 2 * _WORDS * (_MOST_LINKS - len(known)):
                raise PeerError(
                    name, round, f"with its list of links there are more than {_MOST_LINKS}, which is too many"
                )
            heard.update(_unpacked(words, name, round))
        fresh = heard - known
        known |= fresh
    return _checked(known, diameter)


def _checked(links: set[Link], diameter: int) -> Discovered:
    """The graph, if all of its agents have been heard from, and all agents can know that."""
    rule = f"diameter must bound the number of hops between any two agents; {diameter} is too small"
    remedy = "give all agents a larger one, or check who should be whose neighbour"
    heard = {one for one, _ in links}
    silent = {other for _, other in links} - heard
    require(not silent, rule, f"nothing from {_named(silent)}", remedy)
    for one, other in sorted(links):
        if (other, one) not in links:
            got = f"{_short(one)} names {_short(other)}, which does not name it"
            raise InputError("a link must be named by both of its ends", got, "give each the other as a neighbour")
    keys = tuple(sorted(heard))
    number = {key: i for i, key in enumerate(keys)}
    graph = Graph.from_edges(len(keys), [(number[one], number[other]) for one, other in links if one < other])
    found = int(eccentricities(graph.adjacency).max())
    require(found <= diameter, rule, f"a graph of diameter {found}", remedy)
    return Discovered(graph, keys)


def cut_off(graph: Graph, own: int, through: int) -> int:
    """Return how many agents, this one included, can be reached without another one."""
    rest = np.delete(np.arange(graph.m), through)
    labels = connected_components(graph.adjacency[rest][:, rest], directed=False)[1]
    return int(np.count_nonzero(labels == labels[np.searchsorted(rest, own)]))


def _packed(links: Iterable[Link]) -> Array:
    content = b"".join(raw(key) for link in sorted(links) for key in link)
    return np.frombuffer(content, dtype="<u4").astype(np.float64)


def _unpacked(words: Array, name: str, round: int) -> list[Link]:
    whole = words.size % (2 * _WORDS) == 0 and np.all((words >= 0) & (words < 2**32) & (words == np.floor(words)))
    if not whole:
        raise PeerError(name, round, "its list of links cannot be read; install the same release on all agents")
    content = words.astype("<u4").tobytes()
    keys = [public_text(content[at : at + 4 * _WORDS]) for at in range(0, len(content), 4 * _WORDS)]
    return list(zip(keys[::2], keys[1::2], strict=True))


def _named(keys: set[str]) -> str:
    some = [_short(key) for key in sorted(keys)[:3]]
    return ", ".join(some) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")


def _short(key: str) -> str:
    return f"{key[:_SHOWN]}..."
