"""Least squares by products: LSQR on any device.

C. C. Paige, M. A. Saunders, "LSQR: an algorithm for sparse linear equations and sparse least squares",
ACM Trans. Math. Softw. 8, 1982.
"""

import math
from collections.abc import Callable

from array_api_compat import array_namespace

from gradslide._support.arrays import length
from gradslide._support.types import Array

# The system counts as singular beyond this condition number, as in SciPy.
_MOST_CONDITION = 1e8
_EPS = 2.0**-52


def lsqr(
    forward: Callable[[Array], Array],
    adjoint: Callable[[Array], Array],
    target: Array,
    *,
    iterations: int,
    tolerance: float,
) -> Array:
    """Return about the shortest x with the smallest |A x - target|.

    The iterates and the rules for stopping are those of `scipy.sparse.linalg.lsqr` with `damp=0` and
    both tolerances equal. Vectors stay on their device; an iteration reads a few norms.

    Parameters
    ----------
    forward, adjoint : callable
        x -> A x and u -> A^T u, in double precision.
    target : array, shape (k,)
        In double precision, on the device of the products.
    iterations : int
        The largest number of iterations.
    tolerance : float
        Relative accuracy of A and of the target.

    Returns
    -------
    array, shape (n,)
    """
    u, beta = _unit(target)
    v, alpha = _unit(adjoint(u))
    x, w = array_namespace(v).zeros_like(v), v
    if alpha * beta == 0:
        return x
    size, rho_bar, phi_bar = beta, alpha, beta
    A_square, inverse_square = 0.0, 0.0
    for _ in range(iterations):
        # The next vectors of the bidiagonalization: beta u = A v - alpha u, alpha v = A^T u - beta v.
        u, beta = _unit(forward(v) - alpha * u)
        if beta > 0:
            A_square += alpha**2 + beta**2
            v, alpha = _unit(adjoint(u) - beta * v)
        # A rotation takes the entry below the diagonal away.
        rho = math.hypot(rho_bar, beta)
        c, s = rho_bar / rho, beta / rho
        theta, rho_bar = s * alpha, -c * alpha
        phi, phi_bar = c * phi_bar, s * phi_bar
        x = x + (phi / rho) * w
        inverse_square += (length(w) / rho) ** 2
        w = v - (theta / rho) * w
        # |A| and its condition number in the Frobenius norm, |A x - target| and |A^T (A x - target)|.
        A_norm, residual = math.sqrt(A_square), phi_bar
        condition, slope = A_norm * math.sqrt(inverse_square), alpha * abs(s * phi)
        reached = residual <= tolerance * (size + A_norm * length(x))
        is_flat = slope <= tolerance * (A_norm * residual + _EPS)
        if reached or is_flat or condition >= _MOST_CONDITION:
            break
    return x


def _unit(v: Array) -> tuple[Array, float]:
    """v divided by its length, and that length; v itself if it is 0."""
    size = length(v)
    return (v / size if size > 0 else v), size
