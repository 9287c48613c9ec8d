"""The runs of `gradslide reproduce complexity`: PDS to an eps-solution, and SPDS to an expected
one.

An eps-solution has f(x_bar) - f* <= eps and ||A x_bar|| <= eps, f the sum of the agents' own
f_i(x_bar_i). The agents need not agree at x_bar, so f(x_bar) may be far below f*: a "two-sided"
eps-solution has |f(x_bar) - f*| <= eps too.
"""

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gradslide._support.types import Array
from gradslide.engine.stopping import Stop
from gradslide.experiments.parallel.pool import solved
from gradslide.experiments.reproduce.complexity.problem import COUPLING, Known, Setting, known, optimum_of, problem_of
from gradslide.experiments.reproduce.paper import Data, Net
from gradslide.methods import PDS, SPDS
from gradslide.oracles import Noise, WithReplacement, estimate_sigma
from gradslide.results.history import Record
from gradslide.theory import guarantees
from gradslide.theory.schedules import ONE_STAGE, Schedule, theorem_1

KINDS = ("one-sided", "two-sided")
# More outer iterations than any schedule needs.
_LONGEST = 10**9


# Only the end of a run is looked at.
_NEVER = 10**9


@dataclass(frozen=True)
class ExactTask:
    """A run of PDS down to the finest accuracy."""

    data: Data
    setting: Setting
    net: Net
    accuracies: tuple[float, ...]
    beyond: float
    iterations: int
    rounds: int

    @property
    def label(self) -> str:
        return f"PDS, {self.setting.name}, {self.net.name}"


def perform_exact(task: ExactTask) -> dict[str, Any]:
    """Counts and bounds, of each kind of eps-solution: one entry per accuracy, None where it was
    not reached.
    """
    it = known(task.data, task.setting, task.net)
    R = guarantees.theory_R(V=it.V, z_star=it.z_star)
    counted = _AccuracyCounts(it, task.accuracies[-1], task.beyond)
    solution = solved(
        it.problem,
        it.graph,
        PDS(L=it.L, R=R, coupling=COUPLING, growth=ONE_STAGE),
        stop=Stop(iterations=task.iterations, rounds=task.rounds),
        output="average",
        callback=counted,
    )
    schedule = theorem_1(**{name: float(value) for name, value in solution.parameters.items()})
    eps = [accuracy * it.scale for accuracy in task.accuracies]
    return {
        **it.facts,
        "R": R,
        "A_norm": schedule.A_norm,
        "Delta": None if math.isinf(schedule.Delta) else int(schedule.Delta),
        # What a tenfold accuracy takes past Delta.
        "per_decade": math.log(10) / -math.log(schedule.row(int(schedule.Delta) + 1).lam) if schedule.mu > 0 else None,
        "iterations": solution.history[-1].iteration,
        "eps": eps,
        "counts": {kind: counted.counts(task.accuracies, kind) for kind in KINDS},
        "bounds": {kind: bounds(schedule, eps, V=it.V, z_star=it.z_star, kind=kind) for kind in KINDS},
    }


class _AccuracyCounts:
    """Follows a run; ends it when the finest accuracy, two-sided, has been kept `beyond` times as
    long as it took.
    """

    def __init__(self, of: Known, finest: float, beyond: float) -> None:
        self._of, self._finest, self._beyond = of, finest, beyond
        self._spent: list[tuple[int, int]] = []
        self._errors: list[tuple[float, float]] = []
        self._end: int | None = None

    def __call__(self, record: Record, x: Array) -> bool:
        self._spent.append((record.gradients, record.rounds))
        self._errors.append(self._of.errors(record))
        if max(map(abs, self._errors[-1])) > self._finest:
            self._end = None
        elif self._end is None:
            self._end = math.ceil(self._beyond * record.iteration)
        return self._end is not None and record.iteration >= self._end

    def counts(self, accuracies: Sequence[float], kind: str) -> list[dict[str, int] | None]:
        """From where on each accuracy is kept to the end of the run."""
        errors = np.array(self._errors)
        worst = np.max(np.abs(errors) if kind == "two-sided" else errors, axis=1)
        starts = [int(np.max(np.flatnonzero(worst > accuracy), initial=-1)) + 1 for accuracy in accuracies]
        return [
            dict(zip(("gradients", "rounds"), self._spent[start], strict=True)) if start < len(worst) else None
            for start in starts
        ]


