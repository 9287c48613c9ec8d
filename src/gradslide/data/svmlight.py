"""Reader of svmlight/LIBSVM text: "label index:value index:value ...", indices from 1."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

import numpy as np
import scipy.sparse as sp

from gradslide._support.errors import InputError, require
from gradslide._support.keywords import checked_arguments
from gradslide._support.types import Array, Sparse
from gradslide.data import svmlight

_CHUNK = 1 << 23  # bytes parsed at a time
_COLON, _NEWLINE = b":\n"
_IS_SPACE = np.isin(np.arange(256), list(b" \t\r\n\v\f"))


@checked_arguments
def read_svmlight(path: str | os.PathLike[str], features: int | None = None) -> tuple[Sparse, Array]:
    """Read features and labels from a file in svmlight format.

    Parameters
    ----------
    path : str or path-like
        The file, which may be compressed (.bz2, .xz, .gz).
    features : int, optional
        Number of columns; by default the largest index in the file.

    Returns
    -------
    features : scipy.sparse.csr_array
        float64.
    labels : ndarray
        float64.
    """
    return parse(read_text(Path(path)), str(path), features)


def read_text(path: Path) -> bytes:
    """Return the content of a file, decompressed according to its suffix."""
    import bz2
    import gzip
    import lzma
    import zlib

    content = path.read_bytes()
    decompress = {".bz2": bz2.decompress, ".xz": lzma.decompress, ".gz": gzip.decompress}.get(path.suffix, bytes)
    try:
        return decompress(content)
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"{path.name} must be a whole {path.suffix} file", error, "get it again") from error


def parse(text: bytes, source: str, features: int | None = None) -> tuple[Sparse, Array]:
    """Parse text in memory like `read_svmlight`; `source` names it in errors."""
    parts = []
    start, line = 0, 1
    while start < len(text):
        end = text.find(b"\n", start + _CHUNK) + 1 or len(text)
        chunk = text[start:end]
        parts.append(parse_lines(chunk, source, line))
        start, line = end, line + chunk.count(b"\n")
    labels, counts, columns, values = (np.concatenate(part) for part in zip(_EMPTY, *parts, strict=True))
    width = int(columns.max(initial=-1)) + 1
    require(
        features is None or width <= features,
        f"{source} must have at most {features} features",
        f"index {width}",
        "raise features or leave it out",
    )
    indptr = np.concatenate([[0], np.cumsum(counts)])
    shape = (len(labels), width if features is None else features)
    return sp.csr_array((values, columns, indptr), shape=shape), labels


_EMPTY = (np.empty(0), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0))


def parse_lines(chunk: bytes, source: str, first_line: int) -> tuple[Array, Array, Array, Array]:
    """Return labels, entries per row, columns and values of whole lines; report malformed ones."""
    chunk = re.sub(rb"#[^\n]*", b"", chunk) if b"#" in chunk else chunk
    codes = np.frombuffer(b"\n" + chunk + b"\n", dtype=np.uint8)
    space = _IS_SPACE[codes]
    tokens = np.flatnonzero(space[:-1] & ~space[1:]) + 1
    if not len(tokens):
        return _EMPTY
    row_of_token = np.searchsorted(np.flatnonzero(codes == _NEWLINE), tokens)
    leads = np.append(True, row_of_token[1:] != row_of_token[:-1])
    colons = np.flatnonzero(codes == _COLON)
    # The first token of a line is its label; each other one must hold a single colon between two numbers.
    regular = np.array_equal(np.searchsorted(tokens, colons, side="right") - 1, np.flatnonzero(~leads))
    if not regular or space[colons - 1].any() or space[colons + 1].any() or b"_" in chunk:
        _blame(chunk, source, first_line)
    try:
        numbers = np.array(list(map(float, chunk.replace(b":", b" ").split())))
    except ValueError:
        _blame(chunk, source, first_line)
    label_places = np.flatnonzero(leads) * 2 - np.arange(leads.sum())  # a label is one number, an entry two
    is_label = np.zeros(len(numbers), dtype=bool)
    is_label[label_places] = True
    indices, values = numbers[~is_label].reshape(-1, 2).T
    counts = np.diff(np.append(label_places, len(numbers))) // 2
    starts_row = np.zeros(len(indices) + 1, dtype=bool)
    starts_row[np.cumsum(counts)] = True
    ascending = (np.diff(indices) > 0) | starts_row[1:-1]
    whole = (indices >= 1) & (indices < 2**31) & (indices == np.floor(indices))
    if not (ascending.all() and whole.all() and np.isfinite(numbers).all()):
        _blame(chunk, source, first_line)
    return numbers[is_label], counts, indices.astype(np.int64) - 1, values.copy()


def _blame(chunk: bytes, source: str, first_line: int) -> NoReturn:
    """Raise the error that names the first malformed line."""
    for number, line in enumerate(chunk.split(b"\n"), start=first_line):
        if (fault := _fault(line.split())) is not None:
            shown = line.decode("utf-8", "replace").strip()
            raise InputError(
                f"line {number} of {source} must read 'label index:value ...' with {fault}",
                repr(shown if len(shown) <= 80 else shown[:77] + "..."),
                "correct that line; sklearn.datasets.dump_svmlight_file writes arrays in this format",
            )
    raise AssertionError("a chunk was refused although each of its lines is well formed")


def _fault(fields: list[bytes]) -> str | None:
    before = 0
    for field in fields[1:]:
        index, _, value = field.partition(b":")
        if not index.isdigit() or not _is_number(value):
            return "numbers"
        if int(index) == 0:
            return "indices from 1"
        if not before < int(index) < 2**31:
            return "ascending indices"
        before = int(index)
    return "numbers" if fields and not _is_number(fields[0]) else None


def _is_number(field: bytes) -> bool:
    try:
        return bool(np.isfinite(float(field))) and b"_" not in field
    except ValueError:
        return False


_BLOCK = 1 << 23


@dataclass(frozen=True)
class RowsFile:
    """An svmlight file that was scanned once: its labels, number of entries, columns and SHA-256."""

    path: Path
    labels: Array
    entries: int
    width: int
    sha256: str

    def take(self, rows: Array) -> Sparse:
        """Read the features of these rows (CSR), in their order."""
        wanted, back = np.unique(rows, return_inverse=True)
        lines = _lines_of(self.path, wanted)
        features, _ = svmlight.parse(b"\n".join(lines), str(self.path), self.width)
        return features[back]


def look_through(path: Path) -> RowsFile:
    """Scan a file: check every line, and keep the labels only."""
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
    """Lines by number, blank lines not counted."""
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
