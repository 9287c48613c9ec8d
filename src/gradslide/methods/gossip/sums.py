"""What the agents sum in an outer iteration of `AutoPDS`: values, and inner products per agent."""

from typing import Generic, NamedTuple, TypeVar

import numpy as np

from gradslide._support.arrays import doubles, is_numpy, lengths, namespace
from gradslide._support.types import Array
from gradslide.methods.base import average

# Rounding may change a difference of sums by this many eps, relative to the size of its terms. Losses of up to some
# 100,000 rows stay within it. Sums are double.
_ROUNDING = 450.0
# The same of gradients in single precision: their errors do not all have the same sign.
_ROUNDINGS = 8
EPS, EPS_SINGLE = float(np.finfo(np.float64).eps), float(np.finfo(np.float32).eps)
# What rounding may do to a difference of sums, and to <g, d> in single precision, relative to their terms.
ROUNDING, GRADIENT_ROUNDING = _ROUNDING * EPS, _ROUNDINGS * EPS_SINGLE


class Products(NamedTuple):
    """Inner products per agent, in double precision, with d = x_bar - x_under.

    Attributes
    ----------
    linear, d_squared
        <g, d> and |d|^2 in nu's norm.
    at_bar, at_bar_before
        <w, x_bar> with the new w at the new average and at the one before.
    at_under, under_squared
        <x_under, y> and |x_under|^2.
    drift, y_squared
        <|w| + p D |x_bar|, |x_bar|> and |y|^2, where kernels compute them.
    """

    linear: Array
    d_squared: Array
    at_bar: Array
    at_bar_before: Array
    at_under: Array
    under_squared: Array
    drift: Array | None = None
    y_squared: Array | None = None


# A number once it is summed, one per agent before.
Summed = TypeVar("Summed", float, Array)


class Sums(NamedTuple, Generic[Summed]):
    """Quantities of one outer iteration that are summed over all agents.

    Attributes
    ----------
    bregman
        f(x_bar) - f(x_under) - <y, d> with d = x_bar - x_under and f the smooth part.
    d_squared
        |d|_D^2.
    magnitude
        The size of the terms of `bregman`, which rounding errors are proportional to.
    lagrangian
        Lam_k = f + r + <w, .> at x_bar.
    lagrangian_before
        The same, with the new w, at the x_bar before.
    stationarity, coupling_residual
        Squares of the residuals of the averages; of the coupling, <x_bar, C x_bar>.
    stationarity_last, coupling_residual_last
        Of the last point.
    drift
        How much rounding of w may change the Lagrangian from one iteration to the next: in single precision,
        where restarts follow the Lagrangian. None elsewhere.
    noise
        The square of what rounding may change f by, there.
    """

    bregman: Summed
    d_squared: Summed
    magnitude: Summed
    lagrangian: Summed
    lagrangian_before: Summed
    stationarity: Summed
    coupling_residual: Summed
    stationarity_last: Summed
    coupling_residual_last: Summed
    drift: Summed | None = None
    noise: Summed | None = None


class Known(NamedTuple):
    """What an outer iteration knows before its inner products.

    Attributes
    ----------
    value_under
        ft_i(x_under).
    value_before
        The smooth part of f_i at the x_bar before.
    conjugate_bar
        The average of ft_i*(y_i) before; None in the first iteration of an epoch.
    share
        The weight of the new values in averages.
    r_bar, r_before
        The penalty at the new x_bar and at the one before; None where there is none.
    y
        The gradient, where its rounding errors count; else None.
    """

    value_under: Array
    value_before: Array
    conjugate_bar: Array | None
    share: float
    r_bar: Array | None = None
    r_before: Array | None = None
    y: Array | None = None


class Tally(NamedTuple):
    """What follows from inner products and values, per agent.

    Attributes
    ----------
    sums
        What in the sums does not depend on f(x_bar).
    conjugate, reach
        As in `Gradient`.
    conjugate_bar
        As in `Averages`.
    """

    sums: Sums[Array]
    conjugate: Array
    reach: Array
    conjugate_bar: Array


def tally(products: Products, residuals: tuple[Array, Array, Array, Array], D: Array, known: Known) -> Tally:
    """Return what follows from the inner products of an outer iteration.

    Parameters
    ----------
    products, residuals
        As in `InnerOutput`.
    D
        The weights of the agents.
    known
        What was known before.

    Returns
    -------
    Tally
    """
    linear, d_squared, at_bar, at_bar_before, at_under, under_squared, *_ = products
    magnitude, noise = abs(linear), None
    if known.y is not None:
        # Scores and values are double, gradients are not.
        error = GRADIENT_ROUNDING * lengths(known.y) * d_squared**0.5
        magnitude, noise = magnitude + error / ROUNDING, 0 * error
    lagrangian = at_bar if known.r_bar is None else known.r_bar + at_bar
    before = at_bar_before if known.r_before is None else known.r_before + at_bar_before
    sums = Sums[Array](
        -linear, D * d_squared, magnitude, lagrangian, known.value_before + before, *residuals, None, noise
    )
    conjugate = at_under - known.value_under
    bar = conjugate if known.conjugate_bar is None else average(known.conjugate_bar, conjugate, known.share)
    return Tally(sums, conjugate, under_squared**0.5, bar)


class Unfinished(NamedTuple):
    """The sums of an outer iteration that the next one starts, per agent.

    Attributes
    ----------
    generation, k
        The iteration that they describe, as in `LateSums.outstanding`.
    value_under
        f(x_under), of the smooth part.
    sums
        `Sums`, or what in them does not depend on f(x_bar).
    is_complete
        True if f(x_bar) was known.
    """

    generation: int
    k: int
    value_under: Array
    sums: Sums[Array]
    is_complete: bool = False

    def completed(self, value_bar: Array, scale: float = 1.0) -> Sums[Array]:
        """Return the sums once f(x_bar) is known; scale: of the rounding of values, relative to doubles."""
        if self.is_complete:
            return self.sums
        size = namespace(value_bar).maximum(abs(value_bar), abs(self.value_under))
        return self.sums._replace(
            bregman=value_bar - self.value_under + self.sums.bregman,
            magnitude=scale * (size + self.sums.magnitude),
            lagrangian=value_bar + self.sums.lagrangian,
        )


def rows(sums: Sums[Array]) -> Array:
    """Return one row per agent with the fields that are known, on the device."""
    known = [doubles(each) for each in sums if each is not None]
    if not is_numpy(known[0]):
        return namespace(known[0]).stack(known, axis=1)
    # Takes half the time of `stack`.
    table = np.empty((len(known), len(known[0])))
    for row, each in zip(table, known, strict=True):
        row[:] = each
    return table.T
