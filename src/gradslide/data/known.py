"""The LIBSVM data sets known by name, and how their content is checked."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gradslide._support.errors import InputError, unknown_name
from gradslide._support.types import Array
from gradslide.data import svmlight
from gradslide.data.rows_file import RowsFile, look_through

LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
_REMEDY = "delete such a file and get it again"


class DataError(InputError):
    """Data that is missing, damaged or cannot be fetched."""


@dataclass(frozen=True)
class Known:
    """A data set: its file on the LIBSVM page, its shape, and the SHA-256 of its text.

    LIBSVM publishes no hashes; where none is known (None) the shape alone is checked.
    """

    name: str
    file: str
    rows: int
    features: int
    sha256: str | None = None

    def parse(self, path: Path, source: str | None = None) -> tuple[Array, Array]:
        """Features and labels of a file that holds this set; DataError where it holds something else.

        source: what errors call the file.
        """
        shown = source or str(path)
        with self._blamed(shown):
            text = svmlight.read_text(path)
            self._require("SHA-256", hashlib.sha256(text).hexdigest(), self.sha256, shown)
            features, labels = svmlight.parse(text, shown)
        self._require("rows x features", features.shape, (self.rows, self.features), shown)
        return features, labels

    def look_through(self, path: Path) -> RowsFile:
        """The same file, for some of its rows."""
        with self._blamed(str(path)):
            found = look_through(path)
        self._require("SHA-256", found.sha256, self.sha256, str(path))
        self._require("rows x features", (len(found.labels), found.width), (self.rows, self.features), str(path))
        return found

    @contextmanager
    def _blamed(self, shown: str) -> Iterator[None]:
        """What is wrong with the text is a mistake of this file."""
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
        Known("ijcnn1", "ijcnn1.bz2", 49_990, 22, "16506cad788cf7c9607454150ed1994788204bac2ff4c9cb3b320036b6950d3f"),
        Known("a9a", "a9a", 32_561, 123, "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906"),
        Known("mushrooms", "mushrooms", 8_124, 112, "03115cabe65c7634b8e4f1a5581a35cf9c4d1eade64ecfe33620c0efb5891cb9"),
        Known("w8a", "w8a", 49_749, 300),
        Known("phishing", "phishing", 11_055, 68),
        Known("covtype.binary", "covtype.libsvm.binary.bz2", 581_012, 54),
    ]
}


def known(name: str) -> Known:
    """The data set of that name."""
    if name not in KNOWN:
        raise unknown_name("data set", name, KNOWN)
    return KNOWN[name]
