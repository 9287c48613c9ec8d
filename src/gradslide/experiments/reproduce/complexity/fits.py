"""How counts grow with 1/eps: slopes through what was measured, beside those of the theory."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradslide._support.types import Array
from gradslide.experiments.reproduce.complexity.problem import ComplexitySpec, Setting
from gradslide.experiments.reproduce.complexity.runs import KINDS, ExactTask, SampledTask
from gradslide.experiments.reproduce.report import Statement
from gradslide.experiments.reproduce.slopes import fitted


@dataclass(frozen=True)
class Found:
    """What all runs gave."""

    spec: ComplexitySpec
    exact: Mapping[ExactTask, dict[str, Any]]
    sampled: Mapping[SampledTask, dict[str, Any]]

    def exact_of(self, setting: Setting) -> dict[str, dict[str, Any]]:
        """By network."""
        return {task.net.name: found for task, found in self.exact.items() if task.setting == setting}

    def sampled_of(self, setting: Setting, sampler: str) -> dict[float, dict[str, Any]]:
        """By accuracy, coarse ones first."""
        own = {t.accuracy: found for t, found in self.sampled.items() if (t.setting, t.sampler) == (setting, sampler)}
        return dict(sorted(own.items(), reverse=True))


@dataclass(frozen=True)
class Slope:
    """A slope and its interval of 95 %."""

    slope: float
    low: float
    high: float


@dataclass(frozen=True)
class Growth:
    """How a count grows, of what. line, whole: where lines are fitted, and over the whole ladder;
    None where too little was reached. unit: "" for a power of 1/eps."""

    case: str
    method: str
    network: str
    count: str
    against: str
    line: Slope | None
    whole: Slope | None
    theory: float
    unit: str = ""

    def is_within(self, tolerance: float) -> bool | None:
        return None if self.line is None else self.line.slope <= self.theory * (1 + tolerance)


def power(x: Array, y: Array) -> Slope | None:
    """log y against log x; None where there are too few points."""
    fit = fitted(x, y)
    return None if fit is None else Slope(fit.slope, fit.low, fit.high)


def per_decade(x: Array, y: Array) -> Slope | None:
    """y against log10 x: the power by which exp(y) grows, in other units."""
    # exp(y) itself would overflow.
    scale = float(np.max(y, initial=1.0))
    fit = fitted(x, np.exp(y / scale))
    return None if fit is None else Slope(*(math.log(10) * scale * each for each in (fit.slope, fit.low, fit.high)))


def growths(found: Found) -> list[Growth]:
    return [
        growth
        for setting in found.spec.settings
        for growth in (*_exact_growths(found, setting), *_sampled_growths(found, setting))
    ]


def obtained(run: Mapping[str, Any]) -> float:
    """The two-sided error of runs of SPDS, the mean over their seeds, relative to the optimum."""
    both = [
        max(abs(objective), residual) for objective, residual in zip(run["objective"], run["residual"], strict=True)
    ]
    return float(np.mean(both))


def keeps_to(text: str, kept: list[Growth], tolerance: float) -> Statement:
    """A statement that none grows faster than in theory."""
    slopes = ", ".join("-" if growth.line is None else f"{growth.line.slope:.3g}" for growth in kept)
    findings = [growth.is_within(tolerance) for growth in kept]
    return Statement(f"{text}, within {tolerance:.0%}; fitted: {slopes}", all_of(findings))


def all_of(findings: list[bool | None]) -> bool | None:
    """False where one is, else None where one is."""
    if False in findings:
        return False
    return None if None in findings or not findings else True


def _exact_growths(found: Found, setting: Setting) -> list[Growth]:
    """Up to Delta mu > 0 is as mu = 0: lines are fitted past it."""
    spec, grown = found.spec, []
    for network, run in found.exact_of(setting).items():
        for kind in KINDS:
            counts = zip(spec.accuracies, run["counts"][kind], strict=True)
            reached = {accuracy: count for accuracy, count in counts if count is not None}
            x = 1 / np.array(list(reached))
            gradients, rounds = (
                np.array([count[name] for count in reached.values()], dtype=float) for name in ("gradients", "rounds")
            )
            fine = np.array([spec.is_fitted(accuracy) for accuracy in reached], dtype=bool)
            fine &= gradients > (run["Delta"] or 0)
            told = (setting.name, "PDS", network)
            if setting.mu == 0:
                grown.append(Growth(*told, "gradients", kind, *_both(power, x, gradients, fine), 0.5))
                grown.append(Growth(*told, "rounds", kind, *_both(power, x, rounds, fine), 1.0))
            else:
                lines = _both(per_decade, x, gradients, fine)
                grown.append(Growth(*told, "gradients", kind, *lines, run["per_decade"], "per decade"))
                grown.append(Growth(*told, "rounds", kind, *_both(power, x, rounds, fine), 0.5))
    return grown


def _sampled_growths(found: Found, setting: Setting) -> list[Growth]:
    spec, grown = found.spec, []
    told = (setting.name, "SPDS", spec.nets[0].name)
    theory = {"samples": 2.0, "rounds": 1.0} if setting.mu == 0 else {"samples": 1.0, "rounds": 0.5}
    for sampler in spec.samplers:
        runs = found.sampled_of(setting, sampler)
        fine = np.array([spec.is_sampled_fitted(accuracy) for accuracy in runs], dtype=bool)
        spent = {name: np.array([run[name] for run in runs.values()], dtype=float) for name in theory}
        if sampler == spec.samplers[0]:
            # They are the same for each way of sampling.
            asked = 1 / np.array(list(runs))
            for name in theory:
                lines = _both(power, asked, spent[name], fine)
                grown.append(Growth(*told, name, "asked for", *lines, theory[name]))
        reached = 1 / np.array([obtained(run) for run in runs.values()])
        lines = _both(power, reached, spent["samples"], fine)
        grown.append(Growth(*told, "samples", f"obtained, {sampler}", *lines, theory["samples"]))
    return grown


def _both(
    fit: Callable[[Array, Array], Slope | None], x: Array, y: Array, fine: Array
) -> tuple[Slope | None, Slope | None]:
    """Through the fine ones, and through all."""
    return fit(x[fine], y[fine]), fit(x, y)
