"""The authenticator of an agent, which admits neighbours' keys only.

It speaks ZAP, https://rfc.zeromq.org/spec/27.
"""

from collections.abc import Callable, Iterable

import zmq
from zmq.utils import z85

DOMAIN = b"gradslide"

_ADDRESS, _VERSION = "inproc://zeromq.zap.01", b"1.0"
_FRAMES = 9  # routing id, empty, version, request, domain, address, identity, mechanism, key


class Authenticator:
    """Answers libzmq's request for each new connection.

    The key becomes the user id, which libzmq attaches to every message of that connection, and
    which the other side cannot choose.

    Parameters
    ----------
    context : zmq.Context
    allowed : iterable of str
        The public keys that are admitted.
    refused : callable
        Called with the reason for each connection that is not.
    """

    def __init__(
        self, context: "zmq.Context[zmq.Socket[bytes]]", allowed: Iterable[str], refused: Callable[[str], None]
    ) -> None:
        self._allowed = frozenset(allowed)
        self._refused = refused
        self.socket = context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.bind(_ADDRESS)

    def answer(self) -> None:
        """Answer all waiting requests."""
        while self.socket.poll(0):
            frames = self.socket.recv_multipart()
            if len(frames) < 4:
                continue
            user, reason = self._judge(frames)
            status = b"200" if user else b"400"
            reply = [*frames[:2], _VERSION, frames[3], status, reason.encode(), user.encode(), b""]
            self.socket.send_multipart(reply, zmq.DONTWAIT)
            if not user:
                self._refused(reason)

    def _judge(self, frames: list[bytes]) -> tuple[str, str]:
        """The user id, empty for a connection that is refused, and the reason."""
        if len(frames) != _FRAMES or frames[2] != _VERSION or frames[4] != DOMAIN:
            return "", "a connection without a key"
        mechanism, key = frames[7:]
        if mechanism != b"CURVE" or len(key) != 32:
            return "", "a connection without a key"
        public = z85.encode(key).decode("ascii")
        return (public, "OK") if public in self._allowed else ("", f"the unknown key {public}")

    def close(self) -> None:
        self.socket.close()
