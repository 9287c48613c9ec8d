"""Parameters that a method finds by itself where the user gives none."""

import math

import numpy as np

from gradslide._types import Array
from gradslide.methods.base import Context

# How many gradient steps of length 1/L the solution is guessed to be away.
_STEPS_AWAY = 10.0
# Exchanges that the first outer iteration may take where L was not given.
_FIRST_SLIDES = 50


def smoothness(context: Context) -> float:
    """The largest of the agents' smoothness constants: one flooded maximum."""
    return float(context.network.agree(np.asarray(context.problem.smoothness()), "max"))


def first_slides(L: float, *, R: float, A_norm: float) -> float:
    """L, raised where T_1 = R ||A|| / L would be long: a larger L is a valid constant too."""
    return max(L, R * A_norm / _FIRST_SLIDES) if L > 0 else L


def balance(context: Context, gradients: Array, *, L: float, A_norm: float) -> float:
    """An estimate of Theorem 1's R = (||z*|| + 1) / (4 sqrt(V(x_0, x*))) from the gradients g_i at x_0.

    A^T z* = mean - g_i at the optimum, so ||z*|| lies between h/||A|| and h/sigma, with h^2 = sum_i |g_i -
    mean|^2 and sigma the smallest nonzero singular value of A: their geometric mean is taken, with h at x_0.
    The distance to x* is taken as ten gradient steps, and V no larger than X allows. A guess: too large an R
    costs rounds, too small a one costs gradients. It takes one sum over all agents.
    """
    network, domain = context.network, context.domain
    m = network.graph.m
    squares = np.sum(gradients**2, axis=1, keepdims=True, dtype=np.float64)
    widths = np.asarray(domain.distance_bound(context.x0), dtype=np.float64)[:, None]
    sums = network.agree(np.hstack([gradients, squares, widths]), "sum")
    total, square, width = sums[:-2], float(sums[-2]), float(sums[-1])
    if square == 0 or L == 0 or A_norm == 0:
        return 1.0
    mean_part = float(total @ total) / m
    # The theorem's 1 has no unit: a tenth of the mean gradient takes its place.
    spread = math.sqrt(max(0.0, square - mean_part)) + 0.1 * math.sqrt(mean_part)
    scale = math.sqrt(context.coupling.smallest_singular_value() * A_norm)
    V = min(0.5 * square * (_STEPS_AWAY / L) ** 2, width)
    R = spread / scale / (4 * math.sqrt(V)) if V > 0 else 1.0
    return R if 0 < R < math.inf else 1.0
