"""Errors about a neighbour: which one, in which round, and what to do."""

import signal
from collections.abc import Mapping
from traceback import walk_tb
from typing import Any, TypeAlias

# Name -> (here, there); None where it is not set.
Differences: TypeAlias = Mapping[str, tuple[str | None, str | None]]

_SHOWN, _LENGTH = 8, 80


class PeerError(RuntimeError):
    """The run cannot go on because of a neighbour.

    Attributes
    ----------
    neighbour : str
    round : int
        The round whose message is missing or wrong.
    reason : str
    """

    def __init__(self, neighbour: str, round: int, reason: str) -> None:
        super().__init__(neighbour, round, reason)
        self.neighbour = neighbour
        self.round = round
        self.reason = reason

    def __str__(self) -> str:
        return f"neighbour {self.neighbour}: {self.reason}"


class LinksEnded(RuntimeError):
    """The run cannot go on because the thread that sends and receives has failed."""


class SettingsDiffer(PeerError):
    """A neighbour was started for another run. `differences`: name -> (here, there)."""

    def __init__(self, neighbour: str, round: int, differences: Differences) -> None:
        super().__init__(neighbour, round, f"{describe(differences)}; start all agents with the same settings")
        self.differences = dict(differences)

    def __reduce__(self) -> Any:
        """It travels between processes."""
        return type(self), (self.neighbour, self.round, self.differences)


def is_of_signal_handler(error: BaseException) -> bool:
    """Whether a handler of a signal raised an error: one is none of the code that it interrupted.

    Handlers that are no Python functions are not found.
    """
    handlers = {getattr(signal.getsignal(each), "__code__", None) for each in signal.valid_signals()}
    return any(frame.f_code in handlers for frame, _ in walk_tb(error.__traceback__))


def describe(differences: Differences) -> str:
    """Which settings differ, here and there."""
    some = sorted(differences.items())[:_SHOWN]
    parts = [f"{short(name)} ({_value(here)} here, {_value(there)} there)" for name, (here, there) in some]
    more = len(differences) - len(some)
    return f"settings differ: {', '.join(parts)}{f' and {more} more' if more else ''}"


def short(text: str, length: int = _LENGTH) -> str:
    """What a neighbour wrote, fit for one line of a log."""
    plain = text.encode("unicode_escape").decode()
    return plain if len(plain) <= length else f"{plain[:length]}..."


def _value(text: str | None) -> str:
    return "not set" if text is None else short(text)
