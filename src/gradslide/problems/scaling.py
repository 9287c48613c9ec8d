"""Diagonal scaling of rows and columns, as weights of zeta and nu: x and z keep their units."""

from typing import Any, NamedTuple

import numpy as np

from gradslide._support.errors import require
from gradslide._support.types import Array
from gradslide.problems.linear_map import LinearMap

KINDS = ("rows", "columns", "both")
_RUIZ_ITERATIONS = 10


class Scales(NamedTuple):
    """Weights of the coordinates of x and of z; the smallest of each is 1."""

    x: Array
    z: Array


def weights(A: LinearMap, kind: str) -> Scales:
    """Return weights by Ruiz's iterations, then Pock and Chambolle's row and column sums, as in
    PDLP.

    The scaled matrix is D_z A D_x; a scaled variable x' = x/D_x has 1/2 |x'|^2 = 1/2 sum
    x_j^2/D_j^2.
    """
    rule = "scaling needs the entries of A"
    require(A.matrix is not None, rule, "an operator", "give A as an array or a sparse matrix, or leave scaling out")
    entries = abs(A.entries()).astype(np.float64)
    row_scales, column_scales = np.ones(A.shape[0]), np.ones(A.shape[1])

    def rescale(row_sizes: Array, column_sizes: Array) -> None:
        nonlocal row_scales, column_scales
        if kind != "columns":
            row_scales = row_scales / np.sqrt(np.where(row_sizes > 0, row_sizes, 1))
        if kind != "rows":
            column_scales = column_scales / np.sqrt(np.where(column_sizes > 0, column_sizes, 1))

    for _ in range(_RUIZ_ITERATIONS):
        rescale(*(_dense(_scaled(entries, row_scales, column_scales).max(axis=axis)) for axis in (1, 0)))
    rescale(*(_dense(_scaled(entries, row_scales, column_scales).sum(axis=axis)) for axis in (1, 0)))
    x, z = column_scales**-2.0, row_scales**-2.0
    return Scales(x / x.min(), z / z.min())


def _scaled(entries: Any, rows: Array, columns: Array) -> Any:
    if hasattr(entries, "multiply"):
        return entries.multiply(rows[:, None]).multiply(columns[None, :]).tocsr()
    return entries * rows[:, None] * columns


def _dense(sizes: Any) -> Array:
    return np.asarray(sizes.toarray() if hasattr(sizes, "toarray") else sizes).reshape(-1)
