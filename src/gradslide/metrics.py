"""Observations for tables and plots: they may look at everything, are never counted and never timed."""

import math
from dataclasses import dataclass

import numpy as np

from gradslide._types import Array
from gradslide.coupling import Coupling
from gradslide.network.base import Network
from gradslide.problem import Problem


@dataclass(frozen=True)
class Metrics:
    objective: float | None
    local_objective: float | None
    residual: float
    disagreement: float
    mean_norm: float


class Observer:
    """Looks at the whole network from outside."""

    def __init__(self, problem: Problem, network: Network, coupling: Coupling) -> None:
        self._problem = problem
        self._network = network
        self._coupling = coupling

    def mean(self, x: Array) -> Array:
        return self._network.observe(x, "sum") / self._network.graph.m

    def objective(self, x: Array) -> float:
        """Sum over all agents of f_i(x_i)."""
        return float(self._network.observe(np.asarray(self._problem.objective(x), dtype=np.float64), "sum"))

    def metrics(self, x: Array) -> Metrics:
        known = self._problem.loss.has_value
        mean = self.mean(x)
        at_mean = np.broadcast_to(mean, x.shape)
        distances = np.sqrt(np.sum((x - mean) ** 2, axis=1))
        return Metrics(
            objective=self.objective(at_mean) if known else None,
            local_objective=self.objective(x) if known else None,
            residual=self._coupling.residual(x),
            disagreement=float(self._network.observe(distances, "max")),
            mean_norm=math.sqrt(float(np.sum(mean**2))),
        )
