"""A history as short lists, for files that hold many runs."""

from typing import Any

from gradslide.history import History

# Points are at least this factor of outer iterations apart.
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


def curve_of(history: History) -> dict[str, list[Any]]:
    """The records that a picture needs, the last one among them."""
    kept, due = [], 0.0
    for record in history:
        if record.iteration >= due or record is history[-1]:
            kept.append(record)
            due = record.iteration * _THINNING
    return {name: [getattr(record, name) for record in kept] for name in _COLUMNS}
