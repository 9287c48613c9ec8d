"""The inner iterations of primal-dual sliding: Algorithm 1/2 of Lan, Ouyang, Zhou, "Graph topology invariant gradient
and sampling complexity for decentralized and stochastic optimization", as written, or by compiled code."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from gradslide._support.arrays import is_numpy
from gradslide._support.types import Array
from gradslide.kernels.device_sliding import DeviceSlider, has_kernels
from gradslide.kernels.sets import sets_of
from gradslide.kernels.sliding import Point, Slider, Steps
from gradslide.methods.base import Context, average
from gradslide.network.coupling import COUPLINGS, Dual


class Slides(Protocol):
    """The parameters of the inner iterations t = 1, ..., T of an outer one. alpha is the same from t = 2 on; eta takes
    several t at once, too."""

    @property
    def p(self) -> float: ...

    @property
    def T(self) -> int: ...

    @property
    def q(self) -> float: ...

    def alpha(self, t: int) -> float: ...

    def eta(self, t: Any) -> Any: ...


class Into(NamedTuple):
    """What may be overwritten: the average of the duals so far, of which that over these inner iterations is to have a
    weight, and arrays that nobody needs any more."""

    dual_bar: Dual
    weight: float
    spare: Sequence[Array]


class Slid(NamedTuple):
    """Where the inner iterations led; x_hat: the mean over them; dual_bar: the average that was given, with theirs in
    it, or theirs alone; spare: what is left of it."""

    x: Array
    x_before: Array
    dual: Dual
    x_hat: Array
    dual_bar: Dual
    spare: Sequence[Array] = ()


def slide(
    context: Context, x: Array, x_before: Array, dual: Dual, y: Array, row: Slides, into: Into | None = None
) -> Slid:
    """The inner iterations, while the gradient y stays."""
    slider: Slider | DeviceSlider | None = context.prepared.slider
    if slider is None:
        return _plain(context, x, x_before, dual, y, row, into)
    if not slider.pays(row.T):
        return cast(Slid, slider.without(lambda: _plain(context, x, x_before, dual, y, row, into)))
    t = np.arange(1, row.T + 1)
    etas = row.eta(t)
    alphas = np.where(t == 1, row.alpha(1), row.alpha(2))
    steps = Steps(row.p, 1 / row.q, alphas, etas, context.problem.mu + etas + row.p)
    bars, weight, spare = (None, 1.0, ()) if into is None else into
    found = context.network.batch(
        row.T * context.coupling.exchanges,
        x,
        lambda: slider.slide(Point(x, x_before, *dual, y), steps, bars, weight, spare),
    )
    return Slid(
        found.x, found.x_before, Dual(found.s, found.w), found.x_mean, Dual(found.s_bar, found.w_bar), found.spare
    )


def _plain(context: Context, x: Array, x_before: Array, dual: Dual, y: Array, row: Slides, into: Into | None) -> Slid:
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
    mean = Dual(dual_sum.s / row.T, dual_sum.w / row.T)
    if into is not None:
        mean = Dual(*(average(bar, new, into.weight) for bar, new in zip(into.dual_bar, mean, strict=True)))
    return Slid(x, x_before, dual, x_sum / row.T, mean)


def slider_of(context: Context) -> Slider | DeviceSlider | None:
    """Compiled code, if all agents are in one place and their sets are known to it."""
    coupling, network, x = context.coupling, context.network, context.x0
    if not (type(coupling) in COUPLINGS.values() and network.is_local):
        return None
    sets = sets_of(context.domain)
    if sets is None:
        return None
    if is_numpy(x):
        return Slider(network.laplacian, coupling.name, sets, context.problem.d, context.problem.dtype)
    if coupling.name == "incidence" and sets.are_separable and has_kernels(x):
        return DeviceSlider(network.laplacian, sets, x)
    return None
