"""The tables of a comparison, one after another, and its progress while it runs."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby

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
from gradslide.experiments.parallel.progress import progress_of_runs

# Tables take what they need; a narrower one would cut names off.
_WIDTH = 10_000


def report(compared: Compared) -> str:
    """Everything as text: costs and times for each block, survival where there are conditions, and who beat ours."""
    from rich.console import Console

    text = io.StringIO()
    console = Console(file=text, width=_WIDTH, highlight=False, markup=False, soft_wrap=True)
    comparison, found = compared.comparison, blocks(compared)
    console.print(comparison.title)
    for block in found:
        console.print(f"\n{block.problem}; {block.network}; {block.condition}")
        console.print(costs_table(block))
        if comparison.clocks:
            console.print("\nsimulated time")
            console.print(times_table(block))
        for note in notes(block):
            console.print(note)
    if len(comparison.conditions) > 1:
        for (problem, network), group in groupby(found, key=lambda block: (block.problem, block.network)):
            heading = f"{problem}; {network}: error / disagreement in the end, with default steps"
            console.print(f"\n{heading}")
            console.print(survival_table(list(group)))
        console.print("! the method itself says that its invariant is broken")
    if len(found) > 1:
        for index, accuracy in enumerate(comparison.accuracies):
            console.print(f"\n(gradients, rounds) to {accuracy:g}")
            console.print(overview_table(found, index))
    if found:
        console.print(f"\n{legend(comparison.apart)}")
        console.print(f"\n{_beaten(found)}")
    if compared.interrupted:
        console.print("\ninterrupted: the same command goes on from here")
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def _beaten(found: list[Block]) -> str:
    said = verdicts(found)
    if not said:
        return "no rival took less of both gradients and rounds than ours anywhere"
    return "\n".join(["rivals that took less of both (gradients, rounds) than ours:", *said])


@contextmanager
def progress_of_outcomes(enabled: bool) -> Iterator[Callable[[int, int, Outcome | None], None]]:
    """A bar on stderr."""
    with progress_of_runs(enabled) as show:
        yield lambda done, total, last: show(
            done, total, "" if last is None else f"{last.method} ({last.problem}, {last.network})"
        )
