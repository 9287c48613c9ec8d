"""When compiled code is worth its start: nobody waits for the compiler longer than the work would have taken without
it. Both ways give the same bits, so that it does not matter when it happens."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

# Seconds: to import numba and load what was compiled once; to compile.
_LOAD, _COMPILE = 0.6, 5.0
_HERE = Path(__file__).parent


class Startup:
    """Of one kernel, for as long as the process lives. file: the module with its code."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._spent = 0.0
        self.is_over = False

    def pays(self, seconds: float) -> bool:
        """Whether it is time to start, before work that would take so many seconds without it."""
        self.is_over = self.is_over or self._spent + seconds > self._cost()
        return self.is_over

    def without(self, work: Callable[[], T]) -> T:
        """Do it without, and remember what that took."""
        started = time.perf_counter()
        result = work()
        self._spent += time.perf_counter() - started
        return result

    def _cost(self) -> float:
        folder = os.environ.get("NUMBA_CACHE_DIR")
        found = (
            Path(folder).glob(f"**/{self._file}.*.nbi")
            if folder
            else (_HERE / "__pycache__").glob(f"{self._file}.*.nbi")
        )
        return _LOAD if any(found) else _COMPILE
