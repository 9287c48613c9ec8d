"""Counts and the parameters they follow from, for mu = 0: which rounds a schedule takes, and what
published counts say about the parameters that they were obtained with, where A is the Laplacian."""

import math
from collections.abc import Callable
from functools import lru_cache

from gradslide.theory.schedules import Schedule, theorem_1, theorem_2


@lru_cache
def implied_L(samples: int, *, N: int, c: float) -> float:
    """The L with which Theorem 2's batches take so many samples in all, or as near below as they
    come: c_k falls as L grows."""
    return _least(lambda L: theorem_2(N=N, L=L, mu=0.0, A_norm=1.0, R=1.0, c=c).samples <= samples)


def implied_L_of_rounds(rounds: int, *, N: int, norm: float, R: float) -> float:
    """The L with which N outer iterations of PDS take so many rounds, or as near below as they
    come.
    """
    return _least(lambda L: _rounds(theorem_1(L=L, mu=0.0, A_norm=norm, R=R), N) <= rounds)


def implied_norm(rounds: int, *, N: int, L: float, R: float) -> float:
    """The largest ||A|| with which N outer iterations of SPDS take no more than so many rounds."""
    return 1 / _least(lambda inverse: _rounds(theorem_2(N=N, L=L, mu=0.0, A_norm=1 / inverse, R=R, c=0.0), N) <= rounds)


def rounds_of(*, N: int, L: float, R: float, norm: float) -> int:
    """Of SPDS over edges: one per inner iteration. norm: ||A||."""
    return _rounds(theorem_2(N=N, L=L, mu=0.0, A_norm=norm, R=R, c=0.0), N) // 2


def _rounds(schedule: Schedule, N: int) -> int:
    """With the Laplacian, two per inner iteration."""
    return 2 * sum(schedule.row(k).T for k in range(1, N + 1))


def _least(holds: Callable[[float], bool]) -> float:
    """The least number for which this holds, and for all larger ones."""
    low, high = 1e-6, 1e6
    while high / low > 1 + 1e-12:
        middle = math.sqrt(low * high)
        if holds(middle):
            high = middle
        else:
            low = middle
    return high
