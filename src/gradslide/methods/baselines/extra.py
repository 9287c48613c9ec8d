"""EXTRA and PG-EXTRA (Shi, Ling, Wu, Yin 2015)."""

from dataclasses import dataclass

from gradslide._support.types import Array
from gradslide.methods.base import Context, Copied
from gradslide.methods.steps import GradientSteps, gradient, mixing_matrix, proximal, require_euclidean


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
class EXTRA(GradientSteps[State]):
    """EXTRA and PG-EXTRA for min sum_i f_i(x); each agent may have its own X_i and r_i.

    One gradient and one exchange per iteration:

        v_1     = W x_0 - a g(x_0)
        v_{k+1} = W x_k + v_k - (I + W)/2 x_{k-1} - a (g(x_k) - g(x_{k-1}))
        x_{k+1} = prox_{a r}(v_{k+1})

    g stacks the gradients of ft_i + mu nu, and the prox step includes X_i.

    Parameters
    ----------
    step_size : float, optional
        The step a. Default: 0.95 (1 + lmin(W))/L, lmin the smallest eigenvalue.
    L : float, optional
        Smoothness of every ft_i. Default: the largest of the losses' constants.
    mixing : {"metropolis", "laplacian", "best_constant"}
        The mixing matrix W.

    Notes
    -----
    Assumes that every f_i is convex and L-smooth, and nu Euclidean. For a < (1 + lmin(W))/L the
    residual of the optimality conditions falls like o(1/k); without r and X, and with a small
    enough a, it falls linearly if the sum of the f_i is strongly convex.

    References
    ----------
    Shi, Ling, Wu, Yin, "EXTRA: an exact first-order algorithm for decentralized consensus
    optimization", SIAM J. Optim. 25, 2015.

    Shi, Ling, Wu, Yin, "A proximal gradient algorithm for decentralized composite optimization",
    IEEE Trans. Signal Process. 63, 2015 (PG-EXTRA).

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares(np.ones((4, 1)), [1.0, 2.0, 3.0, 6.0], agents=4)
    >>> problem, ring = gs.Problem(loss), gs.Graph.ring(4)
    >>> solution = gs.solve(problem, ring, gs.EXTRA(), stop=gs.Stop(iterations=100))
    >>> solution.x.ravel().round(3)
    array([3., 3., 3., 3.])
    """

    def init(self, context: Context) -> State:
        require_euclidean(context, self)
        x = context.x0
        return State(k=0, a=self.step_over_W(context), x=x, v=x, x_prev=x, mixed_prev=x, g_prev=0 * x)

    def step(self, context: Context, state: State) -> State:
        a, s = state.a, state
        g = gradient(context, s.x)
        mixed = context.mix(s.x, mixing_matrix(context))
        v = mixed - a * g if s.k == 0 else mixed + s.v - s.mixed_prev - a * (g - s.g_prev)
        x = proximal(context, v, a)
        return State(k=s.k + 1, a=a, x=x, v=v, x_prev=s.x, mixed_prev=(s.x + mixed) / 2, g_prev=g)

    def output(self, state: State) -> Array:
        return state.x

    def invariant(self, state: State) -> Array:
        return (state.v - state.x_prev) / state.a + state.g_prev

    def parameters(self, state: State) -> dict[str, float]:
        return {"step_size": state.a}
