"""Splits of rows over agents: lists of m nonempty index arrays that hold each row once."""

import heapq

import numpy as np
import numpy.typing as npt

from gradslide._support.errors import require, unknown_name
from gradslide._support.keywords import checked_arguments
from gradslide._support.randomness import Seed, generator
from gradslide._support.types import Array

KINDS = ("contiguous", "shuffled", "dirichlet", "sorted")


@checked_arguments
def split(kind: str, labels: npt.ArrayLike, m: int, seed: Seed = 0, alpha: float = 0.5) -> list[Array]:
    """Split rows over agents by name.

    Parameters
    ----------
    kind : {"contiguous", "shuffled", "dirichlet", "sorted"}
        "dirichlet" is `split_by_label`; "sorted" sorts by label, then cuts contiguous blocks.
    labels : array_like, shape (n,)
        Labels of the rows.
    m : int
        Number of agents.
    seed : int or numpy.random.Generator
        Source of randomness.
    alpha : float
        Concentration for "dirichlet".

    Returns
    -------
    list of ndarray
        Row numbers of each agent.

    Examples
    --------
    >>> import gradslide as gs
    >>> [rows.tolist() for rows in gs.data.split("sorted", [1, -1, 1, -1], m=2)]
    [[1, 3], [0, 2]]
    """
    values = np.asarray(labels)
    match kind:
        case "contiguous":
            return split_contiguous(len(values), m)
        case "shuffled":
            return split_shuffled(len(values), m, seed)
        case "dirichlet":
            return split_by_label(values, m, alpha, seed)
        case "sorted":
            order = np.argsort(values, kind="stable")
            return [order[block] for block in split_contiguous(len(order), m)]
        case _:
            raise unknown_name("split", kind, KINDS)


@checked_arguments
def split_contiguous(n: int, m: int) -> list[Array]:
    """Divide n rows in order into m blocks whose sizes differ by at most one.

    Parameters
    ----------
    n : int
        Number of rows.
    m : int
        Number of agents.

    Returns
    -------
    list of ndarray
        Row numbers of each agent.
    """
    require(1 <= m <= n, "each agent must get a row", f"{m} agents and {n} rows", "take at most as many agents as rows")
    return np.array_split(np.arange(n), m)


@checked_arguments
def split_shuffled(n: int, m: int, seed: Seed) -> list[Array]:
    """Distribute n rows at random, with sizes that differ by at most one.

    Parameters
    ----------
    n : int
        Number of rows.
    m : int
        Number of agents.
    seed : int or numpy.random.Generator
        Source of randomness.

    Returns
    -------
    list of ndarray
        Row numbers of each agent, sorted.
    """
    order = generator(seed).permutation(n)
    return [np.sort(order[block]) for block in split_contiguous(n, m)]


@checked_arguments
def split_by_label(labels: npt.ArrayLike, m: int, alpha: float, seed: Seed) -> list[Array]:
    """Distribute the rows of each label in random proportions, drawn from a Dirichlet distribution.

    Parameters
    ----------
    labels : array_like, shape (n,)
        Labels of the rows.
    m : int
        Number of agents.
    alpha : float
        Concentration; near 0 each label goes to few agents, large values give equal shares.
    seed : int or numpy.random.Generator
        Source of randomness.

    Returns
    -------
    list of ndarray
        Row numbers of each agent; every agent gets at least one row.
    """
    values = np.asarray(labels)
    split_contiguous(len(values), m)  # refuses more agents than rows
    require(0 < alpha < np.inf, "alpha must be positive and finite", alpha, "0.1 is uneven, 100 nearly even")
    rng = generator(seed)
    owner = np.empty(len(values), dtype=np.int64)
    for label in np.unique(values):
        rows = rng.permutation(np.flatnonzero(values == label))
        counts = rng.multinomial(len(rows), rng.dirichlet(np.full(m, alpha)))
        owner[rows] = np.repeat(np.arange(m), counts)
    shares = np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner, minlength=m))[:-1])
    _feed_empty(shares)
    return shares


def _feed_empty(shares: list[Array]) -> None:
    """Give each agent without rows the last row of the agent that has most."""
    largest = [(-len(rows), agent) for agent, rows in enumerate(shares)]
    heapq.heapify(largest)
    for agent, rows in enumerate(shares):
        if not len(rows):
            _, donor = largest[0]
            shares[agent], shares[donor] = shares[donor][-1:], shares[donor][:-1]
            heapq.heapreplace(largest, (-len(shares[donor]), donor))
