"""Guesses of how far x* and z* are away, for problems with an operator in the place of a network."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gradslide._types import Array
from gradslide.methods.base import Context
from gradslide.saddle.coupling import Operator

# Iterations of a least squares solver: two products each.
_LEAST_SQUARES = 30
# How many gradient steps of length 1/L the solution is guessed to be away from where the constraints hold.
_STEPS_AWAY = 10.0


class Distances(NamedTuple):
    """U(z_0, z*) and V(x_0, x*)."""

    U: float
    V: float


def distances(
    context: Context,
    coupling: Operator,
    y: Array,
    *,
    L: float,
    A_norm: float,
    V: float | None = None,
    gradient: Callable[[Array], Array] | None = None,
) -> Distances:
    """The diameters of compact sets; elsewhere guesses from the gradient y at x_0.

    x_1 is near the point nearest to x_0 where A x is as it must be, by a few least squares iterations; z* solves about
    A^T z = -(gradient of f at x_1), by as many; what that leaves of the gradient is followed for ten steps.
    gradient: gives it at x_1; without it, y serves there too.
    """
    domain, duals, mu, x0 = context.domain, coupling.duals, context.problem.mu, context.x0
    z0 = duals.start() if context.s0 is None else context.s0
    U_most, V_most = duals.U_bound(z0), float(np.sum(domain.distance_bound(x0)))
    if math.isfinite(U_most) and (math.isfinite(V_most) or V is not None):
        return Distances(U_most, V_most if V is None else V)
    x1 = _nearest_allowed(coupling, domain.project, x0)
    moved = bool(np.any(x1 != x0))
    slope = np.asarray(gradient(x1) if moved and gradient is not None else y) + mu * domain.grad_nu(x1)
    z = _least_squares(coupling, -slope.reshape(-1), adjoint=True)[None]
    left = slope + coupling.A.apply_adjoint(z[0].astype(x0.dtype)).reshape(x0.shape)
    if V is None:
        steps = min((factor / size for factor, size in ((_STEPS_AWAY, L), (1.0, mu)) if size > 0), default=0.0)
        way = math.sqrt(2 * float(np.sum(domain.V(x0, x1)))) + steps * float(np.linalg.norm(left))
        V = min(way**2 / 2, V_most)
    # The theorem's 1 has no unit: a tenth of the gradient takes its place.
    little = 0.1 * float(np.linalg.norm(slope)) / A_norm if A_norm > 0 else 0.0
    U = min((math.sqrt(2 * duals.U(z0, z0 + z)) + little) ** 2 / 2, U_most)
    return Distances(U, V)


def _nearest_allowed(coupling: Operator, project: Callable[[Array], Array], x0: Array) -> Array:
    """About the nearest point where A x is as it must be; x_0 itself where A x may be anything."""
    if coupling.duals.violation(coupling.duals.start()) is None:
        return x0
    violation = coupling.duals.violation(coupling.A.apply(x0.reshape(-1))[None])
    if violation is None or not np.any(violation):
        return x0
    step = _least_squares(coupling, -violation[0], adjoint=False)
    return project(x0 + step.reshape(x0.shape).astype(x0.dtype))


def _least_squares(coupling: Operator, target: Array, *, adjoint: bool) -> Array:
    """About the shortest v with the smallest |A v - target|, or |A^T v - target|."""
    from scipy.sparse.linalg import LinearOperator, lsqr

    A = coupling.A
    products = (A.apply_adjoint, A.apply) if adjoint else (A.apply, A.apply_adjoint)
    forward, backward = (lambda v, product=product: product(v.astype(A.dtype)) for product in products)
    shape = A.shape[::-1] if adjoint else A.shape
    operator = LinearOperator(shape, matvec=forward, rmatvec=backward, dtype=np.float64)
    found: Array = lsqr(operator, np.asarray(target, dtype=np.float64), iter_lim=_LEAST_SQUARES)[0]
    return found
