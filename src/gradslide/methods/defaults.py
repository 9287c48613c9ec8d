"""Default parameters: what a method estimates at x_0 if the user gives no value."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import as_dtype, dot, doubles, is_numpy, to_numpy
from gradslide._support.types import Array
from gradslide.domains import Domain
from gradslide.methods.base import Context
from gradslide.network.coupling import NetworkCoupling, Operator
from gradslide.oracles.variance import moments
from gradslide.problems.linear_map import least_squares
from gradslide.problems.saddle import Distances
from gradslide.theory import guarantees
from gradslide.theory.schedules import Sampled

# The solution is assumed to be this many gradient steps of length 1/L away from a feasible point.
STEPS_AWAY = 10.0
# With Theorem 3's R the constraints are met long after the objective; with a few times that R, both are met.
_PRACTICE = 2.5
# Exchanges that the first outer iteration may take if L was not given.
_FIRST_EXCHANGES = 50
# Samples per agent at x_0 from which sigma and R are estimated.
_PROBE_SAMPLES = 64
# How many times the network should mix in the last inner loop if gradients are noisy.
_MIXINGS = 4.0


def smoothness(context: Context) -> float:
    """Return the largest of the agents' smoothness constants: one flooded maximum."""
    return float(context.network.agree(np.asarray(context.problem.smoothness()), "max"))


def limit_first_inner_loop(L: float, *, R: float, A_norm: float) -> float:
    """Return L, raised if T_1 = R ||A|| / L would be too long: a larger L is valid too."""
    return max(L, R * A_norm / _FIRST_EXCHANGES) if L > 0 else L


class REstimate(NamedTuple):
    """R, and the V(x_0, x*) that it was computed with."""

    R: float
    V: float


def estimate_R(
    context: Context,
    gradients: Array,
    *,
    L: float,
    A_norm: float,
    V: float | None = None,
    variances: Array | None = None,
    gradient: Callable[[Array], Array] | None = None,
) -> REstimate:
    """Estimate Theorem 1's R = (||z*|| + 1) / (4 sqrt(V(x_0, x*))) from the gradients g_i at x_0.

    Too large an R costs rounds, too small a one costs gradients. The estimate takes one sum over
    all agents.

    Parameters
    ----------
    context : Context
        The run.
    gradients : Array
        The gradients g_i at x_0, one row per agent.
    L, A_norm : float
        The smoothness constant and ||A||.
    V : float, optional
        V(x_0, x*). Default: that of ten gradient steps, and no larger than X allows.
    variances : Array, optional
        E|g_i - grad ft_i|^2 if the gradients are sampled. They are subtracted from the squares.
    gradient : callable, optional
        Returns the gradients at another point; used without a network only.

    Returns
    -------
    REstimate
        R and V.

    Notes
    -----
    A^T z* = mean - g_i at the optimum, so ||z*|| lies between h/||A|| and h/sigma, where h^2 =
    sum_i |g_i - mean|^2 and sigma is the smallest nonzero singular value of A. The estimate is
    their geometric mean, with h at x_0.

    Without a network, R is Theorem 3's sqrt(U/(8 V)), with U and V from `estimate_distances`.
    """
    if isinstance(context.coupling, Operator):
        U, V = estimate_distances(context, context.coupling, gradients, L=L, A_norm=A_norm, V=V, gradient=gradient)
        return REstimate(_positive(guarantees.saddle_R(U=U, V=V)), V)
    network, domain = context.network, context.domain
    m, gradients = network.m, to_numpy(gradients)
    squares = dot(gradients, gradients)[:, None]
    noises = np.zeros_like(squares) if variances is None else to_numpy(variances)[:, None]
    # Where X is a point, rounding may be below 0.
    widths = np.maximum(to_numpy(doubles(domain.distance_bound(context.x0))), 0.0)[:, None]
    sums = network.agree(np.hstack([gradients, squares, noises, widths]), "sum")
    total, (square, noise, width) = sums[:-3], map(float, sums[-3:])
    mean_part = _without_noise(float(total @ total) / m, noise / m)
    square = _without_noise(square, noise)
    if V is None:
        V = min(0.5 * square * (STEPS_AWAY / L) ** 2, width) if L > 0 else width
    if square == 0 or L == 0 or A_norm == 0 or V == 0:
        return REstimate(1.0, V)
    # The theorem's 1 has no unit: a tenth of the mean gradient replaces it.
    spread = math.sqrt(max(0.0, square - mean_part)) + 0.1 * math.sqrt(mean_part)
    scale = math.sqrt(_smallest_singular_value(context) * A_norm)
    return REstimate(_positive(spread / scale / (4 * math.sqrt(V))), V)


