"""What a reproduction found: tables, statements that hold or do not, pictures; as JSON, CSV,
Markdown and text.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradslide._support import storage
from gradslide._support.errors import InputError
from gradslide.experiments.files import as_json, write_figure
from gradslide.experiments.per_agent import drawn
from gradslide.experiments.spec import stem
from gradslide.experiments.tables import Cell, Table, shown
from gradslide.graphs.graph import Graph


@dataclass(frozen=True)
class Statement:
    """Something that was to be shown, and whether it was. holds: None where the data does not allow
    to say.
    """

    text: str
    holds: bool | None

    @property
    def result(self) -> str:
        return {True: "holds", False: "DOES NOT HOLD", None: "not comparable"}[self.holds]


@dataclass(frozen=True)
class Report:
    """facts: data, seeds, what was given; found: everything that the tables were made from.
    figures: makers of matplotlib figures, by name; networks: those that are worth a drawing;
    curves: of runs, as `curve_of` gives them, by where and by whom."""

    name: str
    title: str
    facts: Mapping[str, Cell]
    tables: Sequence[Table]
    statements: Sequence[Statement] = ()
    notes: Sequence[str] = ()
    found: Any = None
    figures: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    networks: Mapping[str, Graph] = field(default_factory=dict)
    curves: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def markdown(self) -> str:
        return "\n\n".join(part for part in self._parts(Table.markdown) if part) + "\n"

    @property
    def text(self) -> str:
        """For the terminal."""
        return "\n\n".join(part for part in self._parts(Table.text) if part)

    def to_json(self) -> str:
        return as_json(
            {
                "name": self.name,
                "title": self.title,
                "facts": dict(self.facts),
                "tables": [table.to_dict() for table in self.tables],
                "statements": [{"text": each.text, "holds": each.holds} for each in self.statements],
                "notes": [*self.notes, *(note for table in self.tables for note in table.notes)],
                "found": self.found,
                "figures": list(self.figures),
                "curves": {where: dict(runs) for where, runs in self.curves.items()},
                "networks": [drawn(name, graph, None, {}) for name, graph in self.networks.items()],
            }
        )

    def _parts(self, render: Callable[[Table], str]) -> list[str]:
        parts = [f"## {self.title}", "\n".join(f"- {name}: {shown(value)}" for name, value in self.facts.items())]
        for table in self.tables:
            parts += [f"### {table.title}", render(table), "\n".join(f"- {note}" for note in table.notes)]
        parts.append("\n".join(f"- {each.result}: {each.text}" for each in self.statements))
        parts.append("\n".join(f"- {note}" for note in self.notes))
        return parts


def write_report(report: Report, folder: Path) -> list[Path]:
    """JSON, Markdown, one CSV per table, and each picture as PNG and SVG; the paths, most useful
    first.
    """
    written = [
        storage.write_atomically(folder / f"{report.name}.md", report.markdown.encode()),
        storage.write_atomically(folder / f"{report.name}.json", report.to_json().encode()),
    ]
    stems: list[str] = []
    for table in report.tables:
        stems.append(stem(table.name or table.title, stems))
        name = report.name if len(report.tables) == 1 else f"{report.name}.{stems[-1]}"
        written.append(storage.write_atomically(folder / f"{name}.csv", table.csv().encode()))
    for name, make in report.figures.items():
        for kind in ("png", "svg"):
            # Without matplotlib the figures are still in the CSV.
            with suppress(InputError):
                written.append(write_figure(make(), folder / f"{name}.{kind}"))
    return written
