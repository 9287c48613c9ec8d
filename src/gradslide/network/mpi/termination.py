"""Termination of a process whose main thread may be blocked inside MPI for ever."""

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import NoReturn

from mpi4py import MPI

from gradslide._support.errors import InputError
from gradslide.network.mpi.hub import kill

# A launcher that sees one process end may kill the rest: this long, in seconds, for all to write what they have to.
LAG = 0.5
# Whatever hangs on the way, the process has ended after that many seconds.
PATIENCE = 5.0


def end_process(before: Callable[[], None] | None = None, *, hung: int | None = None, abort: bool = False) -> NoReturn:
    """End this process, from any thread, with exit code 1.

    before: done first. hung: a process that cannot end itself. abort: ask MPI to end all others.
    """
    guard = threading.Timer(PATIENCE, os._exit, [1])
    guard.daemon = True
    guard.start()
    if before is not None:
        try:
            before()
        except Exception:
            traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    time.sleep(LAG)
    if hung is not None:
        kill(hung)
    if abort and _may_abort():
        MPI.COMM_WORLD.Abort(1)
    os._exit(1)


def _may_abort() -> bool:
    if not MPI.Is_initialized() or MPI.Is_finalized():
        return False
    return MPI.Is_thread_main() or MPI.Query_thread() == MPI.THREAD_MULTIPLE


def install_excepthook(tell: Callable[[BaseException], None]) -> Callable[[], None]:
    """Let an uncaught exception end the run on all ranks.

    It is shown here and reported to the others. Returns a function that removes the hook.
    """
    previous = sys.excepthook

    def end_with(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, InputError):
            # One write: processes share the terminal, and lines must not mix.
            sys.stderr.write(f"error: {error}\n")
        else:
            previous(kind, error, trace)
        tell(error)
        end_process(abort=True)

    def remove() -> None:
        if sys.excepthook is end_with:
            sys.excepthook = previous

    sys.excepthook = end_with
    return remove
