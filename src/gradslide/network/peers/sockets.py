"""The sockets of one agent: one to listen, and connections from and to its neighbours."""

import random
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from gradslide._support.errors import InputError
from gradslide.network.peers.connection import Connection, ConnectionLost
from gradslide.network.peers.errors import is_of_signal_handler
from gradslide.network.peers.keys import KeyPair
from gradslide.network.peers.neighbour import Neighbour, host_and_port
from gradslide.network.peers.tls import tls_context
from gradslide.network.peers.wire import HEADER_SIZE, TEXT_LIMIT

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_FIRST_GAP, _LONGEST_GAP = 0.1, 2.0
# Connections whose other side has not proved its key, and those of one neighbour.
_MOST_UNKNOWN, _MOST_OF_ONE = 64, 4
_ALIVE_EVERY, _CHECK_EVERY = 1.0, 0.1
_LINGER = 2.0
# Seconds after which a neighbour may be gone that has an open connection: it would have sent something.
_HEARD = 2.0


@dataclass(frozen=True)
class Arrival:
    """A frame, or None for a connection that has just been made, and the neighbour whose key the
    connection has.
    """

    name: str
    frame: memoryview | None
    connection: Connection


@dataclass
class _Line:
    """What is known about dialling one neighbour: the connection, and when to try again."""

    host: str
    port: int
    connection: Connection | None = None
    is_dialling: bool = False
    next_at: float = 0.0
    gap: float = _FIRST_GAP
    trouble: str = ""


