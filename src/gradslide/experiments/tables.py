"""One model of tables: columns with a heading, a format and a note; renderers to text, Markdown,
CSV and JSON.
"""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Cell = str | int | float | bool | None

# A table takes the width that it needs; a narrower one would cut names off.
_WIDTH = 10_000


def shown(value: Cell) -> str:
    """A cell as a reader wants it: whole and large numbers in full, others to three digits."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) or (isinstance(value, float) and (value.is_integer() or 1e3 <= abs(value) < 1e9)):
        return f"{value:,.0f}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def digits(count: int) -> Callable[[Cell], str]:
    """The format of numbers with so many significant digits."""
    return lambda value: "-" if value is None else f"{value:.{count}g}"


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Parameters
    ----------
    name : str
        The key of its cells in a record.
    heading : str, optional
        What stands above it, in one or more lines; the name by default.
    format : callable, optional
        From a cell to its text; `shown` by default.
    note : str, optional
        What the heading means, for a legend.
    right : bool, optional
        Whether it is aligned to the right; by default where its cells are numbers.
    """

    name: str
    heading: str = ""
    format: Callable[[Any], str] = shown
    note: str = ""
    right: bool | None = None


def columns(*names: str) -> list[Column]:
    """Columns of which nothing but the name is to be said."""
    return [Column(name) for name in names]


@dataclass(frozen=True)
class Table:
    """Rows under columns.

    Parameters
    ----------
    title : str
        What stands above the table.
    columns : sequence of Column
        From left to right.
    rows : sequence of sequences
        One cell for each column: numbers, strings, booleans, or None for an empty cell.
    notes : sequence of str, optional
        What a reader must know, below the table.
    name : str, optional
        For the name of its file; made from the title by default.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    name: str = ""

    @classmethod
    def of_records(
        cls,
        title: str,
        columns: Sequence[Column],
        records: Iterable[Mapping[str, Cell]],
        notes: Sequence[str] = (),
        name: str = "",
    ) -> "Table":
        """A table of records, whose keys are the names of columns; what a record does not have is
        empty.
        """
        rows = [[record.get(column.name) for column in columns] for record in records]
        return cls(title, columns, rows, notes, name)

    @property
    def headings(self) -> list[str]:
        """Each in one line."""
        return [(column.heading or column.name).replace("\n", " ") for column in self.columns]

    @property
    def cells(self) -> list[list[str]]:
        """The rows as text."""
        return [[column.format(cell) for column, cell in zip(self.columns, row, strict=True)] for row in self.rows]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        rows = [list(row) for row in self.rows]
        return {"title": self.title, "columns": self.headings, "rows": rows, "notes": list(self.notes)}

    def csv(self) -> str:
        """The headings and the cells, unformatted."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.headings)
        writer.writerows(self.rows)
        return text.getvalue()

    def markdown(self) -> str:
        """Without title and notes."""
        rule = ["---:" if right else "---" for right in self._alignment()]
        head, *rest = (" | ".join(cell.replace("|", "\\|") for cell in line) for line in [self.headings, *self.cells])
        return "\n".join(f"| {line} |" for line in (head, " | ".join(rule), *rest))

    def text(self) -> str:
        """In plain ASCII where the cells are, as wide as it gets, without title and notes."""
        from rich.console import Console

        written = io.StringIO()
        Console(file=written, width=_WIDTH, soft_wrap=True).print(self.rich(plain=True))
        return "\n".join(line.rstrip() for line in written.getvalue().splitlines())

    def rich(self, *, plain: bool = False) -> Any:
        """A table of rich, for the terminal, without title and notes. plain: the rule is made of
        ASCII characters.
        """
        from rich.box import SIMPLE_HEAD, Box
        from rich.table import Table as RichTable
        from rich.text import Text

        rule = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True) if plain else SIMPLE_HEAD
        table = RichTable(box=rule, collapse_padding=True, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
        for number, (column, right) in enumerate(zip(self.columns, self._alignment(), strict=True)):
            # In a narrow terminal the first column, which names the row, stays whole.
            heading = Text(column.heading or column.name)
            justify: Any = "right" if right else "left"
            table.add_column(heading, justify=justify, overflow="fold", no_wrap=plain or number == 0)
        for line in self.cells:
            table.add_row(*map(Text, line))
        return table

    def _alignment(self) -> list[bool]:
        """Whether each column is aligned to the right."""

        def is_numeric(cells: Sequence[Cell]) -> bool:
            has_numbers = any(isinstance(cell, int | float) for cell in cells)
            return has_numbers and not any(isinstance(cell, bool) for cell in cells)

        return [
            is_numeric([row[j] for row in self.rows]) if column.right is None else column.right
            for j, column in enumerate(self.columns)
        ]


def facts_table(title: str, facts: Mapping[str, Any]) -> Any:
    """Names and values in a box, for the terminal."""
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(title=title, title_justify="left", show_header=False, min_width=len(title))
    table.add_column()
    table.add_column(justify="right")
    for name, value in facts.items():
        table.add_row(name, Text(f"{value:.6g}" if isinstance(value, float) else str(value)))
    return table


def data_table(entries: Sequence[Any]) -> Table:
    """The data sets that are known by name."""
    rows = [
        [entry.name, entry.rows, entry.features, str(entry.path or f"no; gradslide data get {entry.name}")]
        for entry in entries
    ]
    return Table("data sets; misfire is built in", columns("name", "rows", "features", "here"), rows)
