"""Progress of many runs."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def progress_of_runs(enabled: bool) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on stderr: how many are done, of how many, and which was the last."""
    if not enabled:
        yield lambda done, total, last: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    last_run = TextColumn("{task.fields[last]}", markup=False)
    columns = [TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), last_run]
    with ExitStack() as stack:
        bar = Progress(*columns, console=Console(stderr=True))
        task = bar.add_task("runs", total=None, last="")

        def show(done: int, total: int, last: str) -> None:
            # Not before there is something to show: notes and mistakes come first.
            if not bar.live.is_started:
                stack.enter_context(bar)
            bar.update(task, completed=done, total=total, last=last)

        yield show
