"""The tables of a comparison, one after another, and its progress while it runs."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any, NamedTuple

from gradslide.experiments.compare.run import Compared
from gradslide.experiments.compare.summary import Block, blocks
from gradslide.experiments.compare.tables import (
    costs_table,
    legend,
    notes,
    overview_table,
    survival_table,
    times_table,
    verdicts,
)
from gradslide.experiments.compare.task import Outcome
from gradslide.experiments.parallel.pool import progress_of_runs

# Tables take what they need; a narrower one would cut names off.
_WIDTH = 10_000
_BROKEN = "! the method itself says that its invariant is broken"


class Section(NamedTuple):
    """A table of rich, and what a reader must know besides."""

    title: str
    table: Any
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Plain text, for JSON."""
        columns = self.table.columns
        rows = zip(*(map(str, column.cells) for column in columns), strict=True)
        headings = [str(column.header).replace("\n", " ") for column in columns]
        return {"title": self.title, "columns": headings, "rows": [list(row) for row in rows], "notes": self.notes}


def report(compared: Compared) -> str:
    """Everything as text: costs and times for each block, survival where there are conditions, and who beat ours."""
    from rich.console import Console

    text = io.StringIO()
    console = Console(file=text, width=_WIDTH, highlight=False, markup=False, soft_wrap=True)
    comparison, found = compared.comparison, blocks(compared)
    console.print(comparison.title)
    for section in sections(compared):
        console.print(f"\n{section.title}")
        console.print(section.table)
        for note in section.notes:
            console.print(note)
    if found:
        console.print(f"\n{legend(comparison.disagreement_factor)}")
        console.print(f"\n{_beaten(found)}")
    if compared.interrupted:
        console.print("\ninterrupted: the same command goes on from here")
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def sections(compared: Compared) -> Iterator[Section]:
    """The tables, in the order in which they are read."""
    comparison, found = compared.comparison, blocks(compared)
    for block in found:
        where, said = f"{block.problem}; {block.network}; {block.condition}", notes(block)
        yield Section(where, costs_table(block), [] if comparison.clocks else said)
        if comparison.clocks:
            yield Section(f"{where}: simulated time", times_table(block), said)
    if len(comparison.conditions) > 1:
        for (problem, network), group in groupby(found, key=lambda block: (block.problem, block.network)):
            heading = f"{problem}; {network}: error / disagreement in the end, with default steps"
            yield Section(heading, survival_table(list(group)), [_BROKEN])
    if len(found) > 1:
        for index, accuracy in enumerate(comparison.accuracies):
            yield Section(f"(gradients, rounds) to {accuracy:g}", overview_table(found, index), [])


def _beaten(found: list[Block]) -> str:
    said = verdicts(found)
    if not said:
        return "no baseline took less of both gradients and rounds than ours anywhere"
    return "\n".join(["baselines that took less of both (gradients, rounds) than ours:", *said])


@contextmanager
def progress_of_outcomes(enabled: bool) -> Iterator[Callable[[int, int, Outcome | None], None]]:
    """A bar on stderr."""
    with progress_of_runs(enabled) as show:
        yield lambda done, total, last: show(
            done, total, "" if last is None else f"{last.method} ({last.problem}, {last.network})"
        )
