"""Checkpoints: a run on disk, resumed to the bit, also with another number of processes.

A single process writes one file. Several processes write one part each, with the rows of their agents, and keep those
of the last two checkpoints: one that is incomplete never replaces one that is whole.
"""

import json
import re
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from gradslide._support import storage
from gradslide._support.arrays import doubles, to_numpy
from gradslide._support.errors import InputError, require
from gradslide._support.randomness import ForSome
from gradslide._support.types import Array, Device, Storable
from gradslide.methods.base import Context
from gradslide.network.protocol import Network
from gradslide.results.costs import Costs
from gradslide.results.history import History, Record

# Arrays with one row for each agent, or each row of its data, begin with these names.
_ROWS = ("state", "memory.environment.reach")
# Checkpoints of which parts are kept.
_KEPT = 2


@dataclass
class Snapshot:
    """What a run needs to be resumed.

    Attributes
    ----------
    iteration : int
        The outer iterations done.
    state : Storable
        The state of the method.
    costs : Costs
        What was spent.
    records : list of Record
        What was recorded.
    engine : mapping or None
        The state outside the method: of the network, the clock and the checks.
    is_common : bool
        Whether the state is the same in all processes; what only some have is in the first one.
    check_states : sequence of (state, array or None)
        What late checks need: a state of the method, and gradients.
    """

    iteration: int
    state: Storable
    costs: Costs
    records: list[Record] = field(default_factory=list)
    engine: Mapping[str, Storable] | None = None
    is_common: bool = False
    check_states: Sequence[tuple[Storable, Array | None]] = ()


