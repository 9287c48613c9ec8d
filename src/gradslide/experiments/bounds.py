"""What the theorems promised a run, from a reference optimum."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.methods import PDS, SPDS
from gradslide.methods.base import AnyMethod
from gradslide.oracles import Noise, Sampling, WithoutReplacement, estimate_sigma
from gradslide.problems.problem import Problem
from gradslide.results.solution import Solution
from gradslide.results.status import Status
from gradslide.theory import guarantees
from gradslide.theory.guarantees import Bound
from gradslide.theory.reference import Reference, multiplier_at
from gradslide.theory.schedules import Row, Schedule, theorem_1, theorem_2


@dataclass(frozen=True)
class Promise:
    """Bounds. local: with each agent at its own point, and on ||A x||; at_mean: on the objective
    error at the mean.

    along: all three for each record, where they hold along the way and not only at the end; that at
    the mean is None where the mean was not kept.
    """

    local: Bound
    at_mean: float
    along: dict[str, list[Any]] | None


def promise(
    problem: Problem,
    graph: Graph,
    method: AnyMethod,
    solution: Solution,
    optimum: Reference,
    means: Mapping[int, Array] = MappingProxyType({}),
) -> Promise | None:
    """Theorem 1's for the average after as many outer iterations; Theorem 2's, in expectation, for
    sampled gradients.

    None past the first stage, for other methods, outputs and ways of sampling, which they say
    nothing of, and for runs that diverged. means: of the agents, after some outer iterations.
    """
    if not isinstance(method, PDS | SPDS) or solution.status is Status.DIVERGED or solution.output != "average":
        return None
    rows = _rows(solution)
    sampling = method.oracle
    if rows[-1].stage > 0 or isinstance(sampling, WithoutReplacement):
        return None
    V = optimum.V(problem, problem.start())
    coupling = solution.settings["coupling"]
    z_star = optimum.multiplier(problem, graph, coupling)

    def bound_at(row: Row, mean: Array) -> float:
        z_mean = multiplier_at(problem, graph, coupling, mean)
        return guarantees.objective_at_mean(rows[0], row, V=V, z_mean=z_mean)

    local = guarantees.proposition_1(rows[0], rows[-1], V=V, z_star=z_star)
    at_mean = bound_at(rows[-1], solution.mean)
    noise = 0.0
    along: dict[str, list[Any]] | None = None
    if rows[0].c == 0:
        schedule = _schedule(solution)
        seen = {record.iteration: schedule.row(record.iteration) for record in solution.history}
        each = [guarantees.proposition_1(rows[0], row, V=V, z_star=z_star) for row in seen.values()]
        along = {
            "objective": [bound.objective for bound in each],
            "residual": [bound.residual for bound in each],
            "at_mean": [bound_at(row, means[k]) if k in means else None for k, row in seen.items()],
        }
    else:
        given = method.sigma if isinstance(method, SPDS) else None
        sigma = _sigma(problem, sampling, optimum) if given is None else given
        noise = guarantees.sampling_error(rows, variance=problem.m * sigma**2)
    return Promise(Bound(local.objective + noise, local.residual + noise), at_mean + noise, along)


def theory_R(problem: Problem, graph: Graph, optimum: Reference, coupling: str) -> float:
    """Theorem 1's R."""
    return guarantees.theory_R(
        V=optimum.V(problem, problem.start()), z_star=optimum.multiplier(problem, graph, coupling)
    )


def distance(problem: Problem, optimum: Reference) -> float:
    """|x_0 - x*|, stacked over the agents, in the Euclidean norm; where x_0 is optimal, any will
    do.
    """
    return math.sqrt(2 * optimum.V(problem, problem.start())) or 1.0


def _rows(solution: Solution) -> list[Row]:
    """The rows that were run; the first and the last where no other matters."""
    last, schedule = solution.history[-1].iteration, _schedule(solution)
    first = schedule.row(1)
    return [first, schedule.row(last)] if first.c == 0 else [schedule.row(k) for k in range(1, last + 1)]


def _schedule(solution: Solution) -> Schedule:
    parameters: dict[str, Any] = {name: value for name, value in solution.parameters.items() if name != "sigma"}
    return theorem_2(**parameters) if "c" in parameters else theorem_1(**parameters)


def _sigma(problem: Problem, sampling: Sampling | None, optimum: Reference) -> float:
    """The sigma of noise that was added; else what samples show at x_0 or at x*, whichever is
    larger.
    """
    if isinstance(sampling, Noise):
        return sampling.sigma
    return max(estimate_sigma(problem, x, oracle=sampling) for x in (None, optimum.x))
