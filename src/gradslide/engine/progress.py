"""A progress line on stderr while a run goes on."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from gradslide.results.costs import traffic, work
from gradslide.results.history import Record


class Progress(Protocol):
    def show(self, record: Record) -> None: ...


class _Silent:
    def show(self, record: Record) -> None:
        pass


class _Line:
    """One line that is redrawn: iteration, costs, and the latest metrics."""

    def __init__(self, bar: object, task: object) -> None:
        self._bar = bar
        self._task = task

    def show(self, record: Record) -> None:
        taken, sent = work([record])[0], traffic([record])
        seen = [
            f"{name} {value:{digits}}"
            for name, value, digits in (
                ("f", record.objective, ".6g"),
                ("apart", record.disagreement, ".1e"),
                *((("residual", record.residual, ".1e"),) if record.disagreement is None else ()),
                ("gap", record.gap, ".1e"),
            )
            if value is not None
        ]
        self._bar.update(  # type: ignore[attr-defined]
            self._task,
            completed=record.iteration,
            costs=f"{getattr(record, taken)} {taken}, {getattr(record, sent)} {sent.replace('operator_', '')}",
            seen="  ".join(seen),
        )


@contextmanager
def progress_line(enabled: bool, label: str, length: int | None) -> Iterator[Progress]:
    """Shows where a run is; a bar where its number of outer iterations is known."""
    if not enabled:
        yield _Silent()
        return
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    columns = [
        SpinnerColumn(),
        TextColumn("{task.description}"),
        *([] if length is None else [BarColumn()]),
        TextColumn("{task.fields[costs]}  {task.fields[seen]}"),
        TimeElapsedColumn(),
    ]
    with RichProgress(*columns, console=Console(stderr=True)) as bar:
        yield _Line(bar, bar.add_task(label, total=length, costs="", seen=""))
