"""Observations for tables and plots: they see everything, are never counted, and steer nothing but the end of a run."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import doubles, dtype_of, length, lengths, like, total
from gradslide._support.errors import InputError
from gradslide._support.types import Array
from gradslide.engine.infeasibility import is_infeasible, is_unbounded
from gradslide.engine.stopping import Checks
from gradslide.network.coupled_rows import SharedRows
from gradslide.network.coupling import NetworkCoupling
from gradslide.network.protocol import Network
from gradslide.problems.linear_map import LinearMap
from gradslide.problems.problem import Objective, Problem
from gradslide.problems.saddle import Saddle
from gradslide.results.certificate import KKT, Certificate, SaddleKKT
from gradslide.results.costs import Costs
from gradslide.results.history import Record
from gradslide.results.status import Status
from gradslide.theory.certificates import CertificateEvaluator, DualEvidence
from gradslide.theory.optimality import residuals_at

# A residual below this share of norm(A x) is rounding: it need not fall any further.
_ROUNDING = 1e-7
# A residual above this share of its value at half the iterations is stuck; averages fall like 1/k.
_STUCK = 0.75
# Constraints that contradict each other never come below this share of norm(A x).
_NEARLY_FEASIBLE = 1e-2
# Rounding errors of bounds of data in single precision, relative to the size of their terms.
_ROUNDINGS_IN_SINGLE = 16.0
# The least number of products for which a search for a feasible point pays, and a number that always does.
_LEAST_SEARCH, _LONG_SEARCH = 20, 300
# Below this share of its size, an invariant that is violated does no harm to the answer.
_HARMLESS = 1e-6
# The share of the worst violation so far that still counts at the next observation, since exchanges repair it.
_DECAY = 0.9


@dataclass(frozen=True)
class Metrics:
    """What a record says about a point; `gradslide.results.history.Record` explains each field."""

    objective: float | None
    local_objective: float | None
    residual: float | None
    residual_scale: float
    lower: float | None = None
    gap: float | None = None
    disagreement: float | None = None
    mean_norm: float = 0.0


class Observer(ABC):
    """Looks at a run from outside."""

    @abstractmethod
    def metrics(self, x: Array, lower: float, evidence: Sequence[DualEvidence] = ()) -> Metrics | None:
        """Return what is recorded of x, or None if values are no longer finite.

        Parameters
        ----------
        x : Array
            The agents' points.
        lower : float
            The best lower bound so far, which the evidence may raise.
        evidence : sequence of DualEvidence
            Dual points of the method.
        """

    @abstractmethod
    def certificate(self, x: Array, lower: float) -> Certificate | None:
        """Return the certified bounds at x, if they are known."""

    @abstractmethod
    def no_certificate(self, method: str) -> str:
        """Return why there is no certificate."""

    def kkt(self, x: Array, evidence: Sequence[DualEvidence], start: Array, estimates_error: bool = True) -> KKT | None:
        """Return the residuals of the optimality conditions on a network at x, if they are known; start: x_0."""
        return None

    def saddle_kkt(self, x: Array, dual: Array) -> SaddleKKT | None:
        """Return the residuals of the optimality conditions without a network."""
        return None

    def infeasibility(self, x: Array, evidence: Sequence[DualEvidence], records: Sequence[Record]) -> Status | None:
        """Return the status if the problem turns out to have no solution."""
        return None


class NetworkObserver(Observer):
    """Observes all agents of a network.

    Parameters
    ----------
    problem : Objective
        The problem of the agents here.
    network : Network
        The network, uncounted.
    coupling : NetworkCoupling
        The coupling on that network, for the residual.
    """

    def __init__(self, problem: Objective, network: Network, coupling: NetworkCoupling) -> None:
        self._problem, self._network, self._coupling = problem, network, coupling
        self._evaluator = CertificateEvaluator(problem, network, problem.loss, is_counted=False)

    @property
    def is_common(self) -> bool:
        """Whether all agents, in all processes, have one domain."""
        return self._evaluator.traits.is_common

    def metrics(self, x: Array, lower: float, evidence: Sequence[DualEvidence] = ()) -> Metrics | None:
        has_value = self._problem.loss.has_value
        local_objective = self._objective(x) if has_value else None
        if local_objective is not None and not math.isfinite(local_objective):
            return None
        found = self._evaluator.evaluate(x, evidence, gap=has_value, disagreement=True)
        lower = max(lower, -math.inf if found.lower is None else found.lower)
        gap = math.nan if found.upper is None else found.upper - lower
        objective = None
        if has_value:
            mean = np.asarray(found.mean, dtype=dtype_of(x))
            if found.point is not None and np.array_equal(found.point, mean):
                objective = found.upper or 0.0
            else:
                objective = self._objective(array_namespace(x).broadcast_to(like(mean, x), x.shape))
            # If the agents have sets of their own, the loss may be undefined at their mean.
            objective = objective if math.isfinite(objective) else math.inf
        mean_norm = math.sqrt(float(np.sum(found.mean**2)))
        return Metrics(
            objective=objective,
            local_objective=local_objective,
            residual=self._coupling.residual(x),
            residual_scale=math.sqrt(self._network.m) * mean_norm,
            lower=lower if math.isfinite(lower) else None,
            gap=gap if math.isfinite(gap) else None,
            disagreement=found.disagreement,
            mean_norm=mean_norm,
        )

    def _objective(self, x: Array) -> float:
        """Sum over all agents of f_i(x_i)."""
        return float(self._network.session.observe(doubles(self._problem.objective(x)), "sum"))

    def certificate(self, x: Array, lower: float) -> Certificate | None:
        if not math.isfinite(lower):
            return None
        found = self._evaluator.evaluate(x, (), gap=True, disagreement=True, in_doubles=True)
        assert found.upper is not None
        assert found.disagreement is not None
        return Certificate(lower, found.upper, found.disagreement)

    def no_certificate(self, method: str) -> str:
        if not self._problem.loss.has_value:
            return "the loss has no value, so no lower bound can be computed"
        if not self._problem.has_lower_bound:
            return "X is unbounded and mu = 0, so no lower bound can be computed"
        if not self._evaluator.traits.is_common:
            return "the agents have sets of their own, so their mean need not be feasible: there is no upper bound"
        return f"{method} gives no certificate"

    def kkt(self, x: Array, evidence: Sequence[DualEvidence], start: Array, estimates_error: bool = True) -> KKT | None:
        if not (evidence or self._evaluator.traits.is_common):
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            found = self._evaluator.evaluate(x, evidence, kkt=True, start=start)
            if found.kkt is None or not estimates_error:
                return found.kkt
            return self._evaluator.with_error(found.kkt, found.mean)


class AgreedObserver(Observer):
    """Knows only what the agents agreed on, where those of others cannot be observed.

    Attributes
    ----------
    checks : Checks or None
        What they agree on, if anything.
    """

    checks: Checks | None = None

    def metrics(self, x: Array, lower: float, evidence: Sequence[DualEvidence] = ()) -> Metrics | None:
        return Metrics(objective=None, local_objective=None, residual=None, residual_scale=0.0)

    def certificate(self, x: Array, lower: float) -> Certificate | None:
        return None if self.checks is None else self.checks.certificate

    def no_certificate(self, method: str) -> str:
        return "the agents did not agree on a gap: ask for one with Stop(gap=...)"

    def kkt(self, x: Array, evidence: Sequence[DualEvidence], start: Array, estimates_error: bool = True) -> KKT | None:
        return None if self.checks is None or self.checks.last is None else self.checks.last.kkt


class SaddleObserver(Observer):
    """Observes a run on a saddle point problem with uncounted products; a search for feasible points counts its own.

    Parameters
    ----------
    problem : Saddle
        The problem.
    counted : LinearMap
        The same A, for searches that may end the run.
    """

    def __init__(self, problem: Saddle, counted: LinearMap) -> None:
        self._problem, self._counted = problem, counted

    def metrics(self, x: Array, lower: float, evidence: Sequence[DualEvidence] = ()) -> Metrics | None:
        """Return the metrics at x.

        The objective is f(x) + max over Z of <A x, z> - h(z), the local objective f(x). Both agree if A x is
        constrained to a set; the residual is the distance from it.
        """
        problem = self._problem
        product, xp = problem.product(x), array_namespace(x)
        value = total(problem.objective(x)) if problem.loss.has_value else None
        if not (bool(xp.all(xp.isfinite(product))) and (value is None or math.isfinite(value))):
            return None
        objective = None if value is None else value + problem.duals.conjugate(product)
        if objective is not None and math.isnan(objective):
            objective = None
        violation = problem.duals.violation(product)
        lower = max(lower, self._lower_bound(evidence))
        is_certified = math.isfinite(lower) and objective is not None and math.isfinite(objective)
        return Metrics(
            objective=objective,
            local_objective=value,
            residual=None if violation is None else length(violation),
            residual_scale=0.0 if violation is None else self._scale(x, product, product - violation),
            lower=lower if math.isfinite(lower) else None,
            gap=objective - lower if is_certified and objective is not None else None,
        )

    def _scale(self, x: Array, product: Array, allowed: Array) -> float:
        """The scale of a residual; allowed: the allowed value nearest to A x. If that is 0, A x is no scale."""
        size = max(length(product), length(allowed))
        return size if bool(array_namespace(allowed).any(allowed != 0)) else max(size, self._norm * length(x))

    @cached_property
    def _norm(self) -> float:
        return self._problem.operator_norm()

    def _lower_bound(self, evidence: Sequence[DualEvidence]) -> float:
        """Weak duality: min over X of mu nu + r + <y + A^T z, x>, minus ft*(y) and h(z)."""
        if not self._problem.has_lower_bound:
            return -math.inf
        bounds = [self._bound_of(each) for each in evidence]
        return max((bound for bound in bounds if math.isfinite(bound)), default=-math.inf)

    def _bound_of(self, evidence: DualEvidence) -> float:
        problem = self._problem
        least = problem.domain.linear_minimum(evidence.y + evidence.dual.w, problem.mu)
        h = problem.duals.h(evidence.dual.s)
        bound = total(least - evidence.conjugate) - h
        if problem.dtype != np.float32:
            return bound
        # Gradients of single precision are rounded.
        size = total(abs(least)) + total(abs(evidence.conjugate)) + abs(h)
        return bound - _ROUNDINGS_IN_SINGLE * float(np.finfo(np.float32).eps) * size

    def certificate(self, x: Array, lower: float) -> Certificate | None:
        return _certificate_of_rows(self.metrics(x, lower), lower)

    def no_certificate(self, method: str) -> str:
        if not self._problem.has_lower_bound:
            return "X is unbounded and mu = 0 (or the loss has no value), so no lower bound can be computed"
        if not self._problem.has_gap:
            return "the value of h, or its maximum over Z, is not known"
        return f"{method} gives no certificate"

    def saddle_kkt(self, x: Array, dual: Array) -> SaddleKKT | None:
        return residuals_at(self._problem, self._problem.loss, self._problem.A, x, dual)

    def infeasibility(self, x: Array, evidence: Sequence[DualEvidence], records: Sequence[Record]) -> Status | None:
        """Return the status if there is no solution; looked for if the residual hardly fell in half the iterations."""
        last = records[-1]
        if self._residual_is_stuck(records):
            # A search may take a twentieth of the products that the run has taken, and a few more.
            products = max(last.operator_products // 20, min(last.iteration, _LONG_SEARCH))
            if products >= _LEAST_SEARCH and is_infeasible(self._problem, self._counted, x, products):
                return Status.INFEASIBLE
            return None
        if last.residual is not None and last.residual > _NEARLY_FEASIBLE * last.residual_scale:
            return None
        unbounded = any(is_unbounded(self._problem, self._counted, x, each.dual, self._norm) for each in evidence[:1])
        return Status.UNBOUNDED if unbounded else None

    @staticmethod
    def _residual_is_stuck(records: Sequence[Record]) -> bool:
        last = records[-1]
        if last.residual is None or last.residual <= _ROUNDING * last.residual_scale:
            return False
        earlier = [record.residual for record in records if 2 * record.iteration <= last.iteration]
        return bool(earlier) and earlier[-1] is not None and last.residual > _STUCK * earlier[-1]


class CoupledObserver(Observer):
    """Observes all agents of a network that are coupled by linear constraints.

    Parameters
    ----------
    problem : Problem
        The coupled problem of the agents here.
    network : Network
        The network, uncounted.
    """

    def __init__(self, problem: Problem, network: Network) -> None:
        self._problem, self._rows, self._observe = problem, SharedRows(problem, network), network.session.observe

    def metrics(self, x: Array, lower: float, evidence: Sequence[DualEvidence] = ()) -> Metrics | None:
        """Return the objective at x, the distance of the sum of the A_i x_i from its bounds, and the certified gap."""
        problem, rows = self._problem, self._rows
        product = rows.product(x)
        values = problem.objective(x) if problem.loss.has_value else np.full(len(x), math.nan)
        value = float(self._observe(values[:, None], "sum")[0])
        if not np.isfinite(product).all() or (problem.loss.has_value and not math.isfinite(value)):
            return None
        objective = value if problem.loss.has_value else None
        violation = rows.duals.violation(product)
        assert violation is not None
        for each in evidence[:1]:
            parts = problem.domain.linear_minimum(each.y + each.dual.w, problem.mu) - each.conjugate
            bound = float(self._observe(parts[:, None], "sum")[0]) - rows.duals.h(each.dual.s)
            lower = max(lower, bound) if math.isfinite(bound) else lower
        is_certified = objective is not None and math.isfinite(lower)
        return Metrics(
            objective=objective,
            local_objective=objective,
            residual=length(violation),
            residual_scale=max(length(product), length(product - violation)),
            lower=lower if math.isfinite(lower) else None,
            gap=objective - lower if is_certified and objective is not None else None,
        )

    def certificate(self, x: Array, lower: float) -> Certificate | None:
        return _certificate_of_rows(self.metrics(x, lower), lower)

    def no_certificate(self, method: str) -> str:
        return "some X_i is unbounded and mu = 0 (or a loss has no value), so no lower bound can be computed"


def _certificate_of_rows(seen: Metrics | None, lower: float) -> Certificate | None:
    if seen is None or seen.objective is None or seen.gap is None:
        return None
    return Certificate(lower, seen.objective, seen.residual or 0.0)


@dataclass
class InvariantMonitor:
    """Watches the rows of `Method.invariant`, which sum to 0 over the agents unless messages were lost one way.

    Parameters
    ----------
    problem : Objective
        The problem of the agents here.
    network : Network
        The network, uncounted.
    costs : Costs
        What the run spends, which bounds the number of roundings.
    """

    problem: Objective
    network: Network
    costs: Costs
    _sum: float = field(default=0.0, init=False)
    _size: float = field(default=0.0, init=False)
    _L: float = field(default=0.0, init=False)

    def observe(self, rows: Array | None, L: float = 0.0) -> None:
        """Look at the rows of one outer iteration; None if the method has no invariant. L: that of the method."""
        self._L = max(self._L, L)
        if rows is not None:
            observe = self.network.session.observe
            self._sum = max(float(np.linalg.norm(observe(doubles(rows), "sum"))), _DECAY * self._sum)
            self._size = max(self._size, float(observe(lengths(rows), "sum")))

    def warning(self, start: Array, x: Array, method: str) -> str:
        """Return what makes the answer x of a run from start doubtful, or an empty string."""
        roundings = 10 + self.costs.rounds + self.costs.gradients
        rounding = roundings * float(np.finfo(self.problem.dtype).eps)
        tolerance = _HARMLESS + rounding
        # NaN comes from a run that diverged, which says so itself.
        if not tolerance * self._size < self._sum:
            return ""
        # Where no multipliers are needed they hold nothing but rounding: gradients give the scale.
        points = (start, x)
        with np.errstate(over="ignore", invalid="ignore"):
            size = self._size + max(self._total_length(self.problem.loss.gradient(point)) for point in points)
            steps = max(self._total_length(point) for point in points) * max(self._smoothness(), self._L)
        if not tolerance * size + rounding * steps < self._sum:
            return ""
        cause = "Messages were lost or changed in one direction only"
        if self.problem.dtype != np.float64:
            cause += ", or rounding in single precision added up (use float64)"
        return (
            f"the invariant of {method} is broken: what must add up to 0 over the agents adds up to "
            f"{self._sum / size:.2g} of its size. {cause}, and the answer is not the optimum, whatever the "
            "disagreement says"
        )

    def _total_length(self, rows: Array) -> float:
        return float(self.network.session.observe(lengths(rows), "sum"))

    def _smoothness(self) -> float:
        """L, since a step of 1/L turns roundings of iterates into those of gradients; 0 if unknown."""
        try:
            return float(np.max(self.problem.smoothness())) + self.problem.mu
        except InputError:
            return 0.0
