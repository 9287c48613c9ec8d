"""One outer iteration of decentralized communication sliding: Lan, Lee, Zhou, "Communication-efficient algorithms for
decentralized and stochastic optimization", Math. Program. 180, 2020. DCS and SDCS differ in how they come by f'."""

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

# Inner iterations t: one, or several at once.
_Steps = TypeVar("_Steps", float, Array)


@dataclass(frozen=True)
class State(Copied):
    """x = x_k, x_prev = x_{k-1}; averages over x_hat_1, ..., x_hat_k and y_1, ..., y_k; w = Lap y.

    Where gradients are sampled: `samples` per agent were drawn.
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
class Row:
    """The parameters of outer iteration k with T inner ones, for mu = 0 and for mu > 0.

    weight is theta_k / (theta_1 + ... + theta_k). The paper takes mu nu as a part of f, whose gradient f' it uses. Here
    it stays in the prox step, with eta beta_t - mu in place of eta beta_t: the iterates are the same.
    """

    k: int
    T: int
    mu: float
    A_norm: float
    ratio: float

    @property
    def alpha(self) -> float:
        return self.k / (self.k + 1) if self.mu > 0 else 1.0

    @property
    def weight(self) -> float:
        return 2 * (self.k + 1) / (self.k * (self.k + 3)) if self.mu > 0 else 1 / self.k

    @cached_property
    def eta(self) -> float:
        return self.ratio * (self.k * self.mu / 2 if self.mu > 0 else 2 * self.A_norm)

    @property
    def tau(self) -> float:
        return (4 * self.A_norm**2 / ((self.k + 1) * self.mu) if self.mu > 0 else self.A_norm) / self.ratio

    def pull(self, t: _Steps) -> _Steps:
        """eta beta_t, less mu; t: a number, or several."""
        return (t - 1) * (self.eta + self.mu) / 2 if self.mu > 0 else t * self.eta / 2

    def share(self, t: _Steps) -> _Steps:
        """lambda_t / (lambda_1 + ... + lambda_t)."""
        return 2 / (t + 1) if self.mu > 0 else 2 * (t + 1) / (t * (t + 3))


@dataclass(frozen=True, kw_only=True)
class CommunicationSliding(Method):
    """What DCS and SDCS share: their parameters, and what they give back."""

    tuned: ClassVar[str] = "ratio"
    coupling = "laplacian"

    ratio: float = 1.0
    growth: int = 10
    most: int = 5000
    norm: float | None = None

    def __post_init__(self) -> None:
        require_number("ratio", self.ratio, "1 is what the theorem takes", above=0)
        require_number("growth", self.growth, "inner iterations grow by so many", least=1, whole=True)
        require_number("most", self.most, "inner iterations are never more than this", least=1, whole=True)
        check_positive(self, "norm")
        as_floats(self, "ratio")

    def init(self, context: Context) -> State:
        # A lone agent has no ||Lap||; any scale of the steps will do.
        A_norm = (context.network.norm_bound() or 1.0) if self.norm is None else self.norm
        x = context.x0
        zero = array_namespace(x).zeros_like(x)
        y = zero if context.s0 is None else context.s0
        return State(k=0, A_norm=A_norm, x=x, x_prev=x, x_hat=x, x_bar=x, y=y, y_bar=y, w=zero)

    def row(self, state: State, mu: float) -> Row:
        """The parameters of the next outer iteration."""
        k = state.k + 1
        return Row(k=k, T=int(min(self.growth * k, self.most)), mu=mu, A_norm=state.A_norm, ratio=self.ratio)

    def output(self, state: State) -> dict[str, Array]:
        return {"average": state.x_bar, "hat": state.x_hat, "last": state.x}

    def dual(self, state: State) -> dict[str, Array]:
        """The multipliers that go with each output, in node form: A^T z = Lap y."""
        return {"average": state.y_bar, "hat": state.y, "last": state.y}

    def invariant(self, state: State) -> Array:
        return state.w

    def parameters(self, state: State) -> dict[str, float]:
        return {"ratio": self.ratio, "A_norm": state.A_norm}


def outer_iteration(
    context: Context, s: State, row: Row, gradient: Callable[[Array, int], Array] | None, samples: int = 0
) -> State:
    """The paper's lines, in their order. gradient(u, t): f'(u) for inner iteration t, less mu grad nu(u); None: exact
    ones, in compiled steps. samples: how many it takes each time."""
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
    context: Context, row: Row, x: Array, w: Array, gradient: Callable[[Array, int], Array]
) -> tuple[Array, Array]:
    """u_T and the average of the u_t: steps to the minimum of f(u) + <w, u> + eta V(x, u), without communication."""
    domain, mu, eta = context.domain, row.mu, row.eta
    anchor = eta * domain.grad_nu(x) - w
    u = u_hat = x
    for t in range(1, row.T + 1):
        pull = row.pull(t)
        theta = anchor + pull * domain.grad_nu(u) - gradient(u, t)
        u = domain.prox(theta, mu + eta + pull)
        u_hat = average(u_hat, u, row.share(t))
    return u, u_hat


def _compiled_sliding(context: Context, row: Row, x: Array, w: Array) -> tuple[Array, Array]:
    """The same where X = R^d and grad nu(u) = u - center: there prox(theta, scale) = center + theta/scale."""
    domain, scale = context.domain, row.mu + row.eta
    t = np.arange(1, row.T + 1)
    center = -domain.grad_nu(np.zeros_like(x))
    anchor = row.eta * domain.grad_nu(x) - w + scale * center
    return context.oracle.steps(x, anchor, row.pull(t), scale + row.pull(t), row.share(t))
