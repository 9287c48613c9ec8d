"""What must add up to zero over all agents, and does so only while links work in both directions."""

import numpy as np

from gradslide._types import Array
from gradslide.network.base import Network
from gradslide.problem import Objective

# In units of the root of the rounding error: sums of many roundings stay below.
_TOLERANCE = 100.0


class Balance:
    """Watches the rows of a method's `invariant` along a run. Observations: they cost nothing."""

    def __init__(self, problem: Objective, network: Network) -> None:
        self._problem, self._network = problem, network
        self._sum, self._size = 0.0, 0.0

    def look(self, rows: Array) -> None:
        """At the rows of one outer iteration."""
        self._sum = float(np.linalg.norm(self._network.observe(np.asarray(rows, dtype=np.float64), "sum")))
        self._size = max(self._size, self._total(rows))

    def broken(self, x: Array, method: str) -> str:
        """What to say of the answer x; nothing where all is well."""
        tolerance = _TOLERANCE * float(np.sqrt(np.finfo(self._problem.dtype).eps))
        if self._sum <= tolerance * self._size:
            return ""
        # Where no multipliers are needed, nothing but rounding is in them: gradients give the scale.
        starts = (self._problem.start(), x)
        size = self._size + max(self._total(self._problem.loss.gradient(point)) for point in starts)
        if self._sum <= tolerance * size:
            return ""
        return (
            f"the invariant of {method} is broken: what must add up to 0 over the agents adds up to "
            f"{self._sum / size:.2g} of its size. Messages were lost or changed in one direction only, and the answer "
            "is not the optimum, whatever the disagreement says"
        )

    def _total(self, rows: Array) -> float:
        return float(self._network.observe(np.linalg.norm(np.asarray(rows, dtype=np.float64), axis=1), "sum"))
