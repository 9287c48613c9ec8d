"""Residuals of the optimality conditions of saddle point problems and linear constraints."""

import math

from array_api_compat import array_namespace

from gradslide._support.arrays import doubles, total, vdot
from gradslide._support.types import Array
from gradslide.domains import Euclidean
from gradslide.problems.linear_map import LinearMap
from gradslide.problems.saddle import Saddle
from gradslide.results.certificate import SaddleKKT
from gradslide.theory.certificates import Values

# Farther away than any bound.
_ENDLESS = 1e25


def saddle_residuals(
    problem: Saddle, x: Array, z: Array, gradient: Array, product: Array, pull: Array, value: float | None
) -> SaddleKKT:
    """Return the relative residuals of a primal and dual point.

    Parameters
    ----------
    problem : Saddle
        The problem.
    x : ndarray, shape (m, d)
        The primal point.
    z : ndarray, shape (1, k)
        The dual point.
    gradient : ndarray, shape (m, d)
        The gradients of the ft_i at x.
    product : ndarray, shape (1, k)
        A x.
    pull : ndarray, shape (m, d)
        A^T z.
    value : float or None
        The objective at x, for the scale of the complementarity; None if it is not known.

    Returns
    -------
    SaddleKKT
    """
    domain, duals, mu = problem.domain, problem.duals, problem.mu
    violation = duals.violation(product)
    if violation is not None:
        primal = _largest(violation) / (1 + max(_largest(product), _largest(product - violation)))
    else:
        step = (1 + _largest(z)) / (1 + _largest(product))
        primal = _largest(z - duals.ascend(z, product, 1 / step)) / (1 + _largest(z))
    slope = gradient + pull
    step = (1 + _largest(x)) / (1 + max(_largest(gradient), _largest(pull)))
    nearby = domain.prox(domain.grad_nu(x) / step - slope, mu + 1 / step)
    dual = _largest(x - nearby) / (1 + _largest(x))
    gap_of_x, gap_of_z = _gap_of_x(problem, x, nearby, slope), _gap_of_z(problem, z, product, violation)
    size = 0.0 if value is None else abs(value)
    primal, dual = (each if not math.isnan(each) else math.inf for each in (primal, dual))
    return SaddleKKT(primal, dual, None if gap_of_z is None else (gap_of_x + gap_of_z) / (1 + size))


def residuals_at(problem: Saddle, source: Values, A: LinearMap, x: Array, z: Array) -> SaddleKKT:
    """Return the relative residuals at a point where nothing is known yet: one gradient and two products.

    Parameters
    ----------
    problem : Saddle
        The problem.
    source : Oracle or Loss
        Values and gradients of the ft_i.
    A : LinearMap
        Products.
    x : ndarray, shape (m, d)
        The primal point.
    z : ndarray, shape (1, k)
        The dual point.

    Returns
    -------
    SaddleKKT
    """
    value = None
    product, pull = A.apply(x.reshape(-1))[None], A.apply_adjoint(z[0]).reshape(x.shape)
    if problem.loss.has_value:
        values, gradient = source.value_and_gradient(x)
        found = total(problem.objective(x, values)) + problem.duals.conjugate(product)
        value = found if math.isfinite(found) else None
    else:
        gradient = source.gradient(x)
    return saddle_residuals(problem, x, z, gradient, product, pull, value)


def _largest(v: Array) -> float:
    """Return the largest absolute entry."""
    return float(array_namespace(v).max(abs(v)))


def _gap_of_x(problem: Saddle, x: Array, nearby: Array, slope: Array) -> float:
    """How far x is from minimizing mu nu + r + <slope, .>: over X if the minimum is finite, else up to `nearby`."""
    domain, mu = problem.domain, problem.mu

    def at(u: Array) -> float:
        ridge = total(mu * domain.nu(u)) if mu > 0 else 0.0
        return ridge + total(domain.r(u)) + float(vdot(doubles(slope), doubles(u)))

    least = total(domain.linear_minimum(slope, mu))
    gap = at(x) - (least if math.isfinite(least) else at(_lowest(problem, nearby, slope)))
    return math.inf if math.isnan(gap) else max(0.0, gap)


def _lowest(problem: Saddle, nearby: Array, slope: Array) -> Array:
    """Where r + <slope, .> is smallest, with `nearby` for coordinates in which it has no minimum."""
    domain, xp = problem.domain, array_namespace(nearby)
    if not (isinstance(domain, Euclidean) and domain.separable):
        return nearby
    beyond = domain.beyond_penalty(slope)
    lowest = domain.without_penalty().project(-_ENDLESS * xp.sign(beyond))
    return xp.where(abs(lowest) < _ENDLESS, lowest, nearby)


def _gap_of_z(problem: Saddle, z: Array, product: Array, violation: Array | None) -> float | None:
    """How far z is from maximizing <A x, .> - h; None where the maximum is not known."""
    duals = problem.duals
    feasible = product if violation is None else product - violation
    gap = duals.conjugate(feasible) + duals.h(z) - float(vdot(doubles(feasible), doubles(z)))
    # The values of terms that users wrote may be unknown.
    return None if math.isnan(gap) else abs(gap)
