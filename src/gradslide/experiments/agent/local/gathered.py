"""One solution from what each agent wrote, measured by who sees all of them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from gradslide._support.types import Array
from gradslide.engine.observers import NetworkObserver
from gradslide.experiments.agent.local.folders import RESULTS
from gradslide.experiments.agent.results import SOLUTION
from gradslide.graphs.graph import Graph
from gradslide.network import Local
from gradslide.network import coupling as couplings
from gradslide.problems.problem import Problem
from gradslide.results.costs import Costs
from gradslide.results.history import History
from gradslide.results.solution import Solution, load


def gathered(problem: Problem, graph: Graph, folders: Sequence[Path]) -> tuple[Solution, list[Costs]]:
    """The solution, and what each agent has spent. problem: of all agents together. The last record says what was
    reached, which no agent could see alone."""
    parts = [load(folder / RESULTS / SOLUTION) for folder in folders]
    first, spent = parts[0], [part.costs for part in parts]
    outputs = {name: np.concatenate([part.outputs[name] for part in parts]) for name in first.outputs}
    dual = _stacked(parts, lambda part: part.dual)
    whole = replace(
        first,
        x=outputs[first.output],
        agents=range(graph.m),
        outputs=outputs,
        costs=_costs(spent),
        # A part common to all agents says nothing.
        dual=None if dual is None else dual - dual.mean(axis=0),
        y=_stacked(parts, lambda part: part.y),
        settings={**first.settings, "problem": repr(problem)},
        mean=outputs[first.output].mean(axis=0),
    )
    return replace(whole, history=_observed(problem, graph, whole)), spent


def _stacked(parts: Sequence[Solution], rows: Callable[[Solution], Array | None]) -> Array | None:
    known = [own for part in parts if (own := rows(part)) is not None]
    return np.concatenate(known) if len(known) == len(parts) else None


def _costs(spent: Sequence[Costs]) -> Costs:
    """Per agent the largest; but what was sent adds up."""
    columns: dict[str, Any] = {
        name: max(getattr(each, name) for each in spent)
        for name in Costs.__dataclass_fields__
        if name != "simulated_seconds"
    }
    return Costs(**{**columns, "floats_sent": sum(each.floats_sent for each in spent)})


def _observed(problem: Problem, graph: Graph, solution: Solution) -> History:
    """The history, whose last record is measured at the answers of all agents."""
    history, network = solution.history, Local(graph)
    if not len(history):
        return history
    last = history[-1]
    observer = NetworkObserver(problem, network, couplings.make(solution.settings["coupling"], network))
    metrics = observer.metrics(solution.x, -math.inf if last.lower is None else last.lower)
    seen = {} if metrics is None else asdict(metrics)
    return History([*history[:-1], replace(last, floats_sent=solution.costs.floats_sent, **seen)])
