"""Data sets by name."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from gradslide._support.keywords import checked_arguments
from gradslide._support.types import Array
from gradslide.data.dataset import Dataset
from gradslide.data.libsvm import LIBSVM, DataError, Folder, Progress, get, known
from gradslide.data.misfire import misfire
from gradslide.data.svmlight import RowsFile


@checked_arguments
def load(name: str, data_dir: Folder = None, *, base_url: str = LIBSVM, progress: Progress = True) -> Dataset:
    """Load a data set by name.

    The content is checked each time, by its SHA-256 or its shape, see `get`. The smaller label
    becomes -1, the larger 1.

    Parameters
    ----------
    name : str
        "misfire", which is built in, or one of LIBSVM's: ijcnn1, a9a, mushrooms, w8a, phishing,
        covtype.binary.
    data_dir : str or path-like, optional
        As for `data_directory`; the file is downloaded to it if it is missing.
    base_url : str
        Where to download from.
    progress : bool or callable
        As for `get`.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> import gradslide as gs
    >>> data = gs.data.load("misfire")
    >>> data.features.shape
    (20000, 22)
    """
    if name == "misfire":
        return misfire()
    path = get(name, data_dir, base_url=base_url, progress=progress)
    features, labels = known(name).parse(path)
    return Dataset(name, features, _signs(labels, path), str(path))


def load_rows(name: str, data_dir: Folder = None) -> RowsFile:
    """Scan the file of a LIBSVM set, to read some of its rows later."""
    found = known(name).look_through(get(name, data_dir))
    return replace(found, labels=_signs(found.labels, found.path))


def _signs(labels: Array, path: Path) -> Array:
    values = np.unique(labels)
    if len(values) != 2:
        raise DataError(f"{path} must hold two labels", values.tolist(), "delete the file and get it again")
    return np.where(labels == values[1], 1.0, -1.0)
