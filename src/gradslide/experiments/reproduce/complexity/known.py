"""The problem of `gradslide reproduce complexity`, its optimum, and what the theorems' parameters are made of."""

from dataclasses import dataclass

import numpy as np

from gradslide.experiments.reproduce import instance
from gradslide.experiments.reproduce.complexity.spec import Setting
from gradslide.experiments.reproduce.instance import Data
from gradslide.experiments.reproduce.spec import Net
from gradslide.graphs.graph import Graph
from gradslide.problems.problem import Problem
from gradslide.results.history import Record
from gradslide.theory.reference import Reference

COUPLING = "incidence"


@dataclass(frozen=True)
class Known:
    """What the theorems' parameters are made of."""

    problem: Problem
    graph: Graph
    optimum: Reference
    V: float
    z_star: float
    L: float

    @property
    def scale(self) -> float:
        """What accuracies are relative to."""
        return abs(self.optimum.objective)

    @property
    def facts(self) -> dict[str, float]:
        return {"optimum": self.optimum.objective, "V": self.V, "z_star": self.z_star, "L": self.L}

    def errors(self, record: Record) -> tuple[float, float]:
        """f(x_bar) - f* and ||A x_bar||, relative to the optimum."""
        assert record.local_objective is not None
        assert record.residual is not None
        return (record.local_objective - self.optimum.objective) / self.scale, record.residual / self.scale


def problem_of(data: Data, setting: Setting) -> Problem:
    return instance.problem_of(data, setting.agents, setting.split, setting.radius, setting.mu)


def optimum_of(data: Data, setting: Setting) -> Reference:
    return instance.optimum_of(data, setting.agents, setting.split, setting.radius, setting.mu)


def known(data: Data, setting: Setting, net: Net) -> Known:
    problem, optimum, graph = problem_of(data, setting), optimum_of(data, setting), net.graph
    return Known(
        problem=problem,
        graph=graph,
        optimum=optimum,
        V=optimum.V(problem, problem.start()),
        z_star=optimum.multiplier(problem, graph, COUPLING),
        L=float(np.max(problem.smoothness())),
    )
