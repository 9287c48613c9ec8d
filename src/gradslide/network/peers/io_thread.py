"""The thread that owns the sockets, and sends and receives while the agent computes."""

import math
import os
import threading
import time
from dataclasses import replace

from gradslide.network.peers.errors import Differences, describe, short
from gradslide.network.peers.handshake import Handshake, read_handshake
from gradslide.network.peers.peer import AGAIN, KNOWN, MUTUAL, UNKNOWN, WAITING, Peer
from gradslide.network.peers.rejection_log import RejectionLog
from gradslide.network.peers.sockets import Arrival, Sockets
from gradslide.network.peers.wire import SESSION_SIZE, Kind, Message, Rejected, decode, encode

_HANDSHAKE_EVERY, _STATUS_EVERY, _ASK_EVERY, _BYE_EVERY = 0.2, 1.0, 0.25, 0.5
_POLL = 0.1
# What a second process with the key of an agent is told.
ANOTHER_PROCESS = "another process with its key"


class IOThread:
    """Sends and receives while the agent computes.

    Everything here is guarded by `changed`, which is notified whenever something arrived from a
    neighbour.

    Attributes
    ----------
    changed : threading.Condition
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
        What ended the thread, if anything did.
    """

    def __init__(
        self, peers: dict[str, Peer], run_id: str, settings: dict[str, str], size_limit: int, rejections: RejectionLog
    ) -> None:
        self.changed = threading.Condition()
        self.peers = peers
        self.round = 0
        self.waiting = False
        self.covered: int | None = None
        self.goodbye: str | None = None
        self.error: BaseException | None = None
        self.rejections = rejections
        self.failure = ""
        self.has_begun = False
        self._settings = settings
        self._run_id = run_id
        self._size_limit = size_limit
        self._session = os.urandom(SESSION_SIZE)
        self._ending = False
        self._sockets: Sockets
        self._thread = threading.Thread(target=self._run, name="gradslide-peers", daemon=True)

    def start(self, sockets: Sockets) -> None:
        """Take over the sockets and begin."""
        self._sockets = sockets
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the sockets."""
        with self.changed:
            self._ending = True
            self.wake()
        self._thread.join()

    def wake(self) -> None:
        """There is something to do."""
        self._sockets.wake()

    def array_frame(self, peer: Peer, round: int, array: object) -> bytes:
        """An array of a round as it is sent and cached."""
        return encode(Message(Kind.DATA, self._session, round, content=array), peer.outgoing)

    def report(self, name: str | None, reason: str) -> None:
        """Something was rejected: log it, and remember it for the error that it may lead to."""
        with self.changed:
            self.rejections.add(f"neighbour {name}" if name else RejectionLog.UNKNOWN, reason)
            if name:
                self.peers[name].trouble = reason

    def _run(self) -> None:
        try:
            while not self._ending:
                self._sockets.wait(_POLL)
                with self.changed:
                    for arrival in self._sockets.receive():
                        self._handle(arrival)
                    self._tick()
                    self.changed.notify_all()
            with self.changed:
                for peer in self.peers.values():
                    if peer.stage != UNKNOWN and not self.failure:
                        self._send(peer, Kind.BYE, self.round, content=self.goodbye or "")
                    elif peer.differences or self.failure:
                        self._send_handshake(peer, time.monotonic())
        except BaseException as error:
            self.error = error
        finally:
            with self.changed:
                self.rejections.close()
                self.changed.notify_all()
                # With the lock: the agent may be about to send.
                self._sockets.close()

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
        reason = ANOTHER_PROCESS + (f": {describe(differences)}" if differences else "")
        if peer.trouble != reason:
            self.report(peer.name, reason)

    def _answer_handshake(self, peer: Peer, message: Message, handshake: Handshake, now: float) -> None:
        peer.offered, peer.echoes = message.session, handshake.echo == self._session
        is_refused = handshake.failure == ANOTHER_PROCESS and peer.echoes
        peer.refused_since = min(peer.refused_since, now) if is_refused else math.inf
        peer.refused_for = now - peer.refused_since
        if handshake.failure or self._failure_for(peer):
            self._note_failure(peer, handshake)
            if now - peer.handshake_sent >= _HANDSHAKE_EVERY:
                self._send_handshake(peer, now)
            return
        differences = self._handshake(peer).differences(handshake)
        if differences:
            if peer.differences != differences:
                self.report(peer.name, describe(differences))
            peer.differences = differences
        elif peer.echoes:
            if message.session != peer.session:
                peer.begin(message, handshake, self.round)
            if message.flags >= KNOWN:
                peer.stage = MUTUAL
        if message.flags < MUTUAL and (not differences or now - peer.handshake_sent >= _HANDSHAKE_EVERY):
            self._send_handshake(peer, now)

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
            self._send_arrays(peer)
            self._acknowledge(peer)
            self._send_status(peer, now)
        self.rejections.tick()

    def send_arrays(self) -> None:
        """Send what is due at once, and leave the rest to the thread. Call it with the lock held."""
        for peer in self.peers.values():
            if peer.stage == MUTUAL:
                self._send_arrays(peer)
        if any(peer.tells or peer.stage != MUTUAL or peer.due() is not None for peer in self.peers.values()):
            self.wake()

    def _send_arrays(self, peer: Peer) -> None:
        while (frame := peer.due()) is not None and self._sockets.send(peer.name, frame):
            peer.cursor += 1

    def _awaits(self, peer: Peer) -> bool:
        return self.waiting and self.round not in peer.inbox

    def _handshake(self, peer: Peer) -> Handshake:
        return Handshake(self._run_id, self._settings, peer.offered, self.covered, self._failure_for(peer))

    def _send_handshake(self, peer: Peer, now: float) -> None:
        if self._send(peer, Kind.HANDSHAKE, self.round, peer.offered_stage(), self._handshake(peer).text()):
            peer.handshake_sent = now

    def _send_status(self, peer: Peer, now: float) -> None:
        since = now - peer.status_sent
        every = _STATUS_EVERY if self.goodbye is None else _BYE_EVERY
        if not (peer.tells or since >= every or (peer.asks_again and since >= _ASK_EVERY)):
            return
        peer.status_sent = now
        flags = WAITING * self.waiting | AGAIN * peer.asks_again
        if self.goodbye is None:
            sent = self._send(peer, Kind.STATUS, self.round, flags)
        else:
            sent = self._send(peer, Kind.BYE, self.round, content=self.goodbye)
        if sent:
            if peer.asks_again:
                peer.repeats_before = max(peer.repeats_before, peer.lacks(self.round) + 2)
            peer.tells = peer.asks_again = False

    def _acknowledge(self, peer: Peer) -> None:
        if self.covered is not None and peer.told < self.covered and self._send(peer, Kind.ACK, self.covered):
            peer.told = self.covered

    def _send(self, peer: Peer, kind: Kind, round: int, flags: int = 0, content: str = "") -> bool:
        need = 0 if kind is Kind.ACK else peer.lacks(self.round)
        message = Message(kind, self._session, round, need, flags, content)
        return self._sockets.send(peer.name, encode(message, peer.outgoing))


def _of_another_start(message: Message) -> Rejected:
    return Rejected(f"a {message.kind.name} of another start of its process")
