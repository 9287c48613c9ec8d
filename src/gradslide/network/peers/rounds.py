"""Rounds of exchanges: messages carry positions, and the first are recorded for a restart."""

import logging
import secrets
import warnings
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import count
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypedDict, cast

import numpy as np

from gradslide._support import storage
from gradslide._support.errors import InputError, require
from gradslide._support.storage import checkpoint_memory
from gradslide._support.types import Array
from gradslide.network.peers.errors import PeerError
from gradslide.network.peers.links import Judge, Links

# Links carry finite numbers only. The largest ones stand for the others.
_INFINITY = float(np.finfo(np.float64).max)
_NAN = float(np.nextafter(_INFINITY, 0.0))

_log = logging.getLogger("gradslide.peers")


class Purpose(IntEnum):
    """What an exchange is for."""

    DISCOVERY = 1
    COMBINATION = 2
    MAXIMUM = 3
    SUM = 4
    SURVEY = 5
    NORM = 6
    TOTAL = 7
    RELAY = 8
    SEEDS = 9


class Position(NamedTuple):
    """Where an agent is in the algorithm.

    All agents are at the same position in the same round, or one went astray.

    Attributes
    ----------
    iteration : int
        The outer iteration, 0 before the first.
    purpose : Purpose
        What it exchanges for.
    piggybacked : int
        Number of piggybacked reductions.
    """

    iteration: int
    purpose: Purpose
    piggybacked: int

    def __str__(self) -> str:
        purpose, number = self.purpose.name.lower(), self.piggybacked
        return f"a {purpose} of outer iteration {self.iteration} with {number} piggybacked reductions"


def with_header(position: Position, content: Array) -> Array:
    """A message: the position, then the content."""
    return np.concatenate([np.array(position, dtype=np.float64), content])


def split_header(message: Array) -> tuple[Position | None, Array]:
    """The position, None where there is no such position, and the content."""
    head = message[: len(Position._fields)].tolist()
    try:
        iteration, purpose, piggybacked = map(int, head)
        position = Position(iteration, Purpose(purpose), piggybacked)
    except ValueError:
        return None, message
    return position if list(position) == head else None, message[len(Position._fields) :]


def finite(values: Array) -> Array:
    """The values as numbers that links carry; the very largest become infinities."""
    return np.nan_to_num(np.where(np.abs(values) >= _NAN, np.copysign(np.inf, values), values), nan=_NAN)


def unlimited(values: Array) -> Array:
    """The inverse of `finite`."""
    values = np.where(np.abs(values) == _INFINITY, np.copysign(np.inf, values), values)
    return np.where(values == _NAN, np.nan, values)


