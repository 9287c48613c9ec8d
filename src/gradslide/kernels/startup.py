"""When compiled code is worth its start: nobody waits for the compiler longer than the work would have taken without
it. Both ways give the same bits, so that it does not matter when it happens."""

import contextlib
import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from gradslide.kernels.stamp import STAMP

T = TypeVar("T")

# Seconds: to import numba and load what was compiled once; to compile.
_LOAD, _COMPILE = 0.6, 5.0


class Startup:
    """Of code for one purpose and precision, for as long as the process lives."""

    def __init__(self, name: str) -> None:
        self._mark = f"{name}-{STAMP}.ready"
        self._spent = 0.0
        self._is_marked = False
        self.is_over = False

    def is_worthwhile(self, seconds: float) -> bool:
        """Whether it is time to start, before work that would take so many seconds without it."""
        self.is_over = self.is_over or self._spent + seconds > self._cost()
        return self.is_over

    def time_plain(self, work: Callable[[], T]) -> T:
        """Do it without, and remember what that took."""
        started = time.perf_counter()
        result = work()
        self._spent += time.perf_counter() - started
        return result

    def mark(self, folder: str | None) -> None:
        """The code was compiled, and lies in this folder, if in any: what comes later only has to load it."""
        if folder is not None and not self._is_marked:
            with contextlib.suppress(OSError):
                Path(folder, self._mark).touch()
        self._is_marked = True

    def _cost(self) -> float:
        given = os.environ.get("NUMBA_CACHE_DIR")
        found = (
            Path(given).glob(f"*/{self._mark}") if given else (Path(__file__).parent / "__pycache__").glob(self._mark)
        )
        return _LOAD if any(found) else _COMPILE


@cache
def startup_of(name: str) -> Startup:
    return Startup(name)
