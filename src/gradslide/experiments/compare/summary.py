"""From outcomes to lines that can be held against each other: medians over seeds, best steps,
winners.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from gradslide.experiments.catalogue import OURS
from gradslide.experiments.compare.run import Compared
from gradslide.experiments.compare.task import Outcome


@dataclass(frozen=True)
class Spent:
    """What an accuracy took.

    work: gradients per agent; a sample counts as a row's share of one. rounds: all exchanges,
    control rounds included: an exchange takes its time, however little is said. seconds: by clock.
    """

    work: float
    rounds: float
    floats: float
    seconds: dict[str, float]


@dataclass(frozen=True)
class Line:
    """A method at one multiple of its default (None: the default itself) on one block, over all
    seeds.

    is_best: the best of the grid, the default included. reached: per accuracy, medians over the
    seeds, where one that never got there counts as infinitely much; None for an infinite median.
    error, disagreement: medians at the end. kind: as in `Outcome`, of the worst seed.
    """

    method: str
    is_ours: bool
    factor: float | None
    is_best: bool
    kind: str
    status: str
    message: str
    warned: bool
    reached: list[Spent | None]
    error: float
    disagreement: float
    curve: dict[str, list[Any]]

    @property
    def accuracies_reached(self) -> int:
        return sum(spent is not None for spent in self.reached)

    @property
    def label(self) -> str:
        if not self.is_best:
            return self.method
        return f"{self.method}, default is best" if self.factor is None else f"{self.method}, {self.factor:g} x default"


@dataclass(frozen=True)
class Block:
    """All lines on one problem, network and condition: each method's default, and its best step
    where one was looked for."""

    problem: str
    network: str
    condition: str
    accuracies: list[float]
    lines: list[Line]

    @property
    def title(self) -> str:
        return f"{self.problem}; {self.network}; {self.condition}"

    def least(self, index: int, cost: Callable[[Spent], float]) -> float:
        """The smallest cost with which any line reached that accuracy."""
        return min((cost(spent) for line in self.lines if (spent := line.reached[index])), default=math.inf)

    def beaten(self, index: int) -> list[tuple[Line, list[Line]]]:
        """Ours, with the baselines that took less of both gradients and rounds, or got there when
        ours did not.
        """
        baselines = [line for line in self.lines if not line.is_ours]
        pairs = [
            (own, [line for line in baselines if _better(line.reached[index], own.reached[index])])
            for own in self.lines
            if own.is_ours
        ]
        return [(own, better) for own, better in pairs if better]


def _better(a: Spent | None, b: Spent | None) -> bool:
    if a is None or b is None:
        return a is not None
    return a.work < b.work and a.rounds < b.rounds


def blocks(compared: Compared) -> list[Block]:
    """In the order of the spec."""
    comparison = compared.comparison
    names = {contender.name: contender for contender in comparison.methods}
    found: dict[tuple[str, str, str], dict[str, dict[float | None, list[Outcome]]]] = {}
    for outcome in compared.outcomes:
        of_method = found.setdefault(outcome.block, {}).setdefault(outcome.method, {})
        of_method.setdefault(outcome.factor, []).append(outcome)
    order = [
        (problem.name, network.name, condition.name)
        for problem in comparison.problems
        for network in comparison.networks
        for condition in comparison.conditions
    ]
    return [
        Block(
            *block,
            accuracies=comparison.accuracies,
            lines=[
                line
                for name, contender in names.items()
                if name in found[block]
                for line in _of_method(
                    found[block][name], contender.table.get("name") in OURS, len(comparison.accuracies)
                )
            ],
        )
        for block in order
        if block in found
    ]


def _of_method(by_factor: dict[float | None, list[Outcome]], is_ours: bool, accuracies: int) -> list[Line]:
    """The default, and the best of the grid if there is one."""
    lines = {factor: _line(outcomes, is_ours, accuracies) for factor, outcomes in by_factor.items()}
    if len(lines) == 1:
        return list(lines.values())
    best = min(lines, key=lambda factor: _rank(lines[factor]))
    chosen = replace(lines[best], is_best=True)
    return [chosen] if best is None else [lines[None], chosen]


def _rank(line: Line) -> tuple[float, ...]:
    """Most accuracies first, then the least work at the finest of them, then the fewest rounds,
    then the error.
    """
    finest = next((spent for spent in reversed(line.reached) if spent), None)
    error = line.error if math.isfinite(line.error) else math.inf
    if finest is None:
        return 0, math.inf, math.inf, error
    return -line.accuracies_reached, finest.work, finest.rounds, error


def _line(outcomes: Sequence[Outcome], is_ours: bool, accuracies: int) -> Line:
    first = outcomes[0]
    worst = next((outcome for outcome in outcomes if outcome.kind != "done"), None)
    diverged = next((outcome for outcome in outcomes if outcome.status == "DIVERGED"), None)
    shown = worst or diverged or first
    return Line(
        method=first.method,
        is_ours=is_ours,
        factor=first.factor,
        is_best=False,
        kind=shown.kind,
        status=shown.status,
        message=shown.message,
        warned=any(outcome.warnings for outcome in outcomes),
        reached=[None if worst else _medians(outcomes, index) for index in range(accuracies)],
        error=_median(math.inf if outcome.error is None else outcome.error for outcome in outcomes),
        disagreement=_median(
            math.inf if outcome.disagreement is None else outcome.disagreement for outcome in outcomes
        ),
        curve=first.curve,
    )


def _medians(outcomes: Sequence[Outcome], index: int) -> Spent | None:
    found = [(spent, outcome.rows or 1) for outcome in outcomes if (spent := outcome.reached[index]) is not None]
    if 2 * len(found) <= len(outcomes):
        return None
    never = [math.inf] * (len(outcomes) - len(found))

    def middle(cost: Callable[[dict[str, Any], float], float]) -> float:
        return _median([*(cost(spent, rows) for spent, rows in found), *never])

    return Spent(
        work=middle(lambda spent, rows: spent["gradients"] + spent["samples"] / rows),
        rounds=middle(lambda spent, rows: spent["rounds"] + spent["control_rounds"]),
        floats=middle(lambda spent, rows: spent["floats_sent"]),
        seconds={clock: middle(_by(clock)) for clock in found[0][0]["simulated_seconds"] or {}},
    )


def _by(clock: str) -> Callable[[dict[str, Any], float], float]:
    return lambda spent, rows: spent["simulated_seconds"][clock]


def _median(values: Iterable[float]) -> float:
    return float(median(values))
