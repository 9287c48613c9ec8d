"""The hub of the watchdog: a process beside rank 0 that hears the heartbeats of all ranks.

It is no rank, and outside the process groups of ranks: where a launcher answers the death of one
rank with that of all, the hub can still say which one was first, and in which round. It runs as a
script, and imports the standard library only, so that it starts at once.
"""

import hmac
import json
import mmap
import os
import selectors
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

# Seconds that ranks have to leave after a failure report; then those that the hub can reach are killed.
LEAVE = 2.0
# Seconds within which the first rank must come.
JOIN = 15.0


@dataclass(frozen=True)
class FailureReport:
    """Which rank failed, in which round, and how.

    Attributes
    ----------
    rank, round : int
    what : str
        What it did, for example "died".
    exact : bool
        Whether the round is its last, not only that of its last heartbeat.
    hung : bool
        Whether its process may still be there.
    """

    rank: int
    round: int
    what: str
    exact: bool = True
    hung: bool = False

    def __str__(self) -> str:
        where = f"in round {self.round}" + ("" if self.exact else " or later")
        end = "the run ends; resume it from its last checkpoint, if it keeps one"
        return f"error: rank {self.rank} {self.what} {where}; {end}"


class Wire:
    """A TCP connection that carries JSON objects, one a line."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._pending = b""

    def send(self, **message: Any) -> None:
        # A lost connection shows where it is read.
        with suppress(OSError):
            self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]] | None:
        """What has come; None where the connection is closed, or speaks another language."""
        try:
            data = self.socket.recv(65536)
        except (BlockingIOError, TimeoutError):
            return []
        except OSError:
            return None
        *lines, self._pending = (self._pending + data).split(b"\n")
        try:
            messages = [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            return None
        speaks = data and len(self._pending) < 65536 and all(isinstance(message, dict) for message in messages)
        return messages if speaks else None


@dataclass(eq=False)
class Member:
    """What the hub knows of one rank.

    `state` is "running", "failed", "stopped" (its part is over), or "ended" (its process came to
    its end without saying that its part was over).
    """

    wire: Wire
    heard: float
    rank: int = -1
    round: int = 0
    calls: int = 0
    state: str = "running"
    why: str = ""
    shared: bool = False

    def take(self, round: int, calls: int, state: str, why: str) -> None:
        self.round, self.calls, self.state, self.why = round, calls, state, why


class Hub:
    """Hears the heartbeats of all ranks, and decides whether one has failed.

    Parameters
    ----------
    listener : socket.socket
    token : str
        What a rank must show.
    size : int
        Number of ranks.
    timeout : float
        Seconds without a heartbeat after which a rank counts as hung.
    beat : float
        Seconds between heartbeats.
    board : memoryview
        The rounds of ranks that share memory with the hub.
    pids : dict of int to int
        The processes of ranks on this host.
    """

    def __init__(
        self,
        listener: socket.socket,
        token: str,
        size: int,
        timeout: float,
        beat: float,
        board: memoryview,
        pids: dict[int, int],
    ) -> None:
        self._listener = listener
        self._token = token
        self._size = size
        self._timeout = timeout
        self._beat = beat
        self._board = board
        self._pids = pids
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, None)
        self._here: dict[int, Member] = {}
        self._lost: list[Member] = []
        self._last = self._last_heard = self._began = time.monotonic()
        self._clock = self._next_beat = 0.0
        self._leaving: float | None = None
        self._failure = False

    def run(self) -> None:
        """Until all have left."""
        while not self._is_over():
            for key, _ in self._selector.select(self._beat / 2):
                if key.data is None:
                    self._accept()
                else:
                    self._hear(key.data)
            self._pass_time()
            if self._leaving is None:
                self._decide()

    def _is_over(self) -> bool:
        now = time.monotonic()
        if self._leaving is None:
            return not self._here and now - self._began > JOIN
        if self._failure and now - self._leaving > LEAVE:
            for rank in self._here.keys() & self._pids.keys():
                kill(self._pids[rank])
        return not self._here or now - self._leaving > 2 * LEAVE

    def _accept(self) -> None:
        with suppress(OSError):
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ, Member(Wire(connection), self._clock))

    def _hear(self, member: Member) -> None:
        messages = member.wire.receive()
        for message in messages or []:
            if member.rank >= 0:
                member.take(**message)
            elif not self._admit(member, message):
                messages = None
                break
        if messages is None:
            self._lose(member)
        elif member.rank >= 0:
            member.heard = self._clock
            self._last_heard = time.monotonic()

    def _admit(self, member: Member, message: dict[str, Any]) -> bool:
        token, rank = message.get("token"), message.get("rank")
        if not isinstance(token, str) or not hmac.compare_digest(token.encode(), self._token.encode()):
            return False
        if not isinstance(rank, int) or rank not in range(self._size) or rank in self._here:
            return False
        member.rank, member.shared = rank, bool(message.get("shared"))
        self._here[rank] = member
        member.wire.send(welcome=rank)
        return True

    def _lose(self, member: Member) -> None:
        self._selector.unregister(member.wire.socket)
        member.wire.socket.close()
        if self._here.pop(member.rank, None):
            self._lost.append(member)

    def _pass_time(self) -> None:
        """The clock stands still while nobody is heard: a run that was suspended as a whole has not
        failed.
        """
        now = time.monotonic()
        if now - self._last_heard <= 2 * self._beat:
            self._clock += min(now - self._last, 2 * self._beat)
        self._last = now
        if now >= self._next_beat:
            self._next_beat = now + self._beat
            self._tell_all()

    def _tell_all(self, **message: Any) -> None:
        for member in self._here.values():
            member.wire.send(**message)

    def _decide(self) -> None:
        report = self._failure_report()
        if report is not None:
            self._failure = True
            self._tell_all(failure=asdict(report))
            with suppress(OSError):
                os.write(2, f"{report}\n".encode(errors="replace"))
        elif len(self._here) == self._size and all(m.state in ("stopped", "ended") for m in self._here.values()):
            self._tell_all(done=True)
        else:
            return
        self._leaving = time.monotonic()

    def _failure_report(self) -> FailureReport | None:
        """Nobody closes its connection before all are done; what others raise after a death is a
        consequence.
        """
        for member in self._lost:
            if member.state != "failed":
                return self._report_on(member, "died")
        for member in [*self._lost, *self._here.values()]:
            if member.state == "failed":
                return FailureReport(member.rank, member.round, member.why)
        for member in self._here.values():
            if self._clock - member.heard > self._timeout:
                return self._report_on(member, f"gave no sign of life for {self._timeout:g} s", hung=True)
        for member in self._here.values():
            if member.state == "ended" and any(_waits_for(other, member) for other in self._here.values()):
                return FailureReport(member.rank, member.round, "ended before the others")
        return None

    def _report_on(self, member: Member, what: str, hung: bool = False) -> FailureReport:
        at = self._round_of(member)
        others = [other for other in (*self._lost, *self._here.values()) if other is not member]
        if not member.shared and all(other.state == "running" for other in others):
            # Who is in a round has had all that it needs of the round before.
            at = max(at, min((self._round_of(other) for other in others), default=0) - 1)
        return FailureReport(member.rank, at, what, exact=member.shared, hung=hung)

    def _round_of(self, member: Member) -> int:
        return self._board[member.rank] if member.shared else member.round


def _waits_for(other: Member, ended: Member) -> bool:
    """It has entered an exchange that the ended rank can no longer enter."""
    return other.state == "running" and (other.round > ended.round or other.calls > ended.calls)


def kill(pid: int) -> None:
    with suppress(OSError):
        os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))


def open_board(path: str, size: int) -> memoryview:
    """One whole number for each rank, in memory that outlives the process that writes it."""
    with open(path, "r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 8 * size)).cast("q")


def main() -> None:
    given = json.loads(sys.stdin.readline())
    board = open_board(given["board"], given["size"])
    pids = {int(rank): pid for rank, pid in given["pids"].items()}
    with socket.create_server((given["bind"], 0), backlog=given["size"]) as listener:
        listener.setblocking(False)
        print(listener.getsockname()[1], flush=True)
        Hub(listener, given["token"], given["size"], given["timeout"], given["beat"], board, pids).run()


if __name__ == "__main__":
    main()
