"""Starts a command in several processes of MPI, and finds out how they ended."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from gradslide._support import storage
from gradslide._support.errors import InputError, require, require_number
from gradslide._support.interrupts import ASKED, STOP_SIGNAL
from gradslide.network.mpi.company import mpi_library
from gradslide.network.mpi.world import declared_size

# Where the first process says that all is done, and with what exit code: that of a launcher is not to be trusted.
MARKER = "GRADSLIDE_MARKER"


def launch(arguments: Sequence[str], processes: int) -> int | None:
    """Run `gradslide arguments` in so many processes; its exit code, None where they did not come to their end."""
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
    """Say that all is done, to whoever launched this."""
    if path := os.environ.get(MARKER):
        storage.write_atomically(path, json.dumps({"code": code}).encode())


def _mpiexec() -> Path:
    path = Path(sys.prefix) / "bin" / "mpiexec"
    if not path.exists():
        remedy = "install gradslide[mpi-local], or start it with your own: mpiexec -n 4 gradslide run SPEC.toml"
        raise InputError("-n needs the mpiexec that belongs to mpi4py's MPI", f"none at {path}", remedy)
    return path


def _watched(command: Sequence[str], environment: dict[str, str]) -> None:
    """Run it until its processes are gone. Ctrl-C asks them to stop; the third time, and with whatever else would end
    this process, they are killed."""
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
