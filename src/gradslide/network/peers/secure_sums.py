"""Sums of which nobody sees the parts: masks between neighbours that cancel in the total.

Numbers are sent in fixed point, as integers modulo 2^280 in limbs of 40 bits. Neighbours i and j
share a key; for every sum, i adds and j subtracts the same pseudorandom integers, so that all masks
cancel, exactly. What an agent sends is uniformly random to all who lack one of the keys that it
shares with neighbours: its contribution is hidden from all who do not collude with all of them.

K. Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", CCS 2017,
without its server.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from gradslide._support import storage
from gradslide._support.errors import InputError, require
from gradslide._support.hashing import digest
from gradslide._support.types import Array

# Limbs, the bits of each, and the bits behind the point. Partial sums of limbs of up to 2^13 agents are exact in
# doubles.
LIMBS, _BITS, _FRACTION = 7, 40, 140
MOST_AGENTS = 2**13
_BASE = 2.0**_BITS
# Contributions beyond this do not fit; they, infinities and NaN are sent as the second.
_LARGEST, _INFINITE = 2.0**110, 2.0**124
# Numbers of 32 bits in a seed of 32 bytes.
SEED_WORDS = 8
_SEED_BYTES = 4 * SEED_WORDS
_BEGINS = "begins"
# Of a journal: a start, the number of a sum, and a hash; or that it begins, and the hash of the run.
_LINE = re.compile(rf"\S+ (\d+|{_BEGINS}) [0-9a-f]{{32}}")


def encoded(values: Array) -> Array:
    """Return numbers in fixed point, (LIMBS, n), limbs from the lowest.

    Bits below 2^-140 are cut off. Infinities, NaN and what is too large are sent as one very large
    number, always a positive one: those of two agents must not cancel.
    """
    fits = np.abs(values) < _LARGEST
    size = np.where(fits, np.abs(values), _INFINITE)
    sign = np.where(fits & (values < 0), -1, 1).astype(np.int64)
    limbs = np.empty((LIMBS, values.size), dtype=np.int64)
    for k in reversed(range(LIMBS)):
        unit = 2.0 ** (_BITS * k - _FRACTION)
        limb = np.floor(size / unit)
        size -= limb * unit
        limbs[k] = limb
    return limbs * sign


def require_encodable(values: Array) -> None:
    """Refuse finite numbers that are too large."""
    largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    rule, remedy = f"numbers in secure sums must be below {_LARGEST:.0e}", "scale the columns of the data"
    require(largest < _LARGEST, rule, f"{largest:.3g}", remedy)


def reduced(limbs: Array) -> Array:
    """Return the same numbers modulo 2^280, with limbs from 0 to 2^40 - 1."""
    found, carry = np.empty_like(limbs), np.zeros(limbs.shape[1], dtype=np.int64)
    for k in range(LIMBS):
        whole = limbs[k] + carry
        carry = whole >> _BITS
        found[k] = whole - (carry << _BITS)
    return found


def decoded(limbs: Array, agents: int) -> Array:
    """Return a sum over so many agents as numbers; infinite where a contribution was, or did not fit.

    Raises
    ------
    InputError
        If masks do not cancel, so that the sum is random.
    """
    limbs = reduced(limbs)
    is_negative = limbs[-1] >= 2 ** (_BITS - 1)
    size = np.where(is_negative, reduced(-limbs), limbs)
    values = np.zeros(limbs.shape[1])
    for k in reversed(range(LIMBS)):
        values += size[k] * 2.0 ** (_BITS * k - _FRACTION)
    rule, remedy = "masks of secure sums must cancel", "start all agents again under a new name of the run"
    is_random = bool(np.any(values > agents * (_INFINITE + _LARGEST)))
    require(not is_random, rule, "a random sum: an agent was started anew in the middle of a run", remedy)
    values = np.where(values > agents * _LARGEST, np.inf, values)
    return np.where(is_negative, -values, values)


class Masks:
    """The masks of one agent: for every sum, those with all of its neighbours.

    Parameters
    ----------
    secret : bytes
        From which seeds are derived; they differ between starts of a run.
    own : str
        The public key of this agent.
    journal : Journal, optional
        What was sent, so that an agent that is started again sends nothing else under the same masks.

    Attributes
    ----------
    counter : int
        Number of the next sum. It never repeats under one key.
    """

    def __init__(self, secret: bytes, own: str, journal: "Journal | None" = None) -> None:
        self.counter = 0
        self._secret, self._own, self._journal = secret, own, journal
        self._keys: dict[str, bytes] = {}

    def seed_for(self, neighbour: str) -> Array:
        """Return this agent's part of the key that it shares with a neighbour, as numbers."""
        seed = hashlib.blake2b(neighbour.encode(), key=self._secret, digest_size=_SEED_BYTES).digest()
        return np.frombuffer(seed, dtype="<u4").astype(np.float64)

    def share(self, seeds: Mapping[str, Array]) -> None:
        """Take in what neighbours sent, by public key."""
        for neighbour, words in seeds.items():
            theirs = np.asarray(words).astype("<u4").tobytes()
            parts = {self._own: self.seed_for(neighbour).astype("<u4").tobytes(), neighbour: theirs}
            self._keys[neighbour] = hashlib.blake2b(
                b"".join(parts[each] for each in sorted(parts)), digest_size=32
            ).digest()

    def masked(self, values: Array) -> Array:
        """Return a contribution as it may be sent: LIMBS times as many numbers.

        Raises
        ------
        InputError
            If something else was sent under the same masks before.
        """
        limbs = encoded(values)
        for neighbour, key in self._keys.items():
            mask = _pseudorandom(key, self.counter, values.size)
            limbs = limbs + mask if self._own < neighbour else limbs - mask
        sent = reduced(limbs)
        if self._journal is not None:
            self._journal.note(self.counter, sent)
        self.counter += 1
        return sent.ravel().astype(np.float64)


