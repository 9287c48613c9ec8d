"""Multipliers phi = Lap s of `ADMM` and `DLM`: their update, and the choice of c."""

import math
from typing import ClassVar, Protocol, TypeVar, cast

from gradslide._support.arrays import like
from gradslide._support.types import Array
from gradslide.methods.base import Context, Method
from gradslide.network.coupling import Dual, NetworkCoupling

# The largest condition number of f_i that is assumed when c is chosen.
_CONDITION = 100


class DualState(Protocol):
    """A state with x and the dual (s, phi)."""

    @property
    def x(self) -> Array: ...

    @property
    def dual(self) -> Dual: ...


DualStateT = TypeVar("DualStateT", bound=DualState)


class Multipliers(Method[DualStateT]):
    """Methods whose state has x and the dual (s, phi)."""

    tuned: ClassVar[str] = "c"

    def output(self, state: DualStateT) -> Array:
        return state.x

    def dual(self, state: DualStateT) -> Array:
        """Return the multipliers in node form: Lap s = phi."""
        return state.dual.s

    def invariant(self, state: DualStateT) -> Array:
        return state.dual.w


def penalty(context: Context, L: float) -> float:
    """Return c = sqrt(mu L/(lmax l2)) of the augmented Lagrangian, with mu at least L/100."""
    coupling = cast(NetworkCoupling, context.coupling)
    spectrum = coupling.norm() * coupling.smallest_singular_value()
    # A single agent has no edges.
    return math.sqrt(max(context.problem.mu, L / _CONDITION) * L) / spectrum if context.network.m > 1 else 1.0


def degrees(context: Context) -> Array:
    """Return the diagonal of the Laplacian, shape (agents here, 1)."""
    network = context.network
    return like(network.graph.weighted_degrees[list(network.agents), None], context.x0)


def ascended(dual: Dual, x: Array, lap: Array, c: float) -> Dual:
    """Return the dual with phi + c Lap x, and the s that belongs to it."""
    return Dual(dual.s + c * x, dual.w + c * lap)
