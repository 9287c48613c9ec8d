"""OPAPC: optimal gradient and communication complexity (Kovalev, Salim, Richtarik 2020)."""

import math
from dataclasses import dataclass
from typing import ClassVar

from gradslide._support.types import Array
from gradslide.graphs.chebyshev import chebyshev, chebyshev_exchanges
from gradslide.methods.base import Context, Copied, Method
from gradslide.methods.steps import check_positive, gradient, require_strongly_convex, require_unconstrained, smoothness

# The largest eigenvalue of C, as the paper has it. As floor(sqrt(chi)) rounds down it may be up to 8/5; theta eta times
# that is still below 4/3, from where on y would swing.
_GOSSIP_NORM = 19 / 15


@dataclass(frozen=True)
class State(Copied):
    """x_k, x_f and y_k; the norm of the Laplacian; K exchanges per iteration."""

    k: int
    tau: float
    eta: float
    norm: float
    K: int
    x: Array
    x_f: Array
    y: Array


@dataclass(frozen=True, kw_only=True)
class OPAPC(Method[State]):
    """OPAPC for min sum_i f_i(x), x in R^d, with strongly convex f_i.

    One gradient and floor(sqrt(chi)) exchanges per iteration, where chi = lmax/l2 of the Laplacian:

        x_g     = tau x_k + (1 - tau) x_f
        x_half  = (x_k - eta (g(x_g) - mu x_g + y_k))/(1 + eta mu)
        y_{k+1} = y_k + theta C x_half
        x_{k+1} = (x_k - eta (g(x_g) - mu x_g + y_{k+1}))/(1 + eta mu)
        x_f    <- x_g + 2 tau/(2 - tau) (x_{k+1} - x_k)

    C is the Chebyshev polynomial of the Laplacian (`gradslide.graphs.chebyshev`), and g stacks the
    gradients of ft_i + mu nu.

    Parameters
    ----------
    step_size : float, optional
        The step eta. Default: sqrt(15/(76 mu L)), the paper's 1/(4 tau L). tau = min(1, 19 mu
        eta/15) and theta = 15/(19 eta) follow from it as they do from the paper's L.
    L : float, optional
        Smoothness of every ft_i. Default: the largest of the losses' constants. The paper's is that
        of f_i, L + mu.

    Notes
    -----
    Assumes that every f_i is convex and L-smooth, mu > 0, X = R^d and no penalty. |x - x*|^2 falls
    by a constant factor in every sqrt(L/mu) iterations, which is the smallest possible number of
    gradients and exchanges, up to a constant.

    References
    ----------
    Kovalev, Salim, Richtarik, "Optimal and practical algorithms for smooth and strongly convex
    decentralized optimization", NeurIPS 2020.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares(np.ones((4, 1)), [1.0, 2.0, 3.0, 6.0], agents=4)
    >>> problem, ring = gs.Problem(loss, mu=0.5), gs.Graph.ring(4)
    >>> solution = gs.solve(problem, ring, gs.OPAPC(), stop=gs.Stop(iterations=100))
    >>> solution.x.ravel().round(3)
    array([2., 2., 2., 2.])
    """

    tuned: ClassVar[str] = "step_size"

    step_size: float | None = None
    L: float | None = None

    def __post_init__(self) -> None:
        check_positive(self, "step_size", "L")

    def init(self, context: Context) -> State:
        norm, graph = context.network.norm_bound(), context.network.graph
        require_strongly_convex(context, self)
        require_unconstrained(context, self)
        mu = context.problem.mu
        eta = self.step_size
        if eta is None:
            eta = 1 / (2 * math.sqrt(_GOSSIP_NORM * mu * smoothness(context, self.L)))
        K = chebyshev_exchanges(norm / graph.algebraic_connectivity)
        x = context.x0
        return State(k=0, tau=min(1.0, _GOSSIP_NORM * mu * eta), eta=eta, norm=norm, K=K, x=x, x_f=x, y=0 * x)

    def step(self, context: Context, state: State) -> State:
        tau, eta, s = state.tau, state.eta, state
        network, mu = context.network, context.problem.mu
        x_g = tau * s.x + (1 - tau) * s.x_f
        slope = gradient(context, x_g) - mu * x_g
        x_half = (s.x - eta * (slope + s.y)) / (1 + eta * mu)
        gossip = chebyshev(
            lambda v: network.combine(v, network.laplacian),
            x_half,
            s.K,
            least=network.graph.algebraic_connectivity,
            most=s.norm,
        )
        y = s.y + gossip / (_GOSSIP_NORM * eta)
        x = (s.x - eta * (slope + y)) / (1 + eta * mu)
        x_f = x_g + 2 * tau / (2 - tau) * (x - s.x)
        return State(k=s.k + 1, tau=tau, eta=eta, norm=s.norm, K=s.K, x=x, x_f=x_f, y=y)

    def output(self, state: State) -> Array:
        return state.x

    def invariant(self, state: State) -> Array:
        return state.y

    def parameters(self, state: State) -> dict[str, float]:
        theta = 1 / (_GOSSIP_NORM * state.eta)
        return {"step_size": state.eta, "tau": state.tau, "theta": theta, "K": state.K}
