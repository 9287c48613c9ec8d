"""Results of finished runs on disk, one small JSON file each, so that the same run is not made
twice.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from gradslide._support import storage

T = TypeVar("T")


def digest(said: Any) -> str:
    """A short name for a table."""
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()[:20]


def digest_of(path: Path | None) -> str:
    """The same for a file; empty where there is none."""
    return "" if path is None else hashlib.sha256(path.read_bytes()).hexdigest()


class ResultCache:
    """Dataclasses by name, as JSON in a folder. fresh: nothing is read."""

    def __init__(self, folder: Path, fresh: bool) -> None:
        storage.require_writable(folder)
        self._folder, self._fresh = folder, fresh

    def read(self, name: str, kind: Callable[..., T]) -> T | None:
        """None for a damaged file too."""
        path = self._folder / f"{name}.json"
        if self._fresh or not path.exists():
            return None
        try:
            return kind(**json.loads(path.read_text(encoding="utf-8")))
        except (TypeError, ValueError):
            return None

    def write(self, name: str, thing: Any) -> None:
        storage.write_atomically(self._folder / f"{name}.json", json.dumps(asdict(thing)).encode())
