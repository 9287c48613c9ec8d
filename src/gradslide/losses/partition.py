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


def numbers_of_rows(rows: Sequence[Array] | Array, starts: Array, sizes: Array) -> tuple[Selection, Array]:
    """Convert row numbers within each agent to numbers of stacked rows; also return how many each agent has.

    Parameters
    ----------
    rows : sequence of ndarray, or ndarray of shape (m, k)
        The row numbers of each agent. An array, with equally many of each, takes no loop over agents.
    starts, sizes : ndarray, shape (m,)
        Where the rows of each agent start, and how many it holds.
    """
    whole = isinstance(rows, np.ndarray) and rows.ndim == 2
    parts = [rows[0]] if whole and len(rows) else [np.asarray(own) for own in rows]
    if len(rows) != len(sizes) or not all(own.ndim == 1 and own.size and own.dtype.kind in "iu" for own in parts):
        raise InputError(
            f"rows must be one or more integers for each agent, {len(sizes)} in all",
            f"{len(rows)} of them, {'; '.join(f'{own.dtype} {own.shape}' for own in parts[:3])}",
            "give every agent's row numbers",
        )
    counts = np.full(len(rows), len(parts[0])) if whole else np.array([len(own) for own in parts])
    flat = flattened(rows if whole else parts)
    if (flat < 0).any() or (flat >= np.repeat(sizes, counts)).any():
        raise InputError(
            "rows must lie in 0..n_i - 1 for each agent i",
            f"entries from {flat.min()} to {flat.max()}",
            "see rows_per_agent",
        )
    return as_slice(flat + np.repeat(starts, counts)), counts


def flattened(parts: Sequence[Array] | Array) -> Array:
    """Return the arrays of all agents, one after the other."""
    return parts.reshape(-1) if isinstance(parts, np.ndarray) else np.concatenate(parts)


# Times the number of rows from which counts are drawn faster than rows.
_MANY = 4


class Draw(NamedTuple):
    """Row numbers within an agent, and how often each counts; or a sequence of these, one for each agent."""

    rows: Any
    counts: Any


def draws_rows(n: Any, count: int) -> Any:
    """Whether an agent with n rows draws row numbers, rather than how often each row comes."""
    return count < _MANY * n


def with_replacement(rng: np.random.Generator, n: int, count: int) -> Draw:
    """Draw `count` rows out of n, uniformly and independently."""
    if draws_rows(n, count):
        return drawn(rng.integers(n, size=count), n)
    return Draw(np.arange(n), rng.multinomial(count, np.full(n, 1 / n)).astype(np.float64))


def drawn(rows: Array, n: int) -> Draw:
    """Return rows drawn out of n, or how often each came where that is shorter."""
    if len(rows) < n:
        return Draw(rows, np.ones(len(rows)))
    return Draw(np.arange(n), np.bincount(rows, minlength=n).astype(np.float64))
