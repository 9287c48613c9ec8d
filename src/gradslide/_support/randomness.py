"""Randomness enters as a seed or a Generator; streams of many agents are drawn together."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from gradslide._support.errors import InputError
from gradslide._support.types import Array

Seed: TypeAlias = int | np.random.Generator


def generator(seed: Seed) -> np.random.Generator:
    """Return the Generator of a seed; a Generator is returned as it is."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise InputError("seed must be a whole number >= 0 or a Generator", repr(seed), "for example seed=0") from None


# Up to so many numbers per agent, drawing for all agents at once is faster than one generator after another.
_FEW = 256
# Blocks of four numbers that are computed together: their arrays stay in the cache.
_TOGETHER = 4096
_LOW = np.uint64(2**32 - 1)
_HALF = np.uint64(32)


class Streams:
    """One random stream per agent, spawned from one seed.

    The draws of agent i depend on the seed, i and the position only, not on which agents this
    process holds or on earlier draws. Positions are 2^128 numbers of Philox apart.
    """

    def __init__(self, seed: int, agents: Sequence[int]) -> None:
        keys = [np.random.SeedSequence(seed, spawn_key=(agent,)).generate_state(2, np.uint64) for agent in agents]
        self._keys = np.array(keys, dtype=np.uint64).reshape(-1, 2)
        self._generators: dict[int, np.random.Generator] = {}

    def at(self, agent: int, position: int) -> np.random.Generator:
        """Return the generator of the agent-th agent of this process at a position >= 0.

        It replaces the generator returned before.
        """
        if agent not in self._generators:
            self._generators[agent] = np.random.Generator(np.random.Philox(key=self._keys[agent]))
        found = self._generators[agent]
        found.bit_generator.state = {
            "bit_generator": "Philox",
            "state": {"counter": np.array([0, 0, position, 0], dtype=np.uint64), "key": self._keys[agent]},
            "buffer": np.zeros(4, dtype=np.uint64),
            "buffer_pos": 4,
            "has_uint32": 0,
            "uinteger": 0,
        }
        return found

    def integers(self, agents: Array, position: int, highs: Array, count: int) -> Array:
        """Return `at(agent, position).integers(high, size=count)` of several agents, (agents, count)."""
        drawn = np.empty((len(agents), count), dtype=np.int64)
        if count > _FEW:
            alone = np.arange(len(agents))
        else:
            blocks = max(1, -(-count // 8))
            step = max(1, _TOGETHER // blocks)
            refused = np.empty(len(agents), dtype=bool)
            for some in (slice(first, first + step) for first in range(0, len(agents), step)):
                numbers = _philox(self._keys[agents[some]], position, blocks)
                words = np.ascontiguousarray(numbers, dtype="<u8").view("<u4")  # the lower half comes first
                drawn[some], refused[some] = _bounded(words[:, :count], highs[some])
            alone = np.flatnonzero(refused)
        for k in alone.tolist():
            drawn[k] = self.at(int(agents[k]), position).integers(highs[k], size=count)
        return drawn


def _philox(keys: Array, position: int, blocks: int) -> Array:
    """The first 4 * blocks numbers of streams with these keys, (m, 2), at a position; (m, 4 * blocks).

    J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011:
    Philox-4x64-10, as in NumPy.
    """
    factors = np.array([0xD2E7470EE14C6C93, 0xCA5A826395121157], dtype=np.uint64)[:, None, None]
    increments = np.array([0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B], dtype=np.uint64)[:, None, None]
    factors_low, factors_high = factors & _LOW, factors >> _HALF
    # Entries 0 and 2 of the counter, and 1 and 3, which the first round makes different for each stream.
    even = np.array([np.arange(1, blocks + 1), np.full(blocks, position)], dtype=np.uint64)[:, :, None]
    odd = np.zeros_like(even)
    key = keys.T[:, None, :].copy()
    for _ in range(10):
        # The upper half of a product of 128 bits, from products of 32 bits.
        low, high = even & _LOW, even >> _HALF
        lower = factors_low * low
        lower >>= _HALF
        low *= factors_high
        low += lower
        second = factors_low * high
        np.bitwise_and(low, _LOW, out=lower)
        second += lower
        second >>= _HALF
        low >>= _HALF
        high *= factors_high
        high += low
        high += second
        even, odd = high[::-1] ^ odd ^ key, (factors * even)[::-1]
        key += increments
    return np.stack([even[0], odd[0], even[1], odd[1]]).transpose(2, 1, 0).reshape(len(keys), 4 * blocks)


def _bounded(words: Array, highs: Array) -> tuple[Array, Array]:
    """Integers below `highs`, (m,), from words of 32 bits, (m, count), as `Generator.integers` finds them.

    D. Lemire, "Fast random integer generation in an interval", 2019. A word that it refuses, or a bound of 2^32 and
    more, takes other words: the second array, (m,), says for whom.
    """
    highs = highs.astype(np.uint64)[:, None]
    products = words * highs
    refused = (products & _LOW) < (np.uint64(2**32) - highs) % highs
    return products >> _HALF, refused.any(axis=1) | (highs[:, 0] >= 2**32)


class ForSome(np.random.Generator):
    """Draws for all of m agents and returns the rows of some: independent of where the others run."""

    def __init__(self, seed: Sequence[int], agents: Sequence[int], m: int) -> None:
        super().__init__(np.random.PCG64(np.random.SeedSequence(list(seed))))
        self._agents, self._m = list(agents), m

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """Draw uniform numbers; size is (agents of this process, ...)."""
        return super().random((self._m, *size[1:]), dtype=dtype)[self._agents]
