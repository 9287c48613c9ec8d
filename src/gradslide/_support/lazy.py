"""Public names of a package that are imported when they are first used (PEP 562)."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package whose names are imported on first use.

    Type checkers do not see these names: the package imports them under `TYPE_CHECKING`, too.

    Parameters
    ----------
    package : str
        Name of the package.
    homes : mapping of str to str
        For each module, relative to the package, the public names that it defines, separated by spaces; for "", the
        public modules of the package itself. A name may also be a submodule of that module.
    """
    home_of = {name: f"{package}.{home}".rstrip(".") for home, names in homes.items() for name in names.split()}

    def get(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = home_of[name]
        if home == package:
            return import_module(f"{package}.{name}")
        value = getattr(__import__(home, fromlist=[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(home_of), sorted(home_of)
