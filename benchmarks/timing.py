"""What the benchmarks of speed share: one thread, the best of several repeats, fresh processes, tables."""

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


def one_thread() -> None:
    """Start this program again with one thread for BLAS and for compiled loops, where nobody has said otherwise."""
    if "OMP_NUM_THREADS" not in os.environ:
        # Libraries read it when they are loaded, which has happened already.
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OMP_NUM_THREADS": "1"})


def load_compiled(coupling: str, domain: gs.domains.Domain) -> None:
    """See to it that compiled inner loops are loaded: they are once work is long enough to pay for that."""
    loss = gs.losses.Linear(np.ones((10, 1)))
    # T_1 = R ||A|| / L inner iterations, on numbers so few that they take no time.
    method = gs.PDS(L=1.0, R=2e5, norm=1.0, coupling=coupling)
    gs.solve(gs.Problem(loss, domain), gs.Graph.ring(10), method, stop=gs.Stop(iterations=1))


def parser(description: str | None) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def begin(given: argparse.ArgumentParser, measure: Callable[..., object]) -> argparse.Namespace:
    """The arguments, with one thread. A process that `fresh` started with --one prints what `measure` finds, and
    ends."""
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
    """Seconds of the fastest call."""
    return min(seconds_of(call) for _ in range(repeats))


def best_mean(repeats: int, call: Callable[[], object], least: float = 0.02) -> float:
    """Seconds of one call, in the fastest of several batches that take `least` seconds or more each."""
    count = max(1, round(least / max(best_of(2, call), 1e-7)))
    return best_of(repeats, lambda: [call() for _ in range(count)]) / count


def copy_bandwidth(repeats: int = 5, megabytes: int = 256) -> float:
    """Bytes per second that one thread copies between arrays far larger than any cache, read and written."""
    source = np.ones(megabytes << 17)
    target = np.zeros_like(source)
    return 2 * source.nbytes / best_of(repeats, lambda: np.copyto(target, source))


def fresh(script: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Any:
    """What a script prints as JSON in its last line, run in a process of its own."""
    command = [sys.executable, script, *arguments]
    done = subprocess.run(
        command, env={**os.environ, **(environment or {})}, text=True, check=True, stdout=subprocess.PIPE
    )
    return json.loads(done.stdout.splitlines()[-1])


def show(title: str, headings: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """A table: the first column to the left, figures to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    # Wide enough for every table, in a pipe too.
    Console(width=140, highlight=False).print(table)
    print(flush=True)