def bounds(schedule: Schedule, eps: Sequence[float], *, V: float, z_star: float, kind: str) -> list[dict[str, int]]:
    """What Theorem 1 allows for each eps; for a two-sided one Proposition 1, which it follows from.

    f(x_bar) - f* >= -||z*|| ||A x_bar||, and for ||z|| > ||z*|| the Lagrangian's bound at z is one
    on (||z|| - ||z*||)
    ||A x_bar|| too: z of length 2 ||z*|| gives f(x_bar) - f* from below.
    """
    first, z = schedule.row(1), max(2 * z_star, z_star + 1)
    within = range(1, int(min(_LONGEST, schedule.stage_length)) + 1)

    def iterations(wanted: float) -> int:
        if kind == "one-sided":
            return guarantees.iterations(wanted, schedule, V=V, z_star=z_star)
        kept = bisect.bisect_left(
            within, True, key=lambda k: guarantees.lagrangian(first, schedule.row(k), V=V, z=z) <= wanted
        )
        return within[kept]

    N = [iterations(each) for each in eps]
    rounds = list(itertools.accumulate(schedule.row(k).T for k in range(1, max(N) + 1)))
    return [{"gradients": n, "rounds": rounds[n - 1]} for n in N]


@dataclass(frozen=True)
class SampledTask:
    """Runs of SPDS to one accuracy, one per seed."""

    data: Data
    setting: Setting
    net: Net
    accuracy: float
    seeds: tuple[int, ...]
    sampler: str

    @property
    def label(self) -> str:
        return f"SPDS, {self.setting.name}, to {self.accuracy:g} with {self.sampler}"


def perform_sampled(task: SampledTask) -> dict[str, Any]:
    """What was spent, and errors relative to the optimum: one per seed."""
    it = known(task.data, task.setting, task.net)
    sigma, distance = sigma_of(task.data, task.setting), math.sqrt(2 * it.V)
    eps = task.accuracy * it.scale
    found = [
        solved(
            it.problem,
            it.graph,
            SPDS(
                eps=eps,
                L=it.L,
                R=(it.z_star + 1) / (4 * distance),
                sigma=sigma,
                distance=distance,
                coupling=COUPLING,
                oracle=WithReplacement() if task.sampler == "rows" else Noise(sigma),
                seed=seed,
            ),
            output="average",
            record_every=_NEVER,
        )
        for seed in task.seeds
    ]
    # The same for all seeds.
    costs = found[0].costs
    used: dict[str, Any] = {name: value for name, value in found[0].parameters.items() if name != "sigma"}
    bound = guarantees.spds(**used, sigma=sigma, m=it.problem.m, V=it.V, z_star=it.z_star)
    errors = [it.errors(solution.history[-1]) for solution in found]
    noise = it.problem.m * (sigma * distance) ** 2
    return {
        **it.facts,
        "sigma": sigma,
        "distance": distance,
        "eps": eps,
        "N": used["N"],
        "c": used["c"],
        "samples": costs.samples,
        "rounds": costs.rounds,
        "objective": [objective for objective, _ in errors],
        "residual": [residual for _, residual in errors],
        "objective_bound": bound.objective / it.scale,
        "residual_bound": bound.residual / it.scale,
        # Theorem 2 a), corrected; b) names no constant.
        "samples_bound": None if task.setting.mu > 0 else used["N"] + 1352 * noise / eps**2,
    }


@lru_cache(maxsize=4)
def sigma_of(data: Data, setting: Setting) -> float:
    """Of one sampled row: at x_0 or at x*, where it is larger."""
    problem, optimum = problem_of(data, setting), optimum_of(data, setting)
    return max(estimate_sigma(problem, x) for x in (None, optimum.x))
