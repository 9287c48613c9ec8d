"""Work in several threads, for compiled code that lets go of Python's lock."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache


def thread_count() -> int:
    """OMP_NUM_THREADS where it says so, as for BLAS; else one for each core that this process may use."""
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def shares(count: int, parts: int) -> list[tuple[int, int]]:
    """0..count-1 in as many stretches of about the same length, (first, end); none of them empty."""
    parts = max(1, min(parts, count))
    ends = [count * (k + 1) // parts for k in range(parts)]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def run_in_threads(work: Callable[[int, int, int], None], stretches: Sequence[tuple[int, int]]) -> None:
    """work(k, first, end) for every stretch k, the first of them in this thread."""
    waiting = [
        _pool(os.getpid(), len(stretches) - 1).submit(work, k, *stretch)
        for k, stretch in enumerate(stretches[1:], start=1)
    ]
    work(0, *stretches[0])
    for each in waiting:
        each.result()


@lru_cache(maxsize=4)
def _pool(process: int, workers: int) -> ThreadPoolExecutor:
    """Threads do not survive a fork: every process has its own."""
    return ThreadPoolExecutor(workers, thread_name_prefix="gradslide")
