"""Several runs as one: each counts values from where the last one ended, and so has more digits."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np

from gradslide._support.types import Array
from gradslide.engine.solve import solve
from gradslide.engine.stopping import Relative, Stop
from gradslide.methods.gossip.auto_pds import AutoPDS
from gradslide.network import Counted, Network
from gradslide.problems.problem import Problem
from gradslide.results.certificate import KKT, Certificate
from gradslide.results.costs import Costs
from gradslide.results.history import History, Record
from gradslide.results.solution import Solution
from gradslide.results.status import Status

# How far the first run goes: values as they are have digits for it. What each further one may add to it.
_BY_VALUES = 1e-6
_SHARE = 1e-2
# Observing takes as long as a step of a small problem.
_RECORD_EVERY = 10
_SPENT = ("iteration", "gradients", "rounds", "control_rounds", "floats_sent", "seconds")
_ROUNDING = 64 * float(np.finfo(np.float64).eps)
_METHOD = AutoPDS(agreement="exact")


@dataclass(frozen=True)
class Enough:
    """tol: the length of the gradient of the sum, in the scaled variables, against its usual size. max_iter: outer
    iterations."""

    tol: float
    max_iter: int


def solve_polished(
    problem: Problem, polished: Callable[[Array, Array], Problem], network: Network, enough: Enough, size: float
) -> Solution:
    """Until KKT residuals are below tol * size. polished: the same problem, but for a constant, in what is
    added to a point, (d,), given the gradients there, (m, d)."""

    def run(problem: Problem, tol: float, iterations: int, start: Solution | None = None) -> Solution:
        stop = Stop(kkt=Relative(tol, to=size), iterations=iterations)
        return solve(problem, network, _METHOD, stop=stop, warm_start=start, record_every=_RECORD_EVERY)

    found = run(problem, max(enough.tol, _BY_VALUES), enough.max_iter)
    tol = _BY_VALUES
    while enough.tol < tol and found.status is Status.CONVERGED:
        left = enough.max_iter - found.history[-1].iteration
        if left <= 0:
            return replace(found, status=Status.ITERATION_LIMIT)
        tol = max(enough.tol, _SHARE * tol)
        costs = Costs(gradients=1)
        anchor = Counted(network, costs).agree(found.x, "sum") / network.m
        slope = problem.loss.gradient(np.tile(anchor, (problem.m, 1))) + problem.mu * anchor
        more = run(polished(anchor, slope), tol, left, replace(found, x=found.x - anchor))
        spent = Record.of(0, costs)
        history = History(_after(spent, record) for record in more.history)
        more = replace(more, costs=_total(costs, more.costs), history=history)
        found = _joined(problem, found, _from(anchor, more) if _is_better(more, found) else _instead(found, more))
    return found


def _is_better(more: Solution, found: Solution) -> bool:
    """A run that did not get there may have lost its way."""
    if more.kkt is None or found.kkt is None or not np.all(np.isfinite(more.x)):
        return False
    return more.status is Status.CONVERGED or more.kkt.stationarity <= found.kkt.stationarity


def _instead(found: Solution, more: Solution) -> Solution:
    """What there was before, with what was spent in vain."""
    return replace(found, costs=more.costs, history=more.history, status=more.status, warnings=more.warnings)


def _from(anchor: Array, more: Solution) -> Solution:
    outputs = {name: _added(anchor, each) for name, each in more.outputs.items()}
    x = outputs[more.output]
    return replace(more, x=x, outputs=outputs, mean=np.mean(x, axis=0))


def _added(anchor: Array, x: Array) -> Array:
    """What is 0 but for rounding is 0: a penalty put it there."""
    added = anchor + x
    return np.where(np.abs(added) <= _ROUNDING * np.abs(anchor), 0.0, added)


def _joined(problem: Problem, first: Solution, second: Solution) -> Solution:
    """The answer of the second run, with what both have spent. The lower bound is that of the first."""
    kkt = None
    if first.kkt is not None and second.kkt is not None:
        kkt = KKT(second.kkt.stationarity, second.kkt.consensus, first.kkt.scale)
    mean = np.broadcast_to(second.mean, second.x.shape)
    upper = float(np.sum(problem.objective(mean)))
    certificate = first.certificate
    if certificate is not None:
        disagreement = np.linalg.norm(second.x - mean, axis=1).max()
        certificate = Certificate(certificate.lower, upper, float(disagreement))
    records = [_after(first.history[-1], record) for record in second.history]
    if records:
        records[-1] = replace(records[-1], objective=upper)
    return replace(
        second,
        costs=_total(first.costs, second.costs),
        history=History([*first.history, *records]),
        certificate=certificate,
        certificate_reason=first.certificate_reason.replace(str(first.kkt), str(kkt)),
        kkt=kkt,
        warnings=tuple(dict.fromkeys(first.warnings + second.warnings)),
    )


def _total(first: Costs, second: Costs) -> Costs:
    names = [field.name for field in fields(Costs) if field.name != "simulated_seconds"]
    return Costs(**{name: getattr(first, name) + getattr(second, name) for name in names})


def _after(last: Record, record: Record) -> Record:
    """A record of the second run, with what the first had spent; its objectives are those of another problem."""
    spent = {name: getattr(last, name) + getattr(record, name) for name in _SPENT}
    return replace(record, **spent, objective=None, local_objective=None, lower=None, gap=None)
