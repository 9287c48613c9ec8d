"""Domains as arrays on a GPU, and how its kernels divide rows among programs."""

from typing import NamedTuple

import numpy as np

from gradslide._support.types import Tensor
from gradslide.kernels.sets import Sets

# The most columns of a set that couples them: a program holds whole rows.
MOST_COLUMNS = 4096
# Entries of a block of whole rows, and its most rows.
_WHOLE_ROWS, _MOST_ROWS = 2048, 64


class DeviceSets(NamedTuple):
    """The sets of all agents, which are of one kind, as the kernels take them.

    Attributes
    ----------
    arrays
        Center, weight, lo, hi, origin and radius.
    kinds
        Whether center, weight, lo, hi and origin are absent, shared, or differ: see `triton_sets`.
    kind
        The kind of set.
    """

    arrays: tuple[Tensor, ...]
    kinds: tuple[int, ...]
    kind: int


def device_sets(sets: Sets, like: Tensor) -> DeviceSets:
    """Return sets on a device.

    Parameters
    ----------
    sets : Sets
        Of one kind.
    like : Tensor
        An array with a row for each agent, on the device and in the precision that is wanted.

    Returns
    -------
    DeviceSets
    """
    import torch

    (m, d), rows = like.shape, (*sets.intervals, sets.origin)
    arrays = (torch.tensor(each, device=like.device, dtype=like.dtype) for each in (*rows, np.resize(sets.radius, m)))
    # The values with which center, weight, lo, hi and origin have no effect.
    nothing = (0.0, 0.0, -np.inf, np.inf, 0.0)
    kinds = (0 if np.all(each == none) else 2 if len(each) > d else 1 for each, none in zip(rows, nothing, strict=True))
    assert sets.common_kind is not None
    return DeviceSets(tuple(arrays), tuple(kinds), sets.common_kind)


class WholeRows(NamedTuple):
    """The shape of a block of whole rows, and the warps of its program."""

    rows: int
    columns: int
    warps: int


def whole_rows(d: int) -> WholeRows:
    """Return the block for rows of d columns.

    Parameters
    ----------
    d : int
        The number of columns.

    Returns
    -------
    WholeRows
    """
    columns = 1 << max(0, d - 1).bit_length()
    rows = min(_MOST_ROWS, max(1, _WHOLE_ROWS // columns))
    # More values per thread would not fit into registers.
    return WholeRows(rows, columns, max(4, rows * columns // 256))


def fits_whole_rows(sets: Sets, d: int) -> bool:
    """Return whether kernels that take whole rows know the sets: all agents need the same kind of set.

    Parameters
    ----------
    sets : Sets
        Of all agents.
    d : int
        The number of columns.

    Returns
    -------
    bool
    """
    return sets.common_kind is not None and d <= MOST_COLUMNS


def serves(sets: Sets, d: int) -> bool:
    """Return whether the kernel of the inner loop knows the sets: intervals need no whole rows.

    Parameters
    ----------
    sets : Sets
        Of all agents.
    d : int
        The number of columns.

    Returns
    -------
    bool
    """
    return sets.are_separable or fits_whole_rows(sets, d)
