"""Decentralized communication sliding: Lan, Lee, Zhou, "Communication-efficient algorithms for decentralized and
stochastic optimization", Math. Program. 180, 2020."""

from dataclasses import dataclass

import numpy as np

from gradslide._support.errors import require
from gradslide.domains import Free
from gradslide.methods.base import Context
from gradslide.methods.baselines.communication_sliding import CommunicationSliding, State, outer_iteration


@dataclass(frozen=True, kw_only=True)
class DCS(CommunicationSliding):
    """Two exchanges and T_k = min(growth k, most) gradients per outer iteration, for min sum_i f_i(x), x in X.

    y+ = y + Lap x_tilde / tau, with x_tilde = x + alpha (x_hat - x_-); then T_k steps to the minimum of f(u) + <Lap y+,
    u> + eta V(x, u), whose last u is x+ and whose weighted average is x_hat. Any nu; each agent may have its own X_i
    and r_i. Made for f_i that need not be smooth, but may be: assumes f_i convex and ft_i(u) - ft_i(v) - <ft_i'(v), u -
    v> <= M |u - v|. After N outer iterations the average has, for mu = 0,

        f(x_bar) - f* <= [3 ratio ||Lap|| V(x_0, x*) + sum_k 2 m M^2 / (ratio ||Lap|| (T_k + 3))]/N,

    that is O(log N / N) until T_k reaches `most`; for mu > 0 O(log N / N^2). Where a smooth f_i has L much larger than
    ||Lap|| (for mu > 0: than mu) and X is unbounded, the first inner steps are too long and may overflow.

    ratio: eta = 2 ratio ||Lap|| and tau = ||Lap||/ratio; for mu > 0 eta = ratio k mu/2 and tau = 4 ||Lap||^2/(ratio (k
    + 1) mu), where theory allows ratio <= 1. growth, most: whole numbers that give T_k; the theorem's own T_k is
    constant and needs M, D and N. norm: ||Lap|| (default: a bound that the network finds). compiled: the same inner
    iterations, several times faster, on all processors; for a Logistic loss with dense features and X = R^d only.
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
    """Refuse sets, penalties, weights of coordinates, and losses without compiled steps."""
    domain, loss = context.domain, context.problem.loss
    is_free = isinstance(domain, Free) and domain.penalty is None and domain.weights is None
    rule = "DCS(compiled=True) needs X = R^d without a penalty"
    require(is_free, rule, repr(context.problem), "leave compiled out")
    rule = "DCS(compiled=True) needs a Logistic loss with dense features"
    has_steps = loss.has_steps and context.problem.device is None
    require(has_steps, rule, repr(loss), "make the features dense, leave the device out, or compiled")
