"""Run a spec as a network of processes on loopback, one for each agent, and gather one solution
from their results.
"""

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from gradslide._support import storage
from gradslide._support.errors import InputError, require
from gradslide._support.interrupts import deferred_interrupt
from gradslide._support.types import Array
from gradslide.engine.observers import NetworkObserver
from gradslide.engine.progress import progress_line
from gradslide.experiments import build
from gradslide.experiments.agent.build import build_rules
from gradslide.experiments.agent.local.child import MISTAKE
from gradslide.experiments.agent.local.folders import RESULTS, lay_out
from gradslide.experiments.agent.local.processes import Process, Processes
from gradslide.experiments.agent.run import SOLUTION
from gradslide.experiments.per_agent import costs_by_agent
from gradslide.experiments.rows import Rows, read_rows
from gradslide.experiments.run import Listener, NetworkRun, Results
from gradslide.experiments.section import Section
from gradslide.experiments.spec import Spec, stem
from gradslide.graphs.graph import Graph
from gradslide.network import Local
from gradslide.network import coupling as couplings
from gradslide.problems.problem import Problem
from gradslide.results.costs import Costs
from gradslide.results.history import History
from gradslide.results.solution import Solution, load
from gradslide.results.status import Status

MOST = 64
AGENTS = "agents"
# The network tells the others of a failure, unless a process died without a word.
_TO_HEAR_OF_IT = 5.0
_LOOK = 0.05


class AgentFailed(RuntimeError):
    """Which agent, how, and the end of its log."""

    def __init__(self, process: Process) -> None:
        log = "\n".join(f"  {line}" for line in process.last_lines()) or "  (empty)"
        super().__init__(f"{process.name} {process.ended_how}; the last lines of its log:\n{log}")
        self.is_mistake = process.code == MISTAKE


def run_local(
    spec: Spec,
    *,
    data_dir: Path | None = None,
    progress: bool = False,
    keep: bool = False,
    listener: Listener | None = None,
) -> Results:
    """Everything but the files of the results. keep: leave the folders of the agents in that of the
    results. listener: told of what the slowest agent has recorded."""
    listener = Listener() if listener is None else listener
    rule, remedy = "local takes a spec without tables", "`gradslide run` fits it in one process"
    require(spec.regression is None, rule, "one with [model]", remedy)
    m = build.agents_of(spec)
    rule = f"a network of processes on one machine takes 2 to {MOST} agents"
    require(2 <= m <= MOST, rule, f"agents = {m}", "`gradslide run` simulates any number in one process")
    graphs = {name: build.build_graph(section, m, spec.folder) for name, section in spec.networks_by_name().items()}
    for name, graph in graphs.items():
        rule = "peers know their neighbours, but no weights of edges"
        require(bool((graph.weights == 1).all()), rule, f"weights in {name}", "leave them out")
    _, stop = build_rules(spec.method, spec.stop)
    storage.require_writable(spec.output.dir)
    problem = build.build_problem(spec, data_dir)
    rows = read_rows(Section("data", spec.data), spec.folder, data_dir)
    runs: list[NetworkRun] = []
    stems: list[str] = []
    for name, graph in graphs.items():
        stems.append(stem(name, stems))
        with _place(spec, stems[-1], keep) as place:
            listener.started(name, graph, repr(problem), None)
            runs.append(_run(spec, name, stems[-1], problem, graph, rows, place, progress, listener))
            listener.ended(runs[-1])
        if runs[-1].solution.status is Status.INTERRUPTED:
            break
    # No agent sees the objective along the way: there is no curve to draw.
    spec = replace(spec, output=replace(spec.output, plot=False))
    return Results(spec, repr(problem), None, stop is not None and stop.has_targets, runs)


@contextmanager
def _place(spec: Spec, stem: str, keep: bool) -> Iterator[Path]:
    """Where the folders of the agents go: one that lasts, or not."""
    if not keep:
        with tempfile.TemporaryDirectory(prefix="gradslide-") as passing:
            yield Path(passing)
        return
    place = spec.output.dir / AGENTS / stem
    if place.exists():
        raise InputError("the agents' folders must not be there yet", f"{place}, which is", "choose another --out")
    yield place


def _run(
    spec: Spec,
    name: str,
    stem: str,
    problem: Problem,
    graph: Graph,
    rows: Rows,
    place: Path,
    progress: bool,
    listener: Listener,
) -> NetworkRun:
    folders = lay_out(spec, f"{spec.name} {stem}", graph, rows, place)
    with (
        deferred_interrupt() as interrupt,
        progress_line(f"{name}: {graph.m} processes", None) if progress else nullcontext() as line,
        Processes(folders) as processes,
    ):
        forwarded, failed_at = False, None
        while processes.are_running:
            if interrupt.requested and not forwarded:
                forwarded = True
                processes.interrupt()
            if processes.failed is not None:
                failed_at = failed_at or time.monotonic()
                if time.monotonic() - failed_at > _TO_HEAR_OF_IT:
                    break
            if (record := processes.slowest) is not None:
                if line is not None:
                    line.show(record)
                listener.recorded(record, None)
            time.sleep(_LOOK)
        failed = processes.failed
    if failed is not None:
        raise KeyboardInterrupt if interrupt.requested else AgentFailed(failed)
    solution, spent = gathered(problem, graph, folders)
    return NetworkRun(name, stem, graph, solution, by_agent=costs_by_agent(spent))


def gathered(problem: Problem, graph: Graph, folders: Sequence[Path]) -> tuple[Solution, list[Costs]]:
    """The solution, and what each agent has spent. problem: of all agents together. The last record
    says what was reached, which no agent could see alone."""
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
