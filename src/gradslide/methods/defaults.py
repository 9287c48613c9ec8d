"""Parameters that a method finds by itself where the user gives none."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np

from gradslide._support.arrays import dot, doubles, to_numpy
from gradslide._support.types import Array
from gradslide.methods.base import Context
from gradslide.methods.saddle_defaults import STEPS_AWAY, distances
from gradslide.network.coupling import NetworkCoupling, Operator
from gradslide.oracles.variance import moments
from gradslide.theory import guarantees
from gradslide.theory.schedules import Sampled

# With Theorem 3's R the constraints are reached long after the objective: a few times that R serves both.
_PRACTICE = 2.5
# Exchanges that the first outer iteration may take where L was not given.
_FIRST_SLIDES = 50
# Samples per agent at x_0 from which sigma and R are estimated.
_PROBE_SAMPLES = 64
# How many times the network should mix in the last inner loop, where gradients are noisy.
_MIXINGS = 4.0


def smoothness(context: Context) -> float:
    """The largest of the agents' smoothness constants: one flooded maximum."""
    return float(context.network.agree(np.asarray(context.problem.smoothness()), "max"))


def first_slides(L: float, *, R: float, A_norm: float) -> float:
    """L, raised where T_1 = R ||A|| / L would be long: a larger L is a valid constant too."""
    return max(L, R * A_norm / _FIRST_SLIDES) if L > 0 else L


class Balance(NamedTuple):
    """R, and the V(x_0, x*) that it was found with."""

    R: float
    V: float


def balance(
    context: Context,
    gradients: Array,
    *,
    L: float,
    A_norm: float,
    V: float | None = None,
    variances: Array | None = None,
    gradient: Callable[[Array], Array] | None = None,
) -> Balance:
    """An estimate of Theorem 1's R = (||z*|| + 1) / (4 sqrt(V(x_0, x*))) from the gradients g_i at x_0.

    A^T z* = mean - g_i at the optimum, so ||z*|| lies between h/||A|| and h/sigma, with h^2 = sum_i |g_i -
    mean|^2 and sigma the smallest nonzero singular value of A: their geometric mean is taken, with h at x_0.
    Unless V is given, the distance to x* is taken as ten gradient steps, and V no larger than X allows. A guess:
    too large an R costs rounds, too small a one costs gradients. It takes one sum over all agents.
    variances: E|g_i - grad ft_i|^2 where the gradients are sampled, which is taken off their squares.

    Without a network it is Theorem 3's R = sqrt(U/(8 V)), with `saddle_defaults.distances`. gradient: gives one more.
    """
    if isinstance(context.coupling, Operator):
        U, V = distances(context, context.coupling, gradients, L=L, A_norm=A_norm, V=V, gradient=gradient)
        return Balance(_positive(guarantees.saddle_R(U=U, V=V)), V)
    network, domain = context.network, context.domain
    m, gradients = network.m, to_numpy(gradients)
    squares = dot(gradients, gradients)[:, None]
    noises = np.zeros_like(squares) if variances is None else to_numpy(variances)[:, None]
    widths = to_numpy(doubles(domain.distance_bound(context.x0)))[:, None]
    sums = network.agree(np.hstack([gradients, squares, noises, widths]), "sum")
    total, (square, noise, width) = sums[:-3], map(float, sums[-3:])
    mean_part = _without_noise(float(total @ total) / m, noise / m)
    square = _without_noise(square, noise)
    if V is None:
        V = min(0.5 * square * (STEPS_AWAY / L) ** 2, width) if L > 0 else width
    if square == 0 or L == 0 or A_norm == 0 or V == 0:
        return Balance(1.0, V)
    # The theorem's 1 has no unit: a tenth of the mean gradient takes its place.
    spread = math.sqrt(max(0.0, square - mean_part)) + 0.1 * math.sqrt(mean_part)
    scale = math.sqrt(_smallest_singular_value(context) * A_norm)
    return Balance(_positive(spread / scale / (4 * math.sqrt(V))), V)


def _positive(R: float) -> float:
    """R, or 1 where there was nothing to estimate it from."""
    return R if 0 < R < math.inf else 1.0


def _smallest_singular_value(context: Context) -> float:
    return cast(NetworkCoupling, context.coupling).smallest_singular_value()


def sliding_R(context: Context, R: float, *, L: float) -> float:
    """The R to slide with, which without a network is larger than theory's."""
    return _PRACTICE * R if isinstance(context.coupling, Operator) and L > 0 else R


def _without_noise(square: float, noise: float) -> float:
    """What is left of a square when its noise is taken off; where that is next to nothing, a tenth of it."""
    return max(square - noise, 0.1 * square)


class Probe(NamedTuple):
    """Theorem 2's R, sigma and |x_0 - x*| as far as so many samples at x_0 show them."""

    R: float
    sigma: float
    distance: float
    samples: int


def probe(context: Context, *, L: float, A_norm: float, distance: float | None, budget: int | None) -> Probe:
    """Estimates from single samples at x_0, for what was not given. It takes two sums over all agents.

    budget: samples per agent that there are in all, of which no more than a tenth (but two) are taken; without a
    network as many again, at a point that nearly fulfils the constraints.
    """
    samples = _PROBE_SAMPLES if budget is None else max(2, min(_PROBE_SAMPLES, budget // 10))
    mean, variances = moments(lambda j: context.oracle.sampled_gradient(context.x0, j, 1), samples)
    V = None if distance is None else distance**2 / 2
    taken = samples

    def gradient(x: Array) -> Array:
        nonlocal taken
        taken += samples
        return context.oracle.sampled_gradient(x, taken - samples, samples)

    R, V = balance(context, mean, L=L, A_norm=A_norm, V=V, variances=variances / samples, gradient=gradient)
    R = sliding_R(context, R, L=L)
    total = float(context.network.agree(variances[:, None], "sum")[0])
    # Where no gradient pulls, any distance will do.
    distance = math.sqrt(2 * V) or 1.0
    # R of Theorem 2 has 4 |x_0 - x*| where Theorem 1 has 4 sqrt(V).
    return Probe(R / math.sqrt(2), math.sqrt(total / context.network.m), distance, taken)


def mixing_R(context: Context, schedule: Sampled) -> float:
    """The R with which the last inner loop is long enough to average the agents' noise.

    Information spreads over the network in about ||A||/sigma exchanges, sigma the smallest nonzero singular value of A.
    """
    if schedule.A_norm == 0 or isinstance(context.coupling, Operator):
        return 0.0
    # T_k is proportional to R; a large one makes rounding vanish.
    long = replace(schedule, R=1e6 * schedule.L / schedule.A_norm)
    spreads = schedule.A_norm / _smallest_singular_value(context)
    return _MIXINGS * spreads * long.R / long.row(long.N).T
