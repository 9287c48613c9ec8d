"""DLM: Ling, Shi, Wu, Ribeiro, "DLM: decentralized linearized alternating direction method of multipliers", IEEE Trans.
Signal Process. 63, 2015."""

import math
from dataclasses import dataclass
from typing import ClassVar, cast

from gradslide._types import Array
from gradslide.coupling import Dual, NetworkCoupling
from gradslide.domains.base import in_dtype
from gradslide.errors import require
from gradslide.methods.base import Context, Copied, as_floats
from gradslide.methods.steps import check_positive, gradient, require_unconstrained, smoothness

# Of rho over its least value L/2; closer to 1 is faster, but 1 itself lets a quadratic oscillate.
_MARGIN = 1.1
# No f_i is taken to be worse conditioned when c is chosen; without mu that is all there is to go by.
_CONDITION = 100


@dataclass(frozen=True)
class State(Copied):
    """x_k, Lap x_k, and phi_k = Lap s_k with s_k = s_0 + c (x_1 + ... + x_k)."""

    c: float
    rho: float
    x: Array
    lap: Array
    dual: Dual


@dataclass(frozen=True, kw_only=True)
class DLM:
    """One gradient and one exchange per iteration, for min sum_i f_i(x) over R^d.

    x_i+ = x_i - (g_i + phi_i + c sum_j w_ij (x_i - x_j))/(2 c deg_i + rho), phi_i+ = phi_i + c sum_j w_ij (x_i+ -
    x_j+), with the weights w_ij of the graph and deg_i = sum_j w_ij. Assumes f_i convex and L-smooth, X = R^d, no
    penalty. It is the method of Condat and Vu with sigma = c and D = 2 c deg + rho in place of 1/tau: w = phi + c Lap x
    moves by w+ = w + c Lap (2 x+ - x). It converges if D - c Lap > L/2, and so, as 2 deg - Lap >= 0, for every c > 0 if
    rho > L/2; linearly if the f_i are strongly convex. The first iterate takes one more exchange.

    c: default sqrt(mu L/(lmax l2)), with the extreme eigenvalues of the Laplacian, so that mu/(c lmax) = c l2/L: x and
    phi then converge equally fast. mu counts as at least L/100 there. rho: default 0.55 L. L: smoothness of every ft_i
    (default: the largest of the losses' constants); mu is added to it.
    """

    tuned: ClassVar[str] = "c"

    c: float | None = None
    rho: float | None = None
    L: float | None = None

    def __post_init__(self) -> None:
        check_positive(self, "c", "rho", "L")
        as_floats(self, "c", "rho", "L")

    def init(self, context: Context) -> State:
        require_unconstrained(context, self)
        x = context.x0
        lap = context.network.combine(x, context.network.laplacian)
        L = smoothness(context, self.L)
        rho = _MARGIN * L / 2 if self.rho is None else self.rho
        rule, remedy = f"rho must be more than L/2 = {L / 2:.6g} here", "leave it out for the default"
        require(rho > L / 2, rule, f"{rho:.6g}", remedy)
        c = penalty(context, L) if self.c is None else self.c
        return State(c=c, rho=rho, x=x, lap=lap, dual=context.coupling.start(x, context.s0))

    def step(self, context: Context, state: State) -> State:
        s, network = state, context.network
        D = in_dtype(2 * s.c * degrees(context) + s.rho, s.x)
        x = s.x - (gradient(context, s.x) + s.dual.w + s.c * s.lap) / D
        lap = network.combine(x, network.laplacian)
        return State(c=s.c, rho=s.rho, x=x, lap=lap, dual=ascended(s.dual, x, lap, s.c))

    def output(self, state: State) -> Array:
        return state.x

    def dual(self, state: State) -> Array:
        """Multipliers in node form: Lap s = phi."""
        return state.dual.s

    def invariant(self, state: State) -> Array:
        return state.dual.w

    def parameters(self, state: State) -> dict[str, float]:
        return {"c": state.c, "rho": state.rho}


def penalty(context: Context, L: float) -> float:
    """A c for the augmented Lagrangian: sqrt(mu L/(lmax l2)), with mu as if L/mu were no more than 100."""
    coupling = cast(NetworkCoupling, context.coupling)
    spectrum = coupling.norm() * coupling.smallest_singular_value()
    # A lone agent has no links to weigh.
    return math.sqrt(max(context.problem.mu, L / _CONDITION) * L) / spectrum if context.network.m > 1 else 1.0


def degrees(context: Context) -> Array:
    """The diagonal of the Laplacian, (agents here, 1)."""
    network = context.network
    return network.graph.weighted_degrees[network.agents.start : network.agents.stop, None]


def ascended(dual: Dual, x: Array, lap: Array, c: float) -> Dual:
    """phi + c Lap x, and the s that goes with it."""
    return Dual(dual.s + c * x, dual.w + c * lap)
