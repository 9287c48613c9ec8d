"""Residuals of the optimality conditions of saddle point problems and linear constraints."""

import math
from typing import Protocol

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import dot, doubles, to_numpy, total, vdot
from gradslide._support.types import Array
from gradslide.domains import Euclidean
from gradslide.problems.linear_map import LinearMap
from gradslide.problems.problem import Objective
from gradslide.problems.saddle import DualSpace, Saddle
from gradslide.results.certificate import SaddleKKT
from gradslide.theory.certificates import Values

# Farther away than any bound.
_ENDLESS = 1e25


class Reductions(Protocol):
    """Sums and maxima over all processes that hold blocks of x."""

    def total(self, numbers: Array) -> Array: ...

    def largest(self, numbers: Array) -> Array: ...


class Here:
    """Reductions where all blocks of x are in one process."""

    def total(self, numbers: Array) -> Array:
        """Return the numbers."""
        return numbers

    def largest(self, numbers: Array) -> Array:
        """Return the numbers."""
        return numbers


def saddle_residuals(
    problem: Objective,
    duals: DualSpace,
    x: Array,
    z: Array,
    gradient: Array,
    product: Array,
    pull: Array,
    value: float | None,
    reductions: Reductions | None = None,
) -> SaddleKKT:
    """Return the relative residuals of a primal and dual point.

    Parameters
    ----------
    problem : Objective
        Set, ridge and penalty of the blocks of x here.
    duals : DualSpace
        The dual term.
    x : ndarray, shape (m, d)
        The primal point.
    z : ndarray, shape (1, k)
        The dual point, which all processes know.
    gradient : ndarray, shape (m, d)
        The gradients of the ft_i at x.
    product : ndarray, shape (1, k)
        A x, which all processes know.
    pull : ndarray, shape (m, d)
        A^T z.
    value : float or None
        The objective at x, for the scale of the complementarity; None if it is not known.
    reductions : Reductions, optional
        Over the processes that hold other blocks of x. Default: there are none.

    Returns
    -------
    SaddleKKT
    """
    reductions = Here() if reductions is None else reductions
    violation = duals.violation(product)
    if violation is not None:
        primal = _largest(violation) / (1 + max(_largest(product), _largest(product - violation)))
    else:
        step = (1 + _largest(z)) / (1 + _largest(product))
        primal = _largest(z - duals.ascend(z, product, 1 / step)) / (1 + _largest(z))
    sizes = reductions.largest(np.array([_largest(each) for each in (x, gradient, pull)]))
    size, *slopes = sizes.tolist()
    if not all(math.isfinite(each) for each in (size, *slopes)):
        return SaddleKKT(math.inf, math.inf, math.inf)
    step = (1 + size) / (1 + max(slopes))
    slope = gradient + pull
    nearby = problem.domain.prox(problem.domain.grad_nu(x) / step - slope, problem.mu + 1 / step)
    dual = float(reductions.largest(np.array([_largest(x - nearby)]))[0]) / (1 + size)
    gap_of_x = float(reductions.total(np.array([_gap_of_x(problem, x, nearby, slope)]))[0])
    gap_of_z = _gap_of_z(duals, z, product, violation)
    primal, dual, gap_of_x = (each if not math.isnan(each) else math.inf for each in (primal, dual, gap_of_x))
    scale = 1 + (0.0 if value is None else abs(value))
    return SaddleKKT(primal, dual, None if gap_of_z is None else (gap_of_x + gap_of_z) / scale)


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
    return saddle_residuals(problem, problem.duals, x, z, gradient, product, pull, value)


def _largest(v: Array) -> float:
    """Return the largest absolute entry."""
    return float(array_namespace(v).max(abs(v)))


def _gap_of_x(problem: Objective, x: Array, nearby: Array, slope: Array) -> float:
    """How far x is from minimizing mu nu + r + <slope, .>: over X_i if that minimum is finite, else up to `nearby`."""
    domain, mu = problem.domain, problem.mu

    def at(u: Array) -> Array:
        ridge = mu * doubles(domain.nu(u)) if mu > 0 else 0.0
        return to_numpy(ridge + doubles(domain.r(u)) + dot(doubles(slope), doubles(u)))

    least = to_numpy(doubles(domain.linear_minimum(slope, mu)))
    if not np.isfinite(least).all():
        least = np.where(np.isfinite(least), least, at(_lowest(problem, nearby, slope)))
    return float(np.sum(np.maximum(at(x) - least, 0.0)))


def _lowest(problem: Objective, nearby: Array, slope: Array) -> Array:
    """Where r + <slope, .> is smallest, with `nearby` for coordinates in which it has no minimum."""
    domain, xp = problem.domain, array_namespace(nearby)
    if not (isinstance(domain, Euclidean) and domain.separable):
        return nearby
    beyond = domain.beyond_penalty(slope)
    lowest = domain.without_penalty().project(-_ENDLESS * xp.sign(beyond))
    return xp.where(abs(lowest) < _ENDLESS, lowest, nearby)


def _gap_of_z(duals: DualSpace, z: Array, product: Array, violation: Array | None) -> float | None:
    """How far z is from maximizing <A x, .> - h; None where the maximum is not known."""
    feasible = product if violation is None else product - violation
    gap = duals.conjugate(feasible) + duals.h(z) - float(vdot(doubles(feasible), doubles(z)))
    # The values of terms that users wrote may be unknown.
    return None if math.isnan(gap) else abs(gap)
