"""The time that a run takes in its method, metrics not counted."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from gradslide.results.costs import Costs


class Stopwatch:
    """Adds to `costs.seconds` while it runs."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        """So far, what is under way included."""
        return self._costs.seconds + (0.0 if self._since is None else time.perf_counter() - self._since)

    @contextmanager
    def running(self) -> Iterator[None]:
        """What is done in here takes the run's time; what overflows is seen afterwards."""
        self._since = time.perf_counter()
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                yield
        finally:
            self._costs.seconds, self._since = self.seconds, None
