"""Accelerated gradient tracking with FastMix: Ye, Luo, Zhou, Zhang, "Multi-consensus decentralized accelerated gradient
descent" (Mudag), J. Mach. Learn. Res. 24, 2023; with sets and penalties Ye, Zhou, Luo, Zhang, "Decentralized
accelerated proximal gradient descent" (DAPG), NeurIPS 2020."""

import math
from dataclasses import dataclass

from gradslide._support.arrays import dot, to_numpy
from gradslide._support.errors import require_number
from gradslide._support.types import Array
from gradslide.graphs.chebyshev import fast_mix, fast_mix_exchanges
from gradslide.methods.base import Context, Copied
from gradslide.methods.steps import GradientSteps, gradient, proximal, require_common_domain


@dataclass(frozen=True)
class State(Copied):
    """x_k and y_k; s_{k-1} and the gradient at y_{k-1}. t: iterations since the momentum was (re)started."""

    k: int
    t: int
    a: float
    K: int
    x: Array
    y: Array
    s: Array
    g: Array


@dataclass(frozen=True, kw_only=True)
class AcceleratedTracking(GradientSteps):
    """One gradient and 2 K exchanges per iteration (K in the first), for min sum_i f_i(x), x in X, the same X and r for
    all agents.

    s_0 = g(y_0), s = M (s_- + g(y) - g(y_-)), x+ = prox of M (y - a s), y+ = x+ + theta (x+ - x); M are the K exchanges
    of FastMix, theta = (t-1)/(t+2) in iteration t = 1, 2, ... for mu = 0, and (1 - sqrt(a mu))/(1 + sqrt(a mu)) for
    mu > 0. Assumes f_i convex and L-smooth, nu Euclidean. Where it comes to rest is the optimum, whatever K and X. With
    a = 1/L and K large enough (in theory sqrt(chi) times a logarithm of kappa = L/mu and of how much the agents
    differ) the error falls by a constant factor in every sqrt(kappa) iterations, as if all data were in one place.
    With K well below sqrt(chi) it may diverge, or with a bounded X never settle; K = 1 is slow at best.

    step_size: a (default 1/L). K: exchanges per FastMix (default ceil(sqrt(chi)) and, from chi = 100 on, a tenth more,
    with chi = 1/(1 - second largest eigenvalue of W)). restart: start the momentum again where it points uphill,
    <y - x+, x+ - x> > 0 over all agents; a sum per iteration, counted as control rounds. L: smoothness of every ft_i
    (default: the largest of the losses' constants). mixing: W, "metropolis", "laplacian" or "best_constant"; (I + W)/2
    is taken where W has negative eigenvalues.
    """

    K: int | None = None
    restart: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.K is not None:
            require_number("K", self.K, "leave it out for the default", least=1, whole=True)

    def init(self, context: Context) -> State:
        W = context.prepared.lazy
        require_common_domain(context, self)
        a = self.step_over_L(context)
        K = fast_mix_exchanges(W.second) if self.K is None else int(self.K)
        x = context.x0
        return State(k=0, t=0, a=a, K=K, x=x, y=x, s=0 * x, g=0 * x)

    def step(self, context: Context, state: State) -> State:
        a, K, s_ = state.a, state.K, state
        W = context.prepared.lazy

        def mixed(v: Array) -> Array:
            return fast_mix(lambda u: context.mix(u, W), v, K, W.second)

        g = gradient(context, s_.y)
        s = g if s_.k == 0 else mixed(s_.s + g - s_.g)
        x = proximal(context, mixed(s_.y - a * s), a)
        restarts = self.restart and _uphill(context, s_.y - x, x - s_.x)
        t = 1 if restarts else s_.t + 1
        theta = 0.0 if restarts else _momentum(t, a * context.problem.mu)
        return State(k=s_.k + 1, t=t, a=a, K=K, x=x, y=x + theta * (x - s_.x), s=s, g=g)

    def output(self, state: State) -> Array:
        return state.x

    def invariant(self, state: State) -> Array:
        return state.s - state.g

    def parameters(self, state: State) -> dict[str, float]:
        return {"step_size": state.a, "K": state.K}


def _momentum(t: int, a_mu: float) -> float:
    if a_mu == 0:
        return (t - 1) / (t + 2)
    root = math.sqrt(a_mu)
    return max(0.0, (1 - root) / (1 + root))


def _uphill(context: Context, step: Array, moved: Array) -> bool:
    """Whether <step, moved> > 0, summed over all agents."""
    return bool(context.network.agree(to_numpy(dot(step, moved))[:, None], "sum")[0] > 0)
