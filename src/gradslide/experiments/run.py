"""Run a spec: one solve per network, with errors and bounds where a reference optimum is known."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from gradslide._support import storage
from gradslide._support.errors import require
from gradslide._support.types import Array
from gradslide.engine.run import Callback
from gradslide.engine.solve import solve
from gradslide.experiments import bounds, build
from gradslide.experiments.per_agent import Frames, drawn, split_costs
from gradslide.experiments.regression import RegressionSpec
from gradslide.experiments.spec import Spec, stem
from gradslide.fitting.sites import default_graph
from gradslide.graphs.graph import Graph
from gradslide.methods.base import AnyMethod
from gradslide.network import Local, Network
from gradslide.problems.problem import Problem
from gradslide.regression.families import FAMILIES
from gradslide.results.costs import work
from gradslide.results.history import Record
from gradslide.results.solution import Solution
from gradslide.results.status import Status
from gradslide.theory.guarantees import Bound
from gradslide.theory.reference import Reference, reference


class ProcessGroup(Protocol):
    """The processes that run an experiment together; one, or those of MPI."""

    @property
    def is_first(self) -> bool: ...

    @property
    def size(self) -> int: ...

    def network(self, graph: Graph) -> Network: ...

    def broadcast(self, numbers: Callable[[], Array]) -> Array:
        """What the first process computes, for all of them."""
        ...


class SingleProcess:
    """This process alone."""

    is_first: ClassVar[bool] = True
    size: ClassVar[int] = 1

    def network(self, graph: Graph) -> Network:
        return Local(graph)

    def broadcast(self, numbers: Callable[[], Array]) -> Array:
        return numbers()


class Optimum:
    """The reference optimum.

    objective: its value, in all processes. whole: the problem with all data and its optimum, in the
    first process; None in the others.
    """

    def __init__(self, group: ProcessGroup, build: Callable[[], Problem]) -> None:
        self._group = group
        self.whole: tuple[Problem, Reference] | None = None
        if group.is_first:
            problem = build()
            self.whole = problem, reference(problem)
        self.objective = self.number(lambda problem, optimum: optimum.objective)

    def number(self, compute: Callable[[Problem, Reference], float]) -> float:
        """A number computed from it in the first process, for all processes."""

        def numbers() -> Array:
            assert self.whole is not None
            return np.array([compute(*self.whole)])

        return float(self._group.broadcast(numbers)[0])


@dataclass(frozen=True)
class NetworkRun:
    """One network's solution; errors and bounds are against the reference optimum.

    stem: how the names of its files begin. objective_error: at the mean of the agents; local_error:
    with each agent at its own point. bound: on the local error and on ||A x||; bound_at_mean: on
    the objective error; bounds_along: all three for each record. frames: how far the agents were
    from the mean, as `Frames` has it; by_agent: what each has spent.
    """

    name: str
    stem: str
    graph: Graph
    solution: Solution
    objective_error: float | None = None
    local_error: float | None = None
    bound: Bound | None = None
    bound_at_mean: float | None = None
    bounds_along: dict[str, list[Any]] | None = None
    frames: dict[str, Any] | None = None
    by_agent: dict[str, list[int]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "network": self.name,
            "graph": self.graph.describe(),
            "objective_error": self.objective_error,
            "local_error": self.local_error,
            "bound": None if self.bound is None else asdict(self.bound),
            "bound_at_mean": self.bound_at_mean,
            "bounds_along": self.bounds_along,
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
        """Whether every run did what was asked."""
        return all(run.solution.status.fulfils(self.has_targets) for run in self.runs)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.spec.name,
            "title": self.spec.title,
            "problem": self.problem,
            "optimum": self.optimum,
            "runs": [run.to_dict() for run in self.runs],
        }

    def networks(self) -> dict[str, Any]:
        """What can be drawn of the networks."""
        return {"networks": [drawn(run.name, run.graph, run.frames, run.by_agent) for run in self.runs]}


class Listener:
    """Is notified while a spec runs. This one ignores everything."""

    def started(self, name: str, graph: Graph, problem: str, optimum: float | None) -> None:
        """A network's run begins. problem: in words; optimum: if it is known."""

    def recorded(self, record: Record, frames: Frames | None) -> None:
        """The last record, and the distances of the agents from their mean so far."""

    def ended(self, run: NetworkRun) -> None:
        """A network's run has ended."""


