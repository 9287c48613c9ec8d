"""Runs of SPDS with the N, the batch sizes and the R of Theorem 2: what they spend, and the errors that they reach."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gradslide.experiments.parallel.solving import solved
from gradslide.experiments.reproduce.complexity.known import COUPLING, known, optimum_of, problem_of
from gradslide.experiments.reproduce.complexity.spec import Setting
from gradslide.experiments.reproduce.instance import Data
from gradslide.experiments.reproduce.spec import Net
from gradslide.methods import SPDS
from gradslide.oracles import Noise, WithReplacement, estimate_sigma
from gradslide.theory import guarantees

# Only the end of a run is looked at.
_NEVER = 10**9


@dataclass(frozen=True)
class Sampled:
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


def perform_sampled(task: Sampled) -> dict[str, Any]:
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
