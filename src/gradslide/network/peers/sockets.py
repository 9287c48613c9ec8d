"""The sockets of one agent: one to listen, and one to each neighbour with an address."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import zmq
from zmq.utils.monitor import parse_monitor_message

from gradslide._support.errors import InputError
from gradslide.network.peers.authenticator import DOMAIN, Authenticator
from gradslide.network.peers.keys import KeyPair
from gradslide.network.peers.neighbour import Neighbour

_QUEUED = 16
_AT_A_TIME = 64
_LINGER = 2000
_FAILURES = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
_REFUSED = zmq.EVENT_HANDSHAKE_FAILED_AUTH

_Socket = zmq.Socket[bytes]


@dataclass(frozen=True)
class Arrival:
    """A frame, and the neighbour whose key the connection has.

    route: the connection, if the neighbour dialled it.
    """

    name: str
    frame: bytes
    route: bytes


class Sockets:
    """Sends to and receives from neighbours by name. Belongs to the one thread that made it.

    The sender of a frame is known from the key of the connection alone: libzmq attaches the
    authenticator's user id to what comes in at the listening socket, and a dialled socket knows the
    one server key that can answer.

    Parameters
    ----------
    own, listen, neighbours
        As of `Links`.
    size_limit : int
        Bytes of one array.
    patience : float
        Seconds after which a connection that does not answer counts as broken.
    trouble : callable
        Called with a name and a reason when something is wrong with connections of a neighbour, or
        of an unknown sender (None).
    """

    def __init__(
        self,
        own: KeyPair,
        listen: str | None,
        neighbours: Sequence[Neighbour],
        *,
        size_limit: int,
        patience: float,
        trouble: Callable[[str | None, str], None],
    ) -> None:
        self._own = own
        self._neighbours = {neighbour.name: neighbour for neighbour in neighbours}
        # The decoder rejects what is somewhat too long, and says so; libzmq cuts off what is far too long.
        self._size_limit = 2 * size_limit + 2**17
        self._patience = patience
        self._trouble = trouble
        self._routes: dict[str, bytes] = {}
        self._dialled: dict[str, tuple[_Socket, _Socket]] = {}
        self._took: dict[str, float] = {}
        self._context = zmq.Context()
        self._poller = zmq.Poller()
        self._wakeup_address = f"inproc://wakeup-{id(self)}"
        self._wakeup = self._context.socket(zmq.PULL)
        self._wakeup.bind(self._wakeup_address)
        self._names = {neighbour.public_key: neighbour.name for neighbour in neighbours}
        self._authenticator = Authenticator(self._context, self._names, lambda reason: trouble(None, reason))
        self._listening: tuple[_Socket, _Socket] | None = None
        for socket in (self._wakeup, self._authenticator.socket):
            self._poller.register(socket, zmq.POLLIN)
        try:
            if listen is not None:
                self._listening = self._listen(listen)
            for neighbour in neighbours:
                self.dial(neighbour.name)
        except BaseException:
            self.close()
            raise

    def wakeup(self) -> _Socket:
        """A socket for another thread: sending anything there ends `poll`."""
        socket = self._context.socket(zmq.PUSH)
        socket.linger = 0
        socket.connect(self._wakeup_address)
        return socket

    def dial(self, name: str) -> None:
        """Dial a neighbour that has an address; anew if that was done before: libzmq gives up after
        some failures.
        """
        neighbour = self._neighbours[name]
        if neighbour.address is None:
            return
        if name in self._dialled:
            self._drop(self._dialled.pop(name))
        socket = self._socket(zmq.DEALER, neighbour.address)
        socket.immediate = 1  # nothing waits in line for a connection that is not there
        socket.curve_serverkey = neighbour.public_key.encode()
        self._dialled[name] = self._watched(socket, _FAILURES | _REFUSED)
        self._took[name] = time.monotonic()
        socket.connect(neighbour.address)

    def mend(self) -> None:
        """Dial again where there was something to send, but no connection for long."""
        now = time.monotonic()
        for name, took in list(self._took.items()):
            if now - took > self._patience:
                self.dial(name)

    def poll(self, seconds: float) -> None:
        """Wait until something arrives, or a wakeup comes, or time is up; and let neighbours in."""
        self._poller.poll(max(0, int(1000 * seconds)))
        self._authenticator.answer()
        while self._wakeup.poll(0):
            self._wakeup.recv()
        if self._listening is not None:
            self._look_at(self._listening[1], None)
        for name, (_, monitor) in self._dialled.items():
            self._look_at(monitor, name)

    def receive(self) -> Iterator[Arrival]:
        """What has arrived, but not more from one socket than leaves time for the others.

        What is not one frame comes as an empty one, which nobody takes for a message.
        """
        if self._listening is not None:
            yield from self._from_listening(self._listening[0])
        for name, (socket, _) in list(self._dialled.items()):
            for frames in _waiting(socket):
                yield Arrival(name, frames[0].bytes if len(frames) == 1 else b"", b"")

    def _from_listening(self, socket: _Socket) -> Iterator[Arrival]:
        for frames in _waiting(socket):
            name = self._names[str(frames[-1].get("User-Id"))]
            yield Arrival(name, frames[1].bytes if len(frames) == 2 else b"", frames[0].bytes)

    def adopt(self, arrival: Arrival) -> bool:
        """Answer the neighbour on the connection this arrived on; return whether it is new."""
        if not arrival.route or self._routes.get(arrival.name) == arrival.route:
            return False
        self._routes[arrival.name] = arrival.route
        return True

    def send(self, name: str, frame: bytes) -> bool:
        """Whether there was a connection that took it; it may still break before the frame is
        through.
        """
        if name in self._dialled and self._try(self._dialled[name][0], [frame]):
            self._took[name] = time.monotonic()
            return True
        if self._listening is None or name not in self._routes:
            return False
        return self._try(self._listening[0], [self._routes[name], frame])

    def _try(self, socket: _Socket, frames: list[bytes]) -> bool:
        try:
            socket.send_multipart(frames, zmq.DONTWAIT)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise
            return False
        return True

    def _listen(self, address: str) -> tuple[_Socket, _Socket]:
        socket = self._socket(zmq.ROUTER, address)
        socket.router_mandatory = 1
        socket.curve_server = 1
        socket.zap_domain = DOMAIN
        socket.zap_enforce_domain = 1  # without its authenticator the socket would let anyone in
        watched = self._watched(socket, _FAILURES)
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            self._drop(watched)
            raise InputError(
                "listen must be a free address of this machine", f"{address} ({error})", "choose another"
            ) from None
        return watched

    def _socket(self, kind: int, address: str) -> _Socket:
        socket = self._context.socket(kind)
        socket.curve_publickey = self._own.public.encode()
        socket.curve_secretkey = self._own.secret.encode()
        socket.ipv6 = int("[" in address)
        socket.maxmsgsize = self._size_limit
        socket.sndhwm = socket.rcvhwm = _QUEUED
        socket.linger = _LINGER
        patience = int(1000 * self._patience)
        socket.handshake_ivl = socket.heartbeat_timeout = socket.heartbeat_ttl = patience
        socket.heartbeat_ivl = 1000
        socket.reconnect_ivl, socket.reconnect_ivl_max = 100, 2000
        return socket

    def _watched(self, socket: _Socket, events: int) -> tuple[_Socket, _Socket]:
        monitor = socket.get_monitor_socket(events)
        for each in (socket, monitor):
            self._poller.register(each, zmq.POLLIN)
        return socket, monitor

    def _look_at(self, monitor: _Socket, name: str | None) -> None:
        while monitor.poll(0):
            event = parse_monitor_message(monitor.recv_multipart())["event"]
            if event == _REFUSED:
                self._trouble(name, "it refuses this agent's key; it must list it as a neighbour's")
            else:
                self._trouble(name, "a handshake failed: no key, the wrong key, or the connection broke")

    def _drop(self, watched: tuple[_Socket, _Socket]) -> None:
        socket, monitor = watched
        for each in watched:
            self._poller.unregister(each)
        socket.disable_monitor()
        monitor.close(0)
        socket.close(0)

    def close(self) -> None:
        """Close everything; what was sent last has a moment to get through."""
        watched = [*self._dialled.values(), *([self._listening] if self._listening else [])]
        for socket, monitor in watched:
            socket.disable_monitor()
            monitor.close(0)
            socket.close()
        self._wakeup.close(0)
        self._authenticator.close()
        self._context.term()


def _waiting(socket: _Socket) -> Iterator[list[zmq.Frame]]:
    for _ in range(_AT_A_TIME):
        try:
            yield socket.recv_multipart(zmq.DONTWAIT, copy=False)
        except zmq.Again:
            return
