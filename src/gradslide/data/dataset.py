"""Data sets in memory."""

from dataclasses import dataclass

from gradslide._support.types import Array


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows for binary classification.

    features: (rows, columns) float64, scipy CSR or dense. labels: (rows,) float64, -1 or 1.
    source: where it came from.
    """

    name: str
    features: Array
    labels: Array
    source: str