def run_spec(
    spec: Spec,
    *,
    data_dir: Path | None = None,
    progress: bool = False,
    resume: bool = True,
    say: Callable[[str], None] = lambda text: None,
    group: ProcessGroup | None = None,
    listener: Listener | None = None,
) -> Results:
    """Run everything that a spec asks for, and write nothing.

    Parameters
    ----------
    spec : Spec
        As `read_spec` gives it.
    data_dir : Path, optional
        Where data files are looked for.
    progress : bool
        Show a progress line for each network.
    resume : bool
        Continue from checkpoints, where the spec asks for them.
    say : callable
        Receives messages for the user.
    group : ProcessGroup, optional
        The processes that share the agents; this one alone by default. The first process gets the
        answers of all agents; where the spec refers to the optimum, it also reads all data.
    listener : Listener, optional
        Is notified of every network and record, in this process.

    Returns
    -------
    Results
        One `NetworkRun` for each network, with errors and bounds where the spec refers to the
        optimum.
    """
    is_watched, listener = listener is not None, listener or Listener()
    group = SingleProcess() if group is None else group
    if spec.regression is not None:
        return _run_regression(spec, spec.regression, group, listener, progress=progress, resume=resume)
    graphs = checked(spec)
    m = build.agents_of(spec)
    known: Optimum | None = None
    if build.needs_reference(spec):
        if group.is_first:
            say("finding the reference optimum with all data in one place")
        known = Optimum(group, lambda: build.build_problem(spec, data_dir))
    stop = build.build_stop(spec, lambda: _needed(known).objective)
    runs = []
    stems: list[str] = []
    problem: Problem | None = None
    for name, graph in graphs.items():
        network = group.network(graph)
        if problem is None or group.size > 1:
            problem = build.build_problem(spec, data_dir, None if group.size == 1 else network.agents)
        method = build.build_method(spec, _theory(graph, known))
        stems.append(stem(name, stems))
        frames = Frames(network, keep_means=known is not None and known.whole is not None)
        listener.started(name, graph, problem.described(m), None if known is None else known.objective)
        callback = _followed(frames, listener) if is_watched or frames.is_enabled else None
        given = _options(spec, name, stems[-1], progress=progress, resume=resume)
        solution = solve(problem, network, method, stop=stop, callback=callback, **given)
        frames.record_last(solution.history[-1].iteration if len(solution.history) else 0, solution.x)
        solution = solution.gathered()
        measured = _measured(name, stems[-1], graph, method, solution, known, frames)
        runs.append(replace(measured, frames=frames.to_dict(), by_agent=split_costs(solution.costs, graph)))
        listener.ended(runs[-1])
        if solution.status is Status.INTERRUPTED:
            break
    assert problem is not None
    has_targets = stop is not None and stop.has_targets
    return Results(spec, problem.described(m), None if known is None else known.objective, has_targets, runs)


def _run_regression(
    spec: Spec, regression: RegressionSpec, group: ProcessGroup, listener: Listener, *, progress: bool, resume: bool
) -> Results:
    """Fit a regression to tables, over each network."""
    storage.require_writable(spec.output.dir)
    data = regression.data(spec.folder)
    sections = spec.networks_by_name()
    graphs = {name: build.build_graph(section, data.m, spec.folder) for name, section in sections.items()}
    graphs = graphs or {"sites": default_graph(data.m)}
    described = f"{FAMILIES[data.regression.family].title} over the tables of {data.m} sites"
    runs: list[NetworkRun] = []
    stems: list[str] = []
    for name, graph in graphs.items():
        network = group.network(graph)
        stems.append(stem(name, stems))
        frames = Frames(network)
        listener.started(name, graph, described, None)
        given = _options(spec, name, stems[-1], progress=progress, resume=resume)
        solution = data.fit(network, run=spec.name, callback=_followed(frames, listener), **given)
        frames.record_last(solution.history[-1].iteration if len(solution.history) else 0, solution.x)
        solution = solution.gathered()
        run = NetworkRun(name, stems[-1], graph, solution)
        runs.append(replace(run, frames=frames.to_dict(), by_agent=split_costs(solution.costs, graph)))
        listener.ended(runs[-1])
        if solution.status is Status.INTERRUPTED:
            break
    return Results(spec, described, None, True, runs)


def _options(spec: Spec, name: str, stem: str, *, progress: bool, resume: bool) -> dict[str, Any]:
    """What `solve` is told of progress and checkpoints. stem: how the names of its files begin."""
    return {
        "progress": name if progress else False,
        "checkpoint": spec.output.dir / f"{stem}.checkpoint.npz" if spec.output.checkpoint else None,
        "checkpoint_seconds": spec.output.checkpoint_seconds,
        "resume": resume,
    }


def _followed(frames: Frames, listener: Listener) -> Callback:
    def look(record: Record, x: Array) -> None:
        frames.record(record.iteration, x)
        listener.recorded(record, frames)

    return look


def checked(spec: Spec, processes: int = 1) -> dict[str, Graph]:
    """The networks by name; with stand-ins for the optimum and without the data, so that a mistake
    shows before anything long starts."""
    if spec.regression is not None:
        return {}
    m = build.agents_of(spec)
    graphs = {name: build.build_graph(section, m, spec.folder) for name, section in spec.networks_by_name().items()}
    build.build_stop(spec, lambda: 1.0)
    build.build_method(spec, build.Theory(R=lambda coupling: 1.0, distance=lambda: 1.0))
    storage.require_writable(spec.output.dir)
    rule = "each process needs at least one agent"
    require(processes <= m, rule, f"{m} agents, {processes} processes", "start fewer processes")
    return graphs


def _theory(graph: Graph, known: Optimum | None) -> build.Theory:
    """What the theorems ask of a spec that leaves it to theory."""
    return build.Theory(
        R=lambda coupling: _needed(known).number(
            lambda problem, optimum: bounds.theory_R(problem, graph, optimum, coupling)
        ),
        distance=lambda: _needed(known).number(bounds.distance),
    )


def _needed(known: Optimum | None) -> Optimum:
    assert known is not None, "needs_reference said that none was needed"
    return known


def _measured(
    name: str, stem: str, graph: Graph, method: AnyMethod, solution: Solution, known: Optimum | None, frames: Frames
) -> NetworkRun:
    last = solution.history[-1] if len(solution.history) else None
    whole = None if known is None else known.whole
    if whole is None or last is None or last.objective is None or last.local_objective is None:
        return NetworkRun(name, stem, graph, solution)
    problem, optimum = whole
    means = {k: mean for k, mean in zip(frames.iterations, frames.means, strict=True) if mean is not None}
    promised = bounds.promise(problem, graph, method, solution, optimum, means)
    return NetworkRun(
        name,
        stem,
        graph,
        solution,
        objective_error=last.objective - optimum.objective,
        local_error=last.local_objective - optimum.objective,
        bound=None if promised is None else promised.local,
        bound_at_mean=None if promised is None else promised.at_mean,
        bounds_along=None if promised is None else promised.along,
    )
