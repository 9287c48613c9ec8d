"""A progress line on stderr while a run goes on."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from gradslide.history import Record
from gradslide.stop import Stop


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
        seen = ""
        if record.objective is not None and record.disagreement is not None:
            seen = f"f {record.objective:.6g}  apart {record.disagreement:.1e}"
        self._bar.update(  # type: ignore[attr-defined]
            self._task,
            completed=record.iteration,
            costs=f"{record.gradients} gradients, {record.rounds} rounds",
            seen=seen,
        )


@contextmanager
def progress_line(enabled: bool, label: str, stop: Stop) -> Iterator[Progress]:
    """Shows where a run is; a bar where the number of iterations is limited."""
    if not enabled:
        yield _Silent()
        return
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    columns = [
        SpinnerColumn(),
        TextColumn("{task.description}"),
        *([BarColumn()] if stop.iterations and not stop.has_targets else []),
        TextColumn("{task.fields[costs]}  {task.fields[seen]}"),
        TimeElapsedColumn(),
    ]
    with RichProgress(*columns, console=Console(stderr=True)) as bar:
        yield _Line(bar, bar.add_task(label, total=stop.iterations, costs="", seen=""))
