"""Distributed gradient descent: Nedic, Ozdaglar, "Distributed subgradient methods for multi-agent optimization", IEEE
Trans. Autom. Control 54, 2009; with projections: Nedic, Ozdaglar, Parrilo, "Constrained consensus and optimization in
multi-agent networks", IEEE Trans. Autom. Control 55, 2010; constant steps: Yuan, Ling, Yin, "On the convergence of
decentralized gradient descent", SIAM J. Optim. 26, 2016."""

from dataclasses import dataclass

from gradslide._support.errors import require_number
from gradslide._support.types import Array
from gradslide.methods.base import Context, Copied, as_floats
from gradslide.methods.steps import GradientSteps, gradient, proximal, require_common_domain


@dataclass(frozen=True)
class State(Copied):
    """x_k; step_size: a_0."""

    k: int
    step_size: float
    x: Array


@dataclass(frozen=True, kw_only=True)
class DGD(GradientSteps):
    """One gradient and one exchange per iteration, for min sum_i f_i(x); X and r must be the same for all agents.

    x+ = prox of W x - a_k g(x), a_k = step_size/(k + 1)^decay, k = 0, 1, ... Assumes f_i convex, nu Euclidean. With
    decay = 1/2 the objective falls like log(k)/sqrt(k), and disagreement like a_k. With decay = 0 (a constant step a <
    (1 + lmin(W))/L, f_i L-smooth) x_k converges to the minimiser of sum_i f_i(x_i) + |x|^2_{I - W}/(2 a), at a
    distance of the order of a from the optimum. The answer is the last x: for smooth f_i it is as good as a method
    with steps a_k allows, and averages would remember the far start.

    step_size: a_0 (default 0.95 (1 + lmin(W))/L). decay: from 0 to 1 (default 1/2). L: smoothness of every ft_i
    (default: the largest of the losses' constants). mixing: W, "metropolis", "laplacian" or "best_constant".
    """

    decay: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("decay", self.decay, "0 is a constant step, 1 the fastest decay that converges", least=0, most=1)
        as_floats(self, "decay")

    def init(self, context: Context) -> State:
        require_common_domain(context, self)
        return State(k=0, step_size=self.step_over_W(context), x=context.x0)

    def step(self, context: Context, state: State) -> State:
        s, a = state, state.step_size / (state.k + 1) ** self.decay
        v = context.mix(s.x, context.prepared) - a * gradient(context, s.x)
        return State(k=s.k + 1, step_size=s.step_size, x=proximal(context, v, a))

    def output(self, state: State) -> Array:
        return state.x

    def parameters(self, state: State) -> dict[str, float]:
        return {"step_size": state.step_size, "decay": self.decay}
