"""Decisions that end a run on a network: taken now and then, on what all agents know alike, and counted."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from gradslide._support.types import Array
from gradslide.engine.stop import Stop
from gradslide.results.certificate import KKT, Certificate
from gradslide.results.history import History, Record
from gradslide.theory.proof import Evidence, Examiner

# Earlier nothing is near its targets, and every check costs control rounds.
_FIRST = 5
_SHARE = 0.5
# Nothing is small relative to an optimum that is 0: less than this share of the objective at the start is as good.
_AS_GOOD_AS_NOTHING = 1e-9


@dataclass(frozen=True)
class Check:
    """What all agents knew alike after an outer iteration; lower: the best bound of all checks so far."""

    iteration: int
    mean_norm: float
    lower: float | None
    upper: float | None
    apart: float | None
    kkt: KKT | None

    def judged(self, record: Record) -> Record:
        """The record with what was agreed on in the place of what was observed."""
        record = replace(record, mean_norm=self.mean_norm, disagreement=self.apart)
        if self.lower is None or self.upper is None:
            return record
        return replace(record, objective=self.upper, lower=self.lower, gap=self.upper - self.lower)


class Checks:
    """Asks the agents whether the targets hold, where iterations have grown by about a half since they did."""

    def __init__(self, stop: Stop, examiner: Examiner, start: Array, *, finds_apart: bool = False) -> None:
        """start: x_0. finds_apart: always find out how far apart the agents are, since nobody else does."""
        self._stop, self._examiner, self._start, self._finds_apart = stop, examiner, start, finds_apart
        self._lower = -math.inf
        self._first: float | None = None
        self.last: Check | None = None

    def is_due(self, iteration: int) -> bool:
        return iteration >= _FIRST and has_grown(iteration, _SHARE)

    def take(self, iteration: int, x: Array, evidence: Sequence[Evidence]) -> None:
        stop = self._stop
        apart = stop.disagreement is not None or self._finds_apart
        asked = {"gap": stop.gap is not None, "apart": apart, "kkt": stop.kkt is not None}
        first = self._examiner.first_values(self._start) if asked["gap"] and self._first is None else None
        found = self._examiner.examine(x, evidence, **asked, start=self._start, also=first)
        self._first = self._first if found.also is None else found.also
        if found.lower is not None:
            self._lower = max(self._lower, found.lower)
        self.last = Check(
            iteration=iteration,
            mean_norm=float(np.linalg.norm(found.mean)),
            lower=None if found.lower is None else self._lower,
            upper=found.upper,
            apart=found.apart,
            kkt=found.kkt,
        )

    def taken(self, iteration: int) -> bool:
        """Whether there was a check after this iteration."""
        return self.last is not None and self.last.iteration == iteration

    def hold(self, record: Record) -> bool:
        """Whether all targets held after the record's iteration; it gives those that nobody needs to agree on."""
        last, least = self.last, _AS_GOOD_AS_NOTHING * abs(self._first or 0.0)
        if last is None or not self.taken(record.iteration):
            return False
        return self._stop.reached(last.judged(record), last.kkt, least)

    def seen(self, record: Record) -> Record:
        """The record with what the agents know of its iteration."""
        return record if self.last is None or not self.taken(record.iteration) else self.last.judged(record)

    @property
    def certificate(self) -> Certificate | None:
        """What the last check proved, if it did."""
        last = self.last
        if last is None or last.lower is None or last.upper is None or last.apart is None:
            return None
        return Certificate(last.lower, last.upper, last.apart)

    def memory(self) -> Any:
        last = None if self.last is None else asdict(self.last)
        return {"lower": self._lower, "first": self._first, "scale": self._examiner.scale, "last": last}

    def recall(self, memory: Any) -> None:
        self._lower, self._examiner.scale = memory["lower"], memory["scale"]
        self._first = memory.get("first")
        last = memory["last"]
        kkt = None if last is None or last["kkt"] is None else KKT(**last["kkt"])
        self.last = None if last is None else Check(**{**last, "kkt": kkt})


def has_doubled(history: History) -> bool:
    """Whether the iterations have passed a power of 2 since the record before the last."""
    before = history[-2].iteration if len(history) > 1 else 0
    return history[-1].iteration.bit_length() > before.bit_length()


def has_grown(iteration: int, share: float) -> bool:
    """Whether the iterations have just passed another step of a ladder whose steps grow by this share."""
    step = math.log1p(share)
    return math.floor(math.log(iteration) / step) > math.floor(math.log(max(1, iteration - 1)) / step)
