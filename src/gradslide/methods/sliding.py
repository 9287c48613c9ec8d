"""One outer iteration of primal-dual sliding: Algorithm 1/2 of Lan, Ouyang, Zhou, "Graph topology invariant gradient
and sampling complexity for decentralized and stochastic optimization". PDS and SPDS differ in how they come by y."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from array_api_compat import array_namespace

from gradslide._support.arrays import row_wise
from gradslide._support.types import Array
from gradslide.kernels.device_sliding import DeviceSlider
from gradslide.kernels.sliding import Slider
from gradslide.methods.base import Context, Copied, Look, Method, average, unvalued
from gradslide.methods.slides import Into, slide, slider_of
from gradslide.network.coupling import Dual
from gradslide.theory.certificates import DualEvidence
from gradslide.theory.schedules import Row, Schedule


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


class Prepared(NamedTuple):
    """Compiled inner iterations, if there are any."""

    slider: Slider | DeviceSlider | None


class Sliding(Method):
    """What methods with this state give back."""

    proves: ClassVar[bool] = True
    keeps: ClassVar[tuple[str, ...]] = ("average",)

    def prepare(self, context: Context) -> Prepared:
        return Prepared(slider_of(context))

    def output(self, state: State) -> dict[str, Array]:
        return {"average": state.x_bar, "hat": state.x_hat, "last": state.x}

    def dual(self, state: State) -> dict[str, Array]:
        """The multipliers that go with each output; on a network in node form, A^T z = Lap s."""
        return {"average": state.dual_bar.s, "hat": state.dual.s, "last": state.dual.s}

    def dual_evidence(self, state: State) -> tuple[DualEvidence, DualEvidence]:
        """Return the averages, and the last outer iteration."""
        return (
            DualEvidence(state.y_bar, state.conjugate_bar, state.dual_bar),
            DualEvidence(state.y, state.conjugate, state.dual, averaged=0),
        )

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
        dual_bar=_copied(dual),
        samples=samples,
        sigma=sigma,
    )


def outer_iteration(context: Context, s: State, row: Row, look: Callable[[Array], Look]) -> State:
    """The paper's lines, in their order; `look` gives y_k (or v_k) at x_under."""
    x_under = _under(s, row)
    y, conjugate = look(x_under)  # eq:yk_agent

    # The state is consumed: its gradient goes before the inner iterations take memory of their own.
    object.__setattr__(s, "y", y)
    into = Into(s.dual_bar, row.weight, _spare(context, s, x_under, y))
    y_bar = average(s.y_bar, y, row.weight, out=s.y_bar)
    x, x_before, dual, x_hat, dual_bar, spare = slide(context, s.x, s.x_before, s.dual, y, row, into)
    return State(
        k=s.k + 1,
        schedule=s.schedule,
        x=x,
        x_prev=s.x,
        x_before=x_before,
        x_hat=x_hat,
        x_under=x_under,
        x_bar=average(s.x_bar, x_hat, row.weight, out=next(iter(spare), None)),
        y=y,
        y_is_known=s.y_stays,
        y_stays=s.y_stays,
        y_bar=y_bar,
        conjugate=conjugate,
        conjugate_bar=conjugate if row.k == 1 else average(s.conjugate_bar, conjugate, row.weight),
        dual=dual,
        dual_bar=dual_bar,
        samples=s.samples + row.c,
        sigma=s.sigma,
    )


def _under(s: State, row: Row) -> Array:
    def under(x: Array, x_hat: Array, x_prev: Array, x_under: Array) -> Array:
        x_tilde = x + row.lam * (x_hat - x_prev)  # eq:txk_agent
        return (x_tilde + row.tau * x_under) / (1 + row.tau)  # eq:xlk_agent

    return row_wise(under, s.x, s.x_hat, s.x_prev, s.x_under)


def _spare(context: Context, s: State, x_under: Array, y: Array) -> list[Array]:
    """The arrays of a state that are not needed once the gradient is known."""
    needed = [context.x0, s.x, x_under, y, s.x_bar, s.y_bar, *s.dual_bar]
    spare: list[Array] = []
    for each in (s.x_prev, s.x_before, s.x_hat, *s.dual, s.x_under):
        if not any(each is other for other in needed + spare):
            spare.append(each)
    return spare


def restart(s: State) -> State:
    """A new stage starts at the averages."""
    x = s.x_bar
    return replace(s, x=x, x_prev=x, x_before=x, x_hat=x, x_under=x, dual=_copied(s.dual_bar))


def _copied(dual: Dual) -> Dual:
    xp = array_namespace(dual.s)
    return Dual(*(xp.asarray(each, copy=True) for each in dual))
