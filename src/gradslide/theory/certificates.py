"""Bounds on the optimum of a network problem, and residuals of its optimality conditions.

Weak duality: for c_i = y_i + w_i with sum_i w_i = 0, and every x,

    sum_i f_i(x) >= sum_i [min over X_i of mu nu + r + <c_i, .>] - sum_i ft_i*(y_i).

Each agent computes its part of the right-hand side. The sums over all agents are written once, for
decisions and for records.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import dot, doubles, is_numpy, lengths, like, on_device, row_blocks, to_numpy
from gradslide._support.errors import InputError
from gradslide._support.types import Array, DType
from gradslide.domains import Domain, Euclidean
from gradslide.network.collectives import reduce_constant
from gradslide.network.coupling import Dual
from gradslide.network.protocol import Network, Reduction
from gradslide.oracles import Oracle
from gradslide.problems.model import can_model, from_upper, minimize_model, upper
from gradslide.problems.problem import Objective
from gradslide.results.certificate import KKT

# Rounding of a mean over the agents, relative to its size.
_MEAN_ROUNDING = 32 * float(np.finfo(np.float64).eps)
# Operations behind every number in a bound, not counting those in sums.
_OPERATIONS = 16
# A mean outside of X by at most this many rounding errors counts as inside.
_OUTSIDE = 64
_EPS = float(np.finfo(np.float64).eps)
# Entries of an array from which on agents are evaluated a few at a time.
_LARGE = 1 << 18
# The largest dimension, and the largest number of entries in this process, for which Hessians are summed up.
_MODEL_DIMENSION, _MODEL_ENTRIES = 500, 1 << 25


class DualEvidence(NamedTuple):
    """A dual point from which a lower bound on the optimum follows.

    Attributes
    ----------
    y : Array
        Gradients y_i, of one outer iteration or averaged over several.
    conjugate : Array
        ft_i*(y_i) = <x_under_i, y_i> - ft_i(x_under_i), shape (agents,). NaN where it is unknown,
        or where y is not an exact gradient.
    dual : Dual
        z and A^T z.
    averaged : int or None
        The number of outer iterations over which y and the conjugate are averaged; 0 for those of
        one iteration, None for all. Averages accumulate rounding errors.
    reach : Array or None
        The largest |x_under_i| at which y_i and the conjugate were computed, shape (agents,): their
        rounding errors are relative to it. None for the largest of the run so far.
    """

    y: Array
    conjugate: Array
    dual: Dual
    averaged: int | None = None
    reach: Array | None = None


class Values(Protocol):
    """A source of values and gradients of ft_i: an oracle that counts them, or the loss."""

    def value(self, x: Array) -> Array: ...

    def value_in_doubles(self, x: Array) -> Array | None: ...

    def gradient(self, x: Array) -> Array: ...

    def value_and_gradient(self, x: Array) -> tuple[Array, Array]: ...

    def hessian(self, x: Array) -> Array: ...


@dataclass(frozen=True)
class Evaluation:
    """What all agents know alike about x; None for what was not requested.

    Attributes
    ----------
    mean : Array
        The mean of the x_i, shape (d,).
    point : Array or None
        The mean, or the nearest point of X if the mean lies outside by more than rounding. None if
        the agents have different domains.
    lower, upper : float or None
        Bounds on the optimum. `upper` is the objective at `point`.
    disagreement : float or None
        max_i |x_i - mean|.
    kkt : KKT or None
        Residuals of the optimality conditions.
    first : float or None
        The sum of all f_i at the start.
    """

    mean: Array
    point: Array | None = None
    lower: float | None = None
    upper: float | None = None
    disagreement: float | None = None
    kkt: KKT | None = None
    first: float | None = None


@dataclass(frozen=True)
class Request:
    """What an evaluation is to find out; see `CertificateEvaluator.evaluate`."""

    gap: bool = False
    disagreement: bool = False
    kkt: bool = False
    in_doubles: bool = False


class Parts(NamedTuple):
    """What each agent here adds to the reductions that end an evaluation.

    Attributes
    ----------
    names : tuple of str
        What the columns are parts of.
    columns : Array or None
        To be summed, shape (agents, names).
    away : Array or None
        Distances from the mean, of which the largest counts, shape (agents,).
    point : Array or None
        As in `Evaluation`.
    """

    names: tuple[str, ...]
    columns: Array | None
    away: Array | None
    point: Array | None


@dataclass(eq=False)
class CertificateEvaluator:
    """Compute bounds and residuals from each agent's part, by reductions over all agents.

    Parameters
    ----------
    problem : Objective
        The agents that live here.
    network : Network
        The network that connects them with all others.
    values : Values
        The source of values and gradients, counted or not.
    is_counted : bool
        Whether reductions are counted and exact, for decisions; else they are observed, for
        records. Means are then reduced one by one, which saves memory.

    Attributes
    ----------
    scale : float or None
        The norm of the KKT residual at the start, once it is known.
    first : float or None
        The sum of all f_i at the start, if the method asked for values there first.
    """

    problem: Objective
    network: Network
    values: Values
    is_counted: bool
    scale: float | None = field(default=None, init=False)
    first: float | None = field(default=None, init=False)
    _traits: "Traits | None" = field(default=None, init=False)

    def _reduce(self, rows: Array, reduction: Reduction) -> Array:
        """Reduce over all agents; what decides is summed exactly, on the host."""
        if self.is_counted:
            return self.network.agree(to_numpy(rows), reduction)
        return self.network.session.observe(rows, reduction)

    @property
    def traits(self) -> "Traits":
        """What can be proved, the same for all agents.

        Where some agents live in other processes, domains count as common if they map fixed points
        to the same points; that takes an agreement, once.
        """
        # No cached_property: its lock, shared by all evaluators, would keep agents in other threads from agreeing.
        if self._traits is not None:
            return self._traits
        problem, network, domain = self.problem, self.network, self.problem.domain
        is_modelled = (
            domain.common
            and can_model(domain)
            and problem.loss.has_hessian
            and problem.loss.has_value
            and problem.d <= _MODEL_DIMENSION
            and problem.m * problem.d**2 <= _MODEL_ENTRIES
        )
        found = Traits(domain.common, problem.has_lower_bound, is_modelled)
        if len(network.agents) < network.m:
            m, d = problem.m, problem.d
            probe = on_device(np.broadcast_to(np.random.default_rng(0).normal(size=d), (m, d)), problem.device)
            images = [domain.prox(size * probe, 1.0) for size in (1.0, 1e6)]
            images += [f(images[0])[:, None] for f in (domain.nu, domain.r)]
            rows = np.hstack([to_numpy(doubles(image)) for image in images])
            missing = np.broadcast_to([float(not trait) for trait in found], (m, len(found)))
            largest = reduce_constant(network, np.hstack([missing, rows, -rows]), "max")
            most, least = largest[len(found) :].reshape(2, -1)
            same = bool(np.allclose(most, -least, rtol=1e-6, atol=1e-9))
            found = Traits(same and not largest[0], not largest[1], same and not largest[2])
        self._traits = found
        return found

    def evaluate(
        self,
        x: Array,
        evidence: Sequence[DualEvidence],
        *,
        gap: bool = False,
        disagreement: bool = False,
        kkt: bool = False,
        start: Array | None = None,
        in_doubles: bool = False,
    ) -> Evaluation:
        """Evaluate what is requested at x.

        It takes one sum of vectors, one of numbers and one maximum; one value, or one gradient (two
        the first time).

        Parameters
        ----------
        x : Array
            The agents' points.
        evidence : sequence of DualEvidence
            Dual points. The best lower bound and the smallest residual count.
        gap : bool
            Whether to compute lower and upper bounds.
        disagreement : bool
            Whether to compute max_i |x_i - mean|.
        kkt : bool
            Whether to compute the residuals of the optimality conditions.
        start : Array, optional
            The starting point, where `scale` and `first` are computed if they are not known yet.
        in_doubles : bool
            Whether the upper bound is computed in double precision also where the problem has
            single precision, whose rounding can take it below the optimum.

        Returns
        -------
        Evaluation
            What all agents know alike.
        """
        request = Request(gap, disagreement, kkt, in_doubles)
        gradient = self.slopes(x, request)
        vectors = self.vectors(x, evidence, gradient, request)
        if self.is_counted:
            means = self.split_mean(self._reduce(array_namespace(x).concat(vectors, axis=1), "sum"))
        else:
            means = [self._reduce(each, "sum") / self.network.m for each in vectors]
        parts = self.parts(x, evidence, gradient, request, means, start)
        totals = [] if parts.columns is None else self._reduce(parts.columns, "sum").tolist()
        distance = None if parts.away is None else float(self._reduce(parts.away, "max"))
        return self.concluded(request, means[0], parts.names, totals, distance, parts.point)

    def slopes(self, x: Array, request: Request) -> Array | None:
        """Return the gradients at x, if the request needs them."""
        return doubles(self.values.gradient(x)) if request.kkt else None

    def vectors(
        self, x: Array, evidence: Sequence[DualEvidence], gradient: Array | None, request: Request
    ) -> list[Array]:
        """Return the vectors whose means come first: x, and the multipliers, if the request needs them."""
        needs_pulls = request.kkt or (request.gap and self.traits.has_lower_bound)
        pulls = [doubles(each.dual.w) for each in evidence] if needs_pulls else []
        if gradient is not None and not pulls:
            # Without multipliers, those that fit best at consensus: mean gradient - own gradient.
            pulls = [-gradient]
        return [doubles(x), *pulls]

    def split_mean(self, total: Array) -> list[Array]:
        """Return the means of `vectors` from the sum of their concatenation."""
        return np.split(total / self.network.m, len(total) // self.problem.d)

    def parts(
        self,
        x: Array,
        evidence: Sequence[DualEvidence],
        gradient: Array | None,
        request: Request,
        means: Sequence[Array],
        start: Array | None,
    ) -> Parts:
        """Return what each agent adds to the answer, once the means of `vectors` are known.

        start: where `scale` and `first` are computed, too; None if they are known, or under way.
        """
        problem, m, xp = self.problem, self.network.m, array_namespace(x)
        gap, kkt = request.gap, request.kkt
        proves = gap and self.traits.has_lower_bound
        (mean, *excesses), pulls = means, self.vectors(x, evidence, gradient, request)[1:]
        parts: dict[tuple[str, int], list[Array]] = {}
        away: list[Array] = []
        size = float(np.linalg.norm(mean))
        for piece, rows in _pieces(problem, x):
            for k, (pull, excess) in enumerate(zip(pulls, excesses, strict=True)):
                # Rounding and lost messages leave a nonzero sum of multipliers, which no bound may use.
                w = pull[rows] - like(excess, x)
                if proves and k < len(evidence):
                    given = evidence[k]
                    reach = None if given.reach is None else given.reach[rows]
                    own = given._replace(y=given.y[rows], conjugate=given.conjugate[rows], reach=reach)
                    parts.setdefault(("lower", k), []).append(lower_part(piece, own, w, x[rows], size, m))
                if gradient is not None:
                    squares = stationarity_part(piece, x[rows], gradient[rows] + w)
                    parts.setdefault(("kkt", k), []).append(squares)
            if request.disagreement or kkt:
                away.append(lengths(x[rows] - like(mean, x)))
        point = None
        if gap and self.traits.is_common:
            if request.in_doubles and problem.dtype != np.float64:
                point, upper = self._upper_in_doubles(mean, x)
            else:
                point = feasible(problem, mean)
                at = xp.broadcast_to(like(point, x), x.shape)
                upper = problem.objective(at, self.values.value(at))
            parts["upper", 0] = [upper]
        if kkt and self.scale is None and start is not None:
            if self.first is None and not gap and problem.loss.has_value:
                values, slope = self.values.value_and_gradient(start)
                parts["first", 0] = [problem.objective(start, values)]
            else:
                slope = self.values.gradient(start)
            slope = doubles(slope)
            parts["start", 0] = [
                stationarity_part(piece, start[rows], slope[rows]) for piece, rows in _pieces(problem, start)
            ]
        first_values = self.values.first_values if isinstance(self.values, Oracle) else None
        if gap and self.first is None and start is not None and first_values is not None:
            parts["first", 0] = [problem.objective(start, first_values)]
        columns = None
        if parts:
            columns = xp.stack([doubles(xp.concat(blocks)) for blocks in parts.values()], axis=1)
        return Parts(tuple(name for name, _ in parts), columns, xp.concat(away) if away else None, point)

    def concluded(
        self,
        request: Request,
        mean: Array,
        names: Sequence[str],
        sums: Sequence[float],
        distance: float | None,
        point: Array | None = None,
    ) -> Evaluation:
        """Return what all agents know once `Parts` are reduced; sums: of its columns, distance: the largest `away`."""
        totals: dict[str, list[float]] = {"lower": [], "upper": []}
        for name, total in zip(names, sums, strict=True):
            totals.setdefault(name, []).append(total)
        if "start" in totals:
            self.scale = math.sqrt(totals["start"][0])
        if "first" in totals:
            self.first = totals["first"][0]
        if distance is not None and distance <= _MEAN_ROUNDING * float(np.linalg.norm(mean)):
            # Answers that are all alike differ from their mean by its rounding.
            distance = 0.0
        residuals = None
        if request.kkt:
            assert distance is not None
            assert self.scale is not None
            residuals = KKT(math.sqrt(min(totals["kkt"])), distance, self.scale)
        return Evaluation(
            mean,
            point,
            lower=max(filter(math.isfinite, totals["lower"]), default=-math.inf) if request.gap else None,
            upper=min(filter(math.isfinite, totals["upper"]), default=math.inf) if request.gap else None,
            disagreement=distance,
            kkt=residuals,
        )

    def _upper_in_doubles(self, mean: Array, x: Array) -> tuple[Array, Array]:
        """The point of X nearest to the mean, and f_i there, both in double precision.

        A loss that has single precision only gives values that are rounded; each gets room for the roundings of its
        terms. Of these the values themselves are known, and how much roundings of x change a value v >= 0 that is
        L-smooth: its gradient is at most sqrt(2 L v) long.
        """
        problem, xp = self.problem, array_namespace(x)
        nearest = problem.domain.project(like(np.asarray(mean, dtype=np.float64)[None], x))
        at = xp.broadcast_to(nearest, x.shape)
        values = self.values.value_in_doubles(at)
        if values is not None:
            return to_numpy(nearest)[0], problem.objective(at, values)
        rounded = self.values.value(xp.broadcast_to(problem.placed(to_numpy(nearest)), x.shape))
        rows = problem.rows_per_agent
        errors = _OPERATIONS + math.sqrt(problem.d) + (0.0 if rows is None else like(np.sqrt(rows), x))
        values = doubles(rounded)
        try:
            L = like(problem.loss.smoothness(problem.domain.norm), x)
        except InputError:
            L = xp.zeros_like(values)
        terms = abs(values) + xp.sqrt(2 * L * abs(values)) * lengths(at)
        return to_numpy(nearest)[0], problem.objective(at, values + np.finfo(problem.dtype).eps * errors * terms)

    def with_error(self, kkt: KKT, mean: Array) -> KKT:
        """Add the estimated error of the objective at the mean, if the agents can estimate it.

        It takes one value, one gradient and one Hessian of every agent, and a sum over the agents.

        Parameters
        ----------
        kkt : KKT
            The residuals.
        mean : ndarray, shape (d,)
            The mean of the agents' points.

        Returns
        -------
        KKT
            The residuals with `error` and `objective`.
        """
        problem, m = self.problem, self.network.m
        if not self.traits.is_modelled:
            return kkt
        point = feasible(problem, mean)
        at = on_device(np.broadcast_to(point, (problem.m, problem.d)), problem.device)
        values, gradients = self.values.value_and_gradient(at)
        objectives, hessians = doubles(problem.objective(at, values)), upper(self.values.hessian(at))
        rows = array_namespace(at).concat([objectives[:, None], doubles(gradients), hessians], axis=1)
        objective, gradient, entries = np.split(self._reduce(rows, "sum"), [1, 1 + problem.d])
        # Users' code may lack a second derivative at a point.
        if not np.isfinite(entries).all():
            return kkt
        hessian = from_upper(entries, problem.d)
        found = minimize_model(point, gradient, hessian, problem.domain.to(None), problem.mu, m)
        return replace(kkt, error=found.decrease + found.missed, objective=float(objective[0]))


class Traits(NamedTuple):
    """What holds for all agents: one domain, a part of a lower bound each, and Hessians for a quadratic model."""

    is_common: bool
    has_lower_bound: bool
    is_modelled: bool

    @property
    def is_provable(self) -> bool:
        """Whether a gap can be certified."""
        return self.is_common and self.has_lower_bound


class Piece(NamedTuple):
    """A few agents of a problem."""

    domain: Domain
    mu: float
    d: int
    dtype: DType
    rows_per_agent: Array | None


def _pieces(problem: Objective, x: Array) -> Iterator[tuple[Objective | Piece, slice]]:
    """Yield the problem and all rows, or a few agents at a time if arrays are large."""
    if not is_numpy(x) or x.size <= _LARGE:
        yield problem, slice(None)
        return
    counts = problem.rows_per_agent
    for rows in row_blocks(x):
        domain = problem.domain.take(np.arange(problem.m)[rows])
        yield Piece(domain, problem.mu, problem.d, problem.dtype, None if counts is None else counts[rows]), rows


def lower_part(problem: Objective | Piece, evidence: DualEvidence, pull: Array, x: Array, mean: float, m: int) -> Array:
    """Return what each agent here adds to the lower bound, less rounding, shape (agents,).

    Parameters
    ----------
    problem : Objective or Piece
        The agents.
    evidence : DualEvidence
        Their y_i and ft_i*(y_i).
    pull : Array
        w_i, which sum to zero over all m agents.
    x : Array
        The agents' points.
    mean : float
        The norm of the mean of the points of all agents.
    m : int
        The number of all agents.

    Returns
    -------
    Array
        min over X_i of mu nu + r + <y_i + w_i, .>, less ft_i*(y_i) and rounding.

    Notes
    -----
    With eps of the problem's precision, y_i and ft_i*(y_i) carry relative errors of eps for each
    operation behind them, and sums over n numbers about sqrt(n) eps more. A running average rounds
    by eps/2 in each of k iterations and forgets it no slower than with weights 1/k: k eps/4 in all.
    The errors are relative to |ft_i*| + |y_i| |x|, which bounds the value from which ft_i* was
    computed, and to the terms of the minimum: |c_i| |x| and mu |grad nu| |x| at the minimizer. Here
    |x| includes the points where y_i was computed, which may be far from those reached since. Sums
    over the agents are in double precision, at worst m + d errors of that.
    """
    domain, y, conjugate = problem.domain, doubles(evidence.y), doubles(evidence.conjugate)
    c = y + pull
    least, terms = _minimum(domain, c, problem.mu, x)
    size, y_size = lengths(x) + mean, lengths(y)
    size = size if evidence.reach is None else size + doubles(evidence.reach)
    rows = problem.rows_per_agent
    sums = math.sqrt(problem.d) + (0.0 if rows is None else like(np.sqrt(rows), x))
    errors = _OPERATIONS + sums + (evidence.averaged or 0) / 4
    rounding = float(np.finfo(problem.dtype).eps) * errors * (abs(conjugate) + y_size * size + terms)
    rounding += _EPS * (m + problem.d) * ((y_size + lengths(pull)) * size + terms)
    return least - conjugate - rounding


class ErrorTerms(NamedTuple):
    """What rounding errors of sums over all agents are proportional to, see `lower_part`.

    Attributes
    ----------
    values : float
        Sum of n_i (|ft_i*| + |y_i| |x|), with n_i errors per operation.
    operations : float
        Sum of the n_i.
    gradients : float
        Sum of the |y_i|.
    """

    values: float
    operations: float
    gradients: float


def rounding_operations(problem: Objective) -> Array:
    """Return how many rounding errors a gradient of each agent adds up, shape (agents,), on its device."""
    rows = problem.rows_per_agent
    operations = _OPERATIONS + math.sqrt(problem.d) + (0.0 if rows is None else np.sqrt(rows))
    return on_device(np.broadcast_to(operations, problem.m), problem.device)


def error_terms(operations: Array, x: Array, y: Array, conjugate: Array) -> Array:
    """Return each agent's part of `ErrorTerms` at one point that all agents share, shape (agents, 3).

    `operations` are those of `rounding_operations`.
    """
    size = lengths(doubles(y))
    values = operations * (abs(conjugate) + size * lengths(doubles(x)))
    return array_namespace(values).stack([values, operations, size], axis=1)


def lower_bound_at(
    domain: Domain, mu: float, m: int, x: Array, gradient: Array, conjugate: float, errors: ErrorTerms, eps: float
) -> float:
    """Return a lower bound on the optimum from sums over all agents at one point.

    It is that of `lower_part`, summed, with multipliers that make all y_i + w_i equal.

    Parameters
    ----------
    domain : Domain
        The common domain, of one agent, in double precision.
    mu : float
        Strong convexity.
    m : int
        Number of agents.
    x : ndarray, shape (d,)
        The point.
    gradient : ndarray, shape (d,)
        Sum of the y_i there.
    conjugate : float
        Sum of the ft_i*(y_i).
    errors : ErrorTerms
        What rounding errors are proportional to.
    eps : float
        The precision of the y_i.
    """
    size, d = float(np.linalg.norm(x)), len(x)
    least, terms = (float(each[0]) for each in _minimum(domain, gradient[None] / m, mu, x[None]))
    pulls = errors.gradients + float(np.linalg.norm(gradient))
    rounding = eps * (2 * errors.values + errors.operations * terms)
    rounding += _EPS * (m + d) * (2 * (errors.gradients + pulls) * size + m * terms)
    return m * least - conjugate - rounding


def stationarity_part(problem: Objective | Piece, x: Array, slope: Array) -> Array:
    """Return |x_i - argmin over X_i of mu nu + r + <slope_i, .> + V(x_i, .)|^2, shape (agents,).

    Rounding of x_i is added: very far away no step is seen, however large the slope.
    """
    x = doubles(x)
    step = x - problem.domain.prox(problem.domain.grad_nu(x) - slope, problem.mu + 1.0)
    return dot(step, step) + _EPS**2 * dot(x, x)


def feasible(problem: Objective, mean: Array) -> Array:
    """Return the mean if it lies in the common X up to rounding, else the nearest point of X."""
    mean = np.asarray(mean, dtype=problem.dtype)
    nearest = to_numpy(problem.domain.project(problem.placed(mean[None])))[0]
    rounding = _OUTSIDE * float(np.finfo(problem.dtype).eps)
    outside = float(np.max(np.abs(nearest - mean)))
    return mean if outside <= rounding * float(np.max(np.abs(mean))) else nearest


def _minimum(domain: Domain, c: Array, mu: float, x: Array) -> tuple[Array, Array]:
    """Return min over X of mu nu + r + <c, .> and the size of its terms, each (agents,)."""
    penalty = domain.penalty if isinstance(domain, Euclidean) else None
    is_strong = mu > 0 or (penalty is not None and penalty.is_strong)
    xp = array_namespace(c)
    if not (domain.euclidean and is_strong):
        least = domain.linear_minimum(c, mu)
        size, bound = lengths(x), domain.distance_bound(doubles(x))
        far = xp.where(xp.isfinite(bound), xp.sqrt(2 * bound), size)
        # mu nu is as large as the distance that it measures, however small the minimum.
        ridge = mu * (1 + xp.where(xp.isfinite(bound), bound, size**2)) if mu > 0 else 0.0
        return least, abs(least) + lengths(c) * (size + far) + ridge
    # With a small mu the first step is long, and its end has errors of that size; a second, short step from there
    # removes them.
    first = domain.prox(-c, mu)
    size, slope = lengths(first), lengths(c)
    short = xp.where(size > 0, slope / xp.where(size > 0, size, 1.0), mu)[:, None]
    at = domain.prox(short * domain.grad_nu(first) - c, mu + short)
    least = mu * domain.nu(at) + domain.r(at) + xp.vecdot(c, at)
    return least, abs(least) + (slope + mu * lengths(domain.grad_nu(at))) * (lengths(at) + size)
