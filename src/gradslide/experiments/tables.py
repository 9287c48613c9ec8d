"""Tables for the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from gradslide.experiments.run import NetworkRun, Results


def results_table(results: Results) -> Any:
    """One row per network: what it cost, what was reached, what the theorem promised."""
    from rich.table import Table

    known = results.optimum is not None
    table = Table(title=results.spec.title, title_justify="left", caption=_caption(known), caption_justify="left")
    table.add_column("network")
    for heading in ("gradients", "rounds", "objective error" if known else "objective", "disagreement"):
        table.add_column(heading, justify="right")
    if known:
        table.add_column("f(x) - f* <= bound", justify="right")
        table.add_column("|Ax| <= bound", justify="right")
    table.add_column("status")
    for run in results.runs:
        table.add_row(*_row(run, known))
    return table


def facts_table(title: str, facts: Mapping[str, Any]) -> Any:
    """Names and values."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in facts.items():
        table.add_row(name, f"{value:.6g}" if isinstance(value, float) else str(value))
    return table


def data_table(entries: Sequence[Any]) -> Any:
    """The data sets that are known by name."""
    from rich.table import Table

    table = Table(title="data sets", title_justify="left")
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


def _row(run: NetworkRun, known: bool) -> list[str]:
    solution = run.solution
    if not len(solution.history):
        return [run.name, *["-"] * (6 if known else 4), solution.status.short]
    last = solution.history[-1]
    objective = run.objective_error if known else last.objective
    cells = [
        run.name,
        f"{solution.costs.gradients:,}",
        f"{solution.costs.rounds:,}",
        f"{objective:.4g}",
        f"{last.disagreement:.3g}",
    ]
    if known:
        bound = run.bound
        cells.append(f"{run.local_error:.3g} <= {bound.objective:.3g}" if bound else f"{run.local_error:.3g}")
        cells.append(f"{last.residual:.3g} <= {bound.residual:.3g}" if bound else f"{last.residual:.3g}")
    return [*cells, solution.status.short]


def _caption(known: bool) -> str:
    lines = "objective: sum of all losses at the mean of the agents; disagreement: max |x_i - mean|"
    return lines + (
        "; f(x) - f* with each agent at its own point, and |Ax|, beside the bounds of Theorem 1" if known else ""
    )
