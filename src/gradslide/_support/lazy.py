"""Public names of a package that are imported when they are first used (PEP 562)."""

import importlib.util
import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(
    package: str, homes: Mapping[str, str], needs: Mapping[str, str] | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package whose names are imported on first use.

    Submodules of the package are imported on first use, too. Type checkers see none of these names: the package imports
    its public names under `TYPE_CHECKING`, too.

    Parameters
    ----------
    package : str
        Name of the package.
    homes : mapping of str to str
        For each module, relative to the package, the public names that it defines, separated by spaces; for "", the
        public modules of the package itself. A name may also be a submodule of that module.
    needs : mapping of str to str, optional
        For names that need a package that may be missing, that package. Without it, `dir` leaves them out.
    """
    home_of = {name: f"{package}.{home}".rstrip(".") for home, names in homes.items() for name in names.split()}

    def get(name: str) -> object:
        home = home_of.get(name)
        if home is None and is_submodule(name):
            home = package
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if home == package:
            return import_module(f"{package}.{name}")
        value = getattr(__import__(home, fromlist=[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def is_submodule(name: str) -> bool:
        public = name.isidentifier() and not name.startswith("_")
        return public and importlib.util.find_spec(f"{package}.{name}") is not None

    def names() -> list[str]:
        missing = {name for name, needed in (needs or {}).items() if importlib.util.find_spec(needed) is None}
        return sorted(home_of.keys() - missing)

    return get, names, sorted(home_of)
