"""The inner loops of `AutoPDS`: rule (b), between neighbours, for each kind of X."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

from gradslide._support.arrays import dot, is_writable_in_c_order, namespace
from gradslide._support.types import Array
from gradslide.graphs.chebyshev import damped_chebyshev, damped_coefficients
from gradslide.kernels.device_mixing import DeviceMixingKernel, DeviceProxKernel
from gradslide.kernels.mixing import DotsInput, MixingInput, MixingKernel, MixingOutput, ProxInput, ProxKernel
from gradslide.methods.base import Context, average
from gradslide.methods.compiled import InnerLoop
from gradslide.methods.gossip.state import Gradient, InnerOutput, Iterate, State, StepWeights
from gradslide.methods.gossip.sums import (
    EPS_SINGLE,
    GRADIENT_ROUNDING,
    ROUNDING,
    Known,
    Products,
    Sums,
    Tally,
    Unfinished,
    rows,
    tally,
)
from gradslide.methods.steps import proximal
from gradslide.network.coupling import Dual

# K grows with the square root of this times the balance and the mixer's reach.
_WORTH = 0.35
# An inner loop of prox sliding may be this many times longer than the first one.
_LONGEST_LOOP = 64
# Exchanges that the first outer iteration of prox sliding may take if R was not given.
_FIRST_LOOP = 1000


@dataclass(frozen=True)
class Mixer:
    """Chebyshev mixing with N = D^-1 Lap.

    Attributes
    ----------
    D
        The weights of the agents here, as a column.
    N
        The matrix.
    least, most
        Its smallest eigenvalue but 0, and its largest; 0 where nothing is mixed.
    reach
        sqrt(most/least): about the number of exchanges after which every agent's value has reached all others.
    kernel
        Compiled code for `step` and `products`, where there is any.
    prox_kernel
        Compiled code for `prox_step` and `stationarity`, where there is any.
    """

    D: Array
    N: Array
    least: float
    most: float
    reach: float
    kernel: MixingKernel | DeviceMixingKernel | None = None
    prox_kernel: ProxKernel | DeviceProxKernel | None = None

    def step(
        self, context: Context, at: MixingInput, K: int, p: float, share: float, out: Mapping[str, Array]
    ) -> MixingOutput:
        """Return u = mix(v, K) with v = x - (g + w)/(p D), the dual after it, and averages with a share of the new.

        out: arrays that may be overwritten by fields of the result.
        """
        kernel = self.kernel
        if kernel is None or self.most == 0:
            return self._plain_step(context, at, K, p, share)
        if not kernel.is_worthwhile(K, at.x.shape[1]):
            return kernel.time_plain(lambda: self._plain_step(context, at, K, p, share))
        network, rounds = context.network, damped_coefficients(K, least=self._from(K), most=self.most)
        if isinstance(kernel, DeviceMixingKernel) or network.is_local:
            return network.batch(1 + len(rounds.steps), at.x, lambda: kernel.run(at, p, share, rounds, out))
        multiply = partial(network.combine, weights=self.N)
        return kernel.run_between(at, p, share, rounds, out, multiply)

    def _plain_step(self, context: Context, at: MixingInput, K: int, p: float, share: float) -> MixingOutput:
        scale = p * self.D
        v = at.x - (1 / scale) * (at.g + at.w)
        r, q = self.mix(context, v, K)
        u, w = v - r, at.w + scale * r
        if share == 1:
            # Copies: averages may be overwritten.
            return MixingOutput(u, at.s + p * q, w, u, 1 * at.y, 1 * w)
        bars = average(at.x_bar, u, share), average(at.y_bar, at.y, share), average(at.w_bar, w, share)
        return MixingOutput(u, at.s + p * q, w, *bars)

    def stationarity(self, context: Context, at: ProxInput, share: float, p: float) -> Array:
        """Return <Q, Q/D> with Q = p D (x_under - prox(x_under - (g + w)/(p D)))."""
        kernel = self.prox_kernel
        if kernel is None:
            return self._plain_stationarity(context, at, share, p)
        if not kernel.is_worthwhile(at.x.size):
            return kernel.time_plain(lambda: self._plain_stationarity(context, at, share, p))
        return kernel.stationarity(at, p, share)

    def _plain_stationarity(self, context: Context, at: ProxInput, share: float, p: float) -> Array:
        scale, x_under = p * self.D, average(at.x_bar, at.x, share)
        Q = scale * (x_under - proximal(context, x_under - (at.g + at.w) / scale, 1 / scale))
        return dot(Q, (1 / self.D) * Q)

    def prox_step(
        self, context: Context, found: MixingOutput, before: Array, step: float, ratio: float
    ) -> tuple[Array, Array]:
        """Return the prox step of the new average, and x = x_bar_before + ratio (x_bar - x_bar_before)."""
        kernel, x_bar, u = self.prox_kernel, found.x_bar, found.u
        if kernel is None or x_bar is u or not (is_writable_in_c_order(x_bar) and is_writable_in_c_order(u)):
            return self._plain_prox_step(context, x_bar, before, step, ratio)
        if not kernel.is_worthwhile(x_bar.size):
            return kernel.time_plain(lambda: self._plain_prox_step(context, x_bar, before, step, ratio))
        # Nobody else has these arrays.
        kernel.step(x_bar, before, u, step, ratio)
        return x_bar, u

    def _plain_prox_step(
        self, context: Context, x_bar: Array, before: Array, step: float, ratio: float
    ) -> tuple[Array, Array]:
        x_bar = proximal(context, x_bar, step)
        return x_bar, before + ratio * (x_bar - before)

    def products(self, at: DotsInput, share: float, p: float) -> tuple[Products, Array]:
        """Return the inner products at x_under = x_bar_before + share (x - x_bar_before).

        Also <Q, Q/D> with Q = g + w, the stationarity where X = R^d.
        """
        if self.kernel is not None and self.kernel.is_over:
            first, second, third, fourth, stationarity, *rest = self.kernel.dots(at, share, p)
            return Products(first, second, third, fourth, *rest), stationarity
        x, before, y, g, w, x_bar = at
        Q = g + w
        return _products(average(before, x, share), y, g, w, x_bar, before), dot(Q, (1 / self.D) * Q)

    def tally(self, products: Products, residuals: tuple[Array, Array, Array, Array], known: Known) -> Tally:
        """Return what follows from the inner products."""
        if isinstance(self.kernel, DeviceMixingKernel):
            sums, *rest = self.kernel.tally(products, residuals, known, (EPS_SINGLE, GRADIENT_ROUNDING, ROUNDING))
            return Tally(Sums[Array](*sums), *rest)
        return tally(products, residuals, self.D[:, 0], known)

    def completed(self, unfinished: Unfinished, value_bar: Array) -> Array:
        """Return one row of sums per agent, now that f(x_bar) is known."""
        if isinstance(self.kernel, DeviceMixingKernel) and not unfinished.is_complete:
            return self.kernel.completed(unfinished.sums, unfinished.value_under, value_bar)
        return rows(unfinished.completed(value_bar))

    def _from(self, K: int) -> float:
        """The smallest eigenvalue that K exchanges can serve."""
        return max(self.least, self.most / K**2)

    def mix(self, context: Context, v: Array, K: int) -> tuple[Array, Array]:
        """Return r = N q with mix(v, K) = v - r, with K exchanges, and q."""
        if self.most == 0:
            return 0 * v, 0 * v
        multiply = partial(context.network.combine, weights=self.N)
        return damped_chebyshev(multiply, v, K, least=self._from(K), most=self.most)


class Inner(ABC):
    """An inner loop.

    Attributes
    ----------
    follows_lagrangian
        True if epochs end when the Lagrangian rises, False if they end when residuals have fallen.
    has_ridge
        True if mu nu belongs to the smooth part, False if it belongs to the prox step.
    accelerates
        True if b grows.
    least_R
        R does not fall below this.
    share
        The first K, as a share of the mixer's reach; 0 if there is no K.
    """

    follows_lagrangian: ClassVar[bool] = False
    has_ridge: ClassVar[bool] = True
    accelerates: ClassVar[bool] = True
    least_R: ClassVar[float] = 0.0
    share: ClassVar[float] = 0.0

    @abstractmethod
    def run(
        self, context: Context, mixer: Mixer, s: State, weights: StepWeights, gradient: Gradient, g: Array
    ) -> InnerOutput:
        """Apply rule (b); g is the gradient of the smooth part at x_under, which may have a ridge."""

    def largest_b(self, s: State, P: float) -> float:
        """Return the largest b of the next outer iteration. A smaller one than (a) has is valid, too."""
        return math.inf if self.accelerates else 1.0

    def first_K(self, reach: float, balance: float) -> int:
        """Return the first K, for gradients that are worth `balance` rounds."""
        return math.ceil(max(self.share * reach, math.sqrt(_WORTH * balance * reach))) if self.share else 1


@dataclass(frozen=True)
class Shared(Inner):
    """One Euclidean X and penalty for all agents: FISTA around K Chebyshev exchanges.

    v = x - (y + w)/(p D), u = mix(v, K), w+ = w + p D (v - u),
    x_bar+ = prox_{1/L}((S x_bar + b u)/S'), x+ = x_bar + (S'/b)(x_bar+ - x_bar).

    Parameters
    ----------
    is_free
        True if X = R^d without a penalty: then the prox step does nothing.
    """

    follows_lagrangian = True
    share = 1 / 3
    is_free: bool = False

    def run(
        self, context: Context, mixer: Mixer, s: State, weights: StepWeights, gradient: Gradient, g: Array
    ) -> InnerOutput:
        (b, S, p, is_final), prev, (y_bar, _, dual_bar) = weights, s.iterate, s.iterate.averages[:3]
        at = MixingInput(prev.x, gradient.y, g, *prev.dual, prev.x_bar, y_bar, dual_bar.w)
        # First: the step may overwrite w.
        of_prox = None
        if not self.is_free:
            of_prox = mixer.stationarity(context, ProxInput(prev.x, prev.x_bar, g, prev.dual.w), b / S, p)
        found = mixer.step(context, at, s.tuning.K, p, b / S, _overwritable(context, s, at) if is_final else {})
        x, s_new, w, x_bar, y_bar, w_bar = found
        if not self.is_free:
            x_bar, x = mixer.prox_step(context, found, prev.x_bar, 1 / s.smoothness.L, S / b)
        products, stationarity = mixer.products(DotsInput(prev.x, prev.x_bar, gradient.y, g, w, x_bar), b / S, p)
        stationarity = stationarity if of_prox is None else of_prox
        nothing = namespace(stationarity).zeros_like(stationarity)
        residuals = (stationarity, nothing, stationarity, nothing)
        # A lower bound needs the average of w only.
        dual, dual_bar = Dual(s_new, w), Dual(s_new, w_bar)
        return InnerOutput(x, x_bar, x_bar, dual, y_bar, dual_bar, prev.Cx_bar, x, products, residuals)


def _overwritable(context: Context, s: State, at: MixingInput) -> dict[str, Array]:
    """Return the arrays of the state that no later step needs, by the field that may replace them.

    The first y_bar is the gradient as the loss returned it, which may belong to the user.
    """
    kept = {id(context.s0), id(s.gradient.y), *(id(each) for snapshot in s.late.snapshots for each in snapshot.dual)}
    found = {"s": at.s, "w": at.w, "y_bar": at.y_bar, "w_bar": at.w_bar}
    return {name: each for name, each in found.items() if id(each) not in kept and is_writable_in_c_order(each)}


class Own(Inner):
    """A Euclidean set or penalty of its own for each agent: two prox steps around K exchanges.

    v = prox(x - (y + w)/(p D)), w+ = w + p D (v - mix(v, K)), x+ = prox(x - (y + w+)/(p D)),
    x_bar+ = (S x_bar + b v)/S', with prox of step 1/(p D).
    """

    accelerates = False
    least_R = 1.0
    share = 1 / 2

    def run(
        self, context: Context, mixer: Mixer, s: State, weights: StepWeights, gradient: Gradient, g: Array
    ) -> InnerOutput:
        (b, S, p), prev, w, x_under = weights[:3], s.iterate, s.iterate.dual.w, gradient.x_under
        scale = p * mixer.D
        v = proximal(context, prev.x - (g + w) / scale, 1 / scale)
        r, q = mixer.mix(context, v, s.tuning.K)
        dual = Dual(prev.dual.s + p * q, w + scale * r)
        x = proximal(context, prev.x - (g + dual.w) / scale, 1 / scale)
        x_bar, Cx_bar = average(prev.x_bar, v, b / S), average(prev.Cx_bar, r, b / S)
        y_bar, dual_bar = _averages(prev, gradient.y, dual, b / S)
        residuals = (
            _stationarity(context, prev.P, x_under, g, dual_bar.w, 0.0),
            dot(mixer.D * x_bar, Cx_bar),
            _stationarity(context, prev.P, x_under, g, dual.w, 0.0),
            dot(mixer.D * v, r),
        )
        products = _products(x_under, gradient.y, g, dual.w, x_bar, prev.x_bar)
        return InnerOutput(x, x_bar, v, dual, y_bar, dual_bar, Cx_bar, x, products, residuals)


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


@dataclass(frozen=True)
class SlidingLoop(Inner):
    """Any X and any nu: the T_k inner iterations of primal-dual sliding.

    R balances them against gradients: Theta = P/(8 R^2), T_k = ceil(b ||A||/sqrt(Theta P_k)).

    Parameters
    ----------
    A_norm
        The norm of the coupling, ||A||.
    loop
        The inner loop of PDS, compiled where possible.
    """

    has_ridge = False
    A_norm: float
    loop: InnerLoop

    def is_overlong(self, s: State) -> bool:
        """Return True if the epoch must end because its inner loops have become too long."""
        return s.sliding.T > _LONGEST_LOOP * (1 + self._length(s, 1.0, s.iterate.P))

    def largest_b(self, s: State, P: float) -> float:
        """Return b with which the next inner loop ends the epoch: where L has fallen far it could be endless."""
        longest = 2 * _LONGEST_LOOP * (1 + self._length(s, 1.0, s.iterate.P))
        return longest * math.sqrt(self._theta(s) * P) / self.A_norm if self.A_norm > 0 else math.inf

    def limited_R(self, R: float, P: float) -> float:
        """Return R, lowered if T_1 would be too long: any R is valid, and restarts find a better one."""
        return min(R, _FIRST_LOOP * P / (math.sqrt(8) * self.A_norm)) if self.A_norm > 0 and P > 0 else R

    def _length(self, s: State, b: float, P: float) -> int:
        """Return T_k."""
        return max(1, math.ceil(b * self.A_norm / math.sqrt(self._theta(s) * P)))

    @staticmethod
    def _theta(s: State) -> float:
        return s.iterate.P / (8 * s.tuning.R**2)

    def run(
        self, context: Context, mixer: Mixer, s: State, weights: StepWeights, gradient: Gradient, g: Array
    ) -> InnerOutput:
        (b, S, p), prev, mu, x_under = weights[:3], s.iterate, context.problem.mu, gradient.x_under
        T = self._length(s, b, p * b)
        q = self._theta(s) * T / b
        row = _Row(p, T, q, s.sliding.b * T / (b * s.sliding.T), mu)
        x, x_before, dual, x_hat, mean = self.loop(context, prev.x, s.sliding.x_before, prev.dual, g, row, None)
        # C x_hat with C = Lap/||A||^2, except for the first extrapolation: it needs no exchange.
        Cx = (dual.w - prev.dual.w) * (q / T) / self.A_norm**2 if self.A_norm > 0 else 0 * x
        x_bar, Cx_bar = average(prev.x_bar, x_hat, b / S), average(prev.Cx_bar, Cx, b / S)
        y_bar, dual_bar = _averages(prev, gradient.y, mean, b / S)
        residuals = (
            _stationarity(context, prev.P, x_under, g, dual_bar.w, mu),
            dot(x_bar, Cx_bar),
            _stationarity(context, prev.P, x_under, g, dual.w, mu),
            dot(x, Cx),
        )
        products = _products(x_under, gradient.y, g, dual.w, x_bar, prev.x_bar)
        if context.domain.norm == 1:
            products = products._replace(d_squared=squares(context, x_bar - x_under))
        return InnerOutput(x, x_bar, x, dual, y_bar, dual_bar, Cx_bar, x_before, products, residuals, T)


def _products(x_under: Array, y: Array, g: Array, w: Array, x_bar: Array, x_bar_before: Array) -> Products:
    """Return the inner products, with |d| the Euclidean norm."""
    d = x_bar - x_under
    return Products(dot(g, d), dot(d, d), dot(w, x_bar), dot(w, x_bar_before), dot(x_under, y), dot(x_under, x_under))


def _averages(prev: Iterate, y: Array, dual: Dual, share: float) -> tuple[Array, Dual]:
    """Return the averages of gradients and multipliers with new ones."""
    y_bar, _, dual_bar = prev.averages[:3]
    return average(y_bar, y, share), Dual(average(dual_bar.s, dual.s, share), average(dual_bar.w, dual.w, share))


def _stationarity(context: Context, P: float, x: Array, y: Array, w: Array, mu: float) -> Array:
    """Return |x - prox step from x|^2 per agent; mu: of the ridge that y leaves out."""
    domain = context.domain
    return squares(context, x - domain.prox(P * domain.grad_nu(x) - y - w, P + mu))


def squares(context: Context, v: Array) -> Array:
    """Return |v_i|^2 per agent in nu's norm, in double precision."""
    xp = namespace(v)
    return xp.sum(abs(v), axis=1, dtype=xp.float64) ** 2 if context.domain.norm == 1 else dot(v, v)
