"""The links of one agent to its neighbours: rounds of exchanges that survive cuts and restarts."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gradslide._support.errors import InputError, require, require_number
from gradslide._support.types import Array
from gradslide.network.peers.complaints import Complaints
from gradslide.network.peers.engine import Engine
from gradslide.network.peers.errors import PeerError, SettingsDiffer
from gradslide.network.peers.hello import require_sayable
from gradslide.network.peers.keys import KeyPair
from gradslide.network.peers.neighbour import Neighbour, require_neighbours
from gradslide.network.peers.outbox import Outbox
from gradslide.network.peers.peer import MUTUAL, Peer
from gradslide.network.peers.silence import silence
from gradslide.network.peers.sockets import Sockets
from gradslide.network.peers.wire import array_of, edge_between

__all__ = ["KeyPair", "Links", "Neighbour", "PeerError", "SettingsDiffer"]

_WAKE, _STOPPED = 0.2, 1.0
_LONGEST_REASON = 1000
_PATIENCE = 5.0, 60.0

Form = tuple[Any, tuple[int, ...]]
Judge = Callable[[Array], str]


class Links:
    """Encrypted, authenticated links to all neighbours of one agent, over which rounds are exchanged in step.

    own: this agent's keys. listen: where neighbours dial in, tcp://host:port; None if it only dials. run_id, settings:
    what all agents must have alike. deadline: seconds that a neighbour may take for one round, and to appear at all.
    checkpoints: whether this agent writes any, and calls `checkpointed`: if so, neighbours keep for it what it may need
    again after a restart; if not, the last two rounds, enough for a broken connection. size_limit: bytes of one array.
    keep_limit: bytes kept for one neighbour; over it the oldest are forgotten, with a warning.

    A link has two ends that both may dial; one is enough. A message must get through within a quarter of the deadline,
    but at least 5 and at most 60 seconds, or the connection counts as broken. One thread at a time may call.
    """

    def __init__(
        self,
        own: KeyPair,
        listen: str | None,
        neighbours: Sequence[Neighbour],
        *,
        run_id: str,
        settings: Mapping[str, str],
        deadline: float = 60.0,
        checkpoints: bool = False,
        size_limit: int = 2**26,
        keep_limit: int = 2**28,
        log: logging.Logger | None = None,
    ) -> None:
        require_neighbours(own, listen, neighbours)
        require_sayable(run_id, settings)
        require_number("deadline", deadline, "60 waits a minute", above=0)
        require_number("size_limit", size_limit, "2**26 is 64 MiB", least=8, most=2**40, whole=True)
        require_number("keep_limit", keep_limit, "2**28 is 256 MiB", least=0, whole=True)
        self._own, self._listen, self._neighbours = own, listen, list(neighbours)
        self._deadline, self._checkpoints = float(deadline), checkpoints
        self._size_limit, self._keep_limit = int(size_limit), int(keep_limit)
        self._log = log or logging.getLogger("gradslide.peers")
        self._warned: set[str] = set()
        self._opened = False
        peers = {}
        for each in neighbours:
            edge = edge_between(run_id, settings, own.public, each.public_key)
            peers[each.name] = Peer(each.name, edge, Outbox(0, self._keep_limit))
        self._engine = Engine(peers, run_id, dict(settings), self._size_limit, Complaints(self._log))

    def open(
        self,
        round: int = 0,
        *,
        kept: Mapping[str, Mapping[int, Array]] | None = None,
        deadline: float | None = None,
    ) -> None:
        """Bind, dial, and wait until every neighbour has said hello with the same run id and settings.

        round: where this agent goes on; its checkpoint covers all rounds before. kept: what `kept()` gave when that
        checkpoint was written: without it neighbours that go on from an older checkpoint cannot be served. deadline:
        seconds to wait here, if not those for a round.
        """
        require(not self._opened, "links are opened once", "a second time", "make new ones")
        require_number("round", round, "0 starts afresh", least=0, whole=True)
        engine = self._engine
        engine.round = int(round)
        engine.covered = engine.round if self._checkpoints else None
        for name, peer in engine.peers.items():
            self._restore(peer, (kept or {}).get(name, {}))
        sockets = Sockets(
            self._own,
            self._listen,
            self._neighbours,
            size_limit=self._size_limit,
            patience=min(max(self._deadline / 4, _PATIENCE[0]), _PATIENCE[1]),
            trouble=engine.report,
        )
        engine.start(sockets)
        self._opened = True
        try:
            self._wait(self._greeted, self._deadline if deadline is None else deadline, "no hello came")
        except BaseException as error:
            self.close(str(error) or type(error).__name__)
            raise

    def _restore(self, peer: Peer, kept: Mapping[int, Array]) -> None:
        """Keep again what was kept when the checkpoint was written."""
        rounds, end = sorted(kept), self._engine.round
        peer.outbox = Outbox(end - len(rounds), self._keep_limit)
        rule = f"what is kept for {peer.name} must be of the rounds before {end}, without a gap"
        require(rounds == list(range(peer.outbox.first, end)), rule, rounds, "give what kept() gave for the checkpoint")
        for each in rounds:
            peer.outbox.put(each, self._engine.array_frame(peer, each, kept[each]))

    @property
    def round(self) -> int:
        """The number of the next exchange."""
        return self._engine.round

    def exchange(self, outgoing: Mapping[str, Array], expected: Mapping[str, "Form | Judge"]) -> dict[str, Array]:
        """One round: every neighbour gets its array, and one array of the same round comes from each.

        outgoing: float32 or float64, of one or two dimensions. expected: dtype and shape of what must come, or a
        function that says what is wrong with an array, if anything is; anything else is rejected and logged. NaN or
        infinity that arrives, or nothing until the deadline, is a PeerError.
        """
        engine = self._engine
        wanted = {name: each if callable(each) else _of_form(*each) for name, each in expected.items()}
        self._require_opened()
        require(
            wanted.keys() == engine.peers.keys(), "expected must name every neighbour", list(wanted), "give one each"
        )
        require(
            outgoing.keys() == engine.peers.keys(),
            "outgoing must name every neighbour",
            list(outgoing),
            "give one each",
        )
        arrays = {name: self._sendable(name, array) for name, array in outgoing.items()}
        with engine.changed:
            now = time.monotonic()
            for name, peer in engine.peers.items():
                peer.outbox.put(engine.round, engine.array_frame(peer, engine.round, arrays[name]))
                peer.forget()
                # Who has this array already still wants to know how far this agent is.
                peer.tells |= engine.round < peer.cursor
                peer.wait_from(now)
            engine.waiting = True
            engine.ring()
        self._warn_of_overflow()
        try:
            self._wait(lambda peer: self._arrived(peer, wanted[peer.name]), self._deadline, "nothing arrived")
            with engine.changed:
                arrived = {name: peer.inbox.pop(engine.round) for name, peer in engine.peers.items()}
                engine.round += 1
        finally:
            engine.waiting = False
        return arrived

    def kept(self) -> dict[str, dict[int, Array]]:
        """What was sent and neighbours may ask for again: name -> round -> array. It belongs into every checkpoint."""
        with self._engine.changed:
            boxes = {name: peer.outbox for name, peer in self._engine.peers.items()}
            return {
                name: {each: array_of(box[each]) for each in range(box.first, min(box.end, self.round))}
                for name, box in boxes.items()
            }

    @property
    def kept_bytes(self) -> int:
        """Bytes that `kept` holds: they shrink when neighbours write checkpoints."""
        with self._engine.changed:
            return sum(peer.outbox.bytes for peer in self._engine.peers.values())

    def checkpointed(self, round: int) -> None:
        """A checkpoint that covers all rounds before `round` is on disk: neighbours may forget those."""
        engine = self._engine
        self._require_opened()
        require(self._checkpoints, "checkpoints must be announced", "none were", "use Links(..., checkpoints=True)")
        require(
            0 <= round <= engine.round, f"a checkpoint covers rounds up to {engine.round}", round, "give links.round"
        )
        with engine.changed:
            engine.covered = max(engine.covered or 0, round)
            engine.ring()

    def close(self, reason: str = "", *, deadline: float | None = None) -> None:
        """Say goodbye. Without a reason (all went well) it first waits until every neighbour has all it needs, but no
        longer than the deadline while none of them gets further. Does nothing the second time."""
        if not self._opened:
            return
        self._opened = False
        engine = self._engine
        with engine.changed:
            engine.goodbye = reason[:_LONGEST_REASON]
            for peer in engine.peers.values():
                peer.tells = True
            engine.ring()
            if not reason:
                self._serve(self._deadline if deadline is None else deadline)
        engine.stop()

    def _serve(self, seconds: float) -> None:
        """Wait for neighbours that lack messages, as long as they get further."""
        engine, peers = self._engine, self._engine.peers.values()
        before, end = None, 0.0
        while engine.error is None and (late := [peer.name for peer in peers if not peer.served()]):
            now, reached = time.monotonic(), [(peer.at, peer.need) for peer in peers]
            if reached != before:
                before, end = reached, now + seconds
            elif now >= end:
                self._log.warning("neighbours that may lack the last messages: %s", ", ".join(late))
                return
            engine.changed.wait(_WAKE)

    def __enter__(self) -> "Links":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.close(str(error) or type(error).__name__ if error is not None else "")

    def _wait(self, ready: Callable[[Peer], bool], seconds: float, lack: str) -> None:
        """Until all neighbours are ready. Wakes up often enough for Ctrl-C."""
        engine, left, before = self._engine, seconds, time.monotonic()
        with engine.changed:
            while True:
                self._raise_failures()
                late = [peer for peer in engine.peers.values() if not ready(peer)]
                if not late:
                    return
                now = time.monotonic()
                # Time in which this very process was stopped counts little.
                left, before = left - min(now - before, _STOPPED), now
                if left <= 0:
                    raise silence(late, engine.round, lack, seconds, self._checkpoints)
                engine.changed.wait(min(left, _WAKE))

    def _raise_failures(self) -> None:
        if self._engine.error is not None:
            raise RuntimeError("the thread of the links has ended") from self._engine.error
        for peer in self._engine.peers.values():
            if peer.failure:
                raise PeerError(peer.name, self.round, peer.failure)

    def _greeted(self, peer: Peer) -> bool:
        if peer.differences is not None:
            raise SettingsDiffer(peer.name, self.round, peer.differences)
        return peer.stage == MUTUAL

    def _arrived(self, peer: Peer, judge: "Judge") -> bool:
        """Whether the array of this round is here and as it should be."""
        round = self.round
        if round not in peer.inbox:
            return False
        array = peer.inbox[round]
        if not np.isfinite(array).all():
            remedy = "look for the cause there, then start all agents from their checkpoints"
            raise PeerError(peer.name, round, f"NaN or infinity arrived for round {round}; {remedy}")
        if fault := judge(array):
            del peer.inbox[round]
            peer.asks_again = True
            self._engine.report(peer.name, f"round {round} with {fault}")
            return False
        return True

    def _sendable(self, name: str, array: Array) -> Array:
        array = np.asarray(array)
        good = array.dtype in (np.float32, np.float64) and array.ndim in (1, 2)
        rule = f"what goes to {name} must be a float32 or float64 array of one or two dimensions"
        require(good, rule, f"{array.dtype} {array.shape}", "convert it")
        if array.nbytes > self._size_limit:
            got = f"{array.nbytes} for {name}"
            raise InputError(f"an array must not exceed size_limit, {self._size_limit} bytes", got, "raise size_limit")
        return array

    def _require_opened(self) -> None:
        require(self._opened, "links must be open", "closed ones", "call open() first, and close() last")

    def _warn_of_overflow(self) -> None:
        for name, peer in self._engine.peers.items():
            if peer.outbox.overflowed and name not in self._warned:
                self._warned.add(name)
                text = (
                    "neighbour %s: more than %d bytes were sent since its last checkpoint, the oldest are forgotten: "
                )
                text += "if it restarts it cannot go on; it should write checkpoints more often"
                self._log.warning(text, name, self._keep_limit)


def _of_form(dtype: Any, shape: tuple[int, ...]) -> Judge:
    """What is wrong with an array that must have this type and shape."""
    wanted = np.dtype(dtype), tuple(shape)

    def judge(array: Array) -> str:
        if (array.dtype, array.shape) == wanted:
            return ""
        return f"{array.dtype} {array.shape} instead of {wanted[0]} {wanted[1]}"

    return judge