def _positive(R: float) -> float:
    """Return R, or 1 if it could not be estimated."""
    return R if 0 < R < math.inf else 1.0


def _smallest_singular_value(context: Context) -> float:
    return cast(NetworkCoupling, context.coupling).smallest_singular_value()


def _without_noise(square: float, noise: float) -> float:
    """Return a square without its noise, or a tenth of it if little more than noise is left."""
    return max(square - noise, 0.1 * square)


def practical_R(context: Context, R: float, *, L: float) -> float:
    """Return the R to run with, which without a network is larger than the theorem's."""
    return _PRACTICE * R if isinstance(context.coupling, Operator) and L > 0 else R


class Probe(NamedTuple):
    """Theorem 2's R, sigma and |x_0 - x*| as estimated from that many samples per agent at x_0."""

    R: float
    sigma: float
    distance: float
    samples: int


def probe(context: Context, *, L: float, A_norm: float, distance: float | None, budget: int | None) -> Probe:
    """Estimate the parameters of Theorem 2 from single samples at x_0: two sums over all agents.

    Parameters
    ----------
    context : Context
        The run.
    L, A_norm : float
        The smoothness constant and ||A||.
    distance : float or None
        |x_0 - x*|, stacked, if it is known.
    budget : int or None
        Samples per agent available in all. At most a tenth of them (but at least two) are used;
        without a network as many again, at a point that nearly satisfies the constraints.

    Returns
    -------
    Probe
        The estimates, and the number of samples that they took.
    """
    samples = _PROBE_SAMPLES if budget is None else max(2, min(_PROBE_SAMPLES, budget // 10))
    mean, variances = moments(lambda j: context.oracle.sampled_gradient(context.x0, j, 1), samples)
    V = None if distance is None else distance**2 / 2
    taken = samples

    def gradient(x: Array) -> Array:
        nonlocal taken
        taken += samples
        return context.oracle.sampled_gradient(x, taken - samples, samples)

    R, V = estimate_R(context, mean, L=L, A_norm=A_norm, V=V, variances=variances / samples, gradient=gradient)
    R = practical_R(context, R, L=L)
    total = float(context.network.agree(variances[:, None], "sum")[0])
    # If all gradients are zero, any distance will do.
    distance = math.sqrt(2 * V) or 1.0
    # R of Theorem 2 has 4 |x_0 - x*| where Theorem 1 has 4 sqrt(V).
    return Probe(R / math.sqrt(2), math.sqrt(total / context.network.m), distance, taken)


def mixing_R(context: Context, schedule: Sampled) -> float:
    """Return the R with which the last inner loop is long enough to average the agents' noise.

    Information spreads over the network in about ||A||/sigma exchanges, sigma the smallest nonzero
    singular value of A.
    """
    if schedule.A_norm == 0 or isinstance(context.coupling, Operator):
        return 0.0
    # T_k is proportional to R; with a large R rounding T_k up does not matter.
    long = replace(schedule, R=1e6 * schedule.L / schedule.A_norm)
    spreads = schedule.A_norm / _smallest_singular_value(context)
    return _MIXINGS * spreads * long.R / long.row(long.N).T


def estimate_distances(
    context: Context,
    coupling: Operator,
    y: Array,
    *,
    L: float,
    A_norm: float,
    V: float | None = None,
    gradient: Callable[[Array], Array] | None = None,
) -> Distances:
    """Estimate U(z_0, z*) and V(x_0, x*) of a problem with an operator in place of a network.

    Parameters
    ----------
    context : Context
        The run.
    coupling : Operator
        A, and the dual term.
    y : Array
        The gradient at x_0.
    L, A_norm : float
        The smoothness constant and ||A||.
    V : float, optional
        V(x_0, x*), if it is known.
    gradient : callable, optional
        Returns the gradient at the point x_1 below. Default: y is used there.

    Returns
    -------
    Distances
        U and V, no larger than compact sets allow.

    Notes
    -----
    x_1 approximates the feasible point nearest to x_0, by a few least squares iterations. If Z is
    compact, U is bounded by its diameter. Otherwise z* is taken from A^T z = -(gradient of f at
    x_1), by as many iterations. The rest of the gradient is followed for ten steps. z_0 and x_0 are
    the default starting points: after a warm start both distances are shorter by about the same
    factor, and R is their ratio.
    """
    domain, duals, mu, x0 = context.domain, coupling.duals, context.problem.mu, context.x0
    z_start, x_start = duals.start(), domain.start()
    U_most, V_most = duals.U_bound(z_start), float(np.sum(to_numpy(domain.distance_bound(x_start))))
    if math.isfinite(U_most) and (V is not None or (L == 0 and math.isfinite(V_most))):
        return Distances(U_most, V_most if V is None else V)
    x1 = _nearest_feasible(coupling, domain.project, x0)
    # The gradient of a linear f is the same everywhere.
    xp = array_namespace(x0)
    moved = L > 0 and bool(xp.any(x1 != x0))
    slope = (gradient(x1) if moved and gradient is not None else y) + mu * domain.grad_nu(x1)
    z = z_start if math.isfinite(U_most) else least_squares(coupling.A, -slope.reshape(-1), adjoint=True)[None]
    z = as_dtype(z, context.problem.dtype)
    left = slope + coupling.A.apply_adjoint(z[0]).reshape(x0.shape)
    if V is None:
        steps = min((factor / size for factor, size in ((STEPS_AWAY, L), (1.0, mu)) if size > 0), default=0.0)
        moves = [float(np.sum(to_numpy(domain.V(start, x1)))) for start in (x_start, x0)]
        V = min((math.sqrt(2 * max(moves)) + steps * _dual_norm(domain, left)) ** 2 / 2, V_most)
        if steps == 0:
            # The gradient of a linear f gives no length: take the size of X, or |x_1|.
            V = V_most if math.isfinite(V_most) else max(V, float(xp.sum(x1**2)) / 2)
    # The theorem's 1 has no unit: a tenth of the gradient replaces it.
    little = 0.1 * _dual_norm(domain, slope) / A_norm if A_norm > 0 else 0.0
    U = U_most if math.isfinite(U_most) else (math.sqrt(2 * duals.U(z_start, z)) + little) ** 2 / 2
    return Distances(U, V)


def _dual_norm(domain: Domain, gradient: Array) -> float:
    """Return the norm of a gradient that is dual to nu's."""
    xp = array_namespace(gradient)
    norm = np.linalg.norm if is_numpy(gradient) else xp.linalg.vector_norm
    if domain.norm == 1:
        return float(norm(xp.max(xp.abs(gradient), axis=1)))
    weights = domain.weights
    return float(norm(gradient if weights is None else gradient / xp.sqrt(weights)))


def _nearest_feasible(coupling: Operator, project: Callable[[Array], Array], x0: Array) -> Array:
    """Approximate the nearest feasible point; x_0 itself if A x is not constrained."""
    if not coupling.duals.is_constrained:
        return x0
    violation = coupling.duals.violation(coupling.A.apply(x0.reshape(-1))[None])
    if violation is None or not bool(array_namespace(violation).any(violation != 0)):
        return x0
    step = as_dtype(least_squares(coupling.A, -violation[0]), coupling.A.dtype)
    return project(x0 + step.reshape(x0.shape))
