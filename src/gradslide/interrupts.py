"""Ctrl-C as a flag that a loop looks at, so that nothing is torn in the middle of a step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Whether Ctrl-C was pressed. The second press raises KeyboardInterrupt at once."""

    def __init__(self) -> None:
        self.requested = False

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def deferred_interrupt() -> Iterator[Interrupt]:
    """Defer Ctrl-C while the block runs (in the main thread; elsewhere signals do not arrive)."""
    interrupt = Interrupt()
    previous = signal.getsignal(signal.SIGINT)
    # A job in the background ignores Ctrl-C: leave it so. Handlers that are not Python's are left alone too.
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield interrupt
        return
    signal.signal(signal.SIGINT, interrupt._handle)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, previous)
