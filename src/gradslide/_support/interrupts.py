"""Ctrl-C as a flag that a loop looks at, so that nothing is torn in the middle of a step."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# Set for processes that `gradslide run -n` starts: how many it asked for.
ASKED = "GRADSLIDE_PROCESSES"
# What their launcher passes on to them, where Ctrl-C would kill them.
STOP_SIGNAL = signal.SIGUSR1 if hasattr(signal, "SIGUSR1") else signal.SIGINT


class Interrupt:
    """Whether Ctrl-C was pressed. The second press raises KeyboardInterrupt at once."""

    def __init__(self, requested: bool = False) -> None:
        self.requested = requested

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


_early = Interrupt()


def expect_interrupts() -> None:
    """From now on Ctrl-C that comes before a run starts ends it, where a launcher of MPI passes it on."""
    for number in _signals()[1:]:
        signal.signal(number, _early._handle)


@contextmanager
def deferred_interrupt() -> Iterator[Interrupt]:
    """Defer Ctrl-C while the block runs (in the main thread; elsewhere signals do not arrive)."""
    interrupt = Interrupt(requested=_early.requested)
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = {number: signal.getsignal(number) for number in _signals()}
    # A job in the background ignores Ctrl-C: leave it so. Handlers that are not Python's are left alone too.
    before = {number: handler for number, handler in before.items() if callable(handler) or number != signal.SIGINT}
    for number in before:
        signal.signal(number, interrupt._handle)
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _signals() -> list[signal.Signals]:
    """Ctrl-C; and what a launcher of MPI passes on in its place, where one started this process."""
    return [signal.SIGINT, STOP_SIGNAL] if ASKED in os.environ else [signal.SIGINT]
