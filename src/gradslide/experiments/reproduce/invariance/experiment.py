"""Beyond the paper: gradients and rounds to one accuracy, from ring to complete, and from 10 to 10,000 agents."""

import math
from collections.abc import Sequence
from typing import Any

from gradslide.experiments.reproduce.invariance.runs import (
    ONE,
    THEORY,
    WORST,
    Accuracy,
    Network,
    Task,
    networks,
    perform_network,
)
from gradslide.experiments.reproduce.invariance.tables import report_of
from gradslide.experiments.reproduce.report import Report
from gradslide.experiments.reproduce.runs import Bench
from gradslide.experiments.reproduce.spec import packaged


def reproduce(bench: Bench, spec: dict[str, Any] | None = None) -> Report:
    """spec: in the place of the packaged invariance.toml."""
    spec = packaged("invariance") if spec is None else spec
    every = networks(spec)
    common = [network for network in every if network.m == spec["agents"]]
    theory, worst = _tasks(bench, spec, every, THEORY), _tasks(bench, spec, common, WORST)
    # The expensive ones first: no process is left alone with one at the end.
    found = bench.outcomes(sorted([*theory, *worst], key=lambda task: -task.network.m), perform_network)
    one = _tasks(bench, spec, common, ONE, _geometric_mean([found[t]["R"] for t in theory if t.network in common]))
    found |= bench.outcomes(one, perform_network)
    return report_of(bench.data.label, spec, {task: found[task] for task in [*theory, *worst, *one]})


def _tasks(
    bench: Bench, spec: dict[str, Any], wanted: Sequence[Network], rule: str, R: float | None = None
) -> list[Task]:
    accuracies = tuple(Accuracy(**table) for table in spec["accuracies"])
    settings = (spec["split"], spec["radius"], spec["iterations"])
    # Only networks of equal size are looked at with the other accuracies: many agents make these expensive.
    return [
        Task(bench.data, network, rule, *settings, accuracies if network.m == spec["agents"] else accuracies[:1], R)
        for network in wanted
    ]


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
