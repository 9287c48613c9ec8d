"""Short measurements of what this machine does: gradients, exchanges, inner loops and iterations."""

import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from gradslide._support.cores import own_cores, usable_cores
from gradslide._support.types import Array
from gradslide.domains import Box
from gradslide.engine.stopping import Stop
from gradslide.experiments.info import installation
from gradslide.experiments.parallel.pool import solved
from gradslide.experiments.tables import Table, columns, shown
from gradslide.graphs.graph import Graph
from gradslide.kernels.startup import startup_of
from gradslide.kernels.threads import run_in_threads, shares, thread_count
from gradslide.losses import Linear, Logistic
from gradslide.methods.base import Context, Method
from gradslide.methods.baselines.nids import NIDS
from gradslide.methods.compiled import Workspace, accelerated
from gradslide.methods.gossip.auto_pds import AutoPDS
from gradslide.methods.pds import inner_loop
from gradslide.network.coupling import Dual, make
from gradslide.network.local import Local
from gradslide.oracles import Oracle
from gradslide.problems.problem import Problem
from gradslide.results.costs import Costs

# A timed batch of calls takes at least this many seconds.
_LEAST = 1e-3
# Another number of threads is recommended if it is faster by this factor.
_GAIN = 1.2
# Figures are unreliable if other programs use this share of the cores.
_DISTURBED = 0.1
# The system counts time in ticks of 10 ms: it takes this many seconds to tell how busy others are.
_COUNTABLE = 0.2
# A gradient at this share of memory bandwidth counts as fast.
_GOOD_SHARE = 0.5


@dataclass(frozen=True)
class Sizes:
    """What is measured, and for how long.

    Parameters
    ----------
    gradient : tuple of int
        Agents, rows per agent and columns: more bytes than any cache holds.
    exchanges : sequence of tuples
        Agents, columns and degree.
    inner_loops : sequence of tuples
        Agents, columns, degree and inner iterations.
    iterations : sequence of tuples
        Agents, rows per agent, columns and maximum degree; and the numbers of outer iterations of
        two solves, whose difference counts.
    seconds : float
        The time for repeats of each call that is timed.
    limit : float
        Seconds after which no further measurement begins, counted from the time when compiled code
        is loaded.
    """

    gradient: tuple[int, int, int] = (1000, 200, 300)
    exchanges: Sequence[tuple[int, int, int]] = ((100, 22, 4), (1000, 100, 6), (10_000, 100, 6))
    inner_loops: Sequence[tuple[int, int, int, int]] = (
        (100, 22, 4, 1000),
        (1000, 100, 6, 100),
        (10_000, 100, 6, 20),
    )
    iterations: Sequence[tuple[int, int, int, int, tuple[int, int]]] = (
        (100, 200, 22, 4, (30, 230)),
        (1000, 20, 50, 6, (20, 120)),
        (1000, 350, 50, 6, (5, 25)),
    )
    seconds: float = 0.5
    limit: float = 35.0


@dataclass(frozen=True)
class Measurement:
    """One figure.

    Parameters
    ----------
    name : str
        What was measured.
    value : float or None
        The figure; None if there is none, and `meaning` says why.
    unit : str
        Its unit.
    size : tuple of int
        Agents and columns, or agents, rows per agent and columns.
    threads : int, optional
        How many threads were used.
    ratio : float, optional
        The figure in relation to another one.
    relation : str
        What the ratio is.
    meaning : str
        What follows for the user, if anything does.
    """

    name: str
    value: float | None
    unit: str = ""
    size: tuple[int, ...] = ()
    threads: int | None = None
    ratio: float | None = None
    relation: str = ""
    meaning: str = ""

    @property
    def figure(self) -> str:
        """The figure and its unit."""
        return "-" if self.value is None else f"{shown(self.value)} {self.unit}"

    @property
    def comparison(self) -> str:
        """The ratio, and what it is."""
        return "" if self.ratio is None else f"{shown(self.ratio)} {self.relation}"

    @property
    def line(self) -> str:
        """All but the meaning, in one line."""
        figure = self.meaning if self.value is None else self.figure
        return f"{_label(self.name, self.size, self.threads)}: {figure}" + f" ({self.comparison})" * bool(self.ratio)


