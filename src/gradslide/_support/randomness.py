"""Randomness enters as a seed or a Generator."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from gradslide._support.errors import InputError

Seed: TypeAlias = int | np.random.Generator


def generator(seed: Seed) -> np.random.Generator:
    """Return the Generator of a seed; a Generator is returned as it is."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise InputError("seed must be a whole number >= 0 or a Generator", repr(seed), "for example seed=0") from None


class Streams:
    """One random stream per agent, spawned from one seed.

    The draws of agent i depend on the seed, i and the position only, not on which agents this
    process holds or on earlier draws.
    """

    def __init__(self, seed: int, agents: Sequence[int]) -> None:
        keys = [np.random.SeedSequence(seed, spawn_key=(agent,)).generate_state(2, np.uint64) for agent in agents]
        self._bits = [np.random.Philox(key=key) for key in keys]
        self._generators = [np.random.Generator(bits) for bits in self._bits]

    def at(self, agent: int, position: int) -> np.random.Generator:
        """Return the generator of the agent-th agent of this process at a position >= 0.

        It replaces the generator returned before.
        """
        bits = self._bits[agent]
        state = bits.state
        # Positions are 2^128 numbers apart.
        state["state"]["counter"][:] = (0, 0, position, 0)
        state["buffer_pos"], state["has_uint32"] = len(state["buffer"]), 0
        bits.state = state
        return self._generators[agent]


class ForSome(np.random.Generator):
    """Draws for all of m agents and returns the rows of some: independent of where the others run."""

    def __init__(self, seed: Sequence[int], agents: Sequence[int], m: int) -> None:
        super().__init__(np.random.PCG64(np.random.SeedSequence(list(seed))))
        self._agents, self._m = list(agents), m

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """Draw uniform numbers; size is (agents of this process, ...)."""
        return super().random((self._m, *size[1:]), dtype=dtype)[self._agents]