class Checkpoint:
    """Writes snapshots to one file, or to one of several parts.

    Parameters
    ----------
    path : Path
        The file; parts are named after it.
    network : Network or None
        Where the agents live, if there is a network.
    every_seconds : float
        The least number of seconds between two checkpoints.
    rows_per_agent : ndarray, shape (agents here,), or None
        How many rows of data each agent has, if it has such.
    """

    def __init__(
        self, path: Path, network: Network | None, every_seconds: float, rows_per_agent: Array | None = None
    ) -> None:
        storage.require_writable(path.parent)
        self.path = path
        self._session = None if network is None else network.session
        self._place, self._agents = (0, 1), None
        if network is not None:
            self._place, self._agents = (network.session.rank, network.session.size), list(network.agents)
        self._rows = None if rows_per_agent is None else np.asarray(rows_per_agent).tolist()
        self._every = every_seconds
        self._written = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether enough time has passed since the last one."""
        return time.monotonic() - self._written >= self._every

    def save(self, snapshot: Snapshot, identity: dict[str, Any]) -> bool:
        """Write the snapshot; return whether it is on disk, in all processes.

        Parameters
        ----------
        snapshot : Snapshot
            What to write.
        identity : dict
            What `run_identity` returned.
        """
        is_written = self.write(snapshot, identity)
        if self._session is not None and self._session.size > 1:
            is_written = self._session.all_reduce_signal(not is_written) == 0
        if is_written:
            with suppress(OSError):
                remove_old_parts(self.path, snapshot.iteration, *self._place)
        return is_written

    def write(self, snapshot: Snapshot, identity: dict[str, Any]) -> bool:
        """Write the part of this process; return whether that succeeded. If not, the run goes on without it."""
        meta, arrays = self._content(snapshot)
        path = part_path(self.path, snapshot.iteration, *self._place)
        try:
            storage.write(path, *storage.CHECKPOINT, {"run": identity, **meta}, arrays)
        except OSError as error:
            warnings.warn(f"the checkpoint {path} could not be written: {error}", RuntimeWarning, stacklevel=2)
            return False
        finally:
            self._written = time.monotonic()
        return True

    def require_storable(self, snapshot: Snapshot) -> None:
        """Refuse a method whose state cannot be written, before the run starts."""
        rule = "a method's state must be made of arrays, numbers, strings, tuples, lists, dicts and dataclasses"
        meta, arrays = self._content(snapshot)
        try:
            json.dumps(meta)
        except TypeError as error:
            raise InputError(rule, str(error), "or run without a checkpoint") from None
        if self._place[1] > 1 and self._agents is not None:
            counts = {len(self._agents), sum(self._rows or [])}
            for name, array in arrays.items():
                if name.startswith("state") and not (np.ndim(array) and len(array) in counts):
                    rule = "in several processes the arrays of a method's state must have one row for each agent here"
                    raise InputError(rule, f"{name} of shape {np.shape(array)}", "or run without a checkpoint")

    def _content(self, snapshot: Snapshot) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays: dict[str, Any] = {}
        meta = {
            "agents": self._agents,
            "rows": self._rows,
            "iteration": snapshot.iteration,
            "state": storage.flatten(snapshot.state, "common" if snapshot.is_common else "state", arrays),
            "costs": snapshot.costs.to_dict(),
            "history": History(snapshot.records).to_dict(),
            "memory": storage.flatten(snapshot.engine, "memory", arrays),
            "check_states": [
                [storage.flatten(each, f"state_of_check.{number}.{place}", arrays) for place, each in enumerate(pair)]
                for number, pair in enumerate(snapshot.check_states)
            ],
        }
        return meta, arrays

    def read(self, iteration: int, template: Storable, identity: dict[str, Any], device: Device = None) -> Snapshot:
        """Return the snapshot of an iteration.

        Parameters
        ----------
        iteration : int
            What `latest_iteration` returned.
        template : Storable
            A fresh state of the same method, on that device.
        identity : dict
            What `run_identity` returned.
        device : Device, optional
            Where the arrays of the state go.

        Raises
        ------
        InputError
            If the checkpoint belongs to another run, or parts are missing.
        """
        paths = part_paths(self.path, iteration)
        if len(paths) == 1 and self._place[1] == 1:
            meta, arrays = storage.read(paths[0], *storage.CHECKPOINT)
        else:
            parts = (storage.read(path, *storage.CHECKPOINT) for path in paths)
            meta, arrays = merge_parts(parts, self._agents or [])
        for key, here in identity.items():
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
            records=list(History.from_dict(meta["history"])),
            engine=storage.restore(None, meta.get("memory"), arrays),
            check_states=[
                (storage.restore(template, state, arrays, device), storage.restore(None, gradient, arrays, device))
                for state, gradient in meta.get("check_states", ())
            ],
        )


def latest_iteration(checkpoint: Checkpoint, network: Network | None) -> int | None:
    """Return the outer iteration to resume from, if there is one on disk; the first process decides.

    Like `newest_iteration`, -1 stands for a single file. All processes must call it.
    """
    found = newest_iteration(checkpoint.path)
    if network is None or network.session.size == 1:
        return found
    if network.session.rank != 0:
        found = None
    elif found is None and (some := find_parts(checkpoint.path)):
        text = f"of the checkpoint {checkpoint.path} only {len(some)} parts are here: the run starts anew"
        warnings.warn(f"{text}; put it into a folder that all processes share", RuntimeWarning, stacklevel=3)
    # Counted from 2, since 0 is no signal and -1 stands for a single file.
    told = network.session.all_reduce_signal(0 if found is None else found + 2)
    return told - 2 if told else None


def run_identity(context: Context, *, method: str, network: str, output: str, clock: str) -> dict[str, Any]:
    """Return what a checkpoint must have in common with the run that resumes it, in whatever processes.

    Parameters
    ----------
    context : Context
        The problem, the starting point, and the network.
    method : str
        The method and its parameters.
    network : str
        A fingerprint of the network or operator.
    output : str
        The output that is measured.
    clock : str
        The simulated clock.
    """
    problem, session, m = context.problem, context.network.session, context.network.m
    # Data and sets are distinguished by what they do to fixed points, to digits that all machines share.
    drawn = ForSome([0], context.network.agents, m).random((problem.m, problem.d))
    probe = problem.placed(4 * drawn - 2)
    xp = array_namespace(probe)
    inside, far = problem.domain.prox(probe, 1.0), problem.domain.prox(1e6 * probe, 1.0)
    rows = {
        "domain": xp.vecdot(probe, inside),
        "far away": xp.vecdot(probe, far),
        "start": xp.vecdot(probe, context.x0),
    }
    if context.s0 is not None:
        # Without a network the multipliers are not those of agents.
        whole = np.full(problem.m, float(np.sum(to_numpy(context.s0))) / problem.m)
        rows["multipliers"] = xp.vecdot(probe, context.s0) if context.s0.shape == probe.shape else whole
    if problem.loss.has_value:
        rows["data"] = problem.objective(inside)
    each = np.stack([to_numpy(doubles(row)) for row in rows.values()], axis=1)
    sums = session.observe(each, "sum") if session.sees_all else each.sum(axis=0)
    # Devices need not add up in the same order twice, nor in that of NumPy.
    digits = 3 if problem.dtype == np.float32 else 7
    return {
        "method": method,
        "network": network,
        "problem": f"{type(problem).__name__}, {type(problem.loss).__name__}, m={m}, d={problem.d}, "
        f"mu={problem.mu!r}, {problem.dtype}",
        "output": output,
        "clock": clock,
        **{name: f"{mark:.{digits}e}" for name, mark in zip(rows, sums.tolist(), strict=True)},
    }


class Part(NamedTuple):
    """The file that one of several processes wrote after an outer iteration."""

    iteration: int
    rank: int
    size: int
    path: Path


def part_path(path: Path, iteration: int, rank: int, size: int) -> Path:
    """Return where a process writes its part: the file itself if there is only one process."""
    return path if size == 1 else path.with_name(f"{path.stem}.{iteration}.{rank}-of-{size}{path.suffix}")


def find_parts(path: Path) -> list[Part]:
    """Return all parts on disk."""
    pattern = re.compile(rf"{re.escape(path.stem)}\.(\d+)\.(\d+)-of-(\d+){re.escape(path.suffix)}")
    if not path.parent.is_dir():
        return []
    names = ((other, pattern.fullmatch(other.name)) for other in path.parent.iterdir())
    return [Part(int(name[1]), int(name[2]), int(name[3]), other) for other, name in names if name]


def _complete_sets(path: Path) -> dict[int, list[Path]]:
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
    """Return the last outer iteration of which all parts are there; -1 for one file, which holds its iteration."""
    return max(_complete_sets(path), default=-1 if path.exists() else None)


def part_paths(path: Path, iteration: int) -> list[Path]:
    """Return the files of an iteration."""
    if iteration < 0:
        return [path]
    parts = _complete_sets(path).get(iteration)
    if parts is None:
        rule = f"all parts of the checkpoint {path} must be where every process sees them"
        raise InputError(rule, f"not all of iteration {iteration}", "put it into a folder that all share")
    return parts


def remove_old_parts(path: Path, iteration: int, rank: int, size: int) -> None:
    """Remove all but the last two parts of this process up to that iteration.

    Later ones are of a run that ended there, or of another one. The first process removes what other numbers of
    processes have left.
    """
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
    """Return one header, and the rows of these agents of arrays that have such; others are alike in all files.

    Arrays may also have one row for each row of the agents' data. In a file in which each agent has one, they cannot
    be told from others, and need not be.
    """
    place = {agent: row for row, agent in enumerate(agents)}
    meta: dict[str, Any] = {}
    arrays: dict[str, Array] = {}
    by_data: dict[str, dict[int, Array]] = {}
    filled = np.zeros(len(agents), dtype=bool)
    for header, content in files:
        meta = meta or header
        is_one_run = header.get("run") == meta.get("run")
        rule = "the parts of a checkpoint must be of one run"
        require(is_one_run, rule, "those of two", "start afresh (resume=False, --fresh)")
        there = header.get("agents") or []
        rows = [row for row, agent in enumerate(there) if agent in place]
        here = [place[there[row]] for row in rows]
        filled[here] = True
        ends = np.cumsum(header.get("rows") or [])
        for name, array in content.items():
            if not name.startswith(_ROWS):
                arrays.setdefault(name, array)
                continue
            if len(array) != len(there):
                pieces = np.split(array, ends[:-1])
                by_data.setdefault(name, {}).update((place[there[row]], pieces[row]) for row in rows)
                continue
            if name not in arrays:
                arrays[name] = np.empty((len(agents), *array.shape[1:]), dtype=array.dtype)
            arrays[name][here] = array[rows]
    if not filled.all():
        missing = [agent for agent, known in zip(agents, filled, strict=True) if not known]
        raise InputError("a checkpoint must have all agents", f"none of agent {missing[0]}", "start afresh")
    for name, own in by_data.items():
        arrays[name] = np.concatenate([own[k] if k in own else arrays[name][k : k + 1] for k in range(len(agents))])
    return meta, arrays
