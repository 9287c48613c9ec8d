"""What a comparison has done already, on disk: one file per outcome, and per optimum."""

from pathlib import Path

from gradslide.experiments.compare import work
from gradslide.experiments.compare.spec import Entry
from gradslide.experiments.compare.task import Outcome, Target, Task
from gradslide.experiments.parallel.kept import Store, digest


class Kept:
    """fresh: nothing is read."""

    def __init__(self, folder: Path, fresh: bool) -> None:
        self._store = Store(folder, fresh)

    def target(self, problem: Entry, content: str, folder: Path, data_dir: Path | None) -> Target:
        name = f"optimum-{digest([problem.table, content])}"
        if (known := self._store.read(name, Target)) is not None:
            return known
        found = work.optimum(problem.table, folder, data_dir)
        self._store.write(name, found)
        return found

    def outcome(self, task: Task) -> Outcome | None:
        return self._store.read(task.key, Outcome)

    def keep(self, task: Task, outcome: Outcome) -> None:
        """What failed or was interrupted is tried again another time."""
        if outcome.kind in ("done", "refused"):
            self._store.write(task.key, outcome)
