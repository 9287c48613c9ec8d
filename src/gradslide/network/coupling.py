"""Couplings: the linear map A of the algorithms, with its dual variable.

On a network the kernel of A is consensus, and A is the only part of a method that communicates.
Saddle point problems have an operator of their own, and no network.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from array_api_compat import array_namespace

from gradslide._support.arrays import dot, is_numpy, like
from gradslide._support.errors import unknown_name
from gradslide._support.keywords import checked_arguments
from gradslide._support.types import Array
from gradslide.network.protocol import Network
from gradslide.problems.saddle import Saddle
from gradslide.results.costs import Costs

# Entries of an array from which on columns are looked at a few at a time, but no fewer than these.
_LARGE, _NARROWEST = 1 << 16, 16


class Dual(NamedTuple):
    """The dual variable z.

    On a network it is stored at the nodes, and w = Lap s. Incidence: z = B^T s, so ||z||^2 = <s,
    w>. Laplacian: z = s.

    Attributes
    ----------
    s : array
        What is stored of z.
    w : array of the shape of x
        A^T z, which enters the x step.
    """

    s: Array
    w: Array


class Coupling(Protocol):
    """The linear map A, and the space of z, as methods use them.

    Attributes
    ----------
    name : str
        The name, for example ``"incidence"``.
    exchanges : int
        Neighbour exchanges per inner iteration.
    """

    @property
    def name(self) -> str:
        """The name, for example ``"incidence"``."""
        ...

    @property
    def exchanges(self) -> int:
        """Neighbour exchanges per inner iteration."""
        ...

    def norm(self) -> float:
        """Return the norm of A; may cost control rounds or products.

        Returns
        -------
        float
            The largest singular value of A, or an upper bound.
        """
        ...

    def start(self, x: Array, s: Array | None = None) -> Dual:
        """Return the dual at the minimiser of zeta, z = 0 on a network, or at a given s.

        The latter takes one exchange or product.

        Parameters
        ----------
        x : array
            The primal starting point, which gives shape and precision.
        s : array, optional
            The stored form of z, as in `Dual.s`.

        Returns
        -------
        Dual
            z and A^T z.
        """
        ...

    def ascend(self, dual: Dual, u: Array, q: float) -> Dual:
        """Return z+ = argmin_z h(z) - <A u, z> + q U(z_old, z), and w = A^T z+.

        On a network z+ = z_old + A u / q (`eq:zkt`, `eq:zkt_SPP`).

        Parameters
        ----------
        dual : Dual
            z_old.
        u : array of the shape of x
            The extrapolated primal point.
        q : float
            Weight of the dual distance U, positive.

        Returns
        -------
        Dual
            z+ and A^T z+.
        """
        ...

    def pull(self, dual: Dual) -> Array:
        """Return A^T z, as it enters the x step (`eq:xkt`).

        Parameters
        ----------
        dual : Dual
            z, as `start` or `ascend` returned it.

        Returns
        -------
        array of the shape of x
            A^T z.
        """
        ...


class NetworkCoupling(Coupling, Protocol):
    """A coupling of agents on a network: A x = 0 exactly when all agents agree."""

    def smallest_singular_value(self) -> float:
        """Return the smallest nonzero singular value of A.

        Returns
        -------
        float
            Infinite for one agent.
        """
        ...

    def residual(self, x: Array) -> float:
        """Return the norm of A x: an observation.

        Parameters
        ----------
        x : array of shape (agents here, d)
            One row for each agent.

        Returns
        -------
        float
            0 exactly when all agents agree.
        """
        ...

    def dual_norm(self, dual: Dual) -> float:
        """Return the norm of z: an observation.

        Parameters
        ----------
        dual : Dual
            z, as `start` or `ascend` returned it.

        Returns
        -------
        float
            The Euclidean norm of z.
        """
        ...


@dataclass(eq=False)
class _NodeForm:
    """What the couplings of a network share: their dual is stored at the nodes."""

    network: Network
    _in_double: ClassVar[bool] = False

    def start(self, x: Array, s: Array | None = None) -> Dual:
        xp = array_namespace(x)
        w = xp.zeros_like(x) if s is None else self._laplace(s)
        s = xp.zeros_like(x) if s is None else s
        return Dual(xp.astype(s, xp.float64) if self._in_double else s, w)

    def pull(self, dual: Dual) -> Array:
        return dual.w

    def _laplace(self, v: Array) -> Array:
        """Lap v: one exchange."""
        return self.network.combine(v, self.network.laplacian)

    def _columns(self, x: Array) -> Iterator[Array]:
        """Columns of x, few at a time to save memory; all at once among processes."""
        if not (self.network.is_local and is_numpy(x)):
            yield x
            return
        width = max(_NARROWEST, _LARGE // max(1, len(x)))
        for first in range(0, x.shape[1], width):
            yield x[:, first : first + width]

    def _centred(self, v: Array) -> Array:
        """v less its mean over all agents: an observation."""
        return v - like(self.network.session.observe(v, "sum") / self.network.m, v)

    def _inner(self, a: Array, b: Array) -> float:
        """<a, b> over all agents, in double precision: an observation."""
        return float(self.network.session.observe(dot(a, b), "sum"))


class Incidence(_NodeForm):
    """A = B^T (x) I, where B is the incidence matrix: one exchange per inner iteration.

    A has one row per edge. Its dual is stored at the nodes, as s with z = B^T s and w = Lap s; the
    dual step is s+ = s + u / q, w+ = w + Lap u / q.

    Parameters
    ----------
    network : Network

    Examples
    --------
    >>> import gradslide as gs
    >>> coupling = gs.coupling.Incidence(gs.network.Local(gs.Graph.ring(4)))
    >>> round(coupling.norm(), 6), round(coupling.smallest_singular_value(), 6)
    (2.0, 1.414214)
    """

    name: ClassVar[str] = "incidence"
    exchanges: ClassVar[int] = 1
    # s gathers the mean of all u as well, which w = Lap s does not see: it needs digits to spare.
    _in_double: ClassVar[bool] = True

    def norm(self) -> float:
        return math.sqrt(self.network.norm_bound())

    def smallest_singular_value(self) -> float:
        return math.sqrt(self.network.graph.algebraic_connectivity)

    def ascend(self, dual: Dual, u: Array, q: float) -> Dual:
        step = 1 / q
        return Dual(dual.s + step * u, dual.w + step * self._laplace(u))

    def residual(self, x: Array) -> float:
        # <x, Lap x> loses half the digits near consensus unless the mean is taken off first.
        observe, total = self.network.session.observe, 0.0
        for columns in self._columns(x):
            part = columns - like(observe(columns, "sum") / self.network.m, columns)
            total += float(observe(dot(part, self._laplace(part)), "sum"))
        return math.sqrt(max(0.0, total))

    def dual_norm(self, dual: Dual) -> float:
        return math.sqrt(max(0.0, self._inner(self._centred(dual.s), dual.w)))


class Laplacian(_NodeForm):
    """A = Lap (x) I, as in the paper's experiments: two exchanges per inner iteration.

    The dual step is z+ = z + Lap u / q, w+ = Lap z+.

    Parameters
    ----------
    network : Network

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> coupling = gs.coupling.Laplacian(gs.network.Local(gs.Graph.ring(4)))
    >>> coupling.residual(np.ones((4, 2)))
    0.0
    """

    name: ClassVar[str] = "laplacian"
    exchanges: ClassVar[int] = 2

    def norm(self) -> float:
        return self.network.norm_bound()

    def smallest_singular_value(self) -> float:
        return self.network.graph.algebraic_connectivity

    def ascend(self, dual: Dual, u: Array, q: float) -> Dual:
        z = dual.s + (1 / q) * self._laplace(u)
        return Dual(z, self._laplace(z))

    def residual(self, x: Array) -> float:
        total = 0.0
        for Ax in map(self._laplace, self._columns(x)):
            total += self._inner(Ax, Ax)
        return math.sqrt(total)

    def dual_norm(self, dual: Dual) -> float:
        return math.sqrt(self._inner(dual.s, dual.s))


COUPLINGS: dict[str, type[Incidence] | type[Laplacian]] = {"incidence": Incidence, "laplacian": Laplacian}


@checked_arguments
def make(name: str, network: Network) -> NetworkCoupling:
    """Return the coupling of that name over a network.

    Parameters
    ----------
    name : {"incidence", "laplacian"}
    network : Network

    Returns
    -------
    NetworkCoupling

    Raises
    ------
    InputError
        If there is no such coupling.
    """
    if name not in COUPLINGS:
        raise unknown_name("coupling", name, COUPLINGS)
    return COUPLINGS[name](network)


class Operator:
    """The operator A of a saddle point problem, with z in a dual space of its own.

    z is stored as it is: s = z as a row (1, k), and w = A^T z in the shape of x. Every product is
    counted.

    Parameters
    ----------
    problem : Saddle
        The problem, with A and the dual term.
    costs : Costs
        Where products are counted.
    """

    name: ClassVar[str] = "operator"
    exchanges: ClassVar[int] = 0

    def __init__(self, problem: Saddle, costs: Costs) -> None:
        self.duals = problem.duals
        self.A = problem.A.counted(costs)
        self._problem, self._costs = problem, costs

    def norm(self) -> float:
        return self._problem.operator_norm(self.A)

    def count(self, products: int) -> None:
        """Count products that were computed with the entries of A."""
        self._costs.operator_products += products

    def start(self, x: Array, s: Array | None = None) -> Dual:
        z, xp = self.duals.start() if s is None else s, array_namespace(x)
        return Dual(z, self.pulled(z) if bool(xp.any(z != 0)) else xp.zeros_like(x))

    def ascend(self, dual: Dual, u: Array, q: float) -> Dual:
        z = self.duals.ascend(dual.s, self.product(u), q)
        return Dual(z, self.pulled(z))

    def pull(self, dual: Dual) -> Array:
        return dual.w

    def product(self, x: Array) -> Array:
        """Return A x as a row (1, k)."""
        return self.A.apply(x.reshape(-1))[None]

    def pulled(self, z: Array) -> Array:
        """Return A^T z, in the shape of x."""
        return self.A.apply_adjoint(z[0]).reshape(self._problem.m, self._problem.d)
