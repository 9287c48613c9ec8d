"""DLM: decentralized linearized ADMM (Ling, Shi, Wu, Ribeiro 2015)."""

from dataclasses import dataclass
from typing import cast

from gradslide._support.errors import require
from gradslide._support.types import Array
from gradslide.domains.base import in_dtype
from gradslide.methods.base import Context, Copied
from gradslide.methods.baselines.multipliers import Multipliers, ascended, degrees, penalty
from gradslide.methods.steps import check_positive, gradient, require_unconstrained, smoothness
from gradslide.network.coupling import Dual

# The ratio of rho to its lower bound L/2; closer to 1 is faster, but with 1 itself a quadratic oscillates.
_MARGIN = 1.1


@dataclass(frozen=True)
class State(Copied):
    """x_k, Lap x_k, and phi_k = Lap s_k with s_k = s_0 + c (x_1 + ... + x_k)."""

    c: float
    rho: float
    x: Array
    lap: Array
    dual: Dual


@dataclass(frozen=True, kw_only=True)
class DLM(Multipliers[State]):
    """DLM, the linearized ADMM, for min sum_i f_i(x) over R^d.

    One gradient and one exchange per iteration:

        x_i   <- x_i - (g_i(x_i) + phi_i + c sum_j w_ij (x_i - x_j))/(2 c deg_i + rho)
        phi_i <- phi_i + c sum_j w_ij (x_i - x_j)        with the new x

    w_ij are the weights of the graph, deg_i = sum_j w_ij, and g_i is the gradient of ft_i + mu nu.
    The first iterate takes one more exchange.

    Parameters
    ----------
    c : float, optional
        The penalty parameter. Default: sqrt(mu L/(lmax l2)), with the extreme eigenvalues of the
        Laplacian, so that mu/(c lmax) = c l2/L: x and phi then converge equally fast. mu counts as
        at least L/100 there.
    rho : float, optional
        The proximal parameter. Default: 0.55 L.
    L : float, optional
        Smoothness of every ft_i, to which mu is added. Default: the largest of the losses'
        constants.

    Notes
    -----
    Assumes that every f_i is convex and L-smooth, X = R^d and no penalty. It is the method of
    Condat and Vu with sigma = c and D = 2 c deg + rho in place of 1/tau: w = phi + c Lap x moves by
    w_{k+1} = w_k + c Lap (2 x_{k+1} - x_k). It converges if D - c Lap > L/2, and so, as 2 deg - Lap
    >= 0, for every c > 0 if rho > L/2; linearly if the f_i are strongly convex.

    References
    ----------
    Ling, Shi, Wu, Ribeiro, "DLM: decentralized linearized alternating direction method of
    multipliers", IEEE Trans. Signal Process. 63, 2015.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares(np.ones((4, 1)), [1.0, 2.0, 3.0, 6.0], agents=4)
    >>> problem, ring = gs.Problem(loss), gs.Graph.ring(4)
    >>> solution = gs.solve(problem, ring, gs.DLM(c=1.0), stop=gs.Stop(iterations=100))
    >>> solution.x.ravel().round(3)
    array([3., 3., 3., 3.])
    """

    c: float | None = None
    rho: float | None = None
    L: float | None = None

    def __post_init__(self) -> None:
        check_positive(self, "c", "rho", "L")

    def prepare(self, context: Context) -> Array:
        """Return the degrees."""
        return degrees(context)

    def init(self, context: Context) -> State:
        require_unconstrained(context, self)
        x = context.x0
        lap = context.network.combine(x, context.network.laplacian)
        L = smoothness(context, self.L)
        rho = _MARGIN * L / 2 if self.rho is None else self.rho
        rule, remedy = f"rho must be more than L/2 = {L / 2:.6g} here", "leave it out for the default"
        require(rho > L / 2, rule, f"{rho:.6g}", remedy)
        c = penalty(context, L) if self.c is None else self.c
        return State(c=c, rho=rho, x=x, lap=lap, dual=context.coupling.start(x, context.s0))

    def step(self, context: Context, state: State) -> State:
        s, network = state, context.network
        D = in_dtype(2 * s.c * cast(Array, context.prepared) + s.rho, s.x)
        x = s.x - (gradient(context, s.x) + s.dual.w + s.c * s.lap) / D
        lap = network.combine(x, network.laplacian)
        return State(c=s.c, rho=s.rho, x=x, lap=lap, dual=ascended(s.dual, x, lap, s.c))

    def parameters(self, state: State) -> dict[str, float]:
        return {"c": state.c, "rho": state.rho}
