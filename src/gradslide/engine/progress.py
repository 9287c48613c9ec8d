"""A progress line on stderr."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gradslide.results.costs import traffic, work
from gradslide.results.history import Record


class ProgressLine:
    """One line that is redrawn: iteration, costs, and the latest metrics.

    Parameters
    ----------
    bar : rich.progress.Progress
        What draws it.
    task : rich.progress.TaskID
        Its line.
    """

    def __init__(self, bar: Any, task: Any) -> None:
        self._bar, self._task = bar, task

    def show(self, record: Record) -> None:
        """Redraw the line with this record."""
        taken, sent = work([record])[0], traffic([record])
        seen = [
            f"{name} {value:{digits}}"
            for name, value, digits in (
                ("f", record.objective, ".6g"),
                ("disagreement", record.disagreement, ".1e"),
                *((("residual", record.residual, ".1e"),) if record.disagreement is None else ()),
                ("gap", record.gap, ".1e"),
            )
            if value is not None
        ]
        self._bar.update(
            self._task,
            completed=record.iteration,
            costs=f"{getattr(record, taken)} {taken}, {getattr(record, sent)} {sent.replace('operator_', '')}",
            seen="  ".join(seen),
        )


@contextmanager
def progress_line(label: str, length: int | None) -> Iterator[ProgressLine]:
    """Show where a run is while the block runs.

    Parameters
    ----------
    label : str
        What stands in front.
    length : int or None
        The number of outer iterations, for a bar; None if it is unknown.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = [
        SpinnerColumn(),
        TextColumn("{task.description}"),
        *([] if length is None else [BarColumn()]),
        TextColumn("{task.fields[costs]}  {task.fields[seen]}"),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, console=Console(stderr=True)) as bar:
        yield ProgressLine(bar, bar.add_task(label, total=length, costs="", seen=""))
