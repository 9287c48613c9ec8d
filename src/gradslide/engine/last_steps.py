"""What a method does once at the end of a run, and whether doing it now would bring the agents close enough."""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from gradslide.engine.metrics import Metrics
from gradslide.engine.stop import Stop
from gradslide.methods.base import Context, Method
from gradslide.network.base import Network
from gradslide.results.history import Record


class LastSteps:
    """quiet: the network, uncounted, on which they can be tried; None where no two tries are alike."""

    def __init__(self, method: Method, context: Context, quiet: Network | None) -> None:
        self._finish = getattr(method, "finish", None)
        self._context = context
        self._quiet = quiet
        self._apart = 1.0

    @property
    def exist(self) -> bool:
        return self._finish is not None

    def suffice(self, state: Any, record: Record, stop: Stop, measured: Callable[[Any], Metrics | None]) -> bool:
        """Whether all targets would hold if they were taken now, where only the agents' disagreement is in the way;
        they are then going to be as long as that takes. They are tried uncounted: observations decide.

        measured: what is observed at a state.
        """
        finish, quiet = self._finish, self._quiet
        if finish is None or quiet is None or (apart := stop.apart(record)) is None:
            return False
        # What is made once in a run must not be made here, where nothing is counted.
        rehearsal = replace(self._context, network=quiet, _kept=dict(self._context._kept))
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            metrics = measured(finish(rehearsal, state, apart))
        enough = metrics is not None and stop.reached(replace(record, **asdict(metrics)))
        self._apart = apart if enough else 1.0
        return enough

    def taken(self, state: Any) -> Any:
        """The state that they lead to."""
        return state if self._finish is None else self._finish(self._context, state, self._apart)
