"""Consensus problems: minimize sum_i f_i(x) over x in X, with f_i = ft_i + mu nu + r."""

import copy
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol, Self, cast

import numpy as np

from gradslide import losses
from gradslide._support.arrays import is_numpy, on_device, to_numpy
from gradslide._support.errors import InputError, kind_of, raised_in, require, require_number
from gradslide._support.keywords import CheckedArguments, checked_arguments
from gradslide._support.types import Array, Device
from gradslide.domains import Domain, Free, PerAgent
from gradslide.domains.penalties import not_a_domain
from gradslide.graphs.graph import GraphLike, as_graph
from gradslide.losses import Loss

Part = Loss | tuple[Loss, Domain]

# Attributes that follow from the loss.
_FIXED = {"loss", "m", "d", "dtype", "device", "rows_per_agent"}


class Objective(CheckedArguments):
    """The objective f_i = ft_i + mu nu + r over X_i, common to all problem classes."""

    def __init__(self, loss: Loss, domain: Domain | None = None, mu: float = 0.0) -> None:
        if not isinstance(loss, Loss):
            raise InputError("loss must be a gradslide loss", kind_of(loss), "use gs.losses.Custom for your own")
        domain = checked_domain("domain", domain)
        require_number("mu", mu, "use mu=0 for convex problems", least=0)
        self.loss = loss
        self.mu = float(mu)
        self.m, self.d, self.dtype, self.device = loss.m, loss.d, loss.dtype, loss.device
        self.rows_per_agent = loss.rows_per_agent
        self.domain = domain.bind(loss.m, loss.d, loss.dtype).to(self.device)

    def __setattr__(self, name: str, value: object) -> None:
        # Properties would cost a call at every access.
        if name in _FIXED and name in vars(self):
            raise AttributeError(f"{type(self).__name__}.{name} cannot be assigned: make a new problem")
        super().__setattr__(name, value)

    @checked_arguments
    def to(self, device: Device) -> Self:
        """Return the same problem with its data on a PyTorch device, for repeated solves.

        Parameters
        ----------
        device : str or torch.device
            For example "cuda".

        Returns
        -------
        Problem
        """
        new = copy.copy(self)
        loss = self.loss.to(device)
        vars(new).update(loss=loss, device=loss.device, domain=self.domain.to(loss.device))
        return new

    def placed(self, values: Array) -> Array:
        """Return the values in the precision and on the device of the problem."""
        return on_device(np.asarray(to_numpy(values), dtype=self.dtype), self.device)

    def objective(self, x: Array, values: Array | None = None) -> Array:
        """Return f_i(x_i) of every agent.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.
        values : ndarray, shape (m,), optional
            ft_i(x_i), if they are known already.

        Returns
        -------
        ndarray, shape (m,)
        """
        values = (self.loss.value(x) if values is None else values) + self.domain.r(x)
        return values + self.mu * self.domain.nu(x) if self.mu > 0 else values

    def smoothness(self) -> Array:
        """Return the smoothness constants of the ft_i over X_i in the norm of nu, shape (m,)."""

        def support(agents: Array, c: Array) -> Array:
            return -self.domain.without_penalty().to(None).take(agents).linear_minimum(-c)

        constants = self.loss.smoothness_over(support, self.domain.norm)
        weights = self.domain.weights
        return constants if weights is None else constants / float(np.min(to_numpy(weights)))

    @cached_property
    def has_lower_bound(self) -> bool:
        """Whether a lower bound of the objective can be computed.

        It can where min over X of mu nu + r + <c, x> is finite for every c, that is, if X is
        bounded, mu > 0, or an elastic net makes r strongly convex; and if the loss has a value.
        """
        # In double precision, as bounds are computed: in single precision a small mu makes |c|^2/mu overflow.
        c = on_device(1e6 * np.random.default_rng(0).normal(size=(self.m, self.d)), self.device)
        below, above = self.domain.linear_minimum(c, self.mu), self.domain.linear_minimum(-c, self.mu)
        return self.loss.has_value and bool(np.all(np.isfinite(to_numpy(below)) & np.isfinite(to_numpy(above))))

    def start(self, x0: Array | None = None) -> Array:
        """Return a start point, checked to lie in X.

        Parameters
        ----------
        x0 : array_like, shape (d,) or (m, d), optional
            One point for all agents, or one each; by default the minimizer of nu.

        Returns
        -------
        ndarray, shape (m, d)
        """
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
        """Describe the problem in one line, for a given total number of agents."""
        parts = f"{type(self.loss).__name__}, {type(self.domain).__name__}, m={m}, d={self.d}, mu={self.mu:g}"
        return f"{type(self).__name__}({parts})"


class Agents(Protocol):
    """A network, or any other object that knows which agents this process holds."""

    @property
    def agents(self) -> Sequence[int]: ...


class Problem(Objective):
    """Minimize sum_i ft_i(x_i) + mu nu(x_i) + r(x_i) over x_i in X_i, subject to x_1 = ... = x_m.

    Parameters
    ----------
    loss : Loss
        The smooth convex functions ft_i; see `gs.losses`.
    domain : Domain, optional
        The set X, the distance-generating function nu and the penalty r; `Free()` by default.
    mu : float
        Nonnegative: strong convexity per agent. A total ridge of rho/2 |x|^2 is mu = rho/m.

    Attributes
    ----------
    m : int
        Number of agents of the loss.
    d : int
        Dimension of x_i.
    dtype : numpy.dtype
        Precision.
    device : object or None
        Device of the data; None for NumPy.
    rows_per_agent : ndarray, shape (m,), or None
        Number of rows of each agent; None where the loss is not a sum over rows.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares(np.eye(4), [1.0, 2.0, 3.0, 4.0], agents=2)
    >>> gs.Problem(loss, domain=gs.domains.L2Ball(3.0))
    Problem(LeastSquares, L2Ball, m=2, d=4, mu=0)
    """

    @classmethod
    def build(cls, network: "GraphLike | Agents", builder: Callable[[int], Part], mu: float = 0.0) -> "Problem":
        """Build the problem of the agents that this process holds.

        Parameters
        ----------
        network : Graph or Network
            Says which agents these are; all for a graph.
        builder : callable
            i -> loss, or (loss, domain), of agent i; called for no other agent.
        mu : float
            As for `Problem`.

        Returns
        -------
        Problem
        """
        graph = as_graph(network)
        agents = cast(Agents, network).agents if graph is None else range(graph.m)
        parts = []
        for i in agents:
            with raised_in(f"the builder for agent {i}"):
                parts.append(builder(i))
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

    @checked_arguments
    def take(self, agents: Sequence[int]) -> "Problem":
        """Return the problem of some agents, in the given order."""
        return Problem(self.loss.take(agents), self.domain.take(agents), self.mu)


def checked_domain(name: str, domain: object) -> Domain:
    """Return the domain, by default the whole space; refuse anything else."""
    if domain is None:
        return Free()
    if not isinstance(domain, Domain):
        raise not_a_domain(f"{name} must be a gradslide domain", domain)
    return domain


def checked_problem(problem: object) -> Problem:
    """Return the problem; refuse anything else."""
    if not isinstance(problem, Problem):
        raise InputError("problem must be a gs.Problem", kind_of(problem), "wrap the loss: gs.Problem(loss)")
    return problem
