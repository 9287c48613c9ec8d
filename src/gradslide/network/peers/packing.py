"""Many messages as a few arrays, for a file."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from gradslide._support.types import Array


def packed(messages: Mapping[str, Mapping[int, Array]]) -> list[tuple[str, Array, Array, Array]]:
    """name -> round -> flat float64 array, as one entry per name: rounds, lengths, and all numbers in a row."""
    return [
        (
            name,
            np.array(list(each), dtype=np.int64),
            np.array([array.size for array in each.values()], dtype=np.int64),
            np.concatenate([np.zeros(0), *each.values()]),
        )
        for name, each in messages.items()
    ]


def unpacked(entries: Iterable[Any]) -> dict[str, dict[int, Array]]:
    """What `packed` was given."""
    return {
        name: dict(zip(rounds.tolist(), np.split(numbers, np.cumsum(lengths)[:-1]), strict=True)) if len(rounds) else {}
        for name, rounds, lengths, numbers in entries
    }
