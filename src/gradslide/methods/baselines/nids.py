"""NIDS: a proximal gradient method with network independent steps (Li, Shi, Yan 2019)."""

from dataclasses import dataclass

from gradslide._support.types import Array
from gradslide.methods.base import Context, Copied
from gradslide.methods.steps import GradientSteps, gradient, mixing_matrix, proximal, require_euclidean


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
class NIDS(GradientSteps[State]):
    """NIDS for min sum_i f_i(x); each agent may have its own X_i and r_i.

    One gradient and one exchange per iteration:

        v_1     = x_0 - a g(x_0)
        v_{k+1} = v_k - x_k + (I + W)/2 (2 x_k - x_{k-1} - a (g(x_k) - g(x_{k-1})))
        x_{k+1} = prox_{a r}(v_{k+1})

    g stacks the gradients of ft_i + mu nu, and the prox step includes X_i.

    Parameters
    ----------
    step_size : float, optional
        The step a. Default: 1/L.
    L : float, optional
        Smoothness of every ft_i. Default: the largest of the losses' constants.
    mixing : {"metropolis", "laplacian", "best_constant"}
        The mixing matrix W.

    Notes
    -----
    Assumes that every f_i is convex and L-smooth, and nu Euclidean. For a < 2/L, whatever the
    network, the residual of the optimality conditions falls like o(1/k); without r and X it falls
    linearly if the f_i are strongly convex. a = 1/L gives the best rate proved.

    References
    ----------
    Li, Shi, Yan, "A decentralized proximal-gradient method with network independent step-sizes and
    separated convergence rates", IEEE Trans. Signal Process. 67, 2019.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares(np.ones((4, 1)), [1.0, 2.0, 3.0, 6.0], agents=4)
    >>> problem, stop = gs.Problem(loss), gs.Stop(iterations=100)
    >>> gs.solve(problem, gs.Graph.ring(4), gs.NIDS(), stop=stop).mean.round(6)
    array([3.])
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
            v = s.v - s.x + (u + context.mix(u, mixing_matrix(context))) / 2
        return State(k=s.k + 1, a=a, x=proximal(context, v, a), v=v, x_prev=s.x, g_prev=g)

    def output(self, state: State) -> Array:
        return state.x

    def invariant(self, state: State) -> Array:
        return (state.v - state.x_prev) / state.a + state.g_prev

    def parameters(self, state: State) -> dict[str, float]:
        return {"step_size": state.a}
