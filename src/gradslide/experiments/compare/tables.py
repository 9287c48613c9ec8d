"""Comparisons for the terminal."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gradslide.experiments.compare.summary import Block, Line, Spent

MARK = "*"
# A heading, the accuracy's number, and which cost.
Column = tuple[str, int, Callable[[Spent], float]]


def costs_table(block: Block) -> Any:
    """Gradients and rounds to each accuracy, the least of each column marked."""
    columns: list[Column] = [
        (f"{heading}\nto {accuracy:g}", index, cost)
        for index, accuracy in enumerate(block.accuracies)
        for heading, cost in (("gradients", _work), ("rounds", _rounds))
    ]
    return _marked(block, columns, _count)


def times_table(block: Block) -> Any:
    """Simulated time to each accuracy, by each clock."""
    clocks = dict.fromkeys(name for line in block.lines for spent in line.reached if spent for name in spent.seconds)
    columns: list[Column] = [
        (f"{clock}\nto {accuracy:g}", index, _seconds(clock))
        for clock in clocks
        for index, accuracy in enumerate(block.accuracies)
    ]
    return _marked(block, columns, duration)


def overview_table(blocks: Sequence[Block], index: int) -> Any:
    """One row per block: (gradients, rounds) of ours, and of whoever took the least of either."""
    table = _table()
    ours = dict.fromkeys(line.label for block in blocks for line in block.lines if line.is_ours)
    for heading in ("problem", "network", "condition", *ours, "least gradients", "least rounds"):
        table.add_column(heading, no_wrap=True)
    for block in blocks:
        by_label = {line.label: line for line in block.lines}
        own = [_both(by_label[label].reached[index]) if label in by_label else "-" for label in ours]
        least = [_holder(block, index, cost) for cost in (_work, _rounds)]
        table.add_row(block.problem, block.network, block.condition, *own, *least)
    return table


def _holder(block: Block, index: int, cost: Callable[[Spent], float]) -> str:
    """Who took the least, and what; where several did, the first."""
    least = block.least(index, cost)
    holders = (line for line in block.lines if (spent := line.reached[index]) and cost(spent) == least)
    return next((f"{line.label} {_both(line.reached[index])}" for line in holders), "nobody got there")


def survival_table(blocks: Sequence[Block]) -> Any:
    """Methods against conditions: relative error and relative disagreement at the end."""
    table = _table()
    table.add_column("method", no_wrap=True)
    for block in blocks:
        table.add_column(block.condition, justify="right")
    for method in dict.fromkeys(line.method for block in blocks for line in block.lines):
        lines = [[line for line in block.lines if line.method == method and line.factor is None] for block in blocks]
        table.add_row(method, *("-" if not line else ending(line[0]) for line in lines))
    return table


def ending(line: Line) -> str:
    """Errors, with a mark where the method says that its answer is wrong; or that it has none."""
    if line.kind != "done":
        return line.kind
    if line.status == "DIVERGED":
        return "diverged"
    return f"{line.error:.0e} / {line.disagreement:.0e}{' !' * line.warned}"


def verdicts(blocks: Iterable[Block]) -> list[str]:
    """Where baselines were better than one of ours in both gradients and rounds, or got there when ours did not."""
    said = []
    for block in blocks:
        for index, accuracy in enumerate(block.accuracies):
            for own, better in block.beaten(index):
                against = ", ".join(f"{line.label} {_both(line.reached[index])}" for line in better)
                where = f"{block.problem}; {block.network}; {block.condition}; {accuracy:g}"
                said.append(f"{where}: {own.label} {_both(own.reached[index])} behind {against}")
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


def _marked(block: Block, columns: Sequence[Column], shown: Callable[[float], str]) -> Any:
    table = _table()
    table.add_column("method", no_wrap=True)
    for heading, _, _ in columns:
        table.add_column(heading, justify="right")
    table.add_column("in the end")
    for line in block.lines:
        cells = []
        for _, index, cost in columns:
            spent = line.reached[index]
            best = spent is not None and cost(spent) == block.least(index, cost)
            cells.append("-" if spent is None else f"{shown(cost(spent))}{MARK if best else ' '}")
        table.add_row(line.label, *cells, ending(line))
    return table


def _table() -> Any:
    from rich.box import Box
    from rich.table import Table

    # A line under the headings, in characters that every file and every pipe can hold.
    line = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
    return Table(box=line, collapse_padding=True, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))


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
