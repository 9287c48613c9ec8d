"""What an agent leaves on disk, and the short table that it shows."""

import csv
import io
from pathlib import Path
from typing import Any

from gradslide import storage
from gradslide.costs import work
from gradslide.experiments.agent.run import AgentRun
from gradslide.experiments.files import as_json
from gradslide.history import History

SOLUTION = "solution.npz"


def to_json(run: AgentRun) -> str:
    return as_json(run.to_dict())


def write_agent(run: AgentRun) -> list[Path]:
    """Write everything into the agent's folder; the paths."""
    folder = run.spec.output.dir
    return [
        run.solution.save(folder / SOLUTION),
        storage.write_atomically(folder / "result.json", to_json(run).encode()),
        storage.write_atomically(folder / "history.csv", _csv(run.solution.history).encode()),
    ]


def facts(run: AgentRun) -> dict[str, Any]:
    """What it cost and what was reached, as far as the agents agreed on it."""
    solution = run.solution
    costs, last = solution.costs, solution.history[-1] if len(solution.history) else None
    shown: dict[str, Any] = {
        "status": solution.status.value,
        "agent": f"number {run.number}, {run.m} in all",
        "iterations": f"{last.iteration if last else 0:,}",
        **{name: f"{getattr(costs, name):,}" for name in work([costs])},
        "rounds": f"{costs.rounds:,}",
        "control rounds": f"{costs.control_rounds:,}",
        "floats sent": f"{costs.floats_sent:,}",
        "seconds": f"{costs.seconds:.2f}",
    }
    agreed = {
        "gap (certified)": None if last is None else last.gap,
        "stationarity": None if solution.kkt is None else solution.kkt.stationarity,
        "disagreement": None if last is None else last.disagreement,
    }
    return shown | {name: f"{value:.3g}" for name, value in agreed.items() if value is not None}


def _csv(history: History) -> str:
    columns = history.to_dict()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()
