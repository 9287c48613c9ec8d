"""The runs of Table 1: PDS on a grid, auto mode and DCS, each until losses and ||A x|| are what the
paper has.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gradslide._support.types import Array
from gradslide._version import __version__
from gradslide.engine.stopping import Stop
from gradslide.experiments.curves import curve_of
from gradslide.experiments.parallel.cache import digest
from gradslide.experiments.parallel.pool import solved
from gradslide.experiments.reproduce.paper import Data, Net, problem_of
from gradslide.methods import DCS, PDS, AutoPDS
from gradslide.methods.base import AnyMethod
from gradslide.results.history import History, Record


@dataclass(frozen=True)
class Goal:
    """A row: both losses at most `level` per agent, and ||Lap x|| at most `residual`."""

    target: float
    level: float
    residual: float


@dataclass(frozen=True)
class GridTask:
    """One (L, R) of a block, for all targets of a network."""

    data: Data
    net: Net
    block: str
    coupling: str
    output: str
    L: float
    R: float
    goals: tuple[Goal, ...]
    iterations: int
    rounds: int

    @property
    def label(self) -> str:
        return f"{self.block} {self.net.label}, L = {self.L:.3g}, R = {self.R:.3g}"


@dataclass(frozen=True)
class CountsTask:
    """As many outer iterations as the paper has, with the L that its rounds imply."""

    data: Data
    net: Net
    target: float
    N: int
    L: float
    R: float

    @property
    def label(self) -> str:
        return f"the paper's counts, {self.net.label}, target {self.target:g}"


@dataclass(frozen=True)
class AutoTask:
    """Nothing but the problem, the network and when to stop."""

    data: Data
    net: Net
    goal: Goal
    iterations: int

    @property
    def label(self) -> str:
        return f"auto {self.net.label}, target {self.goal.target:g}"


@dataclass(frozen=True)
class DCSTask:
    """DCS, which goes on from its checkpoint in `folder`, unless it is to start afresh."""

    data: Data
    net: Net
    goals: tuple[Goal, ...]
    output: str
    rounds: int
    folder: Path = field(compare=False)
    fresh: bool = field(compare=False)

    @property
    def label(self) -> str:
        return f"DCS {self.net.label}, {self.rounds:,} rounds"

    @property
    def checkpoint(self) -> Path:
        """Whatever its budget, it is the same run."""
        said = [self.data.name, self.data.digest, asdict(self.net), self.output, __version__]
        return self.folder / f"dcs-{self.net.name}-{digest(said)}.npz"


def perform_tuned(task: GridTask) -> dict[str, Any]:
    problem, graph = problem_of(task.data, task.net.agents), task.net.graph
    seen = Watch(task.goals, graph.laplacian, graph.m)

    def is_enough(record: Record, x: Array) -> bool:
        seen(record, x)
        return seen.is_done or record.rounds >= task.rounds

    method: AnyMethod = PDS(L=task.L, R=task.R, coupling=task.coupling, norm=task.net.norm(task.coupling))
    solved(problem, graph, method, stop=Stop(iterations=task.iterations), output=task.output, callback=is_enough)
    return seen.found


def perform_counted(task: CountsTask) -> dict[str, Any]:
    """What each output has in the end."""
    problem, graph = problem_of(task.data, task.net.agents), task.net.graph
    method: AnyMethod = PDS(L=task.L, R=task.R, coupling="laplacian", norm=graph.laplacian_norm)
    solution = solved(problem, graph, method, stop=Stop(iterations=task.N), record_every=task.N)
    found: dict[str, Any] = {"gradients": solution.costs.gradients, "rounds": solution.costs.rounds}
    for name, x in solution.outputs.items():
        mean = np.broadcast_to(x.mean(axis=0), x.shape)
        found |= {
            f"loss_{name}": float(np.sum(problem.objective(mean))) / graph.m,
            f"residual_{name}": float(np.linalg.norm(graph.laplacian @ x)),
        }
    return found


def perform_auto(task: AutoTask) -> dict[str, Any]:
    """||Lap x|| <= sqrt(lmax) ||B^T x||, and the latter is what a run over edges can be asked for."""
    problem, graph, goal = problem_of(task.data, task.net.agents), task.net.graph, task.goal
    residual = goal.residual / task.net.norm("incidence")
    stop = Stop(objective=goal.level * graph.m, residual=residual, iterations=task.iterations)
    solution = solved(problem, graph, AutoPDS(), stop=stop)
    seen = Watch((goal,), graph.laplacian, graph.m)
    seen(solution.history[-1], solution.x)
    return {**seen.found, "status": solution.status.name, "curve": curve_of(solution.history)}


def perform_dcs(task: DCSTask) -> dict[str, Any]:
    """The residual that DCS records is ||Lap x||: its history, which a checkpoint keeps, says all."""
    problem, graph = problem_of(task.data, task.net.agents), task.net.graph
    solution = solved(
        problem,
        graph,
        DCS(compiled=True, norm=graph.laplacian_norm),
        stop=Stop(rounds=task.rounds),
        output=task.output,
        checkpoint=task.checkpoint,
        resume=not task.fresh,
    )
    seen = Watch(task.goals, None, graph.m)
    # A longer run may have left the checkpoint.
    records = [record for record in solution.history if record.rounds <= task.rounds]
    for record in records:
        seen(record, None)
    last = _facts(records[-1], records[-1].residual, graph.m)
    return {**seen.found, "last": last, "curve": curve_of(History(records))}


class Watch:
    """For each goal the first record that has it; and the first that has its losses, whatever ||Lap
    x||.
    """

    def __init__(self, goals: tuple[Goal, ...], laplacian: Any, m: int) -> None:
        self._goals, self._laplacian, self._m = goals, laplacian, m
        self._reached: list[dict[str, Any] | None] = [None] * len(goals)
        self._losses: list[dict[str, Any] | None] = [None] * len(goals)

    def __call__(self, record: Record, x: Array | None) -> None:
        assert record.objective is not None
        assert record.local_objective is not None
        worse = max(record.objective, record.local_objective) / self._m
        for index, goal in enumerate(self._goals):
            if self._reached[index] is not None or worse > goal.level:
                continue
            residual = record.residual if x is None else float(np.linalg.norm(self._laplacian @ x))
            facts = _facts(record, residual, self._m)
            self._losses[index] = self._losses[index] or facts
            if residual is not None and residual <= goal.residual:
                self._reached[index] = facts

    @property
    def is_done(self) -> bool:
        return None not in self._reached

    @property
    def found(self) -> dict[str, Any]:
        """One entry per goal."""
        return {"reached": self._reached, "losses": self._losses}


def _facts(record: Record, residual: float | None, m: int) -> dict[str, Any]:
    assert record.objective is not None
    assert record.local_objective is not None
    return {
        "iteration": record.iteration,
        "gradients": record.gradients,
        "rounds": record.rounds,
        "control_rounds": record.control_rounds,
        "residual": residual,
        "loss": record.objective / m,
        "local_loss": record.local_objective / m,
        "disagreement": record.disagreement,
        "mean_norm": record.mean_norm,
    }
