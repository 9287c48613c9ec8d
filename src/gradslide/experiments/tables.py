"""Tables for the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from gradslide.experiments.run import Results
from gradslide.experiments.summary import columns
from gradslide.results.status import Status


def results_table(results: Results) -> Any:
    """One row per network: what it cost, what was reached, what the theorem promised or what was proved."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    # Narrow enough for 80 columns.
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("network", no_wrap=True)
    shown = columns(results.to_dict())
    for column in shown:
        table.add_column(column.heading, justify="right")
    table.add_column("status")
    for run, *cells in zip(results.runs, *(column.cells for column in shown), strict=True):
        table.add_row(run.name, *(cells if len(run.solution.history) else "-" * len(cells)), run.solution.status.short)
    return table


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
        f"{'communication ' * (name == 'rounds')}{name} by {_percent([getattr(s.costs, name) for s in solutions])}"
        for name in (*results.work, "rounds")
    ]
    return f"the same {same} on {len(solutions)} networks; costs differ: {', '.join(moved)}"


def _percent(counts: list[int]) -> str:
    return f"{100 * (max(counts) / min(counts) - 1):.0f} %"
