"""How long gradients and messages take, for a run's time on a network that is only simulated."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradslide._types import Array
from gradslide.errors import InputError, require
from gradslide.graph import Graph
from gradslide.losses import Loss


@dataclass(frozen=True, kw_only=True, eq=False)
class Clock:
    """A simulated clock: agents compute on their own, and in an exchange each waits for its neighbours only.

    gradient: seconds per gradient (or per value, where a method asks for it alone), a number or one per agent. sample:
    seconds per sample; by default a row's share of a gradient, or a whole one where a loss has no rows. latency:
    seconds that a message takes on top of its size, a number or one per link in the order of `graph.edges`. bandwidth:
    bytes per second of a link in each direction, a number or one per link.
    """

    gradient: Array = 1e-3
    sample: Array = None
    latency: Array = 0.0
    bandwidth: Array = np.inf

    def __post_init__(self) -> None:
        for name in ("gradient", "sample", "latency", "bandwidth"):
            if (given := getattr(self, name)) is None and name == "sample":
                continue
            try:
                values = np.asarray(given, dtype=np.float64)
            except (TypeError, ValueError):
                raise InputError(f"{name} must be a number, or an array of them", repr(given), "give seconds") from None
            least = values > 0 if name == "bandwidth" else (values >= 0) & np.isfinite(values)
            rule = f"{name} must be {'> 0' if name == 'bandwidth' else '>= 0 and finite'}, a number or one-dimensional"
            require(values.ndim <= 1 and values.size > 0 and bool(np.all(least)), rule, repr(given), "correct it")
            object.__setattr__(self, name, values)

    @classmethod
    def lan(cls, **changed: Any) -> "Clock":
        """A local network: 0.1 ms, 1 Gbit/s."""
        return cls(**{"latency": 1e-4, "bandwidth": 125e6, **changed})

    @classmethod
    def wan(cls, **changed: Any) -> "Clock":
        """Sites across a continent: 40 ms, 100 Mbit/s."""
        return cls(**{"latency": 0.04, "bandwidth": 12.5e6, **changed})

    @classmethod
    def satellite(cls, **changed: Any) -> "Clock":
        """A geostationary satellite: 300 ms, 10 Mbit/s."""
        return cls(**{"latency": 0.3, "bandwidth": 1.25e6, **changed})

    def fits(self, graph: Graph, loss: Loss) -> "Clock":
        """The same with one number per agent and per link, checked against the network."""
        rows = loss.rows_per_agent
        sample = self.gradient / (1 if rows is None else rows) if self.sample is None else self.sample
        links = len(graph.edges)
        return Clock(
            gradient=_spread("gradient", self.gradient, graph.m, "agents"),
            sample=_spread("sample", sample, graph.m, "agents"),
            latency=_spread("latency", self.latency, links, "links"),
            bandwidth=_spread("bandwidth", self.bandwidth, links, "links"),
        )


def _spread(name: str, values: Array, count: int, of: str) -> Array:
    fits = values.ndim == 0 or len(values) == count
    require(fits, f"{name} must be a number or have one entry for each of {count} {of}", values.shape, "correct it")
    return np.broadcast_to(values, (max(1, count),))


PRESETS: dict[str, Callable[..., Clock]] = {"lan": Clock.lan, "wan": Clock.wan, "satellite": Clock.satellite}
