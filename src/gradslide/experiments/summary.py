"""What a spec's runs cost and reached, network by network: from what `Results.to_dict` gives, which a file keeps."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradslide.results.costs import WORK

Run = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """One value per network. digits: significant ones to show; None for counts."""

    heading: str
    values: Sequence[float | int | None]
    digits: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to be seen in it that one would miss."""
        if self.heading == "control":
            return not any(self.values)
        return self.heading in ("bound", "gap") and all(value is None for value in self.values)

    @property
    def cells(self) -> list[str]:
        return [self._cell(value) for value in self.values]

    def _cell(self, value: float | int | None) -> str:
        if value is None:
            return "-"
        return f"{value:,}" if self.digits is None else f"{value:.{self.digits}g}"


def columns(results: Mapping[str, Any]) -> list[Column]:
    """Those that would be empty are left out."""
    runs: Sequence[Run] = results["runs"]

    def of(heading: str, value: Callable[[Run], Any], digits: int | None = None) -> Column:
        return Column(heading, [value(run) for run in runs], digits)

    def final(heading: str, name: str, digits: int = 3) -> Column:
        return of(heading, lambda run: run["final"].get(name), digits)

    def spent(name: str) -> Callable[[Run], Any]:
        return lambda run: run["costs"][name]

    error = of("error", lambda run: run["objective_error"], 4)
    shown = [
        *(of(name, spent(name)) for name in work_of(runs)),
        of("rounds", spent("rounds")),
        of("control", spent("control_rounds")),
        final("objective", "objective", 6) if results["optimum"] is None else error,
        of("bound", lambda run: run["bound_at_mean"], 4),
        of("gap", _gap, 3),
        final("disagreement", "disagreement"),
        final("|Ax|", "residual"),
        of("bound", lambda run: None if run["bound"] is None else run["bound"]["residual"], 4),
    ]
    return [column for column in shown if not column.is_empty]


def work_of(runs: Sequence[Run]) -> list[str]:
    """Gradients, samples, or both: what the methods took."""
    return [name for name in WORK if any(run["costs"][name] for run in runs)] or [WORK[0]]


def legend(results: Mapping[str, Any]) -> list[str]:
    """What the columns mean."""
    headings = {column.heading for column in columns(results)}
    work = work_of(results["runs"])
    lines = [
        f"{', '.join(work)} and communication rounds: per agent",
        "disagreement: max |x_i - mean|; |Ax|: differences over all links together",
    ]
    if "control" in headings:
        lines.append("control: further rounds, in which a few numbers travel, to agree on steps and on the end")
    if results["optimum"] is None:
        lines.append("objective: sum of all losses at the mean of the agents")
    else:
        lines.append(f"error: objective error at the mean of the agents (reference optimum {results['optimum']:.6g})")
    if "gap" in headings:
        lines.append("gap: certified; the objective is no further above the optimum (docs/guarantees.md)")
    if "bound" in headings:
        mean = ", for the mean over random samples" if "samples" in work else ""
        lines.append(f"bound: what the theory promised{mean}, from the reference optimum (docs/guarantees.md)")
    return lines


def _gap(run: Run) -> float | None:
    """The certified gap of the answer."""
    certificate = run["certificate"]
    if certificate is None or certificate["upper"] is None or certificate["lower"] is None:
        return None
    gap: float = certificate["upper"] - certificate["lower"]
    return gap if math.isfinite(gap) else None
