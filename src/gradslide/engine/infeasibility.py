"""Tests for problems without a solution: contradictory constraints, or an objective without a lower bound."""

import math

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import as_dtype, length, total, vdot
from gradslide._support.errors import InputError
from gradslide._support.types import Array
from gradslide.network.coupling import Dual
from gradslide.problems.linear_map import LinearMap, least_squares
from gradslide.problems.saddle import Saddle

# Points this many times as far away as the run has come are not feasible, or the objective still falls there.
_FAR = 1e6
# Strengths kappa of the pull towards the center of nu that are tried, relative to the best guess.
_PULLS = 4.0 ** np.arange(-6, 7)
# A ray whose image leaves the constraints by this share of the longest image that there is does so by rounding.
_ROUNDING = 1e-12
# A ray this much shorter than the way that the run has come is rounding.
_NOTHING = 1e-9
# How often parts of a ray that leave X or the constraints are taken off.
_CORRECTIONS = 3
# Points of X this many times as far away as the run has come show in which directions it goes on for ever.
_BEYOND = 1e12
# A smooth f that still falls this many gradient steps away counts as unbounded.
_STEPS = 1e10


def is_infeasible(problem: Saddle, A: LinearMap, x: Array, products: int) -> bool:
    """Return whether the constraints are infeasible, proved by a multiplier (Farkas).

    A search from x finds the point x' with about the smallest violation, which is the multiplier z. Every feasible
    point has <A ., z> <= h(z). So there is none with nu(.) <= N if, for some kappa >= 0, the minimum over X of
    <A^T z, .> + kappa nu exceeds h(z) + kappa N. If X is bounded, kappa = 0 proves it; else N is 10^12 times nu(x').

    Parameters
    ----------
    problem : Saddle
        The problem.
    A : LinearMap
        Its operator, which counts products.
    x : Array
        Where the search starts.
    products : int
        How many products the search may take.
    """
    domain = problem.domain.without_penalty()
    x, z = _nearest_to_feasible(problem, A, x, products)
    w = A.apply_adjoint(z.reshape(-1)).reshape(x.shape)
    h = problem.duals.term.value(z)
    rounding = 1e3 * float(np.finfo(problem.dtype).eps) * (abs(h) + length(w) * length(x))
    reach = _FAR**2 * total(domain.nu(x))

    def proves(kappa: float) -> bool:
        return total(domain.linear_minimum(w, kappa)) - kappa * reach > h + rounding

    # Without a set the best pull has |A^T z|^2/(2 kappa) = kappa N.
    guess = length(w) / math.sqrt(2 * reach) if reach > 0 else 0.0
    return proves(0.0) or (guess > 0 and any(proves(float(kappa)) for kappa in guess * _PULLS))


def _nearest_to_feasible(problem: Saddle, A: LinearMap, x: Array, products: int) -> tuple[Array, Array]:
    """A point of X with about the smallest violation of the constraints, and that violation (1, k).

    Accelerated projected gradients with the step found by doubling; a restart where momentum and step disagree.
    """

    def violation(point: Array) -> Array:
        found = problem.duals.violation(A.apply(point.reshape(-1))[None])
        assert found is not None
        return found

    L, t, ahead, z = 1e-12, 1.0, x, violation(x)
    spent = 1
    z_ahead = z
    while spent < products and length(z) > 0:
        slope = A.apply_adjoint(z_ahead.reshape(-1)).reshape(x.shape)
        spent += 1
        while True:
            new = problem.domain.project(ahead - slope / L)
            z_new, step = violation(new), new - ahead
            spent += 1
            expected = length(z_ahead) ** 2 / 2 + float(vdot(slope, step)) + L / 2 * length(step) ** 2
            if length(z_new) ** 2 / 2 <= expected * (1 + 1e-12) or spent >= products:
                break
            curvature = length(z_new - z_ahead) ** 2 / max(length(step) ** 2, 1e-300)
            L = max(2 * L, min(curvature, 1e6 * L))
        if float(vdot(step, new - x)) < 0:
            t, ahead, z_ahead = 1.0, new, z_new
        else:
            t, t_before = (1 + math.sqrt(1 + 4 * t * t)) / 2, t
            momentum = (t_before - 1) / t
            ahead = new + momentum * (new - x)
            z_ahead = violation(ahead) if momentum > 0 else z_new
            spent += int(momentum > 0)
        x, z = new, z_new
    return x, z


