"""What is to be minimised: sum_i f_i(x) over x in X, with f_i = ft_i + mu nu + r."""

import copy
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np

from gradslide import losses
from gradslide._support.arrays import is_numpy, on_device, to_numpy
from gradslide._support.errors import InputError, kind_of, require, require_number
from gradslide._support.types import Array
from gradslide.domains import Domain, Free, PerAgent
from gradslide.graphs.graph import Graph
from gradslide.losses import Loss

Part = Loss | tuple[Loss, Domain]


class Objective:
    """f_i = ft_i + mu nu + r over X_i: what is minimised, whatever couples the x_i."""

    def __init__(self, loss: Loss, domain: Domain | None = None, mu: float = 0.0) -> None:
        if not isinstance(loss, Loss):
            raise InputError("loss must be a gradslide loss", kind_of(loss), "use gs.losses.Custom for your own")
        domain = checked_domain("domain", domain)
        require_number("mu", mu, "use mu=0 for convex problems", least=0)
        self.loss = loss
        self.mu = float(mu)
        self.m, self.d, self.dtype, self.device = loss.m, loss.d, loss.dtype, loss.device
        self.domain = domain.bind(loss.m, loss.d, loss.dtype).to(self.device)

    def placed(self, values: Array) -> Array:
        """The values in its precision, among its arrays."""
        return on_device(np.asarray(to_numpy(values), dtype=self.dtype), self.device)

    @property
    def rows_per_agent(self) -> Array | None:
        """Rows of data of each agent here, (agents,); None where the loss is no sum over rows."""
        return self.loss.rows_per_agent

    def objective(self, x: Array, values: Array | None = None) -> Array:
        """f_i(x_i) for every agent here, shape (agents,). values: ft_i(x_i), if they are known already."""
        values = (self.loss.value(x) if values is None else values) + self.domain.r(x)
        return values + self.mu * self.domain.nu(x) if self.mu > 0 else values

    def smoothness(self) -> Array:
        """The smoothness constants of ft_i, per agent, in nu's norm."""
        constants = self.loss.smoothness(self.domain.norm)
        weights = self.domain.weights
        return constants if weights is None else constants / float(np.min(to_numpy(weights)))

    @cached_property
    def has_lower_bound(self) -> bool:
        """Whether min over X of mu nu + r + <c, x> is finite for every c and ft has a value: what a lower bound takes.

        So it is where X is bounded, mu > 0, or an elastic net makes r strongly convex.
        """
        c = self.placed(1e6 * np.random.default_rng(0).normal(size=(self.m, self.d)).astype(self.dtype))
        minima = [to_numpy(self.domain.linear_minimum(sign * c, self.mu)) for sign in (1, -1)]
        return self.loss.has_value and bool(np.all(np.isfinite(minima)))

    def start(self, x0: Array | None = None) -> Array:
        """x0 as an (agents, d) array, checked to lie in X; by default the minimiser of nu."""
        if x0 is None:
            start = self.domain.start()
            return np.ascontiguousarray(start) if is_numpy(start) else start
        x0 = to_numpy(x0)
        require(x0.dtype.kind in "fiu", "x0 must hold real numbers", f"type {x0.dtype}", "convert it to float")
        try:
            x = np.array(np.broadcast_to(x0, (self.m, self.d)), dtype=self.dtype, order="C")
        except ValueError:
            raise InputError(
                f"x0 must have shape ({self.d},) or ({self.m}, {self.d})",
                x0.shape,
                "give one point for all agents or one each",
            ) from None
        require(bool(np.all(np.isfinite(x))), "x0 must be finite", "NaN or infinity", "check x0")
        tolerance = float(np.sqrt(np.finfo(self.dtype).eps)) * max(1.0, float(np.max(np.abs(x))))
        x = self.placed(x)
        outside = np.flatnonzero(~to_numpy(self.domain.contains(x, tolerance)))
        require(
            outside.size == 0,
            "x0 must lie in the domain",
            f"a point outside for agent {outside[:1].sum()}",
            "project it: domain.project(x0)",
        )
        return x

    def __repr__(self) -> str:
        return self.described(self.m)

    def described(self, m: int) -> str:
        """In a few words, with that number of agents."""
        parts = f"{type(self.loss).__name__}, {type(self.domain).__name__}, m={m}, d={self.d}, mu={self.mu:g}"
        return f"{type(self).__name__}({parts})"


class Agents(Protocol):
    """A network, or anything else that knows which agents live here."""

    @property
    def agents(self) -> Sequence[int]: ...


class Problem(Objective):
    """min sum_i ft_i(x_i) + mu nu(x_i) + r(x_i) over x_i in X_i, all x_i equal.

    loss: the smooth convex ft_i, summed over each agent's rows. domain: the set X, the distance-generating
    function nu and the penalty r; `Free()` by default. mu >= 0: strong convexity per agent (a total ridge of
    rho/2 |x|^2 is mu = rho/m).
    """

    @classmethod
    def build(cls, network: "Graph | Agents", builder: Callable[[int], Part], mu: float = 0.0) -> "Problem":
        """The problem of the agents that live here; `builder(i)` gives agent i's loss, or (loss, domain), and
        is called for no other."""
        agents = range(network.m) if isinstance(network, Graph) else network.agents
        parts = [builder(i) for i in agents]
        pairs = [part if isinstance(part, tuple) else (part, Free()) for part in parts]
        for i, (loss, _) in zip(agents, pairs, strict=True):
            require(
                isinstance(loss, Loss),
                "the builder must return a loss, or a loss and a domain",
                f"{kind_of(loss)} for agent {i}",
                "return agent i's own",
            )
            require(
                loss.m == 1,
                "the builder must return the loss of one agent",
                f"{loss.m} agents for agent {i}",
                "return agent i's own",
            )
        return cls(losses.stack([loss for loss, _ in pairs]), PerAgent([domain for _, domain in pairs]), mu)

    def to(self, device: Any) -> Self:
        """The same problem with its data on a device of PyTorch's, such as "cuda"; for one that is solved often."""
        new = copy.copy(self)
        new.loss = self.loss.to(device)
        new.device = new.loss.device
        new.domain = self.domain.to(new.device)
        return new

    def take(self, agents: Sequence[int]) -> "Problem":
        """The problem of some of the agents."""
        return Problem(self.loss.take(agents), self.domain.take(agents), self.mu)


def checked_domain(name: str, domain: object) -> Domain:
    """The domain, the whole space where none is given; anything else is refused."""
    if domain is None:
        return Free()
    if not isinstance(domain, Domain):
        raise InputError(f"{name} must be a gradslide domain", kind_of(domain), "for example gs.domains.Free()")
    return domain


def checked_problem(problem: object) -> Problem:
    """The problem; anything else is refused."""
    if not isinstance(problem, Problem):
        raise InputError("problem must be a gs.Problem", kind_of(problem), "wrap the loss: gs.Problem(loss)")
    return problem
