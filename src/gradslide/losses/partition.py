"""Which rows belong to which agent, and random samples of an agent's rows."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gradslide._support.errors import InputError, require
from gradslide._support.types import Array

Selection = slice | Array


def partition(
    n: int, agents: int | None, splits: Sequence[Any] | None, allow_overlap: bool = False
) -> tuple[Selection, Array]:
    """Assign rows to agents.

    Parameters
    ----------
    n : int
        Number of rows.
    agents : int, optional
        Number of contiguous blocks, as equal as possible.
    splits : sequence, optional
        For each agent its row numbers, or a mask of length n. Without both, one agent holds all
        rows.
    allow_overlap : bool
        Whether a row may occur more than once in `splits`.

    Returns
    -------
    selection : slice or ndarray
        The rows sorted by agent.
    sizes : ndarray, shape (m,)
        Number of rows of each agent.
    """
    require(agents is None or splits is None, "give agents or splits, not both", "both", "drop one of them")
    if splits is None:
        return slice(0, n), _block_sizes(n, 1 if agents is None else agents)
    require(
        len(splits) > 0,
        "splits must name the rows of at least one agent",
        "an empty list",
        "add index arrays",
    )
    rows = [_row_numbers(i, split, n) for i, split in enumerate(splits)]
    chosen, sizes = np.concatenate(rows), np.array([len(r) for r in rows])
    if not allow_overlap:
        _require_disjoint(chosen, sizes, n)
    return as_slice(chosen), sizes


def as_slice(rows: Array) -> Selection:
    """Return row numbers as a slice where they are consecutive, so that selecting makes no copy."""
    start = int(rows[0])
    if np.array_equal(rows, np.arange(start, start + len(rows))):
        return slice(start, start + len(rows))
    return rows


def _block_sizes(n: int, m: int) -> Array:
    require(
        isinstance(m, (int, np.integer)) and m >= 1,
        "agents must be an integer of at least 1",
        repr(m),
        "give a count",
    )
    require(
        m <= n,
        "there must be at least one row per agent",
        f"{m} agents for {n} rows",
        f"use at most {n} agents",
    )
    return n // m + (np.arange(m) < n % m)


def _require_disjoint(rows: Array, sizes: Array, n: int) -> None:
    """Refuse a row that occurs twice among the rows of all agents."""
    if int(np.bincount(rows, minlength=n).max()) <= 1:
        return
    order = np.argsort(rows, kind="stable")
    repeated = np.flatnonzero(np.diff(rows[order]) == 0)[0]
    first, second = np.repeat(np.arange(len(sizes)), sizes)[order[repeated : repeated + 2]].tolist()
    owners = (
        f"twice in the split of agent {first}" if first == second else f"in the splits of agents {first} and {second}"
    )
    raise InputError(
        "a row must occur once in splits",
        f"row {rows[order[repeated]]} {owners}",
        "drop it from one of them, or give allow_overlap=True to count it each time",
    )


def _row_numbers(i: int, split: Any, n: int) -> Array:
    rows = np.asarray(split)
    if rows.dtype == bool:
        require(
            rows.shape == (n,),
            f"a mask in splits must have one entry per row, {n} in all",
            f"shape {rows.shape} for agent {i}",
            "build it from the labels or features",
        )
        rows = np.flatnonzero(rows)
    require(
        rows.size > 0,
        "every agent must hold at least one row",
        f"an empty split for agent {i}",
        "drop that agent",
    )
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise InputError(
            "splits must be 1-D arrays of row numbers or masks",
            f"type {rows.dtype} and shape {rows.shape} for agent {i}",
            "from the site of each row: [np.flatnonzero(site == i) for i in range(m)]",
        )
    outside = rows[(rows < 0) | (rows >= n)]
    require(
        outside.size == 0,
        f"row numbers in splits must lie in 0..{n - 1}",
        f"{outside[:3].tolist()} for agent {i}",
        "name rows that exist",
    )
    return rows.astype(np.intp, copy=False)


# Times the number of rows from which counts are drawn faster than rows.
_MANY = 4


class Draw(NamedTuple):
    """Row numbers within an agent, and how often each counts."""

    rows: Array
    counts: Array


def with_replacement(rng: np.random.Generator, n: int, count: int) -> Draw:
    """Draw `count` rows out of n, uniformly and independently."""
    if count < _MANY * n:
        rows = rng.integers(n, size=count)
        if count < n:
            return Draw(rows, np.ones(count))
        counts = np.bincount(rows, minlength=n)
    else:
        counts = rng.multinomial(count, np.full(n, 1 / n))
    # As many as there are rows, or more: what matters is how often each came.
    return Draw(np.arange(n), counts.astype(np.float64))
