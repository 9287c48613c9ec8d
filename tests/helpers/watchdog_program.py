"""A program for mpiexec: ranks exchange in rounds under a watchdog, and one of them does what is asked for.

Arguments: a folder for notes, the timeout, what to do, the rank that does it, and the round in which.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from gradslide._support.errors import InputError
from gradslide.network.mpi.watchdog import Watchdog

ROUNDS = 60


def act(deed, watchdog):
    if deed == "raise":
        raise ZeroDivisionError("nothing to divide by")
    if deed == "refuse":
        raise InputError("a radius must be positive", -1, "give its size")
    if deed == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if deed == "hang":
        os.kill(os.getpid(), signal.SIGSTOP)
    if deed == "vanish":
        os._exit(0)
    if deed == "stranger":
        meet_strangers(watchdog._rendezvous.wire.socket.getpeername())
    if deed == "lose the watchdog":
        watchdog._rendezvous.hub.kill()
    if deed == "suspend":
        pids = " ".join(str(pid) for _, pid in watchdog._rendezvous.processes)
        subprocess.Popen(["sh", "-c", f"kill -STOP {pids}; sleep 3; kill -CONT {pids}"], start_new_session=True).wait()
        time.sleep(0.5)


def meet_strangers(address):
    """What a hub must not heed: a wrong token, other languages, and a connection that says nothing."""
    wrong = b'{"rank": 1, "token": "0000"}\n{"round": 9, "calls": 0, "state": "failed", "why": "lied"}\n'
    for words in (wrong, b"GET / HTTP/1.1\r\n\r\n", b"[" * 60000 + b"\n", b"5\n", b'{"token": 5}\n', b"\xff\n", b""):
        with socket.create_connection(address, timeout=5) as stranger:
            stranger.sendall(words)
            assert not words or stranger.recv(1) == b""


def main(folder, timeout, deed, who, when):
    world = MPI.COMM_WORLD
    rank = world.Get_rank()
    note = Path(folder) / f"{rank}.pid"
    watchdog = Watchdog(world, float(timeout), lambda report: note.with_suffix(".told").write_text(str(report)))
    watchdog.start()
    note.write_text(str(os.getpid()))
    if rank == 0:
        note.with_name("hub.pid").write_text(str(watchdog._rendezvous.hub.pid))
    world.Barrier()
    chosen = rank == int(who)
    mine, total = np.ones(1), np.zeros(1)
    for number in range(1, ROUNDS + 1):
        now = chosen and number == int(when)
        if now and deed == "exit":
            sys.exit(3)
        watchdog.round = number
        if now:
            act(deed, watchdog)
        world.Allreduce(mine, total)
    if chosen and deed in ("stranger", "exit alike"):
        time.sleep(1)
    if chosen and deed == "last to die":
        while len(list(note.parent.glob("*.done"))) < world.Get_size() - 1:
            time.sleep(0.05)
        act("kill", watchdog)
    if deed != "exit alike":
        watchdog.stop()
        watchdog.stop()
    if chosen and deed == "raise after stop":
        act("raise", watchdog)
    note.with_suffix(".done").touch()
    sys.exit(2 if deed == "exit alike" else 0)


main(*sys.argv[1:])
