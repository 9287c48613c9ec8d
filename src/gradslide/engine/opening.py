"""What a run is opened with: where it takes place, who gives gradients, and by what it is known again."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import doubles, to_numpy
from gradslide._support.errors import require
from gradslide._support.randomness import ForSome
from gradslide._version import __version__
from gradslide.engine.saddle_setting import OnOneMachine
from gradslide.engine.setting import Networked, Setting
from gradslide.methods.base import Context, Method
from gradslide.network import Local, Network
from gradslide.network.clock import Clock
from gradslide.network.conditions.condition import Condition
from gradslide.network.wrapper import wrappers
from gradslide.oracles import Oracle, Sampling
from gradslide.problems.problem import Problem
from gradslide.problems.saddle import Saddle
from gradslide.results.costs import Costs


def moved(problem: Problem | Saddle, network: Network | None) -> Problem | Saddle:
    """The problem on the device that the network asks for, if it does."""
    if isinstance(problem, Saddle) or network is None:
        rule = f"a {type(problem).__name__} problem is solved with arrays of NumPy's"
        require(problem.device is None, rule, f"a loss on {problem.device}", "give it the data so")
        return problem
    around = list(wrappers(network))
    inner = around[-1]._network if around else network
    device = getattr(inner, "device", None)
    problem = problem if device is None else problem.to(device)
    if problem.device is not None:
        simulated = isinstance(inner, Local) and not any(isinstance(each, Condition) for each in around)
        rule = "a problem on a device needs the network gs.network.Local(graph), without conditions"
        require(simulated, rule, f"{type(network).__name__}, {problem.device}", "give the loss arrays of NumPy's")
        # Every step asks for it: once it is known, none has to wait for the device.
        _ = problem.has_lower_bound
    return problem


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


def settings(context: Context, setting: Setting, method: str, ended_by: str) -> dict[str, Any]:
    """What a solution says of how it was made."""
    return {
        "method": method,
        "problem": context.problem.described(context.network.m),
        **setting.names,
        "version": __version__,
        **({"ended_by": ended_by} if ended_by else {}),
    }


def identity(context: Context, setting: Setting, method: str, output: str) -> dict[str, Any]:
    """What a checkpoint must have in common with the run that goes on from it, wherever its agents lived."""
    problem, network = context.problem, setting.network
    # Data and sets are told apart by what they do to fixed points, to digits that do not hang on the machine.
    drawn = ForSome([0], network.agents, network.m).random((problem.m, problem.d))
    probe = problem.placed(4 * drawn - 2)
    xp = array_namespace(probe)
    inside, far = problem.domain.prox(probe, 1.0), problem.domain.prox(1e6 * probe, 1.0)
    rows = {
        "domain": xp.vecdot(probe, inside),
        "far away": xp.vecdot(probe, far),
        "start": xp.vecdot(probe, context.x0),
    }
    if context.s0 is not None:
        # Those of one machine are not the agents'.
        whole = np.full(problem.m, float(np.sum(to_numpy(context.s0))) / problem.m)
        rows["multipliers"] = xp.vecdot(probe, context.s0) if context.s0.shape == probe.shape else whole
    if problem.loss.has_value:
        rows["data"] = problem.objective(inside)
    each = np.stack([to_numpy(doubles(row)) for row in rows.values()], axis=1)
    sums = network.observe(each, "sum") if network.sees_all else each.sum(axis=0)
    # Devices need not add up in the same order twice.
    digits = 3 if problem.device is not None and problem.dtype == np.float32 else 7
    return {
        "method": method,
        "network": setting.fingerprint,
        "problem": f"{type(problem).__name__}, {type(problem.loss).__name__}, m={network.m}, d={problem.d}, "
        f"mu={problem.mu!r}, {problem.dtype}",
        "output": output,
        "clock": "" if setting.timeline is None else repr(setting.timeline),
        **{name: f"{mark:.{digits}e}" for name, mark in zip(rows, sums.tolist(), strict=True)},
    }
