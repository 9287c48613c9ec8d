"""Run the tasks in a process pool and cache every result on disk."""

import hashlib
import inspect
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import gradslide as gs
from auto_bench import baselines, errors, problems
from auto_bench.errors import ACCURACIES, BALANCES, COUNTS, Bounds, Spent, cost
from gradslide._support import storage

AUTO = "AutoPDS"
# The default of `solve`, and the group of its runs.
DEFAULT = "Auto"
# Each limit ends a run.
LIMITS = {"gradients": 5_000, "rounds": 50_000, "seconds": 100.0}
# The costs of a baseline need not be exact if they exceed those of AutoPDS by this factor.
MARGIN = 1.3
# Groups whose results bound the runs of a group.
BOUNDED_BY = {"core": ("core",), "other": ("core", "other"), "sliding": ("sliding",), "auto": (), "fixed": ("fixed",)}
BOUNDED_BY |= {"default": (), "exact": ()}
# The setting of AutoPDS to compare with baselines whose sums over all agents are free, and counted.
AGREEMENTS = {"free": "exact", "counted": "late"}
_SHAPE = len(COUNTS), len(BALANCES), len(ACCURACIES)
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Task:
    problem: str
    network: str
    group: str
    method: str
    parameters: dict[str, Any]

    @property
    def cell(self) -> tuple[str, str]:
        return self.problem, self.network

    @property
    def label(self) -> str:
        said = (f"{name}={_short(value)}" for name, value in self.parameters.items())
        return f"{self.method}({', '.join(said)})"

    def path(self, out: Path) -> Path:
        said = json.dumps([self.parameters, _source(self.method)], sort_keys=True)
        name = hashlib.sha256(said.encode()).hexdigest()[:16]
        return out / "runs" / self.problem / self.network / f"{self.method}-{name}.json"


@dataclass(frozen=True)
class Result:
    """The result of a task.

    hits: for each accuracy the first costs, and later ones with fewer rounds. spent: costs at the end. ended: "done",
    "bound" (no improvement possible), "diverged", "refused", "failed", or the limit that was reached. chosen: the
    method that Auto chose last. hessians, floats: until the end, the latter of all agents.
    """

    ended: str
    hits: list[list[Spent]] = field(default_factory=lambda: [[] for _ in ACCURACIES])
    spent: Spent = (0, 0, 0)
    error: float | None = None
    seconds: float = 0.0
    message: str = ""
    chosen: str = ""
    hessians: int = 0
    floats: int = 0

    def best(self, accuracy: int, balance: float, count: str) -> tuple[float, Spent] | None:
        """Return the least cost to an accuracy, and its parts."""
        costs = [(cost(spent, balance, count), spent) for spent in map(tuple, self.hits[accuracy])]
        return min(costs, default=None)

    def is_enough(self, bounds: Bounds) -> bool:
        return self.ended != "bound" or not errors.matters(tuple(self.spent), self.hits, bounds)


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


