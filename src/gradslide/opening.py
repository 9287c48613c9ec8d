"""What a run is opened with: where it takes place, who gives gradients, and by what it is known again."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradslide._random import ForSome
from gradslide.clock import Clock
from gradslide.costs import Costs
from gradslide.methods.base import Context, Method
from gradslide.network import Network
from gradslide.oracles import Oracle, Sampling
from gradslide.problem import Problem
from gradslide.saddle.problem import Saddle
from gradslide.saddle.setting import OnOneMachine
from gradslide.setting import Networked, Setting


def setting_of(
    problem: Problem | Saddle,
    network: Network | None,
    method: Method,
    costs: Costs,
    clock: Clock | Mapping[str, Clock] | None,
) -> Setting:
    if isinstance(problem, Saddle):
        return OnOneMachine(problem, costs)
    assert network is not None
    return Networked(problem, network, getattr(method, "coupling", "incidence"), costs, clock)


def oracle_of(problem: Problem | Saddle, setting: Setting, method: Method, costs: Costs) -> Oracle:
    """The oracle, with the way of sampling that the method has, if it has one."""
    sampling: Sampling | None = getattr(method, "oracle", None)
    sampler = None
    if sampling is not None:
        sampler = sampling.open(problem.loss, setting.network.agents, getattr(method, "seed", 0))
    network = setting.network
    settle = network.settle if network.sees_all else lambda wish: wish
    return Oracle(problem.loss, costs, sampler, setting.timeline, settle)


def identity(context: Context, setting: Setting, method: str, output: str) -> dict[str, Any]:
    """What a checkpoint must have in common with the run that goes on from it, wherever its agents lived."""
    problem, network = context.problem, setting.network
    # Data and sets are told apart by what they do to fixed points, to digits that do not hang on the machine.
    drawn = ForSome([0], network.agents, network.m).random((problem.m, problem.d))
    probe = (4 * drawn - 2).astype(problem.dtype)
    inside, far = problem.domain.prox(probe, 1.0), problem.domain.prox(1e6 * probe, 1.0)
    rows = {
        "domain": np.vecdot(probe, inside),
        "far away": np.vecdot(probe, far),
        "start": np.vecdot(probe, context.x0),
    }
    if context.s0 is not None:
        # Those of one machine are not the agents'.
        whole = np.full(problem.m, float(np.sum(context.s0)) / problem.m)
        rows["multipliers"] = np.vecdot(probe, context.s0) if context.s0.shape == probe.shape else whole
    if problem.loss.has_value:
        rows["data"] = problem.objective(inside)
    each = np.stack([np.asarray(row, dtype=np.float64) for row in rows.values()], axis=1)
    sums = network.observe(each, "sum") if network.sees_all else each.sum(axis=0)
    return {
        "method": method,
        "network": setting.fingerprint,
        "problem": f"{type(problem).__name__}, {type(problem.loss).__name__}, m={network.m}, d={problem.d}, "
        f"mu={problem.mu!r}, {problem.dtype}",
        "output": output,
        "clock": "" if setting.timeline is None else repr(setting.timeline),
        **{name: f"{mark:.7e}" for name, mark in zip(rows, sums.tolist(), strict=True)},
    }
