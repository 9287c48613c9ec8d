"""EXTRA: Shi, Ling, Wu, Yin, "EXTRA: an exact first-order algorithm for decentralized consensus optimization", SIAM J.
Optim. 25, 2015; PG-EXTRA: the same, "A proximal gradient algorithm for decentralized composite optimization", IEEE
Trans. Signal Process. 63, 2015."""

from dataclasses import dataclass

from gradslide._support.types import Array
from gradslide.methods.base import Context, Copied
from gradslide.methods.steps import GradientSteps, gradient, proximal, require_euclidean


@dataclass(frozen=True)
class State(Copied):
    """x_k and v_k; x_{k-1}, (I + W)/2 x_{k-1} and the gradient there."""

    k: int
    a: float
    x: Array
    v: Array
    x_prev: Array
    mixed_prev: Array
    g_prev: Array


@dataclass(frozen=True, kw_only=True)
class EXTRA(GradientSteps):
    """One gradient and one exchange per iteration, for min sum_i f_i(x); each agent may have its own X_i and r_i.

    v_1 = W x_0 - a g(x_0), v+ = W x + v - (I + W)/2 x_- - a (g(x) - g(x_-)), x+ = prox of v+. Assumes f_i convex and
    L-smooth, nu Euclidean. For a < (1 + lmin(W))/L the residual of the optimality conditions falls like o(1/k); without
    r and X, and with a small enough a, linearly if the sum of the f_i is strongly convex.

    step_size: a (default 0.95 (1 + lmin(W))/L). L: smoothness of every ft_i (default: the largest of the losses'
    constants). mixing: W, "metropolis", "laplacian" or "best_constant".
    """

    def init(self, context: Context) -> State:
        require_euclidean(context, self)
        x = context.x0
        return State(k=0, a=self.step_over_W(context), x=x, v=x, x_prev=x, mixed_prev=x, g_prev=0 * x)

    def step(self, context: Context, state: State) -> State:
        a, s = state.a, state
        g = gradient(context, s.x)
        mixed = context.mix(s.x, context.prepared)
        v = mixed - a * g if s.k == 0 else mixed + s.v - s.mixed_prev - a * (g - s.g_prev)
        x = proximal(context, v, a)
        return State(k=s.k + 1, a=a, x=x, v=v, x_prev=s.x, mixed_prev=(s.x + mixed) / 2, g_prev=g)

    def output(self, state: State) -> Array:
        return state.x

    def invariant(self, state: State) -> Array:
        return (state.v - state.x_prev) / state.a + state.g_prev

    def parameters(self, state: State) -> dict[str, float]:
        return {"step_size": state.a}
