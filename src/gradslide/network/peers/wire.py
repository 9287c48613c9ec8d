"""Messages as bytes: a fixed, versioned header and a raw payload, never pickled."""

import hashlib
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from gradslide._support.types import Array
from gradslide.network.peers.keys import raw

VERSION = 1
TEXT_LIMIT = 2**16
SESSION_SIZE = 8
ROUND_LIMIT = 2**63

_MAGIC = b"GSLP"
# magic, version, kind, flags, dtype; run, from, to, session; round, need, shape, length; ndim, checksum
_HEADER = struct.Struct("<4sBBBB16s8s8s8sQQQQQII")
_CHECKED = _HEADER.size - 4
_DTYPES: dict[int, Any] = {1: np.dtype("<f4"), 2: np.dtype("<f8")}
_NATIVE: dict[int, Any] = {code: dtype.newbyteorder("=") for code, dtype in _DTYPES.items()}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_MOST_FLAGS = 3

HEADER_SIZE = _HEADER.size


class Kind(IntEnum):
    """Kinds of messages.

    HANDSHAKE opens a session, DATA is one array of one round, STATUS tells where the sender is and
    what it lacks, ACK that its checkpoint covers all rounds before, BYE that it leaves.
    """

    HANDSHAKE = 1
    DATA = 2
    STATUS = 3
    ACK = 4
    BYE = 5


_KINDS = {int(kind): kind for kind in Kind}


class Rejected(Exception):
    """A message that is not perfect, and why."""


@dataclass(frozen=True)
class Edge:
    """One direction of a link in one run: what every header of it must say."""

    run: bytes
    sender: bytes
    receiver: bytes

    def back(self) -> "Edge":
        return Edge(self.run, self.receiver, self.sender)


class Message(NamedTuple):
    """round: DATA's own; else the round that the sender is in, or that its checkpoint reaches.

    need: the first round of the receiver that the sender lacks. content: an array, a text, or
    nothing.
    """

    kind: Kind
    session: bytes
    round: int
    need: int = 0
    flags: int = 0
    content: Any = None


def edge_between(run_id: str, settings: Mapping[str, str], sender: str, receiver: str) -> Edge:
    """From one public key to another, in the run with these settings."""
    parts = [run_id, *(part for name in sorted(settings) for part in (name, settings[name]))]
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        text = part.encode()
        digest.update(len(text).to_bytes(8, "little") + text)
    return Edge(digest.digest(), _short_key(sender), _short_key(receiver))


def _short_key(public: str) -> bytes:
    return hashlib.blake2b(raw(public), digest_size=8).digest()


def encode(message: Message, edge: Edge) -> bytes:
    """The bytes of a message."""
    code, shape = 0, ()
    if message.kind is Kind.DATA:
        array = np.asarray(message.content)
        dtype = array.dtype.newbyteorder("<")
        code, shape = _CODES[dtype], array.shape
        payload = np.ascontiguousarray(array, dtype).tobytes()
    else:
        payload = (message.content or "").encode()
    sizes = (*shape, 0, 0)[:2]
    counts = (message.round, message.need, *sizes, len(payload))
    names = (edge.run, edge.sender, edge.receiver, message.session)
    header = _HEADER.pack(_MAGIC, VERSION, message.kind, message.flags, code, *names, *counts, len(shape), 0)
    checksum = zlib.crc32(payload, zlib.crc32(header[:_CHECKED]))
    return b"".join((header[:_CHECKED], checksum.to_bytes(4, "little"), payload))


def decode(frame: bytes | memoryview, edge: Edge, size_limit: int) -> Message:
    """Decode a message of this edge; Rejected unless it is perfect.

    A handshake may be of another run: it says which.

    The checksum finds damage; that nobody else wrote the message is for the encryption to know.
    """
    if len(frame) < HEADER_SIZE:
        raise Rejected(f"{len(frame)} bytes are too few for a header")
    magic, version, kind, flags, code, *names, round, need, rows, columns, length, ndim, checksum = _HEADER.unpack_from(
        frame
    )
    payload = memoryview(frame)[HEADER_SIZE:]
    if magic != _MAGIC:
        raise Rejected("no gradslide message")
    if version != VERSION:
        raise Rejected(f"format version {version}, not {VERSION}: install the same release on all agents")
    if length != len(payload):
        raise Rejected(f"{len(payload)} bytes of payload where the header says {length}")
    if length > max(size_limit, TEXT_LIMIT):
        raise Rejected(f"{length} bytes are over the size limit")
    if checksum != zlib.crc32(payload, zlib.crc32(memoryview(frame)[:_CHECKED])):
        raise Rejected("the checksum does not fit")
    if kind not in _KINDS:
        raise Rejected(f"unknown kind {kind}")
    kind = _KINDS[kind]
    run, sender, receiver, session = names
    if sender != edge.sender or receiver != edge.receiver:
        raise Rejected(f"a {kind.name} of another edge")
    if run != edge.run and kind is not Kind.HANDSHAKE:
        raise Rejected(f"a {kind.name} of another run or other settings")
    if flags > _MOST_FLAGS:
        raise Rejected(f"unknown flags {flags}")
    if round >= ROUND_LIMIT or need >= ROUND_LIMIT:
        raise Rejected("a round beyond all rounds")
    if kind is Kind.DATA:
        if flags or need:
            raise Rejected("flags on data")
        if length > size_limit:
            raise Rejected(f"{length} bytes are over the size limit")
        return Message(kind, session, round, content=_array(payload, code, ndim, (rows, columns)))
    if code or ndim or rows or columns:
        raise Rejected(f"a {kind.name} with a shape")
    return Message(kind, session, round, need, flags, _text(payload, kind))


def array_of(frame: bytes) -> Array:
    """The array in a frame of DATA that was encoded here."""
    _, _, _, _, code, *_, rows, columns, _, ndim, _ = _HEADER.unpack_from(frame)
    return _array(memoryview(frame)[HEADER_SIZE:], code, ndim, (rows, columns))


def _array(payload: memoryview, code: int, ndim: int, sizes: tuple[int, int]) -> Array:
    if code not in _DTYPES:
        raise Rejected(f"unknown dtype {code}")
    if ndim not in (1, 2) or any(sizes[ndim:]):
        raise Rejected(f"{ndim} dimensions of {sizes}")
    shape, dtype = sizes[:ndim], _DTYPES[code]
    count = shape[0] if ndim == 1 else shape[0] * shape[1]
    if count * dtype.itemsize != len(payload):
        raise Rejected(f"shape {shape} of {dtype} in {len(payload)} bytes")
    if max(shape) >= 2**31:
        raise Rejected(f"shape {shape} is over the size limit")
    array = np.frombuffer(payload, dtype).reshape(shape)
    # What arrived is nobody else's; what was sent may be sent again.
    return array.astype(_NATIVE[code], copy=payload.readonly)


def _text(payload: memoryview, kind: Kind) -> str:
    most = TEXT_LIMIT if kind in (Kind.HANDSHAKE, Kind.BYE) else 0
    if len(payload) > most:
        raise Rejected(f"a {kind.name} of {len(payload)} bytes")
    try:
        return bytes(payload).decode()
    except UnicodeDecodeError:
        raise Rejected(f"a {kind.name} that is no text") from None
