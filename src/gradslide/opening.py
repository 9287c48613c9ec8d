"""What a run is opened with: where it takes place, who gives gradients, and by what it is known again."""

from collections.abc import Mapping
from typing import Any

import numpy as np

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
    return Oracle(problem.loss, costs, sampler, setting.timeline)


def identity(context: Context, setting: Setting, method: str, output: str) -> dict[str, Any]:
    """What a checkpoint must have in common with the run that goes on from it."""
    problem = context.problem
    # Data and sets are told apart by what they do to a fixed point, to digits that do not hang on the machine.
    probe = np.random.default_rng(0).normal(size=(problem.m, problem.d)).astype(problem.dtype)
    inside, far = problem.domain.prox(probe, 1.0), problem.domain.prox(1e6 * probe, 1.0)
    starts = [context.x0] if context.s0 is None else [context.x0, context.s0]
    start = np.concatenate([np.ravel(each) for each in starts])
    weights = np.arange(1, start.size + 1) / start.size
    return {
        "method": method,
        "network": setting.fingerprint,
        "problem": f"{problem!r}, mu={problem.mu!r}",
        "output": output,
        "domain": f"{float(np.vdot(probe, inside)):.7e} {float(np.vdot(probe, far)):.7e}",
        "data": f"{setting.observer.objective(inside):.7e}" if problem.loss.has_value else "no value",
        "start": f"{float(np.vdot(weights, start)):.7e}",
        "clock": "" if setting.timeline is None else repr(setting.timeline),
    }
