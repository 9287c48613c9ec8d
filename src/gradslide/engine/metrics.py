"""Observations for tables and plots: they may look at everything, are never counted and never timed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import doubles, dtype_of, like
from gradslide._support.types import Array
from gradslide.engine.checks import Checks
from gradslide.network.base import Network
from gradslide.network.coupling import NetworkCoupling
from gradslide.problems.problem import Objective
from gradslide.results.certificate import KKT, Certificate
from gradslide.results.history import History, Record
from gradslide.results.status import Status
from gradslide.theory.proof import Evidence, Examiner, Found


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

    def metrics(self, x: Array, lower: float, evidence: Sequence[Evidence] = ()) -> Metrics | None:
        """What is to be recorded of x; None where values are no longer finite. lower: the best lower bound so far,
        which the evidence may raise."""
        ...

    def certificate(self, x: Array, lower: float) -> Certificate | None: ...

    def no_certificate(self, method: str) -> str:
        """Why there is none."""
        ...

    def kkt(self, x: Array, evidence: Sequence[Evidence], start: Array) -> KKT | None:
        """Residuals of the conditions of optimality, where they are known. start: x_0."""
        ...

    def verdict(self, x: Array, evidence: Sequence[Evidence], history: History) -> Status | None:
        """The status, where there turns out to be no solution."""
        ...


class NetworkObserver:
    """Looks at the whole network from outside."""

    def __init__(self, problem: Objective, network: Network, coupling: NetworkCoupling) -> None:
        self._problem = problem
        self._network = network
        self._coupling = coupling
        self._examiner = Examiner(problem, network, network.observe, problem.loss, is_free=True)

    def known(self, record: Record) -> Record:
        return record

    def mean(self, x: Array) -> Array:
        return self._network.observe(x, "sum") / self._network.m

    def objective(self, x: Array) -> float:
        return float(self._network.observe(doubles(self._problem.objective(x)), "sum"))

    def certificate(self, x: Array, lower: float) -> Certificate | None:
        if not math.isfinite(lower):
            return None
        found = self._examiner.examine(x, (), gap=True, apart=True)
        assert found.upper is not None
        assert found.apart is not None
        return Certificate(lower, found.upper, found.apart)

    def no_certificate(self, method: str) -> str:
        if not self._problem.loss.has_value:
            return "the loss has no value, so no lower bound can be computed"
        if not self._problem.has_lower_bound:
            return "X is unbounded and mu = 0, so no lower bound can be computed"
        if not self._examiner.traits.is_common:
            return "the agents have sets of their own, so their mean need not be feasible: there is no upper bound"
        return f"{method} gives no certificate"

    def kkt(self, x: Array, evidence: Sequence[Evidence], start: Array) -> KKT | None:
        if not (evidence or self._examiner.traits.is_common):
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            return self._examiner.examine(x, evidence, kkt=True, start=start).kkt

    def verdict(self, x: Array, evidence: Sequence[Evidence], history: History) -> Status | None:
        return None

    def metrics(self, x: Array, lower: float, evidence: Sequence[Evidence] = ()) -> Metrics | None:
        known = self._problem.loss.has_value
        local_objective = self.objective(x) if known else None
        if local_objective is not None and not math.isfinite(local_objective):
            return None
        found = self._examiner.examine(x, evidence, gap=known, apart=True)
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

    def metrics(self, x: Array, lower: float, evidence: Sequence[Evidence] = ()) -> Metrics | None:
        return Metrics(objective=None, local_objective=None, residual=None, residual_scale=0.0)

    def certificate(self, x: Array, lower: float) -> Certificate | None:
        return None if self.checks is None else self.checks.certificate

    def no_certificate(self, method: str) -> str:
        return "the agents did not agree on a gap: ask for one with Stop(gap=...)"

    def kkt(self, x: Array, evidence: Sequence[Evidence], start: Array) -> KKT | None:
        return None if self.checks is None or self.checks.last is None else self.checks.last.kkt

    def verdict(self, x: Array, evidence: Sequence[Evidence], history: History) -> Status | None:
        return None


def _known(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def is_finite(x: Array) -> bool:
    """Past the root of the largest number not even |x|^2 is."""
    return float(array_namespace(x).max(abs(x))) < math.sqrt(float(np.finfo(dtype_of(x)).max))
