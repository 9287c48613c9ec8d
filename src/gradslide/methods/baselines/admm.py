"""Decentralized ADMM (Shi, Ling, Yuan, Wu, Yin 2014)."""

from dataclasses import dataclass
from typing import NamedTuple, cast

from array_api_compat import array_namespace

from gradslide._support.arrays import like
from gradslide._support.errors import require_number
from gradslide._support.types import Array
from gradslide.domains.base import in_dtype
from gradslide.domains.euclidean import length
from gradslide.methods.base import Context, Copied, as_floats
from gradslide.methods.baselines.multipliers import Multipliers, ascended, degrees, penalty
from gradslide.methods.steps import check_positive, gradient, require_euclidean, smoothness
from gradslide.network.coupling import Dual

# Gradient mappings below this many rounding errors of their terms are zero.
_ROUNDING = 4.0


@dataclass(frozen=True)
class State(Copied):
    """x_k, Lap x_k, and phi_k = Lap s_k with s_k = s_0 + c (x_1 + ... + x_k).

    `largest` is the largest |g_i(x_j)|, j < k, of each agent, shape (m, 1).
    """

    c: float
    x: Array
    lap: Array
    dual: Dual
    largest: Array


class Prepared(NamedTuple):
    """The diagonal of the Laplacian, (agents here, 1), and the smoothness of the losses."""

    degrees: Array
    L: Array | float


@dataclass(frozen=True, kw_only=True)
class ADMM(Multipliers[State]):
    """Decentralized ADMM for min sum_i f_i(x); each agent may have its own X_i and r_i.

    One exchange per iteration, and as many gradients as a local problem takes:

        x_i   <- argmin over X_i of f_i(x) + <phi_i, x> + c sum_j w_ij |x - (x_i + x_j)/2|^2
        phi_i <- phi_i + c sum_j w_ij (x_i - x_j)        with the new x

    w_ij are the weights of the graph. The first iterate takes one more exchange.

    Parameters
    ----------
    c : float, optional
        The penalty parameter. Default: as for `DLM`.
    tolerance : float
        The tolerance of the local problems' gradient mapping, relative to the largest gradient of
        f_i at an x_i so far.
    most : int
        The largest number of gradients per local problem.
    L : float, optional
        Smoothness of every ft_i. Default: each loss's own constant.

    Notes
    -----
    Assumes that every f_i is convex and L-smooth, and nu Euclidean. x_k converges for every c > 0;
    linearly, without r and X, if the f_i are strongly convex.

    The local problem is (2 c deg_i + mu)-strongly convex and (L_i + mu + 2 c deg_i)-smooth. Each
    agent solves it by accelerated proximal gradients with the momentum for these constants,
    starting at x_i, until its gradient mapping is small enough. This takes no communication; agents
    that are done wait for the others. Gradients are taken outside X_i, too.

    References
    ----------
    Shi, Ling, Yuan, Wu, Yin, "On the linear convergence of the ADMM in decentralized consensus
    optimization", IEEE Trans. Signal Process. 62, 2014.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares(np.ones((4, 1)), [1.0, 2.0, 3.0, 6.0], agents=4)
    >>> problem, ring = gs.Problem(loss), gs.Graph.ring(4)
    >>> solution = gs.solve(problem, ring, gs.ADMM(c=1.0), stop=gs.Stop(iterations=100))
    >>> solution.x.ravel().round(3)
    array([3., 3., 3., 3.])
    """

    c: float | None = None
    tolerance: float = 1e-9
    most: int = 1000
    L: float | None = None

    def __post_init__(self) -> None:
        check_positive(self, "c", "L")
        require_number("tolerance", self.tolerance, "for example 1e-9", above=0)
        require_number("most", self.most, "a local problem takes at least one gradient", least=1, whole=True)
        as_floats(self, "tolerance")

    def prepare(self, context: Context) -> Prepared:
        L = like(context.problem.smoothness()[:, None], context.x0) if self.L is None else self.L
        return Prepared(degrees(context), L)

    def init(self, context: Context) -> State:
        require_euclidean(context, self)
        x = context.x0
        lap = context.network.combine(x, context.network.laplacian)
        c = penalty(context, smoothness(context, self.L)) if self.c is None else self.c
        dual = context.coupling.start(x, context.s0)
        return State(c=c, x=x, lap=lap, dual=dual, largest=array_namespace(x).zeros_like(x[:, :1]))

    def step(self, context: Context, state: State) -> State:
        s, network = state, context.network
        x, largest = self._local_minimum(context, s)
        lap = network.combine(x, network.laplacian)
        return State(c=s.c, x=x, lap=lap, dual=ascended(s.dual, x, lap, s.c), largest=largest)

    def _local_minimum(self, context: Context, s: State) -> tuple[Array, Array]:
        """Return argmin over X of f + <phi + c Lap x_k, x> + c deg |x - x_k|^2, and `largest`."""
        xp, domain, mu = array_namespace(s.x), context.domain, context.problem.mu
        prepared = cast(Prepared, context.prepared)
        curvature = 2 * s.c * prepared.degrees
        # S = 0 if the problem is linear and only X bounds it.
        S = curvature + mu + prepared.L
        S = xp.where(S > 0, S, 1.0)
        root = xp.sqrt((curvature + mu) / S)
        momentum = in_dtype((1 - root) / (1 + root), s.x)
        curvature, S = in_dtype(curvature, s.x), in_dtype(S, s.x)

        # A single agent may lack strong convexity: Nesterov's momentum then replaces the constant one.
        is_strong, rounding = bool(xp.all(root > 0)), _ROUNDING * float(xp.finfo(s.x.dtype).eps)

        pull = s.dual.w + s.c * s.lap
        x = x_before = v = s.x
        largest, busy = s.largest, xp.ones_like(x[:, :1], dtype=xp.bool)
        for t in range(int(self.most)):
            g = gradient(context, v)
            if t == 0:
                largest = xp.maximum(largest, length(g))
            g = g + pull + curvature * (v - s.x)
            x, x_before = xp.where(busy, domain.prox(S * domain.grad_nu(v) - g, S), x), x
            least = max(self.tolerance, rounding) * largest + rounding * S * length(x)
            busy = busy & (S * length(x - v) > least)
            if not xp.any(busy):
                break
            v = xp.where(busy, x + (momentum if is_strong else t / (t + 3)) * (x - x_before), x)
        return x, largest

    def parameters(self, state: State) -> dict[str, float]:
        return {"c": state.c}
