"""Primal-dual sliding: Algorithm 1/2 of Lan, Ouyang, Zhou, "Graph topology invariant gradient and sampling
complexity for decentralized and stochastic optimization"."""

import copy
from dataclasses import dataclass, replace

from array_api_compat import array_namespace

from gradslide import schedules
from gradslide._types import Array
from gradslide.coupling import COUPLINGS, Dual
from gradslide.errors import unknown_name
from gradslide.methods import defaults
from gradslide.methods.base import Context
from gradslide.schedules import Row, Schedule


@dataclass(frozen=True)
class State:
    """x = x_{k-1}, x_prev = x_{k-2}, x_before = the inner iterate before x; k outer iterations are done."""

    k: int
    schedule: Schedule
    x: Array
    x_prev: Array
    x_before: Array
    x_hat: Array
    x_under: Array
    x_bar: Array
    y: Array
    y_is_known: bool
    dual: Dual
    dual_bar: Dual

    def copy(self) -> "State":
        """A state of its own, for who wants to keep it while the run goes on."""
        return copy.deepcopy(self)


@dataclass(frozen=True, kw_only=True)
class PDS:
    """Primal-dual sliding for min sum_i f_i(x), x in X, with the schedule of Theorem 1.

    Assumes ft_i convex and L-smooth. After N outer iterations, N gradients per agent were used, and f(x_bar) -
    f* <= min{2/N^2, lambda^(N - Delta)} 4 L V(x_0, x*) (`eq:fest_T`; within a stage for mu > 0), whatever the
    network.

    L: smoothness of every ft_i (default: the largest of the losses' constants). R: balances ||z*|| against the
    distance to x*; Theorem 1's choice is (||z*|| + 1) / (4 sqrt(V(x_0, x*))) (default: estimated from the
    gradients at x_0). coupling: "incidence" (1 exchange per inner iteration) or "laplacian" (2, as in the
    paper). norm: ||A||, if known. growth: for mu > 0, how much T_k may grow past Delta before a new stage
    starts at the average.
    """

    L: float | None = None
    R: float | None = None
    coupling: str = "incidence"
    norm: float | None = None
    growth: float = 64.0

    def __post_init__(self) -> None:
        # What is left out is found later: 1 stands in for it.
        L, R, A_norm = (1.0 if value is None else value for value in (self.L, self.R, self.norm))
        schedules.theorem_1(L=L, mu=0.0, A_norm=A_norm, R=R, growth=self.growth)
        for name in ("L", "R", "norm", "growth"):
            # A NumPy scalar would turn float32 arrays into float64 ones.
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, float(value))
        if self.coupling not in COUPLINGS:
            raise unknown_name("coupling", self.coupling, COUPLINGS)

    def init(self, context: Context) -> State:
        x = context.x0
        A_norm = context.coupling.norm() if self.norm is None else self.norm
        L = defaults.smoothness(context) if self.L is None else self.L
        y = array_namespace(x).zeros_like(x) if self.R is not None else context.oracle.gradient(x)
        R = defaults.balance(context, y, L=L, A_norm=A_norm) if self.R is None else self.R
        L = defaults.first_slides(L, R=R, A_norm=A_norm) if self.L is None else L
        dual = context.coupling.start(x, context.s0)
        return State(
            k=0,
            schedule=schedules.theorem_1(L=L, mu=context.problem.mu, A_norm=A_norm, R=R, growth=self.growth),
            x=x,
            x_prev=x,
            x_before=x,
            x_hat=x,
            x_under=x,
            x_bar=x,
            y=y,
            y_is_known=self.R is None,
            dual=dual,
            dual_bar=dual,
        )

    def step(self, context: Context, state: State) -> State:
        row = state.schedule.row(state.k + 1)
        s = _restart(state) if row.k == 1 and row.stage > 0 else state
        domain, coupling = context.domain, context.coupling

        x_tilde = s.x + row.lam * (s.x_hat - s.x_prev)  # eq:txk_agent
        x_under = (x_tilde + row.tau * s.x_under) / (1 + row.tau)  # eq:xlk_agent
        y = s.y if row.keeps_gradient or s.y_is_known else context.oracle.gradient(x_under)  # eq:yk_agent

        x, x_before, dual = s.x, s.x_before, s.dual
        anchor = row.p * domain.grad_nu(s.x) - y
        x_sum, dual_sum = 0 * x, Dual(0 * dual.s, 0 * dual.w)
        for t in range(1, row.T + 1):
            u = x + row.alpha(t) * (x - x_before)  # eq:tukt_agent
            dual = coupling.ascend(dual, u, row.q)  # eq:zkt_agent
            theta = row.eta(t) * domain.grad_nu(x) + anchor - coupling.pull(dual)
            x, x_before = domain.prox(theta, context.problem.mu + row.eta(t) + row.p), x  # eq:xkt_agent
            x_sum += x
            dual_sum = Dual(dual_sum.s + dual.s, dual_sum.w + dual.w)
        x_hat = x_sum / row.T
        return State(
            k=s.k + 1,
            schedule=s.schedule,
            x=x,
            x_prev=s.x,
            x_before=x_before,
            x_hat=x_hat,
            x_under=x_under,
            x_bar=_average(s.x_bar, x_hat, row),
            y=y,
            y_is_known=False,
            dual=dual,
            dual_bar=Dual(
                _average(s.dual_bar.s, dual_sum.s / row.T, row),
                _average(s.dual_bar.w, dual_sum.w / row.T, row),
            ),
        )

    def output(self, state: State) -> dict[str, Array]:
        return {"average": state.x_bar, "hat": state.x_hat, "last": state.x}

    def dual(self, state: State) -> Array:
        """Average of the multipliers in node form: A^T z = Lap s."""
        return state.dual_bar.s

    def parameters(self, state: State) -> dict[str, float]:
        """What was given or found: all that `schedules.theorem_1` takes."""
        s = state.schedule
        return {"L": s.L, "R": s.R, "A_norm": s.A_norm, "mu": s.mu, "growth": self.growth}


def _average(bar: Array, new: Array, row: Row) -> Array:
    return bar + row.weight * (new - bar)


def _restart(s: State) -> State:
    """A new stage starts at the averages."""
    x = s.x_bar
    return replace(s, x=x, x_prev=x, x_before=x, x_hat=x, x_under=x, dual=s.dual_bar)
