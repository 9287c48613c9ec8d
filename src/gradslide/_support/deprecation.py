"""Old names that keep working for one version."""

import sys
import warnings
from collections.abc import Mapping


def rename_hooks(cls: type, renamed: Mapping[str, str]) -> None:
    """Let a subclass that overrides a method under its old name work, with a DeprecationWarning.

    Called from `__init_subclass__`. Each class answers to both names, so `super().old()` works too.

    Parameters
    ----------
    cls : type
        The new subclass.
    renamed : mapping of str to str
        New name of each hook, by its old one.
    """
    for old, new in renamed.items():
        if old in vars(cls) and new not in vars(cls):
            message = f"{cls.__name__}.{old}: override {new} instead; the old name works until 0.3"
            warnings.warn(message, DeprecationWarning, stacklevel=_caller_level())
            setattr(cls, new, vars(cls)[old])
        elif new in vars(cls) and not getattr(vars(cls)[new], "__isabstractmethod__", False):
            setattr(cls, old, vars(cls)[new])


def _caller_level() -> int:
    """The `stacklevel`, in the calling function, of the innermost code outside gradslide and abc."""
    level = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("gradslide", "abc"):
        level, frame = level + 1, frame.f_back
    return level
