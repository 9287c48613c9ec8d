"""What every process does that makes runs: end with the one that started it, and heed Ctrl-C between runs."""

import os
import signal
import threading
from multiprocessing import connection, parent_process
from typing import Any

_interrupted = False


def begin() -> None:
    """Ctrl-C ends the run under way, and lets no other begin; the end of the whole ends it at once."""
    signal.signal(signal.SIGINT, _interrupt)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_end_with_parent, daemon=True).start()


def is_interrupted() -> bool:
    return _interrupted


def cores() -> int:
    """Those that this process may use, where the system says so."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _end_with_parent() -> None:
    """Nobody would be left to take the outcome."""
    if (parent := parent_process()) is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _interrupt(signum: int, frame: Any) -> None:
    global _interrupted
    _interrupted = True
