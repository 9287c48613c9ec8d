"""The setup of `AutoPDS`: agents learn weights, eigenvalues and a first L in one survey."""

import math
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace

from gradslide._support.arrays import dot, doubles, is_numpy, lengths, like, to_numpy
from gradslide._support.errors import require
from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.kernels.device import has_kernels
from gradslide.kernels.device_mixing import DeviceMixingKernel, DeviceProxKernel
from gradslide.kernels.device_sets import fits_whole_rows
from gradslide.kernels.mixing import MixingKernel, ProxKernel
from gradslide.kernels.sets import sets_of
from gradslide.losses.base import Evaluation
from gradslide.methods.base import Context, without_conjugate
from gradslide.methods.gossip.inner import Inner, Mixer, Shared, SlidingLoop, squares
from gradslide.methods.gossip.state import Gradient
from gradslide.network.collectives import reduce_constant

# How far from x_0 the second gradient is taken, unless x_0 is so large that this would be lost in rounding.
_PROBE = 1e-3


class Start:
    """What the first state takes over, so that its memory is freed with that of the state.

    Parameters
    ----------
    gradient : Gradient
        The gradient at x_0.
    scores : Array or None
        The scores of x_0; None if the loss has none, or where x_bar and x_under are not on one line with the average
        before.
    """

    def __init__(self, gradient: Gradient, scores: Array | None) -> None:
        self._content: tuple[Gradient, Array | None] | None = (gradient, scores)

    def take(self) -> tuple[Gradient, Array | None]:
        """Return gradient and scores, once."""
        assert self._content is not None
        content, self._content = self._content, None
        return content


class Setup(NamedTuple):
    """What a run prepares once.

    Attributes
    ----------
    inner
        The inner loop.
    mixer
        The weights and the spectrum of the network.
    start
        The gradient and the scores at x_0.
    L
        The curvature that a second gradient near x_0 shows; NaN if L is given.
    has_scores
        True if values and gradients follow from scores.
    skips_points
        True if x_under is not needed beyond its gradient and ridge.
    """

    inner: Inner
    mixer: Mixer
    start: Start
    L: float
    has_scores: bool
    skips_points: bool


def set_up(
    context: Context, inner: Inner, spectrum: tuple[float, float] | None, *, needs_L: bool, by_maxima: bool
) -> Setup:
    """Find the first L and the mixer.

    by_maxima: where no survey is needed, agree on a maximum instead of a sum.
    """
    network, m, loss = context.network, context.network.m, context.problem.loss
    scores, is_shared = None, isinstance(inner, Shared) and loss.has_value
    has_scores = is_shared and loss.has_scores
    if network.session.sees_all:
        # Parts of a checkpoint have the same arrays in all processes.
        lacking = np.full(len(network.agents), float(not has_scores))
        has_scores = not reduce_constant(network, lacking, "max")
    if has_scores:
        if context.problem.has_lower_bound:
            context.oracle.extend_reach(lengths(context.x0))
        scores, value, _, y = context.oracle.extrapolation(context.x0, None, 0.0)
    else:
        value, y = value_and_gradient_at(context, context.x0)
    x = context.x0
    gradient = Gradient(x, y, value, dot(x, y) - value, lengths(x), is_current=True)
    probes = _probe(context, inner, gradient.y) if needs_L else np.zeros((len(network.agents), 0))
    D, least, most, L = np.ones(m), math.inf, 0.0, math.nan
    if not (isinstance(inner, SlidingLoop) or spectrum is not None or m == 1):
        least, most, L, *weights = network.survey(probes, _evaluate_survey).tolist()
        D = np.array(weights)
    else:
        if spectrum is not None and m > 1:
            degree = float(network.laplacian.diagonal().max())
            rule, remedy = "spectrum[1] must be the largest eigenvalue of the Laplacian, or more", "leave spectrum out"
            require(spectrum[1] >= degree, rule, f"{spectrum[1]:g}, less than a degree of {degree:g}", remedy)
            least, most = spectrum
        if needs_L and by_maxima:
            changes, moves, size = probes.T
            ratios = np.divide(changes, moves, out=np.zeros_like(moves), where=moves > 0)
            found, largest = network.agree(np.stack([ratios, size], axis=1), "max").tolist()
            L = _first_L(np.array([found, 1.0, largest]), 1)
        elif needs_L:
            L = _first_L(network.agree(probes, "sum"), m)
    N = network.laplacian if np.all(D == 1) else sp.csr_array(sp.diags_array(1 / D) @ network.laplacian)
    column = like(D[list(network.agents), None].astype(context.problem.dtype), context.x0)
    kernel: MixingKernel | DeviceMixingKernel | None = None
    prox_kernel: ProxKernel | DeviceProxKernel | None = None
    if isinstance(inner, Shared):
        sets, d = None if inner.is_free else sets_of(context.domain), context.problem.d
        if is_numpy(context.x0):
            kernel = MixingKernel(N, column, is_local=network.is_local)
            prox_kernel = None if sets is None else ProxKernel(sets, column)
        elif has_kernels(context.x0):
            kernel = DeviceMixingKernel(N, column) if network.is_local else None
            if sets is not None and fits_whole_rows(sets, d):
                prox_kernel = DeviceProxKernel(sets, column, d)
    mixer = Mixer(column, N, least, most, math.sqrt(most / least) if most > 0 else 0.0, kernel, prox_kernel)
    return Setup(inner, mixer, Start(gradient, scores), L, has_scores, skips_points=is_shared)


