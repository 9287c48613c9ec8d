"""One outer iteration of communication sliding, shared by `DCS` and `SDCS` (Lan, Lee, Zhou 2020).

The two methods differ in how they obtain gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeVar

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.errors import require_number
from gradslide._support.types import Array
from gradslide.methods.base import Context, Copied, Method, as_floats, average
from gradslide.methods.steps import check_positive

# An inner iteration t, or several at once.
_Steps = TypeVar("_Steps", float, Array)


@dataclass(frozen=True)
class State(Copied):
    """x_k, x_{k-1}, x_hat_k and y_k; averages x_bar and y_bar over all k; w = Lap y_k.

    `samples` per agent were drawn, if gradients are sampled.
    """

    k: int
    A_norm: float
    x: Array
    x_prev: Array
    x_hat: Array
    x_bar: Array
    y: Array
    y_bar: Array
    w: Array
    samples: int = 0


@dataclass(frozen=True)
class SlidingRow:
    """The parameters of outer iteration k with T inner ones, for mu = 0 and for mu > 0.

    The paper treats mu nu as a part of f, whose gradient f' it uses. Here it stays in the prox
    step, with eta beta_t - mu in place of eta beta_t: the iterates are the same.
    """

    k: int
    T: int
    mu: float
    A_norm: float
    ratio: float

    @property
    def alpha(self) -> float:
        """alpha_k of the extrapolation."""
        return self.k / (self.k + 1) if self.mu > 0 else 1.0

    @property
    def weight(self) -> float:
        """theta_k / (theta_1 + ... + theta_k)."""
        return 2 * (self.k + 1) / (self.k * (self.k + 3)) if self.mu > 0 else 1 / self.k

    @cached_property
    def eta(self) -> float:
        """eta_k, the weight of V(x_{k-1}, u)."""
        return self.ratio * (self.k * self.mu / 2 if self.mu > 0 else 2 * self.A_norm)

    @property
    def tau(self) -> float:
        """tau_k, the inverse dual step."""
        return (4 * self.A_norm**2 / ((self.k + 1) * self.mu) if self.mu > 0 else self.A_norm) / self.ratio

    def pull(self, t: _Steps) -> _Steps:
        """Return eta beta_t, less mu."""
        return (t - 1) * (self.eta + self.mu) / 2 if self.mu > 0 else t * self.eta / 2

    def share(self, t: _Steps) -> _Steps:
        """Return lambda_t / (lambda_1 + ... + lambda_t)."""
        return 2 / (t + 1) if self.mu > 0 else 2 * (t + 1) / (t * (t + 3))


@dataclass(frozen=True, kw_only=True)
class CommunicationSliding(Method[State]):
    """The parameters and outputs of DCS and SDCS."""

    tuned: ClassVar[str] = "ratio"
    coupling = "laplacian"

    ratio: float = 1.0
    growth: int = 10
    most: int = 5000
    norm: float | None = None

    def __post_init__(self) -> None:
        require_number("ratio", self.ratio, "the theorem uses 1", above=0)
        require_number("growth", self.growth, "T_k grows by this number", least=1, whole=True)
        require_number("most", self.most, "T_k is at most this number", least=1, whole=True)
        check_positive(self, "norm")
        as_floats(self, "ratio")

    def init(self, context: Context) -> State:
        # For a single agent ||Lap|| = 0, and any scale of the steps will do.
        A_norm = (context.network.norm_bound() or 1.0) if self.norm is None else self.norm
        x = context.x0
        zero = array_namespace(x).zeros_like(x)
        y = zero if context.s0 is None else context.s0
        return State(k=0, A_norm=A_norm, x=x, x_prev=x, x_hat=x, x_bar=x, y=y, y_bar=y, w=zero)

    def row(self, state: State, mu: float) -> SlidingRow:
        """Return the parameters of the next outer iteration."""
        k = state.k + 1
        return SlidingRow(k=k, T=int(min(self.growth * k, self.most)), mu=mu, A_norm=state.A_norm, ratio=self.ratio)

    def output(self, state: State) -> dict[str, Array]:
        return {"average": state.x_bar, "hat": state.x_hat, "last": state.x}

    def dual(self, state: State) -> dict[str, Array]:
        """Return the multipliers of each output, in node form: A^T z = Lap y."""
        return {"average": state.y_bar, "hat": state.y, "last": state.y}

    def invariant(self, state: State) -> Array:
        return state.w

    def parameters(self, state: State) -> dict[str, float]:
        return {"ratio": self.ratio, "A_norm": state.A_norm}


def outer_iteration(
    context: Context, s: State, row: SlidingRow, gradient: Callable[[Array, int], Array] | None, samples: int = 0
) -> State:
    """Run outer iteration k: the paper's lines in their order.

    Parameters
    ----------
    context : Context
        The run.
    s : State
        The state after k - 1 outer iterations.
    row : SlidingRow
        The parameters.
    gradient : callable or None
        gradient(u, t) returns f'(u) for inner iteration t, less mu grad nu(u). None: exact
        gradients, in compiled steps.
    samples : int
        Samples per agent that each gradient takes.

    Returns
    -------
    State
        The next state.
    """
    network = context.network
    x_tilde = s.x + row.alpha * (s.x_hat - s.x_prev)
    y = s.y + (1 / row.tau) * network.combine(x_tilde, network.laplacian)
    w = network.combine(y, network.laplacian)
    if gradient is None:
        x, x_hat = _compiled_sliding(context, row, s.x, w)
    else:
        x, x_hat = _communication_sliding(context, row, s.x, w, gradient)
    return State(
        k=row.k,
        A_norm=s.A_norm,
        x=x,
        x_prev=s.x,
        x_hat=x_hat,
        x_bar=average(s.x_bar, x_hat, row.weight),
        y=y,
        y_bar=average(s.y_bar, y, row.weight),
        w=w,
        samples=s.samples + row.T * samples,
    )


def _communication_sliding(
    context: Context, row: SlidingRow, x: Array, w: Array, gradient: Callable[[Array, int], Array]
) -> tuple[Array, Array]:
    """Return u_T and the average of steps u_t to the minimum of f(u) + <w, u> + eta V(x, u)."""
    domain, mu, eta = context.domain, row.mu, row.eta
    anchor = eta * domain.grad_nu(x) - w
    u = u_hat = x
    for t in range(1, row.T + 1):
        pull = row.pull(t)
        theta = anchor + pull * domain.grad_nu(u) - gradient(u, t)
        u = domain.prox(theta, mu + eta + pull)
        u_hat = average(u_hat, u, row.share(t))
    return u, u_hat


def _compiled_sliding(context: Context, row: SlidingRow, x: Array, w: Array) -> tuple[Array, Array]:
    """Return the same for X = R^d and grad nu(u) = u - center, by compiled code."""
    domain, scale = context.domain, row.mu + row.eta
    t = np.arange(1, row.T + 1)
    center = -domain.grad_nu(np.zeros_like(x))
    anchor = row.eta * domain.grad_nu(x) - w + scale * center
    return context.oracle.steps(x, anchor, row.pull(t), scale + row.pull(t), row.share(t))
