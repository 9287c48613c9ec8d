"""Distributed gradient descent (Nedic, Ozdaglar 2009; Nedic, Ozdaglar, Parrilo 2010)."""

from dataclasses import dataclass

from gradslide._support.errors import require_number
from gradslide._support.types import Array
from gradslide.methods.base import Context, Copied, as_floats
from gradslide.methods.steps import GradientSteps, gradient, mixing_matrix, proximal, require_common_domain


@dataclass(frozen=True)
class State(Copied):
    """x_k; step_size: a_0."""

    k: int
    step_size: float
    x: Array


@dataclass(frozen=True, kw_only=True)
class DGD(GradientSteps[State]):
    """Distributed gradient descent for min sum_i f_i(x); X and r must be the same for all agents.

    One gradient and one exchange per iteration k = 0, 1, ...:

        a_k     = step_size/(k + 1)^decay
        x_{k+1} = prox_{a_k r}(W x_k - a_k g(x_k))

    g stacks the gradients of ft_i + mu nu, and the prox step includes X.

    Parameters
    ----------
    step_size : float, optional
        The first step a_0. Default: 0.95 (1 + lmin(W))/L, lmin the smallest eigenvalue.
    L : float, optional
        Smoothness of every ft_i. Default: the largest of the losses' constants.
    mixing : {"metropolis", "laplacian", "best_constant"}
        The mixing matrix W.
    decay : float
        The exponent, from 0 (constant steps) to 1.

    Notes
    -----
    Assumes that every f_i is convex, and nu Euclidean. With decay = 1/2 the objective falls like
    log(k)/sqrt(k), and the disagreement like a_k. With decay = 0, that is a constant step
    a < (1 + lmin(W))/L, and L-smooth f_i, x_k converges to the minimizer of

        sum_i f_i(x_i) + |x|^2_{I - W}/(2 a),

    at a distance of the order of a from the optimum. The answer is the last x: for smooth f_i it is
    as good as steps a_k allow, whereas averages would remember the start.

    References
    ----------
    Nedic, Ozdaglar, "Distributed subgradient methods for multi-agent optimization", IEEE Trans.
    Autom. Control 54, 2009.

    Nedic, Ozdaglar, Parrilo, "Constrained consensus and optimization in multi-agent networks", IEEE
    Trans. Autom. Control 55, 2010 (projections).

    Yuan, Ling, Yin, "On the convergence of decentralized gradient descent", SIAM J. Optim. 26, 2016
    (constant steps).

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares(np.ones((4, 1)), [1.0, 2.0, 3.0, 6.0], agents=4)
    >>> problem, ring = gs.Problem(loss), gs.Graph.ring(4)
    >>> method, stop = gs.DGD(step_size=0.1, decay=0.0), gs.Stop(iterations=200)
    >>> gs.solve(problem, ring, method, stop=stop).x.ravel().round(2)
    array([2.8 , 2.81, 3.06, 3.33])
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
        v = context.mix(s.x, mixing_matrix(context)) - a * gradient(context, s.x)
        return State(k=s.k + 1, step_size=s.step_size, x=proximal(context, v, a))

    def output(self, state: State) -> Array:
        return state.x

    def parameters(self, state: State) -> dict[str, float]:
        return {"step_size": state.step_size, "decay": self.decay}
