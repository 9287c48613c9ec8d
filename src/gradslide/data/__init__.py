"""Data: LIBSVM sets by name, a built-in set, and splits of rows over agents.

Here belongs everything that reads, downloads or divides data. What is minimized over the data
belongs in `losses`, and the [data] table of experiment specs in `experiments`.
"""

from gradslide.data.dataset import Dataset
from gradslide.data.libsvm import CatalogueEntry, DataError, catalogue, data_directory, find, get
from gradslide.data.loading import load
from gradslide.data.misfire import misfire
from gradslide.data.splits import split, split_by_label, split_contiguous, split_shuffled
from gradslide.data.svmlight import read_svmlight

__all__ = [
    "CatalogueEntry",
    "DataError",
    "Dataset",
    "catalogue",
    "data_directory",
    "find",
    "get",
    "load",
    "misfire",
    "read_svmlight",
    "split",
    "split_by_label",
    "split_contiguous",
    "split_shuffled",
]
