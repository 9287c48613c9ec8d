"""Sizes as Python floats, in double precision."""

import numpy as np

from gradslide._support.types import Array


def length(v: Array) -> float:
    """The Euclidean norm of all entries."""
    return float(np.linalg.norm(np.asarray(v, dtype=np.float64)))


def total(values: Array) -> float:
    return float(np.sum(values, dtype=np.float64))
