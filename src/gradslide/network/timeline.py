"""The simulated time of every agent along a run."""

from collections.abc import Mapping

import numpy as np

from gradslide._support.errors import require
from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.losses import Loss
from gradslide.network.clock import Clock
from gradslide.results.costs import Costs


class Timeline:
    """Keeps `costs.simulated_seconds`, under one clock or several by name: when the last agent was done."""

    def __init__(self, clocks: Clock | Mapping[str, Clock], graph: Graph, loss: Loss, costs: Costs) -> None:
        self._is_one = isinstance(clocks, Clock)
        named = {"": clocks} if isinstance(clocks, Clock) else clocks
        strings = all(isinstance(name, str) for name in named)
        require(strings, "the names of clocks must be strings", list(named), 'for example {"wan": gs.Clock.wan()}')
        self._tracks = {name: _Track(clock.fits(graph, loss), graph) for name, clock in named.items()}
        self._costs = costs
        self._tell()

    def __repr__(self) -> str:
        """The names of the clocks, and what tells their times apart from others."""
        return ", ".join(f"{name or 'one clock'} ({track.clock.fingerprint})" for name, track in self._tracks.items())

    def gradient(self, count: int = 1) -> None:
        """So many gradients; added up one by one, since it must not matter who asks for several at once."""
        for track in self._tracks.values():
            for _ in range(count):
                track.now += track.clock.gradient
        self._tell()

    def samples(self, count: int) -> None:
        for track in self._tracks.values():
            track.now += count * track.sample
        self._tell()

    def exchange(self, size: float, rounds: int = 1) -> None:
        """So many exchanges, of messages of so many bytes each."""
        for track in self._tracks.values():
            for _ in range(rounds):
                track.exchange(size)
        self._tell()

    def memory(self) -> list[Array]:
        """What a run that goes on later has to be given back."""
        return [track.now.copy() for track in self._tracks.values()]

    def recall(self, memory: list[Array]) -> None:
        for track, now in zip(self._tracks.values(), memory, strict=True):
            track.now = np.array(now)
        self._tell()

    def _tell(self) -> None:
        last = {name: float(np.max(track.now)) for name, track in self._tracks.items()}
        self._costs.simulated_seconds = last[""] if self._is_one else last


class _Track:
    """The agents' times under one clock."""

    def __init__(self, clock: Clock, graph: Graph) -> None:
        self.clock = clock
        self.sample = np.asarray(clock.sample)
        self.now = np.zeros(graph.m)
        links = len(graph.edges)
        receivers = np.concatenate([graph.edges[:, 0], graph.edges[:, 1]])
        order = np.argsort(receivers, kind="stable")
        self._senders = np.concatenate([graph.edges[:, 1], graph.edges[:, 0]])[order]
        self._firsts = np.searchsorted(receivers[order], np.arange(graph.m))
        both = order % max(1, links)
        self._latency, self._bandwidth = np.asarray(clock.latency)[both], np.asarray(clock.bandwidth)[both]

    def exchange(self, size: float) -> None:
        if len(self._senders):
            arrivals = self.now[self._senders] + self._latency + size / self._bandwidth
            self.now = np.maximum(self.now, np.maximum.reduceat(arrivals, self._firsts))