def unmasked(numbers: Array, agents: int) -> Array:
    """Return the sum of what all agents sent."""
    return decoded(numbers.astype(np.int64).reshape(LIMBS, -1), agents)


def derived_secret(secret: str, start: str) -> bytes:
    """Return the secret of one start of a run: an agent that resumes it finds the same again."""
    return hashlib.blake2b(f"secure sums {start}".encode(), key=hashlib.sha256(secret.encode()).digest()).digest()[:32]


def _pseudorandom(key: bytes, counter: int, count: int) -> Array:
    """Uniform limbs, (LIMBS, count)."""
    nonce = b"\0" * 4 + counter.to_bytes(12, "little")
    stream = Cipher(ChaCha20(key, nonce), mode=None).encryptor().update(bytes(LIMBS * count * 8))
    return np.frombuffer(stream, dtype="<i8").reshape(LIMBS, count) & (2**_BITS - 1)


class Journal:
    """Hashes of what was sent, one line each, written before it is sent.

    Its first line says of which run that was. An agent that is killed before its first checkpoint,
    and started again in the same run, goes on with the start, and so with the masks, of that line.

    Parameters
    ----------
    path : Path
        The file, which may be there.
    run : str
        What the run is: its name, who takes part, and with what settings.
    start : str
        The name of this start, unless one goes on.
    is_resumed : bool
        Whether the agent goes on from a checkpoint, which knows the name of its start.

    Attributes
    ----------
    start : str
        The name of the start that goes on, or of this one.
    is_new : bool
        Whether the start is neither one that goes on nor that of a checkpoint.
    """

    def __init__(self, path: Path, run: str, start: str, *, is_resumed: bool) -> None:
        self._path, self._run = path, digest(run.encode())
        lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else [""]
        # What was cut off by a loss of power was not sent.
        self._is_torn, rows = lines[-1] != "", [line.split(" ") for line in lines[:-1] if _LINE.fullmatch(line)]
        begun = {run: known for known, word, run in rows if word == _BEGINS}
        self.start = start if is_resumed else begun.get(self._run, start)
        self.is_new = not (is_resumed or self.start in begun.values())
        self._has_begun = self.start in begun.values()
        own = [row for row in rows if row[0] == self.start]
        self._known = {int(counter): found for _, counter, found in own if counter != _BEGINS}

    def note(self, counter: int, sent: Array) -> None:
        """Refuse to send two different arrays under one mask."""
        found = digest(sent.tobytes())
        known = self._known.get(counter)
        if known is None:
            self._append(counter, found)
        elif known != found:
            rule = "a restarted agent must send the same numbers under the same masks"
            got, remedy = "others: its data or its release changed", "start all agents under a new name of the run"
            raise InputError(rule, got, remedy)

    def forget(self) -> None:
        """Let the next start be a new one: all agents of this one have left."""
        self._path.unlink(missing_ok=True)

    def _append(self, counter: int, found: str) -> None:
        begin = "" if self._has_begun else f"{self.start} {_BEGINS} {self._run}\n"
        try:
            storage.append_line(self._path, "\n" * self._is_torn + begin + f"{self.start} {counter} {found}")
        except OSError as error:
            rule, got = "what secure sums send must be noted on disk before", f"{self._path}: {error.strerror}"
            raise InputError(rule, got, "make room there, then start this agent again") from None
        self._is_torn, self._has_begun = False, True
        self._known[counter] = found
