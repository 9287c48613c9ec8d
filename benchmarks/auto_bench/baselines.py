"""The baselines, their grids of parameters, and the construction of a method from grid parameters."""

import math
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import gradslide as gs
from auto_bench import problems
from gradslide.graphs.chebyshev import fast_mix_exchanges

# Multiples of the default step, or of the parameter by which a method is tuned. Values that are often best come first,
# so that others can be ended early.
FACTORS = (4.0, 8.0, 2.0, 16.0, 1.0)
# The best step of these methods is close to divergence; factors of 2 miss it by a third.
FINE_FACTORS = (4.0, 8.0, 2.0, 6.0, 3.0, 1.0, 12.0)
# Multiples of L, for methods that converge in practice beyond the theoretical bound on their step.
L_FACTORS = (0.25, 1.0)
SLIDING_L = (0.25, 1 / 16, 1.0)
SLIDING_R = tuple(float(R) for R in np.geomspace(0.01, 10.0, 7))
# Relative error of ADMM's local problems; the default of 1e-9 takes far more gradients.
ADMM_TOLERANCE = 1e-2

Parameters = dict[str, Any]


def grid(problem: str, network: str, data_dir: Path | None) -> Iterator[tuple[str, str, Parameters]]:
    """Yield (group, method, parameters) of every run.

    "factor" multiplies the parameter by which the method is tuned, "L_factor" its L. Groups: "core" are the methods
    for constrained problems, "other" the rest, "sliding" is PDS, "exact" L-BFGS over exact sums. DGD is not included:
    with a constant step it does not converge to the optimum, with decreasing steps it takes thousands of gradients.
    """
    constrained = problem in problems.CONSTRAINED
    if problem != "box per agent":
        yield "exact", "LBFGS", {}
    for K, restart, factor in product(_exchanges(network, data_dir), (True, False), FACTORS):
        if problem != "box per agent":
            yield "core", "AcceleratedTracking", {"K": K, "restart": restart, "factor": factor}
    for method, mixing, factor in product(("NIDS", "EXTRA"), ({}, {"mixing": "best_constant"}), FINE_FACTORS):
        yield "core", method, {**mixing, "factor": factor}
    if problem != "box per agent":
        for factor in FACTORS:
            yield "other", "GradientTracking", {"factor": factor}
    if "mu=" in problem:
        for factor in FACTORS:
            yield "other", "OPAPC", {"factor": factor}
    for method, L_factor, factor in product(("CondatVu",) if constrained else ("CondatVu", "DLM"), L_FACTORS, FACTORS):
        yield "other", method, {"L_factor": L_factor, "factor": factor}
    for factor in FACTORS:
        yield "other", "ADMM", {"tolerance": ADMM_TOLERANCE, "factor": factor}
    for L_factor, R in product(SLIDING_L, SLIDING_R):
        yield "sliding" if constrained else "other", "PDS", {"L_factor": L_factor, "R": R}


def _exchanges(network: str, data_dir: Path | None) -> list[int]:
    """Return values of K for accelerated tracking: small ones, and multiples of ceil(sqrt(chi))."""
    root = fast_mix_exchanges(gs.mixing.metropolis(problems.graph(network, data_dir)).lazy.second)
    return sorted({1, 2, 3, math.ceil(root / 2), root, 2 * root})


def make(method: str, parameters: Parameters, problem: str, network: str, data_dir: Path | None) -> Any:
    """Return the method with these parameters; multiples are replaced by values."""
    kind, given = getattr(gs, method), dict(parameters)
    for name in ("L", "first_L"):
        if (multiple := given.pop(f"{name}_factor", None)) is not None:
            given[name] = multiple * float(np.max(problems.case(problem, data_dir).problem.smoothness()))
    if (factor := given.pop("factor", None)) is not None:
        given[kind.tuned] = factor * _default(method, given.get("L"), problem, network, data_dir)
    return kind(**given)


@cache
def _default(method: str, L: float | None, problem: str, network: str, data_dir: Path | None) -> float:
    """Return the default value of the parameter by which a method is tuned."""
    kind = getattr(gs, method)
    chosen = kind() if L is None else kind(L=L)
    graph, stop = problems.graph(network, data_dir), gs.Stop(iterations=1)
    solution = gs.solve(problems.case(problem, data_dir).problem, graph, chosen, stop=stop)
    return float(solution.parameters[kind.tuned])
