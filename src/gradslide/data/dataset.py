"""Data sets in memory."""

from dataclasses import dataclass

from gradslide._support.types import Array, Sparse


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set for binary classification.

    Attributes
    ----------
    name : str
        Its name.
    features : ndarray or scipy.sparse.csr_array, shape (rows, columns)
        Features, float64.
    labels : ndarray, shape (rows,)
        Labels -1 or 1, float64.
    source : str
        Where it came from.
    """

    name: str
    features: Array | Sparse
    labels: Array
    source: str
