"""What a method does once at the end of a run, and whether doing it now would bring the agents close enough."""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from gradslide.history import Record
from gradslide.methods.base import Context, Method
from gradslide.metrics import Metrics
from gradslide.network.base import Network
from gradslide.stop import Stop


class LastSteps:
    """quiet: the network, uncounted, on which they can be tried; None where no two tries are alike."""

    def __init__(self, method: Method, context: Context, quiet: Network | None) -> None:
        self._finish = getattr(method, "finish", None)
        self._context = context
        self._rehearsal = None if quiet is None else replace(context, network=quiet)
        self._apart = 1.0

    @property
    def exist(self) -> bool:
        return self._finish is not None

    def suffice(self, state: Any, record: Record, stop: Stop, measured: Callable[[Any], Metrics | None]) -> bool:
        """Whether all targets would hold if they were taken now, where only the agents' disagreement is in the way;
        they are then going to be as long as that takes. They are tried uncounted: observations decide.

        measured: what is observed at a state.
        """
        apart = None if self._finish is None or self._rehearsal is None else stop.apart(record)
        if self._finish is None or apart is None:
            return False
        metrics = measured(self._finish(self._rehearsal, state, apart))
        enough = metrics is not None and stop.reached(replace(record, **asdict(metrics)))
        self._apart = apart if enough else 1.0
        return enough

    def taken(self, state: Any) -> Any:
        """The state that they lead to."""
        return state if self._finish is None else self._finish(self._context, state, self._apart)
