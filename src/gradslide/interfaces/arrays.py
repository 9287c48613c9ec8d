"""From the matrices of a quadratic program to the parts of a problem."""

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from gradslide._support.errors import InputError
from gradslide._support.types import Array, Sparse
from gradslide.domains import Box, Domain, Free, NonNegative
from gradslide.losses import Linear, Loss, Quadratic

# Matrices with a larger share of nonzero entries are stored as dense ones.
_DENSE = 0.3


def quadratic_loss(P: Sparse, q: Array) -> Loss:
    """Return x'Px/2 + q'x as a loss of one agent; linear where P has no entries.

    Parameters
    ----------
    P : sparse matrix, shape (n, n)
        Positive semidefinite; its symmetric part counts.
    q : ndarray, shape (n,)
        Linear term.

    Returns
    -------
    Linear or Quadratic

    Raises
    ------
    InputError
        If P has a negative eigenvalue.
    """
    symmetric = sp.csr_array((P + P.T) / 2)
    symmetric.eliminate_zeros()
    return Quadratic(compact(symmetric), q) if symmetric.nnz else Linear(q)


def compact(matrix: Sparse) -> "Array | Sparse":
    """Return the matrix as a dense array where that takes about as little memory.

    Parameters
    ----------
    matrix : sparse matrix

    Returns
    -------
    ndarray or scipy.sparse.csr_array
    """
    rows, columns = matrix.shape
    return matrix.toarray() if matrix.nnz > _DENSE * rows * columns else sp.csr_array(matrix)


def box(lower: Array, upper: Array, center: Array | float = 0.0, names: Sequence[str] | None = None) -> Domain:
    """Return the set of x with lower <= x <= upper by its simplest name.

    Parameters
    ----------
    lower, upper : ndarray, shape (n,)
        Bounds; infinite for none.
    center : ndarray, shape (n,), or float
        Where a run starts.
    names : sequence of str, optional
        What errors call the variables; by default x[0], x[1] and so on.

    Returns
    -------
    Free, NonNegative or Box

    Raises
    ------
    InputError
        If no number is between a lower bound and its upper one.
    """
    _require_room(lower, upper, names)
    if np.all(np.isinf(upper)):
        if np.all(np.isinf(lower)):
            return Free(center=center)
        if not np.any(lower):
            return NonNegative(center=center)
    return Box(lower, upper, center=center)


def _require_room(lower: Array, upper: Array, names: Sequence[str] | None) -> None:
    cases = (
        (lower > upper, "lower bounds must not exceed upper bounds"),
        (lower == np.inf, "lower bounds must be < inf"),
        (upper == -np.inf, "upper bounds must be > -inf"),
    )
    for wrong, rule in cases:
        if wrong.any():
            j = int(np.argmax(wrong))
            name = f"x[{j}]" if names is None else names[j]
            remedy = "correct them; -inf and inf stand for no lower and no upper bound"
            raise InputError(rule, f"{lower[j]:g} and {upper[j]:g} for {name}", remedy)


def rows(A: Sparse, lower: Array, upper: Array) -> "tuple[Array | Sparse, Array, Array]":
    """Return rows of constraints; without any, one that holds always, which a problem needs.

    Parameters
    ----------
    A : sparse matrix, shape (k, n)
        Rows.
    lower, upper : ndarray, shape (k,)
        Their bounds.

    Returns
    -------
    A : ndarray or sparse matrix, shape (k, n) or (1, n)
    lower, upper : ndarray
    """
    if A.shape[0]:
        return compact(A), lower, upper
    return sp.csr_array((1, A.shape[1])), np.array([-np.inf]), np.array([np.inf])
