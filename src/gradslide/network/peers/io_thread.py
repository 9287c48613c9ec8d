"""Sending and receiving: by the agent itself while it waits, by a thread while it computes."""

import math
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from gradslide.network.peers.connection import REFUSED_KEY, WRONG_KEY
from gradslide.network.peers.errors import Differences, Explain, describe, is_of_signal_handler, short
from gradslide.network.peers.handshake import Handshake, read_handshake
from gradslide.network.peers.peer import AGAIN, KNOWN, MUTUAL, UNKNOWN, WAITING, Peer
from gradslide.network.peers.rejection_log import RejectionLog
from gradslide.network.peers.sockets import Arrival, Sockets
from gradslide.network.peers.wire import SESSION_SIZE, Kind, Message, Rejected, decode, encode

_HANDSHAKE_EVERY, _STATUS_EVERY, _ASK_EVERY, _BYE_EVERY = 0.2, 1.0, 0.25, 0.5
_POLL = 0.1
# Seconds after which the thread takes over, if the agent has not served.
_TAKE_OVER = 0.02
# What a second process with the key of an agent is told.
ANOTHER_PROCESS = "another process with its key"


class IOThread:
    """Sends and receives, in turns of the agent and of a thread of its own.

    An agent that exchanges takes a `turn`: it sends, and calls `serve` while it waits, so that no
    other thread must wake up. The thread serves once the agent has not for a moment, or if it left
    something unsent.

    Attributes
    ----------
    lock : threading.RLock
        Held by the one whose turn it is. It guards everything here.
    peers : dict of str to Peer
    round : int
        The agent's round.
    waiting : bool
        Whether it waits for arrays of that round, or for neighbours that have not appeared.
    covered : int or None
        Its checkpoint covers all rounds before; None if it writes none.
    goodbye : str or None
        Why the agent leaves, "" if all went well; None as long as it does not.
    has_begun : bool
        Whether all have met, and the first outer iteration has begun: then a neighbour that fails
        may be mended, and started again.
    failure : str
        Why the agent cannot take part in the run, which handshakes tell.
    error : BaseException or None
        What ended the links, if anything did.
    """

    def __init__(
        self,
        peers: dict[str, Peer],
        run_id: str,
        settings: dict[str, str],
        size_limit: int,
        rejections: RejectionLog,
        explain: Mapping[str, Explain] | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self.peers = peers
        self.round = 0
        self.waiting = False
        self.covered: int | None = None
        self.goodbye: str | None = None
        self.error: BaseException | None = None
        self.rejections = rejections
        self.failure = ""
        self.has_begun = False
        self._settings, self._explain = settings, dict(explain or {})
        self._run_id = run_id
        self._size_limit = size_limit
        self._session = os.urandom(SESSION_SIZE)
        self._ending = False
        # Whether the agent has or wants the turn, whether the thread serves, and how often anybody did.
        self._is_claimed, self._is_serving, self._served = False, False, 0
        self._is_needed = threading.Event()
        self._sockets: Sockets
        self._thread = threading.Thread(target=self._run, name="gradslide-peers", daemon=True)

    def start(self, sockets: Sockets) -> None:
        """Take over the sockets and begin."""
        self._sockets = sockets
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the sockets."""
        self._ending = True
        self._is_needed.set()
        self._sockets.wake()
        self._thread.join()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """The agent's turn with the neighbours and the sockets. Turns are not nested."""
        try:
            self._is_claimed = True
            # The thread says that it serves before it looks whether the turn is claimed: one of both sees the other.
            if self._is_serving:
                self._sockets.wake()
            with self.lock:
                try:
                    yield
                finally:
                    self._is_claimed = False
                    if self._thread.is_alive() and self._sockets.has_unsent:
                        self._is_needed.set()
        finally:
            # Ctrl-C may end the wait for the lock.
            self._is_claimed = False

    def serve(self, seconds: float = _POLL) -> None:
        """Wait until something arrives or can be sent, and do what follows from it.

        An error ends the links. What a signal handler raises does not: it is the caller's.
        """
        self._served += 1
        # Here the time passes: not in the try, so that handlers of any kind are heard.
        self._sockets.wait(min(seconds, _POLL))
        try:
            for arrival in self._sockets.receive():
                self._handle(arrival)
            self._tick()
        except Exception as error:
            if is_of_signal_handler(error):
                raise
            self.error = error
            self._is_needed.set()

    def array_frame(self, peer: Peer, round: int, array: object) -> bytes:
        """An array of a round as it is sent and cached."""
        return encode(Message(Kind.DATA, self._session, round, content=array), peer.outgoing)

    def report(self, name: str | None, reason: str) -> None:
        """Something was rejected: log it, and remember it for the error that it may lead to."""
        self.rejections.add(f"neighbour {name}" if name else RejectionLog.UNKNOWN, reason)
        if name:
            peer = self.peers[name]
            peer.trouble = reason
            if reason in (WRONG_KEY, REFUSED_KEY):
                peer.wrong_key_since = min(peer.wrong_key_since, time.monotonic())

    def _run(self) -> None:
        try:
            while not self._has_ended():
                served = self._served
                if self._is_needed.wait(_TAKE_OVER) or self._served == served:
                    self._is_needed.clear()
                    self._serve_until_claimed()
            with self.lock:
                for peer in self.peers.values() if self.error is None else ():
                    if peer.stage != UNKNOWN and not self.failure:
                        self._send(peer, Kind.BYE, content=self.goodbye or "")
                    elif peer.differences or self.failure:
                        self._send_handshake(peer, time.monotonic())
        except BaseException as error:
            self.error = error
        finally:
            with self.lock:
                self.rejections.close()
                # With the lock: the agent may be about to send.
                self._sockets.close()

    def _has_ended(self) -> bool:
        return self._ending or self.error is not None

    def _serve_until_claimed(self) -> None:
        self._is_serving = True
        while not (self._is_claimed or self._has_ended()):
            with self.lock:
                self.serve()
        self._is_serving = False

    def _handle(self, arrival: Arrival) -> None:
        peer, now = self.peers[arrival.name], time.monotonic()
        if arrival.frame is None:
            # A new connection: what was on its way over an old one may be lost.
            peer.tells = True
            return
        try:
            message = decode(arrival.frame, peer.incoming, self._size_limit)
            if message.session != peer.session and self._has_live_session(peer):
                self._refuse(peer, message, arrival, now)
                return
            if message.kind is Kind.HANDSHAKE:
                new = self._sockets.adopt(arrival, message.session)
                self._answer_handshake(peer, message, read_handshake(message.content), now)
            elif peer.stage == UNKNOWN:
                # It takes this agent for the one before its restart: the handshake goes back the way this came.
                self._sockets.adopt(arrival, message.session)
                return
            else:
                self._require_session(peer, message, now)
                new = self._sockets.adopt(arrival, message.session)
                peer.stage = MUTUAL
                self._react(peer, message)
            peer.heard = now
            # What was on its way over the old connection may be lost.
            peer.asks_again |= new and self._awaits(peer)
        except Rejected as rejected:
            self.report(peer.name, str(rejected))

    def _has_live_session(self, peer: Peer) -> bool:
        """Whether the process of a neighbour that counts is there, and does not leave before the end."""
        return not peer.goodbye and self._sockets.hears(peer.name, peer.session)

    def _refuse(self, peer: Peer, message: Message, arrival: Arrival, now: float) -> None:
        """A second process with the key of a neighbour that is there must not take its place.

        It is told so; or what differs, if it is one of another run.
        """
        own = Handshake(self._run_id, self._settings, message.session, self.covered)
        differences: Differences = {}
        if is_handshake := message.kind is Kind.HANDSHAKE:
            differences = own.differences(read_handshake(message.content))
        if now - peer.refusal_sent >= _HANDSHAKE_EVERY:
            peer.refusal_sent = now
            answer = own if differences else replace(own, failure=ANOTHER_PROCESS)
            frame = encode(Message(Kind.HANDSHAKE, self._session, self.round, content=answer.text()), peer.outgoing)
            self._sockets.reply(arrival, frame)
        if not is_handshake:
            raise _of_another_start(message)
        reason = ANOTHER_PROCESS + (f": {self.described(differences)}" if differences else "")
        if peer.trouble != reason:
            self.report(peer.name, reason)

    def _answer_handshake(self, peer: Peer, message: Message, handshake: Handshake, now: float) -> None:
        peer.offered, peer.echoes = message.session, handshake.echo == self._session
        peer.wrong_key_since = math.inf
        is_refused = handshake.failure == ANOTHER_PROCESS and peer.echoes
        peer.refused_since = min(peer.refused_since, now) if is_refused else math.inf
        peer.refused_for = now - peer.refused_since
        differences = self._handshake(peer).differences(handshake)
        # Who failed because of differences says so, but not which; who fails before it knows its settings tells none.
        are_told = bool(differences and self._settings and handshake.settings)
        if not are_told and (handshake.failure or self._failure_for(peer)):
            self._note_failure(peer, handshake)
            if now - peer.handshake_sent >= _HANDSHAKE_EVERY:
                self._send_handshake(peer, now)
            return
        if differences:
            if peer.differences != differences:
                self.report(peer.name, self.described(differences))
            peer.differences = differences
        elif peer.echoes:
            if message.session != peer.session:
                peer.begin(message, handshake, self.round)
            if message.flags >= KNOWN:
                peer.stage = MUTUAL
        if message.flags < MUTUAL and (not differences or now - peer.handshake_sent >= _HANDSHAKE_EVERY):
            self._send_handshake(peer, now)

    def described(self, differences: Differences) -> str:
        """Which settings differ, in words."""
        return describe(differences, self._explain)

    def _failure_for(self, peer: Peer) -> str:
        """Why this agent cannot take part. A neighbour with other settings learns which differ."""
        return "" if peer.differences else self.failure

    def _note_failure(self, peer: Peer, handshake: Handshake) -> None:
        """It cannot take part: before the run has begun this ends it, later it is waited for."""
        if handshake.run != self._run_id or self.failure or handshake.failure == ANOTHER_PROCESS:
            return  # that is known, or nothing to this run, or may pass
        reason = f"it cannot take part: {short(handshake.failure, 400)}"
        if peer.trouble != reason:
            self.report(peer.name, reason)
        if not self.has_begun:
            peer.failure = reason

    def _require_session(self, peer: Peer, message: Message, now: float) -> None:
        """A neighbour whose session was taken for over shakes hands again."""
        if message.session == peer.session:
            return
        peer.offered = message.session
        if now - peer.handshake_sent >= _HANDSHAKE_EVERY:
            self._send_handshake(peer, now)
        raise _of_another_start(message)

    def _react(self, peer: Peer, message: Message) -> None:
        if message.kind is Kind.DATA:
            peer.accept(message, self.round)
        elif message.kind is Kind.ACK:
            peer.acknowledge(message.round)
        elif message.kind is Kind.STATUS:
            peer.note(message)
            peer.goodbye = None
        else:
            peer.note(message)
            # Two that leave would answer each other forever.
            peer.tells |= peer.goodbye is None or self.goodbye is None
            peer.goodbye = message.content

    def _tick(self) -> None:
        now = time.monotonic()
        for peer in self.peers.values():
            if peer.stage < MUTUAL or self.failure:
                if now - peer.handshake_sent >= _HANDSHAKE_EVERY:
                    self._send_handshake(peer, now)
                continue
            if self._awaits(peer):
                peer.ask_if_due(now)
            self._send_due(peer, now)
        self.rejections.tick()

    def send_due(self) -> None:
        """Send what is due to neighbours. Call it in a turn."""
        now = time.monotonic()
        for peer in self.peers.values():
            if peer.stage == MUTUAL:
                self._send_due(peer, now)

    def _send_due(self, peer: Peer, now: float) -> None:
        """Arrays, how far the checkpoint reaches, and the status: what is due, in one go."""
        frames = peer.due()
        arrays, covered, tells = len(frames), self.covered or 0, self._is_status_due(peer, now)
        if peer.told < covered:
            frames.append(self._frame(peer, Kind.ACK, covered))
        if tells:
            peer.status_sent = now
            frames.append(self._status(peer))
        if not frames or not self._sockets.send(peer.name, *frames):
            return
        peer.cursor += arrays
        peer.told = max(peer.told, covered)
        if tells:
            if peer.asks_again:
                peer.repeats_before = max(peer.repeats_before, peer.lacks(self.round) + 2)
            peer.tells = peer.asks_again = False

    def _awaits(self, peer: Peer) -> bool:
        return self.waiting and self.round not in peer.inbox

    def _handshake(self, peer: Peer) -> Handshake:
        return Handshake(self._run_id, self._settings, peer.offered, self.covered, self._failure_for(peer))

    def _send_handshake(self, peer: Peer, now: float) -> None:
        if self._send(peer, Kind.HANDSHAKE, peer.offered_stage(), self._handshake(peer).text()):
            peer.handshake_sent = now

    def _is_status_due(self, peer: Peer, now: float) -> bool:
        since = now - peer.status_sent
        every = _STATUS_EVERY if self.goodbye is None else _BYE_EVERY
        return peer.tells or since >= every or (peer.asks_again and since >= _ASK_EVERY)

    def _status(self, peer: Peer) -> bytes:
        if self.goodbye is not None:
            return self._frame(peer, Kind.BYE, self.round, content=self.goodbye)
        return self._frame(peer, Kind.STATUS, self.round, WAITING * self.waiting | AGAIN * peer.asks_again)

    def _send(self, peer: Peer, kind: Kind, flags: int = 0, content: str = "") -> bool:
        return self._sockets.send(peer.name, self._frame(peer, kind, self.round, flags, content))

    def _frame(self, peer: Peer, kind: Kind, round: int, flags: int = 0, content: str = "") -> bytes:
        need = 0 if kind is Kind.ACK else peer.lacks(self.round)
        return encode(Message(kind, self._session, round, need, flags, content), peer.outgoing)


def _of_another_start(message: Message) -> Rejected:
    return Rejected(f"a {message.kind.name} of another start of its process")
