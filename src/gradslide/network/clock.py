"""How long gradients and messages take, for a run's time on a network that is only simulated."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradslide._support.errors import kind_of, require
from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.losses import Loss
from gradslide.results.costs import Costs

# One-way latency in seconds, and bytes per second.
PRESETS: dict[str, dict[str, float]] = {
    "lan": {"latency": 1e-4, "bandwidth": 125e6},
    "wan": {"latency": 0.04, "bandwidth": 12.5e6},
    "satellite": {"latency": 0.3, "bandwidth": 1.25e6},
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Clock:
    """A simulated clock: agents compute on their own, and in an exchange each waits for its neighbours only.

    gradient: seconds per gradient (or per value, where a method asks for it alone), a number or one per agent. sample:
    seconds per sample; by default a row's share of a gradient, or a whole one where a loss has no rows. latency:
    seconds that a message takes on top of its size, a number or one per link in the order of `graph.edges`. bandwidth:
    bytes per second of a link in each direction, a number or one per link.
    """

    gradient: Array | float = 1e-3
    sample: Array | float | None = None
    latency: Array | float = 0.0
    bandwidth: Array | float = np.inf

    def __post_init__(self) -> None:
        for name in ("gradient", "sample", "latency", "bandwidth"):
            if (given := getattr(self, name)) is not None or name != "sample":
                object.__setattr__(self, name, _checked(name, given))

    @classmethod
    def lan(cls, **changed: Any) -> "Clock":
        """A local network: 0.1 ms, 1 Gbit/s."""
        return cls(**{**PRESETS["lan"], **changed})

    @classmethod
    def wan(cls, **changed: Any) -> "Clock":
        """Sites across a continent: 40 ms, 100 Mbit/s."""
        return cls(**{**PRESETS["wan"], **changed})

    @classmethod
    def satellite(cls, **changed: Any) -> "Clock":
        """A geostationary satellite: 300 ms, 10 Mbit/s."""
        return cls(**{**PRESETS["satellite"], **changed})

    def fits(self, graph: Graph, loss: Loss) -> "Clock":
        """The same with one number per agent and per link, checked against the network."""
        m, links, rows = graph.m, len(graph.edges), loss.rows_per_agent
        gradient = _spread("gradient", self.gradient, m, "agents")
        share = gradient / (1 if rows is None else rows)
        return Clock(
            gradient=gradient,
            sample=share if self.sample is None else _spread("sample", self.sample, m, "agents"),
            latency=_spread("latency", self.latency, links, "links"),
            bandwidth=_spread("bandwidth", self.bandwidth, links, "links"),
        )

    @property
    def fingerprint(self) -> str:
        """A few digits that other times do not share."""
        columns = (self.gradient, self.sample, self.latency, self.bandwidth)
        content = b"".join(
            b"none" if column is None else np.asarray(column, dtype="<f8").tobytes() for column in columns
        )
        return hashlib.sha256(content).hexdigest()[:12]


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


def _checked(name: str, given: Array | float) -> Array:
    """Positive numbers, of our own: nobody changes them later."""
    try:
        values = np.asarray(given)
    # Rows of unequal lengths.
    except ValueError:
        values = np.array(None)
    numbers = values.dtype.kind in "fiu" and values.ndim <= 1 and values.size > 0
    limit = "> 0" if name == "bandwidth" else ">= 0 and finite"
    rule = f"{name} must be {limit}, one number or a row of them"
    require(numbers, rule, kind_of(given), "give one for all, or one each")
    fits = values > 0 if name == "bandwidth" else (values >= 0) & np.isfinite(values)
    require(bool(np.all(fits)), rule, values.flat[np.argmin(fits)], "give one for all, or one each")
    values = values.astype(np.float64)
    values.flags.writeable = False
    return values


def _spread(name: str, given: Array | float, count: int, of: str) -> Array:
    values = np.asarray(given)
    fits = values.ndim == 0 or len(values) == count
    require(fits, f"{name} must be a number or have one entry for each of {count} {of}", values.shape, "correct it")
    return np.broadcast_to(values, (max(1, count),))