class Rounds:
    """Exchanges in rounds, over links that `connect` or `resume` opens.

    The setup is what arrived before the first outer iteration. An agent that is started again goes
    through it once more, while its neighbours are far ahead: its messages then come from the
    checkpoint, nothing is sent, and the links are only opened where the run goes on.

    Parameters
    ----------
    links : Links
    checkpoint : Path, optional
        Where the checkpoint of this agent is, or will be. One of another run, or of other keys, is
        set aside by `connect`.
    meet : float
        Seconds to wait for neighbours to appear.
    owner : Owner, optional
        Whose checkpoints to go on from.
    """

    def __init__(self, links: Links, checkpoint: Path | None, meet: float, owner: "Owner | None" = None) -> None:
        self._links, self._meet = links, meet
        self._checkpoint = checkpoint
        self._owner = Owner() if owner is None else owner
        self._other: Owner | None = None
        self.is_open = False
        self._has_begun = False
        self._setup: list[dict[str, Array]] = []
        self._common = 0
        self._is_recording = checkpoint is not None
        self._replayed: int | None = None
        self._found: RoundsState | None = None
        self._saved_round = 0
        # What arrived after the last checkpoint of a run that ended, in this process, and in an earlier one.
        self._ending: list[dict[str, Array]] | None = None
        self._found_ending: list[dict[str, Array]] | None = None
        self._repeated: deque[dict[str, Array]] = deque()
        self.start = secrets.token_hex(8)
        if checkpoint is not None and checkpoint.exists():
            found = _network_state(checkpoint)
            if (other := Owner.of(found)) != self._owner:
                self._other = other
                return
            self._found = found
            self.start = found["start"]
            self._found_ending = _read_ending(checkpoint, self.start, self._found["round"])
            self._setup = _by_round(unpacked(self._found["setup"]))
            self._replayed, self._is_recording = 0, False

    def connect(self) -> None:
        """Open the links, unless the setup is replayed: then `resume` does."""
        if self._replayed is None and not self.is_open:
            if self._other is not None and self._checkpoint is not None:
                aside = set_aside(self._checkpoint)
                text = "the checkpoint of %s is kept as %s; run %s starts anew"
                _log.info(text, self._other.described(self._owner), aside and aside.name, self._owner.run)
                self._other = None
            self.is_open = True
            self._links.open(deadline=self._meet)

    @property
    def is_resumed(self) -> bool:
        """Whether there was a checkpoint of this run to go on from."""
        return self._found is not None

    @property
    def has_begun(self) -> bool:
        """Whether the first outer iteration has begun: before, one that fails ends all."""
        return self._has_begun

    @property
    def is_replaying(self) -> bool:
        """Whether messages come from a checkpoint, and nothing is sent."""
        return self._replayed is not None

    def exchange(
        self, position: Position, content: Mapping[str, Array], sizes: Mapping[str, int] | None = None
    ) -> dict[str, Array]:
        """One round: what every neighbour sent, by name. sizes: of that, where they are known."""
        judges = {name: self._judge(name, position, None if sizes is None else sizes[name]) for name in content}
        if self._replayed is None:
            outgoing = {name: with_header(position, v) for name, v in content.items()}
            if self._repeated:
                received = self._repeated.popleft()
                if received.keys() != content.keys() or any(judges[name](each) for name, each in received.items()):
                    raise self._other_run("a run that ends in another way")
                self._links.repeat(outgoing)
            else:
                self._links.meet(self._meet)
                received = self._links.exchange(outgoing, judges)
            if self._is_recording:
                self._setup.append(received)
            if self._ending is not None:
                self._ending.append(received)
        else:
            received = self._recorded_round(content, self._replayed)
            self._replayed += 1
            if any(judges[name](message) for name, message in received.items()):
                raise self._other_run("a run that is begun in another way")
        return {name: split_header(message)[1] for name, message in received.items()}

    def _judge(self, name: str, position: Position, size: int | None) -> Judge:
        """Make the function that judges messages at this position."""

        def judge(message: Array) -> str:
            there, said = split_header(message) if message.ndim == 1 else (None, message)
            if message.dtype != np.float64 or there is None:
                return f"{message.dtype} {message.shape}, which is no message"
            if there != position:
                raise self._astray(name, f"at {there}; this agent is at {position}")
            return "" if size in (None, said.size) else f"{said.size} numbers instead of {size}"

        return judge

    def _recorded_round(self, content: Mapping[str, Array], round: int) -> dict[str, Array]:
        if round == len(self._setup):
            raise self._other_run("a run that does not go on from it")
        received = self._setup[round]
        if received.keys() != content.keys():
            raise self._other_run(f"other neighbours ({', '.join(received)} there)")
        return received

    def _astray(self, name: str, where: str) -> Exception:
        if self._replayed is not None:
            return self._other_run("a run that is begun in another way")
        reason = f"it is at another position in the algorithm: {where}"
        return PeerError(name, self._links.round, f"{reason}; give all agents the same method, size and release")

    def _other_run(self, got: str) -> InputError:
        remedy = "give solve the same method and that checkpoint, or remove the file"
        rule = "a run must go on from its checkpoint as it was begun"
        return InputError(rule, f"{got} ({self._checkpoint})", remedy)

    def mark_common(self) -> None:
        """What arrived until now is part of the setup of every run over these links."""
        self._common = len(self._setup) if self._replayed is None else self._replayed

    def begin(self) -> None:
        """Begin a new run, with its setup."""
        self._ending = None
        if self._replayed is None:
            del self._setup[self._common :]
            self._is_recording = self._checkpoint is not None

    def begin_iterations(self) -> None:
        """The setup is over."""
        self._is_recording = False
        self._has_begun = True
        self._links.begin()

    def checkpoint(self) -> "RoundsState":
        rule, remedy = "the network must know where the checkpoint is", "give Peers(checkpoint=...) the path, too"
        require(self._checkpoint is not None, rule, "none", remedy)
        self._is_recording = False
        if self._replayed is not None:
            found = self._found
            assert found is not None
            return found
        names = self._setup[0] if self._setup else ()
        setup = {name: {round: each[name] for round, each in enumerate(self._setup)} for name in names}
        self._saved_round = self._links.round
        cached = packed(self._links.cached())
        return {
            "owner": self._owner,
            "start": self.start,
            "round": self._saved_round,
            "setup": packed(setup),
            "cached": cached,
        }

    def resume(self, state: "RoundsState") -> None:
        """Open the links, and go on from the round of a checkpoint.

        A run that had ended needs no neighbour any more.
        """
        rule = "a run among peers goes on from a checkpoint that was there when its network was made"
        require(self._replayed is not None, rule, "a later one", "make a new network, or give another path")
        self._replayed, self.is_open = None, True
        has_ended = self._found_ending is not None
        cached = unpacked(state["cached"])
        self._links.open(state["round"], cached=cached, deadline=self._meet, meet=not has_ended)

    def checkpointed(self, is_last: bool) -> None:
        """The last checkpoint is on disk. is_last: nothing follows but what a resumed run repeats."""
        self._links.checkpointed(self._saved_round)
        if is_last:
            self._ending = []
            if self._found_ending is not None and self._found is not None and self._found["round"] == self._saved_round:
                self._repeated.extend(self._found_ending)
        self._found_ending = None

    def finish(self, seconds: float) -> list[str]:
        """Wait until neighbours have finished; return those that have not."""
        if self._ending is not None and self._checkpoint is not None:
            try:
                _write_ending(self._checkpoint, self.start, self._saved_round, self._ending)
            except OSError as error:
                text = f"the end of the run could not be written beside {self._checkpoint}: {error}"
                warnings.warn(text, RuntimeWarning, stacklevel=2)
            self._ending = None
        return self._links.finish(seconds)

    def close(self, reason: str, *, may_return: bool = False) -> None:
        """Leave. Before the first outer iteration all neighbours must leave, too, and learn why.

        may_return: they wait, since this agent may be started again.
        """
        if not reason:
            self.finish(0.0)
            self._links.close(deadline=self._meet)
        elif may_return or (self._has_begun and self.is_open):
            self._links.close(reason)
        else:
            self._links.fail(reason)


