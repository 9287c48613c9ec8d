"""The files of a checkpoint that several processes write: one part each, of the last two outer iterations."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gradslide._types import Array
from gradslide.errors import InputError

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
    return [path] if iteration < 0 else _whole(path)[iteration]


def forget(path: Path, rank: int, size: int) -> None:
    """Keep the last two of this process; the first one clears away what runs of another size left."""
    if size == 1:
        for part in found(path) if rank == 0 else ():
            part.path.unlink(missing_ok=True)
        return
    own = sorted(part for part in found(path) if (part.rank, part.size) == (rank, size))
    for part in own[:-_KEPT]:
        part.path.unlink(missing_ok=True)
    if rank == 0 and len(own) >= _KEPT:
        path.unlink(missing_ok=True)
        for part in found(path):
            if part.size != size and part.iteration <= own[-_KEPT].iteration:
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
