"""The audit log of a site: who took part, with what, what left the site, and what came out.

One line of JSON for each event, appended and never rewritten. Each line holds the hash of the line
before and is signed with the agent's key: a line that is changed, removed or inserted breaks the
chain. Lines that are cut off at the end do not; compare the last hash with a copy kept elsewhere.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from gradslide._support import storage
from gradslide._support.errors import InputError, require
from gradslide._support.hashing import digest
from gradslide.network.peers.keys import KeyPair, is_signed, signature

AUDIT = "audit.jsonl"
_FIRST = "0" * 32
_RULE = "an audit log must be an unbroken chain of signed lines"


@dataclass(frozen=True)
class Entry:
    """One event.

    Attributes
    ----------
    number : int
        From 1 on.
    time, event : str
    facts : mapping
    key : str
        The public key of the agent that signed it.
    previous, hash, signature : str
    """

    number: int
    time: str
    event: str
    facts: Mapping[str, Any]
    key: str
    previous: str
    hash: str = ""
    signature: str = ""

    def content(self) -> bytes:
        """Return what is hashed and signed."""
        names = ("number", "time", "event", "facts", "key", "previous")
        return json.dumps({name: getattr(self, name) for name in names}, sort_keys=True).encode()

    def digest(self) -> str:
        """Return the hash of the content."""
        return digest(self.content())


class AuditLog:
    """Appends events to the log of an agent.

    Parameters
    ----------
    path : Path
    own : KeyPair
        Signs the lines.

    Raises
    ------
    InputError
        If the log that is there is broken: nothing is added to it.
    """

    def __init__(self, path: Path, own: KeyPair) -> None:
        self._path, self._own = path, own
        if path.exists():
            _remove_torn_line(path)
        entries = verified(path) if path.exists() else []
        self._number, self._previous = len(entries), entries[-1].hash if entries else _FIRST
        if entries and entries[-1].key != own.public:
            # A new key begins a new log, whose first line holds the end of the old one.
            aside = next(free for k in count(1) if not (free := path.with_suffix(f".{k}.jsonl")).exists())
            path.rename(aside)
            self._number, self._previous = 0, _FIRST
            self.add("key changed", log=aside.name, key=entries[-1].key, hash=entries[-1].hash)

    def add(self, event: str, **facts: Any) -> str:
        """Append an event; return its hash."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        bare = Entry(self._number + 1, now, event, facts, self._own.public, self._previous)
        entry = replace(bare, hash=bare.digest(), signature=signature(self._own, bare.content()))
        storage.append_line(self._path, json.dumps(asdict(entry)))
        self._number, self._previous = entry.number, entry.hash
        return entry.hash


def _remove_torn_line(path: Path) -> None:
    """Remove what is behind the last end of a line: a full disk or a loss of power cut it off."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole == 0:
        path.unlink()
    elif whole < len(content):
        os.truncate(path, whole)


def verified(path: Path, public: str | None = None) -> list[Entry]:
    """Read a log, and check hashes, order and signatures.

    Parameters
    ----------
    path : Path
    public : str, optional
        The key that must have signed all lines; by default that of the first.

    Returns
    -------
    list of Entry

    Raises
    ------
    InputError
        If a line is not what was written; it names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(_RULE, f"{path} ({error})", "check the path") from None
    require(bool(lines), _RULE, f"{path}, which is empty", "check the path")
    entries: list[Entry] = []
    for number, line in enumerate(lines, 1):
        entry = _entry(line, number)
        public = entry.key if public is None else public
        previous = entries[-1].hash if entries else _FIRST
        _require(entry.number == number and entry.previous == previous, number, "does not follow the line before")
        _require(entry.hash == entry.digest(), number, "was changed")
        _require(entry.key == public, number, "is of another key")
        _require(is_signed(public, entry.content(), entry.signature), number, "is not signed by its key")
        entries.append(entry)
    return entries


def _entry(line: str, number: int) -> Entry:
    try:
        return Entry(**json.loads(line))
    except (ValueError, TypeError):
        raise _broken(number, "cannot be read") from None


def _require(condition: bool, number: int, problem: str) -> None:
    if not condition:
        raise _broken(number, problem)


def _broken(number: int, problem: str) -> InputError:
    remedy = "find out who changed the file; start a new log under another name"
    return InputError(_RULE, f"line {number}, which {problem}", remedy)
