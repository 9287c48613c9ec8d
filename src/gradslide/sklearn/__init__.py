"""Linear models with scikit-learn's interface, fitted by sites that keep their rows.

`estimators` holds the public classes, and `sites` says who owns which rows. The fit itself is that of
agents, in `gradslide.fitting`. The package needs scikit-learn; nothing else in gradslide imports it.
"""

from gradslide._support.errors import MissingPackageError

try:
    import sklearn as _installed  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingPackageError(
        "gradslide.sklearn needs scikit-learn", "none installed", "in a checkout of gradslide: pip install '.[sklearn]'"
    ) from error

from gradslide.sklearn.estimators import (
    DecentralizedLasso,
    DecentralizedLogisticRegression,
    DecentralizedRidge,
)

__all__ = ["DecentralizedLasso", "DecentralizedLogisticRegression", "DecentralizedRidge"]
