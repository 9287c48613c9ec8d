"""Tasks in parallel processes, of which one may die without taking the others along."""

import os
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context

from gradslide.experiments.compare import work
from gradslide.experiments.compare.task import Outcome, Task

_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def performed(tasks: Sequence[Task], processes: int) -> Iterator[tuple[Task, Outcome]]:
    """The outcome of each task as soon as it is there."""
    waiting, suspects = deque(tasks), deque[Task]()
    while waiting:
        yield from _until_one_dies(waiting, suspects, processes)
    # Whoever was under way when a process died runs once more, alone.
    for suspect in suspects:
        alone, dead = deque([suspect]), deque[Task]()
        yield from _until_one_dies(alone, dead, 1)
        if dead:
            yield suspect, Outcome.of(suspect, kind="failed", message="the process that ran it died")


def _until_one_dies(waiting: deque[Task], suspects: deque[Task], processes: int) -> Iterator[tuple[Task, Outcome]]:
    """Takes from `waiting`; where a process dies, the tasks that were under way go to `suspects`."""
    # Processes share the cores: one thread each. What they inherit is put back.
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=work.begin)
    under_way: dict[Future[Outcome], Task] = {}
    try:
        while waiting or under_way:
            while waiting and len(under_way) < processes:
                with _without_interrupts():
                    future = pool.submit(work.perform, waiting[0])
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
    """Ctrl-C waits. A process that starts meanwhile lets it wait too, until `work.begin` knows what to do with it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
