"""What was sent to one neighbour and may be asked for again."""

from collections import deque

from gradslide.network.peers.wire import HEADER_SIZE


class Outbox:
    """Frames of consecutive rounds: `first` to `end` - 1. Over the limit (bytes) the oldest are forgotten."""

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
        """Keep the frame of the next round; that of the last one may be given again, and one that nobody needs."""
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