def evaluation_at(context: Context, x: Array) -> tuple[Array, Array, Evaluation | None]:
    """Return values and gradients as `value_and_gradient_at` does.

    Also how to follow values where differences would be rounding.
    """
    if not context.problem.loss.has_evaluation:
        return *value_and_gradient_at(context, x), None
    found = context.oracle.evaluation(x)
    return found.value, found.gradient, found


def value_and_gradient_at(context: Context, x: Array) -> tuple[Array, Array]:
    """Return values, NaN where the loss has none, and gradients of the ft_i."""
    if not context.problem.loss.has_value:
        y, unknown = without_conjugate(context.oracle.gradient(x))
        return unknown, y
    if context.problem.has_lower_bound:
        context.oracle.extend_reach(lengths(x))
    return context.oracle.value_and_gradient(x)


def _probe(context: Context, inner: Inner, y: Array) -> Array:
    """Return three squares per agent, for the first L.

    Of the change of its gradient and of its move, had all agents moved by y; and of y.
    """
    x, domain, dtype = context.x0, context.domain, context.problem.dtype
    xp = array_namespace(x)
    size, largest = np.sqrt(to_numpy(dot(y, y))), to_numpy(xp.max(abs(x), axis=1))
    length = np.maximum(_PROBE, math.sqrt(np.finfo(dtype).eps) * largest)
    share = np.divide(length, size, out=np.zeros_like(size), where=size > 0)
    near = x - like(share[:, None].astype(dtype), x) * y
    near = near if inner.follows_lagrangian else domain.project(near)
    change = context.oracle.gradient(near) - y
    if inner.has_ridge and context.problem.mu > 0:
        mu = context.problem.mu
        change = change + mu * domain.grad_nu(near) - mu * domain.grad_nu(x)
    # In the norm dual to nu's.
    changes = doubles(xp.max(abs(change), axis=1)) ** 2 if domain.norm == 1 else dot(change, change)
    whole = np.divide(size, length) ** 2
    return np.stack([whole * to_numpy(changes), whole * to_numpy(squares(context, near - x)), size**2], axis=1)


def _evaluate_survey(graph: Graph, probes: Array) -> Array:
    """Return l2, lmax, the first L and D, from all edges and all probes."""
    D, least, most = graph.degree_weights
    if probes.size == 0:
        return np.array([least, most, math.nan, *D])
    weights = np.stack([1 / D, D, np.ones_like(D)], axis=1)
    return np.array([least, most, _first_L(np.sum(weights * probes, axis=0), graph.m), *D])


def _first_L(totals: Array, agents: int) -> float:
    """Return the first L from the sums of the probes.

    A linear loss, for which no L is too small, gets one with which x moves by about 1.
    """
    change, move, size = totals.tolist()
    squared = change / move if change > 0 and move > 0 else size / agents
    return math.sqrt(squared) or 1.0
