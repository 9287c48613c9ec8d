"""NIDS: Li, Shi, Yan, "A decentralized proximal-gradient method with network independent step-sizes and separated
convergence rates", IEEE Trans. Signal Process. 67, 2019."""

from dataclasses import dataclass

from gradslide._support.types import Array
from gradslide.methods.base import Context, Copied
from gradslide.methods.steps import GradientSteps, gradient, proximal, require_euclidean


@dataclass(frozen=True)
class State(Copied):
    """x_k and v_k; x_{k-1} and the gradient there."""

    k: int
    a: float
    x: Array
    v: Array
    x_prev: Array
    g_prev: Array


@dataclass(frozen=True, kw_only=True)
class NIDS(GradientSteps):
    """One gradient and one exchange per iteration, for min sum_i f_i(x); each agent may have its own X_i and r_i.

    v_1 = x_0 - a g(x_0), v+ = v - x + (I + W)/2 (2 x - x_- - a (g(x) - g(x_-))), x+ = prox of v+. Assumes f_i convex
    and L-smooth, nu Euclidean. For a < 2/L, whatever the network, the residual of the optimality conditions falls like
    o(1/k), linearly without r and X if the f_i are strongly convex; 1/L gives the best rate proved.

    step_size: a (default 1/L). L: smoothness of every ft_i (default: the largest of the losses' constants). mixing: W,
    "metropolis", "laplacian" or "best_constant".
    """

    def init(self, context: Context) -> State:
        require_euclidean(context, self)
        a = self.step_over_L(context)
        x = context.x0
        return State(k=0, a=a, x=x, v=x, x_prev=x, g_prev=0 * x)

    def step(self, context: Context, state: State) -> State:
        a, s = state.a, state
        g = gradient(context, s.x)
        if s.k == 0:
            v = s.x - a * g
        else:
            u = 2 * s.x - s.x_prev - a * (g - s.g_prev)
            v = s.v - s.x + (u + context.mix(u, context.prepared)) / 2
        return State(k=s.k + 1, a=a, x=proximal(context, v, a), v=v, x_prev=s.x, g_prev=g)

    def output(self, state: State) -> Array:
        return state.x

    def invariant(self, state: State) -> Array:
        return (state.v - state.x_prev) / state.a + state.g_prev

    def parameters(self, state: State) -> dict[str, float]:
        return {"step_size": state.a}
