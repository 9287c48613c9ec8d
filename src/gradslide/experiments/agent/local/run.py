"""Run a spec as a network of processes on loopback: one for each agent."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gradslide._support import storage
from gradslide._support.errors import InputError, require
from gradslide._support.interrupts import deferred_interrupt
from gradslide.engine.progress import progress_line
from gradslide.experiments import build
from gradslide.experiments.agent.build import build_rules
from gradslide.experiments.agent.local.child import MISTAKE
from gradslide.experiments.agent.local.folders import lay_out
from gradslide.experiments.agent.local.gathered import gathered
from gradslide.experiments.agent.local.processes import Process, Processes
from gradslide.experiments.by_agent import counted_apart
from gradslide.experiments.rows import Rows, read_rows
from gradslide.experiments.run import NetworkRun, Onlooker, Results
from gradslide.experiments.section import Section
from gradslide.experiments.spec import Spec, stem
from gradslide.graphs.graph import Graph
from gradslide.problems.problem import Problem
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
    onlooker: Onlooker | None = None,
) -> Results:
    """Everything but the files of the results. keep: leave the folders of the agents in that of the results. onlooker:
    told of what the slowest agent has recorded."""
    onlooker = Onlooker() if onlooker is None else onlooker
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
            onlooker.begins(name, graph, repr(problem), None)
            runs.append(_run(spec, name, stems[-1], problem, graph, rows, place, progress, onlooker))
            onlooker.ended(runs[-1])
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
    onlooker: Onlooker,
) -> NetworkRun:
    folders = lay_out(spec, f"{spec.name} {stem}", graph, rows, place)
    with (
        deferred_interrupt() as interrupt,
        progress_line(progress, f"{name}: {graph.m} processes", None) as line,
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
                line.show(record)
                onlooker.sees(record, None)
            time.sleep(_LOOK)
        failed = processes.failed
    if failed is not None:
        raise KeyboardInterrupt if interrupt.requested else AgentFailed(failed)
    solution, spent = gathered(problem, graph, folders)
    return NetworkRun(name, stem, graph, solution, by_agent=counted_apart(spent))
