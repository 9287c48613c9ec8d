"""Consensus problems: minimize sum_i f_i(x) over x in X, with f_i = ft_i + mu nu + r."""

import copy
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self, cast

import numpy as np
import numpy.typing as npt

from gradslide import losses
from gradslide._support.arrays import is_numpy, on_device, to_numpy
from gradslide._support.errors import InputError, kind_of, raised_in, require, require_number
from gradslide._support.keywords import CheckedArguments, checked_arguments
from gradslide._support.types import Array, Device, Sparse
from gradslide.domains import Domain, Free, PerAgent
from gradslide.domains.padded import Padded as PaddedDomain
from gradslide.domains.padded import without_padding as unpadded_domain
from gradslide.domains.penalties import not_a_domain
from gradslide.graphs.graph import GraphLike, as_graph
from gradslide.losses import Loss
from gradslide.losses.padded import padded, without_padding
from gradslide.problems.coupled import Block, Coupled

Built = Loss | tuple[Loss, Domain] | tuple[Loss, Domain, Block]

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


class Part(NamedTuple):
    """What a coupled problem knows of one agent, in the agent's own dimension d_i.

    Attributes
    ----------
    loss : Loss
        Of the agent.
    domain : Domain
        Bound to it.
    block : scipy.sparse.csr_array, shape (k, d_i)
        A_i.
    """

    loss: Loss
    domain: Domain
    block: Sparse


