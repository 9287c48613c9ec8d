"""When a run ends: targets, limits, the checks that agents take, and control signals."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from enum import IntEnum
from typing import Any

import numpy as np

from gradslide._support.errors import InputError, require, require_number
from gradslide._support.types import Array
from gradslide.results.certificate import KKT, Certificate
from gradslide.results.costs import Costs
from gradslide.results.history import History, Record
from gradslide.results.status import Status
from gradslide.theory.certificates import CertificateEvaluator, DualEvidence


class Signal(IntEnum):
    """SAVE: write checkpoints. INTERRUPT: Ctrl-C. GRADIENTS, TIME: their limits, which not all processes reach alike.
    STOP: a callback. DIVERGED: values overflowed."""

    NONE = 0
    SAVE = 1
    INTERRUPT = 2
    GRADIENTS = 3
    TIME = 4
    STOP = 5
    DIVERGED = 6


# No mixing brings agents closer by such a factor.
_BEYOND_REACH = 1e100
TARGETS = ("objective", "residual", "disagreement", "gap", "kkt")


@dataclass(frozen=True)
class Relative:
    """A target relative to a scale.

    objective: objective <= to + value |to|, where `to` is the optimum, or an estimate of it. disagreement: <=
    value * to, by default to = ||mean||. residual: <= value * to, by default to = sqrt(m) ||mean||, or the larger of
    ||A x|| and the nearest allowed value of A x, or ||A|| ||x|| where that is 0. gap: <= value * to, by default to =
    |objective|, or a billionth of that at the start, where a method has taken its value: an optimum may be 0. kkt: <=
    value * to, by default to = the stationarity at the start, and ||mean|| for the consensus.
    """

    value: float
    to: float | None = None

    def __post_init__(self) -> None:
        require_number("a relative target", self.value, "for example Relative(1e-3)", above=0)
        if self.to is not None:
            require_number("what a target is relative to", self.to, "for example Relative(1e-3, to=optimum)")


Target = float | Relative | None


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Targets (all must hold) and limits (any ends the run).

    objective: a level for the sum of all f_i at the mean of the agents, not an error (for an error, give
    Relative(1e-3, to=optimum)); of saddle point problems, for the maximum over z. residual: ||A x||, or how far A x is
    from where it must be. disagreement: max_i ||x_i - mean||. gap: certified optimality gap; its absolute value counts.
    kkt: stationarity and consensus of `solution.kkt`, on a network; no certificate. Each is a number or a `Relative`.
    They look at all agents, which costs nothing here and steers nothing but the end of the run: where the objective is
    low enough and only residual or disagreement are not, a method with last steps (AutoPDS mixes its answers) ends with
    as many as it takes, which limits do not cut short. On a network with gap or kkt the agents decide by themselves:
    all targets are looked at where the outer iterations have grown by a half, and at the end, with control rounds, and
    one value (gap) or gradient (kkt, two at first), which are counted. Targets without a limit may never be reached:
    give one as well.
    iterations: outer iterations; gradients, samples, rounds: per agent; operator_products: with A and
    A^T together; seconds: in the method, metrics not counted.
    """

    objective: Target = None
    residual: Target = None
    disagreement: Target = None
    gap: Target = None
    kkt: Target = None
    iterations: int | None = None
    gradients: int | None = None
    samples: int | None = None
    rounds: int | None = None
    operator_products: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if not self.given:
            raise InputError("a Stop needs a target or a limit", "none", "for example Stop(iterations=1000)")
        for name in ("iterations", "gradients", "samples", "rounds", "operator_products", "seconds"):
            limit = getattr(self, name)
            if limit is not None:
                require_number(name, limit, f"or leave {name} out", above=0, whole=name != "seconds")
        for name in TARGETS:
            target = getattr(self, name)
            if target is not None and not isinstance(target, Relative):
                least_above = -math.inf if name == "objective" else 0.0
                require_number(name, target, "or give a Relative", above=least_above)
        if isinstance(self.objective, Relative):
            require(
                self.objective.to is not None,
                "a relative objective needs a value to be relative to",
                self.objective,
                "give Relative(1e-3, to=optimum)",
            )

    @property
    def given(self) -> set[str]:
        """The names of the targets and limits that were given."""
        return {field.name for field in fields(self) if getattr(self, field.name) is not None}

    @property
    def has_targets(self) -> bool:
        return not self.given.isdisjoint(TARGETS)

    @property
    def observes(self) -> bool:
        """Whether a target can only be seen from outside."""
        return not self.given.isdisjoint({"objective", "residual"})

    def reached(self, record: Record, kkt: KKT | None = None, least: float = 0.0) -> bool:
        """Whether every target holds at this record, and these residuals. least: what a relative gap is relative to
        where the objective is smaller."""
        checks = (
            (record.objective, _objective_target(self.objective)),
            (record.residual, _scaled(self.residual, record.residual_scale)),
            (record.disagreement, _scaled(self.disagreement, record.mean_norm)),
            (
                None if record.gap is None else abs(record.gap),
                _scaled(self.gap, max(least, abs(record.objective or 0.0))),
            ),
            (None if kkt is None else kkt.stationarity, _scaled(self.kkt, 0.0 if kkt is None else kkt.scale)),
            (None if kkt is None else kkt.consensus, _scaled(self.kkt, record.mean_norm)),
        )
        wanted = [(measured, target) for measured, target in checks if target is not None]
        return bool(wanted) and all(measured is not None and measured <= target for measured, target in wanted)

    def apart(self, record: Record) -> float | None:
        """By what factor the agents would have to come closer for all targets to hold, the others standing as they do;
        None where that is not all, or no objective was asked for."""
        if self.objective is None or self.gap is not None or self.kkt is not None:
            return None
        pairs = (
            (record.residual, _scaled(self.residual, record.residual_scale)),
            (record.disagreement, _scaled(self.disagreement, record.mean_norm)),
        )
        if not replace(self, residual=None, disagreement=None).reached(record):
            return None
        ratios = [measured / target for measured, target in pairs if target and measured is not None]
        worst = max(ratios, default=math.inf)
        return worst if worst < _BEYOND_REACH else None

    def own_limit(self, costs: Costs, seconds: float) -> Signal:
        """Which limit this process has reached, of those that not all reach alike."""
        if self.seconds is not None and seconds >= self.seconds:
            return Signal.TIME
        return Signal.GRADIENTS if _is_spent(self.gradients, costs.gradients) else Signal.NONE

    def exhausted(self, iteration: int, costs: Costs, told: Signal) -> Status | None:
        """The limit that has been reached, if any; told: the most urgent signal of all processes."""
        reached = {
            Status.ITERATION_LIMIT: _is_spent(self.iterations, iteration),
            Status.GRADIENT_LIMIT: told is Signal.GRADIENTS,
            Status.SAMPLE_LIMIT: _is_spent(self.samples, costs.samples),
            Status.ROUND_LIMIT: _is_spent(self.rounds, costs.rounds),
            Status.PRODUCT_LIMIT: _is_spent(self.operator_products, costs.operator_products),
            Status.TIME_LIMIT: told is Signal.TIME,
        }
        return next((status for status, is_reached in reached.items() if is_reached), None)


