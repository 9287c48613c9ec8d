"""Tables for the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from gradslide.experiments.run import NetworkRun, Results
from gradslide.status import Status


def results_table(results: Results) -> Any:
    """One row per network: what it cost, what was reached, what the theorem promised."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    known = results.optimum is not None
    # Narrow enough for 80 columns.
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("network", no_wrap=True)
    headings = [*results.work, "rounds", "error" if known else "objective", *["bound"] * known, "apart", "|Ax|"]
    for heading in [*headings, *["bound"] * known]:
        table.add_column(heading, justify="right")
    table.add_column("status")
    for run in results.runs:
        table.add_row(*_row(run, results.work, known))
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
        f"{'communication ' * (name == 'rounds')}{name} {_percent([getattr(s.costs, name) for s in solutions])} apart"
        for name in (*results.work, "rounds")
    ]
    return f"the same {same} on {len(solutions)} networks: {', '.join(moved)}"


def _percent(counts: list[int]) -> str:
    return f"{100 * (max(counts) / min(counts) - 1):.0f} %"


def _row(run: NetworkRun, work: list[str], known: bool) -> list[str]:
    solution = run.solution
    if not len(solution.history):
        return [run.name, *["-"] * (len(work) + (6 if known else 4)), solution.status.short]
    last = solution.history[-1]
    costs = [f"{getattr(solution.costs, name):,}" for name in (*work, "rounds")]
    objective, residual = [f"{last.objective:.6g}"], [f"{last.residual:.3g}"]
    if known:
        objective = [f"{run.objective_error:.4g}", _bound(run.bound_at_mean)]
        residual.append(_bound(None if run.bound is None else run.bound.residual))
    return [run.name, *costs, *objective, f"{last.disagreement:.3g}", *residual, solution.status.short]


def _bound(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def legend(results: Results) -> str:
    """What the columns of the table mean."""
    lines = [f"{', '.join(results.work)} and communication rounds: per agent; apart: disagreement, max |x_i - mean|"]
    if results.optimum is None:
        lines.append("objective: sum of all losses at the mean of the agents")
    else:
        lines.append(f"error: objective error at the mean of the agents (reference optimum {results.optimum:.6g})")
        mean = ", for the mean over random samples" if "samples" in results.work else ""
        lines.append(f"bound: what the theory promised{mean}, from the reference optimum (docs/guarantees.md)")
    return "\n".join(lines)
