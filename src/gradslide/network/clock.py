"""Simulated time: how long gradients and messages take, and the time of every agent in a run."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gradslide._support.errors import kind_of, require
from gradslide._support.keywords import CheckedArguments
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
class Clock(CheckedArguments):
    """A simulated clock.

    Agents compute on their own, and in an exchange each waits for its neighbours only.

    Parameters
    ----------
    gradient : float or array of shape (m,)
        Seconds per gradient (or per value, where a method asks for it alone), one for all agents or
        one each.
    sample : float or array of shape (m,), optional
        Seconds per sample; by default a row's share of a gradient, or a whole one where a loss has
        no rows.
    latency : float or array of shape (edges,)
        Seconds that a message takes on top of its size, one for all links or one each in the order
        of `graph.edges`.
    bandwidth : float or array of shape (edges,)
        Bytes per second of a link in each direction.

    Examples
    --------
    >>> import gradslide as gs
    >>> gs.Clock(gradient=0.5, latency=0.01).gradient
    array(0.5)
    >>> float(gs.Clock.wan().latency)
    0.04
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
    def lan(cls, **changed: Array | float) -> "Clock":
        """Return the clock of a local network: 0.1 ms, 1 Gbit/s.

        Keyword arguments replace parameters.
        """
        return cls(**{**PRESETS["lan"], **changed})

    @classmethod
    def wan(cls, **changed: Array | float) -> "Clock":
        """Return the clock of sites across a continent: 40 ms, 100 Mbit/s."""
        return cls(**{**PRESETS["wan"], **changed})

    @classmethod
    def satellite(cls, **changed: Array | float) -> "Clock":
        """Return the clock of a geostationary satellite: 300 ms, 10 Mbit/s."""
        return cls(**{**PRESETS["satellite"], **changed})

    def fits(self, graph: Graph, loss: Loss) -> "Clock":
        """Return the same clock with one number per agent and per link, checked."""
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
        """A few digits that tell this clock from others."""
        columns = (self.gradient, self.sample, self.latency, self.bandwidth)
        content = b"".join(
            b"none" if column is None else np.asarray(column, dtype="<f8").tobytes() for column in columns
        )
        return hashlib.sha256(content).hexdigest()[:12]


class Timeline:
    """The simulated time of every agent in a run, under one clock or several by name.

    `costs.simulated_seconds` is the time at which the last agent was done.
    """

    def __init__(self, clocks: Clock | Mapping[str, Clock], graph: Graph, loss: Loss, costs: Costs) -> None:
        self._is_one = isinstance(clocks, Clock)
        named = {"": clocks} if isinstance(clocks, Clock) else clocks
        strings = all(isinstance(name, str) for name in named)
        require(strings, "the names of clocks must be strings", list(named), 'for example {"wan": gs.Clock.wan()}')
        self._tracks = {name: _Track(clock.fits(graph, loss), graph) for name, clock in named.items()}
        self._costs = costs
        self._publish()

    def __repr__(self) -> str:
        """The names of the clocks, and what tells their times apart from others."""
        return ", ".join(f"{name or 'one clock'} ({track.clock.fingerprint})" for name, track in self._tracks.items())

    def gradient(self, count: int = 1) -> None:
        """Add gradients one by one, so that rounding does not depend on how a method asks."""
        for track in self._tracks.values():
            for _ in range(count):
                track.now += track.clock.gradient
        self._publish()

    def samples(self, count: int) -> None:
        for track in self._tracks.values():
            track.now += count * track.sample
        self._publish()

    def exchange(self, size: float, rounds: int = 1) -> None:
        """Add exchanges of messages of `size` bytes each."""
        for track in self._tracks.values():
            for _ in range(rounds):
                track.exchange(size)
        self._publish()

    def transfer(self, size: float, rounds: int) -> None:
        """Add `size` bytes to each message of so many exchanges to come, whose latency counts there."""
        for track in self._tracks.values():
            for _ in range(rounds):
                track.exchange(size, has_latency=False)
        self._publish()

    def checkpoint(self) -> list[Array]:
        """Return the state that `resume` needs."""
        return [track.now.copy() for track in self._tracks.values()]

    def resume(self, state: list[Array]) -> None:
        for track, now in zip(self._tracks.values(), state, strict=True):
            track.now = np.array(now)
        self._publish()

    def _publish(self) -> None:
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

    def exchange(self, size: float, has_latency: bool = True) -> None:
        if len(self._senders):
            arrivals = self.now[self._senders] + has_latency * self._latency + size / self._bandwidth
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
