"""The links of one agent to its neighbours: rounds of exchanges that survive cuts and restarts."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gradslide._support.errors import InputError, require, require_number
from gradslide._support.types import Array, DType
from gradslide.network.peers.errors import Explain, LinksEnded, PeerError, SettingsDiffer, short
from gradslide.network.peers.handshake import require_transmittable
from gradslide.network.peers.io_thread import IOThread
from gradslide.network.peers.keys import KeyPair
from gradslide.network.peers.neighbour import Neighbour, require_neighbours
from gradslide.network.peers.peer import MUTUAL, UNKNOWN, Outbox, Peer
from gradslide.network.peers.rejection_log import RejectionLog
from gradslide.network.peers.sockets import Sockets
from gradslide.network.peers.wire import array_of, edge_between

__all__ = ["KeyPair", "Links", "Neighbour", "PeerError", "SettingsDiffer"]

_STOPPED = 1.0
_LONGEST_REASON = 1000
_PATIENCE = 5.0, 60.0
# Seconds after which a neighbour that was not heard from may be gone.
_ALIVE = 4.0
# Seconds that an agent stays to tell neighbours why it cannot take part, or what differs.
_TELL = 5.0
# Seconds in which a neighbour appears that runs and waits for an agent that had finished.
_APPEAR = 3.0
# Seconds after which a neighbour has noticed that an earlier process of this agent is gone.
_REFUSED = 4.0
# Seconds in which a neighbour may be given the right key before this agent takes part.
_WRONG_KEY = 5.0

Form = tuple[Any, tuple[int, ...]]
Judge = Callable[[Array], str]


class Links:
    """Encrypted, authenticated links to all neighbours of one agent.

    Arrays are exchanged over them in rounds.

    Parameters
    ----------
    own : KeyPair
        This agent's keys.
    listen : str or None
        Where neighbours connect to, tcp://host:port; None for an agent that only connects to
        others.
    neighbours : sequence of Neighbour
    run_id : str
    settings : mapping of str to str
        The run, and what all agents must have in common.
    deadline : float
        Seconds that a neighbour may take for one round, and to appear.
    checkpoints : bool
        Whether this agent writes checkpoints, and calls `checkpointed`. If so, neighbours cache for
        it what it may need again after a restart; if not, the last two rounds, enough for a broken
        connection.
    size_limit : int
        Bytes of one array.
    cache_limit : int
        Bytes cached for one neighbour; over it the oldest are forgotten, with a warning.
    log : logging.Logger, optional
    explain : mapping of str to callable, optional
        For settings whose differences need words: from a neighbour's value to sentences.

    Notes
    -----
    Both ends of a link may connect; one is enough. A message must get through within a quarter of
    the deadline, but at least 5 and at most 60 seconds, or the connection counts as broken. One
    thread at a time may call.
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
        cache_limit: int = 2**28,
        log: logging.Logger | None = None,
        explain: Mapping[str, Explain] | None = None,
    ) -> None:
        require_neighbours(own, listen, neighbours)
        require_transmittable(run_id, settings)
        require_number("deadline", deadline, "60 waits a minute", above=0)
        require_number("size_limit", size_limit, "2**26 is 64 MiB", least=8, most=2**40, whole=True)
        require_number("cache_limit", cache_limit, "2**28 is 256 MiB", least=0, whole=True)
        self._own, self._listen, self._neighbours = own, listen, list(neighbours)
        self._deadline, self._checkpoints = float(deadline), checkpoints
        self._size_limit, self._cache_limit = int(size_limit), int(cache_limit)
        self._log = log or logging.getLogger("gradslide.peers")
        self._warned: set[str] = set()
        self._has_words = bool(explain)
        self._opened, self._opened_at = False, -math.inf
        self._has_met, self._has_begun = False, False
        self._meet, self._meets_until = self._deadline, -math.inf
        peers = {}
        for each in neighbours:
            edge = edge_between(run_id, settings, own.public, each.public_key)
            peers[each.name] = Peer(each.name, edge, Outbox(0, self._cache_limit))
        rejections = RejectionLog(self._log)
        self._thread = IOThread(peers, run_id, dict(settings), self._size_limit, rejections, explain)

    def open(
        self,
        round: int = 0,
        *,
        cached: Mapping[str, Mapping[int, Array]] | None = None,
        deadline: float | None = None,
        meet: bool = True,
    ) -> None:
        """Bind, connect, and wait for the handshake of every neighbour.

        Parameters
        ----------
        round : int
            Where this agent goes on; its checkpoint covers all rounds before.
        cached : mapping of str to mapping of int to array, optional
            What `cached()` returned when that checkpoint was written. Without it neighbours that go
            on from an older checkpoint cannot be served.
        deadline : float, optional
            Seconds to wait here, if not those for a round.
        meet : bool
            Whether to wait; if not, `meet` does.
        """
        require(not self._opened, "links are opened once", "a second time", "make new ones")
        require_number("round", round, "0 starts afresh", least=0, whole=True)
        thread = self._thread
        thread.round = int(round)
        thread.covered = thread.round if self._checkpoints else None
        for name, peer in thread.peers.items():
            self._restore(peer, (cached or {}).get(name, {}))
        self._start()
        if meet:
            self.meet(deadline)

    def _start(self) -> None:
        sockets = Sockets(
            self._own,
            self._listen,
            self._neighbours,
            size_limit=self._size_limit,
            patience=min(max(self._deadline / 4, _PATIENCE[0]), _PATIENCE[1]),
            trouble=self._thread.report,
        )
        self._thread.start(sockets)
        self._opened, self._opened_at = True, time.monotonic()

    def meet(self, deadline: float | None = None) -> None:
        """Wait for the handshake of every neighbour. Does nothing the second time."""
        if self._has_met:
            return
        self._meet = self._deadline if deadline is None else deadline
        self._thread.waiting = True
        try:
            with self._thread.turn():
                self._wait(self._shook_hands, self._meet, "no handshake came")
            self._has_met = True
            self._thread.has_begun = self._has_begun
            if self.round > 0:
                self._meets_until = time.monotonic() + self._meet
        except BaseException as error:
            reason = _reason(error)
            if any(
                peer.failure or peer.differences or peer.wrong_key_since < math.inf
                for peer in self._thread.peers.values()
            ):
                self.fail(reason)
            self.close(reason)
            raise
        finally:
            self._thread.waiting = False

    def begin(self) -> None:
        """The first outer iteration begins: from now on, neighbours that fail are waited for."""
        self._has_begun = True
        self._thread.has_begun = self._has_met

    def fail(self, reason: str) -> None:
        """Tell neighbours that this agent cannot take part in the run, and why; then leave.

        It waits a few seconds for neighbours to answer. If its address is taken, maybe by another
        process of the same agent, nobody is told.
        """
        thread = self._thread
        thread.failure = reason[:_LONGEST_REASON]
        if not self._opened:
            if self._opened_at > -math.inf:  # closed
                return
            try:
                self._start()
            except InputError:
                return
        self._opened = False
        try:
            with thread.turn():
                for peer in thread.peers.values():
                    peer.echoes, peer.handshake_sent = False, -math.inf
                since = time.monotonic()

                def is_told(peer: Peer) -> bool:
                    return peer.echoes or (not peer.offered and time.monotonic() > since + _TELL / 2)

                self._wait_quietly(lambda: all(map(is_told, thread.peers.values())), _TELL)
        finally:
            thread.stop()

    def _restore(self, peer: Peer, cached: Mapping[int, Array]) -> None:
        """Cache again what was cached when the checkpoint was written."""
        rounds, end = sorted(cached), self._thread.round
        peer.outbox = Outbox(end - len(rounds), self._cache_limit)
        rule = f"what is cached for {peer.name} must be of the rounds before {end}, without a gap"
        require(
            rounds == list(range(peer.outbox.first, end)),
            rule,
            rounds,
            "give what cached() returned",
        )
        for each in rounds:
            peer.outbox.put(each, self._thread.array_frame(peer, each, cached[each]))

    @property
    def round(self) -> int:
        """The number of the next exchange."""
        return self._thread.round

    def exchange(self, outgoing: Mapping[str, Array], expected: Mapping[str, "Form | Judge"]) -> dict[str, Array]:
        """Do one round: send an array to every neighbour, and receive one of the same round.

        Parameters
        ----------
        outgoing : mapping of str to array
            float32 or float64, of one or two dimensions, by neighbour.
        expected : mapping of str to (dtype, shape) or callable
            What must come, by neighbour: dtype and shape, or a function that says what is wrong
            with an array, "" for nothing. Anything else is rejected and logged.

        Raises
        ------
        PeerError
            If NaN or infinity arrives, or nothing until the deadline.
        """
        thread = self._thread
        wanted = {name: each if callable(each) else _of_form(*each) for name, each in expected.items()}
        self._require_opened()
        require(
            wanted.keys() == thread.peers.keys(), "expected must name every neighbour", list(wanted), "give one each"
        )
        require(
            outgoing.keys() == thread.peers.keys(),
            "outgoing must name every neighbour",
            list(outgoing),
            "give one each",
        )
        arrays = {name: self._sendable(name, array) for name, array in outgoing.items()}
        good: set[str] = set()

        def is_ready(peer: Peer) -> bool:
            if peer.name not in good and self._arrived(peer, wanted[peer.name]):
                good.add(peer.name)
            return peer.name in good

        with thread.turn():
            self._raise_failures()
            now = time.monotonic()
            for name, peer in thread.peers.items():
                peer.outbox.put(thread.round, thread.array_frame(peer, thread.round, arrays[name]))
                peer.forget()
                # Who has this array already still wants to know how far this agent is.
                peer.tells |= thread.round < peer.cursor
                peer.wait_from(now)
            self._warn_of_overflow()
            thread.waiting = True
            try:
                thread.send_due()
                # Until the first outer iteration neighbours may wait for others that have not appeared.
                seconds = self._deadline if self._has_begun else max(self._deadline, self._meet)
                self._wait(is_ready, seconds, "nothing arrived")
                arrived = {name: peer.inbox.pop(thread.round) for name, peer in thread.peers.items()}
                thread.round += 1
            finally:
                thread.waiting = False
        return arrived

    def repeat(self, outgoing: Mapping[str, Array]) -> None:
        """Do a round whose arrays arrived before this agent was started again: only send."""
        self._require_opened()
        thread = self._thread
        with thread.turn():
            for name, peer in thread.peers.items():
                array = self._sendable(name, outgoing[name])
                peer.outbox.put(thread.round, thread.array_frame(peer, thread.round, array))
            thread.round += 1
            thread.send_due()

    def cached(self) -> dict[str, dict[int, Array]]:
        """What was sent and neighbours may ask for again: name -> round -> array.

        It belongs into every checkpoint.
        """
        with self._thread.turn():
            boxes = {name: peer.outbox for name, peer in self._thread.peers.items()}
            return {
                name: {each: array_of(box[each]) for each in range(box.first, min(box.end, self.round))}
                for name, box in boxes.items()
            }

    @property
    def cached_bytes(self) -> int:
        """Bytes that `cached` holds: they shrink when neighbours write checkpoints."""
        with self._thread.turn():
            return sum(peer.outbox.bytes for peer in self._thread.peers.values())

    def checkpointed(self, round: int) -> None:
        """A checkpoint that covers all rounds before `round` is on disk: neighbours may forget
        those. They are told with the next exchange, or soon.
        """
        thread = self._thread
        self._require_opened()
        require(self._checkpoints, "checkpoints must be announced", "none were", "use Links(..., checkpoints=True)")
        require(
            0 <= round <= thread.round, f"a checkpoint covers rounds up to {thread.round}", round, "give links.round"
        )
        with thread.turn():
            thread.covered = max(thread.covered or 0, round)

    def finish(self, seconds: float) -> list[str]:
        """Say that all went well, and wait until neighbours have finished, too.

        A neighbour has if it said so. One that writes no checkpoints could not be started again: it
        has if it lacks nothing.

        Parameters
        ----------
        seconds : float
            How long to wait while none of them gets further.

        Returns
        -------
        list of str
            Neighbours that have not finished.
        """
        if not self._opened:
            return []
        thread, peers = self._thread, self._thread.peers.values()
        with thread.turn():
            self._say_goodbye("")
            before, end = None, 0.0
            while thread.error is None and (late := self._unfinished()):
                now, reached = time.monotonic(), [(peer.session, peer.at, peer.need) for peer in peers]
                if reached != before:
                    before, end = reached, now + seconds
                elif now >= end:
                    return late
                thread.serve()
        return []

    def _unfinished(self) -> list[str]:
        # Who does not run is not waited for by an agent that had finished before and was started again.
        is_late = time.monotonic() > self._opened_at + _APPEAR
        peers = [peer for peer in self._thread.peers.values() if not (peer.stage == UNKNOWN and is_late)]
        return [peer.name for peer in peers if not peer.has_finished()]

    def close(self, reason: str = "", *, deadline: float | None = None) -> None:
        """Say goodbye.

        Without a reason (all went well) it first waits until every neighbour has finished, but no
        longer than the deadline while none of them gets further. Does nothing the second time.
        """
        if not self._opened:
            return
        try:
            if not reason:
                late = self.finish(self._deadline if deadline is None else deadline)
                if late:
                    self._log.warning("neighbours that may lack the last messages: %s", ", ".join(late))
        finally:
            self._opened = False
            try:
                with self._thread.turn():
                    self._say_goodbye(reason)
                    # Neighbours with other settings are to know ours. A frame that was sent just before the end can
                    # be lost: closing a connection on which something arrives resets it.
                    peers = self._thread.peers.values()
                    self._wait_quietly(lambda: not any(peer.differences and not peer.echoes for peer in peers), _TELL)
            finally:
                self._thread.stop()

    def _say_goodbye(self, reason: str) -> None:
        thread = self._thread
        if thread.goodbye != reason[:_LONGEST_REASON]:
            thread.goodbye = reason[:_LONGEST_REASON]
            for peer in thread.peers.values():
                peer.tells = True
            if thread.error is None:
                thread.send_due()

    def _wait_quietly(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait for a condition, but not for long. Call it in a turn."""
        thread, end = self._thread, time.monotonic() + seconds
        while thread.error is None and not condition() and time.monotonic() < end:
            thread.serve()

    def __enter__(self) -> "Links":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.close("" if error is None else _reason(error))

    def _wait(self, ready: Callable[[Peer], bool], seconds: float, lack: str) -> None:
        """Until all neighbours are ready. Call it in a turn.

        A neighbour that waits, too, has a few seconds more to say for whom. If all agents were
        started again it may wait for one that has not appeared: then it has as long as that one.
        """
        thread, left, before = self._thread, seconds, time.monotonic()
        while True:
            self._raise_failures()
            late = [peer for peer in thread.peers.values() if not ready(peer)]
            if not late:
                return
            now = time.monotonic()
            # Time in which this very process was stopped counts little.
            left, before = left - min(now - before, _STOPPED), now
            is_over = left <= -min(_TELL, seconds) and now >= self._meets_until
            if left <= 0 and (is_over or not any(_waits_itself(peer, now) for peer in late)):
                raise timeout_error(late, thread.round, lack, seconds, self._checkpoints)
            thread.serve(left if left > 0 else math.inf)

    def _raise_failures(self) -> None:
        if (error := self._thread.error) is not None:
            self._log.error("the thread of the links has ended", exc_info=error)
            said = f"the thread of the links has ended ({type(error).__name__}: {error})"
            raise LinksEnded(f"{said}; start this agent again, and report this as a bug") from error
        for peer in self._thread.peers.values():
            if peer.failure:
                raise PeerError(peer.name, self.round, peer.failure)
            if not self._has_begun and time.monotonic() - peer.wrong_key_since > _WRONG_KEY:
                remedy = "compare the public keys that both list, then start both again"
                raise PeerError(peer.name, self.round, f"{peer.trouble}; {remedy}")
            if peer.refused_for > _REFUSED:
                reason = "another process with this agent's key takes part already; end one of the two"
                raise PeerError(peer.name, self.round, f"it refuses this process: {reason}")

    def _shook_hands(self, peer: Peer) -> bool:
        if peer.differences is not None:
            description = self._thread.described(peer.differences) if self._has_words else ""
            raise SettingsDiffer(peer.name, self.round, peer.differences, description)
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
            self._thread.report(peer.name, f"round {round} with {fault}")
            return False
        return True

    def _sendable(self, name: str, array: Array) -> Array:
        array = np.asarray(array)
        if array.dtype.type not in (np.float32, np.float64) or array.ndim not in (1, 2):
            rule = f"what goes to {name} must be a float32 or float64 array of one or two dimensions"
            raise InputError(rule, f"{array.dtype} {array.shape}", "convert it")
        if array.nbytes > self._size_limit:
            got = f"{array.nbytes} for {name}"
            raise InputError(f"an array must not exceed size_limit, {self._size_limit} bytes", got, "raise size_limit")
        return array

    def _require_opened(self) -> None:
        require(self._opened, "links must be open", "closed ones", "call open() first, and close() last")

    def _warn_of_overflow(self) -> None:
        for name, peer in self._thread.peers.items():
            if peer.outbox.overflowed and name not in self._warned:
                self._warned.add(name)
                text = (
                    "neighbour %s: more than %d bytes were sent since its last checkpoint, the oldest are forgotten: "
                )
                text += "if it restarts it cannot go on; it should write checkpoints more often"
                self._log.warning(text, name, self._cache_limit)


def _of_form(dtype: DType, shape: tuple[int, ...]) -> Judge:
    """What is wrong with an array that must have this type and shape."""
    wanted = np.dtype(dtype), tuple(shape)

    def judge(array: Array) -> str:
        if (array.dtype, array.shape) == wanted:
            return ""
        return f"{array.dtype} {array.shape} instead of {wanted[0]} {wanted[1]}"

    return judge


def timeout_error(late: Sequence[Peer], round: int, lack: str, seconds: float, checkpoints: bool) -> PeerError:
    """The error about the neighbour that was not heard from for longest."""
    now = time.monotonic()
    peer = min(late, key=lambda peer: -1.0 if peer.heard is None else peer.heard)
    others = ", ".join(other.name for other in late if other is not peer)
    said = f"{lack} for round {round} within {seconds:g} s ({_known(peer, now)})"
    said += f"; last trouble: {peer.trouble}" if peer.trouble else ""
    said += f"; {others} too" if others else ""
    again = "start this agent again: it goes on from its checkpoint" if checkpoints else "start all agents again"
    return PeerError(peer.name, round, f"{said}; {_remedy(peer, now)}, then {again}")


def _reason(error: BaseException) -> str:
    """What neighbours are told when an error ends the links."""
    if isinstance(error, KeyboardInterrupt):
        return "it was interrupted from the keyboard"
    if isinstance(error, PeerError):
        return error.public_reason
    return str(error) or type(error).__name__


def _is_alive(peer: Peer, now: float) -> bool:
    return peer.heard is not None and peer.goodbye is None and now - peer.heard <= _ALIVE


def _waits_itself(peer: Peer, now: float) -> bool:
    return peer.waits and _is_alive(peer, now)


def _known(peer: Peer, now: float) -> str:
    if peer.heard is None:
        return "never heard from"
    if peer.goodbye is not None:
        return f"it left in round {peer.at}: {short(peer.goodbye, 400) or 'it was done'}"
    if not _is_alive(peer, now):
        return f"not heard from for {now - peer.heard:.0f} s"
    return f"it is there, in round {peer.at}, and {'waits itself' if peer.waits else 'computes'}"


def _remedy(peer: Peer, now: float) -> str:
    if peer.heard is None:
        return "check that it runs, its address, its key, and that it has this agent's key"
    if _is_alive(peer, now):
        return "see what it does, or raise the deadline"
    return "check that it runs and can be reached"
