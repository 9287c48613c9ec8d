"""The handshake of neighbours: run, settings, and the session that it answers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from gradslide._support.errors import require
from gradslide.network.peers.wire import SESSION_SIZE, TEXT_LIMIT, Rejected

_MOST_SETTINGS = 256


@dataclass(frozen=True)
class Handshake:
    """What an agent tells a neighbour before anything else.

    Attributes
    ----------
    run : str
    settings : mapping of str to str
        What both must have in common.
    echo : bytes
        The session of the other that this one answers, or nothing yet.
    covered : int or None
        Its checkpoint covers all rounds before; None if it writes none.
    failure : str
        Why it cannot take part; empty if it can.
    """

    run: str
    settings: Mapping[str, str]
    echo: bytes = b""
    covered: int | None = None
    failure: str = ""

    def text(self) -> str:
        return json.dumps(
            {
                "run": self.run,
                "settings": dict(self.settings),
                "echo": self.echo.hex(),
                "covered": self.covered,
                "failure": self.failure,
            }
        )

    def differences(self, there: "Handshake") -> dict[str, tuple[str | None, str | None]]:
        """What both should have in common and have not: name -> (here, there)."""
        ours, theirs = ({"run id": each.run, **each.settings} for each in (self, there))
        names = {**ours, **theirs}
        return {name: (ours.get(name), theirs.get(name)) for name in names if ours.get(name) != theirs.get(name)}


def read_handshake(text: str) -> Handshake:
    """The handshake in a text; Rejected if it is not perfect."""
    try:
        parts = json.loads(text)
        names = "run", "settings", "echo", "covered", "failure"
        run, settings, echo, covered, failure = (parts.pop(name) for name in names)
        echo = bytes.fromhex(echo)
        perfect = (
            not parts
            and isinstance(run, str)
            and isinstance(failure, str)
            and isinstance(settings, dict)
            and len(settings) <= _MOST_SETTINGS
            and all(isinstance(value, str) for value in settings.values())
            and len(echo) in (0, SESSION_SIZE)
            and (covered is None or (type(covered) is int and 0 <= covered < 2**63))
        )
    # Foreign JSON can be anything: no object, nested too deeply, with numbers too long.
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        perfect = False
    if not perfect:
        raise Rejected("a HANDSHAKE that cannot be read")
    return Handshake(run, settings, echo, covered, failure)


def require_transmittable(run_id: str, settings: Mapping[str, str]) -> None:
    """Refuse settings that are no texts, or too many for a handshake."""
    remedy = "give short texts; a hash for what is long"
    texts = isinstance(run_id, str) and all(isinstance(part, str) for pair in settings.items() for part in pair)
    require(texts, "the run id and the settings must be texts", settings, remedy)
    size = len(Handshake(run_id, settings).text())
    fits = size <= TEXT_LIMIT - 2**13 and len(settings) <= _MOST_SETTINGS
    require(fits, f"settings must fit into {TEXT_LIMIT} bytes", f"{len(settings)} settings, {size} bytes", remedy)
