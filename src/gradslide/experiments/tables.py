"""Tables for the terminal."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradslide.experiments.run import NetworkRun, Results
from gradslide.status import Status


def results_table(results: Results) -> Any:
    """One row per network: what it cost, what was reached, what the theorem promised or what was proved."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    # Narrow enough for 80 columns.
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("network", no_wrap=True)
    columns = _columns(results)
    for heading, _ in columns:
        table.add_column(heading, justify="right")
    table.add_column("status")
    for run in results.runs:
        shown = [cell(run) if len(run.solution.history) else "-" for _, cell in columns]
        table.add_row(run.name, *shown, run.solution.status.short)
    return table


def _columns(results: Results) -> list[tuple[str, Callable[[NetworkRun], str]]]:
    """Headings, and what stands under each; those that would be empty are left out."""
    known = results.optimum is not None

    def spent(name: str) -> Callable[[NetworkRun], str]:
        return lambda run: f"{getattr(run.solution.costs, name):,}"

    def seen(name: str, digits: int = 3) -> Callable[[NetworkRun], str]:
        return lambda run: _number(getattr(run.solution.history[-1], name), digits)

    columns: list[tuple[str, Callable[[NetworkRun], str]]] = [(name, spent(name)) for name in (*results.work, "rounds")]
    if any(run.solution.costs.control_rounds for run in results.runs):
        columns.append(("control", spent("control_rounds")))
    columns.append(
        ("error", lambda run: _number(run.objective_error, 4)) if known else ("objective", seen("objective", 6))
    )
    if any(run.bound_at_mean is not None for run in results.runs):
        columns.append(("bound", lambda run: _number(run.bound_at_mean, 4)))
    if any(_gap(run) is not None for run in results.runs):
        columns.append(("gap", lambda run: _number(_gap(run), 3)))
    columns += [("apart", seen("disagreement")), ("|Ax|", seen("residual"))]
    if any(run.bound is not None for run in results.runs):
        columns.append(("bound", lambda run: _number(None if run.bound is None else run.bound.residual, 4)))
    return columns


def _gap(run: NetworkRun) -> float | None:
    """The certified gap of the answer."""
    certificate = run.solution.certificate
    return None if certificate is None or not math.isfinite(certificate.gap) else certificate.gap


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


def facts_table(title: str, facts: Mapping[str, Any]) -> Any:
    """Names and values."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=False, min_width=len(title))
    table.add_column()
    table.add_column(justify="right")
    for name, value in facts.items():
        table.add_row(name, f"{value:.6g}" if isinstance(value, float) else str(value))
    return table


def data_table(entries: Sequence[Any]) -> Any:
    """The data sets that are known by name."""
    from rich.table import Table

    table = Table(title="data sets; misfire is built in", title_justify="left")
    for heading in ("name", "rows", "features", "here"):
        table.add_column(heading, justify="right" if heading in ("rows", "features") else "left")
    for entry in entries:
        table.add_row(
            entry.name,
            f"{entry.rows:,}",
            f"{entry.features:,}",
            str(entry.path) if entry.path else f"no; gradslide data get {entry.name}",
        )
    return table


def spread(results: Results) -> str:
    """How much the costs moved between networks that were solved to the same accuracy, or by the same schedule."""
    solutions = [run.solution for run in results.runs]
    statuses = {solution.status for solution in solutions}
    if len(solutions) < 2 or statuses not in ({Status.CONVERGED}, {Status.COMPLETED}):
        return ""
    same = "accuracy" if statuses == {Status.CONVERGED} else "number of outer iterations"
    moved = [
        f"{'communication ' * (name == 'rounds')}{name} {_percent([getattr(s.costs, name) for s in solutions])} apart"
        for name in (*results.work, "rounds")
    ]
    return f"the same {same} on {len(solutions)} networks: {', '.join(moved)}"


def _percent(counts: list[int]) -> str:
    return f"{100 * (max(counts) / min(counts) - 1):.0f} %"


def legend(results: Results) -> str:
    """What the columns of the table mean."""
    headings = {heading for heading, _ in _columns(results)}
    lines = [f"{', '.join(results.work)} and communication rounds: per agent; apart: disagreement, max |x_i - mean|"]
    if "control" in headings:
        lines.append("control: rounds that were spent on agreeing, apart from the others")
    if results.optimum is None:
        lines.append("objective: sum of all losses at the mean of the agents")
    else:
        lines.append(f"error: objective error at the mean of the agents (reference optimum {results.optimum:.6g})")
    if "gap" in headings:
        lines.append("gap: certified; the objective is no further above the optimum (docs/guarantees.md)")
    if "bound" in headings:
        mean = ", for the mean over random samples" if "samples" in results.work else ""
        lines.append(f"bound: what the theory promised{mean}, from the reference optimum (docs/guarantees.md)")
    return "\n".join(lines)
