"""A history as short lists, for files that hold many runs."""

from typing import Any

from gradslide.results.history import History

# The least ratio of the outer iterations of two consecutive points.
_THINNING = 1.03
_COLUMNS = (
    "iteration",
    "gradients",
    "samples",
    "rounds",
    "control_rounds",
    "seconds",
    "objective",
    "disagreement",
    "residual",
)


class Thinning:
    """Which outer iterations a curve has."""

    def __init__(self) -> None:
        self._next = 0.0

    def takes(self, iteration: int) -> bool:
        """Whether this one belongs to it; they must come in order, each once."""
        if iteration < self._next:
            return False
        self._next = iteration * _THINNING
        return True


def curve_of(history: History) -> dict[str, list[Any]]:
    """The records that a picture needs, the last one among them."""
    thinning = Thinning()
    kept = [record for record in history if thinning.takes(record.iteration) or record is history[-1]]
    return {name: [getattr(record, name) for record in kept] for name in _COLUMNS}
