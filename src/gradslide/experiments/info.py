"""What is installed."""

import platform
from importlib.metadata import PackageNotFoundError, version

from gradslide._version import __version__
from gradslide.data import data_directory

_CORE = ("numpy", "scipy", "networkx", "numba")
_EXTRAS = ("matplotlib", "pandas", "scikit-learn", "mpi4py", "cryptography", "torch")


def installation() -> dict[str, str]:
    """Versions of what runs here, and where data is looked for."""
    facts = {"gradslide": __version__, "python": platform.python_version(), "platform": platform.platform()}
    facts |= {name: _version(name) for name in (*_CORE, *_EXTRAS)}
    return facts | {"data directory": str(data_directory(None))}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
