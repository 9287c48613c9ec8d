"""The rendezvous of the ranks with the hub, which rank 0 starts and announces over MPI."""

import array
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mpi4py import MPI

from gradslide._support.errors import InputError
from gradslide.network.mpi import hub as hub_program
from gradslide.network.mpi.hub import Wire, open_board

_CONNECT = 5.0
_SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Rendezvous:
    """One rank's connection with the hub.

    Attributes
    ----------
    wire : Wire
        To the hub.
    board : memoryview or array
        Where this rank notes its round, at `slot`.
    processes : list of (str, int)
        Host and process id of each rank.
    hub : subprocess.Popen or None
        The hub's process, on rank 0.
    """

    wire: Wire
    board: "memoryview | array.array[int]"
    slot: int
    processes: list[tuple[str, int]]
    hub: "subprocess.Popen[str] | None"


@dataclass(frozen=True)
class _Invitation:
    addresses: list[str]
    port: int
    token: str
    board: str


def meet(comm: MPI.Comm, timeout: float, beat: float) -> Rendezvous:
    """Connect all ranks with the hub. Collective; raises on all ranks alike."""
    rank = comm.Get_rank()
    processes: list[tuple[str, int]] = comm.allgather((_host(), os.getpid()))
    hub = invitation = None
    if rank == 0:
        hub, invitation = _invite(processes, timeout, beat)
    invitation = comm.bcast(invitation, root=0)
    board, slot = _board(invitation, rank, processes)
    wire = _join(invitation, rank, shared=slot == rank and isinstance(board, memoryview))
    cut_off = [number for number, joined in enumerate(comm.allgather(wire is not None)) if not joined]
    if rank == 0:
        os.unlink(invitation.board)
    if wire is not None and not cut_off:
        return Rendezvous(wire, board, slot, processes, hub)
    if wire is not None:
        wire.socket.close()
    if hub is not None:
        hub.kill()
        hub.wait()
    raise InputError(
        "every rank must reach the host of rank 0 over TCP",
        f"no connection from rank {', '.join(map(str, cut_off))} to {' or '.join(invitation.addresses)}",
        "let the hosts talk to each other on any port, or run without the watchdog",
    )


def _host() -> str:
    """The same for two processes only where they can signal each other, and meet on the loopback
    address.
    """
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts += [os.readlink("/proc/self/ns/pid"), os.readlink("/proc/self/ns/net")]
    return " ".join(parts)


def _invite(
    processes: list[tuple[str, int]], timeout: float, beat: float
) -> tuple["subprocess.Popen[str]", _Invitation]:
    host, size = processes[0][0], len(processes)
    alone = all(other == host for other, _ in processes)
    addresses = ["127.0.0.1"] if alone else _outer_addresses()
    token = secrets.token_hex(16)
    handle, board = tempfile.mkstemp(prefix="gradslide-", dir=_SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None)
    os.truncate(handle, 8 * size)
    os.close(handle)
    given = {
        "bind": "127.0.0.1" if alone else "",
        "token": token,
        "size": size,
        "timeout": timeout,
        "beat": beat,
        "board": board,
        "pids": {rank: pid for rank, (other, pid) in enumerate(processes) if other == host},
    }
    # A session of its own: launchers kill the process groups of ranks.
    hub = subprocess.Popen(
        [sys.executable, "-I", "-S", hub_program.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert hub.stdin is not None
    assert hub.stdout is not None
    with hub.stdin, hub.stdout:
        hub.stdin.write(json.dumps(given) + "\n")
        hub.stdin.flush()
        port = hub.stdout.readline()
    # Where the hub could not begin, nobody joins, and all learn of it together.
    return hub, _Invitation(addresses, int(port or 0), token, board)


def _outer_addresses() -> list[str]:
    """Addresses of this host that other hosts may know, likeliest first."""
    found = []
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent: this asks for the address of the interface that leads outwards.
        probe.connect(("192.0.2.1", 9))
        found.append(probe.getsockname()[0])
    with suppress(OSError):
        found += [str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    return list(dict.fromkeys(address for address in found if not address.startswith("127.")))


def _board(
    invitation: _Invitation, rank: int, processes: list[tuple[str, int]]
) -> "tuple[memoryview | array.array[int], int]":
    if processes[rank][0] == processes[0][0]:
        with suppress(OSError):
            return open_board(invitation.board, len(processes)), rank
    return array.array("q", [0]), 0


def _join(invitation: _Invitation, rank: int, shared: bool) -> Wire | None:
    for address in invitation.addresses:
        try:
            connection = socket.create_connection((address, invitation.port), timeout=_CONNECT)
        except OSError:
            continue
        wire = Wire(connection)
        wire.send(rank=rank, token=invitation.token, shared=shared)
        if any(message.get("welcome") == rank for message in wire.receive() or []):
            return wire
        connection.close()
    return None