@dataclass(frozen=True)
class MachineReport:
    """What this machine does.

    Parameters
    ----------
    measurements : list of Measurement
        In the order in which they were made.
    seconds : float
        The time of all of them.
    cores : int
        Usable cores.
    threads : int
        Threads of compiled code, by OMP_NUM_THREADS.
    """

    measurements: list[Measurement]
    seconds: float
    cores: int = field(default_factory=usable_cores)
    threads: int = field(default_factory=thread_count)

    def to_dict(self) -> dict[str, Any]:
        """For JSON, with the versions of what is installed."""
        return {"installation": installation(), **asdict(self)}

    @property
    def meanings(self) -> list[str]:
        """What the figures mean, one line for each that means something."""
        return [
            f"{_label(each.name, each.size, each.threads)}: {each.meaning}"
            for each in self.measurements
            if each.meaning
        ]

    def table(self, *, with_meanings: bool = True) -> Table:
        """One row per measurement.

        Parameters
        ----------
        with_meanings : bool, optional
            Whether the last column says what the figures mean. It is wide.

        Returns
        -------
        Table
            The figures.
        """
        count = 6 if with_meanings else 5
        headings = columns("measurement", "size", "threads", "figure", "comparison", "what it means")[:count]
        rows = [
            [each.name, _size(each.size), each.threads, each.figure, each.comparison, each.meaning][:count]
            for each in self.measurements
        ]
        notes = [
            "size: agents x columns, or agents x rows per agent x columns; all in float64",
            "memory read: NumPy's maximum of the data; compiled gradients read it once, PyTorch twice",
            "exchange: one product with the Laplacian in one process, without a real network",
            f"measured in {self.seconds:.0f} seconds; compare figures of one run only",
        ]
        return Table("What this machine does", headings, rows, notes)


class Progress:
    """Reports what is being measured, and each result."""

    def begin(self, text: str) -> None:
        """Say what is measured next.

        Parameters
        ----------
        text : str
            What it is.
        """

    def done(self, measurement: Measurement) -> None:
        """Show a result.

        Parameters
        ----------
        measurement : Measurement
            The result.
        """


