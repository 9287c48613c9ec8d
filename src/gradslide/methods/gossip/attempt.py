"""One outer iteration, tried: (a) where the gradient is taken, (b) the inner loop, and what has to be known of it."""

import math

from array_api_compat import array_namespace

from gradslide._support.arrays import dot, doubles, to_numpy
from gradslide._support.types import Array
from gradslide.methods.base import Context, Look, unvalued
from gradslide.methods.gossip.inner import Inner
from gradslide.methods.gossip.plan import Plan
from gradslide.methods.gossip.state import Facts, State, Trial, Weights
from gradslide.methods.gossip.sums import squares


def attempt(context: Context, plan: Plan, inner: Inner, s: State) -> Trial:
    """One gradient, unless it is known, and the exchanges that it is worth."""
    weights = _weights(context, inner, s)
    x_under = (s.S * s.x_bar + weights.b * s.x) / weights.S
    y, conjugate = Look(s.y, s.conjugate) if s.y_is_known else gradient(context, x_under)
    g = y + ridge(context, inner, x_under)
    moved = inner.move(context, plan, s, weights, g)
    if context.problem.loss.has_value:
        value_bar = smooth_value(context, inner, moved.x_bar, context.oracle.value(moved.x_bar))
        value_under = smooth_value(context, inner, x_under, dot(x_under, y) - conjugate)
        d = moved.x_bar - x_under
        change = dot(g, d)
        gap = value_bar - value_under - change
        size = array_namespace(value_bar).maximum(abs(value_bar), abs(value_under)) + abs(change)
    else:
        # What the gradient says of the change, and two of them of the curvature.
        value_bar = s.value_bar + dot(g, moved.x_bar - s.x_bar)
        d = x_under - s.x_under
        before = s.y + ridge(context, inner, s.x_under)
        gap = dot(g - before, d) / 2
        size = abs(dot(g, d)) + abs(dot(before, d))
    facts = Facts(
        gap,
        plan.D[:, 0] * squares(context, d),
        size,
        value_bar + context.domain.r(moved.x_bar) + dot(moved.dual.w, moved.x_bar),
        s.value_bar + context.domain.r(s.x_bar) + dot(moved.dual.w, s.x_bar),
        *inner.residuals(context, plan, s, weights, x_under, g, moved),
    )
    rows = to_numpy(array_namespace(*facts).stack([doubles(each) for each in facts], axis=1))
    return Trial(weights, moved, x_under, y, conjugate, value_bar, rows)


def gradient(context: Context, x: Array) -> Look:
    """y, and ft_i*(y_i) where the loss has values."""
    if not context.problem.loss.has_value:
        return unvalued(context.oracle.gradient(x))
    value, y = context.oracle.value_and_gradient(x)
    return Look(y, dot(x, y) - value)


def smooth_value(context: Context, inner: Inner, x: Array, value: Array) -> Array:
    """The smooth part at x, given ft there, per agent in double precision."""
    mu = context.problem.mu
    ridge = mu * context.domain.nu(x) if inner.takes_ridge and mu > 0 else 0.0
    return doubles(value + ridge)


def _weights(context: Context, inner: Inner, s: State) -> Weights:
    P = s.P if inner.takes_ridge else s.P + context.problem.mu * s.S / 2
    b = (P + math.sqrt(P * P + 4 * s.L * P * s.S)) / (2 * s.L)
    b = b if inner.accelerates else min(b, 1.0)
    return Weights(b, s.S + b, P / b)


def ridge(context: Context, inner: Inner, x: Array) -> Array | float:
    """The gradient of the part of mu nu that counts as smooth."""
    mu = context.problem.mu
    return mu * context.domain.grad_nu(x) if inner.takes_ridge and mu > 0 else 0.0
