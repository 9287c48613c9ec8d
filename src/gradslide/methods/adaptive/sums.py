"""Sums over an agent's coordinates, in double precision."""

import numpy as np

from gradslide._types import Array
from gradslide.methods.base import Context


def squares(context: Context, v: Array) -> Array:
    """|v_i|^2 per agent in nu's norm, in double precision."""
    return np.sum(np.abs(v), axis=1, dtype=np.float64) ** 2 if context.domain.norm == 1 else dot(v, v)


def dot(a: Array, b: Array) -> Array:
    """<a_i, b_i> per agent, in double precision."""
    return np.sum(a * b, axis=1, dtype=np.float64)


def dual_squares(context: Context, v: Array) -> Array:
    """|v_i|^2 per agent in the norm dual to nu's."""
    return np.max(np.abs(v), axis=1).astype(np.float64) ** 2 if context.domain.norm == 1 else dot(v, v)
