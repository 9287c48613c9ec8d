"""Free ports on this machine."""

import socket
from contextlib import ExitStack

HOST = "127.0.0.1"


def free_addresses(count: int) -> list[str]:
    """So many addresses on loopback that nobody listens at. All are asked for before any is given back."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [f"tcp://{HOST}:{each.getsockname()[1]}" for each in sockets]
