"""What an agent knows about one neighbour, and how it reacts to its messages. No sockets here."""

import math
from collections import deque
from dataclasses import dataclass, field

from gradslide._support.types import Array
from gradslide.network.peers.errors import Differences
from gradslide.network.peers.handshake import Handshake
from gradslide.network.peers.wire import HEADER_SIZE, Edge, Message, Rejected

WAITING, AGAIN = 1, 2
# How far the handshake is: 0 nothing yet, 1 this agent knows the neighbour's session, 2 the neighbour its, too.
UNKNOWN, KNOWN, MUTUAL = 0, 1, 2

_FIRST_ASK = 2.0
# Frames sent in one go: a neighbour that claims to lack much does not get all that is cached for it at once.
_AT_ONCE = 16


class Outbox:
    """Frames of consecutive rounds: `first` to `end` - 1.

    Over the limit (bytes) the oldest are forgotten.
    """

    def __init__(self, first: int, limit: int) -> None:
        self.first = first
        self.bytes = 0
        self.overflowed = False
        self._limit = limit
        self._frames: deque[bytes] = deque()

    @property
    def end(self) -> int:
        return self.first + len(self._frames)

    def __getitem__(self, round: int) -> bytes:
        return self._frames[round - self.first]

    def put(self, round: int, frame: bytes) -> None:
        """Cache the frame of the next round; that of the last one may be given again, and one that
        nobody needs.
        """
        if round < self.first:
            return
        if round == self.end - 1:
            self.bytes -= len(self._frames.pop())
        assert round == self.end, "rounds are consecutive"
        self._frames.append(frame)
        self.bytes += len(frame)
        # The newest two may still be on their way.
        while self.bytes > self._limit + len(self._frames) * HEADER_SIZE and len(self._frames) > 2:
            self._forget()
            self.overflowed = True

    def forget_before(self, round: int) -> None:
        while self._frames and self.first < round:
            self._forget()
        if not self._frames:
            self.first = max(self.first, round)

    def _forget(self) -> None:
        self.bytes -= len(self._frames.popleft())
        self.first += 1


