"""The files of a checkpoint that several processes write: one part each, of the last two outer iterations."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gradslide._support.errors import InputError, require
from gradslide._support.types import Array

_KEPT = 2


class Part(NamedTuple):
    """The part of one of so many processes, after an outer iteration."""

    iteration: int
    rank: int
    size: int
    path: Path


def part_of(path: Path, iteration: int, rank: int, size: int) -> Path:
    """Where a process writes its part: the file itself where there is only one."""
    return path if size == 1 else path.with_name(f"{path.stem}.{iteration}.{rank}-of-{size}{path.suffix}")


def found(path: Path) -> list[Part]:
    """All parts that are there."""
    pattern = re.compile(rf"{re.escape(path.stem)}\.(\d+)\.(\d+)-of-(\d+){re.escape(path.suffix)}")
    if not path.parent.is_dir():
        return []
    names = ((other, pattern.fullmatch(other.name)) for other in path.parent.iterdir())
    return [Part(int(name[1]), int(name[2]), int(name[3]), other) for other, name in names if name]


def _whole(path: Path) -> dict[int, list[Path]]:
    """By outer iteration, all parts of one number of processes, in their order."""
    sets: dict[tuple[int, int], dict[int, Path]] = {}
    for part in found(path):
        sets.setdefault((part.iteration, part.size), {})[part.rank] = part.path
    return {
        iteration: [parts[rank] for rank in range(size)]
        for (iteration, size), parts in sets.items()
        if parts.keys() == set(range(size))
    }


def newest(path: Path) -> int | None:
    """The last outer iteration of which all parts are there; -1 for one file, whose iteration is in it."""
    return max(_whole(path), default=-1 if path.exists() else None)


def parts_of(path: Path, iteration: int) -> list[Path]:
    """The files of that iteration."""
    if iteration < 0:
        return [path]
    parts = _whole(path).get(iteration)
    if parts is None:
        rule = f"all parts of the checkpoint {path} must be where every process sees them"
        raise InputError(rule, f"not all of iteration {iteration}", "put it into a folder that all share")
    return parts


def forget(path: Path, iteration: int, rank: int, size: int) -> None:
    """Keep the last two of this process up to that iteration: what is later was left by a run that ended there, or by
    another one. The first process clears away what is left of other numbers of processes."""
    parts = found(path)
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


def merged(
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
