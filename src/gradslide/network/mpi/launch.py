"""Processes of MPI: how to start them, and what each knows of the others."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import numpy as np

from gradslide._support import storage
from gradslide._support.errors import InputError, require, require_number
from gradslide._support.interrupts import ASKED, STOP_SIGNAL
from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.network.mpi.communicator import mpi_library, shared_communicator
from gradslide.network.mpi.network import MPI

# Where the first process says that all is done, and with what exit code: that of a launcher is not to be trusted.
MARKER = "GRADSLIDE_MARKER"


def launch(arguments: Sequence[str], processes: int) -> int | None:
    """Run `gradslide arguments` in so many processes.

    Returns its exit code, None where the processes did not come to their end.
    """
    require_number("-n", processes, "for example -n 4", least=1, whole=True)
    rule, remedy = "-n starts the processes itself", "leave out -n, or mpiexec"
    require(declared_size() == 0, rule, f"one of {declared_size()} processes that were started already", remedy)
    mpi_library()
    with tempfile.TemporaryDirectory(prefix="gradslide-") as folder:
        marker = Path(folder) / "done.json"
        environment = {**os.environ, ASKED: str(processes), MARKER: str(marker)}
        command = [str(_mpiexec()), "-n", str(processes), sys.executable, "-m", "gradslide", *arguments]
        _watched(command, environment)
        with suppress(OSError, ValueError):
            return int(json.loads(marker.read_text(encoding="utf-8"))["code"])
    return None


def mark_done(code: int) -> None:
    """Say that all is done, to the process that launched this."""
    if path := os.environ.get(MARKER):
        storage.write_atomically(path, json.dumps({"code": code}).encode())


def _mpiexec() -> Path:
    path = Path(sys.prefix) / "bin" / "mpiexec"
    if not path.exists():
        remedy = "install gradslide[mpi-local], or start it with your own: mpiexec -n 4 gradslide run SPEC.toml"
        raise InputError("-n needs the mpiexec that belongs to mpi4py's MPI", f"none at {path}", remedy)
    return path


def _watched(command: Sequence[str], environment: dict[str, str]) -> None:
    """Run it until its processes are gone.

    Ctrl-C asks them to stop; the third time, and with whatever else would end this process, they
    are killed.
    """
    child: list[subprocess.Popen[bytes]] = []
    presses = 0

    def pressed(number: int, frame: FrameType | None) -> None:
        nonlocal presses
        presses += 1
        with suppress(ProcessLookupError):
            for each in child:
                if number == signal.SIGINT and presses < 3:
                    each.send_signal(STOP_SIGNAL)
                else:
                    os.killpg(each.pid, signal.SIGTERM if presses < 3 else signal.SIGKILL)

    names = ("SIGINT", "SIGTERM", "SIGHUP")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.signal(number, pressed) for number in numbers}
    try:
        # In a session of its own, so that Ctrl-C reaches the processes through us only: mpiexec would kill them.
        child.append(subprocess.Popen(command, env=environment, start_new_session=True))
        if presses:
            child[0].terminate()
        child[0].wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# What launchers tell their processes: how many there are.
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS")


def declared_size(environment: Mapping[str, str] = os.environ) -> int:
    """How many processes a launcher says that there are; 0 where nobody launched this one."""
    asked, *numbers = [_number(environment.get(name, "")) for name in (ASKED, *_SIZES)]
    # An interactive shell of Slurm is a job of one.
    return asked or next((number for number in numbers if number > 1), 0)


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


class World:
    """All processes of MPI. timeout: as that of `MPI`."""

    def __init__(self, timeout: float) -> None:
        self._library = mpi_library()
        self._comm = self._library.COMM_WORLD
        self._timeout = timeout
        asked, size = declared_size(), self._comm.size
        require(
            asked in (0, size) or size > 1,
            f"the {asked} processes must find each other",
            f"{asked} runs of one process each: mpiexec belongs to another MPI than mpi4py",
            "use the mpiexec of mpi4py's MPI (`gradslide run -n` takes the one beside Python)",
        )
        rule, remedy = "there must be as many processes as were asked for", "start them anew"
        require(not os.environ.get(ASKED) or asked == size, rule, f"{size} of {asked}", remedy)
        self._shared = shared_communicator(self._comm, timeout)

    @property
    def is_first(self) -> bool:
        return bool(self._comm.rank == 0)

    @property
    def size(self) -> int:
        return int(self._comm.size)

    def network(self, graph: Graph) -> MPI:
        return MPI(graph, timeout=self._timeout)

    def broadcast(self, numbers: Callable[[], Array]) -> Array:
        """The numbers that the first process computes, for all."""
        return self._shared.broadcast(np.asarray(numbers(), dtype=np.float64) if self.is_first else np.empty(0))

    def end(self) -> None:
        """All is done, everywhere: nobody has to be watched any more."""
        self._shared.note_exchange()
        self._comm.Barrier()
        if self._shared.watchdog is not None:
            self._shared.watchdog.stop()

    @contextmanager
    def guarded(self, mistake: Callable[[], None]) -> Iterator[None]:
        """What goes wrong in here, in whichever process, ends all of them.

        mistake: called where it is the user's.
        """
        try:
            yield
        except BaseException as error:
            if isinstance(error, InputError):
                mistake()
            if self._shared.watchdog is not None:
                self._show(error)
                self._shared.watchdog.failed(error)
            raise

    def _show(self, error: BaseException) -> None:
        if not isinstance(error, InputError | KeyboardInterrupt):
            traceback.print_exception(error)
        elif isinstance(error, InputError) and self.is_first:
            # What others find is said when the watchdog names them.
            sys.stderr.write(f"error: {error}\n")


def this_world(timeout: float) -> World | None:
    """The processes that a launcher started, if one did."""
    return World(timeout) if declared_size() > 0 else None
