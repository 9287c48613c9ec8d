"""The inner loops: what is done with a gradient between neighbours. Each takes (b) of the rule for its kind of X."""

import math
from typing import NamedTuple, Protocol

from array_api_compat import array_namespace

from gradslide._support.arrays import dot
from gradslide._support.types import Array
from gradslide.methods.base import Context, average
from gradslide.methods.gossip.plan import Plan
from gradslide.methods.gossip.state import Moved, State, Weights
from gradslide.methods.gossip.sums import squares
from gradslide.methods.steps import proximal
from gradslide.network.coupling import Dual

# Exchanges per gradient where agents have sets of their own: this share of what averages over the whole network.
_OWN_SHARE = 1 / 2

# How many times longer than the first an inner loop of prox sliding may be.
_LONGEST_SLIDE = 64

Residuals = tuple[Array, Array, Array, Array]


class Inner(Protocol):
    """follows_lagrangian: restarts when the Lagrangian rises; else when residuals have fallen. takes_ridge: mu nu
    belongs to the smooth part. accelerates: b grows. least_R: what R does not fall below."""

    follows_lagrangian: bool
    takes_ridge: bool
    accelerates: bool
    least_R: float

    def exchanges(self, plan: Plan, balance: float) -> int:
        """K to begin with, where a gradient is worth so many rounds."""
        ...

    def is_overlong(self, s: State) -> bool:
        """Whether the epoch must end because its iterations take too many exchanges."""
        ...

    def move(self, context: Context, plan: Plan, s: State, weights: Weights, y: Array) -> Moved:
        """y: the gradient of the smooth part at x_under."""
        ...

    def residuals(
        self, context: Context, plan: Plan, s: State, weights: Weights, x_under: Array, y: Array, moved: Moved
    ) -> Residuals:
        """How far the averages, and the last point, are from stationary and from consensus: squares, per agent."""
        ...


class _Mixing:
    """What the loops around Chebyshev exchanges have in common: K of them, however long the epoch."""

    takes_ridge = True

    def is_overlong(self, s: State) -> bool:
        return False


class Shared(_Mixing):
    """One set X and penalty for all agents, nu Euclidean: FISTA around K Chebyshev exchanges. In R^d its prox does
    nothing, and the mean of all agents is what is exchanged for."""

    follows_lagrangian = True
    accelerates = True
    least_R = 0.0

    def __init__(self, is_free: bool) -> None:
        self._is_free = is_free

    def exchanges(self, plan: Plan, balance: float) -> int:
        return plan.exchanges(balance)

    def move(self, context: Context, plan: Plan, s: State, weights: Weights, y: Array) -> Moved:
        b, S, p = weights
        v = s.x - (y + s.dual.w) / (p * plan.D)
        u, q = plan.mix(context, v, s.memory.K)
        dual = Dual(s.dual.s + p * q, s.dual.w + p * plan.D * (v - u))
        x_bar = average(s.x_bar, u, b / S)
        x = u
        if not self._is_free:
            x_bar = proximal(context, x_bar, 1 / s.L)
            x = s.x_bar + (S / b) * (x_bar - s.x_bar)
        return Moved(x, x_bar, x_bar, dual, dual, v - u, v - u, x, 1)

    def residuals(
        self, context: Context, plan: Plan, s: State, weights: Weights, x_under: Array, y: Array, moved: Moved
    ) -> Residuals:
        if self._is_free:
            Q = y + moved.dual.w
        else:
            scale = weights.p * plan.D
            Q = scale * (x_under - proximal(context, x_under - (y + s.dual.w) / scale, 1 / scale))
        stationarity = dot(Q, Q / plan.D)
        nothing = array_namespace(stationarity).zeros_like(stationarity)
        return stationarity, nothing, stationarity, nothing


