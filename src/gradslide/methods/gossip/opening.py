"""What the agents learn before the first outer iteration, in one survey: weights, eigenvalues, and a first L."""

import math
from typing import NamedTuple

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import dot, like, to_numpy
from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.methods.base import Context, Look
from gradslide.methods.gossip.attempt import gradient, ridge
from gradslide.methods.gossip.inner import Inner, Slide
from gradslide.methods.gossip.plan import Plan, plan_of, uniform_plan, weighed
from gradslide.methods.gossip.sums import dual_squares, squares

# How far from x_0 the second gradient is taken, where x_0 is not so large that this would be lost in rounding.
_PROBE = 1e-3


class Opening(NamedTuple):
    """look: at x_0. L: the curvature that a second gradient near it shows, NaN where it was not asked for."""

    plan: Plan
    look: Look
    L: float


def opened(
    context: Context, inner: Inner, spectrum: tuple[float, float] | None, *, needs_L: bool, by_maxima: bool
) -> Opening:
    """by_maxima: where no survey is taken, agree on a maximum and not on a sum."""
    look = gradient(context, context.x0)
    probes = _probed(context, inner, look.y) if needs_L else np.zeros((len(context.network.agents), 0))
    if isinstance(inner, Slide) or spectrum is not None or context.network.m == 1:
        plan = uniform_plan(context, spectrum)
        return Opening(plan, look, _agreed(context, probes, by_maxima=by_maxima) if needs_L else math.nan)
    least, most, L, *D = context.network.survey(probes, _worked_out).tolist()
    return Opening(plan_of(context, np.array(D), least, most), look, L)


def _probed(context: Context, inner: Inner, y: Array) -> Array:
    """Per agent, squares of: the change of its gradient and its move, had all moved by y, and of y itself."""
    x = context.x0
    size, largest = np.sqrt(to_numpy(dot(y, y))), to_numpy(array_namespace(x).max(abs(x), axis=1))
    length = np.maximum(_PROBE, math.sqrt(np.finfo(context.problem.dtype).eps) * largest)
    share = np.divide(length, size, out=np.zeros_like(size), where=size > 0)
    near = x - like(share[:, None].astype(context.problem.dtype), x) * y
    near = near if inner.follows_lagrangian else context.domain.project(near)
    change = context.oracle.gradient(near) - y + ridge(context, inner, near) - ridge(context, inner, x)
    whole = np.divide(size, length) ** 2
    changes, moves = to_numpy(dual_squares(context, change)), to_numpy(squares(context, near - x))
    return np.stack([whole * changes, whole * moves, size**2], axis=1)


def _worked_out(graph: Graph, probes: Array) -> Array:
    D, least, most = weighed(graph)
    if probes.size == 0:
        return np.array([least, most, math.nan, *D])
    weights = np.stack([1 / D, D, np.ones_like(D)], axis=1)
    return np.array([least, most, _first_L(np.sum(weights * probes, axis=0), graph.m), *D])


def _agreed(context: Context, probes: Array, *, by_maxima: bool) -> float:
    network = context.network
    if not by_maxima:
        return _first_L(network.agree(probes, "sum"), network.m)
    changes, moves, size = probes.T
    ratios = np.divide(changes, moves, out=np.zeros_like(moves), where=moves > 0)
    found, largest = network.agree(np.stack([ratios, size], axis=1), "max").tolist()
    return _first_L(np.array([found, 1.0, largest]), 1)


def _first_L(totals: Array, agents: int) -> float:
    """A linear loss, which no L is too small for, gets one with which x moves by about 1."""
    change, move, size = totals.tolist()
    squared = change / move if change > 0 and move > 0 else size / agents
    return math.sqrt(squared) or 1.0
