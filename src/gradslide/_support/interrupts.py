"""Ctrl-C as a flag that a loop checks, so that no step is interrupted midway."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

# Set for processes that `gradslide run -n` starts: how many it asked for.
ASKED = "GRADSLIDE_PROCESSES"
# What their launcher passes on to them, where Ctrl-C would kill them.
STOP_SIGNAL = signal.SIGUSR1 if hasattr(signal, "SIGUSR1") else signal.SIGINT
# Ctrl-C, and what comes in its place where a launcher of MPI started this process.
_SIGNALS = (signal.SIGINT, STOP_SIGNAL)


@dataclass
class Interrupt:
    """Whether Ctrl-C was pressed. The second press raises KeyboardInterrupt at once."""

    requested: bool = False

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


_early = Interrupt()


def expect_interrupts() -> None:
    """Remember a Ctrl-C that an MPI launcher passes on before a run starts."""
    if ASKED in os.environ:
        signal.signal(STOP_SIGNAL, _early._handle)


@contextmanager
def deferred_interrupt() -> Iterator[Interrupt]:
    """Defer Ctrl-C while the block runs (in the main thread only; other threads receive no
    signals).
    """
    interrupt = Interrupt(requested=_early.requested)
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = {}
    for number in _SIGNALS if ASKED in os.environ else _SIGNALS[:1]:
        handler = signal.getsignal(number)
        # A job in the background ignores Ctrl-C: leave it so. Handlers that are not Python's are left alone too.
        if callable(handler) or number != signal.SIGINT:
            before[number] = handler
            signal.signal(number, interrupt._handle)
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
