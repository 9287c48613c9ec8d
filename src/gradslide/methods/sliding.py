"""One outer iteration of primal-dual sliding: Algorithm 1/2 of Lan, Ouyang, Zhou, "Graph topology invariant gradient
and sampling complexity for decentralized and stochastic optimization". PDS and SPDS differ in how they come by y."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from array_api_compat import array_namespace

from gradslide._types import Array
from gradslide.coupling import Dual
from gradslide.methods.base import Context, Copied, Look, Proving, average, unvalued
from gradslide.schedules import Row, Schedule


@dataclass(frozen=True)
class State(Copied):
    """x = x_{k-1}, x_prev = x_{k-2}, x_before = the inner iterate before x; k outer iterations are done.

    y_stays: the gradient is the same everywhere. conjugate is ft_i*(y_k), NaN where nobody asked for it. Where
    gradients are sampled: `samples` per agent were drawn, each with variance sigma^2 as far as is known.
    """

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
    y_stays: bool
    y_bar: Array
    conjugate: Array
    conjugate_bar: Array
    dual: Dual
    dual_bar: Dual
    samples: int = 0
    sigma: float | None = None


class Sliding(Proving):
    """What methods with this state give back."""

    def output(self, state: State) -> dict[str, Array]:
        return {"average": state.x_bar, "hat": state.x_hat, "last": state.x}

    def dual(self, state: State) -> dict[str, Array]:
        """The multipliers that go with each output; on a network in node form, A^T z = Lap s."""
        return {"average": state.dual_bar.s, "hat": state.dual.s, "last": state.dual.s}

    def invariant(self, state: State) -> Array:
        return state.dual.w


def start(
    context: Context,
    schedule: Schedule,
    *,
    y: Array | None = None,
    y_stays: bool = False,
    samples: int = 0,
    sigma: float | None = None,
) -> State:
    """The state before the first outer iteration; y: the gradient at x_0, if it is known already; y_stays: it is the
    same everywhere."""
    x = context.x0
    xp = array_namespace(x)
    dual = context.coupling.start(x, context.s0)
    return State(
        k=0,
        schedule=schedule,
        x=x,
        x_prev=x,
        x_before=x,
        x_hat=x,
        x_under=x,
        x_bar=x,
        y=xp.zeros_like(x) if y is None else y,
        y_is_known=y is not None,
        y_stays=y_stays,
        y_bar=xp.zeros_like(x),
        conjugate=unvalued(x).conjugate,
        conjugate_bar=unvalued(x).conjugate,
        dual=dual,
        dual_bar=dual,
        samples=samples,
        sigma=sigma,
    )


def outer_iteration(context: Context, s: State, row: Row, look: Callable[[Array], Look]) -> State:
    """The paper's lines, in their order; `look` gives y_k (or v_k) at x_under."""
    x_tilde = s.x + row.lam * (s.x_hat - s.x_prev)  # eq:txk_agent
    x_under = (x_tilde + row.tau * s.x_under) / (1 + row.tau)  # eq:xlk_agent
    y, conjugate = look(x_under)  # eq:yk_agent

    x, x_before, dual, x_hat, dual_mean = slide(context, s.x, s.x_before, s.dual, y, row)
    return State(
        k=s.k + 1,
        schedule=s.schedule,
        x=x,
        x_prev=s.x,
        x_before=x_before,
        x_hat=x_hat,
        x_under=x_under,
        x_bar=average(s.x_bar, x_hat, row.weight),
        y=y,
        y_is_known=s.y_stays,
        y_stays=s.y_stays,
        y_bar=average(s.y_bar, y, row.weight),
        conjugate=conjugate,
        conjugate_bar=conjugate if row.k == 1 else average(s.conjugate_bar, conjugate, row.weight),
        dual=dual,
        dual_bar=Dual(*(average(bar, new, row.weight) for bar, new in zip(s.dual_bar, dual_mean, strict=True))),
        samples=s.samples + row.c,
        sigma=s.sigma,
    )


class Slides(Protocol):
    """The parameters of the inner iterations t = 1, ..., T of an outer one."""

    @property
    def p(self) -> float: ...

    @property
    def T(self) -> int: ...

    @property
    def q(self) -> float: ...

    def alpha(self, t: int) -> float: ...

    def eta(self, t: int) -> float: ...


class Slid(NamedTuple):
    """Where the inner iterations led; x_hat, dual_mean: averages over them."""

    x: Array
    x_before: Array
    dual: Dual
    x_hat: Array
    dual_mean: Dual


def slide(context: Context, x: Array, x_before: Array, dual: Dual, y: Array, row: Slides) -> Slid:
    """The inner iterations, while the gradient y stays."""
    domain, coupling = context.domain, context.coupling
    anchor = row.p * domain.grad_nu(x) - y
    x_sum, dual_sum = 0 * x, Dual(0 * dual.s, 0 * dual.w)
    for t in range(1, row.T + 1):
        u = x + row.alpha(t) * (x - x_before)  # eq:tukt_agent
        dual = coupling.ascend(dual, u, row.q)  # eq:zkt_agent
        theta = row.eta(t) * domain.grad_nu(x) + anchor - coupling.pull(dual)
        x, x_before = domain.prox(theta, context.problem.mu + row.eta(t) + row.p), x  # eq:xkt_agent
        x_sum += x
        dual_sum = Dual(dual_sum.s + dual.s, dual_sum.w + dual.w)
    return Slid(x, x_before, dual, x_sum / row.T, Dual(dual_sum.s / row.T, dual_sum.w / row.T))


def restart(s: State) -> State:
    """A new stage starts at the averages."""
    x = s.x_bar
    return replace(s, x=x, x_prev=x, x_before=x, x_hat=x, x_under=x, dual=s.dual_bar)
