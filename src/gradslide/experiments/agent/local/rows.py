"""One agent's rows, in a file of its own, with what a spec says of its loss and domain."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from gradslide._support import storage
from gradslide._support.types import Array
from gradslide.domains import Domain
from gradslide.experiments.build import problem_on
from gradslide.experiments.section import Section
from gradslide.losses import Loss

FILE = "rows.npz"
_KIND, _VERSION = "rows", 1


def write_rows(folder: Path, features: Array, targets: Mapping[str, Array], problem: Mapping[str, Any]) -> Path:
    """targets: labels or numbers, under the name that the loss has for them. problem: the table of a spec."""
    meta = {"problem": dict(problem), "targets": list(targets), "shape": list(features.shape)}
    arrays = {f"targets.{name}": values for name, values in targets.items()}
    if sp.issparse(features):
        arrays |= {name: getattr(features, name) for name in ("data", "indices", "indptr")}
    else:
        arrays["features"] = features
    return storage.write(folder / FILE, _KIND, _VERSION, meta, arrays)


def build(folder: Path) -> tuple[Loss, Domain]:
    """The builder of an agent's spec: the loss on the rows that lie in this folder, and the domain."""
    meta, arrays = storage.read(folder / FILE, _KIND, _VERSION)
    if "features" in arrays:
        features = arrays["features"]
    else:
        features = sp.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=tuple(meta["shape"]))
    targets = {name: arrays[f"targets.{name}"] for name in meta["targets"]}
    problem = problem_on(Section("problem", meta["problem"]), features, targets, [np.arange(features.shape[0])])
    return problem.loss, problem.domain
