"""Accelerated gradient tracking with FastMix (Ye, Luo, Zhou, Zhang 2023 and 2020)."""

import math
from dataclasses import dataclass

from gradslide._support.arrays import dot, to_numpy
from gradslide._support.errors import require_number
from gradslide._support.types import Array
from gradslide.graphs.chebyshev import fast_mix, fast_mix_exchanges
from gradslide.methods.base import Context, Copied
from gradslide.methods.steps import GradientSteps, gradient, mixing_matrix, proximal, require_common_domain


@dataclass(frozen=True)
class State(Copied):
    """x_k and y_k; s_{k-1} and the gradient at y_{k-1}; t iterations since the last restart."""

    k: int
    t: int
    a: float
    K: int
    x: Array
    y: Array
    s: Array
    g: Array


@dataclass(frozen=True, kw_only=True)
class AcceleratedTracking(GradientSteps[State]):
    """Accelerated gradient tracking (Mudag, DAPG) for min sum_i f_i(x), x in X.

    X and r must be the same for all agents. One gradient and 2 K exchanges per iteration (K in the
    first):

        s_0     = g(y_0)
        s_k     = M (s_{k-1} + g(y_k) - g(y_{k-1}))
        x_{k+1} = prox_{a r}(M (y_k - a s_k))
        y_{k+1} = x_{k+1} + theta (x_{k+1} - x_k)

    M stands for K exchanges of FastMix and g for the gradients of ft_i + mu nu. In iteration t = 1,
    2, ... since the last restart, theta = (t - 1)/(t + 2) for mu = 0, and (1 - sqrt(a mu))/(1 +
    sqrt(a mu)) for mu > 0.

    Parameters
    ----------
    step_size : float, optional
        The step a. Default: 1/L.
    L : float, optional
        Smoothness of every ft_i. Default: the largest of the losses' constants.
    mixing : {"metropolis", "laplacian", "best_constant"}
        The mixing matrix W. If it has negative eigenvalues, (I + W)/2 replaces it.
    K : int, optional
        Exchanges per FastMix. Default: ceil(sqrt(chi)) and, from chi = 100 on, a tenth more, with
        chi = 1/(1 - second largest eigenvalue of W).
    restart : bool
        Whether to restart the momentum if it points uphill, that is if <y_k - x_{k+1}, x_{k+1} -
        x_k> > 0 over all agents. It takes a sum per iteration, which counts as control rounds.

    Notes
    -----
    Assumes that every f_i is convex and L-smooth, and nu Euclidean. Fixed points are optimal,
    whatever K and X. With a = 1/L and K large enough (in theory sqrt(chi) times a logarithm of
    kappa = L/mu and of how much the agents differ) the error falls by a constant factor in every
    sqrt(kappa) iterations, as if all data were in one place. With K well below sqrt(chi) the method
    may diverge, or with a bounded X never converge; K = 1 is slow at best.

    References
    ----------
    Ye, Luo, Zhou, Zhang, "Multi-consensus decentralized accelerated gradient descent" (Mudag), J.
    Mach. Learn. Res. 24, 2023.

    Ye, Zhou, Luo, Zhang, "Decentralized accelerated proximal gradient descent" (DAPG), NeurIPS
    2020.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares(np.ones((4, 1)), [1.0, 2.0, 3.0, 6.0], agents=4)
    >>> problem, ring = gs.Problem(loss), gs.Graph.ring(4)
    >>> solution = gs.solve(problem, ring, gs.AcceleratedTracking(), stop=gs.Stop(iterations=50))
    >>> solution.x.ravel().round(3)
    array([3., 3., 3., 3.])
    """

    K: int | None = None
    restart: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.K is not None:
            require_number("K", self.K, "leave it out for the default", least=1, whole=True)

    def init(self, context: Context) -> State:
        W = mixing_matrix(context).lazy
        require_common_domain(context, self)
        a = self.step_over_L(context)
        K = fast_mix_exchanges(W.second) if self.K is None else int(self.K)
        x = context.x0
        return State(k=0, t=0, a=a, K=K, x=x, y=x, s=0 * x, g=0 * x)

    def step(self, context: Context, state: State) -> State:
        a, K, s_ = state.a, state.K, state
        W = mixing_matrix(context).lazy

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
    """Return whether <step, moved> > 0, summed over all agents."""
    return bool(context.network.agree(to_numpy(dot(step, moved))[:, None], "sum")[0] > 0)
