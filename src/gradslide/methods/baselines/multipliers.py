"""What methods of multipliers share: phi = Lap s, which moves by c Lap x, and the choice of c."""

import math
from typing import Any, ClassVar, cast

from gradslide._support.arrays import like
from gradslide._support.types import Array
from gradslide.methods.base import Context, Method
from gradslide.network.coupling import Dual, NetworkCoupling

# No f_i is taken to be worse conditioned when c is chosen; without mu that is all there is to go by.
_CONDITION = 100


class Multipliers(Method):
    """What methods give back whose state has x and the dual (s, phi)."""

    tuned: ClassVar[str] = "c"

    def output(self, state: Any) -> Array:
        return state.x

    def dual(self, state: Any) -> Array:
        """Multipliers in node form: Lap s = phi."""
        return state.dual.s

    def invariant(self, state: Any) -> Array:
        return state.dual.w


def penalty(context: Context, L: float) -> float:
    """A c for the augmented Lagrangian: sqrt(mu L/(lmax l2)), with mu as if L/mu were no more than 100."""
    coupling = cast(NetworkCoupling, context.coupling)
    spectrum = coupling.norm() * coupling.smallest_singular_value()
    # A lone agent has no links to weigh.
    return math.sqrt(max(context.problem.mu, L / _CONDITION) * L) / spectrum if context.network.m > 1 else 1.0


def degrees(context: Context) -> Array:
    """The diagonal of the Laplacian, (agents here, 1)."""
    network = context.network
    return like(network.graph.weighted_degrees[list(network.agents), None], context.x0)


def ascended(dual: Dual, x: Array, lap: Array, c: float) -> Dual:
    """phi + c Lap x, and the s that goes with it."""
    return Dual(dual.s + c * x, dual.w + c * lap)