class Problem(Objective):
    """Minimize sum_i ft_i(x_i) + mu nu(x_i) + r(x_i) over x_i in X_i, subject to x_1 = ... = x_m.

    With a coupling, agents have variables of their own instead, subject to linear constraints on
    sum_i A_i x_i.

    Parameters
    ----------
    loss : Loss or sequence of Loss
        The smooth convex functions ft_i, see `gs.losses`; or a loss of one agent for each of them.
    domain : Domain or sequence of Domain, optional
        The set X, the distance-generating function nu and the penalty r; `Free()` by default. Or one
        for each agent.
    mu : float
        Nonnegative: strong convexity per agent. A total ridge of rho/2 |x|^2 is mu = rho/m.
    coupling : Coupled, optional
        The constraints, with a block for each agent. Agents may then have different numbers of
        variables: arrays have the columns of the largest, in which those of others end with zeros.

    Attributes
    ----------
    m : int
        Number of agents of the loss.
    d : int
        Dimension of x_i; the largest, where they differ.
    dtype : numpy.dtype
        Precision.
    device : object or None
        Device of the data; None for NumPy.
    rows_per_agent : ndarray, shape (m,), or None
        Number of rows of each agent; None where the loss is not a sum over rows.
    coupling : Coupled or None
        The constraints of agents with variables of their own.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares(np.eye(4), [1.0, 2.0, 3.0, 4.0], agents=2)
    >>> gs.Problem(loss, domain=gs.domains.L2Ball(3.0))
    Problem(LeastSquares, L2Ball, m=2, d=4, mu=0)

    Two agents share 3 units of a resource, of which the second one can use two kinds:

    >>> losses = [gs.losses.Linear([-1.0]), gs.losses.Linear([-2.0, -3.0])]
    >>> shared = gs.Coupled([np.ones((1, 1)), np.ones((1, 2))], 3.0, sense="<=")
    >>> gs.Problem(losses, domain=gs.domains.Box(0.0, 2.0), coupling=shared)
    Problem(Stacked, PerAgent, m=2, d=2, mu=0, coupling: 1 row)
    """

    def __init__(
        self,
        loss: Loss | Sequence[Loss],
        domain: Domain | Sequence[Domain] | None = None,
        mu: float = 0.0,
        coupling: Coupled | None = None,
    ) -> None:
        if coupling is not None and not isinstance(coupling, Coupled):
            raise InputError("coupling must be a gs.Coupled", kind_of(coupling), "for example gs.Coupled(blocks, b)")
        if isinstance(loss, Sequence):
            for i, each in enumerate(loss):
                is_single = isinstance(each, Loss) and each.m == 1
                got = f"{each.m} agents in losses[{i}]" if isinstance(each, Loss) else f"{kind_of(each)} in losses[{i}]"
                require(is_single, "a list of losses must hold the loss of one agent each", got, "give one per agent")
            loss = losses.stack(loss if coupling is None else [padded(each, max(e.d for e in loss)) for each in loss])
        if isinstance(domain, Sequence) and any(isinstance(each, Domain) for each in domain):
            domain = PerAgent(domain)
        domain = checked_domain("domain", domain)
        if coupling is not None and isinstance(loss, Loss):
            domain = _own_domain(domain, _own_dimensions(loss, coupling), loss.d)
        super().__init__(loss, domain, mu)
        self.coupling = coupling

    @classmethod
    def build(
        cls,
        network: "GraphLike | Agents",
        builder: Callable[[int], Built],
        mu: float = 0.0,
        *,
        b: npt.ArrayLike | None = None,
        sense: str | None = None,
        lower: npt.ArrayLike | None = None,
        upper: npt.ArrayLike | None = None,
    ) -> "Problem":
        """Build the problem of the agents that this process holds.

        Parameters
        ----------
        network : Graph or Network
            Says which agents these are; all for a graph.
        builder : callable
            i -> loss, or (loss, domain), of agent i; called for no other agent. With a coupling,
            i -> (loss, domain, A_i).
        mu : float
            As for `Problem`.
        b, sense, lower, upper
            The bounds of the coupling, as for `Coupled`.

        Returns
        -------
        Problem
        """
        graph = as_graph(network)
        agents = cast(Agents, network).agents if graph is None else range(graph.m)
        parts: list[tuple[Any, ...]] = []
        for i in agents:
            with raised_in(f"the builder for agent {i}"):
                built = builder(i)
            parts.append(built if isinstance(built, tuple) else (built,))
        is_coupled = any(each is not None for each in (b, lower, upper)) or any(len(part) == 3 for part in parts)
        for i, part in zip(agents, parts, strict=True):
            require(
                isinstance(part[0], Loss),
                "the builder must return a loss, or a loss and a domain",
                f"{kind_of(part[0])} for agent {i}",
                "return agent i's own",
            )
            require(
                part[0].m == 1,
                "the builder must return the loss of one agent",
                f"{part[0].m} agents for agent {i}",
                "return agent i's own",
            )
            require(
                len(part) == 3 or not is_coupled,
                "the builder of a coupled problem must return a loss, a domain and a block A_i",
                f"{len(part)} of them for agent {i}",
                "return agent i's own, or leave b, lower and upper out",
            )
        domains = [part[1] if len(part) > 1 else Free() for part in parts]
        own = [part[0] for part in parts]
        if not is_coupled:
            return cls(losses.stack(own), PerAgent(domains), mu)
        blocks = [part[2] for part in parts]
        return cls(own, domains, mu, Coupled(blocks, b, sense=sense, lower=lower, upper=upper))

    @checked_arguments
    def take(self, agents: Sequence[int]) -> "Problem":
        """Return the problem of some agents, in the given order."""
        if self.coupling is None:
            return Problem(self.loss.take(agents), self.domain.take(agents), self.mu)
        return self._with(self.loss.take(agents), self.domain.take(agents), self.coupling.take(agents))

    def padded(self, d: int) -> "Problem":
        """Return a coupled problem in arrays with more columns, as many as some agent elsewhere needs.

        Parameters
        ----------
        d : int
            Columns, at least those of the agents here.

        Returns
        -------
        Problem
        """
        if d == self.d:
            return self
        require(self.coupling is not None, "only coupled problems have agents of different dimensions", d, "keep d")
        parts = self.parts()
        domains = PerAgent([PaddedDomain(part.domain, part.domain.d) for part in parts]).bind(self.m, d, self.dtype)
        return self._with(padded(self.loss, d), domains.to(self.device), self.coupling)

    def parts(self) -> list[Part]:
        """Return what each agent here adds to a coupled problem, in its own dimension.

        Returns
        -------
        list of Part
        """
        rule, remedy = "only coupled problems have parts", "give the problem a coupling"
        if self.coupling is None:
            raise InputError(rule, "no coupling", remedy)
        found = []
        for i, block in enumerate(self.coupling.blocks):
            loss, domain = without_padding(self.loss.take([i])), unpadded_domain(self.domain.take([i]))
            found.append(Part(loss, domain, block))
        return found

    def blocks(self, x: Array) -> list[Array]:
        """Return the x_i in the agents' own dimensions.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One row per agent.

        Returns
        -------
        list of ndarray, shape (d_i,)
            The whole rows, where there is no coupling.
        """
        dimensions = (self.d,) * self.m if self.coupling is None else self.coupling.dimensions
        return [row[:size] for row, size in zip(x, dimensions, strict=True)]

    def _with(self, loss: Loss, domain: Domain, coupling: Coupled | None) -> "Problem":
        """The same kind of problem with parts that were checked before."""
        new = copy.copy(self)
        vars(new).pop("has_lower_bound", None)
        vars(new).update(loss=loss, domain=domain, coupling=coupling, m=loss.m, d=loss.d)
        vars(new).update(dtype=loss.dtype, device=loss.device, rows_per_agent=loss.rows_per_agent)
        return new

    def described(self, m: int) -> str:
        if self.coupling is None:
            return super().described(m)
        rows = f"{self.coupling.k} row{'s' * (self.coupling.k > 1)}"
        return f"{super().described(m)[:-1]}, coupling: {rows})"


def _own_dimensions(loss: Loss, coupling: Coupled) -> tuple[int, ...]:
    """The d_i, checked against the loss."""
    count = len(coupling.blocks)
    rule = f"the coupling must have a block for each of the {loss.m} agents"
    require(count == loss.m, rule, f"{count} blocks", "give blocks for the agents of the loss")
    for i, d in enumerate(coupling.dimensions):
        own = without_padding(loss.take([i])).d
        rule = f"blocks[{i}] must have a column for each of the {own} variables of agent {i}"
        require(d == own, rule, f"{d} columns", "check it against that agent's loss")
    return coupling.dimensions


def _own_domain(domain: Domain, dimensions: Sequence[int], d: int) -> Domain:
    """The domain of agents with variables of their own; those with fewer than d of them are padded."""
    if all(own == d for own in dimensions):
        return domain
    singles = domain.domains if isinstance(domain, PerAgent) else [domain] * len(dimensions)
    rule = "the domains must be one for each agent"
    require(len(singles) == len(dimensions), rule, f"{len(singles)} for {len(dimensions)} agents", "give m domains")
    return PerAgent(
        [each if own == d else PaddedDomain(each, own) for each, own in zip(singles, dimensions, strict=True)]
    )


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
