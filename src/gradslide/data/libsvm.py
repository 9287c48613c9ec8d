"""LIBSVM data sets by name: where they are stored, how they are downloaded and checked."""

import hashlib
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias

from gradslide._support.errors import InputError, unknown_name
from gradslide._support.keywords import checked_arguments
from gradslide._support.types import Array, Sparse
from gradslide.data import svmlight
from gradslide.data.svmlight import RowsFile, look_through

LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
_REMEDY = "delete such a file and get it again"


class DataError(InputError):
    """Data that is missing, damaged or cannot be downloaded.

    Parameters
    ----------
    rule, got, remedy : str, object, str
        As for `InputError`.
    """


@dataclass(frozen=True)
class LibsvmSet:
    """A data set: its file on the LIBSVM page, its shape, and the SHA-256 of its text.

    LIBSVM publishes no hashes; where the hash is unknown (None), only the shape is checked.
    """

    name: str
    file: str
    rows: int
    features: int
    sha256: str | None = None

    def parse(self, path: Path, source: str | None = None) -> tuple[Sparse, Array]:
        """Return features and labels of a file; raise DataError where it holds something else.

        `source` names the file in errors.
        """
        shown = source or str(path)
        with self._blamed(shown):
            text = svmlight.read_text(path)
            self._require("SHA-256", hashlib.sha256(text).hexdigest(), self.sha256, shown)
            features, labels = svmlight.parse(text, shown)
        self._require("rows x features", features.shape, (self.rows, self.features), shown)
        return features, labels

    def look_through(self, path: Path) -> RowsFile:
        """Scan the file, to read some of its rows later."""
        with self._blamed(str(path)):
            found = look_through(path)
        self._require("SHA-256", found.sha256, self.sha256, str(path))
        self._require("rows x features", (len(found.labels), found.width), (self.rows, self.features), str(path))
        return found

    @contextmanager
    def _blamed(self, shown: str) -> Iterator[None]:
        """Report errors in the text as errors of this data set."""
        try:
            yield
        except DataError:
            raise
        except InputError as error:
            raise DataError(f"{shown} must hold {self.name}", error, _REMEDY) from error

    def _require(self, what: str, got: object, expected: object, shown: str) -> None:
        if expected not in (None, got):
            raise DataError(f"{shown} must hold {self.name} with {what} {expected}", got, _REMEDY)


KNOWN = {
    known.name: known
    for known in [
        LibsvmSet(
            "ijcnn1", "ijcnn1.bz2", 49_990, 22, "16506cad788cf7c9607454150ed1994788204bac2ff4c9cb3b320036b6950d3f"
        ),
        LibsvmSet("a9a", "a9a", 32_561, 123, "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906"),
        LibsvmSet(
            "mushrooms", "mushrooms", 8_124, 112, "03115cabe65c7634b8e4f1a5581a35cf9c4d1eade64ecfe33620c0efb5891cb9"
        ),
        LibsvmSet("w8a", "w8a", 49_749, 300),
        LibsvmSet("phishing", "phishing", 11_055, 68),
        LibsvmSet("covtype.binary", "covtype.libsvm.binary.bz2", 581_012, 54),
    ]
}


def known(name: str) -> LibsvmSet:
    """Return the data set of that name."""
    if name not in KNOWN:
        raise unknown_name("data set", name, KNOWN)
    return KNOWN[name]


Folder: TypeAlias = str | os.PathLike[str] | None
Progress: TypeAlias = bool | Callable[[int, int | None], None]

_TIMEOUT = 30.0  # seconds without a byte
_BLOCK = 1 << 16
_COMPRESSIONS = ("", ".bz2", ".xz", ".gz")


@dataclass(frozen=True)
class CatalogueEntry:
    """A data set known by name.

    Attributes
    ----------
    name : str
        Its name.
    rows, features : int
        Its shape.
    path : pathlib.Path or None
        Its file; None if it is not in the data directory.
    """

    name: str
    rows: int
    features: int
    path: Path | None


@checked_arguments
def data_directory(data_dir: Folder = None) -> Path:
    """Return the data directory.

    Parameters
    ----------
    data_dir : str or path-like, optional
        The directory. By default the environment variable GRADSLIDE_DATA, else gradslide in the
        user's cache.

    Returns
    -------
    pathlib.Path
    """
    if chosen := data_dir or os.environ.get("GRADSLIDE_DATA"):
        return Path(chosen).expanduser()
    return _user_cache() / "gradslide"


def _user_cache() -> Path:
    if chosen := os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"):
        return Path(chosen)
    inside = {"win32": "AppData/Local", "darwin": "Library/Caches"}.get(sys.platform, ".cache")
    return Path.home() / inside


@checked_arguments
def catalogue(data_dir: Folder = None) -> list[CatalogueEntry]:
    """Return all data sets known by name, and where each was found.

    Parameters
    ----------
    data_dir : str or path-like, optional
        As for `data_directory`.

    Returns
    -------
    list of CatalogueEntry
    """
    return [CatalogueEntry(k.name, k.rows, k.features, find(k.name, data_dir)) for k in KNOWN.values()]


@checked_arguments
def find(name: str, data_dir: Folder = None) -> Path | None:
    """Return the file of a data set in the data directory, or None.

    Parameters
    ----------
    name : str
        Name of the data set. The file may be plain, .svm or .txt, also compressed with bz2, xz or
        gz.
    data_dir : str or path-like, optional
        As for `data_directory`.

    Returns
    -------
    pathlib.Path or None
    """
    wanted = known(name)
    folder = data_directory(data_dir)
    for stem in (name, f"{name}.svm", f"{name}.txt", wanted.file.removesuffix(".bz2")):
        for compression in _COMPRESSIONS:
            if (path := folder / f"{stem}{compression}").is_file():
                return path
    return None


@checked_arguments
def get(name: str, data_dir: Folder = None, *, base_url: str = LIBSVM, progress: Progress = True) -> Path:
    """Return the file of a data set; download it into the data directory if it is missing.

    A download is checked before it is moved into place: by the SHA-256 of its text, or for w8a,
    phishing and covtype.binary, whose hashes are not published, by its numbers of rows and
    features.

    Parameters
    ----------
    name : str
        Name of the data set.
    data_dir : str or path-like, optional
        As for `data_directory`.
    base_url : str
        Where to download from.
    progress : bool or callable
        True for a progress bar on stderr if it is a terminal, False for none, or a function of
        bytes received and their total.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    DataError
        If the file is neither there nor can be downloaded.
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


def _download(wanted: LibsvmSet, url: str, folder: Path, progress: Progress) -> Path:
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
