"""What a comparison leaves on disk: JSON, CSV, pictures, and the tables as text."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gradslide._support import storage
from gradslide._support.errors import InputError
from gradslide.experiments.compare.plots import plot_curves, plot_frontier
from gradslide.experiments.compare.run import Compared
from gradslide.experiments.compare.summary import Block, blocks
from gradslide.experiments.compare.tables import findings, legend, tables
from gradslide.experiments.compare.task import tasks_of
from gradslide.experiments.compare.work import prepared
from gradslide.experiments.files import NETWORKS, as_json, write_figure
from gradslide.experiments.per_agent import drawn
from gradslide.experiments.spec import stem
from gradslide.experiments.tables import Cell, Table, columns
from gradslide.graphs.graph import Graph

COMPARISON = "comparison.json"
# Renamed keys: at the top level of the file, and below it. The old names stay beside the new ones until 0.3.
_RENAMED = {"apart": "disagreement_factor", "rivals_better_in_both": "baselines_better_in_both"}
_RENAMED_BELOW = {"apart": "disagreement"}


def write_comparison(compared: Compared, report: str) -> list[Path]:
    """Write everything into the spec's folder; the paths, most useful first. report: the tables as
    text.
    """
    folder = compared.comparison.output.dir
    found = blocks(compared)
    written = [
        storage.write_atomically(folder / "report.txt", report.encode()),
        storage.write_atomically(folder / COMPARISON, to_json(compared).encode()),
        storage.write_atomically(folder / "comparison.csv", _outcomes(compared).csv().encode()),
        storage.write_atomically(folder / NETWORKS, as_json(_networks(compared), indent=None).encode()),
    ]
    if compared.comparison.output.plot:
        stems: list[str] = []
        for block in found:
            stems.append(stem(f"{block.problem} {block.network} {block.condition}", stems))
            # Without matplotlib the figures are still in the CSV.
            with suppress(InputError):
                written.append(write_figure(plot_frontier(block), folder / f"{stems[-1]}.frontier.png"))
                written.append(write_figure(plot_curves(block), folder / f"{stems[-1]}.curves.png"))
    return written


def to_json(compared: Compared) -> str:
    comparison = compared.comparison
    found = blocks(compared)
    return as_json(
        with_old_names(
            {
                "name": comparison.name,
                "title": comparison.title,
                "accuracies": comparison.accuracies,
                "disagreement_factor": comparison.disagreement_factor,
                "limits": comparison.limits,
                "optima": {name: asdict(target) for name, target in compared.targets.items()},
                "interrupted": compared.interrupted,
                "blocks": [_block(block) for block in found],
                "baselines_better_in_both": findings(found),
                "tables": [table.to_dict() for table in tables(compared)],
                "legend": legend(comparison.disagreement_factor),
                "outcomes": [asdict(outcome) for outcome in compared.outcomes],
            }
        )
    )


def with_old_names(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of comparison.json with the deprecated keys beside those that replace them."""

    def both(table: Mapping[str, Any], renamed: Mapping[str, str]) -> dict[str, Any]:
        new = {key: below(value) for key, value in table.items()}
        return {**new, **{old: new[key] for old, key in renamed.items() if key in new}}

    def below(value: Any) -> Any:
        if isinstance(value, Mapping):
            return both(value, _RENAMED_BELOW)
        return [below(item) for item in value] if isinstance(value, list) else value

    return both(content, _RENAMED)


def with_new_names(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of comparison.json, of this version or of one before the keys were renamed,
    without old keys.
    """

    def new(table: Mapping[str, Any], renamed: Mapping[str, str]) -> dict[str, Any]:
        found = {key: below(value) for key, value in table.items() if key not in renamed}
        return {**{key: below(table[old]) for old, key in renamed.items() if old in table}, **found}

    def below(value: Any) -> Any:
        if isinstance(value, Mapping):
            return new(value, _RENAMED_BELOW)
        return [below(item) for item in value] if isinstance(value, list) else value

    return new(content, _RENAMED)


def _block(block: Block) -> dict[str, Any]:
    lines = [{"label": line.label, **asdict(replace(line, curve={}))} for line in block.lines]
    return {"problem": block.problem, "network": block.network, "condition": block.condition, "lines": lines}


def _networks(compared: Compared) -> dict[str, Any]:
    """What can be drawn: each network once for every number of agents."""
    graphs: dict[tuple[str, int], Graph] = {}
    for task in tasks_of(compared.comparison, compared.targets, compared.data_dir):
        network = prepared(task)[0]
        graphs.setdefault((task.network.name, network.m), network.graph)
    several = len({name for name, _ in graphs}) < len(graphs)
    return {
        "networks": [
            drawn(f"{name}, {m} agents" if several else name, graph, None, {}) for (name, m), graph in graphs.items()
        ]
    }


def _outcomes(compared: Compared) -> Table:
    """One row for each outcome and accuracy."""
    spent = ("gradients", "samples", "rounds", "control_rounds", "floats_sent")
    clocks = list(compared.comparison.clocks)
    ends = ("kind", "status", "error", "disagreement")
    names = ("problem", "network", "condition", "method", "factor", "seed")
    rows: list[list[Cell]] = []
    for outcome in compared.outcomes:
        row = [getattr(outcome, name) for name in names]
        end = [getattr(outcome, name) for name in ends]
        for index, accuracy in enumerate(compared.comparison.accuracies):
            found = outcome.reached[index] if outcome.reached else None
            costs = [None] * len(spent) if found is None else [found[name] for name in spent]
            times = [None] * len(clocks) if found is None else [found["simulated_seconds"][name] for name in clocks]
            rows.append([*row, accuracy, *costs, *times, *end, "; ".join(outcome.warnings)])
    seconds = (f"seconds_{clock}" for clock in clocks)
    return Table("outcomes", columns(*names, "accuracy", *spent, *seconds, *ends, "warnings"), rows)
