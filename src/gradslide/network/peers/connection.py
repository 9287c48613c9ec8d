"""One connection to a neighbour: frames over TLS, without ever waiting."""

import socket
import ssl
import time
from collections import deque
from collections.abc import Iterator

import numpy as np

from gradslide.network.peers.errors import is_of_signal_handler
from gradslide.network.peers.tls import public_key_of

# Why a handshake of TLS failed: waiting does not mend it.
WRONG_KEY = "its key is not that of a neighbour"
REFUSED_KEY = "it refuses this agent's key; it must list it as a neighbour's"
_LENGTH = 4
_READ = 2**16
_WRITE = 2**17
# Bytes of one TLS record: shorter frames that are sent together share one.
_RECORD = 2**14
# Bytes read at a time, so that the others get their turn.
_TURN = 2**20
# Lengths and frames.
_QUEUED = 32


class ConnectionLost(Exception):
    """The connection is over. The text says why, if the other side is to blame."""


class Connection:
    """Frames with a length before each; an empty one only says that this end is alive.

    Parameters
    ----------
    connected : socket.socket
    context : ssl.SSLContext
    dialled : str or None
        The name of the neighbour that was dialled; None if the other side did.
    size_limit : int
        Bytes of one frame.

    Attributes
    ----------
    key : str
        The public key of the other side, once TLS has verified it.
    adopted : bool
        Whether a good message came over it.
    session : bytes
        The start of the other side's process that sent it.
    heard, sent, began : float
        When something arrived last, was sent last, and when it was made.
    wants_write : bool
        Whether something waits until the socket takes more.
    has_more : bool
        Whether there is more to read which the operating system does not know of.
    broken : ConnectionLost or None
        What ended it while something was sent.
    """

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, dialled: str | None, size_limit: int) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tls = context.wrap_socket(connected, server_side=dialled is None, do_handshake_on_connect=False)
        self.dialled = dialled
        self.key = ""
        self.adopted = False
        self.session = b""
        self.began = self.heard = self.sent = time.monotonic()
        self.wants_write = False
        self.has_more = False
        self.broken: ConnectionLost | None = None
        self._size_limit = size_limit
        # The start of a frame whose length is not known yet, and a frame that has not arrived in full.
        self._received = bytearray()
        self._frame, self._filled = memoryview(b""), 0
        self._queue: deque[memoryview] = deque()
        self._part = memoryview(b"")
        # Still set afterwards if a signal handler, as that of Ctrl-C, raised an error: what was read or sent is not
        # known.
        self._is_reading = self._is_sending = False

    def fileno(self) -> int:
        return self._tls.fileno()

    def shake_hands(self) -> bool:
        """Go on with the handshake of TLS; return whether it is done, and `key` known."""
        self.wants_write = False
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLWantWriteError:
            self.wants_write = True
            return False
        except (OSError, ValueError) as error:
            if is_of_signal_handler(error):
                raise
            raise ConnectionLost(_handshake_reason(error)) from None
        try:
            self.key = public_key_of(self._tls.getpeercert(binary_form=True) or b"")
        except Exception as error:
            if is_of_signal_handler(error):
                raise
            # What OpenSSL has verified need not be strict DER; the parser raises errors of several kinds.
            raise ConnectionLost("its certificate cannot be read") from None
        self.heard = time.monotonic()
        return True

    def read(self) -> Iterator[memoryview]:
        """The frames that have arrived."""
        if self._is_reading:
            raise ConnectionLost
        self._is_reading = True
        left = _TURN
        self.has_more = False
        while left > 0:
            try:
                count = self._receive()
            except ssl.SSLWantReadError:
                break
            except ssl.SSLWantWriteError:
                self.wants_write = True
                break
            except (OSError, ValueError) as error:
                if is_of_signal_handler(error):
                    raise
                raise ConnectionLost(_reason(error)) from None
            if not count:
                raise ConnectionLost
            left -= count
            self.heard = time.monotonic()
            yield from self._frames()
            if not self._frame and not self._received and not self._tls.pending():
                break
        else:
            self.has_more = True
        self._is_reading = False

    def _receive(self) -> int:
        """Read into the frame that is under way, or the start of one; return how many bytes."""
        if self._frame:
            count = self._tls.recv_into(self._frame[self._filled :])
            self._filled += count
            return count
        part = self._tls.recv(_READ)
        self._received += part
        return len(part)

    def _frames(self) -> Iterator[memoryview]:
        if self._frame:
            if self._filled == len(self._frame):
                frame, self._frame = self._frame, memoryview(b"")
                yield frame
            return
        received, start = self._received, 0
        while len(received) - start >= _LENGTH:
            length = int.from_bytes(received[start : start + _LENGTH], "little")
            if length > self._size_limit:
                raise ConnectionLost(f"a message of {length} bytes is over the size limit")
            start += _LENGTH
            part = received[start : start + length]
            start += len(part)
            if len(part) < length:
                # Memory that is not touched before something arrives for it.
                self._frame, self._filled = np.empty(length, np.uint8).data, len(part)
                self._frame[: len(part)] = part
            elif length:
                yield memoryview(part)
        if start:
            del received[:start]

    def send(self, *frames: bytes) -> bool:
        """Whether they were taken; the connection may still break before they are through."""
        if len(self._queue) >= _QUEUED or self.broken is not None:
            return False
        for frame in frames:
            self._queue += memoryview(len(frame).to_bytes(_LENGTH, "little")), memoryview(frame)
        self.sent = time.monotonic()
        if not self.wants_write:
            self.flush()
        return self.broken is None

    def flush(self) -> None:
        """Send what the socket takes."""
        if self._is_sending:
            self.broken = ConnectionLost()
            return
        self._is_sending = True
        self.wants_write = False
        try:
            while self._part or self._queue:
                if not self._part:
                    self._part = self._next_part()
                sent = self._tls.send(self._part[:_WRITE])
                self._part = self._part[sent:]
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            self.wants_write = True
        except (OSError, ValueError) as error:
            if is_of_signal_handler(error):
                raise
            self.broken = ConnectionLost(_reason(error))
        self._is_sending = False

    def _next_part(self) -> memoryview:
        """What is short as one record; the rest of what is long without a copy."""
        queue = self._queue
        if len(queue[0]) >= _RECORD:
            return queue.popleft()
        parts, room = [], _RECORD
        while queue and room:
            part = queue.popleft()
            if len(part) > room:
                queue.appendleft(part[room:])
            parts.append(part[:room])
            room -= len(parts[-1])
        return memoryview(b"".join(parts))

    def end_sending(self) -> None:
        """Tell the other side that no more comes; what it still sends can be read."""
        try:
            self._tls.shutdown(socket.SHUT_WR)
        except OSError:
            self.close()

    def drain(self) -> bool:
        """Throw away what arrives; return whether the other side has ended, too."""
        try:
            while self._tls.recv(_READ):
                pass
        except BlockingIOError:
            return False
        except (OSError, ValueError):
            return True
        return True

    def close(self) -> None:
        self._tls.close()


def _handshake_reason(error: Exception) -> str:
    """What a failed handshake means."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return WRONG_KEY
    if isinstance(error, ssl.SSLError) and "ALERT_UNKNOWN_CA" in str(error.reason):
        return REFUSED_KEY
    return "a handshake failed: no key, or the connection broke"


def _reason(error: Exception) -> str:
    """Why an established connection ended; empty if it just did."""
    if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return ""
    if "ALERT_UNKNOWN_CA" in str(error.reason):
        return _handshake_reason(error)
    return "damaged data arrived; the connection is opened anew"