@cache
def _source(method: str) -> str:
    """Return a digest of the code that a result depends on: the library for AutoPDS, else the method's file."""
    kind = getattr(gs, method, None)
    if kind is None:
        return ""
    if method in (AUTO, DEFAULT, "LBFGS", "Newton"):
        files = sorted(Path(gs.__file__).parent.rglob("*.py"))
        parts = [path.read_bytes() for path in files if "experiments" not in path.parts]
    else:
        parts = [Path(inspect.getfile(kind)).read_bytes()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


@dataclass
class Results:
    """All results so far, by cell, in memory and on disk."""

    out: Path
    data_dir: Path | None
    fresh: bool = False
    compared: tuple[str, ...] = (AUTO,)
    known: dict[tuple[str, str], dict[str, tuple[Task, Result]]] = field(default_factory=dict)
    # By cell and group, (count, balance, accuracy).
    least: dict[tuple[str, str, str], np.ndarray] = field(default_factory=dict)

    def of(self, cell: tuple[str, str], groups: Sequence[str]) -> list[tuple[Task, Result]]:
        return [each for each in self.known.get(cell, {}).values() if each[0].group in groups]

    def auto(self, cell: tuple[str, str], **parameters: Any) -> Result | None:
        label = Task(*cell, "auto", AUTO, parameters).label
        found = self.known.get(cell, {}).get(label)
        return found[1] if found else None

    def default(self, cell: tuple[str, str], **parameters: Any) -> Result | None:
        found = self.known.get(cell, {}).get(Task(*cell, "default", DEFAULT, parameters).label)
        return found[1] if found else None

    def best(
        self, cell: tuple[str, str], groups: Sequence[str], accuracy: int, balance: float, count: str, without: str = ""
    ) -> tuple[float, Spent, Task] | None:
        """Return the least cost, its parts and its task. without: a method to skip."""
        found = [
            (*reached, task)
            for task, result in self.of(cell, groups)
            if task.method != without and (reached := result.best(accuracy, balance, count)) is not None
        ]
        return min(found, key=lambda each: each[0], default=None)

    def note(self, task: Task, result: Result) -> None:
        self.known.setdefault(task.cell, {})[task.label] = task, result
        least = self.least.setdefault((*task.cell, task.group), np.full(_SHAPE, np.inf))
        for c, b, i in np.ndindex(_SHAPE):
            if (reached := result.best(i, BALANCES[b], COUNTS[c])) is not None:
                least[c, b, i] = min(least[c, b, i], reached[0])

    def keep(self, task: Task, result: Result) -> None:
        """Cache a result, unless the run failed or reached the time limit."""
        if result.ended not in ("failed", gs.Status.TIME_LIMIT.name):
            said = {**asdict(task), **asdict(result)}
            storage.write_atomically(task.path(self.out), json.dumps(said).encode())
        self.note(task, result)

    def read(self, task: Task) -> Result | None:
        path = task.path(self.out)
        if self.fresh or not path.exists():
            return None
        said = json.loads(path.read_text(encoding="utf-8"))
        return Result(**{name: said[name] for name in Result.__dataclass_fields__ if name in said})

    def bounds(self, task: Task) -> Bounds:
        """Return costs above which a run is of no interest."""
        bounds = np.full(_SHAPE, np.inf)
        for group in BOUNDED_BY[task.group]:
            bounds = np.minimum(bounds, self.least.get((*task.cell, group), np.inf))
        if task.group in ("core", "other", "fixed"):
            bounds = np.minimum(bounds, MARGIN * self._ours(task.cell))
        return dict(zip(COUNTS, bounds.tolist(), strict=True))

    def _ours(self, cell: tuple[str, str]) -> np.ndarray:
        """Return the largest costs of ours that are compared."""
        costs = np.zeros(_SHAPE)
        for name in self.compared:
            for c, b, i in np.ndindex(_SHAPE):
                if name == DEFAULT:
                    result = self.default(cell, balance=BALANCES[b])
                else:
                    result = self.auto(cell, balance=BALANCES[b], agreement=AGREEMENTS[COUNTS[c]])
                reached = None if result is None else result.best(i, BALANCES[b], COUNTS[c])
                costs[c, b, i] = max(costs[c, b, i], np.inf if reached is None else reached[0])
        return costs


def run(tasks: Sequence[Task], results: Results, processes: int, only_read: bool = False) -> None:
    """Run the missing tasks in order: earlier results bound later runs. only_read: use cached results only."""
    waiting = deque(tasks)
    cached = {task.path(results.out): found for task in tasks if (found := results.read(task)) is not None}
    for task in tasks:
        if (found := cached.get(task.path(results.out))) is not None:
            results.note(task, found)
    if only_read:
        return
    total, begun = len(waiting), time.perf_counter()
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
    under_way: dict[Future[Result], Task] = {}
    try:
        while waiting or under_way:
            while waiting and len(under_way) < processes:
                task = waiting.popleft()
                bounds, found = results.bounds(task), cached.get(task.path(results.out))
                if found is not None and found.is_enough(bounds):
                    continue
                best = problems.optimum(task.problem, results.data_dir, results.out)
                under_way[pool.submit(perform, task, best, bounds, results.data_dir)] = task
            done, _ = wait(under_way, return_when=FIRST_COMPLETED) if under_way else ((), ())
            for future in done:
                task, result = under_way.pop(future), future.result()
                results.keep(task, result)
                _progress(total - len(waiting), total, time.perf_counter() - begun, task, result)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    if sys.stderr.isatty():
        print(file=sys.stderr)


def _progress(done: int, total: int, seconds: float, task: Task, result: Result) -> None:
    """Print one line: overwritten on a terminal, otherwise for every hundredth run and every failure."""
    failed = result.ended == "failed"
    said = f"{done}/{total} {seconds:.0f} s  {task.problem}, {task.network}: {task.label} {result.ended}"
    if sys.stderr.isatty() and not failed:
        print(f"\r\x1b[K{said[:110]}", end="", file=sys.stderr, flush=True)
    elif failed or done % 100 == 0 or done == total:
        print(f"{said} {result.message}", file=sys.stderr, flush=True)


class _Watched:
    """A method whose outputs can be read by name."""

    def __init__(self, method: Any, names: tuple[str, ...]) -> None:
        self._method, self._names = method, names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def init(self, context: Any) -> Any:
        return self._method.init(context)

    def step(self, context: Any, state: Any) -> Any:
        return self._method.step(context, state)

    def output(self, state: Any) -> Any:
        self._last = self._method.output(state)
        return self._last

    def answers(self) -> list[np.ndarray]:
        return [self._last[name] for name in self._names]


def perform(task: Task, best: problems.Optimum, bounds: Bounds, data_dir: Path | None) -> Result:
    """Run a task; exceptions become results."""
    begun = time.perf_counter()
    try:
        result = _solved(task, best, bounds, data_dir)
    except gs.InputError as error:
        result = Result(ended="refused", message=str(error))
    except Exception as error:
        result = Result(ended="failed", message=f"{type(error).__name__}: {error}")
    return Result(**{**vars(result), "seconds": time.perf_counter() - begun})


def _solved(task: Task, best: problems.Optimum, bounds: Bounds, data_dir: Path | None) -> Result:
    case, graph = problems.case(task.problem, data_dir), problems.graph(task.network, data_dir)
    method = baselines.make(task.method, task.parameters, *task.cell, data_dir)
    outputs: Callable[[], list[np.ndarray]] | None = None
    if task.method == "PDS":
        method = _Watched(method, ("average", "last"))
        outputs = method.answers
    mixing = _mixing(task.network, data_dir)
    meter = errors.Meter(case, best, mixing, _most_mixing(task.problem, mixing), bounds, outputs)
    every = 10**9
    solution = gs.solve(case.problem, graph, method, stop=gs.Stop(**LIMITS), callback=meter, record_every=every)
    ended = meter.ended or ("diverged" if solution.status is gs.Status.DIVERGED else solution.status.name)
    error = float(meter.error) if np.isfinite(meter.error) else None
    chosen, costs = str(solution.parameters.get("method", "")), solution.costs
    known = {"chosen": chosen, "hessians": costs.hessians, "floats": costs.floats_sent}
    return Result(ended=ended, hits=meter.hits, spent=meter.spent, error=error, **known)


@cache
def _mixing(network: str, data_dir: Path | None) -> errors.FinalMixing:
    return errors.FinalMixing.of(problems.graph(network, data_dir))


def _most_mixing(problem: str, mixing: errors.FinalMixing) -> int:
    return mixing.root * (1 if problem in problems.CONSTRAINED else 4)
