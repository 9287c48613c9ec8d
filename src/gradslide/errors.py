"""Errors that a user can mend: each names the rule, the value that broke it, and the remedy."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """A user's mistake: "rule; got value; remedy"."""

    def __init__(self, rule: str, got: object, remedy: str) -> None:
        super().__init__(f"{rule}; got {got}; {remedy}")


def unknown_name(what: str, name: str, known: Iterable[str]) -> InputError:
    """An error for a misspelt name, with the nearest known one as the remedy."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    remedy = f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(names)}"
    return InputError(f"{what} must be one of the known names", repr(name), remedy)


def require(condition: bool, rule: str, got: object, remedy: str) -> None:
    """Raise InputError unless the condition holds."""
    if not condition:
        raise InputError(rule, got, remedy)
