"""When a run ends: targets that must all hold, limits of which any one ends it."""

import math
from dataclasses import dataclass, fields

from gradslide.costs import Costs
from gradslide.errors import InputError, require
from gradslide.history import Record
from gradslide.status import Status

TARGETS = ("objective", "residual", "disagreement", "gap")


@dataclass(frozen=True)
class Relative:
    """A target relative to a scale.

    objective: objective <= to + value |to|, where `to` is the optimum, or an estimate of it. disagreement: <=
    value * to, by default to = ||mean||. residual: <= value * to, by default to = sqrt(m) ||mean||.
    """

    value: float
    to: float | None = None

    def __post_init__(self) -> None:
        require(
            math.isfinite(self.value) and self.value > 0,
            "a relative target must be > 0",
            self.value,
            "for example Relative(1e-3)",
        )


Target = float | Relative | None


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Targets (all must hold) and limits (any ends the run).

    objective: sum of all f_i at the mean of the agents. residual: ||A x||. disagreement: max_i ||x_i - mean||.
    gap: certified optimality gap. Each is a number or a `Relative`. They look at all agents, which costs
    nothing here and steers nothing but the end of the run. iterations: outer iterations; gradients, rounds: per
    agent; seconds: in the method, metrics not counted.
    """

    objective: Target = None
    residual: Target = None
    disagreement: Target = None
    gap: Target = None
    iterations: int | None = None
    gradients: int | None = None
    rounds: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if all(getattr(self, field.name) is None for field in fields(self)):
            raise InputError("a Stop needs a target or a limit", "none", "for example Stop(iterations=1000)")
        for name in ("iterations", "gradients", "rounds", "seconds"):
            limit = getattr(self, name)
            require(
                limit is None or limit > 0,
                f"{name} must be > 0",
                limit,
                f"give a positive limit, or leave {name} out",
            )
        for name in TARGETS:
            target = getattr(self, name)
            if name != "objective" and isinstance(target, int | float):
                require(
                    target > 0,
                    f"{name} must be > 0",
                    target,
                    "only a limit reaches exact zero; give a small tolerance",
                )
        if isinstance(self.objective, Relative):
            require(
                self.objective.to is not None,
                "a relative objective needs a value to be relative to",
                self.objective,
                "give Relative(1e-3, to=optimum)",
            )

    @property
    def has_targets(self) -> bool:
        return any(getattr(self, name) is not None for name in TARGETS)

    def reached(self, record: Record, m: int) -> bool:
        """Whether every target holds at this record."""
        scale = record.mean_norm
        checks = (
            (record.objective, _objective_target(self.objective)),
            (record.residual, _scaled(self.residual, math.sqrt(m) * scale)),
            (record.disagreement, _scaled(self.disagreement, scale)),
        )
        wanted = [(measured, target) for measured, target in checks if target is not None]
        return bool(wanted) and all(measured is not None and measured <= target for measured, target in wanted)

    def exhausted(self, iteration: int, costs: Costs) -> Status | None:
        """The limit that has been reached, if any."""
        for limit, spent, status in (
            (self.iterations, iteration, Status.ITERATION_LIMIT),
            (self.gradients, costs.gradients, Status.GRADIENT_LIMIT),
            (self.rounds, costs.rounds, Status.ROUND_LIMIT),
            (self.seconds, costs.seconds, Status.TIME_LIMIT),
        ):
            if limit is not None and spent >= limit:
                return status
        return None


def _objective_target(target: Target) -> float | None:
    if isinstance(target, Relative):
        assert target.to is not None
        return target.to + target.value * abs(target.to)
    return target


def _scaled(target: Target, scale: float) -> float | None:
    if isinstance(target, Relative):
        return target.value * (scale if target.to is None else target.to)
    return target
