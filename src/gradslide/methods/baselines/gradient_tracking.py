"""Gradient tracking (Di Lorenzo, Scutari 2016; Nedic, Olshevsky, Shi 2017; Qu, Li 2018)."""

from dataclasses import dataclass

from gradslide._support.types import Array
from gradslide.methods.base import Context, Copied
from gradslide.methods.steps import GradientSteps, gradient, mixing_matrix, proximal, require_common_domain


@dataclass(frozen=True)
class State(Copied):
    """x_k, the gradient g there, and s_k, every agent's estimate of the mean of all gradients."""

    k: int
    a: float
    x: Array
    g: Array
    s: Array


@dataclass(frozen=True, kw_only=True)
class GradientTracking(GradientSteps[State]):
    """Gradient tracking for min sum_i f_i(x); X and r must be the same for all agents.

    One gradient and two exchanges per iteration (adapt, then combine):

        s_0     = g(x_0)
        x_{k+1} = prox_{a r}(W (x_k - a s_k))
        s_{k+1} = W (s_k + g(x_{k+1}) - g(x_k))

    g stacks the gradients of ft_i + mu nu; row i of s_k is agent i's estimate of their mean. The
    prox step includes X.

    Parameters
    ----------
    step_size : float, optional
        The step a. Default: 1/L.
    L : float, optional
        Smoothness of every ft_i. Default: the largest of the losses' constants.
    mixing : {"metropolis", "laplacian", "best_constant"}
        The mixing matrix W. If it has negative eigenvalues, (I + W)/2 replaces it.

    Notes
    -----
    Assumes that every f_i is convex and L-smooth, and nu Euclidean. For a < 2/L, whatever the
    network, x_k converges linearly without r and X if the f_i are strongly convex. The rate
    contains the square of W's spectral gap, so a smaller step may be faster if distant agents have
    different f_i. With r or X, proofs require smaller steps; 1/L has converged in all our trials.

    References
    ----------
    Di Lorenzo, Scutari, "NEXT: in-network nonconvex optimization", IEEE Trans. Signal Inf. Process.
    Netw. 2, 2016.

    Nedic, Olshevsky, Shi, "Achieving geometric convergence for distributed optimization over
    time-varying graphs", SIAM J. Optim. 27, 2017.

    Qu, Li, "Harnessing smoothness to accelerate distributed optimization", IEEE Trans. Control
    Netw. Syst. 5, 2018.

    Alghunaim, Ryu, Yuan, Sayed, "Decentralized proximal gradient algorithms with linear convergence
    rates", IEEE Trans. Autom. Control 66, 2021 (step sizes).

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares(np.ones((4, 1)), [1.0, 2.0, 3.0, 6.0], agents=4)
    >>> problem, ring = gs.Problem(loss), gs.Graph.ring(4)
    >>> solution = gs.solve(problem, ring, gs.GradientTracking(), stop=gs.Stop(iterations=100))
    >>> solution.x.ravel().round(3)
    array([3., 3., 3., 3.])
    """

    def init(self, context: Context) -> State:
        require_common_domain(context, self)
        a = self.step_over_L(context)
        x = context.x0
        g = gradient(context, x)
        return State(k=0, a=a, x=x, g=g, s=g)

    def step(self, context: Context, state: State) -> State:
        a, s, W = state.a, state, mixing_matrix(context).lazy
        x = proximal(context, context.mix(s.x - a * s.s, W), a)
        g = gradient(context, x)
        return State(k=s.k + 1, a=a, x=x, g=g, s=context.mix(s.s + g - s.g, W))

    def output(self, state: State) -> Array:
        return state.x

    def invariant(self, state: State) -> Array:
        return state.s - state.g

    def parameters(self, state: State) -> dict[str, float]:
        return {"step_size": state.a}
