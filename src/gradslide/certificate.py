"""What proves how good an answer is."""

from dataclasses import dataclass
from typing import NamedTuple

from gradslide._types import Array
from gradslide.coupling import Dual


class Evidence(NamedTuple):
    """From what a lower bound on the optimum follows: of one outer iteration, or averages over several.

    y: the gradients y_k. conjugate: ft*(y_k) = <x_under_k, y_k> - ft(x_under_k), one per row of x. dual: z and A^T z.
    """

    y: Array
    conjugate: Array
    dual: Dual


@dataclass(frozen=True)
class Certificate:
    """lower <= optimum, and the value `upper` at the answer.

    residual: how far A x is from where it must be; where it is not 0, `upper` may lie below the optimum.
    """

    lower: float
    upper: float
    residual: float = 0.0

    @property
    def gap(self) -> float:
        return self.upper - self.lower
