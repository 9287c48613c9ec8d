"""Guesses of how far x* and z* are away, for problems with an operator in the place of a network."""

import math
from collections.abc import Callable

import numpy as np

from gradslide._support.types import Array
from gradslide.domains import Domain
from gradslide.methods.base import Context
from gradslide.network.coupling import Operator
from gradslide.problems.linear_map import least_squares
from gradslide.problems.saddle import Distances

# How many gradient steps of length 1/L the solution is guessed to be away, from where the constraints hold.
STEPS_AWAY = 10.0


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
    """U(z_0, z*) and V(x_0, x*), guessed from the gradient y at x_0, and no larger than compact sets allow.

    x_1 is near the point nearest to x_0 where A x is as it must be, by a few least squares iterations. Z compact: its
    diameter is U. Else z* solves about A^T z = -(gradient of f at x_1), by as many. What is left of the gradient is
    followed for ten steps. z_0 and x_0 are where a run starts that was told nothing: after a warm start both distances
    are shorter by about the same factor, and R is their ratio. gradient: gives it at x_1; without it, y serves there.
    """
    domain, duals, mu, x0 = context.domain, coupling.duals, context.problem.mu, context.x0
    z_start, x_start = duals.start(), domain.start()
    U_most, V_most = duals.U_bound(z_start), float(np.sum(domain.distance_bound(x_start)))
    if math.isfinite(U_most) and (V is not None or (L == 0 and math.isfinite(V_most))):
        return Distances(U_most, V_most if V is None else V)
    x1 = _nearest_allowed(coupling, domain.project, x0)
    # The gradient of a linear f is the same everywhere.
    moved = L > 0 and bool(np.any(x1 != x0))
    slope = np.asarray(gradient(x1) if moved and gradient is not None else y) + mu * domain.grad_nu(x1)
    z = z_start if math.isfinite(U_most) else least_squares(coupling.A, -slope.reshape(-1), adjoint=True)[None]
    z = z.astype(x0.dtype)
    left = slope + coupling.A.apply_adjoint(z[0]).reshape(x0.shape)
    if V is None:
        steps = min((factor / size for factor, size in ((STEPS_AWAY, L), (1.0, mu)) if size > 0), default=0.0)
        moves = [float(np.sum(domain.V(start, x1))) for start in (x_start, x0)]
        V = min((math.sqrt(2 * max(moves)) + steps * _dual_length(domain, left)) ** 2 / 2, V_most)
        if steps == 0:
            # Nothing says how far a linear f leads: as far as X goes, or as x_1 is long.
            V = V_most if math.isfinite(V_most) else max(V, float(np.sum(x1**2)) / 2)
    # The theorem's 1 has no unit: a tenth of the gradient takes its place.
    little = 0.1 * _dual_length(domain, slope) / A_norm if A_norm > 0 else 0.0
    U = U_most if math.isfinite(U_most) else (math.sqrt(2 * duals.U(z_start, z)) + little) ** 2 / 2
    return Distances(U, V)


def _dual_length(domain: Domain, gradient: Array) -> float:
    """The length of a gradient, in the norm dual to nu's."""
    if domain.norm == 1:
        return float(np.linalg.norm(np.max(np.abs(gradient), axis=1)))
    weights = domain.weights
    return float(np.linalg.norm(gradient if weights is None else gradient / np.sqrt(weights)))


def _nearest_allowed(coupling: Operator, project: Callable[[Array], Array], x0: Array) -> Array:
    """About the nearest point where A x is as it must be; x_0 itself where A x may be anything."""
    if not coupling.duals.is_constrained:
        return x0
    violation = coupling.duals.violation(coupling.A.apply(x0.reshape(-1))[None])
    if violation is None or not np.any(violation):
        return x0
    step = least_squares(coupling.A, -violation[0])
    return project(x0 + step.reshape(x0.shape).astype(x0.dtype))
