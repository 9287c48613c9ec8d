"""Sums over an agent's coordinates, in double precision."""

from array_api_compat import array_namespace

from gradslide._support.arrays import dot, doubles
from gradslide._support.types import Array
from gradslide.methods.base import Context


def squares(context: Context, v: Array) -> Array:
    """|v_i|^2 per agent in nu's norm, in double precision."""
    xp = array_namespace(v)
    return xp.sum(abs(v), axis=1, dtype=xp.float64) ** 2 if context.domain.norm == 1 else dot(v, v)


def dual_squares(context: Context, v: Array) -> Array:
    """|v_i|^2 per agent in the norm dual to nu's."""
    return doubles(array_namespace(v).max(abs(v), axis=1)) ** 2 if context.domain.norm == 1 else dot(v, v)
