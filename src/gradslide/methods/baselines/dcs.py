"""Decentralized communication sliding (Lan, Lee, Zhou 2020)."""

from dataclasses import dataclass

import numpy as np

from gradslide._support.errors import require
from gradslide.domains import Free
from gradslide.methods.base import Context
from gradslide.methods.baselines.communication_sliding import CommunicationSliding, State, outer_iteration


@dataclass(frozen=True, kw_only=True)
class DCS(CommunicationSliding):
    """Decentralized communication sliding for min sum_i f_i(x), x in X, and any nu.

    Two exchanges and T_k = min(growth k, most) gradients per outer iteration:

        x_tilde = x_{k-1} + alpha_k (x_hat_{k-1} - x_{k-2})
        y_k     = y_{k-1} + Lap x_tilde/tau_k
        w_k     = Lap y_k
        x_k, x_hat_k: the last and the average iterate of T_k steps u_t to the minimum over X of
                      f(u) + <w_k, u> + eta_k V(x_{k-1}, u), without communication

    Each agent may have its own X_i and r_i. Notes has the steps u_t.

    Parameters
    ----------
    ratio : float
        eta = 2 ratio ||Lap|| and tau = ||Lap||/ratio; for mu > 0 eta = ratio k mu/2 and
        tau = 4 ||Lap||^2/(ratio (k + 1) mu), where theory allows ratio <= 1.
    growth, most : int
        The numbers in T_k. The theorem's own T_k is constant and needs M, D and N.
    norm : float, optional
        ||Lap||. Default: a bound that the agents compute.
    compiled : bool
        Whether to run compiled inner iterations, several times faster, on all processors; for a
        `Logistic` loss with dense features and X = R^d only.

    Notes
    -----
    The inner steps are, from u_0 = x_{k-1},

        u_t = argmin over X of <g(u_{t-1}) + w_k, u> + mu nu(u) + r(u)
              + eta_k V(x_{k-1}, u) + b_t V(u_{t-1}, u),

    where g stacks the gradients of ft_i, and b_t = t eta_k/2 for mu = 0, else
    (t - 1) (eta_k + mu)/2. u_t has weight t + 1 in x_hat_k for mu = 0, else t.

    Designed for f_i that need not be smooth, but may be: assumes that every f_i is convex and
    ft_i(u) - ft_i(v) - <ft_i'(v), u - v> <= M |u - v|. After N outer iterations the average has,
    for mu = 0,

        f(x_bar) - f* <= [3 ratio ||Lap|| V(x_0, x*) + sum_k 2 m M^2/(ratio ||Lap|| (T_k + 3))]/N,

    that is O(log N/N) until T_k reaches `most`; for mu > 0 O(log N/N^2). If a smooth f_i has L much
    larger than ||Lap|| (for mu > 0: than mu) and X is unbounded, the first inner steps are too long
    and may overflow.

    References
    ----------
    Lan, Lee, Zhou, "Communication-efficient algorithms for decentralized and stochastic
    optimization", Math. Program. 180, 2020.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares(np.ones((4, 1)), [1.0, 2.0, 3.0, 6.0], agents=4)
    >>> problem, ring = gs.Problem(loss), gs.Graph.ring(4)
    >>> solution = gs.solve(problem, ring, gs.DCS(growth=10), stop=gs.Stop(iterations=10))
    >>> solution.costs.gradients, solution.costs.rounds
    (550, 20)
    """

    compiled: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        rule, remedy = "compiled must be True or False", "True compiles the inner iterations"
        require(isinstance(self.compiled, bool | np.bool_), rule, repr(self.compiled), remedy)
        object.__setattr__(self, "compiled", bool(self.compiled))

    def init(self, context: Context) -> State:
        if self.compiled:
            _require_compiled(context)
        return super().init(context)

    def step(self, context: Context, state: State) -> State:
        row = self.row(state, context.problem.mu)
        return outer_iteration(context, state, row, None if self.compiled else lambda u, t: context.oracle.gradient(u))


def _require_compiled(context: Context) -> None:
    """Raise an error for domains and losses without compiled steps."""
    domain, loss = context.domain, context.problem.loss
    is_free = isinstance(domain, Free) and domain.penalty is None and domain.weights is None
    rule = "DCS(compiled=True) needs X = R^d without a penalty"
    require(is_free, rule, repr(context.problem), "leave compiled out")
    rule = "DCS(compiled=True) needs a Logistic loss with dense features"
    has_steps = loss.has_steps and context.problem.device is None
    require(has_steps, rule, repr(loss), "make the features dense, leave the device out, or compiled")
