"""Ends a run in which a rank has failed: raised, died, hung, or ended before the others."""

import array
import atexit
import os
import sys
import threading
import time
from collections.abc import Callable

from mpi4py import MPI

from gradslide._support.errors import require_number
from gradslide.network.mpi.hub import FailureReport
from gradslide.network.mpi.rendezvous import Rendezvous, meet
from gradslide.network.mpi.termination import PATIENCE, end_process, install_excepthook


class Watchdog:
    """One thread in each rank, and a hub beside rank 0 that hears them all.

    MPI does not tell that a rank is gone: the others wait for it for ever. Where a rank raises,
    dies, gives no sign of life for `timeout` seconds or ends before the others, the hub writes one
    line that names it and its round, and all processes end with exit code 1, whatever they wait
    for.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        The ranks that work together.
    timeout : float
        Seconds without a sign of life after which a rank counts as hung, also one that holds
        Python's lock for longer inside compiled code.
    on_failure : callable, optional
        Called with the failure report in a thread before this process ends, for a few seconds at
        most.

    Notes
    -----
    The network sets `round` before each exchange of a round, and adds one to `calls` before any
    other exchange that all ranks enter. Neither ever decreases. With one rank nothing is watched.
    """

    def __init__(
        self, comm: MPI.Comm, timeout: float = 30.0, on_failure: Callable[[FailureReport], None] | None = None
    ) -> None:
        require_number("timeout", timeout, "30 seconds suit most runs", above=0)
        self.timeout = float(timeout)
        self.calls = 0
        self._comm = comm
        self._rank = comm.Get_rank()
        self._beat = min(1.0, self.timeout / 5)
        self._on_failure = on_failure
        self._state, self._why = "running", ""
        self._board: memoryview | array.array[int] = array.array("q", [0])
        self._slot = 0
        self._rendezvous: Rendezvous | None = None
        self._sending = threading.Lock()
        self._remove_hook: Callable[[], None] = lambda: None
        self._pid = os.getpid()

    @property
    def round(self) -> int:
        return self._board[self._slot]

    @round.setter
    def round(self, value: int) -> None:
        self._board[self._slot] = value

    def start(self) -> None:
        """Begin to watch. All ranks call it together."""
        if self._comm.Get_size() == 1 or self._rendezvous is not None:
            return
        rendezvous = meet(self._comm, self.timeout, self._beat)
        rendezvous.board[rendezvous.slot] = self.round
        self._rendezvous, self._board, self._slot = rendezvous, rendezvous.board, rendezvous.slot
        rendezvous.wire.socket.settimeout(self._beat)
        self._remove_hook = install_excepthook(self.failed)
        self._thread = threading.Thread(target=self._watch, args=[rendezvous], name="gradslide watchdog", daemon=True)
        self._thread.start()
        atexit.register(self._leave)

    def failed(self, error: BaseException) -> None:
        """Tell all others that this rank has failed.

        This process ends with them, before this returns where all is well with the hub.
        """
        if self._rendezvous is None or not self._thread.is_alive():
            return
        self._state, self._why = "failed", _in_words(error)
        self._tell(self._rendezvous)
        self._thread.join(PATIENCE)

    def stop(self) -> None:
        """This rank's part is over: from now on nobody waits for it.

        Others may go on, and are watched until the last one stops. Does not wait.
        """
        self._remove_hook()
        if self._rendezvous is not None and self._state == "running":
            self._state = "stopped"
            self._tell(self._rendezvous)

    def _leave(self) -> None:
        """At the end of the process.

        MPI would wait here for the others as well, but could not be woken.
        """
        if self._rendezvous is None or os.getpid() != self._pid:
            return
        if self._state == "running":
            self._state = "ended"
            self._tell(self._rendezvous)
        self._thread.join()

    def _tell(self, rendezvous: Rendezvous) -> None:
        with self._sending:
            rendezvous.wire.send(round=self.round, calls=self.calls, state=self._state, why=self._why)

    def _watch(self, rendezvous: Rendezvous) -> None:
        last, unheard = time.monotonic(), 0.0
        while True:
            self._tell(rendezvous)
            messages = rendezvous.wire.receive()
            now = time.monotonic()
            # Where this process itself was suspended, nobody else was silent.
            unheard = 0.0 if messages else unheard + min(now - last, 2 * self._beat)
            last = now
            for message in messages or []:
                if "failure" in message:
                    self._end(rendezvous, FailureReport(**message["failure"]))
                if "done" in message:
                    self._finish(rendezvous)
                    return
            if messages is None or unheard > self.timeout:
                report = FailureReport(0, self.round, "lost its watchdog", exact=False, hung=messages is not None)
                sys.stderr.write(f"{report}\n")
                self._end(rendezvous, report)

    def _finish(self, rendezvous: Rendezvous) -> None:
        rendezvous.wire.socket.close()
        if rendezvous.hub is not None:
            rendezvous.hub.wait()
        atexit.unregister(self._leave)

    def _end(self, rendezvous: Rendezvous, report: FailureReport) -> None:
        hosts = [host for host, _ in rendezvous.processes]
        host, pid = rendezvous.processes[report.rank]
        within_reach = report.hung and host == hosts[self._rank] and report.rank != self._rank
        end_process(
            before=lambda: self._on_failure(report) if self._on_failure else None,
            hung=pid if within_reach else None,
            # Alone on its host, a rank that hangs is reached by the launcher only.
            abort=report.hung and hosts.count(host) == 1,
        )


def _in_words(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"exited with status {error.code}"
    text = f"{type(error).__name__}: {error}".splitlines()[0].removesuffix(": ")
    return f"raised {text[:200]}"