class Sockets:
    """Sends to and receives from neighbours by name.

    The sender of a frame is known from the key of the connection alone. One thread at a time may
    call, except for `wake`.

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
        self._names = {neighbour.public_key: neighbour.name for neighbour in neighbours}
        # The decoder rejects what is somewhat too long, and says so.
        self._size_limit = 2 * max(size_limit, TEXT_LIMIT) + HEADER_SIZE
        self._patience = patience
        self._trouble = trouble
        self._server_context = tls_context(own, self._names, server=True)
        self._client_context = tls_context(own, self._names, server=False)
        self._lines = {each.name: _Line(*host_and_port(each.address)) for each in neighbours if each.address}
        self._unknown: list[Connection] = []
        self._known: dict[str, list[Connection]] = {each.name: [] for each in neighbours}
        self._masks: dict[Connection, int] = {}
        self._events: list[tuple[selectors.SelectorKey, int]] = []
        self._dialled: SimpleQueue[tuple[str, socket.socket | None, str]] = SimpleQueue()
        self._checked_at = 0.0
        self._is_closed = False
        self._selector = selectors.DefaultSelector()
        self._waker, self._wakened = socket.socketpair()
        for end in (self._waker, self._wakened):
            end.setblocking(False)
        self._selector.register(self._wakened, _READ)
        self._server: socket.socket | None = None
        try:
            if listen is not None:
                self._server = _listening(listen)
                self._selector.register(self._server, _READ)
        except BaseException:
            self.close()
            raise

    def wake(self) -> None:
        """End `wait`, from any thread."""
        with suppress(OSError):  # it was woken often enough, or all is closed
            self._waker.send(b"\0")

    def wait(self, seconds: float) -> None:
        """Wait until something arrives or can be sent, or a call of `wake`, or time is up."""
        has_more = False
        for connection, mask in list(self._masks.items()):
            wanted = _READ | (_WRITE if connection.wants_write else 0)
            has_more |= connection.has_more or connection.broken is not None
            if wanted != mask and connection.broken is None:
                self._selector.modify(connection, wanted)
                self._masks[connection] = wanted
        self._events = self._selector.select(0.0 if has_more else seconds)

    def receive(self) -> Iterator[Arrival]:
        """What has arrived, but not more of one connection than leaves time for the others."""
        ready = {key.fileobj: mask for key, mask in self._events}
        self._events = []
        if self._wakened in ready:
            with suppress(BlockingIOError):
                while self._wakened.recv(4096):
                    pass
        self._take_dialled()
        if self._server in ready:
            self._accept(self._server)
        for connection in list(self._masks):
            mask = ready.get(connection, 0)
            if not (mask or connection.has_more or connection.broken or not connection.key):
                continue
            if connection not in self._masks:  # lost meanwhile
                continue
            try:
                if connection.broken is not None:
                    raise connection.broken
                yield from self._advance(connection, mask)
            except ConnectionLost as lost:
                self._lose(connection, str(lost))
            except Exception as error:
                if is_of_signal_handler(error):
                    raise
                # Whatever one connection does ends that connection, and nothing else.
                self._lose(connection, f"its connection failed ({type(error).__name__}: {error})")
        now = time.monotonic()
        if now - self._checked_at >= _CHECK_EVERY:
            self._checked_at = now
            self._check(now)

    def _advance(self, connection: Connection, mask: int) -> Iterator[Arrival]:
        if not connection.key:
            # The first step is ours where this agent dialled.
            if (mask or connection.dialled) and connection.shake_hands():
                yield Arrival(self._admit(connection), None, connection)
                yield from self._frames(connection)
            return
        if mask & _WRITE:
            connection.flush()
        if mask & _READ or connection.has_more:
            yield from self._frames(connection)

    def _frames(self, connection: Connection) -> Iterator[Arrival]:
        name = self._names[connection.key]
        for frame in connection.read():
            yield Arrival(name, frame, connection)

    def _admit(self, connection: Connection) -> str:
        """The name of the neighbour whose key the connection has."""
        name = self._names.get(connection.key)
        if name is None:
            raise ConnectionLost(f"the key {connection.key} is not that of a neighbour")
        if connection.dialled is None:
            self._unknown.remove(connection)
            known = self._known[name]
            known.append(connection)
            if len(known) > _MOST_OF_ONE:
                self._lose(known[0], "")
        elif name != connection.dialled:
            raise ConnectionLost(f"neighbour {name} answers at its address")
        return name

    def adopt(self, arrival: Arrival, session: bytes) -> bool:
        """Answer the neighbour, in this session, on the connection this arrived on; return whether it is new."""
        connection = arrival.connection
        connection.session = session
        known = self._known[arrival.name]
        if connection in known and known[-1] is not connection:
            known.remove(connection)
            known.append(connection)
        new, connection.adopted = not connection.adopted, True
        if new and connection.dialled is not None:
            # Only now it is known that the other side accepts this agent's key.
            line = self._lines[connection.dialled]
            line.gap, line.trouble = _FIRST_GAP, ""
        return new

    def hears(self, name: str, session: bytes) -> bool:
        """Whether a session of the neighbour has an open connection, and was heard on it just now."""
        since = time.monotonic() - _HEARD
        return any(each.session == session and each.heard > since for each in self._of(name) if each.adopted)

    @property
    def has_unsent(self) -> bool:
        """Whether something could not be sent at once."""
        return any(each.wants_write or each.broken is not None for each in self._masks)

    def send(self, name: str, *frames: bytes) -> bool:
        """Whether there was a connection that took them; it may still break before they are
        through.
        """
        if self._is_closed:
            return False
        usable = (each for each in self._of(name) if each.adopted or (each.dialled and each.key))
        return any(connection.send(*frames) for connection in usable)

    def reply(self, arrival: Arrival, frame: bytes) -> None:
        """Send on the connection this arrived on, which need not be adopted."""
        arrival.connection.send(frame)

    def _of(self, name: str) -> Iterator[Connection]:
        """The connections of a neighbour, the best first."""
        line = self._lines.get(name)
        if line is not None and line.connection is not None:
            yield line.connection
        yield from reversed(self._known[name])

    # Connections come and go

    def _accept(self, server: socket.socket) -> None:
        for _ in range(_MOST_UNKNOWN):
            try:
                connected, _ = server.accept()
            except OSError as error:
                if is_of_signal_handler(error):
                    raise
                return
            if len(self._unknown) >= _MOST_UNKNOWN:
                # Whoever comes in a flood of others has a chance, too.
                self._lose(random.choice(self._unknown), "too many connections without a key")
            self._unknown += self._add(connected, None)

    def _add(self, connected: socket.socket, dialled: str | None) -> list[Connection]:
        context = self._server_context if dialled is None else self._client_context
        try:
            connection = Connection(connected, context, dialled, self._size_limit)
        except (OSError, ValueError) as error:
            connected.close()
            if is_of_signal_handler(error):
                raise
            return []  # it broke at once
        self._selector.register(connection, _READ)
        self._masks[connection] = _READ
        return [connection]

    def _lose(self, connection: Connection, reason: str) -> None:
        """Forget a connection, and say why, if there is something to say.

        If Ctrl-C comes between, it is still listed as broken, and lost again.
        """
        connection.broken = ConnectionLost(reason)
        name = connection.dialled or self._names.get(connection.key)
        for connections in (self._unknown, *self._known.values()):
            if connection in connections:
                connections.remove(connection)
        for line in self._lines.values():
            if line.connection is connection:
                self._try_later(line, None)
        with suppress(KeyError, ValueError):  # it was lost before, but not in full
            self._selector.unregister(connection)
        connection.close()
        self._masks.pop(connection, None)
        if reason:
            self._trouble(name, reason)

    def _check(self, now: float) -> None:
        """Dial where it is time, tell others that this end is alive, and give up who is not."""
        for name, line in self._lines.items():
            if line.connection is None and not line.is_dialling and now >= line.next_at:
                line.is_dialling = True
                threading.Thread(target=self._dial, args=(name, line.host, line.port), daemon=True).start()
        for connection in list(self._masks):
            if not connection.key:
                if now - connection.began > self._patience:
                    self._lose(connection, "a handshake was not finished in time")
            elif now - connection.heard > self._patience:
                self._lose(connection, "")
            elif now - connection.sent > _ALIVE_EVERY:
                connection.send(b"")

    def _dial(self, name: str, host: str, port: int) -> None:
        """In a thread of its own: finding the address of a host can take long."""
        try:
            found: socket.socket | None = socket.create_connection((host, port), timeout=self._patience)
            reason = ""
        except (OSError, UnicodeError) as error:
            found, reason = None, str(error) if isinstance(error, socket.gaierror | UnicodeError) else ""
        self._dialled.put((name, found, reason))
        if self._is_closed:
            self._close_dialled()
        self.wake()

    def _take_dialled(self) -> None:
        while True:
            try:
                name, connected, reason = self._dialled.get_nowait()
            except Empty:
                return
            line = self._lines[name]
            line.is_dialling = False
            made = [] if connected is None else self._add(connected, name)
            self._try_later(line, made[0] if made else None)
            if reason and reason != line.trouble:
                line.trouble = reason
                self._trouble(name, f"its host {line.host} was not found: {reason}")

    def _try_later(self, line: _Line, connection: Connection | None) -> None:
        line.connection = connection
        line.next_at = time.monotonic() + line.gap
        line.gap = min(2 * line.gap, _LONGEST_GAP)

    def close(self) -> None:
        """Close everything; what was sent last has a moment to get through."""
        self._is_closed = True
        if self._server is not None:
            self._server.close()
        self._finish()
        for connection in self._masks:
            connection.close()
        self._close_dialled()
        self._selector.close()
        self._waker.close()
        self._wakened.close()

    def _finish(self) -> None:
        """Send what is queued, and let the other sides end.

        Closing a connection on which something arrives would reset it, and what is on its way to
        the other side would be lost.
        """
        sending = [connection for connection in self._masks if connection.key]
        ending: list[Connection] = []
        end = time.monotonic() + _LINGER
        while (sending or ending) and time.monotonic() < end:
            for connection in list(sending):
                connection.flush()
                if not connection.wants_write:
                    sending.remove(connection)
                    connection.end_sending()
                    ending.append(connection)
            ending = [connection for connection in ending if not connection.drain()]
            time.sleep(0.001 if ending else 0.01 if sending else 0.0)

    def _close_dialled(self) -> None:
        with suppress(Empty):
            while True:
                connected = self._dialled.get_nowait()[1]
                if connected is not None:
                    connected.close()


def _listening(address: str) -> socket.socket:
    host, port = host_and_port(address)
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            None if host == "*" else host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        server = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise _not_free(address, error) from None
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(place)
        server.listen(_MOST_UNKNOWN)
    except OSError as error:
        server.close()
        raise _not_free(address, error) from None
    server.setblocking(False)
    return server


def _not_free(address: str, error: Exception) -> InputError:
    return InputError("listen must be a free address of this machine", f"{address} ({error})", "choose another")
