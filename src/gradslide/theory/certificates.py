"""Lower and upper bounds on the optimum of a network, and residuals of its conditions of optimality.

Weak duality: for c_i = y_i + w_i with sum_i w_i = 0, and every x,
sum_i f_i(x) >= sum_i [min over X_i of mu nu + r + <c_i, .>] - sum_i ft_i*(y_i).
Each agent has its part of that. What must be added up is written once, for decisions and for records.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import dot, doubles, is_numpy, lengths, like, row_blocks, to_numpy
from gradslide._support.types import Array
from gradslide.domains import Domain
from gradslide.network.collectives import presumed
from gradslide.network.coupling import Dual
from gradslide.network.protocol import Network, Reduction
from gradslide.problems.problem import Objective
from gradslide.results.certificate import KKT

Reduce = Callable[[Array, Reduction], Array]

# Operations behind every number that a bound is made of, those in sums apart.
_OPERATIONS = 16
# A mean that is no further outside of X is there by rounding.
_OUTSIDE = 64
_EPS = float(np.finfo(np.float64).eps)
# Entries of an array from which on agents are looked at a few at a time.
_LARGE = 1 << 18


class DualEvidence(NamedTuple):
    """From what a lower bound on the optimum follows: of one outer iteration, or averages over several.

    y: the gradients y_k. conjugate: ft*(y_k) = <x_under_k, y_k> - ft(x_under_k), one per row of x; NaN where it is not
    known, or where y is no exact gradient. dual: z and A^T z. averaged: how many outer iterations y and conjugate are
    averages of, 0 for those of one; None is taken for all of them. Averages gather rounding errors.
    """

    y: Array
    conjugate: Array
    dual: Dual
    averaged: int | None = None

    def rows(self, rows: slice) -> "DualEvidence":
        """That of some of the agents."""
        dual = Dual(self.dual.s[rows], self.dual.w[rows])
        return DualEvidence(self.y[rows], self.conjugate[rows], dual, self.averaged)


class Values(Protocol):
    """Who gives values and gradients of ft_i: an oracle that counts them, or the loss."""

    def value(self, x: Array) -> Array: ...

    def gradient(self, x: Array) -> Array: ...


@dataclass(frozen=True)
class Found:
    """What all agents know alike of x; None where it was not asked for.

    point: the mean, or the nearest point of X where rounding or the method left it outside; upper: the value there.
    also: the sum of what was to be added up besides.
    """

    mean: Array
    point: Array | None = None
    lower: float | None = None
    upper: float | None = None
    apart: float | None = None
    kkt: KKT | None = None
    also: float | None = None


class CertificateEvaluator:
    """Adds up over all agents what each of them knows of its part.

    reduce: `network.agree`, whose control rounds are counted, for decisions; `network.observe`, which is free, for
    records. values: who gives values and gradients, counted or not. scale: of the KKT residuals, and known: traits, if
    they are known already. is_free: it does not matter how often `reduce` is called.
    """

    def __init__(
        self,
        problem: Objective,
        network: Network,
        reduce: Reduce,
        values: Values,
        scale: float | None = None,
        known: "Traits | None" = None,
        is_free: bool = False,
    ) -> None:
        self._problem, self._network, self._reduce, self._values = problem, network, reduce, values
        self._is_free = is_free
        self._m = network.m
        self._traits = known
        self.scale = scale

    @property
    def traits(self) -> "Traits":
        # No cached_property: its lock, one for all examiners, would keep agents in other threads from agreeing.
        if self._traits is None:
            self._traits = traits(self._problem, self._network)
        return self._traits

    def examine(
        self,
        x: Array,
        evidence: Sequence[DualEvidence],
        *,
        gap: bool = False,
        apart: bool = False,
        kkt: bool = False,
        start: Array | None = None,
        also: Array | None = None,
    ) -> Found:
        """gap: lower and upper bounds. apart: max_i |x_i - mean|. kkt: residuals, from `start` if they have no scale
        yet. also: a number of each agent, to be added up. One sum of vectors, one of numbers, and one maximum; one
        value, or one gradient (two the first time)."""
        problem, xp = self._problem, array_namespace(x)
        gradient = doubles(self._values.gradient(x)) if kkt else None
        proves = gap and self.traits.has_lower_bound
        pulls = [doubles(each.dual.w) for each in evidence] if proves or kkt else []
        if gradient is not None and not pulls:
            # Without multipliers those that fit best at consensus: mean gradient - own gradient.
            pulls = [-gradient]
        mean, *excesses = self._means([doubles(x), *pulls])

        def centred(k: int, rows: slice) -> Array:
            # Rounding and lost messages leave a sum of multipliers, which no bound may use.
            return pulls[k][rows] - like(excesses[k], x)

        columns: dict[str, list[Array]] = {}
        point = None
        if proves:
            length = float(np.linalg.norm(mean))

            def lower(k: int) -> Array:
                def part(piece: Objective | Piece, rows: slice) -> Array:
                    each, pull = evidence[k].rows(rows), centred(k, rows)
                    return lower_part(piece, each, pull, x[rows], length, self._m)

                return _in_pieces(problem, x, part)

            columns["lower"] = [lower(k) for k in range(len(evidence))]
        if gap and self.traits.is_common:
            point = feasible(problem, mean)
            at = xp.broadcast_to(like(point, x), x.shape)
            columns["upper"] = [problem.objective(at, self._values.value(at))]
        if gradient is not None:
            columns["kkt"] = [
                _stationarity(problem, x, lambda rows, k=k: gradient[rows] + centred(k, rows))  # type: ignore[misc]
                for k in range(len(pulls))
            ]
            if self.scale is None:
                assert start is not None
                slope = doubles(self._values.gradient(start))
                columns["start"] = [_stationarity(problem, start, lambda rows: slope[rows])]
        if also is not None:
            columns["also"] = [also]
        totals = self._totals(columns)
        distance = None
        if apart or kkt:
            away = _in_pieces(problem, x, lambda piece, rows: lengths(x[rows] - like(mean, x)))
            distance = float(self._reduce(away, "max"))
        if "start" in totals:
            self.scale = math.sqrt(totals["start"][0])
        return Found(
            mean,
            point,
            lower=max(_finite(totals.get("lower", ())), default=-math.inf) if gap else None,
            upper=min(_finite(totals.get("upper", ())), default=math.inf) if gap else None,
            apart=distance,
            kkt=self._residuals(totals["kkt"], distance) if kkt else None,
            also=totals["also"][0] if also is not None else None,
        )

    def first_values(self, start: Array) -> Array | None:
        """f_i at the start, where the values there were the first that the method asked for; else None."""
        values = getattr(self._values, "first_values", None)
        return None if values is None else self._problem.objective(start, values)

    def _residuals(self, squares: list[float], distance: float | None) -> KKT:
        assert distance is not None
        assert self.scale is not None
        return KKT(math.sqrt(min(squares)), distance, self.scale)

    def _means(self, arrays: list[Array]) -> list[Array]:
        """Their means over all agents, by one agreement; or one by one, where nobody counts and memory is saved."""
        if self._is_free:
            return [self._reduce(each, "sum") / self._m for each in arrays]
        sums = self._reduce(array_namespace(arrays[0]).concat(arrays, axis=1), "sum") / self._m
        return np.split(sums, len(arrays))

    def _totals(self, columns: dict[str, list[Array]]) -> dict[str, list[float]]:
        """The sums of all columns over all agents, by one agreement."""
        every = [column for group in columns.values() for column in group]
        if not every:
            return {name: [] for name in columns}
        rows = array_namespace(*every).stack([doubles(column) for column in every], axis=1)
        sums = iter(self._reduce(rows, "sum").tolist())
        return {name: [next(sums) for _ in group] for name, group in columns.items()}


class Traits(NamedTuple):
    """Whether all agents have one domain, and every agent its part of a lower bound."""

    is_common: bool
    has_lower_bound: bool


def traits(problem: Objective, network: Network) -> Traits:
    """Where some agents live in other processes, domains are one if they do the same to fixed points."""
    domain, m, d = problem.domain, problem.m, problem.d
    here = Traits(domain.common, problem.has_lower_bound)
    if len(network.agents) == network.m:
        return here
    probe = np.broadcast_to(np.random.default_rng(0).normal(size=d), (m, d))
    marks = [domain.prox(size * probe, 1.0) for size in (1.0, 1e6)]
    marks += [f(marks[0])[:, None] for f in (domain.nu, domain.r)]
    rows = np.hstack([doubles(mark) for mark in marks])
    missing = np.broadcast_to([float(not trait) for trait in here], (m, len(here)))
    largest = presumed(network, np.hstack([missing, rows, -rows]), "max")
    most, least = largest[len(here) :].reshape(2, -1)
    same = bool(np.allclose(most, -least, rtol=1e-6, atol=1e-9))
    return Traits(same and not largest[0], not largest[1])


class Piece(NamedTuple):
    """A few agents of a problem."""

    domain: Domain
    mu: float
    d: int
    dtype: Any
    rows_per_agent: Array | None


def _in_pieces(problem: Objective, x: Array, part: Callable[[Objective | Piece, slice], Array]) -> Array:
    """What each agent adds to a sum, (agents,); a few agents at a time, where arrays are so large that others of their
    size would be felt."""
    if not is_numpy(x) or x.size <= _LARGE:
        return part(problem, slice(None))
    counts, parts = problem.rows_per_agent, []
    for rows in row_blocks(x):
        domain = problem.domain.take(np.arange(problem.m)[rows])
        piece = Piece(domain, problem.mu, problem.d, problem.dtype, None if counts is None else counts[rows])
        parts.append(part(piece, rows))
    return np.concatenate(parts)


def lower_part(problem: Objective | Piece, evidence: DualEvidence, pull: Array, x: Array, mean: float, m: int) -> Array:
    """What each agent here adds to the lower bound, less what rounding may have added to it, (agents,).

    pull: w_i, which add up to 0 over all m agents. x, mean: the agents' points, and the length of their mean, for the
    size of what was rounded.

    Rounding. With eps of the problem's precision, y_i and ft_i*(y_i) carry relative errors of eps for each operation
    behind them, and sums over n numbers about sqrt(n) eps more. A running average rounds by eps/2 in each of k
    iterations and forgets it no slower than with weights 1/k: k eps/4 in all. They are relative to |ft_i*| + |y_i| |x|,
    which bounds the value that ft_i* was made from, and to the terms of the minimum: |c_i| |x| and mu |grad nu| |x|
    where it lies. Sums over the agents are in double precision, at worst m + d errors of that.
    """
    domain, y, conjugate = problem.domain, doubles(evidence.y), doubles(evidence.conjugate)
    c = y + pull
    least, terms = _minimum(domain, c, problem.mu, x)
    size, y_size = lengths(x) + mean, lengths(y)
    rows = problem.rows_per_agent
    sums = math.sqrt(problem.d) + (0.0 if rows is None else like(np.sqrt(rows), x))
    errors = _OPERATIONS + sums + (evidence.averaged or 0) / 4
    rounding = float(np.finfo(problem.dtype).eps) * errors * (abs(conjugate) + y_size * size + terms)
    rounding += _EPS * (m + problem.d) * ((y_size + lengths(pull)) * size + terms)
    return least - conjugate - rounding


def stationarity_part(problem: Objective | Piece, x: Array, slope: Array) -> Array:
    """|x_i - argmin over X_i of mu nu + r + <slope_i, .> + V(x_i, .)|^2, (agents,)."""
    x = doubles(x)
    step = x - problem.domain.prox(problem.domain.grad_nu(x) - slope, problem.mu + 1.0)
    return dot(step, step)


def _stationarity(problem: Objective, x: Array, slope: Callable[[slice], Array]) -> Array:
    """slope: of the agents in these rows."""
    return _in_pieces(problem, x, lambda piece, rows: stationarity_part(piece, x[rows], slope(rows)))


def feasible(problem: Objective, mean: Array) -> Array:
    """The mean itself, if only rounding keeps it outside of the common X; else the point of X nearest to it."""
    mean = np.asarray(mean, dtype=problem.dtype)
    nearest = to_numpy(problem.domain.project(problem.placed(mean[None])))[0]
    rounding = _OUTSIDE * float(np.finfo(problem.dtype).eps)
    outside = float(np.max(np.abs(nearest - mean)))
    return mean if outside <= rounding * float(np.max(np.abs(mean))) else nearest


def _minimum(domain: Domain, c: Array, mu: float, x: Array) -> tuple[Array, Array]:
    """min over X of mu nu + r + <c, .>, and the size of what was added up and rounded for it, (agents,)."""
    penalty = getattr(domain, "penalty", None)
    is_strong = mu > 0 or (penalty is not None and penalty.is_strong)
    xp = array_namespace(c)
    if not (domain.euclidean and is_strong):
        least = domain.linear_minimum(c, mu)
        size, far = lengths(x), xp.sqrt(2 * domain.distance_bound(doubles(x)))
        return least, abs(least) + lengths(c) * (size + xp.where(xp.isfinite(far), far, size))
    # A small mu sends the first step far out, and what is left of X then has errors of that size; a second, short step
    # from where it led has not.
    first = domain.prox(-c, mu)
    size, slope = lengths(first), lengths(c)
    short = xp.where(size > 0, slope / xp.where(size > 0, size, 1.0), mu)[:, None]
    at = domain.prox(short * domain.grad_nu(first) - c, mu + short)
    least = mu * domain.nu(at) + domain.r(at) + xp.vecdot(c, at)
    return least, abs(least) + (slope + mu * lengths(domain.grad_nu(at))) * (lengths(at) + size)


def _finite(numbers: Iterable[float]) -> list[float]:
    return [number for number in numbers if math.isfinite(number)]
