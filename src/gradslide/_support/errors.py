"""Errors that a user can fix: each names the rule, the value that broke it, and the remedy."""

import difflib
import math
import numbers
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class InputError(ValueError):
    """A user's mistake, as "rule; got value; remedy".

    Parameters
    ----------
    rule : str
        What must hold.
    got : object
        The value that broke it.
    remedy : str
        What to do.
    """

    def __init__(self, rule: str, got: object, remedy: str) -> None:
        super().__init__(f"{rule}; got {got}; {remedy}")
        self.rule = rule
        self._said = (rule, str(got), remedy)

    def __reduce__(self) -> Any:
        """Errors are pickled between processes."""
        return type(self), self._said


class ArgumentError(InputError, TypeError):
    """An argument that a call does not take: an `InputError`, and a `TypeError` as for any call."""


class MissingPackageError(InputError, ModuleNotFoundError):
    """A package of an extra is not installed: an `InputError`, and a `ModuleNotFoundError` as for any import."""


class StreamError(RuntimeError):
    """A stream of samples failed.

    Attributes
    ----------
    agent : int or None
        Whose stream.
    problem : str
        What went wrong.
    iteration : int
        In which outer iteration; 0 before the first.
    solution : Solution or None
        The solution reached so far, if any.
    """

    def __init__(self, agent: int | None, problem: str) -> None:
        super().__init__(agent, problem)
        self.agent = agent
        self.problem = problem
        self.iteration: int = 0
        self.solution: Any = None

    def __str__(self) -> str:
        return f"the stream of agent {self.agent} failed in outer iteration {self.iteration}: {self.problem}"


class StreamEnded(Exception):
    """A stream of samples ended too early."""

    def __init__(self, agent: int) -> None:
        super().__init__(f"the stream of agent {agent} ended")
        self.agent = agent


class WaitEnded(Exception):
    """Waiting for samples was given up: time is up, or Ctrl-C was pressed."""


def unknown_name(what: str, name: object, known: Iterable[str]) -> InputError:
    """Return an error for a misspelt name, with the nearest known one as the remedy."""
    names = sorted(known)
    close = nearest(str(name), names)
    remedy = f"did you mean {close!r}?" if close else f"choose one of {', '.join(names)}"
    return InputError(f"{what} must be one of the known names", repr(name), remedy)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant, if there is one.

    It is spelt alike, whatever the case, or has a part of the name in it: "iterations" for
    "max_iter". A single letter is like no other name.
    """
    names = {each.lower(): each for each in known}
    wanted = name.lower()
    if wanted in names:
        return names[wanted]
    names = {lower: each for lower, each in names.items() if len(lower) > 1}
    if close := difflib.get_close_matches(wanted, names, n=1):
        return names[close[0]]
    parts = sorted((part for part in wanted.split("_") if len(part) > 2), key=len, reverse=True)
    return next((names[each] for part in parts for each in names if part in each), None)


@contextmanager
def raised_in(place: str) -> Iterator[None]:
    """Note on an error of user code where it was raised. It stays what it is."""
    try:
        yield
    except Exception as error:
        error.add_note(f"raised in {place}")
        raise


def kind_of(value: object) -> str:
    """Describe a value in a few words, for an error."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    text = repr(value)
    return type(value).__name__ if "\n" in text or len(text) > 60 else f"{type(value).__name__} {text}"


def require(condition: bool, rule: str, got: object, remedy: str) -> None:
    """Raise InputError unless the condition holds."""
    if not condition:
        raise InputError(rule, got, remedy)


def require_number(
    name: str,
    value: object,
    remedy: str,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    most: float = math.inf,
    whole: bool = False,
) -> None:
    """Raise InputError unless the value is a finite (or whole) number within the limits."""
    kind = numbers.Integral if whole else numbers.Real
    number = isinstance(value, kind) and not isinstance(value, bool)
    if number and math.isfinite(value) and value > above and least <= value <= most:  # type: ignore[arg-type,operator]
        return
    limits = ((">", above, -math.inf), (">=", least, -math.inf), ("<=", most, math.inf))
    bounds = " and ".join(f"{sign} {limit:g}" for sign, limit, absent in limits if limit != absent)
    if whole:
        rule = f"{name} must be a whole number {bounds}"
    else:
        rule = f"{name} must be {bounds} and finite" if bounds else f"{name} must be a finite number"
    raise InputError(rule, repr(value), remedy)
