"""What all faults share: seeded randomness by exchange, and state."""

import zlib
from typing import NoReturn, cast

import numpy as np

from gradslide._support.errors import InputError, require, require_number
from gradslide._support.randomness import Streams
from gradslide._support.types import Array, Storable
from gradslide.graphs.graph import Graph
from gradslide.network.protocol import Answer, Network
from gradslide.network.wrapper import StatefulWrapper, wrappers


class Fault(StatefulWrapper):
    """A wrapper that counts exchanges, with random numbers for each of them from `_next`.

    Keyword arguments of the constructor beyond the seed are the parameters that the repr shows.
    """

    def __init__(self, network: Network | Graph, seed: int, **shown: object) -> None:
        super().__init__(network)
        name = type(self).__name__
        here, rule = len(self.agents), f"{name} needs all agents in one process"
        require(here == self.m, rule, f"{here} of {self.m}", "use gs.network.Local(graph)")
        require_number("seed", seed, "for example seed=0", least=0, whole=True)
        # Beyond 2^32, where no agent's own stream is; those of one kind around each other draw different numbers.
        depth = sum(type(inner) is type(self) for inner in wrappers(self._network))
        self._streams = Streams(int(seed), [(zlib.crc32(name.encode()) << 32) + depth])
        self._shown = {**shown, "seed": int(seed)}
        self.is_reliable = False
        self._exchange = 0
        self._state: Array | None = None

    def total(self, values: Array) -> Array:
        self._refuse_sums()

    def relay(self, values: Array, solve: Answer, size: int) -> Array:
        self._refuse_sums()

    def _refuse_sums(self) -> NoReturn:
        rule = "exact sums need a network on which every message arrives as it was sent"
        raise InputError(rule, repr(self), "use gs.AutoPDS(), or a network without faults")

    def _begin(self) -> None:
        self._exchange, self._state = 0, None

    def _checkpoint(self) -> tuple[Storable, ...]:
        return self._exchange, self._state

    def _resume(self, *state: Storable) -> None:
        self._exchange, self._state = cast(tuple[int, Array | None], state)

    def __repr__(self) -> str:
        shown = [repr(self._network), *(f"{name}={value!r}" for name, value in self._shown.items())]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _next(self) -> np.random.Generator:
        """The random numbers of the next exchange. The first of all are for the start."""
        if self._exchange == 0:
            self._state = self._start(self._streams.at(0, 0))
        self._exchange += 1
        return self._streams.at(0, self._exchange)

    def _start(self, random: np.random.Generator) -> Array | None:
        """The state before the first exchange, if there is one."""
        return None


def require_share(name: str, value: object, remedy: str) -> None:
    """Raise InputError unless the value is in [0, 1)."""
    require_number(name, value, remedy, least=0, most=1)
    require(value != 1, f"{name} must be less than 1", value, remedy)
