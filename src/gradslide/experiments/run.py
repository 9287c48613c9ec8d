"""Run a spec: one solve per network, with errors and bounds where a reference optimum is known."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gradslide import storage
from gradslide.costs import work
from gradslide.experiments import bounds, build
from gradslide.experiments.spec import Spec, stem
from gradslide.graph import Graph
from gradslide.guarantees import Bound
from gradslide.methods import Method
from gradslide.problem import Problem
from gradslide.reference import Reference, reference
from gradslide.solution import Solution
from gradslide.solve import solve
from gradslide.status import Status


@dataclass(frozen=True)
class NetworkRun:
    """One network's solution; errors and bounds are against the reference optimum.

    stem: how the names of its files begin.
    objective_error: at the mean of the agents; local_error: with each agent at its own point. bound: on the local error
    and on ||A x||; bound_at_mean: on the objective error.
    """

    name: str
    stem: str
    graph: Graph
    solution: Solution
    objective_error: float | None = None
    local_error: float | None = None
    bound: Bound | None = None
    bound_at_mean: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "network": self.name,
            "graph": self.graph.describe(),
            "objective_error": self.objective_error,
            "local_error": self.local_error,
            "bound": None if self.bound is None else asdict(self.bound),
            "bound_at_mean": self.bound_at_mean,
            **self.solution.to_dict(),
        }


@dataclass(frozen=True)
class Results:
    spec: Spec
    problem: str
    optimum: float | None
    has_targets: bool
    runs: list[NetworkRun]

    @property
    def work(self) -> list[str]:
        """Gradients, samples, or both: what the methods took."""
        return work(run.solution.costs for run in self.runs)

    @property
    def fulfilled(self) -> bool:
        """Whether every run did what was asked: reached its targets, or its limit where it had no targets."""
        cut_short = {Status.DIVERGED, Status.INTERRUPTED}
        return all(
            run.solution.status is Status.CONVERGED if self.has_targets else run.solution.status not in cut_short
            for run in self.runs
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.spec.name,
            "title": self.spec.title,
            "problem": self.problem,
            "optimum": self.optimum,
            "runs": [run.to_dict() for run in self.runs],
        }


def run_spec(
    spec: Spec,
    *,
    data_dir: Path | None = None,
    progress: bool = False,
    resume: bool = True,
    say: Callable[[str], None] = lambda text: None,
) -> Results:
    """Everything a spec asks for but the files."""
    problem = build.build_problem(spec, data_dir)
    graphs = {
        name: build.build_graph(section, problem.m, spec.folder) for name, section in spec.networks_by_name().items()
    }
    # With stand-ins for the optimum, so that a mistake shows before anything long starts.
    build.build_stop(spec, lambda: 1.0)
    build.build_method(spec, build.Theory(R=lambda coupling: 1.0, distance=lambda: 1.0))
    storage.require_writable(spec.output.dir)
    optimum: Reference | None = None
    if build.needs_reference(spec):
        say("finding the reference optimum with all data in one place")
        optimum = reference(problem)
    stop = build.build_stop(spec, lambda: _known(optimum).objective)
    runs = []
    stems: list[str] = []
    for name, graph in graphs.items():
        method = build.build_method(spec, _theory(problem, graph, optimum))
        stems.append(stem(name, stems))
        solution = solve(
            problem,
            graph,
            method,
            stop=stop,
            progress=name if progress else False,
            checkpoint=spec.output.dir / f"{stems[-1]}.checkpoint.npz" if spec.output.checkpoint else None,
            resume=resume,
        )
        runs.append(_measured(name, stems[-1], problem, graph, method, solution, optimum))
        if solution.status is Status.INTERRUPTED:
            break
    has_targets = stop is not None and stop.has_targets
    return Results(spec, repr(problem), None if optimum is None else optimum.objective, has_targets, runs)


def _theory(problem: Problem, graph: Graph, optimum: Reference | None) -> build.Theory:
    """What the theorems ask of a spec that leaves it to theory."""
    return build.Theory(
        R=lambda coupling: bounds.theory_R(problem, graph, _known(optimum), coupling),
        distance=lambda: bounds.distance(problem, _known(optimum)),
    )


def _known(optimum: Reference | None) -> Reference:
    assert optimum is not None, "needs_reference said that none was needed"
    return optimum


def _measured(
    name: str,
    stem: str,
    problem: Problem,
    graph: Graph,
    method: Method,
    solution: Solution,
    optimum: Reference | None,
) -> NetworkRun:
    last = solution.history[-1] if len(solution.history) else None
    if optimum is None or last is None or last.objective is None or last.local_objective is None:
        return NetworkRun(name, stem, graph, solution)
    promised = bounds.promise(problem, graph, method, solution, optimum)
    return NetworkRun(
        name,
        stem,
        graph,
        solution,
        objective_error=last.objective - optimum.objective,
        local_error=last.local_objective - optimum.objective,
        bound=None if promised is None else promised.local,
        bound_at_mean=None if promised is None else promised.at_mean,
    )