@dataclass
class Peer:
    """One neighbour.

    Attributes
    ----------
    outgoing : Edge
        The edge to it; `incoming` is the one from it.
    outbox : Outbox
        What was sent to it.
    session : bytes
        The start of its process that counts; messages of earlier ones may still be under way.
    offered : bytes
        The session that sent a handshake last.
    echoes : bool
        Whether that handshake answered one of this agent's.
    at : int
        The round it is in, as far as it is known.
    need : int
        The first round of this agent's that it lacks.
    covered : int or None
        Its checkpoint covers all rounds before; None if it writes none.
    cursor : int
        The next round to be sent.
    told : int
        How far this agent's checkpoint reaches, as the neighbour was told.
    inbox : dict of int to array
        Arrays of the current round and the one after it, not more.
    refused_since, refused_for : float
        Since when, and for how many seconds, it refuses this process, because another one with the
        same key takes part.
    wrong_key_since : float
        Since when one of both keys is not the one that the other side lists.
    """

    name: str
    outgoing: Edge
    outbox: Outbox
    session: bytes = b""
    offered: bytes = b""
    echoes: bool = False
    stage: int = UNKNOWN
    at: int = 0
    need: int = 0
    covered: int | None = None
    cursor: int = 0
    told: int = 0
    waits: bool = False
    heard: float | None = None
    goodbye: str | None = None
    differences: Differences | None = None
    failure: str = ""
    refused_since: float = math.inf
    refused_for: float = 0.0
    wrong_key_since: float = math.inf
    trouble: str = ""
    inbox: dict[int, Array] = field(default_factory=dict)
    # Rounds before these come again for a good reason: the neighbour goes through them anew, or was asked to.
    repeats_before: int = 0
    asks_again: bool = False
    tells: bool = False
    handshake_sent: float = -math.inf
    refusal_sent: float = -math.inf
    status_sent: float = -math.inf
    ask_at: float = math.inf
    ask_gap: float = _FIRST_ASK

    def __post_init__(self) -> None:
        self.incoming = self.outgoing.back()

    def lacks(self, round: int) -> int:
        """The first round from this one on whose array is not here."""
        while round in self.inbox:
            round += 1
        return round

    def offered_stage(self) -> int:
        """How far the handshake is with the session that sent a handshake last."""
        return self.stage if self.offered == self.session else UNKNOWN

    def begin(self, message: Message, handshake: Handshake, round: int) -> None:
        """It has started, maybe again: it goes on from its own round, with nothing of ours from
        there on.
        """
        if handshake.covered is not None and handshake.covered > message.round:
            raise Rejected("a HANDSHAKE whose checkpoint is ahead of it")
        self.session, self.stage = message.session, KNOWN
        self.at = self.need = self.cursor = message.round
        self.covered, self.told = handshake.covered, 0
        self.differences = self.goodbye = None
        self.repeats_before = max(self.repeats_before, self.lacks(round))
        if message.round < self.outbox.first:
            self.failure = (
                f"it goes on from round {message.round}, but what was sent to it is cached from round "
                f"{self.outbox.first} on only ({self._why_forgotten()}); start all agents from the beginning"
            )
        self.forget()

    def _why_forgotten(self) -> str:
        if self.outbox.overflowed:
            return "the limit of the cache was reached: write checkpoints more often"
        if self.covered is None:
            return "it writes no checkpoints, so that no more is cached for it"
        return "it had a later checkpoint, or this agent's own does not hold what it sent before"

    def note(self, message: Message) -> None:
        """Where it is, what it lacks, and whether it asks for that again."""
        self.at, self.need = max(self.at, message.round), max(self.need, message.need)
        self.waits = bool(message.flags & WAITING)
        if message.flags & AGAIN and message.need >= self.outbox.first:
            self.cursor = min(self.cursor, message.need)

    def acknowledge(self, round: int) -> None:
        """Its checkpoint covers all rounds before."""
        if self.covered is None:
            raise Rejected("an ACK, though it said it writes no checkpoints")
        if round > max(self.outbox.end, self.at):
            raise Rejected(f"an ACK for round {round}, which is not over")
        self.at, self.covered = max(self.at, round), max(self.covered, round)
        self.forget()

    def forget(self) -> None:
        """Forget what it will never ask for: all before its checkpoint, or all but two rounds if it
        writes none.
        """
        self.outbox.forget_before(self.outbox.end - 2 if self.covered is None else self.covered)

    def accept(self, message: Message, round: int) -> None:
        """An array of the round that this agent is in, or of the next."""
        if message.round > round + 1:
            raise Rejected(f"round {message.round} in round {round}")
        self.at = max(self.at, message.round)
        if message.round >= round and message.round not in self.inbox:
            self.inbox[message.round] = message.content
            # Who has left waits to hear that nothing of it is missing.
            self.tells |= self.goodbye is not None
        elif message.round >= self.repeats_before:
            raise Rejected(f"round {message.round} again, in round {round}")

    def wait_from(self, now: float) -> None:
        """A round begins: ask again for its array in a while, then less and less often."""
        self.ask_at, self.ask_gap, self.trouble = now + _FIRST_ASK, _FIRST_ASK, ""

    def ask_if_due(self, now: float) -> None:
        if now >= self.ask_at:
            self.asks_again = True
            self.ask_gap *= 2
            self.ask_at = now + self.ask_gap

    def due(self) -> list[bytes]:
        """The next frames to send: it has room for the round it is in and the next."""
        self.cursor = max(self.cursor, self.outbox.first)
        end = min(self.outbox.end, self.at + 2, self.cursor + _AT_ONCE)
        return [self.outbox[round] for round in range(self.cursor, end)]

    def has_finished(self) -> bool:
        """Whether it will need nothing more: it has left, or has all, and could not be started again."""
        has_all = max(self.at, self.need) >= self.outbox.end
        return self.goodbye is not None or (self.stage != UNKNOWN and self.covered is None and has_all)
