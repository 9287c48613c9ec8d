"""What must add up to zero over all agents, and does so only while links work in both directions."""

import numpy as np

from gradslide._support.arrays import doubles, lengths
from gradslide._support.errors import InputError
from gradslide._support.types import Array
from gradslide.network.base import Network
from gradslide.problems.problem import Objective
from gradslide.results.costs import Costs

# Below this part of its size, a sum that is off does no harm to the answer.
_HARMLESS = 1e-6
# How much of the worst sum so far is still held against the answer at the next look, where exchanges heal.
_MEMORY = 0.9


class Balance:
    """Watches the rows of a method's `invariant` along a run. Observations: they cost nothing."""

    def __init__(self, problem: Objective, network: Network, costs: Costs) -> None:
        """costs: what the run spends, which says how many roundings there were."""
        self._problem, self._network, self._costs = problem, network, costs
        self._sum, self._size = 0.0, 0.0

    def look(self, rows: Array) -> None:
        """At the rows of one outer iteration."""
        total = float(np.linalg.norm(self._network.observe(doubles(rows), "sum")))
        self._sum = max(total, _MEMORY * self._sum)
        self._size = max(self._size, self._total(rows))

    def broken(self, start: Array, x: Array, method: str) -> str:
        """What to say of the answer x of a run from there; nothing where all is well."""
        roundings = 10 + self._costs.rounds + self._costs.gradients
        rounding = roundings * float(np.finfo(self._problem.dtype).eps)
        tolerance = _HARMLESS + rounding
        # What is not a number comes from a run that diverged, which has other troubles.
        if not tolerance * self._size < self._sum:
            return ""
        # Where no multipliers are needed, nothing but rounding is in them: gradients give the scale.
        points = (start, x)
        with np.errstate(over="ignore", invalid="ignore"):
            size = self._size + max(self._total(self._problem.loss.gradient(point)) for point in points)
            steps = max(self._total(point) for point in points) * self._smoothness()
        if not tolerance * size + rounding * steps < self._sum:
            return ""
        return (
            f"the invariant of {method} is broken: what must add up to 0 over the agents adds up to "
            f"{self._sum / size:.2g} of its size. Messages were lost or changed in one direction only, and the answer "
            "is not the optimum, whatever the disagreement says"
        )

    def _total(self, rows: Array) -> float:
        return float(self._network.observe(lengths(rows), "sum"))

    def _smoothness(self) -> float:
        """Iterates have roundings, too, which a step of 1/L turns into those of gradients. 0 where L is unknown."""
        try:
            return float(np.max(self._problem.smoothness())) + self._problem.mu
        except InputError:
            return 0.0
