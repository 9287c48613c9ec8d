"""What a run has spent, counted by wrapping the oracle and the network."""

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from gradslide.results.pace import Pace

# What methods take of their losses.
WORK = ("gradients", "samples")


@dataclass
class Costs:
    """Counts per agent (the largest over the agents), except `floats_sent`, which adds up all agents here.

    gradients: exact gradients; samples: samples whose gradients were taken; values: function values that steered it;
    rounds: neighbour exchanges of vectors; control_rounds: exchanges spent on agreeing;
    operator_products: products with A or A^T outside networks; seconds: time in the method, without metrics;
    simulated_seconds: time that it would have taken by a `Clock`, or by each of several. `pace`, which is not saved
    with the rest: how fast it went since it was started, or taken up again.
    """

    gradients: int = 0
    values: int = 0
    samples: int = 0
    rounds: int = 0
    control_rounds: int = 0
    floats_sent: int = 0
    operator_products: int = 0
    seconds: float = 0.0
    simulated_seconds: float | dict[str, float] | None = None

    def __post_init__(self) -> None:
        self.pace = Pace()

    def now(self) -> float:
        """Seconds since some moment: by the simulated clock where a single one runs, else by that of the machine."""
        simulated = self.simulated_seconds
        return simulated if isinstance(simulated, float) else time.perf_counter()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def work(spent: Iterable[Any]) -> list[str]:
    """What costs or records show that methods took: "gradients", "samples", or both."""
    spent = list(spent)
    return [name for name in WORK if any(getattr(each, name) for each in spent)] or [WORK[0]]


def traffic(spent: Iterable[Any]) -> str:
    """What costs or records show that the coupling took: "rounds" on a network, else "operator_products"."""
    return "operator_products" if any(each.operator_products for each in spent) else "rounds"
