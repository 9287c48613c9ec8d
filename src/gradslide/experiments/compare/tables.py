"""The tables of a comparison: costs and times in each block, survival under conditions, an
overview; and as text.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from gradslide.experiments.compare.run import Compared
from gradslide.experiments.compare.summary import Block, Line, Spent, blocks
from gradslide.experiments.tables import Column, Table

MARK = "*"
_BROKEN = "! the method itself says that its invariant is broken"


class _Cost(NamedTuple):
    """A column of costs: its heading, the number of the accuracy, and which cost."""

    heading: str
    accuracy: int
    cost: Callable[[Spent], float]


def report(compared: Compared) -> str:
    """Everything as text: the tables, what they mean, and which baselines beat ours."""
    found = blocks(compared)
    parts = [compared.comparison.title]
    parts += ["\n".join(["", table.title, table.text(), *table.notes]) for table in tables(compared)]
    if found:
        parts += [f"\n{legend(compared.comparison.disagreement_factor)}", f"\n{_beaten(found)}"]
    if compared.interrupted:
        parts.append("\ninterrupted: the same command goes on from here")
    return "\n".join(line.rstrip() for line in "\n".join(parts).splitlines())


def tables(compared: Compared) -> Iterator[Table]:
    """The tables, in the order in which they are read."""
    comparison, found = compared.comparison, blocks(compared)
    for block in found:
        said = notes(block)
        yield costs_table(block, [] if comparison.clocks else said)
        if comparison.clocks:
            yield times_table(block, said)
    if len(comparison.conditions) > 1:
        for _, group in groupby(found, key=lambda block: (block.problem, block.network)):
            yield survival_table(list(group))
    if len(found) > 1:
        for index in range(len(comparison.accuracies)):
            yield overview_table(found, index)


def costs_table(block: Block, notes: Sequence[str] = ()) -> Table:
    """Gradients and rounds to each accuracy, the least of each column marked."""
    costs = [
        _Cost(f"{heading}\nto {accuracy:g}", index, cost)
        for index, accuracy in enumerate(block.accuracies)
        for heading, cost in (("gradients", _work), ("rounds", _rounds))
    ]
    return _marked(block.title, block, costs, _count, notes)


def times_table(block: Block, notes: Sequence[str] = ()) -> Table:
    """Simulated time to each accuracy, by each clock."""
    clocks = dict.fromkeys(name for line in block.lines for spent in line.reached if spent for name in spent.seconds)
    costs = [
        _Cost(f"{clock}\nto {accuracy:g}", index, _seconds(clock))
        for clock in clocks
        for index, accuracy in enumerate(block.accuracies)
    ]
    return _marked(f"{block.title}: simulated time", block, costs, duration, notes)


def survival_table(blocks: Sequence[Block]) -> Table:
    """Methods against conditions, of one problem and network: relative error and disagreement at
    the end.
    """
    rows = []
    for method in dict.fromkeys(line.method for block in blocks for line in block.lines):
        lines = [[line for line in block.lines if line.method == method and line.factor is None] for block in blocks]
        rows.append([method, *("-" if not line else ending(line[0]) for line in lines)])
    title = f"{blocks[0].problem}; {blocks[0].network}: error / disagreement in the end, with default steps"
    conditions = (Column(block.condition, right=True) for block in blocks)
    return Table(title, [Column("method"), *conditions], rows, [_BROKEN])


def overview_table(blocks: Sequence[Block], index: int) -> Table:
    """One row per block: (gradients, rounds) of ours, and of the lines that took the least of
    either.
    """
    ours = dict.fromkeys(line.label for block in blocks for line in block.lines if line.is_ours)
    rows = []
    for block in blocks:
        by_label = {line.label: line for line in block.lines}
        own = [_both(by_label[label].reached[index]) if label in by_label else "-" for label in ours]
        least = [_holder(block, index, cost) for cost in (_work, _rounds)]
        rows.append([block.problem, block.network, block.condition, *own, *least])
    headings = ("problem", "network", "condition", *ours, "least gradients", "least rounds")
    title = f"(gradients, rounds) to {blocks[0].accuracies[index]:g}"
    return Table(title, [Column(heading, right=False) for heading in headings], rows)


def _holder(block: Block, index: int, cost: Callable[[Spent], float]) -> str:
    """Who took the least, and what; where several did, the first."""
    least = block.least(index, cost)
    holders = (line for line in block.lines if (spent := line.reached[index]) and cost(spent) == least)
    return next((f"{line.label} {_both(line.reached[index])}" for line in holders), "not reached")


def ending(line: Line) -> str:
    """Errors, with a mark where the method says that its answer is wrong; or that it has none."""
    if line.kind != "done":
        return line.kind
    if line.status == "DIVERGED":
        return "diverged"
    return f"{line.error:.0e} / {line.disagreement:.0e}{' !' * line.warned}"


def findings(blocks: Iterable[Block]) -> list[str]:
    """Where baselines were better than one of ours in both gradients and rounds, or got there when
    ours did not.
    """
    said = []
    for block in blocks:
        for index, accuracy in enumerate(block.accuracies):
            for own, better in block.beaten(index):
                against = ", ".join(f"{line.label} {_both(line.reached[index])}" for line in better)
                said.append(f"{block.title}; {accuracy:g}: {own.label} {_both(own.reached[index])} behind {against}")
    return said


def _both(spent: Spent | None) -> str:
    return "(never)" if spent is None else f"({_count(spent.work)}, {_count(spent.rounds)})"


def notes(block: Block) -> list[str]:
    """Why lines have no figures."""
    said = dict.fromkeys(f"{line.method}: {line.kind}: {line.message}" for line in block.lines if line.kind != "done")
    return list(said)


def legend(disagreement_factor: float) -> str:
    return (
        "an accuracy eps is reached when the objective at the mean of the agents is within eps |f*| of the optimum f*\n"
        f"and the disagreement is at most {disagreement_factor:g} eps |x*|; {MARK} marks the least of a column.\n"
        "Gradients are per agent, a sample counted as a row's share of one; rounds are all exchanges, control rounds\n"
        "included; medians over seeds."
    )


def _beaten(found: list[Block]) -> str:
    said = findings(found)
    if not said:
        return "no baseline took less of both gradients and rounds than ours anywhere"
    return "\n".join(["baselines that took less of both (gradients, rounds) than ours:", *said])


def _marked(
    title: str, block: Block, costs: Sequence[_Cost], shown: Callable[[float], str], notes: Sequence[str]
) -> Table:
    """One row per line; the least of each column has a mark."""
    rows = []
    for line in block.lines:
        cells = []
        for _, index, cost in costs:
            spent = line.reached[index]
            best = spent is not None and cost(spent) == block.least(index, cost)
            cells.append("-" if spent is None else f"{shown(cost(spent))}{MARK if best else ' '}")
        rows.append([line.label, *cells, ending(line)])
    costly = (Column(each.heading, right=True) for each in costs)
    return Table(title, [Column("method"), *costly, Column("in the end")], rows, notes)


def _work(spent: Spent) -> float:
    return spent.work


def _rounds(spent: Spent) -> float:
    return spent.rounds


def _seconds(clock: str) -> Callable[[Spent], float]:
    return lambda spent: spent.seconds[clock]


def _count(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:.2g}"


def duration(seconds: float) -> str:
    """In the largest unit that gives a number of at least 1."""
    for unit, length in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return "0 s" if seconds == 0 else f"{1000 * seconds:.3g} ms" if math.isfinite(seconds) else "-"
