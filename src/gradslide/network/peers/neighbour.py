"""Who a neighbour is, as the user names it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gradslide._support.errors import InputError, require
from gradslide.network.peers.keys import KeyPair, read_public

_ADDRESS = re.compile(r"tcp://(\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\]]+):(\d{1,5})")


@dataclass(frozen=True)
class Neighbour:
    """name: what this agent calls it. address: where it listens, tcp://host:port; None if only it can dial.
    public_key: who it is, in Z85."""

    name: str
    address: str | None
    public_key: str


def require_neighbours(own: KeyPair, listen: str | None, neighbours: Sequence[Neighbour]) -> None:
    """Refuse what could never connect, or would leave open who is who."""
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
