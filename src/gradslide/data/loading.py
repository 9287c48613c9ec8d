"""Data sets by name."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from gradslide._support.types import Array
from gradslide.data.dataset import Dataset
from gradslide.data.libsvm import LIBSVM, DataError, Folder, Progress, get, known
from gradslide.data.misfire import misfire
from gradslide.data.svmlight import RowsFile


def load(name: str, data_dir: Folder = None, *, base_url: str = LIBSVM, progress: Progress = True) -> Dataset:
    """A set by name: misfire, which is built in, or of LIBSVM ijcnn1, a9a, mushrooms, w8a, phishing, covtype.binary.

    Looked for in `data_dir`, else in GRADSLIDE_DATA, else in the user's cache, and downloaded where it is missing.
    The content is checked each time: by the SHA-256 of its text, or, for w8a, phishing and covtype.binary, whose
    hashes are not published, by its numbers of rows and features. The smaller label becomes -1, the larger 1.
    """
    if name == "misfire":
        return misfire()
    path = get(name, data_dir, base_url=base_url, progress=progress)
    features, labels = known(name).parse(path)
    return Dataset(name, features, _signs(labels, path), str(path))


def load_rows(name: str, data_dir: Folder = None) -> RowsFile:
    """The same file, looked through, for some of its rows only; not for the built-in set, which has none."""
    found = known(name).look_through(get(name, data_dir))
    return replace(found, labels=_signs(found.labels, found.path))


def _signs(labels: Array, path: Path) -> Array:
    values = np.unique(labels)
    if len(values) != 2:
        raise DataError(f"{path} must hold two labels", values.tolist(), "delete the file and get it again")
    return np.where(labels == values[1], 1.0, -1.0)
