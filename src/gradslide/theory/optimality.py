"""Residuals of the optimality conditions of saddle point problems and linear constraints."""

import math
from collections.abc import Generator, Sequence
from typing import NamedTuple, Protocol

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

# Bounds that are this many times as far away as x are none.
_FAR = 1e8
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


class Known(NamedTuple):
    """A primal and dual point, and what is known there.

    Attributes
    ----------
    x : ndarray, shape (m, d)
        The primal point.
    z : ndarray, shape (1, k)
        The dual point.
    gradient : ndarray, shape (m, d)
        The gradients of the ft_i at x.
    product : ndarray, shape (1, k)
        A x, where z is.
    pull : ndarray, shape (m, d)
        A^T z.
    value : float or None
        The objective at x, for the scale of the complementarity; None if it is not known.
    lower : float
        A lower bound on the optimum that follows from z and the gradient.
    curved : ndarray or None
        H x with the second derivatives at x, where they are known: the size of what may cancel in a gradient.
    """

    x: Array
    z: Array
    gradient: Array
    product: Array
    pull: Array
    value: float | None
    lower: float = -math.inf
    curved: Array | None = None


class Found(NamedTuple):
    """What all processes know of a point: its residuals, and the lower bound."""

    kkt: SaddleKKT
    lower: float


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
    unit: float = 1.0,
    curved: Array | None = None,
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
    unit : float
        Gradients and objectives of this size are small, see `unit_of`.
    curved : ndarray, optional
        H x with the second derivatives at x.

    Returns
    -------
    SaddleKKT
    """
    point = Known(x, z, gradient, product, pull, value, curved=curved)
    return residuals_of(problem, duals, [point], Here() if reductions is None else reductions, unit=unit)[0].kkt


def residuals_of(
    problem: Objective,
    duals: DualSpace,
    points: Sequence[Known],
    reductions: Reductions,
    counted: Array | None = None,
    unit: float = 1.0,
) -> list[Found]:
    """Return the relative residuals of several points: two maxima and a sum over all processes, however many.

    Parameters
    ----------
    problem : Objective
        Set, ridge and penalty of the blocks of x here.
    duals : DualSpace
        The dual term.
    points : sequence of Known
        The points.
    reductions : Reductions
        Over the processes that hold other blocks of x.
    counted : ndarray, shape (1, k), optional
        If z is spread over processes, 1 for the entries that this one counts in sums, and 0 for
        others. Values and bounds are then its parts of them, too.
    unit : float
        Gradients and objectives of this size are small, see `unit_of`.

    Returns
    -------
    list of Found
    """
    searches = [_search(problem, duals, point, counted, unit) for point in points]
    asked = {number: next(search) for number, search in enumerate(searches)}
    found: dict[int, Found] = {}
    while asked:
        # What is asked for depends on what all processes know: all of them ask for the same.
        reduce = reductions.largest if next(iter(asked.values())).is_largest else reductions.total
        ends = np.cumsum([len(each.numbers) for each in asked.values()])
        answers = np.split(reduce(np.concatenate([each.numbers for each in asked.values()])), ends[:-1])
        asked_before, asked = asked, {}
        for number, answer in zip(asked_before, answers, strict=True):
            try:
                asked[number] = searches[number].send(answer)
            except StopIteration as end:
                found[number] = end.value
    return [found[number] for number in range(len(points))]


class _Asked(NamedTuple):
    """Numbers whose maxima, or sums, over all processes are needed."""

    is_largest: bool
    numbers: Array


def _search(
    problem: Objective, duals: DualSpace, point: Known, counted: Array | None, unit: float
) -> Generator[_Asked, Array, Found]:
    """The residuals of a point; yields what all processes have to reduce."""
    x, z, gradient, product, pull, value, lower, curved = point
    violation = duals.violation(product)
    excess = product if violation is None else violation
    parts = (x, gradient, pull, gradient if curved is None else curved, z, product, excess, product - excess)
    sizes = [_largest(each) for each in parts]
    size, *slopes, z_size, product_size, violated, allowed = (yield _Asked(True, np.array(sizes))).tolist()
    if not all(math.isfinite(each) for each in (size, *slopes)):
        return Found(SaddleKKT(math.inf, math.inf, math.inf), -math.inf)
    step = (1 + size) / (unit + max(slopes))
    slope = gradient + pull
    nearby = problem.domain.prox(problem.domain.grad_nu(x) / step - slope, problem.mu + 1 / step)
    moves = [_largest(x - nearby)]
    if violation is None:
        moves.append(_largest(z - duals.ascend(z, product, (1 + product_size) / (1 + z_size))))
    dual, *z_moves = (yield _Asked(True, np.array(moves))).tolist()
    dual /= 1 + size
    primal = violated / (1 + max(product_size, allowed)) if violation is not None else z_moves[0] / (1 + z_size)
    gap_of_x = _gap_of_x(problem, x, nearby, slope)
    gap_of_z = _gap_of_z(duals, z if counted is None else counted * z, product, violation)
    if counted is None:
        (gap_of_x,) = (yield _Asked(False, np.array([gap_of_x]))).tolist()
    else:
        gaps = [gap_of_x, math.nan if gap_of_z is None else gap_of_z, value or 0.0, lower]
        gap_of_x, total_of_z, total_value, lower = (yield _Asked(False, np.array(gaps))).tolist()
        gap_of_z, value = None if gap_of_z is None else total_of_z, None if value is None else total_value
    primal, dual, gap_of_x = (each if not math.isnan(each) else math.inf for each in (primal, dual, gap_of_x))
    scale = unit + (0.0 if value is None else abs(value))
    kkt = SaddleKKT(primal, dual, None if gap_of_z is None else (gap_of_x + gap_of_z) / scale)
    return Found(kkt, lower)


def unit_of(largest: float) -> float:
    """Return what counts as a small gradient or objective: 1, or less where the objective has small units.

    Parameters
    ----------
    largest : float
        The largest entry of the gradient at the start.

    Returns
    -------
    float
    """
    return largest if 0 < largest < 1 else 1.0


def residuals_at(
    problem: Saddle, source: Values, A: LinearMap, x: Array, z: Array, unit: float | None = None
) -> SaddleKKT:
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
    unit : float, optional
        See `unit_of`. Default: found with another gradient, at the minimizer of nu.

    Returns
    -------
    SaddleKKT
    """
    unit = unit_of(_largest(source.gradient(problem.domain.start()))) if unit is None else unit
    value = None
    product, pull = A.apply(x.reshape(-1))[None], A.apply_adjoint(z[0]).reshape(x.shape)
    if problem.loss.has_value:
        values, gradient = source.value_and_gradient(x)
        found = total(problem.objective(x, values)) + problem.duals.conjugate(product)
        value = found if math.isfinite(found) else None
    else:
        gradient = source.gradient(x)
    return saddle_residuals(problem, problem.duals, x, z, gradient, product, pull, value, unit=unit)


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
    has_far_ends = mu == 0 and isinstance(domain, Euclidean) and domain.separable
    if has_far_ends or not np.isfinite(least).all():
        # Ends that are very far away are none: what is left of the slope by rounding would count.
        lowest = at(_lowest(problem, x, nearby, slope))
        least = np.maximum(least, lowest) if has_far_ends else np.where(np.isfinite(least), least, lowest)
    return float(np.sum(np.maximum(at(x) - least, 0.0)))


def _lowest(problem: Objective, x: Array, nearby: Array, slope: Array) -> Array:
    """Where r + <slope, .> is smallest, with `nearby` for coordinates in which that is nowhere or very far away."""
    domain, xp = problem.domain, array_namespace(nearby)
    if not (isinstance(domain, Euclidean) and domain.separable):
        return nearby
    beyond = domain.beyond_penalty(slope)
    lowest = domain.without_penalty().project(-_ENDLESS * xp.sign(beyond))
    return xp.where(abs(lowest) < _FAR * (1 + _largest(x)), lowest, nearby)


def _gap_of_z(duals: DualSpace, z: Array, product: Array, violation: Array | None) -> float | None:
    """How far z is from maximizing <A x, .> - h; None where the maximum is not known."""
    feasible = product if violation is None else product - violation
    gap = duals.conjugate(feasible) + duals.h(z) - float(vdot(doubles(feasible), doubles(z)))
    # The values of terms that users wrote may be unknown.
    return None if math.isnan(gap) else abs(gap)
