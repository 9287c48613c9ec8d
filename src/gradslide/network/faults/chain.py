"""Random events: independent ones, and Markov chains of two states."""

import numpy as np

from gradslide._support.errors import require, require_number
from gradslide._support.types import Array


class Chain:
    """Markov chains that are on for `share` of the time, and then for `length` steps on average."""

    def __init__(self, share: float, length: float) -> None:
        require_number("length", length, "length=5 is 5 exchanges on average", least=1)
        shortest = share / (1 - share) if share < 1 else 1.0
        rule = f"length must be at least {shortest:g}, or there are too few exchanges in between"
        require(length >= shortest * (1 - 1e-12), rule, length, "raise it, or make the fault rarer")
        self._always, self._share = share == 1, level(share)
        self._enter, self._stay = level(shortest / length), level(1 - 1 / length)

    def start(self, count: int, random: np.random.Generator) -> Array:
        """Many chains in their stationary distribution."""
        return np.ones(count, dtype=bool) if self._always else draws(count, random) < self._share

    def step(self, on: Array, random: np.random.Generator) -> Array:
        """All of them one step further."""
        return on if self._always else draws(len(on), random) < np.where(on, self._stay, self._enter)


def draws(count: int, random: np.random.Generator) -> Array:
    """Uniform 32-bit whole numbers (count,), two from each number of 64 bits, on every machine the
    same.
    """
    raw = np.asarray(random.bit_generator.random_raw((count + 1) // 2))
    return raw.astype("<u8", copy=False).view("<u4")[:count]


def level(probability: float) -> np.uint32:
    """A draw is below this with the given probability, to 2^-32."""
    return np.uint32(min(round(probability * 2**32), 2**32 - 1))
