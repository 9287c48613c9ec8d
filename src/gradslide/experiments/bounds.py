"""What the theorems promised a run, from a reference optimum."""

import math
from dataclasses import dataclass
from typing import Any

from gradslide import guarantees
from gradslide.graph import Graph
from gradslide.guarantees import Bound
from gradslide.methods import PDS, SPDS, Method
from gradslide.oracles import Noise, Sampling, WithoutReplacement, estimate_sigma
from gradslide.problem import Problem
from gradslide.reference import Reference, multiplier_at
from gradslide.schedules import Row, theorem_1, theorem_2
from gradslide.solution import Solution
from gradslide.status import Status


@dataclass(frozen=True)
class Promise:
    """Bounds. local: with each agent at its own point, and on ||A x||; at_mean: on the objective error at the mean."""

    local: Bound
    at_mean: float


def promise(problem: Problem, graph: Graph, method: Method, solution: Solution, optimum: Reference) -> Promise | None:
    """Theorem 1's for the average after as many outer iterations; Theorem 2's, in expectation, for sampled gradients.

    None past the first stage, for other methods, outputs and ways of sampling, which they say nothing of, and for runs
    that diverged.
    """
    if not isinstance(method, PDS | SPDS) or solution.status is Status.DIVERGED or solution.output != "average":
        return None
    rows = _rows(solution)
    sampling = getattr(method, "oracle", None)
    if rows[-1].stage > 0 or isinstance(sampling, WithoutReplacement):
        return None
    V = optimum.V(problem, problem.start())
    coupling = solution.settings["coupling"]
    z_star = optimum.multiplier(problem, graph, coupling)
    z_mean = multiplier_at(problem, graph, coupling, solution.mean)
    local = guarantees.proposition_1(rows[0], rows[-1], V=V, z_star=z_star)
    at_mean = guarantees.objective_at_mean(rows[0], rows[-1], V=V, z_mean=z_mean)
    noise = 0.0
    if rows[0].c > 0:
        given = method.sigma if isinstance(method, SPDS) else None
        sigma = _sigma(problem, sampling, optimum) if given is None else given
        noise = guarantees.sampling_error(rows, variance=problem.m * sigma**2)
    return Promise(Bound(local.objective + noise, local.residual + noise), at_mean + noise)


def theory_R(problem: Problem, graph: Graph, optimum: Reference, coupling: str) -> float:
    """Theorem 1's R."""
    return guarantees.theory_R(
        V=optimum.V(problem, problem.start()), z_star=optimum.multiplier(problem, graph, coupling)
    )


def distance(problem: Problem, optimum: Reference) -> float:
    """|x_0 - x*|, stacked over the agents, in the Euclidean norm; where x_0 is optimal, any will do."""
    return math.sqrt(2 * optimum.V(problem, problem.start())) or 1.0


def _rows(solution: Solution) -> list[Row]:
    """The rows that were run; the first and the last where no other matters."""
    last = solution.history[-1].iteration
    parameters: dict[str, Any] = {name: value for name, value in solution.parameters.items() if name != "sigma"}
    if "c" not in parameters:
        exact = theorem_1(**parameters)
        return [exact.row(1), exact.row(last)]
    sampled = theorem_2(**parameters)
    return [sampled.row(k) for k in range(1, last + 1)]


def _sigma(problem: Problem, sampling: Sampling | None, optimum: Reference) -> float:
    """The sigma of noise that was added; else what samples show at x_0 or at x*, whichever is larger."""
    if isinstance(sampling, Noise):
        return sampling.sigma
    return max(estimate_sigma(problem, x, oracle=sampling) for x in (None, optimum.x))
