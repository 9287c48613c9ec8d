"""The log of rejected messages and connections: each on a line, but a flood of them as a number."""

import logging
import time
from dataclasses import dataclass

_AT_ONCE, _EVERY_SECONDS = 20, 60.0


@dataclass
class _Account:
    since: float
    logged: int = 0
    suppressed: int = 0
    last: str = ""


class RejectionLog:
    """Warnings about neighbours, and about unknown senders, who are counted together."""

    UNKNOWN = "unknown sender"

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._accounts: dict[str, _Account] = {}

    def add(self, who: str, reason: str) -> None:
        """Log a rejection, or only count it if there were many within the last minute."""
        now = time.monotonic()
        account = self._accounts.setdefault(who, _Account(now))
        if now - account.since > _EVERY_SECONDS:
            self._sum_up(who, account)
            account = self._accounts[who] = _Account(now)
        account.last = reason
        if account.logged < _AT_ONCE:
            account.logged += 1
            self._log.warning("%s: rejected: %s", who, reason)
        else:
            account.suppressed += 1

    def last(self, who: str) -> str:
        """Why something of theirs was rejected last; empty if nothing was."""
        return self._accounts[who].last if who in self._accounts else ""

    def tick(self) -> None:
        """Log what was only counted, when its minute is over."""
        now = time.monotonic()
        for who, account in self._accounts.items():
            if account.suppressed and now - account.since > _EVERY_SECONDS:
                self._sum_up(who, account)

    def close(self) -> None:
        for who, account in self._accounts.items():
            self._sum_up(who, account)

    def _sum_up(self, who: str, account: _Account) -> None:
        if account.suppressed:
            self._log.warning("%s: %d more rejected, at last: %s", who, account.suppressed, account.last)
            account.suppressed = 0
