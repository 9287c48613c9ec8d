"""Shared by the benchmarks: one thread, best of several repeats, new processes, tables."""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

import gradslide as gs
from gradslide.kernels.startup import startup_of


def one_thread() -> None:
    """Restart this program with one thread for BLAS and compiled loops, unless OMP_NUM_THREADS is set."""
    if "OMP_NUM_THREADS" not in os.environ:
        # Libraries read the variable when they are loaded, and they are loaded already.
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OMP_NUM_THREADS": "1"})


def load_compiled(coupling: str, domain: gs.domains.Domain) -> None:
    """Load compiled inner loops by a run that is long enough to trigger compilation."""
    loss = gs.losses.Linear(np.ones((10, 1)))
    # T_1 = R ||A|| / L inner iterations on a tiny problem.
    method = gs.PDS(L=1.0, R=2e5, norm=1.0, coupling=coupling)
    gs.solve(gs.Problem(loss, domain), gs.Graph.ring(10), method, stop=gs.Stop(iterations=1))


def load_compiled_exchanges() -> None:
    """Load the compiled exchanges and prox steps of the gossip mode by a run that is long enough."""
    loss = gs.losses.LeastSquares(np.eye(40), np.ones(40), agents=40)
    # What a short run would wait for.
    startup_of("prox-float64").is_over = True
    problem = gs.Problem(loss, gs.domains.L2Ball(1.0))
    gs.solve(problem, gs.Graph.ring(40), gs.AutoPDS(K=10**5), stop=gs.Stop(iterations=2))


def parser(description: str | None) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def begin(given: argparse.ArgumentParser, measure: Callable[..., object]) -> argparse.Namespace:
    """Parse the arguments, with one thread. With --one (see `fresh`), print the result of `measure` and exit."""
    given.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    chosen = given.parse_args()
    one_thread()
    if chosen.one:
        print(json.dumps(measure(*chosen.one)))
        raise SystemExit
    return chosen


def seconds_of(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def best_of(repeats: int, call: Callable[[], object]) -> float:
    """Return the seconds of the fastest call."""
    return min(seconds_of(call) for _ in range(repeats))


def best_mean(repeats: int, call: Callable[[], object], least: float = 0.02) -> float:
    """Return the seconds per call in the fastest of several batches of at least `least` seconds."""
    count = max(1, round(least / max(best_of(2, call), 1e-7)))
    return best_of(repeats, lambda: [call() for _ in range(count)]) / count


def copy_bandwidth(repeats: int = 5, megabytes: int = 256) -> float:
    """Return the bytes per second, read and written, of copying arrays larger than any cache in one thread."""
    source = np.ones(megabytes << 17)
    target = np.zeros_like(source)
    return 2 * source.nbytes / best_of(repeats, lambda: np.copyto(target, source))


def fresh(script: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Any:
    """Run a script in a new process and return the JSON of its last line."""
    command = [sys.executable, script, *arguments]
    done = subprocess.run(
        command, env={**os.environ, **(environment or {})}, text=True, check=True, stdout=subprocess.PIPE
    )
    return json.loads(done.stdout.splitlines()[-1])


def show(title: str, headings: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a title and a table: first column left-aligned, figures right-aligned."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    # Wide enough for every table, also in a pipe. A title may be wider than its table.
    Console(width=140, highlight=False).print(title, table, sep="\n", markup=False)
    print(flush=True)
