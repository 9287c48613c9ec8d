"""What the inner loop of primal-dual sliding is given and returns, and compiled code that replaces it.

The loop itself is `gradslide.methods.pds.inner_loop`; kernels give the same bits.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from gradslide._support.arrays import is_numpy
from gradslide._support.types import Array
from gradslide.kernels.device import has_kernels
from gradslide.kernels.device_sets import serves
from gradslide.kernels.device_sliding import DeviceInnerLoopKernel
from gradslide.kernels.sets import sets_of
from gradslide.kernels.sliding import Buffers, InnerLoopKernel, InnerStart, InnerSteps
from gradslide.methods.base import Context
from gradslide.network.coupling import COUPLINGS, Dual


class InnerParams(Protocol):
    """The parameters of the inner iterations t = 1, ..., T of an outer one: a `Row`, for example.

    alpha is the same from t = 2 on; eta takes several t at once, too.
    """

    @property
    def p(self) -> float: ...

    @property
    def T(self) -> int: ...

    @property
    def q(self) -> float: ...

    def alpha(self, t: int) -> float: ...

    def eta(self, t: Any) -> Any: ...


class Workspace(NamedTuple):
    """Arrays that an inner loop may overwrite, beside its x_before and dual.

    Attributes
    ----------
    dual_bar : Dual
        The average of the duals so far, into which that of the inner loop is taken.
    weight : float
        The weight of the inner loop in that average.
    x, x_hat, scratch : Array
        Where x and x_hat may be put, and one array for anything in between.
    """

    dual_bar: Dual
    weight: float
    x: Array
    x_hat: Array
    scratch: Array


class InnerResult(NamedTuple):
    """x_k, the inner iterate before it, z_k, x_hat_k, and the average of the duals.

    Without a workspace that is the average over the inner loop alone, z_hat_k.
    """

    x: Array
    x_before: Array
    dual: Dual
    x_hat: Array
    dual_bar: Dual


InnerLoop = Callable[[Context, Array, Array, Dual, Array, InnerParams, Workspace | None], InnerResult]


def accelerated(inner_loop: InnerLoop, context: Context) -> InnerLoop:
    """Return compiled code that gives the same bits as this inner loop, or the loop itself if there is none.

    There is compiled code for local networks, some domains and Euclidean nu. It is chosen when a
    run begins, since the choice may have to wait for a device.
    """
    coupling, network, x = context.coupling, context.network, context.x0
    if not (type(coupling) in COUPLINGS.values() and network.is_local):
        return inner_loop
    sets = sets_of(context.domain)
    if sets is None:
        return inner_loop
    if is_numpy(x):
        return _Compiled(
            inner_loop,
            InnerLoopKernel(network.laplacian, coupling.name, sets, context.problem.d, context.problem.dtype),
        )
    if coupling.name == "incidence" and serves(sets, context.problem.d) and has_kernels(x):
        return _Compiled(inner_loop, DeviceInnerLoopKernel(network.laplacian, sets, x))
    return inner_loop


class _Compiled:
    """An inner loop by a kernel, once that is worthwhile."""

    def __init__(self, plain: InnerLoop, kernel: InnerLoopKernel | DeviceInnerLoopKernel) -> None:
        self._plain, self._kernel = plain, kernel

    def __call__(
        self,
        context: Context,
        x: Array,
        x_before: Array,
        dual: Dual,
        y: Array,
        row: InnerParams,
        workspace: Workspace | None = None,
    ) -> InnerResult:
        if not self._kernel.is_worthwhile(row.T):
            return self._kernel.time_plain(lambda: self._plain(context, x, x_before, dual, y, row, workspace))
        t = np.arange(1, row.T + 1)
        etas = row.eta(t)
        alphas = np.where(t == 1, row.alpha(1), row.alpha(2))
        steps = InnerSteps(row.p, 1 / row.q, alphas, etas, context.problem.mu + etas + row.p)
        buffers = None if workspace is None else Buffers(*workspace)
        found = context.network.batch(
            row.T * context.coupling.exchanges,
            x,
            lambda: self._kernel.run(InnerStart(x, x_before, *dual, y), steps, buffers),
        )
        return InnerResult(
            found.x, found.x_before, Dual(found.s, found.w), found.x_mean, Dual(found.s_bar, found.w_bar)
        )
