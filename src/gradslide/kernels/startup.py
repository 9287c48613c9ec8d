"""Decide when compiling is worthwhile.

Compiled code starts once the plain code has taken as long as compiling (or loading cached machine
code) would. Both give the same bits, so the moment does not matter.
"""

import contextlib
import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from gradslide.kernels.stamp import STAMP

T = TypeVar("T")

# Seconds to import numba and load cached machine code, and to compile.
_LOAD, _COMPILE = 0.6, 5.0


class Startup:
    """The startup of compiled code for one purpose and precision, in this process.

    Attributes
    ----------
    is_over : bool
        Whether compiled code is in use.
    """

    def __init__(self, name: str) -> None:
        self._mark = f"{name}-{STAMP}.ready"
        self._spent = 0.0
        self._is_marked = False
        self.is_over = False

    def is_worthwhile(self, seconds: float) -> bool:
        """Return whether to compile for work that takes this many seconds otherwise."""
        self.is_over = self.is_over or self._spent + seconds > self._cost()
        return self.is_over

    def time_plain(self, work: Callable[[], T]) -> T:
        """Run the plain code, and add its time to what was spent without compiled code."""
        started = time.perf_counter()
        result = work()
        self._spent += time.perf_counter() - started
        return result

    def mark(self, folder: str | None) -> None:
        """Record that the code was cached in this folder, if any: later processes load it."""
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
    """Return the startup of that name, one per process."""
    return Startup(name)