class _Lines(Progress):
    def __init__(self, console: Any, status: Any) -> None:
        self._console, self._status = console, status

    def begin(self, text: str) -> None:
        self._status.update(text)

    def done(self, measurement: Measurement) -> None:
        self._console.print(measurement.line, style="dim", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress_lines() -> Iterator[Progress]:
    """Show a line per measurement on stderr, and on a terminal also what is being measured."""
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("") as status:
        yield _Lines(console, status)


def measure_machine(sizes: Sizes | None = None, progress: Progress | None = None) -> MachineReport:
    """Measure what this machine does with gradslide, usually in less than a minute.

    Parameters
    ----------
    sizes : Sizes, optional
        What is measured, and for how long.
    progress : Progress, optional
        Receives each measurement.

    Returns
    -------
    MachineReport
        The figures, and what follows from them.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C.

    Examples
    --------
    >>> from gradslide.experiments.machine import Sizes, measure_machine
    >>> sizes = Sizes((4, 8, 3), [(4, 3, 2)], [(4, 3, 2, 5)], [(4, 8, 3, 2, (2, 4))], seconds=0.0)
    >>> report = measure_machine(sizes)
    >>> report.measurements[1].name, report.measurements[1].unit
    ('memory read', 'GB/s')
    """
    sizes, progress = sizes or Sizes(), progress or Progress()
    started = time.perf_counter()
    bench, found = _Bench(sizes, progress), []
    for part in (bench.compiled_code, bench.gradients, bench.exchanges, bench.inner_loops, bench.iterations):
        for measurement in part():
            progress.done(measurement)
            found.append(measurement)
        if part == bench.compiled_code:
            # Compilation may take long, and must not take the time of the measurements.
            bench.end = time.perf_counter() + sizes.limit
    return MachineReport(found, time.perf_counter() - started)


class _TimeUp(Exception):
    """No time is left for a measurement."""


class _OtherPrograms:
    """What other programs take of the usable cores during a measurement.

    By /proc/stat; where there is none, by the load before the first measurement.
    """

    def __init__(self) -> None:
        self._load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
        self.begin()

    def begin(self) -> None:
        self._started, self._before = time.perf_counter(), _seconds_of_others()

    def share(self) -> float:
        """Return the share of the usable cores that others used since `begin`."""
        seconds, now = time.perf_counter() - self._started, _seconds_of_others()
        if self._before is None or now is None:
            used = self._load
        elif seconds < _COUNTABLE:
            return 0.0
        else:
            used = (now - self._before) / seconds
        # Others may have the cores that a quota denies to this process.
        return max(0.0, used - (len(own_cores()) - usable_cores())) / usable_cores()


def _seconds_of_others(source: Path = Path("/proc/stat")) -> float | None:
    """Return the time that others have taken of the cores of this process, since the system started.

    None if the system does not say. On a virtual machine, others may be other machines ("steal").
    """
    try:
        lines = [line.split() for line in source.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return None
    names = {f"cpu{core}" for core in own_cores()}
    # User, nice, system, idle, waiting, two kinds of interrupts, steal; guests are part of user.
    ticks = [[int(each) for each in numbers[:8]] for name, *numbers in lines if name in names]
    used = sum(sum(each) - each[3] - each[4] for each in ticks) / os.sysconf("SC_CLK_TCK")
    return used - time.process_time()


class _Bench:
    """The measurements, one after the other.

    Parameters
    ----------
    sizes : Sizes
        What is measured.
    progress : Progress
        Receives what is measured next.
    end : float
        The time after which no further measurement begins.
    """

    def __init__(self, sizes: Sizes, progress: Progress, end: float = math.inf) -> None:
        self._sizes, self._progress, self.end = sizes, progress, end
        self._others = _OtherPrograms()

    def compiled_code(self) -> Iterator[Measurement]:
        """The time to load or compile what the other measurements use."""
        name = "loading compiled code"
        self._progress.begin(name)
        started = time.perf_counter()
        from gradslide.kernels import mixing_rows, row_dots, rows_pass, tiles

        # As in a run that is long enough.
        for code in ("tiles-incidence-float64", "mixing-float64"):
            startup_of(code).is_worthwhile(math.inf)
        loss, graph = _regression(10, 2, 4, 2)
        loss.compiled = True
        loss.gradient(np.zeros((loss.m, loss.d)))
        _iterate(Problem(loss), graph, AutoPDS(), thread_count(), 2)
        compiled, _ = _inner_loops(10, 4, 2, 2)
        compiled()
        seconds = time.perf_counter() - started
        used: list[Any] = [rows_pass.rows_pass, tiles.incidence, mixing_rows.exchanges, row_dots.row_dots]
        meaning = compilation_meaning(
            is_stored=all(code.stats.cache_path for code in used),
            is_loaded=not any(sum(code.stats.cache_misses.values()) for code in used),
        )
        yield Measurement(name, seconds, "s", meaning=meaning)

    def gradients(self) -> Iterator[Measurement]:
        """Gradients of a logistic regression, and reading its data; on a GPU, too."""
        size = m, rows, d = self._sizes.gradient
        self._progress.begin("making data")
        rng = np.random.default_rng(0)
        features = rng.standard_normal((m * rows, d))
        loss = Logistic(features, np.where(features[:, 0] > 0, 1, -1), agents=m)
        # The default for data of this size; smaller data would be left to NumPy.
        loss.compiled = True
        x, numbers = np.zeros((m, d)), features.reshape(-1)
        speeds = []
        setting = thread_count()
        for threads in sorted({1, usable_cores()}):
            with _threads(threads):
                self._progress.begin(_label("memory read and gradient", size, threads))
                parts = shares(len(numbers), threads)
                self._others.begin()
                reading, seconds = self._fastest(
                    partial(run_in_threads, partial(_read, numbers), parts), partial(loss.gradient, x)
                )
            speeds.append(numbers.nbytes / seconds / 1e9)
            yield Measurement("memory read", numbers.nbytes / reading / 1e9, "GB/s", size, threads)
            share, meaning = reading / seconds, ""
            if threads == usable_cores():
                meaning = threads_meaning(speeds[-1] / speeds[0], share, setting, threads)
            meaning = self._noted(meaning)
            yield Measurement("gradient", speeds[-1], "GB/s", size, threads, share, "of memory read", meaning)
        yield self._gpu(loss, features, speeds[-1])

    def _gpu(self, loss: Logistic, features: Array, speed: float) -> Measurement:
        """The gradient on a GPU, if PyTorch finds one. speed: GB/s of the cores."""
        name = "gradient on a GPU"
        self._progress.begin(name)
        if find_spec("torch") is None:
            return Measurement(name, None, meaning="no GPU: PyTorch is not installed")
        import torch

        with warnings.catch_warnings():
            # A driver that does not fit.
            warnings.simplefilter("ignore")
            if not torch.cuda.is_available():
                return Measurement(name, None, meaning="no GPU")
        try:
            moved, data = loss.to("cuda"), torch.zeros(features.shape, dtype=torch.float64, device="cuda")
            x = torch.zeros((loss.m, loss.d), dtype=torch.float64, device="cuda")

            def finished(call: Callable[[], object]) -> Callable[[], object]:
                return lambda: (call(), torch.cuda.synchronize())

            reading, seconds = self._fastest(finished(lambda: data.max()), finished(lambda: moved.gradient(x)))
        except RuntimeError as error:
            return Measurement(name, None, meaning=f"failed: {str(error).splitlines()[0]}")
        found = features.nbytes / seconds / 1e9
        size, ratio = self._sizes.gradient, reading / seconds
        return Measurement(name, found, "GB/s", size, None, ratio, "of its memory read", gpu_meaning(found / speed))

    def exchanges(self) -> Iterator[Measurement]:
        """One exchange with neighbours."""
        for m, d, degree in self._sizes.exchanges:
            if self._is_late():
                yield _skipped("exchange", (m, d))
                continue
            self._progress.begin(_label("exchange", (m, d)))
            network = Local(Graph.regular(m, degree, seed=1))
            v = np.random.default_rng(0).standard_normal((m, d))
            self._others.begin()
            (seconds,) = self._fastest(partial(network.combine, v, network.laplacian))
            each, meaning = 1e9 * seconds / (m * d), self._noted("")
            yield Measurement("exchange", 1e6 * seconds, "us", (m, d), 1, each, "ns per number", meaning)

    def inner_loops(self) -> Iterator[Measurement]:
        """Inner iterations of PDS, compiled and in NumPy."""
        name = "inner iteration of PDS"
        for m, d, degree, T in self._sizes.inner_loops:
            if self._is_late():
                yield _skipped(name, (m, d))
                continue
            self._progress.begin(_label(name, (m, d)))
            calls = _inner_loops(m, d, degree, T)
            self._others.begin()
            seconds, plain = self._fastest(*calls)
            ratio = plain / seconds
            value, relation = 1e6 * seconds / T, "times NumPy's speed"
            meaning = self._noted(speedup_meaning(ratio))
            yield Measurement(name, value, "us", (m, d), thread_count(), ratio, relation, meaning)

    def iterations(self) -> Iterator[Measurement]:
        """Outer iterations of the gossip mode and of NIDS."""
        threads = thread_count()
        runs: list[tuple[Method[Any], int]] = [(NIDS(L=50.0), threads), (AutoPDS(), threads), (AutoPDS(), 1)]
        for m, rows, d, degree, (few, many) in self._sizes.iterations:
            size = (m, rows, d)
            self._progress.begin(_label("iterations of NIDS and AutoPDS", size))
            loss, graph = _regression(m, rows, d, degree)
            solves = [partial(_iterate, Problem(loss), graph, *run) for run in runs[: 3 if threads > 1 else 2]]
            self._others.begin()
            try:
                found = self._fastest(*(partial(self._in_time, solve, n) for solve in solves for n in (few, many)))
            except _TimeUp:
                yield _skipped("iteration of AutoPDS", size)
                continue
            # The difference leaves setup out, and may be negative if another program takes the cores.
            each = [(long - short) / (many - few) for short, long in zip(found[::2], found[1::2], strict=True)]
            if min(each) <= 0:
                meaning = "unreliable: other programs were busy; run again"
                yield Measurement("iteration of AutoPDS", None, "ms", size, threads, meaning=meaning)
                continue
            theirs, ours, alone = each[0], each[1], each[-1]
            ratio = ours / theirs
            meaning = self._noted(iteration_meaning(ratio, ours / alone))
            yield Measurement("iteration of NIDS", 1e3 * theirs, "ms", size, threads)
            yield Measurement("iteration of AutoPDS", 1e3 * ours, "ms", size, threads, ratio, "times NIDS", meaning)

    def _fastest(self, *calls: Callable[[], object]) -> list[float]:
        """Return the seconds of the fastest of several calls of each function, made in turn."""
        best, counts = [], []
        for call in calls:
            seconds = _seconds(call, 1)
            if seconds < _LEAST:
                # The first call loads what it needs.
                seconds = min(seconds, _seconds(call, 1))
            best.append(seconds)
            counts.append(max(1, min(10_000, round(_LEAST / max(seconds, 1e-9)))))
        end = min(time.perf_counter() + self._sizes.seconds * len(calls), self.end)
        for k in cycle(range(len(calls))):
            if time.perf_counter() >= end:
                return best
            best[k] = min(best[k], _seconds(calls[k], counts[k]))
        return best

    def _in_time(self, solve: Callable[[int], None], iterations: int) -> None:
        """Solve, but not after the end: on a busy machine a solve may take seconds."""
        if self._is_late():
            raise _TimeUp
        solve(iterations)

    def _noted(self, meaning: str) -> str:
        return noted(meaning, self._others.share())

    def _is_late(self) -> bool:
        return time.perf_counter() >= self.end


# ---- what follows from figures


def compilation_meaning(*, is_stored: bool, is_loaded: bool) -> str:
    """Say whether later processes compile, too.

    Parameters
    ----------
    is_stored : bool
        Whether machine code is cached on disk.
    is_loaded : bool
        Whether it was there already.

    Returns
    -------
    str
        What it means.
    """
    if not is_stored:
        return "every process compiles anew: set NUMBA_CACHE_DIR to a writable folder"
    return "good: loaded from the cache" if is_loaded else "compiled and cached: later processes load it"


def noted(meaning: str, used: float) -> str:
    """Add a note to what a figure means if other programs used the cores meanwhile.

    Parameters
    ----------
    meaning : str
        What it means, if anything.
    used : float
        The share of the cores that other programs used.

    Returns
    -------
    str
        What it means, and whether it is reliable.
    """
    if used < _DISTURBED:
        return meaning
    note = f"unreliable: others used {min(used, 1.0):.0%} of the cores"
    return f"{meaning}; {note}" if meaning else note


def threads_meaning(gain: float, share: float, setting: int, cores: int) -> str:
    """Say which number of threads is right for gradients.

    Parameters
    ----------
    gain : float
        The speed with one thread per core over that with one thread.
    share : float
        The speed with one thread per core over the memory bandwidth.
    setting : int
        The number of threads, by OMP_NUM_THREADS or the number of cores.
    cores : int
        The number of cores.

    Returns
    -------
    str
        What it means.
    """
    if setting > cores:
        return f"OMP_NUM_THREADS={setting} is more than the cores: set it to {cores}"
    if setting < cores and gain > _GAIN:
        return f"{gain:.1f} times one thread, but OMP_NUM_THREADS={setting}: set it to {cores}, or unset it"
    if cores > 1 and gain <= _GAIN:
        if setting == 1:
            return f"good: {cores} threads are no faster"
        return "as fast with one thread: set OMP_NUM_THREADS=1 if other programs need the cores"
    faster = f"{gain:.1f} times one thread, " * (cores > 1)
    if share >= 1:
        return f"good: {faster}as fast as memory"
    if share >= _GOOD_SHARE:
        return f"good: {faster}{share:.0%} of the memory's speed"
    return f"{faster}{share:.0%} of the memory's speed: the processor limits it"


def speedup_meaning(ratio: float) -> str:
    """Say whether compiled inner loops are worthwhile.

    Parameters
    ----------
    ratio : float
        The time in NumPy over the compiled time.

    Returns
    -------
    str
        What it means.
    """
    return "good" if ratio >= 2 else "" if ratio >= 1 else "slower than NumPy: run again on an idle machine"


def iteration_meaning(ratio: float, alone: float) -> str:
    """Say when the gossip mode takes less time than NIDS, or how it would take less.

    Parameters
    ----------
    ratio : float
        The time of an iteration of AutoPDS over that of NIDS.
    alone : float
        The time of an iteration of AutoPDS over that with one thread.

    Returns
    -------
    str
        What it means.
    """
    if alone > _GAIN:
        return f"set OMP_NUM_THREADS=1 at this size: {alone:.1f} times as fast"
    if ratio < 1.05:
        return "good: no slower than NIDS"
    return f"faster than NIDS if that needs over {ratio:.1f} times as many iterations"


def gpu_meaning(ratio: float) -> str:
    """Say whether gradients should be computed on the GPU.

    Parameters
    ----------
    ratio : float
        The speed of the GPU over that of the cores.

    Returns
    -------
    str
        What it means.
    """
    if ratio <= 1:
        return "not faster than the cores: leave such data to them"
    return f'{ratio:.1f} times the cores: use gs.network.Local(graph, device="cuda")'


# ---- what is timed


@dataclass(frozen=True)
class _InnerParams:
    """Of inner iterations that are only timed."""

    T: int
    p: float = 1.0
    q: float = 20.0

    def alpha(self, t: int) -> float:
        return 1.0

    def eta(self, t: Any) -> Any:
        return 1.0 + 0.01 * t


def _inner_loops(m: int, d: int, degree: int, T: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return T inner iterations of PDS in a box, compiled and in NumPy."""
    network = Local(Graph.regular(m, degree, seed=1))
    rng = np.random.default_rng(0)
    x, x_before, s, w, y, *others = (rng.uniform(-1.0, 1.0, (m, d)) for _ in range(10))
    problem = Problem(Linear(y), Box(-1.0, 1.0))
    context = Context(problem, Oracle(problem.loss, Costs()), network, make("incidence", network), x)
    compiled, row = accelerated(inner_loop, context), _InnerParams(T)
    # As in a run, results overwrite arrays that are no longer needed: x_before and the duals, too.
    overwritten, dual, own = x_before.copy(), Dual(s.copy(), w.copy()), Workspace(Dual(*others[:2]), 0.5, *others[2:])
    return (
        lambda: compiled(context, x, overwritten, dual, y, row, own),
        lambda: inner_loop(context, x, x_before, Dual(s, w), y, row),
    )


def _regression(m: int, rows: int, d: int, degree: int) -> tuple[Logistic, Graph]:
    """Return a logistic regression with random data, and a random network."""
    rng = np.random.default_rng(0)
    features, truth = rng.standard_normal((m * rows, d)), rng.standard_normal(d) / math.sqrt(d)
    labels = np.where(features @ truth + rng.standard_normal(m * rows) > 0, 1, -1)
    return Logistic(features, labels, agents=m), Graph.random(m, degree, seed=1)


def _iterate(problem: Problem, graph: Graph, method: Method[Any], threads: int, iterations: int) -> None:
    with _threads(threads):
        solved(problem, graph, method, stop=Stop(iterations=iterations), record_every=10**6)


def _read(numbers: Array, k: int, first: int, end: int) -> None:
    """Read part of an array. The maximum takes less time than memory does, unlike the sum."""
    np.max(numbers[first:end])


def _seconds(call: Callable[[], object], count: int) -> float:
    """Return the seconds per call."""
    started = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - started) / count


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Let compiled code use so many threads."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(count)
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def _skipped(name: str, size: tuple[int, ...]) -> Measurement:
    return Measurement(name, None, size=size, meaning="skipped: out of time; run again on an idle machine")


def _size(size: tuple[int, ...]) -> str:
    return " x ".join(f"{each:,}" for each in size)


def _label(name: str, size: tuple[int, ...], threads: int | None = None) -> str:
    used = [] if threads is None else [f"{threads} thread{'s' * (threads > 1)}"]
    return ", ".join([name, *([_size(size)] if size else []), *used])