def is_unbounded(problem: Saddle, A: LinearMap, x: Array, dual: Dual, norm: float) -> bool:
    """Return whether the objective falls along a ray in X and the constraints, 10^6 times as far as the run has come.

    The ray is v = x - x_0, less its parts that leave X or the constraints. f must fall by more than <A v, z> for any z
    that is 10^6 times as long as multipliers of that slope; a smooth f, 10^10 gradient steps away.

    Parameters
    ----------
    problem : Saddle
        The problem.
    A : LinearMap
        Its operator, which counts products.
    x : Array
        The iterate.
    dual : Dual
        Its multipliers.
    norm : float
        ||A||.
    """
    domain = problem.domain
    if domain.bounded or problem.mu > 0:
        return False
    start = domain.start()
    ray = _endless(problem, start, x - start)
    if not problem.duals.is_constrained:
        return _falls(problem, start, x, ray) and _falls_past_all_kinks(problem, start, x, x + _FAR * ray)
    if not _falls(problem, start, x, ray):
        return False
    rounding = max(_ROUNDING, 100 * float(np.finfo(problem.dtype).eps)) * norm
    for _ in range(_CORRECTIONS):
        out = problem.duals.term.escape(A.apply(ray.reshape(-1))[None])[0]
        if length(out) <= rounding * length(ray):
            break
        ray = _endless(problem, start, ray - as_dtype(least_squares(A, out), problem.dtype).reshape(x.shape))
    stretch = length(problem.duals.term.escape(A.apply(ray.reshape(-1))[None]))
    z, w = length(dual.s), length(dual.w)
    multiplier = max(z, length(problem.loss.gradient(x)) * z / w) if w > 0 else 0.0
    return stretch <= rounding * length(ray) and _falls(problem, start, x, ray, _FAR * multiplier * stretch)


def _endless(problem: Saddle, start: Array, ray: Array) -> Array:
    """The ray without its parts that leave X sooner or later."""
    return (problem.domain.project(start + _BEYOND * ray) - start) / _BEYOND


def _falls(problem: Saddle, start: Array, x: Array, ray: Array, held: float = 0.0) -> bool:
    """Whether X contains the ray, and f still falls far out on it, by more than `held`."""
    domain, far, xp = problem.domain, x + _FAR * ray, array_namespace(x)
    if length(ray) <= _NOTHING * length(x - start):
        return False
    if not bool(xp.all(domain.contains(far, 1e-9 * float(xp.max(xp.abs(far)))))):
        return False
    try:
        L = float(np.max(problem.smoothness()))
    except InputError:
        # A loss of the user's own may not know it.
        L = 0.0
    if L > 0 and L * length(far - start) < _STEPS * length(problem.loss.gradient(start)):
        return False
    gradient = problem.loss.gradient(far)
    penalty = total(domain.r(far)) / _FAR
    return float(vdot(gradient, ray)) + penalty + held < -1e-6 * length(gradient) * length(ray)


def _falls_past_all_kinks(problem: Saddle, start: Array, x: Array, far: Array) -> bool:
    """Whether f + max over Z falls all the way to a point where the offset of h is negligible."""
    offset = length(problem.duals.term.offset + 0 * problem.duals.start())
    if not problem.loss.has_value or length(problem.product(far)) < 10 * offset:
        return False
    first, near, last = (
        total(problem.objective(point)) + problem.duals.conjugate(problem.product(point)) for point in (start, x, far)
    )
    return last - near < -_FAR / 2 * abs(near - first) < 0
