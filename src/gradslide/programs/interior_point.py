"""An interior point method for convex quadratic programs with linear constraints.

    minimize  x'Px/2 + q'x   over x and v = [K x, x]   subject to  lower <= v <= upper

The method follows the homogeneous embedding with Mehrotra's predictor and corrector as in

P. J. Goulart, Y. Chen, "Clarabel: An interior-point solver for conic programs with quadratic
objectives", 2024,

for intervals only. The embedding always has a solution: of the program, or a certificate that there
is none. What it needs of P and K is in a `KKTSystem`, so that blocks of x may live elsewhere.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, cast

import numpy as np
from scipy import linalg

from gradslide._support.types import Array

# Relative residuals at which a program counts as solved, and those to which iterations go on if they can.
ACCURATE, _SHARP = 1e-8, 1e-12
# A ray counts as a certificate if it violates its conditions by this share.
_CERTAIN = 1e-8
# By this share, where iterations cannot go on and no point was nearly a solution.
_NEARLY_CERTAIN, _FAR_OFF = 1e-7, 1e-3
_MOST_ITERATIONS = 100
# The share of the way to the boundary that a step takes.
_SHARE = 0.99
# Steps shorter than this make no progress; after so many iterations without a better point the search ends.
_SHORTEST, _PATIENCE = 1e-6, 12
# What a solution of the KKT system misses after refinement, relative to the right-hand side.
REFINED = 1e-13
# Where refinement costs rounds, a step may miss this share of the residuals, and relative to their scales no more than
# the second number.
_FORCING, _COARSEST = 1e-2, 1e-3


class Outcome(Enum):
    """How the search ended."""

    SOLVED = "the residuals are small"
    INFEASIBLE = "a combination of the constraints proves that they contradict each other"
    UNBOUNDED = "the objective falls for ever along a direction that the constraints allow"
    INACCURATE = "iterations ended before the residuals were small"


class QPResult(NamedTuple):
    """What `minimize_qp` returns.

    Attributes
    ----------
    outcome : Outcome
        How the search ended.
    x : ndarray, shape (n,)
        The minimizer; the direction, if the program is unbounded.
    multipliers : ndarray, shape (k + n,)
        Of the intervals for K x and for x, positive at upper ends; the combination of constraints
        that proves it, if the program is infeasible.
    residual : float
        The largest of the relative primal and dual residuals and the relative gap.
    iterations : int
        Factorizations of the KKT matrix.
    products : int
        Products with K or its transpose.
    """

    outcome: Outcome
    x: Array
    multipliers: Array
    residual: float
    iterations: int
    products: int = 0

    def after(self, other: "QPResult") -> "QPResult":
        """Return this result with the costs of another search, too.

        Parameters
        ----------
        other : QPResult
            Of the same program, in another form.

        Returns
        -------
        QPResult
        """
        return self._replace(iterations=other.iterations + self.iterations, products=other.products + self.products)


class Measure(NamedTuple):
    """A number that depends linearly on a solution of the KKT system.

    Attributes
    ----------
    value : callable
        From the number of a right-hand side, dx, y and [K dx, dx] to the number; of shared rows it
        disregards y and values.
    of_variables, of_rows : ndarray, shapes (n,) and (k,)
        By how much it changes with dx and y.
    """

    value: Callable[[int, Array, Array, Array], float]
    of_variables: Array
    of_rows: Array


class Solved(NamedTuple):
    """One solution of the KKT system.

    Attributes
    ----------
    dx : ndarray, shape (n,)
        Variables.
    y : ndarray, shape (k,)
        Multipliers of the rows.
    values : ndarray, shape (k + n,)
        [K dx, dx].
    measured : float
        The sum of `measure` over all processes.
    """

    dx: Array
    y: Array
    values: Array
    measured: float


class KKTSystem(ABC):
    """The matrices of a program, as the interior point method uses them.

    Vectors of constraints have k + n entries, for K x and for x. In several processes each one holds
    some blocks of x with rows of their own. The first rows of K may be shared: they are sums over
    all blocks, and every process knows their multipliers. One sum over all processes carries what is
    to be added up at the same time, and maxima that were started before.

    Attributes
    ----------
    shared : int
        The number of rows that all processes have in common.
    """

    shared: int = 0

    @abstractmethod
    def hessian(self, x: Array) -> Array:
        """Return P x."""

    @abstractmethod
    def values(self, x: Array) -> Array:
        """Return [K x, x]; of shared rows what the blocks here add to them."""

    @abstractmethod
    def adjoint(self, multipliers: Array) -> Array:
        """Return [K', I] times multipliers."""

    @abstractmethod
    def factor(self, weights: Array, is_equation: Array) -> None:
        """Prepare `solve` for D = diag(weights); equations have infinite weights."""

    @abstractmethod
    def solve(
        self, rights: Sequence[tuple[Array, Array]], measure: Measure, tolerances: Sequence[tuple[float, float]]
    ) -> list[Solved]:
        """Solve P dx + D_x dx + K' y = a, K dx - y / D = b (for equations K dx = b).

        Parameters
        ----------
        rights : sequence of (a, b), of shapes (n,) and (k,)
            Right-hand sides of variables and rows.
        measure : Measure
            It is summed over all processes.
        tolerances : sequence of (float, float)
            What variables and rows of each solution may miss, where it takes rounds to do better.

        Returns
        -------
        list of Solved

        Raises
        ------
        LinAlgError
            In all processes, if the matrix is singular in floating point.
        """

    def completed(self, v: Array, numbers: Sequence[float]) -> tuple[Array, list[float]]:
        """Return v with sums over all processes in its shared rows, and the sums of numbers."""
        return v, list(numbers)

    def start_largest(self, numbers: Sequence[float]) -> None:
        """Start maxima over all processes, which the next sum or `solve` carries."""
        self._started = list(numbers)

    def largest(self) -> list[float]:
        """Return the maxima of the numbers that were started last."""
        return self._started

    def largest_now(self, numbers: Sequence[float]) -> list[float]:
        """Return maxima over all processes at once."""
        return list(numbers)


def interior_point(system: KKTSystem, q: Array, lower: Array, upper: Array, *, sharp: float = _SHARP) -> QPResult:
    """Minimize x'Px/2 + q'x subject to lower <= [K x, x] <= upper.

    Parameters
    ----------
    system : KKTSystem
        P and K, in units in which their entries are about 1.
    q : ndarray, shape (n,)
        Linear term.
    lower, upper : ndarray, shape (k + n,)
        Intervals; equal ends are equations, which only rows of K may have. Every row of K has an end.
    sharp : float
        The residual at which iterations end.

    Returns
    -------
    QPResult
    """
    sides = _Sides.of(lower, upper, system.shared)
    try:
        point = _start(system, q, sides)
    except (RuntimeError, linalg.LinAlgError):
        return QPResult(Outcome.INACCURATE, np.zeros(len(q)), np.zeros(len(lower)), math.inf, 1)
    best: QPResult | None = None
    since_best, nearest, tau = 0, math.inf, 1.0
    for iteration in range(1, _MOST_ITERATIONS + 1):
        at = _Residuals.at(system, q, sides, point)
        if min(at.contradiction, at.descent) < nearest:
            # It comes nearer to a proof that there is no solution.
            nearest, since_best = min(at.contradiction, at.descent), -1
        if point.tau > 2 * tau:
            # After a first step that went too far it takes a while to come back.
            since_best = -1
        tau = point.tau
        if best is None or at.relative < best.residual:
            since_best = 0
            best = QPResult(Outcome.INACCURATE, point.x / point.tau, at.multipliers / point.tau, at.relative, iteration)
        else:
            since_best += 1
        if at.relative <= sharp or not math.isfinite(at.mu):
            break
        if at.contradiction <= _CERTAIN and best.residual > ACCURATE:
            return QPResult(Outcome.INFEASIBLE, point.x, at.multipliers, at.relative, iteration)
        if at.descent <= _CERTAIN and best.residual > ACCURATE:
            return QPResult(Outcome.UNBOUNDED, point.x, at.multipliers, at.relative, iteration)
        if since_best >= _PATIENCE or (at.relative > best.residual and best.residual <= ACCURATE):
            break
        try:
            step = _step(system, q, sides, point, at)
        except (RuntimeError, linalg.LinAlgError):
            # Singular in floating point.
            break
        if step is None:
            break
        point = step
    assert best is not None
    if best.residual > _FAR_OFF and min(at.contradiction, at.descent) <= _NEARLY_CERTAIN:
        outcome = Outcome.INFEASIBLE if at.contradiction <= at.descent else Outcome.UNBOUNDED
        return QPResult(outcome, point.x, at.multipliers, at.relative, iteration)
    return best._replace(outcome=Outcome.SOLVED) if best.residual <= ACCURATE else best


class _Part(NamedTuple):
    """The constraints that all processes share, or those that are this one's own: sides, equations, entries of v."""

    sides: Array
    equations: Array
    values: slice


class _Sides(NamedTuple):
    """Every finite end of an interval as a constraint sign v <= bound; equations apart.

    Attributes
    ----------
    entries, sign, bound : ndarray
        Which entry of v = [K x, x], whether its upper (1) or lower (-1) end, and sign times the end.
    equations : ndarray
        Entries of v with equal ends.
    targets : ndarray
        These ends.
    size : int
        Length of v.
    own, shared : _Part
        Constraints of this process, and those of all.
    """

    entries: Array
    sign: Array
    bound: Array
    equations: Array
    targets: Array
    size: int
    own: _Part
    shared: _Part

    @classmethod
    def of(cls, lower: Array, upper: Array, shared: int) -> "_Sides":
        is_equation = lower == upper
        above, below = (np.flatnonzero(np.isfinite(ends) & ~is_equation) for ends in (upper, lower))
        equations = np.flatnonzero(is_equation)
        entries = np.concatenate([above, below])
        sign = np.concatenate([np.ones(len(above)), -np.ones(len(below))])
        bound = np.concatenate([upper[above], -lower[below]])
        own = _Part(entries >= shared, equations >= shared, slice(shared, None))
        all_share = _Part(~own.sides, ~own.equations, slice(0, shared))
        return cls(entries, sign, bound, equations, lower[equations], len(lower), own, all_share)

    def of_values(self, v: Array) -> Array:
        """Return sign v of each constraint."""
        return self.sign * v[self.entries]

    def summed(self, z: Array) -> Array:
        """Return the sums of z over the constraints of each entry of v."""
        return np.bincount(self.entries, weights=z, minlength=self.size).astype(np.float64)

    def held(self, part: _Part, z: Array, y: Array) -> float:
        """Return bound'z + targets'y over some constraints."""
        return float(self.bound[part.sides] @ z[part.sides] + self.targets[part.equations] @ y[part.equations])


@dataclass(frozen=True)
class _Point:
    """Iterates of the embedding: x/tau and z/tau are those of the program."""

    x: Array
    s: Array
    z: Array
    y: Array
    tau: float
    kappa: float


@dataclass(frozen=True)
class _Residuals:
    """The residuals of the embedding at a point, and how good it is.

    `scales` are those of dual and primal residuals. `contradiction` and `descent` are small where z
    proves that the program is infeasible, and x that it is unbounded.
    """

    x: Array
    s: Array
    y: Array
    tau: float
    Px: Array
    multipliers: Array
    mu: float
    curvature: float
    relative: float
    scales: tuple[float, float]
    contradiction: float
    descent: float

    @classmethod
    def at(cls, system: KKTSystem, q: Array, sides: _Sides, point: _Point) -> "_Residuals":
        x, s, z, y, tau, kappa = point.x, point.s, point.z, point.y, point.tau, point.kappa
        multipliers = sides.summed(sides.sign * z)
        multipliers[sides.equations] = y
        Px, pull, v = system.hessian(x), system.adjoint(multipliers), system.values(x)
        r_x = Px + pull + tau * q

        def sizes(part: _Part) -> list[float]:
            chosen, equations = part.sides, part.equations
            bound, targets = sides.bound[chosen], sides.targets[equations]
            gap_of_sides, missed = (sides.of_values(v) + s)[chosen], v[sides.equations[equations]]
            residuals = gap_of_sides - tau * bound, missed - tau * targets
            return [*map(size_of, (*residuals, gap_of_sides, missed, bound, targets)), size_of(v[part.values])]

        def sums(part: _Part) -> list[float]:
            chosen = part.sides
            terms = np.abs(sides.bound[chosen]) @ z[chosen] + np.abs(sides.targets[part.equations]) @ np.abs(
                y[part.equations]
            )
            return [sides.held(part, z, y), float(terms), float(s[chosen] @ z[chosen]), float(np.count_nonzero(chosen))]

        z_sizes = [size_of(multipliers[part.values]) for part in (sides.own, sides.shared)]
        system.start_largest([*map(size_of, (r_x, Px, pull, q, x)), z_sizes[0], *sizes(sides.own)])
        v, found = system.completed(v, [float(q @ x), float(x @ Px), *sums(sides.own)])
        qx, xPx = found[:2]
        pairs = zip(found[2:], sums(sides.shared), strict=True)
        held, terms, complements, number = (own + shared for own, shared in pairs)
        dual, P_size, pull_size, q_size, x_size, z_size, *of_constraints = system.largest()
        z_size = max(z_size, z_sizes[1])
        above, off, sides_size, missed_size, b_size, f_size, v_size = map(max, of_constraints, sizes(sides.shared))
        primal_value = xPx / (2 * tau**2) + qx / tau
        dual_value = -xPx / (2 * tau**2) - held / tau
        gap = abs(primal_value - dual_value) / (1 + min(abs(primal_value), abs(dual_value)))
        scales = tau + max(P_size, pull_size, tau * q_size), tau + max(v_size, tau * max(b_size, f_size))
        relative = max(max(above, off) / scales[1], dual / scales[0], gap)
        # Feasible points may be as far away as the ends in the combination are, and as the iterates.
        far = max(1.0, x_size / z_size, terms / z_size) if z_size else 1.0
        return cls(
            r_x,
            sides.of_values(v) + s - tau * sides.bound,
            v[sides.equations] - tau * sides.targets,
            qx + held + kappa + xPx / tau,
            Px,
            multipliers,
            (complements + tau * kappa) / (number + 1),
            xPx / tau**2,
            relative if math.isfinite(relative) else math.inf,
            scales,
            pull_size * far / -held if held < 0 else math.inf,
            max(P_size, sides_size, missed_size) / -qx if qx < 0 else math.inf,
        )


class _Right(NamedTuple):
    """A right-hand side of the Newton system: of variables, sides and equations."""

    x: Array
    sides: Array
    equations: Array


class _Found(NamedTuple):
    """Its solution, and bound'dz + targets'dy + slope'dx over all processes."""

    dx: Array
    dz: Array
    dy: Array
    product: float


def _start(system: KKTSystem, q: Array, sides: _Sides) -> _Point:
    """The minimizer with squared violations as penalties, and slacks and multipliers moved into their cone."""
    weights = sides.summed(np.ones(len(sides.entries)))
    weights[sides.equations] = math.inf
    system.factor(weights, np.isinf(weights))
    right = _Right(-q, sides.bound, sides.targets)
    tolerances = [(_COARSEST, _COARSEST)]
    (found,) = _solved(system, sides, weights, np.ones(len(sides.entries)), [right], q, tolerances)
    s, z = _inside(system, sides, [-found.dz, found.dz])
    return _Point(found.dx, s, z, found.dy, 1.0, 1.0)


def _inside(system: KKTSystem, sides: _Sides, vectors: Sequence[Array]) -> list[Array]:
    """Return vectors over sides, each moved by a constant so that all entries are well above 0."""

    def lowest(part: _Part) -> list[float]:
        return [float(np.max(-v[part.sides], initial=-math.inf)) for v in vectors]

    def sums(part: _Part) -> list[float]:
        return [float(np.maximum(v[part.sides], 0.0).sum()) for v in vectors] + [float(np.count_nonzero(part.sides))]

    system.start_largest(lowest(sides.own))
    found = system.completed(np.zeros(0), sums(sides.own))[1]
    *positive, number = (own + shared for own, shared in zip(found, sums(sides.shared), strict=True))
    moved = []
    for v, total, own, shared in zip(vectors, positive, system.largest(), lowest(sides.shared), strict=True):
        least, target = max(own, shared), max(1.0, 0.1 * total / max(1.0, number))
        moved.append(v + max(0.0, target + least) if math.isfinite(least) else v)
    return moved


def _step(system: KKTSystem, q: Array, sides: _Sides, point: _Point, at: _Residuals) -> _Point | None:
    """Return the next point; None if the step has no length."""
    x, s, z, y, tau, kappa = point.x, point.s, point.z, point.y, point.tau, point.kappa
    squares = s / z
    weights = sides.summed(1 / squares)
    weights[sides.equations] = math.inf
    system.factor(weights, np.isinf(weights))
    slope = q + 2 * at.Px / tau
    share = max(REFINED, min(_COARSEST, _FORCING * at.relative))
    of_moving = share * at.scales[0], share * at.scales[1]
    # This solution enters the step with a factor of about tau.
    of_constant = of_moving[0] / tau, of_moving[1] / tau

    def solved(rights: Sequence[_Right], tolerances: Sequence[tuple[float, float]]) -> list[_Found]:
        return _solved(system, sides, weights, squares, rights, slope, tolerances)

    def steps(
        moving: _Found, a: Array, keep: float, target_tau: float
    ) -> tuple[Array, Array, Array, Array, float, float]:
        """dx, ds, dz, dy, dtau and dkappa from the part that does not depend on dtau."""
        a_kappa = -target_tau / tau
        dtau = (-keep * at.tau - a_kappa - moving.product) / (constant.product - at.curvature - kappa / tau)
        pairs = zip(moving[:3], constant[:3], strict=True)
        dx, dz, dy = (one + dtau * other for one, other in pairs)
        return dx, a - squares * dz, dz, dy, dtau, a_kappa - kappa / tau * dtau

    def reach(ds: Array, dz: Array, dtau: float, dkappa: float) -> float:
        """The step to the boundary, at most 1."""
        of_own, of_shared = (
            max(float(np.max(-d[part.sides] / v[part.sides], initial=0.0)) for d, v in ((ds, s), (dz, z)))
            for part in (sides.own, sides.shared)
        )
        most = max(system.largest_now([of_own])[0], of_shared, -dtau / tau, -dkappa / kappa)
        return min(1.0, 1 / most) if most > 0 else 1.0

    rights = [_Right(-q, sides.bound, sides.targets), _Right(-at.x, s - at.s, -at.y)]
    constant, moving = solved(rights, [of_constant, of_moving])
    _, ds, dz, _, dtau, dkappa = steps(moving, -s, 1.0, tau * kappa)
    # The share of mu that the next step aims at depends on how far this one gets.
    sigma = (1 - reach(ds, dz, dtau, dkappa)) ** 3
    keep, target = 1 - sigma, s + (ds * dz - sigma * at.mu) / z
    (moving,) = solved([_Right(-keep * at.x, target - keep * at.s, -keep * at.y)], [of_moving])
    target_tau = tau * kappa + dtau * dkappa - sigma * at.mu
    dx, ds, dz, dy, dtau, dkappa = steps(moving, -target, keep, target_tau)
    alpha = _SHARE * reach(ds, dz, dtau, dkappa)
    if not alpha > _SHORTEST:
        return None
    tau, kappa = tau + alpha * dtau, kappa + alpha * dkappa
    # The embedding is homogeneous: all parts may be divided by one number.
    size = max(tau, kappa)
    x, s, z, y = ((v + alpha * dv) / size for v, dv in ((x, dx), (s, ds), (z, dz), (y, dy)))
    return _Point(x, s, z, y, tau / size, kappa / size)


def _solved(
    system: KKTSystem,
    sides: _Sides,
    weights: Array,
    squares: Array,
    rights: Sequence[_Right],
    slope: Array,
    tolerances: Sequence[tuple[float, float]],
) -> list[_Found]:
    """Solve P dx + [K', I] y = a, sign v - squares dz = b, v = f for equations, with v = [K dx, dx]."""
    n = len(slope)
    k = sides.size - n
    pairs = []
    for right in rights:
        held = sides.summed(sides.sign * right.sides / squares)
        rows = np.where(np.isinf(weights[:k]), 0.0, held[:k] / np.where(weights[:k] > 0, weights[:k], 1.0))
        rows[sides.equations] = right.equations
        pairs.append((right.x + held[k:], rows))

    def multipliers(right: _Right, y: Array, v: Array) -> Array:
        dz = (sides.of_values(v) - right.sides) / squares
        # Weights are huge where a constraint is active: multipliers of rows are those that were solved for.
        missed = -sides.summed(sides.sign * dz)
        missed[:k] += y
        missed[k:] = 0.0
        return cast(Array, dz + sides.sign * missed[sides.entries] / (squares * weights[sides.entries]))

    def product(number: int, dx: Array, y: Array, v: Array) -> float:
        dz = multipliers(rights[number], y, v)
        return float(slope @ dx) + sides.held(sides.own, dz, y[sides.equations])

    held = sides.summed(sides.sign * sides.bound / squares)
    of_rows = held[:k] / np.where(weights[:k] > 0, weights[:k], 1.0)
    of_rows[sides.equations] = sides.targets
    measure = Measure(product, slope + held[k:], of_rows)
    found = []
    for right, (dx, y, v, measured) in zip(rights, system.solve(pairs, measure, tolerances), strict=True):
        dz, dy = multipliers(right, y, v), y[sides.equations]
        found.append(_Found(dx, dz, dy, measured + sides.held(sides.shared, dz, dy)))
    return found


def size_of(v: Array) -> float:
    """Return the largest absolute value of an entry."""
    return float(np.max(np.abs(v), initial=0.0))
