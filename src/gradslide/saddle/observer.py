"""What can be seen of a run on a saddle point problem: values, residual, gap, and that there is no solution."""

import math

import numpy as np

from gradslide._types import Array
from gradslide.certificate import Certificate, Evidence
from gradslide.history import History
from gradslide.metrics import Metrics
from gradslide.saddle.linear_map import LinearMap
from gradslide.saddle.measures import length, total
from gradslide.saddle.no_solution import is_infeasible, is_unbounded
from gradslide.saddle.problem import Saddle
from gradslide.status import Status

# A residual below this share of A x is not to be trusted to fall.
_ROUNDING = 1e-7
# A residual that is no smaller than this share of what it was at half the iterations is stuck; averages fall like 1/k.
_STUCK = 0.75
# With fewer products a search for a feasible point is not worth while.
_LEAST_SEARCH = 20
# So many are worth while in any run of as many iterations.
_LONG_SEARCH = 300


class SaddleObserver:
    """Looks with products of its own, which nobody counts; only the search for a feasible point counts them."""

    def __init__(self, problem: Saddle, counted: LinearMap) -> None:
        """counted: the same A, for what steers the run."""
        self._problem = problem
        self._counted = counted

    def objective(self, x: Array) -> float:
        return total(self._problem.objective(x))

    def metrics(self, x: Array, evidence: Evidence | None) -> Metrics | None:
        """objective: f(x) + max over Z of <A x, z> - h(z); local_objective: f(x); both are the same where A x is kept
        in a set, and the residual is the distance from it."""
        problem = self._problem
        product = problem.product(x)
        value = self.objective(x) if problem.loss.has_value else None
        if not (np.all(np.isfinite(product)) and (value is None or math.isfinite(value))):
            return None
        objective = None if value is None else _known(value + problem.duals.conjugate(product))
        violation = problem.duals.violation(product)
        certificate = self._certificate(objective, violation, evidence)
        return Metrics(
            objective=objective,
            local_objective=value,
            residual=None if violation is None else length(violation),
            residual_scale=0.0 if violation is None else max(length(product), length(product - violation)),
            gap=None if certificate is None else certificate.gap,
        )

    def certificate(self, x: Array, evidence: Evidence | None) -> Certificate | None:
        if not self._problem.loss.has_value:
            return None
        product = self._problem.product(x)
        objective = _known(self.objective(x) + self._problem.duals.conjugate(product))
        return self._certificate(objective, self._problem.duals.violation(product), evidence)

    def no_certificate(self, method: str) -> str:
        if not self._problem.has_lower_bound:
            return "X is unbounded and mu = 0 (or the loss has no value), so no lower bound can be computed"
        if not self._problem.has_gap:
            return "the value of h, or its maximum over Z, is not known"
        return f"{method} gives no certificate"

    def verdict(self, x: Array, evidence: Evidence | None, history: History) -> Status | None:
        """Whether there is no solution: looked for where the residual has hardly fallen in half the iterations."""
        # A search for a feasible point may take a twentieth of the products that the run has taken, and a few more.
        last = history[-1]
        patience = max(last.operator_products // 20, min(last.iteration, _LONG_SEARCH))
        stuck = patience >= _LEAST_SEARCH and self._residual_is_stuck(history)
        if stuck and is_infeasible(self._problem, self._counted, x, patience):
            return Status.INFEASIBLE
        if evidence is not None and is_unbounded(self._problem, x, evidence.dual):
            return Status.UNBOUNDED
        return None

    @staticmethod
    def _residual_is_stuck(history: History) -> bool:
        last = history[-1]
        if last.residual is None or last.residual <= _ROUNDING * last.residual_scale:
            return False
        earlier = [record.residual for record in history if 2 * record.iteration <= last.iteration]
        return bool(earlier) and earlier[-1] is not None and last.residual > _STUCK * earlier[-1]

    def _certificate(
        self, objective: float | None, violation: Array | None, evidence: Evidence | None
    ) -> Certificate | None:
        """lower: min over X of mu nu + r + <y + A^T z, x>, less the averages of ft*(y_k) and h(z): by weak duality."""
        if evidence is None or objective is None:
            return None
        problem, duals = self._problem, self._problem.duals
        smallest = problem.domain.linear_minimum(evidence.y + evidence.dual.w, problem.mu)
        lower = total(smallest - evidence.conjugate) - duals.h(evidence.dual.s)
        if not (math.isfinite(lower) and math.isfinite(objective)):
            return None
        return Certificate(lower, objective, 0.0 if violation is None else length(violation))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
