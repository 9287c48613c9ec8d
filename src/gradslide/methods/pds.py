"""Primal-dual sliding with exact gradients: Algorithm 1 and Theorem 1 of

G. Lan, Y. Ouyang, Y. Zhou, "Graph topology invariant gradient and sampling complexity for
decentralized and stochastic optimization".

The outer iterations are `PDS.step`, the inner ones `inner_loop`; their parameters are the rows of
`gradslide.theory.schedules`. Arrays hold one row per agent. With an operator in place of a network,
the same lines are Algorithm 5.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, cast

from array_api_compat import array_namespace

from gradslide._support.arrays import copied, lengths
from gradslide._support.types import Array
from gradslide.methods import defaults
from gradslide.methods.base import (
    Context,
    Copied,
    Method,
    as_floats,
    average,
    gradient_and_conjugate,
    require_coupling,
    without_conjugate,
)
from gradslide.methods.compiled import InnerLoop, InnerParams, InnerResult, Workspace, accelerated
from gradslide.network.coupling import Dual
from gradslide.theory import schedules
from gradslide.theory.certificates import DualEvidence
from gradslide.theory.schedules import Row, Schedule


@dataclass
class Gradients:
    """The last gradient y_k and the average of all, each with ft_i*(y_i); updated in place.

    The conjugates are NaN where no lower bound can be computed.
    """

    y: Array
    conjugate: Array
    y_bar: Array
    conjugate_bar: Array

    @classmethod
    def start(cls, y: Array) -> "Gradients":
        unknown = without_conjugate(y).conjugate
        return cls(y, unknown, array_namespace(y).zeros_like(y), unknown)

    def add(self, y: Array, conjugate: Array, row: Row) -> None:
        self.y, self.conjugate = y, conjugate
        self.y_bar = average(self.y_bar, y, row.weight, out=self.y_bar)
        self.conjugate_bar = conjugate if row.k == 1 else average(self.conjugate_bar, conjugate, row.weight)


@dataclass(frozen=True)
class State(Copied):
    """The state after k outer iterations; no two fields share an array.

    Attributes
    ----------
    x, x_prev : Array
        x_k and x_{k-1}.
    x_before : Array
        The inner iterate before x_k.
    x_hat, x_under, x_bar : Array
        The average over the last inner loop, the point of the last gradient, and the average over
        all outer iterations.
    gradients : Gradients
        The gradients so far.
    y_is_known, y_stays : bool
        Whether the next gradient is the last one; whether it is the same everywhere (f is linear).
    dual, dual_bar : Dual
        The dual variable, and its average over all outer iterations.
    samples : int
        Samples per agent that were drawn, where gradients are sampled.
    sigma : float or None
        The root of their variance, as far as it is known.
    """

    k: int
    schedule: Schedule
    x: Array
    x_prev: Array
    x_before: Array
    x_hat: Array
    x_under: Array
    x_bar: Array
    gradients: Gradients
    y_is_known: bool
    y_stays: bool
    dual: Dual
    dual_bar: Dual
    samples: int = 0
    sigma: float | None = None

    @property
    def y(self) -> Array:
        """The last gradient y_k."""
        return self.gradients.y

    @classmethod
    def start(
        cls,
        context: Context,
        schedule: Schedule,
        *,
        y: Array | None = None,
        y_stays: bool = False,
        samples: int = 0,
        sigma: float | None = None,
    ) -> "State":
        """Return the state before the first outer iteration; y: the gradient at x_0, if known."""
        x, dual = context.x0, context.coupling.start(context.x0, context.s0)
        return cls(
            k=0,
            schedule=schedule,
            x=copied(x),
            x_prev=copied(x),
            x_before=copied(x),
            x_hat=copied(x),
            x_under=copied(x),
            x_bar=copied(x),
            gradients=Gradients.start(array_namespace(x).zeros_like(x) if y is None else y),
            y_is_known=y is not None,
            y_stays=y_stays,
            dual=Dual(copied(dual.s), copied(dual.w)),
            dual_bar=Dual(copied(dual.s), copied(dual.w)),
            samples=samples,
            sigma=sigma,
        )

    def restarted(self) -> "State":
        """Return the state at the start of a new stage, which begins at the averages."""
        x, dual = self.x_bar, self.dual_bar
        return replace(
            self,
            x=copied(x),
            x_prev=copied(x),
            x_before=copied(x),
            x_hat=copied(x),
            x_under=copied(x),
            dual=Dual(copied(dual.s), copied(dual.w)),
        )

    def next(self, row: Row, x_under: Array, inner: InnerResult) -> "State":
        """Return the state after outer iteration k.

        The output of Algorithm 1 is updated: x_bar_k = sum_j beta_j x_hat_j / sum_j beta_j over j <= k,
        in the memory of the old x_under.
        """
        return replace(
            self,
            k=self.k + 1,
            x=inner.x,
            x_prev=self.x,
            x_before=inner.x_before,
            x_hat=inner.x_hat,
            x_under=x_under,
            x_bar=average(self.x_bar, inner.x_hat, row.weight, out=self.x_under),
            y_is_known=self.y_stays,
            dual=inner.dual,
            dual_bar=inner.dual_bar,
            samples=self.samples + row.c,
        )


class PrimalDualSliding(Method[State]):
    """What PDS and SPDS share: the inner loop, the outputs and their multipliers."""

    lasting_outputs: ClassVar[tuple[str, ...]] = ("average",)

    def prepare(self, context: Context) -> InnerLoop:
        """Return the inner loop, compiled if the graph and the domain allow it."""
        return accelerated(inner_loop, context)

    def output(self, state: State) -> dict[str, Array]:
        return {"average": state.x_bar, "hat": state.x_hat, "last": state.x}

    def dual(self, state: State) -> dict[str, Array]:
        """Return the multipliers of each output; on a network in node form, A^T z = Lap s."""
        return {"average": state.dual_bar.s, "hat": state.dual.s, "last": state.dual.s}

    def dual_evidence(self, state: State) -> tuple[DualEvidence, DualEvidence]:
        """Return the averages, and the last outer iteration."""
        g = state.gradients
        return (
            DualEvidence(g.y_bar, g.conjugate_bar, state.dual_bar),
            DualEvidence(g.y, g.conjugate, state.dual, averaged=0, reach=lengths(state.x_under)),
        )

    def invariant(self, state: State) -> Array:
        return state.dual.w


@dataclass(frozen=True, kw_only=True)
class PDS(PrimalDualSliding):
    r"""Primal-dual sliding for min sum_i f_i(x), x in X, with the schedule of Theorem 1.

    One gradient per agent and outer iteration, whatever the network; T_k inner iterations exchange
    vectors.

    Parameters
    ----------
    L : float, optional
        Smoothness of every ft_i. Default: the largest of the losses' constants.
    R : float, optional
        Balances \|\|z*\|\| against the distance to x*. Theorem 1's choice is
        (\|\|z*\|\| + 1) / (4 sqrt(V(x_0, x*))). Default: estimated from the gradients at x_0.
    coupling : {"incidence", "laplacian"}
        The matrix A: one exchange per inner iteration, or two as in the paper's experiments.
    norm : float, optional
        \|\|A\|\|, if it is known. Default: computed by the agents.
    growth : float
        For mu > 0: how much T_k may grow past Delta before a new stage starts at the average.

    Notes
    -----
    Outer iteration k = 1, 2, ... (Algorithm 1) is

        x_tilde   = x_{k-1} + lambda_k (x_hat_{k-1} - x_{k-2})
        x_under_k = (x_tilde + tau_k x_under_{k-1})/(1 + tau_k)
        y_k       = the gradients of ft_i at x_under_k
        for t = 1, ..., T_k, from x^0 = x_{k-1}:
            u   = x^{t-1} + alpha_k^t (x^{t-1} - x^{t-2})
            z^t = z^{t-1} + A u/q_k
            x^t = argmin over X of <y_k + A^T z^t, x> + mu nu(x) + r(x)
                  + p_k V(x_{k-1}, x) + eta_k^t V(x^{t-1}, x)

    x_k is the last x^t, x_hat_k the average of x^1, ..., x^T_k, and x_bar the average of the
    x_hat_k with weights beta_k. x^{-1} is the inner iterate before x_{k-1}. The parameters are the
    rows of `gradslide.schedules.theorem_1`. Only products with A communicate. On saddle point
    problems the z step is that of `Coupling.ascend`.

    Assumes that every ft_i is convex and L-smooth. After N outer iterations, N gradients per agent
    were used, and (eq:fest_T; within a stage for mu > 0)

        f(x_bar) - f* <= min{2/N^2, lambda^(N - Delta)} 4 L V(x_0, x*).

    Outputs are "average" (x_bar, which has this guarantee), "hat" and "last".

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares(np.eye(4), [1.0, 2.0, 3.0, 4.0], agents=4)
    >>> problem = gs.Problem(loss, domain=gs.domains.Box(0.0, 5.0))
    >>> solution = gs.solve(problem, gs.Graph.ring(4), gs.PDS(), stop=gs.Stop(iterations=50))
    >>> solution.costs.gradients
    50
    """

    L: float | None = None
    R: float | None = None
    coupling: str = "incidence"
    norm: float | None = None
    growth: float = 64.0

    def __post_init__(self) -> None:
        # Parameters that are not given are computed later: 1 replaces them in these checks.
        L, R, A_norm = (1.0 if value is None else value for value in (self.L, self.R, self.norm))
        schedules.theorem_1(L=L, mu=0.0, A_norm=A_norm, R=R, growth=self.growth)
        as_floats(self, "L", "R", "norm", "growth")
        require_coupling(self.coupling)

    def init(self, context: Context) -> State:
        A_norm = context.coupling.norm() if self.norm is None else self.norm
        L = defaults.smoothness(context) if self.L is None else self.L
        y, R = None, self.R
        if R is None:
            y = context.oracle.gradient(context.x0)
            found = defaults.estimate_R(context, y, L=L, A_norm=A_norm, gradient=context.oracle.gradient).R
            R = defaults.practical_R(context, found, L=L)
        is_linear = L == 0
        L = defaults.limit_first_inner_loop(L, R=R, A_norm=A_norm) if self.L is None else L
        schedule = schedules.theorem_1(L=L, mu=context.problem.mu, A_norm=A_norm, R=R, growth=self.growth)
        return State.start(context, schedule, y=y, y_stays=is_linear)

    def step(self, context: Context, state: State) -> State:
        """Outer iteration k of Algorithm 1; the arrays of `state` are overwritten."""
        row = state.schedule.row(state.k + 1)
        s = state.restarted() if row.k == 1 and row.stage > 0 else state
        x_tilde = s.x + row.lam * (s.x_hat - s.x_prev)  # eq:txk_agent
        x_under = (x_tilde + row.tau * s.x_under) / (1 + row.tau)  # eq:xlk_agent
        del x_tilde  # its memory serves the gradient
        y, conjugate = gradient_and_conjugate(context, x_under, s.y if s.y_is_known else None)  # eq:yk_agent
        s.gradients.add(y, conjugate, row)
        workspace = Workspace(s.dual_bar, row.weight, x=s.x_prev, x_hat=s.x_hat, scratch=s.x_under)
        inner_loop = cast(InnerLoop, context.prepared)  # the function below, or compiled code with the same bits
        inner = inner_loop(context, s.x, s.x_before, s.dual, y, row, workspace)
        return s.next(row, x_under, inner)

    def parameters(self, state: State) -> dict[str, float]:
        """Return the parameters of `schedules.theorem_1`."""
        s = state.schedule
        return {"L": s.L, "R": s.R, "A_norm": s.A_norm, "mu": s.mu, "growth": self.growth}


def inner_loop(
    context: Context,
    x: Array,
    x_before: Array,
    dual: Dual,
    y: Array,
    row: InnerParams,
    workspace: Workspace | None = None,
) -> InnerResult:
    """Run the inner iterations of Algorithm 1 (of Algorithm 3, with v_k as y).

    Parameters
    ----------
    context : Context
        The domain and the coupling.
    x, x_before : Array
        x_{k-1} and the inner iterate before it.
    dual : Dual
        z_{k-1}.
    y : Array
        The gradient at x_under_k, which stays.
    row : InnerParams
        T_k, p_k, q_k, alpha_k^t and eta_k^t.
    workspace : Workspace, optional
        The average of the duals so far; a compiled loop also uses its arrays.

    Returns
    -------
    InnerResult
        x_k, z_k and averages.
    """
    domain, coupling, mu = context.domain, context.coupling, context.problem.mu
    # x is x_k^{t-1}, x_before is x_k^{t-2}; they begin as x_k^0 = x_{k-1} and x_k^{-1}.
    anchor = row.p * domain.grad_nu(x) - y
    x_sum, s_sum, w_sum = 0 * x, 0 * dual.s, 0 * dual.w
    for t in range(1, row.T + 1):
        u = x + row.alpha(t) * (x - x_before)  # eq:tukt_agent
        dual = coupling.ascend(dual, u, row.q)  # eq:zkt_agent
        theta = row.eta(t) * domain.grad_nu(x) + anchor - coupling.pull(dual)  # pull(dual) = A^T z
        # prox(theta, scale) = argmin over X of scale nu(x) + r(x) - <theta, x>
        x, x_before = domain.prox(theta, mu + row.eta(t) + row.p), x  # eq:xkt_agent
        x_sum += x
        s_sum, w_sum = s_sum + dual.s, w_sum + dual.w
    x_hat, dual_bar = x_sum / row.T, Dual(s_sum / row.T, w_sum / row.T)
    if workspace is not None:
        pairs = zip(workspace.dual_bar, dual_bar, strict=True)
        dual_bar = Dual(*(average(bar, new, workspace.weight) for bar, new in pairs))
    # For T = 1 x_before is x_{k-1} itself; fields of a state do not share memory.
    return InnerResult(x, x_before if row.T > 1 else copied(x_before), dual, x_hat, dual_bar)
