"""Linear models in scikit-learn's form, fitted by sites that keep their rows; imported only where it is asked for."""

from gradslide._support.errors import InputError

try:
    import sklearn as _installed  # noqa: F401
except ModuleNotFoundError:
    raise InputError(
        "gradslide.sklearn needs scikit-learn", "none installed", "pip install 'gradslide[sklearn]'"
    ) from None

from gradslide.sklearn.linear import DecentralizedLasso, DecentralizedRidge
from gradslide.sklearn.logistic import DecentralizedLogisticRegression

__all__ = ["DecentralizedLasso", "DecentralizedLogisticRegression", "DecentralizedRidge"]
