"""Rows of one agent, drawn at random."""

from typing import NamedTuple

import numpy as np

from gradslide._types import Array


class Draw(NamedTuple):
    """Row numbers within the agent, and how often each counts."""

    rows: Array
    counts: Array


def with_replacement(rng: np.random.Generator, n: int, count: int) -> Draw:
    """`count` rows out of n, uniformly and independently of each other."""
    if count < n:
        return Draw(rng.integers(n, size=count), np.ones(count))
    # As many as there are rows, or more: what matters is how often each came.
    return Draw(np.arange(n), rng.multinomial(count, np.full(n, 1 / n)).astype(np.float64))
