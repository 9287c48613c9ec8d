"""Rows of one agent, drawn at random."""

from typing import NamedTuple

import numpy as np

from gradslide._support.types import Array

# Times the number of rows from which counts are drawn faster than rows.
_MANY = 4


class Draw(NamedTuple):
    """Row numbers within the agent, and how often each counts."""

    rows: Array
    counts: Array


def with_replacement(rng: np.random.Generator, n: int, count: int) -> Draw:
    """`count` rows out of n, uniformly and independently of each other."""
    if count < _MANY * n:
        rows = rng.integers(n, size=count)
        if count < n:
            return Draw(rows, np.ones(count))
        counts = np.bincount(rows, minlength=n)
    else:
        counts = rng.multinomial(count, np.full(n, 1 / n))
    # As many as there are rows, or more: what matters is how often each came.
    return Draw(np.arange(n), counts.astype(np.float64))
