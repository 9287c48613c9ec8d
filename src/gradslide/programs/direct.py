"""KKT matrices of programs in one place: three ways to factor them, and refinement."""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from scipy import linalg

from gradslide._support.types import Array, Sparse
from gradslide.programs.interior_point import REFINED, KKTSystem, Measure, Solved, size_of
from gradslide.programs.low_rank import LowRank

# Added to the diagonal of the KKT matrix, and corrected by refinement; relative to its largest entry.
_REGULARIZATION = 1e-8
_REFINEMENTS = 10
# Rows and factors of a matrix of low rank are few if they are fewer than this share of the variables.
_FEW = 0.5
# Matrices with more unknowns, and with fewer entries than this share of all, are factored as sparse ones.
_SMALL, _SPARSE = 200, 0.3


# From the right-hand sides of variables and rows to dx and y.
_Solver = Callable[[Array, Array], tuple[Array, Array]]


class DirectKKT(KKTSystem):
    """P and K in one place: the KKT matrix is factored.

    Parameters
    ----------
    P : ndarray, sparse matrix or LowRank, shape (n, n)
        Positive semidefinite.
    K : ndarray or sparse matrix, shape (k, n)
        Rows.

    Attributes
    ----------
    products : int
        Products with K or its transpose so far.
    shape : tuple of int
        That of K.
    """

    def __init__(self, P: "Array | Sparse | LowRank", K: "Array | Sparse") -> None:
        P = _diagonal_as_low_rank(P)
        self._P, self._n, self.products = P, K.shape[1], 0
        self.shape = int(K.shape[0]), int(K.shape[1])
        base: Any = sp.diags_array(P.diagonal) if isinstance(P, LowRank) else P
        entries = sum(each.nnz if sp.issparse(each) else each.size for each in (base, cast(Any, K)))
        unknowns = self._n + K.shape[0]
        self._is_sparse = bool(unknowns > _SMALL and entries < _SPARSE * (self._n**2 + math.prod(K.shape)))
        self._base: Any = sp.csr_array(base) if self._is_sparse else _dense(base)
        self._matrix: Any = sp.csr_array(K) if self._is_sparse else _dense(K)
        self._transposed: Any = sp.csr_array(self._matrix.T) if self._is_sparse else self._matrix.T
        self._is_low_rank = isinstance(P, LowRank)
        rank = P.factors.shape[1] if isinstance(P, LowRank) else 0
        # Few rows and factors beside a diagonal: a small matrix is left once x is eliminated.
        self._is_small = isinstance(P, LowRank) and K.shape[0] + rank < _FEW * self._n
        if self._is_small:
            self._dense_rows = _dense(K)
        elif isinstance(P, LowRank) and not self._is_sparse:
            self._base, self._is_low_rank = P.dense(), False

    def hessian(self, x: Array) -> Array:
        return cast(Array, self._P @ x if self._is_low_rank else self._base @ x)

    def values(self, x: Array) -> Array:
        self.products += 1
        return np.concatenate([self._matrix @ x, x])

    def adjoint(self, multipliers: Array) -> Array:
        self.products += 1
        k = len(multipliers) - self._n
        return cast(Array, self._transposed @ multipliers[:k] + multipliers[k:])

    def factor(self, weights: Array, is_equation: Array) -> None:
        k = len(weights) - self._n
        self._diagonal, rows = weights[k:], weights[:k]
        self._inverses = np.where(is_equation[:k], 0.0, 1 / np.maximum(rows, 1e-200))
        self._equations = np.flatnonzero(is_equation[:k])
        self._inequalities = np.flatnonzero(~is_equation[:k])
        self._row_weights = rows[self._inequalities]
        if self._is_small:
            self.solve_once = self._factored_small()
        else:
            self.solve_once = self._factored_sparse() if self._is_sparse else self._factored_dense()

    def _factored_small(self) -> _Solver:
        """Eliminate dx, whose own matrix is diagonal, and solve for y and the parts along the factors of P."""
        P, K = cast(LowRank, self._P), self._dense_rows
        diagonal = P.diagonal + self._diagonal + _REGULARIZATION
        columns = np.hstack([K.T, P.factors])
        pulled = (columns.T / diagonal).T
        below = np.concatenate([np.minimum(self._inverses, 1e20) + _REGULARIZATION, 1 / P.weights])
        # Rows of inactive constraints are huge: all are brought to about 1.
        inner = columns.T @ pulled + np.diag(below)
        scale = 1 / np.sqrt(np.maximum(np.abs(np.diag(inner)), 1e-300))
        solve_inner = dense_solver(scale[:, None] * inner * scale, is_definite=False)
        k = len(K)

        def solve(a: Array, b: Array) -> tuple[Array, Array]:
            right = columns.T @ (a.T / diagonal).T
            right[:k] -= b
            found = (solve_inner((right.T * scale).T).T * scale).T
            return ((a - columns @ found).T / diagonal).T, found[:k]

        return solve

    def _factored_dense(self) -> _Solver:
        E, G = self._matrix[self._equations], self._matrix[self._inequalities]
        C = self._base + (G.T * self._row_weights) @ G
        C[np.diag_indices(self._n)] += self._diagonal + _REGULARIZATION
        if len(E):
            C = np.block([[C, E.T], [E, -_REGULARIZATION * np.eye(len(E))]])
        inner = dense_solver(C, is_definite=not len(E))

        def solve(a: Array, b: Array) -> tuple[Array, Array]:
            pushed = (self._row_weights * b[self._inequalities].T).T
            found = inner(np.concatenate([a + G.T @ pushed, b[self._equations]]))
            dx, y = found[: self._n], np.empty(b.shape)
            y[self._equations] = found[self._n :]
            y[self._inequalities] = (self._row_weights * (G @ dx).T).T - pushed
            return dx, y

        return solve

    def _factored_sparse(self) -> _Solver:
        from scipy.sparse.linalg import splu

        n, k = self._n, len(self._inverses)
        top = self._base + sp.diags_array(self._diagonal + _REGULARIZATION)
        # An inactive row has a huge entry, which would spoil the scale of others.
        bottom = sp.diags_array(-np.minimum(self._inverses, 1e20) - _REGULARIZATION)
        matrix = sp.block_array([[top, self._transposed], [self._matrix, bottom]], format="csc")
        options = {"SymmetricMode": True}
        lu = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)

        def base(a: Array, b: Array) -> Array:
            return cast(Array, lu.solve(np.concatenate([a, b])))

        if not self._is_low_rank:
            return lambda a, b: _split(base(a, b), n)
        P = cast(LowRank, self._P)
        columns = np.vstack([P.factors, np.zeros((k, P.factors.shape[1]))])
        pulled = cast(Array, lu.solve(columns))
        inner = np.diag(1 / P.weights) + columns.T @ pulled

        def corrected(a: Array, b: Array) -> tuple[Array, Array]:
            found = base(a, b)
            return _split(found - pulled @ np.linalg.solve(inner, columns.T @ found), n)

        return corrected

    def missed(self, a: Array, b: Array, dx: Array, y: Array) -> tuple[Array, Array]:
        """Return what is left of the right-hand sides."""
        self.products += 2
        left_a = a - (self.hessian(dx) + (self._diagonal * dx.T).T + self._transposed @ y)
        return left_a, b - (self._matrix @ dx - (self._inverses * y.T).T)

    def solve(
        self, rights: Sequence[tuple[Array, Array]], measure: Measure, tolerances: Sequence[tuple[float, float]]
    ) -> list[Solved]:
        found = []
        for number, (a, b) in enumerate(rights):
            dx, y = self.refined(a, b)
            values = self.values(dx)
            found.append(Solved(dx, y, values, measure.value(number, dx, y, values)))
        return found

    def refined(self, a: Array, b: Array) -> tuple[Array, Array]:
        """Solve as `solve` does, for one right-hand side, and correct what rounding and regularization leave."""
        dx, y = np.zeros_like(a), np.zeros_like(b)
        left_a, left_b = a, b
        size = size_of(a) + size_of(b)
        missed = math.inf
        with np.errstate(all="ignore"):
            for _ in range(_REFINEMENTS):
                more_x, more_y = self.solve_once(left_a, left_b)
                new_x, new_y = dx + more_x, y + more_y
                left_a, left_b = self.missed(a, b, new_x, new_y)
                now = max(size_of(left_a), size_of(left_b))
                if not now < missed:
                    break
                dx, y, missed, before = new_x, new_y, now, missed
                if missed <= REFINED * size or missed > before / 2:
                    break
        return dx, y


