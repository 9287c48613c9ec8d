"""Some rows of a file that may be too large to be held as a whole."""

import hashlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from gradslide._support.errors import InputError
from gradslide._support.types import Array
from gradslide.data import svmlight

_BLOCK = 1 << 23


@dataclass(frozen=True)
class RowsFile:
    """An svmlight file that was looked through once. entries: those that are given, in all rows; width: columns."""

    path: Path
    labels: Array
    entries: int
    width: int
    sha256: str

    def take(self, rows: Array) -> Array:
        """The features of these rows (CSR), in their order."""
        wanted, back = np.unique(rows, return_inverse=True)
        lines = _lines_of(self.path, wanted)
        features, _ = svmlight.parse(b"\n".join(lines), str(self.path), self.width)
        return features[back]


def look_through(path: Path) -> RowsFile:
    """Every line is checked, and forgotten but for its label."""
    labels, entries, width, line, digest = [], 0, 0, 1, hashlib.sha256()
    for block in _blocks(path):
        found, counts, columns, _ = svmlight.parse_lines(block, str(path), line)
        labels.append(found)
        entries += int(counts.sum())
        width = max(width, int(columns.max(initial=-1)) + 1)
        line += block.count(b"\n")
        digest.update(block)
    return RowsFile(path, np.concatenate([np.empty(0), *labels]), entries, width, digest.hexdigest())


def _lines_of(path: Path, wanted: Array) -> list[bytes]:
    """Lines by number, of those that hold anything."""
    chosen: list[bytes] = []
    row = 0
    for block in _blocks(path):
        lines = [line for line in block.split(b"\n") if line.partition(b"#")[0].strip()]
        first, last = np.searchsorted(wanted, [row, row + len(lines)])
        chosen += [lines[number - row] for number in wanted[first:last].tolist()]
        row += len(lines)
    return chosen


def _blocks(path: Path) -> Iterator[bytes]:
    """The text in blocks of whole lines."""
    rest = b""
    with closing(_opened(path)) as file:
        try:
            while block := file.read(_BLOCK):
                whole, newline, rest = (rest + block).rpartition(b"\n")
                if newline:
                    yield whole + newline
        except (OSError, EOFError, ValueError) as error:
            raise InputError(f"{path.name} must be a whole {path.suffix} file", error, "get it again") from error
    if rest:
        yield rest


def _opened(path: Path) -> IO[bytes]:
    import bz2
    import gzip
    import lzma

    openers = {".bz2": bz2.BZ2File, ".xz": lzma.LZMAFile, ".gz": gzip.GzipFile}
    opener = openers.get(path.suffix)
    return path.open("rb") if opener is None else opener(path, "rb")
