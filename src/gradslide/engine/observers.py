"""Observations for tables and plots: they see everything, are never counted and never timed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import doubles, dtype_of, lengths, like
from gradslide._support.errors import InputError
from gradslide._support.types import Array
from gradslide.engine.infeasibility import is_infeasible, is_unbounded, length, total
from gradslide.engine.stopping import Checks
from gradslide.network.coupling import NetworkCoupling
from gradslide.network.protocol import Network
from gradslide.problems.linear_map import LinearMap
from gradslide.problems.problem import Objective
from gradslide.problems.saddle import Saddle
from gradslide.results.certificate import KKT, Certificate
from gradslide.results.costs import Costs
from gradslide.results.history import History, Record
from gradslide.results.status import Status
from gradslide.theory.certificates import CertificateEvaluator, DualEvidence, Found


@dataclass(frozen=True)
class Metrics:
    """What a record says about a point; `gradslide.results.history.Record` explains each."""

    objective: float | None
    local_objective: float | None
    residual: float | None
    residual_scale: float
    lower: float | None = None
    gap: float | None = None
    disagreement: float | None = None
    mean_norm: float = 0.0


class Observer(Protocol):
    """Looks at a run from outside."""

    def known(self, record: Record) -> Record:
        """The record with what is known besides."""
        ...

    def objective(self, x: Array) -> float:
        """Sum over all agents of f_i(x_i)."""
        ...

    def metrics(self, x: Array, lower: float, evidence: Sequence[DualEvidence] = ()) -> Metrics | None:
        """What is to be recorded of x; None where values are no longer finite. lower: the best lower bound so far,
        which the evidence may raise."""
        ...

    def certificate(self, x: Array, lower: float) -> Certificate | None: ...

    def no_certificate(self, method: str) -> str:
        """Why there is none."""
        ...

    def kkt(self, x: Array, evidence: Sequence[DualEvidence], start: Array) -> KKT | None:
        """Residuals of the conditions of optimality, where they are known. start: x_0."""
        ...

    def verdict(self, x: Array, evidence: Sequence[DualEvidence], history: History) -> Status | None:
        """The status, where there turns out to be no solution."""
        ...


class NetworkObserver:
    """Looks at the whole network from outside."""

    def __init__(self, problem: Objective, network: Network, coupling: NetworkCoupling) -> None:
        self._problem = problem
        self._network = network
        self._coupling = coupling
        self._evaluator = CertificateEvaluator(problem, network, network.session.observe, problem.loss, is_free=True)

    def known(self, record: Record) -> Record:
        return record

    def mean(self, x: Array) -> Array:
        return self._network.session.observe(x, "sum") / self._network.m

    def objective(self, x: Array) -> float:
        return float(self._network.session.observe(doubles(self._problem.objective(x)), "sum"))

    def certificate(self, x: Array, lower: float) -> Certificate | None:
        if not math.isfinite(lower):
            return None
        found = self._evaluator.examine(x, (), gap=True, apart=True)
        assert found.upper is not None
        assert found.apart is not None
        return Certificate(lower, found.upper, found.apart)

    def no_certificate(self, method: str) -> str:
        if not self._problem.loss.has_value:
            return "the loss has no value, so no lower bound can be computed"
        if not self._problem.has_lower_bound:
            return "X is unbounded and mu = 0, so no lower bound can be computed"
        if not self._evaluator.traits.is_common:
            return "the agents have sets of their own, so their mean need not be feasible: there is no upper bound"
        return f"{method} gives no certificate"

    def kkt(self, x: Array, evidence: Sequence[DualEvidence], start: Array) -> KKT | None:
        if not (evidence or self._evaluator.traits.is_common):
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            return self._evaluator.examine(x, evidence, kkt=True, start=start).kkt

    def verdict(self, x: Array, evidence: Sequence[DualEvidence], history: History) -> Status | None:
        return None

    def metrics(self, x: Array, lower: float, evidence: Sequence[DualEvidence] = ()) -> Metrics | None:
        known = self._problem.loss.has_value
        local_objective = self.objective(x) if known else None
        if local_objective is not None and not math.isfinite(local_objective):
            return None
        found = self._evaluator.examine(x, evidence, gap=known, apart=True)
        lower = max(lower, -math.inf if found.lower is None else found.lower)
        objective = self._at_mean(x, found) if known else None
        mean_norm = math.sqrt(float(np.sum(found.mean**2)))
        return Metrics(
            objective=objective,
            local_objective=local_objective,
            residual=self._coupling.residual(x),
            residual_scale=math.sqrt(self._network.m) * mean_norm,
            lower=lower if math.isfinite(lower) else None,
            gap=_known(None if found.upper is None else found.upper - lower),
            disagreement=found.apart,
            mean_norm=mean_norm,
        )

    def _at_mean(self, x: Array, found: Found) -> float:
        """Sum of all f_i at the mean."""
        mean = np.asarray(found.mean, dtype=dtype_of(x))
        if found.point is not None and np.array_equal(found.point, mean):
            objective = found.upper or 0.0
        else:
            objective = self.objective(array_namespace(x).broadcast_to(like(mean, x), x.shape))
        # Where the agents have sets of their own, their mean may lie outside of what a loss is defined on.
        return objective if math.isfinite(objective) else math.inf


class OwnObserver:
    """Where the other agents live with other people nothing is observed: what is known of them was agreed on in
    `checks`, if there are any."""

    checks: Checks | None = None

    def known(self, record: Record) -> Record:
        return record if self.checks is None else self.checks.seen(record)

    def objective(self, x: Array) -> float:
        return math.nan

    def mean(self, x: Array) -> Array:
        """What multipliers are relative to: nobody knows."""
        return 0 * x

    def metrics(self, x: Array, lower: float, evidence: Sequence[DualEvidence] = ()) -> Metrics | None:
        return Metrics(objective=None, local_objective=None, residual=None, residual_scale=0.0)

    def certificate(self, x: Array, lower: float) -> Certificate | None:
        return None if self.checks is None else self.checks.certificate

    def no_certificate(self, method: str) -> str:
        return "the agents did not agree on a gap: ask for one with Stop(gap=...)"

    def kkt(self, x: Array, evidence: Sequence[DualEvidence], start: Array) -> KKT | None:
        return None if self.checks is None or self.checks.last is None else self.checks.last.kkt

    def verdict(self, x: Array, evidence: Sequence[DualEvidence], history: History) -> Status | None:
        return None


def _known(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def is_finite(x: Array) -> bool:
    """Past the root of the largest number not even |x|^2 is."""
    return float(array_namespace(x).max(abs(x))) < math.sqrt(float(np.finfo(dtype_of(x)).max))


# A residual below this share of A x is not to be trusted to fall.
_ROUNDING = 1e-7
# A residual that is no smaller than this share of what it was at half the iterations is stuck; averages fall like 1/k.
_STUCK = 0.75
# A residual below this share of A x is nearly none: constraints that contradict each other do not come so far.
_NEARLY = 1e-2
# With fewer products a search for a feasible point is not worth while.
_LEAST_SEARCH = 20
# So many are worth while in any run of as many iterations.
_LONG_SEARCH = 300


class SaddleObserver:
    """Looks with products of its own, which nobody counts; only searches that may end the run count them."""

    def __init__(self, problem: Saddle, counted: LinearMap) -> None:
        """counted: the same A, for what steers the run."""
        self._problem = problem
        self._counted = counted

    def known(self, record: Record) -> Record:
        return record

    def objective(self, x: Array) -> float:
        return total(self._problem.objective(x))

    def metrics(self, x: Array, lower: float, evidence: Sequence[DualEvidence] = ()) -> Metrics | None:
        """objective: f(x) + max over Z of <A x, z> - h(z); local_objective: f(x); both are the same where A x is kept
        in a set, and the residual is the distance from it."""
        problem = self._problem
        product = problem.product(x)
        value = self.objective(x) if problem.loss.has_value else None
        if not (np.all(np.isfinite(product)) and (value is None or math.isfinite(value))):
            return None
        objective = None if value is None else value + problem.duals.conjugate(product)
        if objective is not None and math.isnan(objective):
            objective = None
        violation = problem.duals.violation(product)
        lower = max(lower, self._lower_bound(evidence))
        certified = math.isfinite(lower) and objective is not None and math.isfinite(objective)
        return Metrics(
            objective=objective,
            local_objective=value,
            residual=None if violation is None else length(violation),
            residual_scale=0.0 if violation is None else self._scale(x, product, product - violation),
            lower=lower if math.isfinite(lower) else None,
            gap=objective - lower if certified and objective is not None else None,
        )

    def _scale(self, x: Array, product: Array, allowed: Array) -> float:
        """What a residual is relative to. allowed: the value nearest to A x; beside 0 A x is no measure of itself."""
        size = max(length(product), length(allowed))
        return size if np.any(allowed) else max(size, self._norm * length(x))

    @cached_property
    def _norm(self) -> float:
        return self._problem.operator_norm()

    def _lower_bound(self, evidence: Sequence[DualEvidence]) -> float:
        """By weak duality: min over X of mu nu + r + <y + A^T z, x>, less ft*(y) and h(z)."""
        if not self._problem.has_lower_bound:
            return -math.inf
        bounds = [
            total(self._problem.domain.linear_minimum(each.y + each.dual.w, self._problem.mu) - each.conjugate)
            - self._problem.duals.h(each.dual.s)
            for each in evidence
        ]
        return max((bound for bound in bounds if math.isfinite(bound)), default=-math.inf)

    def certificate(self, x: Array, lower: float) -> Certificate | None:
        seen = self.metrics(x, lower)
        if seen is None or seen.objective is None or seen.gap is None:
            return None
        return Certificate(lower, seen.objective, seen.residual or 0.0)

    def no_certificate(self, method: str) -> str:
        if not self._problem.has_lower_bound:
            return "X is unbounded and mu = 0 (or the loss has no value), so no lower bound can be computed"
        if not self._problem.has_gap:
            return "the value of h, or its maximum over Z, is not known"
        return f"{method} gives no certificate"

    def kkt(self, x: Array, evidence: Sequence[DualEvidence], start: Array) -> KKT | None:
        return None

    def verdict(self, x: Array, evidence: Sequence[DualEvidence], history: History) -> Status | None:
        """Whether there is no solution: looked for where the residual has hardly fallen in half the iterations."""
        # A search for a feasible point may take a twentieth of the products that the run has taken, and a few more.
        last = history[-1]
        patience = max(last.operator_products // 20, min(last.iteration, _LONG_SEARCH))
        if self._residual_is_stuck(history):
            worthwhile = patience >= _LEAST_SEARCH
            return (
                Status.INFEASIBLE if worthwhile and is_infeasible(self._problem, self._counted, x, patience) else None
            )
        if last.residual is not None and last.residual > _NEARLY * last.residual_scale:
            return None
        unbounded = any(is_unbounded(self._problem, self._counted, x, each.dual) for each in evidence[:1])
        return Status.UNBOUNDED if unbounded else None

    @staticmethod
    def _residual_is_stuck(history: History) -> bool:
        last = history[-1]
        if last.residual is None or last.residual <= _ROUNDING * last.residual_scale:
            return False
        earlier = [record.residual for record in history if 2 * record.iteration <= last.iteration]
        return bool(earlier) and earlier[-1] is not None and last.residual > _STUCK * earlier[-1]


# Below this part of its size, a sum that is off does no harm to the answer.
_HARMLESS = 1e-6
# How much of the worst sum so far is still held against the answer at the next look, where exchanges heal.
_MEMORY = 0.9


class Balance:
    """Watches the rows of a method's `invariant` along a run. Observations: they cost nothing."""

    def __init__(self, problem: Objective, network: Network, costs: Costs) -> None:
        """costs: what the run spends, which says how many roundings there were."""
        self._problem, self._network, self._costs = problem, network, costs
        self._sum, self._size = 0.0, 0.0

    def look(self, rows: Array) -> None:
        """At the rows of one outer iteration."""
        total = float(np.linalg.norm(self._network.session.observe(doubles(rows), "sum")))
        self._sum = max(total, _MEMORY * self._sum)
        self._size = max(self._size, self._total(rows))

    def broken(self, start: Array, x: Array, method: str) -> str:
        """What to say of the answer x of a run from there; nothing where all is well."""
        roundings = 10 + self._costs.rounds + self._costs.gradients
        rounding = roundings * float(np.finfo(self._problem.dtype).eps)
        tolerance = _HARMLESS + rounding
        # What is not a number comes from a run that diverged, which has other troubles.
        if not tolerance * self._size < self._sum:
            return ""
        # Where no multipliers are needed, nothing but rounding is in them: gradients give the scale.
        points = (start, x)
        with np.errstate(over="ignore", invalid="ignore"):
            size = self._size + max(self._total(self._problem.loss.gradient(point)) for point in points)
            steps = max(self._total(point) for point in points) * self._smoothness()
        if not tolerance * size + rounding * steps < self._sum:
            return ""
        return (
            f"the invariant of {method} is broken: what must add up to 0 over the agents adds up to "
            f"{self._sum / size:.2g} of its size. Messages were lost or changed in one direction only, and the answer "
            "is not the optimum, whatever the disagreement says"
        )

    def _total(self, rows: Array) -> float:
        return float(self._network.session.observe(lengths(rows), "sum"))

    def _smoothness(self) -> float:
        """Iterates have roundings, too, which a step of 1/L turns into those of gradients. 0 where L is unknown."""
        try:
            return float(np.max(self._problem.smoothness())) + self._problem.mu
        except InputError:
            return 0.0