class Own(_Mixing):
    """A set or penalty of its own for each agent, nu Euclidean: two prox steps around K Chebyshev exchanges."""

    follows_lagrangian = False
    accelerates = False
    least_R = 1.0

    def exchanges(self, plan: Plan, balance: float) -> int:
        return max(math.ceil(_OWN_SHARE * plan.reach), plan.exchanges(balance))

    def move(self, context: Context, plan: Plan, s: State, weights: Weights, y: Array) -> Moved:
        b, S, p = weights
        scale = p * plan.D
        v = proximal(context, s.x - (y + s.dual.w) / scale, 1 / scale)
        u, q = plan.mix(context, v, s.memory.K)
        dual = Dual(s.dual.s + p * q, s.dual.w + scale * (v - u))
        x = proximal(context, s.x - (y + dual.w) / scale, 1 / scale)
        gap_bar = average(s.gap_bar, v - u, b / S)
        return Moved(x, average(s.x_bar, v, b / S), v, dual, dual, gap_bar, v - u, x, 1)

    def residuals(
        self, context: Context, plan: Plan, s: State, weights: Weights, x_under: Array, y: Array, moved: Moved
    ) -> Residuals:
        return _both(context, plan.D, 0.0, s, weights, x_under, y, moved)


class _Row(NamedTuple):
    """The parameters of one outer iteration of prox sliding."""

    p: float
    T: int
    q: float
    alpha_1: float
    mu: float

    def alpha(self, t: int) -> float:
        return self.alpha_1 if t == 1 else 1.0

    def eta(self, t: int) -> float:
        return (self.p + self.mu) * (t - 1) + self.p * self.T


class Slide:
    """Any domain, and any nu: the inner iterations of primal-dual sliding, T_k of them; R balances them against
    gradients."""

    follows_lagrangian = False
    takes_ridge = False
    accelerates = True
    least_R = 0.0

    def __init__(self, A_norm: float) -> None:
        self.A_norm = A_norm

    def exchanges(self, plan: Plan, balance: float) -> int:
        return 1

    def is_overlong(self, s: State) -> bool:
        return s.T_before > _LONGEST_SLIDE * (1 + self._slides(s, 1.0, s.P))

    def _slides(self, s: State, b: float, P: float) -> int:
        """T_k."""
        return max(1, math.ceil(b * self.A_norm / math.sqrt(self._theta(s) * P)))

    @staticmethod
    def _theta(s: State) -> float:
        return s.P / (8 * s.memory.R**2)

    def move(self, context: Context, plan: Plan, s: State, weights: Weights, y: Array) -> Moved:
        b, S, p = weights
        T = self._slides(s, b, p * b)
        q = self._theta(s) * T / b
        row = _Row(p, T, q, s.b_before * T / (b * s.T_before), context.problem.mu)
        x, x_before, dual, x_hat, mean = context.prepared.loop(context, s.x, s.x_before, s.dual, y, row)
        # Lap x_hat, but for where the extrapolation began: no exchange is spent on it.
        gap = (dual.w - s.dual.w) * (q / T) / self.A_norm**2 if self.A_norm > 0 else 0 * x
        x_bar = average(s.x_bar, x_hat, b / S)
        return Moved(x, x_bar, x, dual, mean, average(s.gap_bar, gap, b / S), gap, x_before, T)

    def residuals(
        self, context: Context, plan: Plan, s: State, weights: Weights, x_under: Array, y: Array, moved: Moved
    ) -> Residuals:
        return _both(context, 1.0, context.problem.mu, s, weights, x_under, y, moved)


def _both(
    context: Context, D: Array | float, mu: float, s: State, weights: Weights, x_under: Array, y: Array, moved: Moved
) -> Residuals:
    """Of the averages and of the last point, in units of x. mu: of the ridge that y does not have in it."""
    domain = context.domain

    def stationarity(w: Array) -> Array:
        return squares(context, x_under - domain.prox(s.P * domain.grad_nu(x_under) - y - w, s.P + mu))

    w_bar = average(s.dual_bar.w, moved.dual_mean.w, weights.b / weights.S)
    return (
        stationarity(w_bar),
        dot(D * moved.x_bar, moved.gap_bar),
        stationarity(moved.dual.w),
        dot(D * moved.last, moved.gap),
    )
