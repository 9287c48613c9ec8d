"""Extreme eigenvalues of a connected graph's Laplacian: dense for small graphs, sparse for large ones."""

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from gradslide._support.types import Array, Sparse

# Relative residual of the sparse eigensolver. Eigenvalues err by its square over the gap: far less than this.
_TOLERANCE = 1e-4
_BASIS = 40  # Lanczos vectors kept


def all_eigenvalues(laplacian: Sparse) -> Array:
    """Return every eigenvalue in ascending order; the first is exactly zero."""
    values = np.linalg.eigvalsh(laplacian.toarray())
    values[0] = 0.0
    return np.maximum(values, 0.0)


def largest_eigenvalue(laplacian: Sparse, norm_bound: float) -> float:
    """Return lmax by Lanczos iteration plus its residual, at most `norm_bound`: from above."""
    from scipy.sparse.linalg import eigsh

    value, vector = eigsh(laplacian, k=1, which="LA", v0=_start(laplacian), ncv=_BASIS, tol=_TOLERANCE)
    residual = float(np.linalg.norm(laplacian @ vector[:, 0] - value[0] * vector[:, 0]))
    return min(float(value[0]) + residual, norm_bound)


def second_eigenvalue(laplacian: Sparse, norm_bound: float, width: int) -> float:
    """Return l2, the algebraic connectivity.

    A narrow graph (ring, grid) or one that is nearly a tree has a tiny l2 and a sparse
    factorization: there the inverse is used. Others (expanders) would fill the factors but have a
    larger l2: there Lanczos iteration works on the Laplacian itself.

    Parameters
    ----------
    laplacian : scipy.sparse.csr_array
        The Laplacian of a connected graph.
    norm_bound : float
        Upper bound of its largest eigenvalue.
    width : int
        Number of nodes in the widest level of a breadth-first search.

    Returns
    -------
    float
    """
    m = laplacian.shape[0]
    edges = (laplacian.nnz - m) // 2
    if edges <= 1.1 * m or width <= 4 * np.sqrt(m):
        return _by_factorisation(laplacian)
    return _by_lanczos(laplacian, norm_bound)


def _by_factorisation(laplacian: Sparse) -> float:
    from scipy.sparse.linalg import splu

    # With one node grounded the Laplacian is definite; grounding the busiest one keeps stars sparse.
    kept = np.flatnonzero(np.arange(laplacian.shape[0]) != laplacian.diagonal().argmax())
    factors = splu(
        sp.csc_array(laplacian[kept][:, kept]),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )

    def solve(b: Array) -> Array:
        x = np.zeros_like(b)
        x[kept] = factors.solve(b[kept])
        return x

    return _by_inverse(laplacian, solve)


def _by_lanczos(laplacian: Sparse, norm_bound: float) -> float:
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    def without_constants(x: Array) -> Array:
        return laplacian @ x + norm_bound * x.mean()

    operator = LinearOperator(laplacian.shape, matvec=without_constants, dtype=np.float64)
    try:
        values = eigsh(
            operator,
            k=1,
            which="SA",
            v0=_start(laplacian),
            ncv=_BASIS,
            tol=_TOLERANCE,
            maxiter=200,
            return_eigenvectors=False,
        )
    except ArpackNoConvergence:
        return _by_inverse(laplacian, _conjugate_gradients(laplacian))
    return float(values[0])


def _conjugate_gradients(laplacian: Sparse) -> Callable[[Array], Array]:
    from scipy.sparse.linalg import cg

    jacobi = sp.diags_array(1.0 / laplacian.diagonal())
    return lambda b: cg(laplacian, b, rtol=1e-9, maxiter=20_000, M=jacobi)[0]


def _by_inverse(laplacian: Sparse, solve: Callable[[Array], Array]) -> float:
    """1 / lmax of the pseudo-inverse, whose small eigenvalues cluster where l2 is tiny."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    def pseudo_inverse(b: Array) -> Array:
        x = solve(np.ravel(b - b.mean()))
        return x - x.mean()

    operator = LinearOperator(laplacian.shape, matvec=pseudo_inverse, dtype=np.float64)
    values = eigsh(operator, k=1, which="LA", v0=_start(laplacian), tol=1e-8, return_eigenvectors=False)
    return float(1.0 / values[0])


def _start(laplacian: Sparse) -> Array:
    """A fixed start vector without a constant part: the same graph gives the same eigenvalues."""
    start = np.random.default_rng(0).standard_normal(laplacian.shape[0])
    return start - start.mean()
