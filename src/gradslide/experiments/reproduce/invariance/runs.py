"""PDS on one network until every accuracy is reached, with R by one of three rules."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gradslide._support.types import Array
from gradslide.engine.stopping import Stop
from gradslide.experiments.parallel.pool import solved
from gradslide.experiments.reproduce.paper import ROWS, Data, optimum_of, problem_of
from gradslide.graphs.graph import Graph
from gradslide.methods.pds import PDS
from gradslide.problems.problem import Problem
from gradslide.results.history import Record
from gradslide.theory.guarantees import theory_R
from gradslide.theory.reference import Reference

# The sum of all losses, and so its optimum, is the same however many agents there are.
_AGENTS_OF_OPTIMUM = 100
THEORY, WORST, ONE = "||z*||", "||g - mean|| / sqrt(l2)", "one R for all"


@dataclass(frozen=True)
class NamedNetwork:
    """A network by name. given: what the topology's function takes."""

    name: str
    family: str
    topology: str
    given: tuple[tuple[str, float], ...]

    @property
    def graph(self) -> Graph:
        made: Graph = getattr(Graph, self.topology)(**dict(self.given))
        return made

    @property
    def m(self) -> int:
        given = dict(self.given)
        return int(given["m"] if "m" in given else given["rows"] * given["cols"])


def networks(spec: dict[str, Any]) -> list[NamedNetwork]:
    """Every one with every seed."""
    found = []
    for table in spec["network"]:
        said = ("name", "family", "topology", "seeds")
        given = tuple((key, value) for key, value in table.items() if key not in said)
        seeds = table.get("seeds", [])
        for seed in seeds or [None]:
            name = table["name"] + (f", seed {seed}" if len(seeds) > 1 else "")
            own = given if seed is None else (*given, ("seed", seed))
            found.append(NamedNetwork(name, table["family"], table["topology"], own))
    return found


@dataclass(frozen=True)
class Accuracy:
    """objective: error at the mean, relative to the optimum; disagreement: relative to the length
    of the mean.
    """

    objective: float
    disagreement: float


@dataclass(frozen=True)
class NetworkTask:
    """rule: where R comes from, THEORY, WORST or ONE; R: of ONE."""

    data: Data
    network: NamedNetwork
    rule: str
    split: str
    radius: float
    iterations: int
    accuracies: tuple[Accuracy, ...]
    R: float | None = None

    @property
    def label(self) -> str:
        return f"{self.network.name}, R: {self.rule}"


def perform_network(task: NetworkTask) -> dict[str, Any]:
    """What the network is, R, and the costs when each accuracy was reached: None where it was not."""
    graph = task.network.graph
    problem = problem_of(task.data, graph.m, task.split, task.radius)
    optimum = optimum_of(task.data, _AGENTS_OF_OPTIMUM, task.split, task.radius)
    R = task.R if task.R is not None else _R(task.rule, problem, optimum, graph)
    # A bound for any rows, so that L V(x_0, x*) is the same for all m; an agent's own constant would be smaller.
    L = math.ceil(ROWS / graph.m) * _row_smoothness(task.data)
    marks = Marks(task.accuracies, optimum.objective)
    solved(problem, graph, PDS(L=L, R=R), stop=Stop(iterations=task.iterations), callback=marks)
    return {
        "m": graph.m,
        "edges": len(graph.edges),
        "chi": graph.condition,
        "L": L,
        "R": R,
        "reached": marks.reached,
        "last": marks.last,
    }


def _R(rule: str, problem: Problem, optimum: Reference, graph: Graph) -> float:
    V = optimum.V(problem, problem.start())
    if rule == THEORY:
        return theory_R(V=V, z_star=optimum.multiplier(problem, graph, "incidence"))
    g = problem.loss.gradient(np.tile(optimum.x, (graph.m, 1)))
    return theory_R(V=V, z_star=float(np.linalg.norm(g - g.mean(axis=0))) / math.sqrt(graph.algebraic_connectivity))


@lru_cache(maxsize=4)
def _row_smoothness(data: Data) -> float:
    """|a|^2 / 4 of the longest row: with one row for each agent, the largest of their constants."""
    return float(np.max(problem_of(data, ROWS).loss.smoothness()))


class Marks:
    """A callback that notes when each accuracy is first reached, and ends the run when all are."""

    def __init__(self, accuracies: tuple[Accuracy, ...], optimum: float) -> None:
        self._accuracies, self._optimum = accuracies, optimum
        self._near: dict[float, int] = {}
        self.reached: list[dict[str, Any] | None] = [None] * len(accuracies)
        self.last: dict[str, Any] = {}

    def __call__(self, record: Record, x: Array) -> bool:
        assert record.objective is not None
        assert record.disagreement is not None
        error = float(record.objective - self._optimum) / abs(self._optimum)
        disagreement = float(record.disagreement / record.mean_norm) if record.mean_norm > 0 else math.inf
        self.last = {
            "gradients": record.gradients,
            "rounds": record.rounds,
            "objective": error,
            "disagreement": disagreement,
        }
        for index, wanted in enumerate(self._accuracies):
            if error <= wanted.objective:
                self._near.setdefault(wanted.objective, record.iteration)
                if disagreement <= wanted.disagreement and self.reached[index] is None:
                    waited = self._near[wanted.objective] < record.iteration
                    self.reached[index] = {**self.last, "decided_by_disagreement": waited}
        return all(self.reached)
