"""What a spec's runs cost and reached, network by network: from what `Results.to_dict` gives, which
a file keeps.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gradslide.experiments.tables import Cell, Column, Table, digits
from gradslide.results.costs import WORK
from gradslide.results.status import Status

Run = Mapping[str, Any]

# How a run ended: in a word, and in a sentence.
STATUS = Column("status", format=lambda name: Status[name].short)
MESSAGE = Column("message", "how it ended")


def summary_table(results: Mapping[str, Any], ending: Column = STATUS) -> Table:
    """One row per network: costs, what was reached, what the theorem bounds and what was certified.

    Columns without anything in them are left out. The notes say what the columns mean.

    Parameters
    ----------
    results : mapping
        As results.json has them.
    ending : Column, optional
        The last column: `STATUS` or `MESSAGE`.
    """
    runs: Sequence[Run] = results["runs"]
    records = [_record(run) for run in runs]
    shown = [column for column in _columns(results) if not _is_empty(column, records)]
    work = _work(runs)
    notes = [
        f"{', '.join(work)} and communication rounds: per agent",
        *dict.fromkeys(f"{column.heading or column.name}: {column.note}" for column in shown if column.note),
        *_choices(runs),
    ]
    title = "What each network took, and what was reached"
    return Table.of_records(title, [Column("network"), *shown, ending], records, notes)


def _choices(runs: Sequence[Run]) -> list[str]:
    """What the automatic method chose, and why; one line for all networks with the same choice."""
    told: dict[str, list[str]] = {}
    for run in runs:
        found = run.get("parameters") or {}
        if "reason" in found:
            changed = f"; changed {found['changed']}" if "changed" in found else ""
            told.setdefault(f"chose {found['method']}; {found['reason']}{changed}", []).append(run["network"])
    return [f"auto {text} ({', '.join(networks)})" for text, networks in told.items()]


def spread(results: Mapping[str, Any]) -> str:
    """How much the costs differ between networks that were solved to the same accuracy, or by the
    same schedule.
    """
    runs: Sequence[Run] = results["runs"]
    statuses = {run["status"] for run in runs}
    if len(runs) < 2 or statuses not in ({Status.CONVERGED.name}, {Status.COMPLETED.name}):
        return ""
    same = "accuracy" if statuses == {Status.CONVERGED.name} else "number of outer iterations"
    moved = []
    for name in (*_work(runs), "rounds"):
        counts = [run["costs"][name] for run in runs]
        percent = 100 * (max(counts) / min(counts) - 1)
        moved.append(f"{'communication ' * (name == 'rounds')}{name} by {percent:.0f} %")
    return f"the same {same} on {len(runs)} networks; costs differ: {', '.join(moved)}"


def _columns(results: Mapping[str, Any]) -> list[Column]:
    """All that there may be between the network and how its run ended."""
    work, optimum = _work(results["runs"]), results["optimum"]
    mean = ", for the mean over random samples" if "samples" in work else ""
    promised = f"what the theory promised{mean}, from the reference optimum"
    return [
        *(Column(name, right=True) for name in work),
        Column("hessians", right=True),
        Column("rounds", right=True),
        Column(
            "control_rounds",
            "control",
            note="further rounds, in which a few numbers travel, to agree on steps and on the end",
            right=True,
        ),
        Column("objective", format=digits(6), note="sum of all losses at the mean of the agents", right=True)
        if optimum is None
        else Column(
            "error",
            format=digits(4),
            note=f"objective error at the mean of the agents (reference optimum {optimum:.6g})",
            right=True,
        ),
        Column("bound_at_mean", "bound", digits(4), promised, right=True),
        Column(
            "gap",
            format=digits(3),
            note="certified; the objective is no further above the optimum",
            right=True,
        ),
        Column("disagreement", format=digits(3), note="max |x_i - mean|", right=True),
        Column("residual", "|Ax|", digits(3), "differences over all links together", right=True),
        Column("residual_bound", "bound", digits(4), promised, right=True),
    ]


def _record(run: Run) -> dict[str, Cell]:
    """The cells of a run, by the names of columns."""
    final, bound = run["final"], run["bound"]
    return {
        "network": run["network"],
        "status": run.get("status"),
        "message": run["message"],
        **run["costs"],
        "objective": final.get("objective"),
        "error": run["objective_error"],
        "bound_at_mean": run["bound_at_mean"],
        "gap": _gap(run),
        "disagreement": final.get("disagreement"),
        "residual": final.get("residual"),
        "residual_bound": None if bound is None else bound["residual"],
    }


def _is_empty(column: Column, records: Sequence[Mapping[str, Cell]]) -> bool:
    """Whether the column can be left out: there is nothing in it."""
    cells = [record.get(column.name) for record in records]
    if column.name in ("control_rounds", "hessians"):
        return not any(cells)
    return column.name in ("bound_at_mean", "gap", "residual_bound") and all(cell is None for cell in cells)


def _work(runs: Sequence[Run]) -> list[str]:
    """Gradients, samples, or both: what the methods took."""
    return [name for name in WORK if any(run["costs"][name] for run in runs)] or [WORK[0]]


def _gap(run: Run) -> float | None:
    """The certified gap of the answer."""
    certificate = run["certificate"]
    if certificate is None or certificate["upper"] is None or certificate["lower"] is None:
        return None
    gap: float = certificate["upper"] - certificate["lower"]
    return gap if math.isfinite(gap) else None
