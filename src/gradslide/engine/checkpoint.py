"""A run on disk: written now and then, picked up to the bit. Where its agents live in several processes each of these
writes its own part; a later run may have another number of them."""

import json
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradslide._support import storage
from gradslide._support.errors import InputError
from gradslide.engine import parts
from gradslide.network.base import Network
from gradslide.results.costs import Costs
from gradslide.results.history import History


@dataclass
class Snapshot:
    """All that a run needs to go on. memory: what is left of it outside the method: of the network and the clock."""

    iteration: int
    state: Any
    costs: Costs
    history: History
    memory: Any = None


class Checkpoint:
    """Writes snapshots to one file, or to one of several parts, at most every so many seconds.

    network: where the agents are, if there is one.
    """

    def __init__(self, path: Path, network: Network | None, every_seconds: float) -> None:
        storage.require_writable(path.parent)
        self.path = path
        self._place, self._agents = (0, 1), None
        if network is not None:
            self._place, self._agents = network.place, list(network.agents)
        self._every = every_seconds
        self._written = time.monotonic()

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._written >= self._every

    def found(self) -> int | None:
        """The newest outer iteration that is on disk as a whole."""
        return parts.newest(self.path)

    def warn_of_missing_parts(self) -> None:
        """There is no whole checkpoint, but some parts."""
        if some := parts.found(self.path):
            text = f"of the checkpoint {self.path} only {len(some)} parts are here: the run starts anew"
            warnings.warn(f"{text}; put it into a folder that all processes share", RuntimeWarning, stacklevel=4)

    def write(self, snapshot: Snapshot, run: dict[str, Any]) -> bool:
        """Write the snapshot, and say whether it is on disk: one that fails costs the checkpoint, not the run. run:
        what it is known again by."""
        meta, arrays = self._content(snapshot)
        path = parts.part_of(self.path, snapshot.iteration, *self._place)
        try:
            storage.write(path, *storage.CHECKPOINT, {"run": run, **meta}, arrays)
        except OSError as error:
            warnings.warn(f"the checkpoint {path} could not be written: {error}", RuntimeWarning, stacklevel=2)
            return False
        finally:
            self._written = time.monotonic()
        return True

    def forget(self, iteration: int) -> None:
        """The parts of this iteration are on disk, everywhere: older ones are not needed."""
        with suppress(OSError):
            parts.forget(self.path, iteration, *self._place)

    def require_storable(self, snapshot: Snapshot) -> None:
        """Refuse a method whose state cannot be written, before the run starts."""
        rule = "a method's state must be made of arrays, numbers, strings, tuples, lists, dicts and dataclasses"
        meta, arrays = self._content(snapshot)
        try:
            json.dumps(meta)
        except TypeError as error:
            raise InputError(rule, str(error), "or run without a checkpoint") from None
        if self._place[1] > 1 and self._agents is not None:
            for name, array in arrays.items():
                if name.startswith("state") and np.shape(array)[:1] != (len(self._agents),):
                    rule = "in several processes the arrays of a method's state must have one row for each agent here"
                    raise InputError(rule, f"{name} of shape {np.shape(array)}", "or run without a checkpoint")

    def _content(self, snapshot: Snapshot) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays: dict[str, Any] = {}
        meta = {
            "agents": self._agents,
            "iteration": snapshot.iteration,
            "state": storage.flatten(snapshot.state, "state", arrays),
            "costs": snapshot.costs.to_dict(),
            "history": snapshot.history.to_dict(),
            "memory": storage.flatten(snapshot.memory, "memory", arrays),
        }
        return meta, arrays

    def read(self, iteration: int, template: Any, run: dict[str, Any], device: Any = None) -> Snapshot:
        """The snapshot of that iteration; `template` is a fresh state of the same method, on that device."""
        meta, arrays = self._read(parts.parts_of(self.path, iteration))
        for key, here in run.items():
            if meta["run"].get(key) != here:
                raise InputError(
                    f"checkpoint {self.path} must belong to this run",
                    f"another {key} ({meta['run'].get(key)} there, {here} here)",
                    "give another path, or start afresh (resume=False, --fresh)",
                )
        return Snapshot(
            iteration=meta["iteration"],
            state=storage.restore(template, meta["state"], arrays, device),
            costs=Costs(**meta["costs"]),
            history=History.from_dict(meta["history"]),
            memory=storage.restore(None, meta.get("memory"), arrays),
        )

    def _read(self, paths: Sequence[Path]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The rows of the agents here, from one file or many."""
        if len(paths) == 1 and self._place[1] == 1:
            return storage.read(paths[0], *storage.CHECKPOINT)
        return parts.merged((storage.read(path, *storage.CHECKPOINT) for path in paths), self._agents or [])
