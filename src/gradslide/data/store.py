"""Where data sets are kept, and how they get there."""

import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias

from gradslide.data.known import KNOWN, LIBSVM, DataError, Known, known

Folder: TypeAlias = str | os.PathLike[str] | None
Progress: TypeAlias = bool | Callable[[int, int | None], None]

_TIMEOUT = 30.0  # seconds without a byte
_BLOCK = 1 << 16
_COMPRESSIONS = ("", ".bz2", ".xz", ".gz")


@dataclass(frozen=True)
class CatalogueEntry:
    """A data set known by name; `path` is None where it is not in the data directory."""

    name: str
    rows: int
    features: int
    path: Path | None


def data_directory(data_dir: Folder = None) -> Path:
    """`data_dir`, else the environment variable GRADSLIDE_DATA, else gradslide in the user's cache."""
    if chosen := data_dir or os.environ.get("GRADSLIDE_DATA"):
        return Path(chosen).expanduser()
    return _user_cache() / "gradslide"


def _user_cache() -> Path:
    if chosen := os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"):
        return Path(chosen)
    inside = {"win32": "AppData/Local", "darwin": "Library/Caches"}.get(sys.platform, ".cache")
    return Path.home() / inside


def catalogue(data_dir: Folder = None) -> list[CatalogueEntry]:
    """All data sets known by name, and where each was found."""
    return [CatalogueEntry(k.name, k.rows, k.features, find(k.name, data_dir)) for k in KNOWN.values()]


def find(name: str, data_dir: Folder = None) -> Path | None:
    """The file of a data set in the data directory: plain, .svm or .txt, also compressed with bz2, xz or gz."""
    wanted = known(name)
    folder = data_directory(data_dir)
    for stem in (name, f"{name}.svm", f"{name}.txt", wanted.file.removesuffix(".bz2")):
        for compression in _COMPRESSIONS:
            if (path := folder / f"{stem}{compression}").is_file():
                return path
    return None


def get(name: str, data_dir: Folder = None, *, base_url: str = LIBSVM, progress: Progress = True) -> Path:
    """The file of a data set, downloaded into the data directory unless it is there.

    A download is checked before it takes its place: by the SHA-256 of its text, or, for w8a, phishing and
    covtype.binary, whose hashes are not published, by its numbers of rows and features.

    progress: True for a bar on a terminal's stderr, False for none, or a function of bytes received and their total.
    """
    wanted = known(name)
    if (path := find(name, data_dir)) is not None:
        return path
    folder = data_directory(data_dir)
    url = f"{base_url.rstrip('/')}/{wanted.file}"
    try:
        return _download(wanted, url, folder, progress)
    except OSError as error:
        raise DataError(
            f"data set {name!r} must be in the data directory or be downloadable",
            f"no such file in {folder}, and {url} failed ({error})",
            f"put {wanted.file} into {folder}, or name the directory that holds it with --data-dir or GRADSLIDE_DATA",
        ) from error


def _download(wanted: Known, url: str, folder: Path, progress: Progress) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / wanted.file
    # In the same folder, so that the move is atomic; with the same ending, so that it is read the same way.
    part = folder / f".part-{secrets.token_hex(6)}-{wanted.file}"
    try:
        with part.open("xb") as file, _reporter(wanted.name, progress) as report:
            _fetch(url, file, report)
        wanted.parse(part, source=url)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return target


def _fetch(url: str, file: IO[bytes], report: Callable[[int, int | None], None]) -> None:
    from http.client import HTTPException
    from urllib.request import urlopen

    try:
        with urlopen(url, timeout=_TIMEOUT) as response:
            total = int(response.headers["Content-Length"]) if "Content-Length" in response.headers else None
            received = 0
            report(received, total)
            while block := response.read(_BLOCK):
                file.write(block)
                received += len(block)
                report(received, total)
    except HTTPException as error:
        raise OSError(f"bad answer: {error!r}") from error
    if total is not None and received < total:
        raise OSError(f"the connection closed after {received} of {total} bytes")


@contextmanager
def _reporter(name: str, progress: Progress) -> Iterator[Callable[[int, int | None], None]]:
    if callable(progress):
        yield progress
    elif progress and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress as Bars

        with Bars(console=Console(stderr=True)) as bars:
            task = bars.add_task(f"downloading {name}")
            yield lambda received, total: bars.update(task, completed=received, total=total)
    else:
        yield lambda received, total: None
