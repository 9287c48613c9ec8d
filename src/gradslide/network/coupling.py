"""The linear map A whose kernel is consensus: the only part of a method that communicates."""

import math
from collections.abc import Iterator
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import dot, is_numpy, like
from gradslide._support.errors import unknown_name
from gradslide._support.types import Array
from gradslide.network.protocol import Network
from gradslide.problems.saddle import Saddle
from gradslide.results.costs import Costs

# Entries of an array from which on columns are looked at a few at a time, but no fewer than these.
_LARGE, _NARROWEST = 1 << 16, 16


class Dual(NamedTuple):
    """The dual variable: `w` = A^T z is what enters the x step, `s` is what is kept of z.

    On a network it is in node form, and w = Lap s. Incidence: z = B^T s, so ||z||^2 = <s, w>. Laplacian: z = s.
    """

    s: Array
    w: Array


class Coupling(Protocol):
    """What a method asks of A and of the space in which z lives."""

    @property
    def name(self) -> str: ...

    @property
    def exchanges(self) -> int:
        """Neighbour exchanges per inner iteration."""
        ...

    def norm(self) -> float:
        """||A||; may cost control rounds or products."""
        ...

    def start(self, x: Array, s: Array | None = None) -> Dual:
        """The dual at the minimiser of zeta (z = 0 on a network), or at given s (one exchange or product)."""
        ...

    def ascend(self, dual: Dual, u: Array, q: float) -> Dual:
        """z <- argmin h - <A u, .> + q U(z, .), and w = A^T z (`eq:zkt`, `eq:zkt_SPP`); on a network z + A u / q."""
        ...

    def pull(self, dual: Dual) -> Array:
        """A^T z, as it enters the x step (`eq:xkt`)."""
        ...


class NetworkCoupling(Coupling, Protocol):
    """A x = 0 exactly when all agents agree."""

    def smallest_singular_value(self) -> float:
        """The smallest nonzero singular value of A."""
        ...

    def residual(self, x: Array) -> float:
        """||A x||: an observation."""
        ...

    def dual_norm(self, dual: Dual) -> float:
        """||z||: an observation."""
        ...


class _NodeForm:
    """What the couplings of a network share: their dual is kept at the nodes."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def start(self, x: Array, s: Array | None = None) -> Dual:
        if s is None:
            xp = array_namespace(x)
            return Dual(xp.zeros_like(x), xp.zeros_like(x))
        return Dual(s, self._laplace(s))

    def pull(self, dual: Dual) -> Array:
        return dual.w

    def _laplace(self, v: Array) -> Array:
        """Lap v: one exchange."""
        return self._network.combine(v, self._network.laplacian)

    def _columns(self, x: Array) -> Iterator[Array]:
        """x, a few columns at a time where it is so large that more arrays of its size would be felt; not where other
        processes would have to take as many steps."""
        if not (self._network.is_local and is_numpy(x)):
            return iter((x,))
        width = max(_NARROWEST, _LARGE // max(1, len(x)))
        return (x[:, first : first + width] for first in range(0, x.shape[1], width))

    def _centred(self, v: Array) -> Array:
        """v less its mean over all agents: an observation."""
        return v - like(self._network.session.observe(v, "sum") / self._network.m, v)

    def _inner(self, a: Array, b: Array) -> float:
        """<a, b> over all agents, in double precision: an observation."""
        return float(self._network.session.observe(dot(a, b), "sum"))


class Incidence(_NodeForm):
    """A = B^T (x) I, one row per edge, kept in node form: w <- w + Lap u / q takes one exchange."""

    name: ClassVar[str] = "incidence"
    exchanges: ClassVar[int] = 1

    def norm(self) -> float:
        return math.sqrt(self._network.norm_bound())

    def start(self, x: Array, s: Array | None = None) -> Dual:
        # s gathers the mean of all u as well, which w = Lap s does not see: it needs digits to spare.
        s, w = super().start(x, s)
        xp = array_namespace(s)
        return Dual(xp.astype(s, xp.float64), w)

    def smallest_singular_value(self) -> float:
        return math.sqrt(self._network.graph.algebraic_connectivity)

    def ascend(self, dual: Dual, u: Array, q: float) -> Dual:
        step = 1 / q
        return Dual(dual.s + step * u, dual.w + step * self._laplace(u))

    def residual(self, x: Array) -> float:
        # <x, Lap x> loses half the digits near consensus unless the mean is taken off first.
        parts = map(self._centred, self._columns(x))
        return math.sqrt(max(0.0, sum(self._inner(part, self._laplace(part)) for part in parts)))

    def dual_norm(self, dual: Dual) -> float:
        return math.sqrt(max(0.0, self._inner(self._centred(dual.s), dual.w)))


class Laplacian(_NodeForm):
    """A = Lap (x) I, as in the paper's experiments: two exchanges per inner iteration."""

    name: ClassVar[str] = "laplacian"
    exchanges: ClassVar[int] = 2

    def norm(self) -> float:
        return self._network.norm_bound()

    def smallest_singular_value(self) -> float:
        return self._network.graph.algebraic_connectivity

    def ascend(self, dual: Dual, u: Array, q: float) -> Dual:
        z = dual.s + (1 / q) * self._laplace(u)
        return Dual(z, self._laplace(z))

    def residual(self, x: Array) -> float:
        products = map(self._laplace, self._columns(x))
        return math.sqrt(sum(self._inner(Ax, Ax) for Ax in products))

    def dual_norm(self, dual: Dual) -> float:
        return math.sqrt(self._inner(dual.s, dual.s))


COUPLINGS: dict[str, type[Incidence] | type[Laplacian]] = {"incidence": Incidence, "laplacian": Laplacian}


def make(name: str, network: Network) -> NetworkCoupling:
    """The coupling of that name over a network."""
    if name not in COUPLINGS:
        raise unknown_name("coupling", name, COUPLINGS)
    return COUPLINGS[name](network)


class Operator:
    """z is kept as it is: s = z as a row (1, k), and w = A^T z in the shape of x. Every product is counted."""

    name: ClassVar[str] = "operator"
    exchanges: ClassVar[int] = 0

    def __init__(self, problem: Saddle, costs: Costs) -> None:
        self.duals = problem.duals
        self.A = problem.A.counted(costs)
        self._problem = problem

    def norm(self) -> float:
        return self._problem.operator_norm(self.A)

    def start(self, x: Array, s: Array | None = None) -> Dual:
        z = self.duals.start() if s is None else s
        return Dual(z, self._adjoint(z) if np.any(z) else np.zeros_like(x))

    def ascend(self, dual: Dual, u: Array, q: float) -> Dual:
        z = self.duals.ascend(dual.s, self.A.apply(u.reshape(-1))[None], q)
        return Dual(z, self._adjoint(z))

    def pull(self, dual: Dual) -> Array:
        return dual.w

    def _adjoint(self, z: Array) -> Array:
        return self.A.apply_adjoint(z[0]).reshape(self._problem.m, self._problem.d)
