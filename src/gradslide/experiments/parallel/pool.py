"""Runs in parallel worker processes, of which one may die without taking the others along."""

import os
import signal
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from multiprocessing import connection, get_context, parent_process
from typing import Any, TypeVar

from gradslide.engine.solve import solve
from gradslide.results.solution import Solution
from gradslide.results.status import Status

T = TypeVar("T")
R = TypeVar("R")
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


_interrupted = False


def performed(tasks: Sequence[T], perform: Callable[[T], R], processes: int) -> Iterator[tuple[T, R | None]]:
    """Yield each task with its result as soon as it is available; None where its process died.

    perform: a function of a module, which the processes import.
    """
    waiting, suspects = deque(tasks), deque[T]()
    while waiting:
        yield from _until_one_dies(waiting, suspects, perform, processes)
    # Tasks that were running when a process died run once more, each alone.
    for suspect in suspects:
        alone, dead = deque([suspect]), deque[T]()
        yield from _until_one_dies(alone, dead, perform, 1)
        if dead:
            yield suspect, None


def _until_one_dies(
    waiting: deque[T], suspects: deque[T], perform: Callable[[T], R], processes: int
) -> Iterator[tuple[T, R]]:
    """Takes from `waiting`; where a process dies, the tasks that were under way go to `suspects`."""
    # Processes share the cores: one thread each. What they inherit is put back.
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=begin)
    under_way: dict[Future[R], T] = {}
    try:
        while waiting or under_way:
            while waiting and len(under_way) < processes:
                with _without_interrupts():
                    future = pool.submit(perform, waiting[0])
                # Only now: a pool that broke in the meantime takes nothing.
                under_way[future] = waiting.popleft()
            done, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                outcome = future.result()
                yield under_way.pop(future), outcome
    except BrokenProcessPool:
        suspects.extend(under_way.values())
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Defer Ctrl-C. A process that starts meanwhile defers it too, until `begin` handles it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def begin() -> None:
    """Prepare a worker process: Ctrl-C ends its run and prevents others; the end of the parent ends
    it at once.
    """
    signal.signal(signal.SIGINT, _interrupt)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_end_with_parent, daemon=True).start()


def is_interrupted() -> bool:
    return _interrupted


def _end_with_parent() -> None:
    """End when the parent ends: it could not receive the result any more."""
    if (parent := parent_process()) is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _interrupt(signum: int, frame: Any) -> None:
    global _interrupted
    _interrupted = True


def solved(*arguments: Any, **options: Any) -> Solution:
    """`solve`, where Ctrl-C ends all runs: KeyboardInterrupt, whatever this one had reached by
    then.
    """
    if is_interrupted():
        raise KeyboardInterrupt
    with warnings.catch_warnings():
        # They are in the solution.
        warnings.simplefilter("ignore", RuntimeWarning)
        solution = solve(*arguments, **options)
    if solution.status is Status.INTERRUPTED or is_interrupted():
        raise KeyboardInterrupt
    return solution


@contextmanager
def progress_of_runs(enabled: bool) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on stderr: how many are done, of how many, and which was the last."""
    if not enabled:
        yield lambda done, total, last: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    last_run = TextColumn("{task.fields[last]}", markup=False)
    columns = [TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), last_run]
    with ExitStack() as stack:
        bar = Progress(*columns, console=Console(stderr=True))
        task = bar.add_task("runs", total=None, last="")

        def show(done: int, total: int, last: str) -> None:
            # Not before there is something to show: notes and mistakes come first.
            if not bar.live.is_started:
                stack.enter_context(bar)
            bar.update(task, completed=done, total=total, last=last)

        yield show
