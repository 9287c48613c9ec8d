"""The instances of `gradslide reproduce complexity`: settings, accuracies, limits, and the
optimum's constants.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from gradslide.experiments.reproduce import paper
from gradslide.experiments.reproduce.paper import Data, Net, packaged
from gradslide.graphs.graph import Graph
from gradslide.problems.problem import Problem
from gradslide.results.history import Record
from gradslide.theory.reference import Reference

_ROUNDING = 1 + 1e-9


COUPLING = "incidence"


@dataclass(frozen=True)
class Setting:
    """A problem, but for its data. mu: per agent."""

    agents: int
    split: str
    radius: float
    mu: float

    @property
    def name(self) -> str:
        return "mu = 0" if self.mu == 0 else f"mu = {self.mu:g}"


@dataclass(frozen=True)
class ComplexitySpec:
    """The case mu = 0 comes first, then mu > 0. Lines are fitted over accuracies from
    `..._fit_from` on.
    """

    settings: tuple[Setting, Setting]
    nets: tuple[Net, ...]
    tolerance: float
    accuracies: tuple[float, ...]
    fit_from: float
    beyond: float
    iterations: int
    rounds: int
    sampled_accuracies: tuple[tuple[float, ...], tuple[float, ...]]
    sampled_fit_from: float
    seeds: tuple[int, ...]
    samplers: tuple[str, ...]

    def is_fitted(self, accuracy: float) -> bool:
        return accuracy <= self.fit_from * _ROUNDING

    def is_sampled_fitted(self, accuracy: float) -> bool:
        return accuracy <= self.sampled_fit_from * _ROUNDING


def spec_of(data: Data) -> ComplexitySpec:
    """The packaged one, with the radius and the ridge that suit the data."""
    table = packaged("complexity")
    own, pds, spds = table[data.name], table["pds"], table["spds"]

    def setting(mu: float) -> Setting:
        return Setting(table["agents"], table["split"], own["radius"], mu)

    return ComplexitySpec(
        settings=(setting(0.0), setting(own["mu"])),
        nets=tuple(
            Net(f"degree {degree}", degree, edges, seed, table["agents"]) for degree, edges, seed in table["networks"]
        ),
        tolerance=table["tolerance"],
        accuracies=_descending(pds["accuracies"]),
        fit_from=pds["fit_from"],
        beyond=pds["beyond"],
        iterations=pds["limits"]["iterations"],
        rounds=pds["limits"]["rounds"],
        sampled_accuracies=(
            _descending(spds["accuracies"]["convex"]),
            _descending(spds["accuracies"]["strongly_convex"]),
        ),
        sampled_fit_from=spds["fit_from"],
        seeds=tuple(spds["seeds"]),
        samplers=tuple(spds["samplers"]),
    )


def _descending(values: list[Any]) -> tuple[float, ...]:
    return tuple(sorted(map(float, values), reverse=True))


@dataclass(frozen=True)
class Known:
    """A problem over a network, with the constants that the parameters of the theorems depend on."""

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
    return paper.problem_of(data, setting.agents, setting.split, setting.radius, setting.mu)


def optimum_of(data: Data, setting: Setting) -> Reference:
    return paper.optimum_of(data, setting.agents, setting.split, setting.radius, setting.mu)


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
