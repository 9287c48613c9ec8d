"""A run on disk: written now and then, picked up to the bit."""

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradslide import storage
from gradslide.costs import Costs
from gradslide.errors import InputError
from gradslide.history import History

_KIND, _VERSION = "checkpoint", 2


@dataclass
class Snapshot:
    """All that a run needs to go on. memory: what is left of it outside the method: of the network and the clock."""

    iteration: int
    state: Any
    costs: Costs
    history: History
    memory: Any = None


class Checkpoint:
    """Writes snapshots to one file, at most every so many seconds. `run` says which run the file belongs to."""

    def __init__(self, path: Path, run: dict[str, Any], every_seconds: float) -> None:
        storage.require_writable(path.parent)
        self.path = path
        self._run = run
        self._every = every_seconds
        self._written = time.monotonic()

    def write_if_due(self, snapshot: Callable[[], Snapshot]) -> None:
        if time.monotonic() - self._written >= self._every:
            self.write(snapshot())

    def write(self, snapshot: Snapshot) -> None:
        """Write the snapshot; a disk that fails costs the checkpoint, not the run."""
        meta, arrays = self._content(snapshot)
        try:
            storage.write(self.path, _KIND, _VERSION, meta, arrays)
        except OSError as error:
            warnings.warn(f"the checkpoint {self.path} could not be written: {error}", RuntimeWarning, stacklevel=2)
        self._written = time.monotonic()

    def require_storable(self, snapshot: Snapshot) -> None:
        """Refuse a method whose state cannot be written, before the run starts."""
        try:
            json.dumps(self._content(snapshot)[0])
        except TypeError as error:
            rule = "a method's state must be made of arrays, numbers, strings, tuples, lists, dicts and dataclasses"
            raise InputError(rule, str(error), "or run without a checkpoint") from None

    def _content(self, snapshot: Snapshot) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays: dict[str, Any] = {}
        meta = {
            "run": self._run,
            "iteration": snapshot.iteration,
            "state": storage.flatten(snapshot.state, "state", arrays),
            "costs": snapshot.costs.to_dict(),
            "history": snapshot.history.to_dict(),
            "memory": storage.flatten(snapshot.memory, "memory", arrays),
        }
        return meta, arrays

    def read(self, template: Any) -> Snapshot | None:
        """The snapshot on disk, if there is one; `template` is a fresh state of the same method."""
        if not self.path.exists():
            return None
        meta, arrays = storage.read(self.path, _KIND, _VERSION)
        for key, here in self._run.items():
            if meta["run"].get(key) != here:
                raise InputError(
                    f"checkpoint {self.path} must belong to this run",
                    f"another {key} ({meta['run'].get(key)} there, {here} here)",
                    "give another path, or start afresh (resume=False, --fresh)",
                )
        return Snapshot(
            iteration=meta["iteration"],
            state=storage.restore(template, meta["state"], arrays),
            costs=Costs(**meta["costs"]),
            history=History.from_dict(meta["history"]),
            memory=storage.restore(None, meta.get("memory"), arrays),
        )