class Owner(NamedTuple):
    """Whose checkpoint it is.

    Attributes
    ----------
    run : str
        The name of the run.
    own : str
        The public key of the agent.
    neighbours : tuple of str
        Those of its neighbours, sorted.
    """

    run: str = ""
    own: str = ""
    neighbours: tuple[str, ...] = ()

    @classmethod
    def of(cls, state: "RoundsState") -> "Owner":
        """Of a checkpoint; former releases did not say."""
        return cls(*state.get("owner", ()))

    def described(self, here: "Owner") -> str:
        """What it is of, in contrast to this agent in this run."""
        if not self.run:
            return "an unknown run"
        return f"run {self.run}" + (" with other keys" if self.run == here.run else "")


# A name, and its rounds, lengths and numbers, see `packed`.
Packed: TypeAlias = tuple[str, Array, Array, Array]


class RoundsState(TypedDict):
    """What a checkpoint holds of the rounds.

    Whose it is, the name of the run's first start, the last round, the messages of the setup, and
    those to send again.
    """

    owner: tuple[str, str, tuple[str, ...]]
    start: str
    round: int
    setup: list[Packed]
    cached: list[Packed]


def _network_state(checkpoint: Path) -> RoundsState:
    """What `PeersSession.checkpoint` returned when the checkpoint was written."""
    state = checkpoint_memory(checkpoint)
    found = state["environment"]["network"]
    rule, got = "a checkpoint must be one of an agent among peers", f"that of another network in {checkpoint}"
    require(isinstance(found, dict) and "setup" in found, rule, got, "give another path")
    return cast(RoundsState, found)


