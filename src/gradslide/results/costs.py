"""What a run has spent, counted by wrapping the oracle and the network."""

import math
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any

# What methods ask of their losses.
WORK = ("gradients", "samples")

# Hessians that take fewer seconds are not worth measuring.
_MEASURABLE = 0.01


@dataclass
class Pace:
    """Gradients and exchanges so far, and the seconds they took, measured around the oracle and the network.

    Seconds are simulated if a single clock runs, else those of this machine. Gradients that came with a value count;
    values alone and control rounds do not.

    Attributes
    ----------
    gradients, exchanges : int
        How many there were.
    gradient_seconds, exchange_seconds : float
        How long they took.
    quickest_gradient, quickest_hessian : float
        The fewest seconds that one took: the first ones may have been compiled. Only Hessians that
        were computed by themselves count.
    """

    gradients: int = 0
    gradient_seconds: float = 0.0
    exchanges: int = 0
    exchange_seconds: float = 0.0
    quickest_gradient: float = math.inf
    quickest_hessian: float = math.inf

    def ratio(self) -> float:
        """Return the mean seconds of a gradient over those of an exchange; 1.0 as long as either took no time."""
        if self.gradient_seconds <= 0 or self.exchange_seconds <= 0:
            return 1.0
        return (self.gradient_seconds / self.gradients) / (self.exchange_seconds / self.exchanges)

    def hessian_ratio(self) -> float:
        """Return the seconds of a Hessian over those of a gradient; 0.0 as long as too little was measured."""
        is_measurable = _MEASURABLE <= self.quickest_hessian < math.inf and self.quickest_gradient > 0
        return self.quickest_hessian / self.quickest_gradient if is_measurable else 0.0


@dataclass
class Costs:
    """What a run has spent: counts per agent (the largest over the agents).

    Attributes
    ----------
    gradients : int
        Exact gradients.
    values : int
        Function values that steered the method.
    hessians : int
        Hessians, for example those with which agents estimate the error of the objective.
    samples : int
        Samples whose gradients were taken.
    rounds : int
        Exchanges of vectors with neighbours.
    control_rounds : int
        Exchanges spent on agreeing.
    floats_sent : int
        Numbers sent, added up over all agents in this process.
    operator_products : int
        Products with A or its transpose, without a network.
    seconds : float
        Time in the method, without metrics.
    simulated_seconds : float or dict of float or None
        Time that the run would have taken by a `Clock`, or by each of several.
    pace : Pace
        How fast it went since it was started or resumed; not saved.
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
    hessians: int = 0

    def __post_init__(self) -> None:
        self.pace = Pace()

    def now(self) -> float:
        """Return seconds since some moment: by the simulated clock if a single one runs, else by the machine's."""
        simulated = self.simulated_seconds
        return simulated if isinstance(simulated, float) else time.perf_counter()

    def plus(self, other: "Costs") -> "Costs":
        """Return the counts of both; simulated seconds are those of this one."""
        names = [field.name for field in fields(Costs) if field.name != "simulated_seconds"]
        counts = {name: getattr(self, name) + getattr(other, name) for name in names}
        return Costs(**counts, simulated_seconds=self.simulated_seconds)

    def to_dict(self) -> dict[str, Any]:
        """Return all counts by name."""
        return asdict(self)


def work(spent: Iterable[Any]) -> list[str]:
    """Return what methods took by these costs or records: "gradients", "samples", or both."""
    spent = list(spent)
    return [name for name in WORK if any(getattr(each, name) for each in spent)] or [WORK[0]]


def traffic(spent: Iterable[Any]) -> str:
    """Return what the coupling took by these costs or records: "rounds" on a network, else "operator_products"."""
    return "operator_products" if any(each.operator_products for each in spent) else "rounds"
