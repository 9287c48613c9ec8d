"""How far a run is, for monitoring: the text format of Prometheus."""

import math
from collections.abc import Mapping, Sequence

from gradslide.results.history import Record

# Of the last record.
_RECORDED = (
    ("iteration", "counter", "Outer iterations."),
    ("gradients", "counter", "Gradients per agent."),
    ("rounds", "counter", "Communication rounds per agent."),
    ("control_rounds", "counter", "Control rounds per agent."),
    ("floats_sent", "counter", "Numbers sent."),
    ("seconds", "counter", "Seconds in the method."),
    ("objective", "gauge", "The objective."),
    ("gap", "gauge", "The certified gap."),
    ("disagreement", "gauge", "The largest distance of an agent from the mean."),
)
Values = Sequence[tuple[Mapping[str, str], float]]


def metrics_text(last: Mapping[str, Record], ended: Mapping[str, str], *, is_finished: bool) -> str:
    """Return metrics of all networks.

    Parameters
    ----------
    last : mapping of str to Record
        The last record of each network.
    ended : mapping of str to str
        How those that have ended did.
    is_finished : bool
        Whether nothing more will come.
    """
    lines = _metric("finished", "gauge", "Whether the run has ended.", [({}, float(is_finished))])
    for name, kind, text in _RECORDED:
        found = [({"network": network}, getattr(record, name)) for network, record in last.items()]
        known = [(labels, float(value)) for labels, value in found if isinstance(value, int | float)]
        lines += _metric(name, kind, text, known)
    statuses = [({"network": network, "status": status}, 1.0) for network, status in ended.items()]
    lines += _metric("status", "gauge", "How the run ended.", statuses)
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, text: str, values: Values) -> list[str]:
    """One metric; no lines without values."""
    if not values:
        return []
    lines = [f"# HELP gradslide_{name} {text}", f"# TYPE gradslide_{name} {kind}"]
    for labels, value in values:
        inside = ",".join(f'{key}="{_escaped(each)}"' for key, each in labels.items())
        lines.append(f"gradslide_{name}{f'{{{inside}}}' if inside else ''} {_number(value)}")
    return lines


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else "+Inf" if value > 0 else "-Inf"
