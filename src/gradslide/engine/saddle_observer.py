"""What can be seen of a run on a saddle point problem: values, residual, gap, and that there is no solution."""

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from gradslide._support.types import Array
from gradslide.engine.metrics import Metrics
from gradslide.engine.no_solution import is_infeasible, is_unbounded
from gradslide.problems.linear_map import LinearMap
from gradslide.problems.measures import length, total
from gradslide.problems.saddle import Saddle
from gradslide.results.certificate import KKT, Certificate
from gradslide.results.history import History, Record
from gradslide.results.status import Status
from gradslide.theory.proof import Evidence

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

    def metrics(self, x: Array, lower: float, evidence: Sequence[Evidence] = ()) -> Metrics | None:
        """objective: f(x) + max over Z of <A x, z> - h(z); local_objective: f(x); both are the same where A x is kept
        in a set, and the residual is the distance from it."""
        problem = self._problem
        product = problem.product(x)
        value = self.objective(x) if problem.loss.has_value else None
        if not (np.all(np.isfinite(product)) and (value is None or math.isfinite(value))):
            return None
        objective = None if value is None else _known(value + problem.duals.conjugate(product))
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

    def _lower_bound(self, evidence: Sequence[Evidence]) -> float:
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

    def kkt(self, x: Array, evidence: Sequence[Evidence], start: Array) -> KKT | None:
        return None

    def verdict(self, x: Array, evidence: Sequence[Evidence], history: History) -> Status | None:
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


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
