"""Run compiled code that releases the GIL in several threads."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from gradslide._support.cores import usable_cores


def thread_count() -> int:
    """Return OMP_NUM_THREADS if it is set, as for BLAS, else the number of usable cores."""
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    return usable_cores()


def shares(count: int, parts: int) -> list[tuple[int, int]]:
    """Split 0..count-1 into nonempty ranges (first, end) of about the same length."""
    parts = max(1, min(parts, count))
    ends = [count * (k + 1) // parts for k in range(parts)]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def run_in_threads(work: Callable[[int, int, int], None], ranges: Sequence[tuple[int, int]]) -> None:
    """Call work(k, first, end) for every range k, the first of them in this thread."""
    futures = [_pool(os.getpid(), len(ranges) - 1).submit(work, k, *each) for k, each in enumerate(ranges[1:], start=1)]
    work(0, *ranges[0])
    for future in futures:
        future.result()


@lru_cache(maxsize=4)
def _pool(process: int, workers: int) -> ThreadPoolExecutor:
    """Return the threads of a process: they do not survive a fork."""
    return ThreadPoolExecutor(workers, thread_name_prefix="gradslide")
