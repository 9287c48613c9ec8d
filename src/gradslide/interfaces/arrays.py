"""From the matrices of a quadratic program to the parts of a problem."""

import numpy as np
import scipy.sparse as sp

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


def box(lower: Array, upper: Array, center: Array | float = 0.0) -> Domain:
    """Return the set of x with lower <= x <= upper by its simplest name.

    Parameters
    ----------
    lower, upper : ndarray, shape (n,)
        Bounds; infinite for none.
    center : ndarray, shape (n,), or float
        Where a run starts.

    Returns
    -------
    Free, NonNegative or Box
    """
    if np.all(np.isinf(upper)):
        if np.all(np.isinf(lower)):
            return Free(center=center)
        if not np.any(lower):
            return NonNegative(center=center)
    return Box(lower, upper, center=center)


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