def _diagonal_as_low_rank(P: Any) -> Any:
    """A sparse matrix that is diagonal and definite as one of rank 0; others as they are."""
    if not sp.issparse(P) or P.nnz > P.shape[0]:
        return P
    diagonal = P.diagonal()
    is_diagonal = np.count_nonzero(diagonal) == len(diagonal) == P.nnz and diagonal.min(initial=1.0) > 0
    return LowRank(diagonal, np.zeros((len(diagonal), 0)), np.zeros(0)) if is_diagonal else P


def _split(v: Array, n: int) -> tuple[Array, Array]:
    return v[:n], v[n:]


def dense_solver(matrix: Array, *, is_definite: bool) -> Callable[[Array], Array]:
    """Factor a symmetric matrix, by Cholesky if it is definite and rounding leaves it so."""
    if is_definite:
        try:
            factor = linalg.cho_factor(matrix, check_finite=False)
            return lambda right: cast(Array, linalg.cho_solve(factor, right, check_finite=False))
        except linalg.LinAlgError:
            pass
    with warnings.catch_warnings():
        warnings.simplefilter("error", linalg.LinAlgWarning)
        try:
            lu = linalg.lu_factor(matrix, check_finite=False)
        except linalg.LinAlgWarning as singular:
            raise linalg.LinAlgError(str(singular)) from None
    return lambda right: cast(Array, linalg.lu_solve(lu, right, check_finite=False))


def _dense(matrix: Any) -> Array:
    return np.array(matrix.toarray() if sp.issparse(matrix) else matrix, dtype=np.float64)
