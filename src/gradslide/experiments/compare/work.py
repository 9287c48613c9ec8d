"""What a process of a comparison does: one task after another. Nothing that a method does wrong
goes further.
"""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gradslide._support.errors import InputError, require
from gradslide._support.types import Array
from gradslide.engine.stopping import Stop
from gradslide.experiments import build
from gradslide.experiments.catalogue import METHODS
from gradslide.experiments.compare.spec import Contender
from gradslide.experiments.compare.task import ComparisonTask, Outcome, Target
from gradslide.experiments.curves import Thinning
from gradslide.experiments.parallel import pool
from gradslide.experiments.parallel.pool import solved
from gradslide.experiments.section import Section
from gradslide.graphs.graph import Graph
from gradslide.methods.base import AnyMethod
from gradslide.network import Network
from gradslide.network.clock import PRESETS, Clock
from gradslide.problems.problem import Problem
from gradslide.results.history import Record
from gradslide.results.status import Status
from gradslide.theory.reference import reference

_SPENT = ("gradients", "samples", "rounds", "control_rounds", "floats_sent", "simulated_seconds")
_SEEN = ("iteration", "seconds")


def optimum(table: dict[str, Any], folder: Path, data_dir: Path | None) -> Target:
    """The reference optimum of a problem, with all data in one place."""
    problem = _problem(json.dumps(table), folder, data_dir)
    found = reference(problem)
    return Target(found.objective, float(np.linalg.norm(found.x)) or 1.0)


def perform(task: ComparisonTask) -> Outcome:
    """Run it, whatever happens."""
    if pool.is_interrupted():
        return Outcome.of(task, kind="interrupted")
    try:
        return _made(task)
    except KeyboardInterrupt:
        return Outcome.of(task, kind="interrupted")
    except InputError as error:
        return Outcome.of(task, kind="refused", message=str(error))
    except Exception as error:
        return Outcome.of(task, kind="failed", message=f"{type(error).__name__}: {error}")


def _made(task: ComparisonTask) -> Outcome:
    problem = _problem(json.dumps(task.problem.table), task.folder, task.data_dir)
    network, method, clocks = prepared(task)
    observed = _ReachedAccuracies(task)
    solution = solved(problem, network, method, stop=Stop(**task.limits), callback=observed, clock=clocks or None)
    status = Status.CONVERGED if observed.is_done else solution.status
    rows = problem.loss.rows_per_agent
    return Outcome.of(
        task,
        status=status.name,
        message=status.value,
        reached=observed.reached,
        error=observed.error,
        disagreement=observed.disagreement,
        warnings=list(solution.warnings),
        parameters={
            name: value if isinstance(value, str) else float(value) for name, value in solution.parameters.items()
        },
        costs=solution.costs.to_dict(),
        curve=observed.curve,
        rows=None if rows is None else float(np.max(rows)),
    )


def forget() -> None:
    """Read files again."""
    _problem.cache_clear()
    _graph.cache_clear()


def check(task: ComparisonTask) -> None:
    """Raise InputError for a mistake in any of its tables."""
    problem = _problem(json.dumps(task.problem.table), task.folder, task.data_dir)
    network, method, clocks = prepared(task)
    for clock in clocks.values():
        clock.fits(network.graph, problem.loss)
    spends = "gradients" if method.oracle is None else "samples"
    ends = {"iterations", "rounds", "seconds", spends} & set(task.limits)
    rule = f"[limits] must hold one that {task.method.name} comes to"
    require(bool(ends), rule, ", ".join(task.limits), f"add {spends}, rounds or seconds")


def prepared(task: ComparisonTask) -> tuple[Network, AnyMethod, dict[str, Clock]]:
    """What a task needs besides its data."""
    agents = Section("problem", task.problem.table).section("data").take("agents", int)
    graph = _graph(json.dumps(task.network.table), agents, task.folder, task.data_dir)
    condition = Section("condition", task.condition.table)
    kinds = condition.take("kinds", list, [])
    condition.finish()
    network = build.conditions_over(graph, kinds, seed=task.seed)
    return network, _method(task), {name: _clock(name, table) for name, table in task.clocks.items()}


class _ReachedAccuracies:
    """Looks at every record: what had been spent when an accuracy was reached, and a thinned curve."""

    def __init__(self, task: ComparisonTask) -> None:
        self._task = task
        self.reached: list[dict[str, Any] | None] = [None] * len(task.accuracies)
        self.curve: dict[str, list[Any]] = {name: [] for name in (*_SPENT, *_SEEN, "error", "disagreement")}
        self.error: float | None = None
        self.disagreement: float | None = None
        self._thinning = Thinning()

    def __call__(self, record: Record, x: Array) -> bool:
        """Whether to stop: all accuracies were reached, or Ctrl-C came before `solve` took care of
        it.
        """
        if record.objective is None or record.disagreement is None:
            return pool.is_interrupted()
        target = self._task.target
        self.error = (record.objective - target.objective) / target.scale
        self.disagreement = record.disagreement / target.size
        spent = {name: getattr(record, name) for name in _SPENT}
        for i, accuracy in enumerate(self._task.accuracies):
            largest = self._task.disagreement_factor * accuracy
            close = self.error <= accuracy and self.disagreement <= largest
            if close and self.reached[i] is None:
                self.reached[i] = spent
        if self._thinning.takes(record.iteration):
            seen = {name: getattr(record, name) for name in _SEEN}
            reached = {"error": self.error, "disagreement": self.disagreement}
            for name, value in {**spent, **seen, **reached}.items():
                self.curve[name].append(value)
        return self.is_done or pool.is_interrupted()

    @property
    def is_done(self) -> bool:
        return None not in self.reached


def _method(task: ComparisonTask) -> AnyMethod:
    """The method, at the multiple of its default that the task tries; its seed is the task's unless
    it has its own.
    """
    given: dict[str, Any] = {}
    if task.method.is_random:
        given["seed"] = task.seed
    if task.value is not None:
        given[tuned(task.method)] = task.value
    theory = build.Theory(R=lambda coupling: _no_theory(), distance=_no_theory)
    table = {name: value for name, value in task.method.table.items() if name not in given}
    return build.method_from(Section("method", table), theory, **given)


def tuned(method: Contender) -> str:
    """The parameter that a grid multiplies; empty for a method that has none."""
    kind = METHODS.get(method.table.get("name", ""))
    return "" if kind is None else kind.tuned


def _no_theory() -> float:
    raise InputError('a comparison takes no "theory"', '"theory"', "give a number, or leave it out for the default")


def _clock(name: str, table: dict[str, Any]) -> Clock:
    """A preset, changed where the table says so, or a clock of its own."""
    numbers = {key: value for key, value in table.items() if key != "preset"}
    preset = PRESETS.get(table.get("preset", ""), {})
    section = Section(f"clock {name}", {"kind": "clock", **preset, **numbers})
    return section.construct("clock", {"clock": Clock}, key="kind")


@lru_cache(maxsize=4)
def _problem(table: str, folder: Path, data_dir: Path | None) -> Problem:
    section = Section("problem", json.loads(table))
    section.take("optional", bool, False)
    data = section.section("data")
    return build.problem_from(data, section, folder, data_dir)


@lru_cache(maxsize=16)
def _graph(table: str, m: int, folder: Path, data_dir: Path | None) -> Graph:
    section = Section("network", json.loads(table))
    section.take("optional", bool, False)
    return build.build_graph(section, m, folder, data_dir)
