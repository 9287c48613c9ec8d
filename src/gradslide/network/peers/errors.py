"""Errors about a neighbour: which one, in which round, and what to do."""

import signal
from collections.abc import Callable, Mapping, Sequence
from traceback import walk_tb
from typing import Any, TypeAlias

# Name -> (here, there); None where it is not set.
Differences: TypeAlias = Mapping[str, tuple[str | None, str | None]]
# From what the neighbour has for a setting to sentences that say what differs.
Explain: TypeAlias = Callable[[str | None], Sequence[str]]

_SHOWN, _LENGTH, _SENTENCE = 8, 80, 300


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

    @property
    def public_reason(self) -> str:
        """What other neighbours are told."""
        return str(self)


class LinksEnded(RuntimeError):
    """The run cannot go on because the thread that sends and receives has failed."""


class SettingsDiffer(PeerError):
    """A neighbour was started for another run. `differences`: name -> (here, there).

    description: what differs, if not `describe(differences)`; other neighbours are not told.
    """

    def __init__(self, neighbour: str, round: int, differences: Differences, description: str = "") -> None:
        text = description or f"{describe(differences)}; start all agents with the same settings"
        super().__init__(neighbour, round, text)
        self.differences = dict(differences)
        self._description = description

    @property
    def public_reason(self) -> str:
        if not self._description:
            return super().public_reason
        names = ", ".join(short(name) for name in sorted(self.differences))
        return f"its settings differ from those of {self.neighbour} ({names}); the logs of these two say how"

    def __reduce__(self) -> Any:
        """It travels between processes."""
        return type(self), (self.neighbour, self.round, self.differences, self._description)


def is_of_signal_handler(error: BaseException) -> bool:
    """Whether a handler of a signal raised an error: one is none of the code that it interrupted.

    Handlers that are no Python functions are not found.
    """
    handlers = {getattr(signal.getsignal(each), "__code__", None) for each in signal.valid_signals()}
    return any(frame.f_code in handlers for frame, _ in walk_tb(error.__traceback__))


def describe(differences: Differences, explain: Mapping[str, Explain] | None = None) -> str:
    """Which settings differ, here and there. explain: for settings that need sentences of their own."""
    own = {name: each for name, each in (explain or {}).items() if name in differences}
    sentences = [
        short(text, _SENTENCE) for name, each in own.items() for text in _explained(each, differences[name][1])
    ]
    plain = {name: pair for name, pair in differences.items() if name not in own}
    parts = [
        f"{short(name)} ({_value(here)} here, {_value(there)} there)" for name, (here, there) in sorted(plain.items())
    ]
    told = [f"settings differ: {_listed(parts, ', ')}"] * bool(parts) + [_listed(sentences, "; ")] * bool(sentences)
    return "; ".join(told)


def _explained(explain: Explain, there: str | None) -> Sequence[str]:
    """Sentences about what a neighbour wrote, which may be anything."""
    try:
        return explain(there)
    except (ValueError, TypeError, KeyError, AttributeError):
        return ["what it says of its data cannot be read; install the same release on all agents"]


def _listed(parts: Sequence[str], separator: str) -> str:
    more = len(parts) - _SHOWN
    return separator.join(parts[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def short(text: str, length: int = _LENGTH) -> str:
    """What a neighbour wrote, fit for one line of a log."""
    plain = text.encode("unicode_escape").decode()
    return plain if len(plain) <= length else f"{plain[:length]}..."


def _value(text: str | None) -> str:
    return "not set" if text is None else short(text)
