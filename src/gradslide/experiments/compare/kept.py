"""What a comparison has done already, on disk: one file per outcome, and per optimum."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from gradslide import storage
from gradslide.experiments.compare import work
from gradslide.experiments.compare.spec import Entry
from gradslide.experiments.compare.task import Outcome, Target, Task, digest

T = TypeVar("T")


class Kept:
    """fresh: nothing is read."""

    def __init__(self, folder: Path, fresh: bool) -> None:
        storage.require_writable(folder)
        self._folder, self._fresh = folder, fresh

    def target(self, problem: Entry, content: str, folder: Path, data_dir: Path | None) -> Target:
        path = self._folder / f"optimum-{digest([problem.table, content])}.json"
        if (known := self._read(path, Target)) is not None:
            return known
        found = work.optimum(problem.table, folder, data_dir)
        storage.write_atomically(path, json.dumps(asdict(found)).encode())
        return found

    def outcome(self, task: Task) -> Outcome | None:
        return self._read(self._folder / f"{task.key}.json", Outcome)

    def keep(self, task: Task, outcome: Outcome) -> None:
        """What failed or was interrupted is tried again another time."""
        if outcome.kind in ("done", "refused"):
            storage.write_atomically(self._folder / f"{task.key}.json", json.dumps(asdict(outcome)).encode())

    def _read(self, path: Path, kind: Callable[..., T]) -> T | None:
        """None for a damaged file too."""
        if self._fresh or not path.exists():
            return None
        try:
            return kind(**json.loads(path.read_text(encoding="utf-8")))
        except (TypeError, ValueError):
            return None
