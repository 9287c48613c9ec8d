"""The primal-dual method of Condat (2013) and Vu (2013), with averages (Chambolle, Pock 2016)."""

import math
from dataclasses import dataclass
from typing import ClassVar

from gradslide._support.errors import require, require_number
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
from gradslide.network.coupling import Dual
from gradslide.theory.certificates import DualEvidence


@dataclass(frozen=True)
class State(Copied):
    """x_k and z_k, the gradient y at x_{k-1} and ft*(y), and averages of all four.

    `averages`: whether they are recommended, not the last x.
    """

    k: int
    averages: bool
    tau: float
    sigma: float
    L: float
    A_norm: float
    x: Array
    x_bar: Array
    y: Array
    y_is_known: bool
    y_bar: Array
    conjugate: Array
    conjugate_bar: Array
    dual: Dual
    dual_bar: Dual


@dataclass(frozen=True, kw_only=True)
class CondatVu(Method[State]):
    """The primal-dual method of Condat and Vu, for networks, linear constraints and saddle points.

    One gradient and one dual step (one product with A and one with A^T, or one exchange) per
    iteration:

        x_{k+1} = argmin over X of <g(x_k) + A^T z_k, x> + mu nu(x) + r(x) + V(x_k, x)/tau
        z_{k+1} = argmin over Z of h(z) - <A (2 x_{k+1} - x_k), z> + U(z_k, z)/sigma

    g stacks the gradients of ft_i, and h is the dual term. On a network h = 0 and
    z_{k+1} = z_k + sigma A (2 x_{k+1} - x_k).

    Parameters
    ----------
    ratio : float, optional
        sigma = ratio/||A|| and 1/tau = L/2 (or L) + ratio ||A||; sqrt(U/V) balances the two terms
        of the bound. Default: from the same estimate as R of `PDS`.
    tau, sigma : float, optional
        The steps, in place of `ratio`.
    L : float, optional
        Smoothness of every ft_i. Default: the largest of the losses' constants.
    norm : float, optional
        ||A||, if it is known. Default: computed by the agents.
    coupling : {"incidence", "laplacian"}
        The matrix A, on a network.

    Notes
    -----
    Assumes that ft is convex and L-smooth. x_k converges if 1/tau - sigma ||A||^2 >= L/2 (Euclidean
    nu). With L in place of L/2, which other geometries need, the gap of the averages is at most
    (V/tau + U/sigma)/k. For L = 0 it is the method of Chambolle and Pock. The last x is
    recommended; the average for L = 0 and for other geometries.

    References
    ----------
    Condat, "A primal-dual splitting method for convex optimization involving Lipschitzian,
    proximable and linear composite terms", J. Optim. Theory Appl. 158, 2013.

    Vu, "A splitting algorithm for dual monotone inclusions involving cocoercive operators", Adv.
    Comput. Math. 38, 2013.

    Chambolle, Pock, "On the ergodic convergence rates of a first-order primal-dual algorithm",
    Math. Program. 159, 2016.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares(np.eye(2), [1.0, 3.0])
    >>> problem = gs.LinearlyConstrained(loss, [[1.0, 1.0]], [2.0])
    >>> solution = gs.solve(problem, method=gs.CondatVu(), stop=gs.Stop(iterations=100))
    >>> bool(abs(solution.mean - [0.0, 2.0]).max() < 1e-3)
    True
    """

    tuned: ClassVar[str] = "ratio"

    ratio: float | None = None
    tau: float | None = None
    sigma: float | None = None
    L: float | None = None
    norm: float | None = None
    coupling: str = "incidence"

    def __post_init__(self) -> None:
        for name in ("ratio", "tau", "sigma"):
            if (value := getattr(self, name)) is not None:
                require_number(name, value, "leave it out for the default", above=0)
        for name in ("L", "norm"):
            if (value := getattr(self, name)) is not None:
                require_number(name, value, "leave it out for the default", least=0)
        given = f"ratio={self.ratio}, tau={self.tau}, sigma={self.sigma}"
        steps = (self.tau is None) == (self.sigma is None) and (self.ratio is None or self.tau is None)
        require(steps, "give tau and sigma, or ratio, or none of them", given, "drop what is too much")
        as_floats(self, "ratio", "tau", "sigma", "L", "norm")
        require_coupling(self.coupling)

    def init(self, context: Context) -> State:
        A_norm = context.coupling.norm() if self.norm is None else self.norm
        L = defaults.smoothness(context) if self.L is None else self.L
        x = context.x0
        y = context.oracle.gradient(x)
        tau, sigma = self._steps(context, y, L, A_norm)
        unknown = without_conjugate(y).conjugate
        dual = context.coupling.start(x, context.s0)
        return State(
            k=0,
            averages=not context.domain.euclidean or L == 0,
            tau=tau,
            sigma=sigma,
            L=L,
            A_norm=A_norm,
            x=x,
            x_bar=x,
            y=y,
            y_is_known=True,
            y_bar=y,
            conjugate=unknown,
            conjugate_bar=unknown,
            dual=dual,
            dual_bar=dual,
        )

    def _steps(self, context: Context, y: Array, L: float, A_norm: float) -> tuple[float, float]:
        least = L / 2 if context.domain.euclidean else L
        if self.tau is not None and self.sigma is not None:
            slack = 1 / self.tau - self.sigma * A_norm**2
            rule = f"1/tau - sigma ||A||^2 must be at least {least:.6g} here"
            require(slack >= least * (1 - 1e-9) - 1e-12 / self.tau, rule, f"{slack:.6g}", "lower tau or sigma")
            return self.tau, self.sigma
        ratio = self.ratio
        if ratio is None:
            R = defaults.estimate_R(context, y, L=L, A_norm=A_norm, gradient=context.oracle.gradient).R
            ratio = math.sqrt(8) * R
        return 1 / (least + ratio * (A_norm or 1.0)), ratio / (A_norm or 1.0)

    def step(self, context: Context, state: State) -> State:
        domain, coupling, s = context.domain, context.coupling, state
        y, conjugate = gradient_and_conjugate(context, s.x, s.y if s.y_is_known else None)
        theta = domain.grad_nu(s.x) / s.tau - y - coupling.pull(s.dual)
        x = domain.prox(theta, context.problem.mu + 1 / s.tau)
        dual = coupling.ascend(s.dual, 2 * x - s.x, 1 / s.sigma)
        weight = 1 / (s.k + 1)
        return State(
            k=s.k + 1,
            averages=s.averages,
            tau=s.tau,
            sigma=s.sigma,
            L=s.L,
            A_norm=s.A_norm,
            x=x,
            x_bar=average(s.x_bar, x, weight),
            y=y,
            # The gradient of a linear f is constant.
            y_is_known=s.L == 0,
            y_bar=average(s.y_bar, y, weight),
            conjugate=conjugate,
            conjugate_bar=conjugate if s.k == 0 else average(s.conjugate_bar, conjugate, weight),
            dual=dual,
            dual_bar=Dual(*(average(bar, new, weight) for bar, new in zip(s.dual_bar, dual, strict=True))),
        )

    def output(self, state: State) -> dict[str, Array]:
        outputs = {"last": state.x, "average": state.x_bar}
        return dict(reversed(outputs.items())) if state.averages else outputs

    def dual(self, state: State) -> dict[str, Array]:
        """Return the multipliers of each output; on a network in node form, A^T z = Lap s."""
        return {"last": state.dual.s, "average": state.dual_bar.s}

    def dual_evidence(self, state: State) -> tuple[DualEvidence, DualEvidence]:
        """Return the averages, and the last iteration."""
        return (
            DualEvidence(state.y_bar, state.conjugate_bar, state.dual_bar),
            DualEvidence(state.y, state.conjugate, state.dual, averaged=0),
        )

    def invariant(self, state: State) -> Array:
        return state.dual.w

    def parameters(self, state: State) -> dict[str, float]:
        ratio = state.sigma * (state.A_norm or 1.0)
        return {"ratio": ratio, "tau": state.tau, "sigma": state.sigma, "L": state.L, "A_norm": state.A_norm}
