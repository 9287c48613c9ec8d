"""Observations for tables and plots: they may look at everything, are never counted and never timed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gradslide._types import Array
from gradslide.certificate import Certificate, Evidence
from gradslide.coupling import NetworkCoupling
from gradslide.history import History
from gradslide.network.base import Network
from gradslide.problem import Objective
from gradslide.status import Status


@dataclass(frozen=True)
class Metrics:
    """What a record says about a point; `gradslide.history.Record` explains each."""

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

    def objective(self, x: Array) -> float:
        """Sum over all agents of f_i(x_i)."""
        ...

    def metrics(self, x: Array, lower: float) -> Metrics | None:
        """What is to be recorded of x; None where values are no longer finite. lower: the best lower bound so far."""
        ...

    def lower_bound(self, evidence: Sequence[Evidence]) -> float:
        """The best lower bound on the optimum that follows; -inf where none does."""
        ...

    def certificate(self, x: Array, lower: float) -> Certificate | None: ...

    def no_certificate(self, method: str) -> str:
        """Why there is none."""
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

    def mean(self, x: Array) -> Array:
        return self._network.observe(x, "sum") / self._network.m

    def objective(self, x: Array) -> float:
        return float(self._network.observe(np.asarray(self._problem.objective(x), dtype=np.float64), "sum"))

    def lower_bound(self, evidence: Sequence[Evidence]) -> float:
        return -math.inf

    def certificate(self, x: Array, lower: float) -> Certificate | None:
        return None

    def no_certificate(self, method: str) -> str:
        return f"{method} gives no certificate"

    def verdict(self, x: Array, evidence: Sequence[Evidence], history: History) -> Status | None:
        return None

    def metrics(self, x: Array, lower: float) -> Metrics | None:
        known = self._problem.loss.has_value
        mean = self.mean(x)
        local_objective = self.objective(x) if known else None
        if local_objective is not None and not math.isfinite(local_objective):
            return None
        objective = self.objective(np.broadcast_to(mean, x.shape)) if known else None
        if objective is not None and not math.isfinite(objective):
            # Where the agents have sets of their own, their mean may lie outside of what a loss is defined on.
            objective = math.inf
        distances = np.sqrt(np.sum((x - mean) ** 2, axis=1))
        mean_norm = math.sqrt(float(np.sum(mean**2)))
        return Metrics(
            objective=objective,
            local_objective=local_objective,
            residual=self._coupling.residual(x),
            residual_scale=math.sqrt(self._network.m) * mean_norm,
            disagreement=float(self._network.observe(distances, "max")),
            mean_norm=mean_norm,
        )