def set_aside(checkpoint: Path) -> Path | None:
    """Rename a checkpoint, and what belongs to it, and return where it is kept now; None if there is none.

    Nothing is overwritten.
    """
    free = (checkpoint.with_suffix(f".{number}.npz") for number in count(1))
    aside = next(path for path in free if not any(each.exists() for each in _files_of(path)))
    for here, there in zip(_files_of(checkpoint), _files_of(aside), strict=True):
        if here.exists():
            here.rename(there)
    return aside if aside.exists() else None


def _files_of(checkpoint: Path) -> tuple[Path, Path, Path]:
    return checkpoint, ending_path(checkpoint), journal_path(checkpoint)


_ENDING = ("ending", 1)


def ending_path(checkpoint: Path) -> Path:
    """Where an agent keeps what arrived after the last checkpoint of a run that ended."""
    return checkpoint.with_suffix(".end.npz")


def journal_path(checkpoint: Path) -> Path:
    """Where an agent notes what it sends in secure sums."""
    return checkpoint.with_suffix(".sums.log")


def _write_ending(checkpoint: Path, start: str, round: int, received: Sequence[Mapping[str, Array]]) -> None:
    names = received[0] if received else ()
    by_name = {name: {number: each[name] for number, each in enumerate(received)} for name in names}
    arrays: dict[str, Array] = {}
    meta = {"start": start, "round": round, "received": storage.flatten(packed(by_name), "received", arrays)}
    storage.write(ending_path(checkpoint), *_ENDING, meta, arrays)


def _read_ending(checkpoint: Path, start: str, round: int) -> list[dict[str, Array]] | None:
    """What arrived after this checkpoint until the run had ended; None if that is not known."""
    path = ending_path(checkpoint)
    if not path.exists():
        return None
    try:
        meta, arrays = storage.read(path, *_ENDING)
        if (meta["start"], meta["round"]) != (start, round):
            return None
        return _by_round(unpacked(storage.restore(None, meta["received"], arrays)))
    except (InputError, KeyError):  # damaged: neighbours may still have it
        return None


def _by_round(by_name: Mapping[str, Mapping[int, Array]]) -> list[dict[str, Array]]:
    rounds = range(max((len(each) for each in by_name.values()), default=0))
    return [{name: each[round] for name, each in by_name.items()} for round in rounds]


def packed(messages: Mapping[str, Mapping[int, Array]]) -> list[Packed]:
    """name -> round -> flat float64 array, as one entry per name: rounds, lengths, and all numbers
    in a row.
    """
    return [
        (
            name,
            np.array(list(each), dtype=np.int64),
            np.array([array.size for array in each.values()], dtype=np.int64),
            np.concatenate([np.zeros(0), *each.values()]),
        )
        for name, each in messages.items()
    ]


def unpacked(entries: Iterable[Packed]) -> dict[str, dict[int, Array]]:
    """The inverse of `packed`."""
    return {
        name: dict(zip(rounds.tolist(), np.split(numbers, np.cumsum(lengths)[:-1]), strict=True)) if len(rounds) else {}
        for name, rounds, lengths, numbers in entries
    }
