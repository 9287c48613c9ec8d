"""When a run ends: targets that must all hold, limits of which any one ends it."""

import math
from dataclasses import dataclass, fields, replace

from gradslide._support.errors import InputError, require, require_number
from gradslide.engine.wishes import Wish
from gradslide.results.certificate import KKT
from gradslide.results.costs import Costs
from gradslide.results.history import Record
from gradslide.results.status import Status

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

    def own_limit(self, costs: Costs, seconds: float) -> Wish:
        """Which limit this process has reached, of those that not all reach alike."""
        if self.seconds is not None and seconds >= self.seconds:
            return Wish.TIME
        return Wish.GRADIENTS if _is_spent(self.gradients, costs.gradients) else Wish.NONE

    def exhausted(self, iteration: int, costs: Costs, told: Wish) -> Status | None:
        """The limit that has been reached, if any; told: the most urgent wish of all processes."""
        reached = {
            Status.ITERATION_LIMIT: _is_spent(self.iterations, iteration),
            Status.GRADIENT_LIMIT: told is Wish.GRADIENTS,
            Status.SAMPLE_LIMIT: _is_spent(self.samples, costs.samples),
            Status.ROUND_LIMIT: _is_spent(self.rounds, costs.rounds),
            Status.PRODUCT_LIMIT: _is_spent(self.operator_products, costs.operator_products),
            Status.TIME_LIMIT: told is Wish.TIME,
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
