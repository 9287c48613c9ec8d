"""Tasks in parallel processes, of which one may die without taking the others along."""

import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TypeVar

from gradslide.experiments.parallel import worker

T = TypeVar("T")
R = TypeVar("R")
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def performed(tasks: Sequence[T], perform: Callable[[T], R], processes: int) -> Iterator[tuple[T, R | None]]:
    """What each task gives, as soon as it is there; None where the process that did it died. perform: a function of a
    module, which the processes import."""
    waiting, suspects = deque(tasks), deque[T]()
    while waiting:
        yield from _until_one_dies(waiting, suspects, perform, processes)
    # Whoever was under way when a process died runs once more, alone.
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
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=worker.begin)
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
    """Ctrl-C waits. A process that starts meanwhile lets it wait too, until `worker.begin` knows what to do with it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
