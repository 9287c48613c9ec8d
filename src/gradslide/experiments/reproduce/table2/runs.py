"""The runs of Table 2: SPDS for a fixed number of outer iterations, SDCS until it is there or its
budget is spent.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradslide._support.types import Array
from gradslide.engine.stopping import Stop
from gradslide.experiments.parallel.pool import solved
from gradslide.experiments.reproduce.paper import Data, Net, problem_of
from gradslide.methods import SDCS, SPDS
from gradslide.results.history import Record


@dataclass(frozen=True)
class SPDSTask:
    """SPDS; what is None is left to it."""

    data: Data
    net: Net
    block: str
    target: float
    N: int
    coupling: str
    L: float | None
    R: float | None
    c: float | None
    samples: int | None
    draw: int

    @property
    def label(self) -> str:
        return f"SPDS {self.block} {self.net.label}, target {self.target:g}, draw {self.draw}"


@dataclass(frozen=True)
class SDCSTask:
    """SDCS, watched for every target loss (its level)."""

    data: Data
    net: Net
    levels: tuple[float, ...]
    disagreement: float
    rounds: int
    draw: int

    @property
    def label(self) -> str:
        return f"SDCS {self.net.label}, draw {self.draw}"


def perform_spds(task: SPDSTask) -> dict[str, Any]:
    problem, graph = problem_of(task.data, task.net.agents), task.net.graph
    norm = task.net.norm(task.coupling)
    method = SPDS(
        N=task.N, L=task.L, R=task.R, c=task.c, samples=task.samples, coupling=task.coupling, norm=norm, seed=task.draw
    )
    solution = solved(problem, graph, method, output="average", record_every=task.N)
    return _facts(solution.history[-1], solution.x, graph.laplacian) | {
        "L": solution.parameters["L"],
        "R": solution.parameters["R"],
    }


def perform_sdcs(task: SDCSTask) -> dict[str, Any]:
    """For each level the first outer iteration that has it, with the agents close enough."""
    problem, graph = problem_of(task.data, task.net.agents), task.net.graph
    reached: list[dict[str, Any] | None] = [None] * len(task.levels)

    def is_done(record: Record, x: Array) -> bool:
        facts = _facts(record, x, graph.laplacian)
        for index, level in enumerate(task.levels):
            if reached[index] is None and facts["loss"] <= level and facts["disagreement"] <= task.disagreement:
                reached[index] = facts
        return None not in reached

    method = SDCS(norm=graph.laplacian_norm, seed=task.draw)
    solution = solved(problem, graph, method, stop=Stop(rounds=task.rounds), output="average", callback=is_done)
    return {"reached": reached, "last": _facts(solution.history[-1], solution.x, graph.laplacian)}


def _facts(record: Record, x: Array, laplacian: Any) -> dict[str, Any]:
    assert record.objective is not None
    assert record.disagreement is not None
    return {
        "samples": record.samples,
        "rounds": record.rounds,
        "control_rounds": record.control_rounds,
        "loss": record.objective / len(x),
        "disagreement": record.disagreement / record.mean_norm if record.mean_norm > 0 else math.inf,
        "residual": float(np.linalg.norm(laplacian @ x)),
    }
