"""Checkpoints: a run on disk, resumed to the bit, also with another number of processes."""

import json
import re
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gradslide._support import storage
from gradslide._support.errors import InputError, require
from gradslide._support.types import Array
from gradslide.network.protocol import Network
from gradslide.results.costs import Costs
from gradslide.results.history import History

_KEPT = 2


class Part(NamedTuple):
    """The part of one of so many processes, after an outer iteration."""

    iteration: int
    rank: int
    size: int
    path: Path


def part_path(path: Path, iteration: int, rank: int, size: int) -> Path:
    """Where a process writes its part: the file itself where there is only one."""
    return path if size == 1 else path.with_name(f"{path.stem}.{iteration}.{rank}-of-{size}{path.suffix}")


def find_parts(path: Path) -> list[Part]:
    """All parts that are there."""
    pattern = re.compile(rf"{re.escape(path.stem)}\.(\d+)\.(\d+)-of-(\d+){re.escape(path.suffix)}")
    if not path.parent.is_dir():
        return []
    names = ((other, pattern.fullmatch(other.name)) for other in path.parent.iterdir())
    return [Part(int(name[1]), int(name[2]), int(name[3]), other) for other, name in names if name]


def _whole(path: Path) -> dict[int, list[Path]]:
    """By outer iteration, all parts of one number of processes, in their order."""
    sets: dict[tuple[int, int], dict[int, Path]] = {}
    for part in find_parts(path):
        sets.setdefault((part.iteration, part.size), {})[part.rank] = part.path
    return {
        iteration: [parts[rank] for rank in range(size)]
        for (iteration, size), parts in sets.items()
        if parts.keys() == set(range(size))
    }


def newest_iteration(path: Path) -> int | None:
    """The last outer iteration of which all parts are there; -1 for one file, whose iteration is in it."""
    return max(_whole(path), default=-1 if path.exists() else None)


def part_paths(path: Path, iteration: int) -> list[Path]:
    """The files of that iteration."""
    if iteration < 0:
        return [path]
    parts = _whole(path).get(iteration)
    if parts is None:
        rule = f"all parts of the checkpoint {path} must be where every process sees them"
        raise InputError(rule, f"not all of iteration {iteration}", "put it into a folder that all share")
    return parts


def remove_old_parts(path: Path, iteration: int, rank: int, size: int) -> None:
    """Keep the last two of this process up to that iteration: what is later was left by a run that ended there, or by
    another one. The first process clears away what is left of other numbers of processes."""
    parts = find_parts(path)
    own = sorted(part for part in parts if (part.rank, part.size) == (rank, size))
    past = [part for part in own if part.iteration <= iteration][-_KEPT:]
    old = [part for part in own if part not in past]
    if rank == 0 and (size == 1 or len(past) == _KEPT):
        oldest = iteration if size == 1 else past[0].iteration
        old += [part for part in parts if part.size != size and not oldest < part.iteration <= iteration]
        if size > 1:
            path.unlink(missing_ok=True)
    for part in old:
        part.path.unlink(missing_ok=True)


def merge_parts(
    files: Iterable[tuple[dict[str, Any], Mapping[str, Array]]], agents: Sequence[int]
) -> tuple[dict[str, Any], dict[str, Array]]:
    """One header, and of the arrays of a state the rows of these agents; other arrays are the same in all files."""
    place = {agent: row for row, agent in enumerate(agents)}
    meta: dict[str, Any] = {}
    arrays: dict[str, Array] = {}
    filled = np.zeros(len(agents), dtype=bool)
    for header, content in files:
        meta = meta or header
        one = header.get("run") == meta.get("run")
        require(
            one, "the parts of a checkpoint must be of one run", "those of two", "start afresh (resume=False, --fresh)"
        )
        there = header.get("agents") or []
        rows = [row for row, agent in enumerate(there) if agent in place]
        here = [place[there[row]] for row in rows]
        filled[here] = True
        for name, array in content.items():
            if not name.startswith("state"):
                arrays.setdefault(name, array)
                continue
            if name not in arrays:
                arrays[name] = np.empty((len(agents), *array.shape[1:]), dtype=array.dtype)
            arrays[name][here] = array[rows]
    if not filled.all():
        missing = [agent for agent, known in zip(agents, filled, strict=True) if not known]
        raise InputError("a checkpoint must have all agents", f"none of agent {missing[0]}", "start afresh")
    return meta, arrays


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
            self._place, self._agents = (network.session.rank, network.session.size), list(network.agents)
        self._every = every_seconds
        self._written = time.monotonic()

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._written >= self._every

    def found(self) -> int | None:
        """The newest outer iteration that is on disk as a whole."""
        return newest_iteration(self.path)

    def warn_of_missing_parts(self) -> None:
        """There is no whole checkpoint, but some parts."""
        if some := find_parts(self.path):
            text = f"of the checkpoint {self.path} only {len(some)} parts are here: the run starts anew"
            warnings.warn(f"{text}; put it into a folder that all processes share", RuntimeWarning, stacklevel=4)

    def write(self, snapshot: Snapshot, run: dict[str, Any]) -> bool:
        """Write the snapshot, and say whether it is on disk: one that fails costs the checkpoint, not the run. run:
        what it is known again by."""
        meta, arrays = self._content(snapshot)
        path = part_path(self.path, snapshot.iteration, *self._place)
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
            remove_old_parts(self.path, iteration, *self._place)

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
        meta, arrays = self._read(part_paths(self.path, iteration))
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
        return merge_parts((storage.read(path, *storage.CHECKPOINT) for path in paths), self._agents or [])