def _is_spent(limit: int | None, spent: int) -> bool:
    return limit is not None and spent >= limit


def _objective_target(target: Target) -> float | None:
    if isinstance(target, Relative):
        assert target.to is not None
        return target.to + target.value * abs(target.to)
    return target


def _scaled(target: Target, scale: float) -> float | None:
    if isinstance(target, Relative):
        return target.value * (scale if target.to is None else target.to)
    return target


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

    def __init__(self, stop: Stop, evaluator: CertificateEvaluator, start: Array, *, finds_apart: bool = False) -> None:
        """start: x_0. finds_apart: always find out how far apart the agents are, since nobody else does."""
        self._stop, self._evaluator, self._start, self._finds_apart = stop, evaluator, start, finds_apart
        self._lower = -math.inf
        self._first: float | None = None
        self.last: Check | None = None

    def is_due(self, iteration: int) -> bool:
        return iteration >= _FIRST and has_grown(iteration, _SHARE)

    def take(self, iteration: int, x: Array, evidence: Sequence[DualEvidence]) -> None:
        stop = self._stop
        apart = stop.disagreement is not None or self._finds_apart
        asked = {"gap": stop.gap is not None, "apart": apart, "kkt": stop.kkt is not None}
        first = self._evaluator.first_values(self._start) if asked["gap"] and self._first is None else None
        found = self._evaluator.examine(x, evidence, **asked, start=self._start, also=first)
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
        return {"lower": self._lower, "first": self._first, "scale": self._evaluator.scale, "last": last}

    def recall(self, memory: Any) -> None:
        self._lower, self._evaluator.scale = memory["lower"], memory["scale"]
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
