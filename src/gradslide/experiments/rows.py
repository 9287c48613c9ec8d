"""From the table [data] of a spec to the rows of all agents, or of some."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradslide import data as datasets
from gradslide._support.errors import InputError, require_number, unknown_name
from gradslide._support.types import Array, Sparse
from gradslide.data.loading import load_rows
from gradslide.data.svmlight import RowsFile, look_through
from gradslide.experiments.section import Section

# Share of nonzeros from which dense products are faster than sparse ones.
_DENSE_FROM = 0.2


@dataclass(frozen=True)
class Rows:
    """features and splits: of the agents that were asked for. labels: all there are; here: which of
    them are theirs.
    """

    features: Array | Sparse
    splits: list[Array]
    labels: Array
    here: Array


@dataclass(frozen=True)
class _Wanted:
    name: str | None
    file: str | None
    rows: int | None

    def whole(self, folder: Path, data_dir: Path | None) -> tuple[Sparse, Array]:
        """Features and labels."""
        if self.name is not None:
            dataset = datasets.load(self.name, data_dir=data_dir)
            return dataset.features[: self.rows], dataset.labels[: self.rows]
        features, labels = _readable(datasets.read_svmlight, self.path(folder))
        return features[: self.rows], labels[: self.rows]

    def looked_through(self, folder: Path, data_dir: Path | None) -> RowsFile:
        if self.name is not None:
            return load_rows(self.name, data_dir=data_dir)
        found: RowsFile = _readable(look_through, self.path(folder))
        return found

    def path(self, folder: Path) -> Path:
        assert self.file is not None
        return folder / self.file


def read_rows(table: Section, folder: Path, data_dir: Path | None, agents: Sequence[int] | None = None) -> Rows:
    """agents: those whose features are wanted; all by default. Of the others nothing but labels is
    kept.
    """
    wanted = _Wanted(table.optional("name", str), table.optional("file", str), _count(table))
    m, kind = table.take("agents", int), table.take("split", str, "contiguous")
    seed, alpha = table.take("seed", int, 0), table.take("alpha", float, 0.5)
    dtype = table.take("dtype", str, "float64")
    table.finish()
    if dtype not in ("float32", "float64"):
        raise unknown_name("dtype in [data]", dtype, ["float32", "float64"])
    if (wanted.name is None) == (wanted.file is None):
        both = f"name={wanted.name}, file={wanted.file}"
        raise InputError("[data] needs a name or a file, not both", both, 'for example name = "misfire"')
    if agents is None or wanted.name == "misfire":
        features, labels = wanted.whole(folder, data_dir)
        splits = datasets.split(kind, labels, m, seed=seed, alpha=alpha)
        dense = hasattr(features, "toarray") and features.nnz > _DENSE_FROM * features.shape[0] * features.shape[1]
        here = np.arange(len(labels))
        if agents is not None:
            here, splits = _of(splits, agents)
            features = features[here]
    else:
        found = wanted.looked_through(folder, data_dir)
        labels = found.labels[: wanted.rows]
        here, splits = _of(datasets.split(kind, labels, m, seed=seed, alpha=alpha), agents)
        features = found.take(here)
        dense = found.entries > _DENSE_FROM * len(found.labels) * found.width
    return Rows((features.toarray() if dense else features).astype(dtype), splits, labels, here)


def _of(splits: list[Array], agents: Sequence[int]) -> tuple[Array, list[Array]]:
    """The rows of some agents, one agent after the other, and their numbers among these."""
    own = [splits[agent] for agent in agents]
    ends = np.cumsum([len(rows) for rows in own])
    return np.concatenate(own), np.split(np.arange(ends[-1]), ends[:-1])


def _count(table: Section) -> int | None:
    rows = table.optional("rows", int)
    if rows is not None:
        require_number("rows in [data]", rows, "leave it out for all rows", least=1, whole=True)
    return rows


def _readable(read: Any, path: Path) -> Any:
    try:
        return read(path)
    except OSError as error:
        raise InputError("file in [data] must be readable", f"{path} ({error.strerror})", "check the path") from None
