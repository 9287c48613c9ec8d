"""What an agent leaves on disk, and the short table that it shows."""

import csv
import io
from pathlib import Path

from gradslide._support import storage
from gradslide.experiments.agent.run import AgentRun
from gradslide.experiments.files import RESULT, as_json
from gradslide.results.history import History
from gradslide.results.solution import solution_facts

SOLUTION = "solution.npz"


def to_json(run: AgentRun) -> str:
    return as_json(run.to_dict())


def write_agent(run: AgentRun) -> list[Path]:
    """Write everything into the agent's folder; the paths."""
    folder = run.spec.output.dir
    return [
        run.solution.save(folder / SOLUTION),
        storage.write_atomically(folder / RESULT, to_json(run).encode()),
        storage.write_atomically(folder / "history.csv", _csv(run.solution.history).encode()),
    ]


def facts(run: AgentRun) -> dict[str, str]:
    """What it cost and what was reached, as far as the agents agreed on it."""
    return {"agent": f"number {run.number}, {run.m} in all", **solution_facts(run.solution)}


def _csv(history: History) -> str:
    columns = history.to_dict()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()
