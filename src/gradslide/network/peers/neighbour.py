"""Neighbours as the user names them, and addresses."""

import random
import re
import socket
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from gradslide._support.errors import InputError, require
from gradslide.network.peers.keys import KeyPair, read_public

_ADDRESS = re.compile(r"tcp://(\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\]]+):(\d{1,5})")
_PORTS = range(15_000, 32_000)


@dataclass(frozen=True)
class Neighbour:
    """A neighbour of an agent.

    Parameters
    ----------
    name : str
        What this agent calls it.
    address : str or None
        Where it listens, tcp://host:port; None if only the neighbour can connect.
    public_key : str
        Its public key, ed25519:...

    Examples
    --------
    >>> from gradslide.network.peers.neighbour import Neighbour
    >>> east = Neighbour("east", "tcp://east.example.org:5555", "its public key")
    >>> east.name
    'east'
    """

    name: str
    address: str | None
    public_key: str


def require_neighbours(own: KeyPair, listen: str | None, neighbours: Sequence[Neighbour]) -> None:
    """Refuse neighbours that could never connect, or that cannot be told apart."""
    require(len(neighbours) > 0, "an agent needs at least one neighbour", "none", "name them")
    names = [neighbour.name for neighbour in neighbours]
    keys = [read_public(neighbour.public_key) for neighbour in neighbours]
    require(len(set(names)) == len(names), "neighbours must have different names", names, "rename one")
    require(len(set(keys)) == len(keys), "neighbours must have different keys", "one key twice", "make a key for each")
    require(own.public not in keys, "an agent is no neighbour of its own", own.public, "give the neighbour's key")
    if listen is not None:
        require_address("listen", listen)
    for neighbour in neighbours:
        if neighbour.address is not None:
            require_address(f"the address of {neighbour.name}", neighbour.address)
        elif listen is None:
            rule = f"this agent or its neighbour {neighbour.name} must listen"
            raise InputError(rule, "no address of either", "give one of them an address the other can reach")


def require_address(what: str, address: str) -> None:
    """Refuse what is not tcp://host:port."""
    match = _ADDRESS.fullmatch(address)
    valid = match is not None and 0 < int(match[2]) < 65536
    require(valid, f"{what} must be tcp://host:port", repr(address), "for example tcp://10.0.0.7:5555")


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of tcp://host:port."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return host.strip("[]"), int(port)


HOST = "127.0.0.1"


def free_addresses(count: int) -> list[str]:
    """Return free addresses on the loopback interface. All are reserved before any is released.

    Systems give ports from about 32,768 on to outgoing connections, which may take one before it is
    bound: these are below.
    """
    found: list[str] = []
    with ExitStack() as stack:
        for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
            if len(found) == count:
                break
            probe = stack.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind((HOST, port))
                found.append(f"tcp://{HOST}:{port}")
    require(len(found) == count, f"{count} free ports are needed", len(found), "start fewer agents")
    return found


def why_not_free(address: str) -> str:
    """Why an agent cannot listen at an address of this machine; empty if it can."""
    try:
        with socket.create_server(host_and_port(address)):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def why_not_reached(address: str, seconds: float) -> str:
    """Why nothing can be reached at an address; empty if something listens there."""
    try:
        with socket.create_connection(host_and_port(address), timeout=seconds):
            return ""
    except OSError as error:
        return error.strerror or str(error)
