"""Gradient tracking: Di Lorenzo, Scutari, "NEXT: in-network nonconvex optimization", IEEE Trans. Signal Inf. Process.
Netw. 2, 2016; Nedic, Olshevsky, Shi, "Achieving geometric convergence for distributed optimization over time-varying
graphs", SIAM J. Optim. 27, 2017; Qu, Li, "Harnessing smoothness to accelerate distributed optimization", IEEE Trans.
Control Netw. Syst. 5, 2018. Its step sizes: Alghunaim, Ryu, Yuan, Sayed, "Decentralized proximal gradient algorithms
with linear convergence rates", IEEE Trans. Autom. Control 66, 2021."""

from dataclasses import dataclass

from gradslide._support.types import Array
from gradslide.methods.base import Context, Copied
from gradslide.methods.steps import GradientSteps, gradient, proximal, require_common_domain


@dataclass(frozen=True)
class State(Copied):
    """x_k, the gradient g there, and s_k, every agent's estimate of the mean of all gradients."""

    k: int
    a: float
    x: Array
    g: Array
    s: Array


@dataclass(frozen=True, kw_only=True)
class GradientTracking(GradientSteps):
    """One gradient and two exchanges per iteration, for min sum_i f_i(x); X and r must be the same for all agents.

    s_0 = g(x_0), x+ = prox of W (x - a s), s+ = W (s + g(x+) - g(x)): adapt, then combine. W has no negative
    eigenvalue: (I + W)/2 is taken where it has some. Assumes f_i convex and L-smooth, nu Euclidean. For a < 2/L,
    whatever the network, x_k converges linearly without r and X if the f_i are strongly convex. Its rate holds the
    square of W's spectral gap, so a smaller step may be faster where agents far apart have unlike f_i. With r or X,
    proofs ask for smaller steps; 1/L has converged in all our trials.

    step_size: a (default 1/L). L: smoothness of every ft_i (default: the largest of the losses' constants). mixing: W,
    "metropolis", "laplacian" or "best_constant".
    """

    def init(self, context: Context) -> State:
        require_common_domain(context, self)
        a = self.step_over_L(context)
        x = context.x0
        g = gradient(context, x)
        return State(k=0, a=a, x=x, g=g, s=g)

    def step(self, context: Context, state: State) -> State:
        a, s, W = state.a, state, context.prepared.lazy
        x = proximal(context, context.mix(s.x - a * s.s, W), a)
        g = gradient(context, x)
        return State(k=s.k + 1, a=a, x=x, g=g, s=context.mix(s.s + g - s.g, W))

    def output(self, state: State) -> Array:
        return state.x

    def invariant(self, state: State) -> Array:
        return state.s - state.g

    def parameters(self, state: State) -> dict[str, float]:
        return {"step_size": state.a}
