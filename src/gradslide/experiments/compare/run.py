"""Run a comparison: what is done already is read, the rest is done in parallel, and every outcome is kept at once."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradslide.experiments.compare import work
from gradslide.experiments.compare.inputs import Files, available
from gradslide.experiments.compare.kept import Kept
from gradslide.experiments.compare.spec import Comparison
from gradslide.experiments.compare.task import Contents, Outcome, Target, Task, tasks_of
from gradslide.experiments.parallel import pool, worker
from gradslide.experiments.parallel.kept import digest_of

Say = Callable[[str], None]
Show = Callable[[int, int, Outcome | None], None]


@dataclass(frozen=True)
class Compared:
    """All outcomes. interrupted: some are missing, and a later run goes on from here."""

    comparison: Comparison
    targets: dict[str, Target]
    outcomes: list[Outcome]
    data_dir: Path | None
    interrupted: bool = False

    @property
    def is_complete(self) -> bool:
        return not self.interrupted and all(outcome.kind != "failed" for outcome in self.outcomes)


def run_comparison(
    comparison: Comparison,
    *,
    data_dir: Path | None = None,
    fresh: bool = False,
    say: Say = lambda text: None,
    show: Show = lambda done, total, last: None,
) -> Compared:
    """Everything but tables and pictures. fresh: do again what was done before."""
    # Files may have changed since an earlier one in this process.
    work.forget()
    files = Files(comparison.folder, data_dir)
    comparison = available(comparison, files, say)
    _check(comparison, data_dir)
    contents = Contents(
        {problem.name: digest_of(files.data(problem)) for problem in comparison.problems},
        {network.name: digest_of(files.network(network)) for network in comparison.networks},
    )
    kept = Kept(comparison.output.dir / "runs", fresh)
    targets = {}
    for problem in comparison.problems:
        say(f"{problem.name}: the reference optimum, with all data in one place")
        targets[problem.name] = kept.target(problem, contents.problems[problem.name], comparison.folder, data_dir)
    defaults = tasks_of(comparison, targets, data_dir, contents)
    processes = comparison.processes or worker.cores()
    outcomes: list[Outcome] = []
    try:
        wave = _Wave(kept, processes, show, outcomes, len(defaults) + sum(len(task.method.grid) for task in defaults))
        wave.run(defaults)
        wave.run([again for task, outcome in list(wave.done) for again in _on_grid(task, outcome)])
    except KeyboardInterrupt:
        return Compared(comparison, targets, outcomes, data_dir, interrupted=True)
    is_cut = any(each.kind == "interrupted" for each in outcomes)
    return Compared(comparison, targets, outcomes, data_dir, interrupted=is_cut)


def performed(tasks: Sequence[Task], processes: int) -> Iterator[tuple[Task, Outcome]]:
    """The outcome of each task as soon as it is there."""
    for task, outcome in pool.performed(tasks, work.perform, processes):
        yield task, outcome or Outcome.of(task, kind="failed", message="the process that ran it died")


class _Wave:
    """Tasks that can be done side by side."""

    def __init__(self, kept: Kept, processes: int, show: Show, outcomes: list[Outcome], total: int) -> None:
        self._kept, self._processes, self._show = kept, processes, show
        self._outcomes, self._total = outcomes, total
        self.done: list[tuple[Task, Outcome]] = []

    def run(self, tasks: list[Task]) -> None:
        missing = []
        for task in tasks:
            if (known := self._kept.outcome(task)) is None:
                missing.append(task)
            else:
                self._note(task, known)
        for task, outcome in performed(missing, self._processes):
            self._kept.keep(task, outcome)
            self._note(task, outcome)

    def _note(self, task: Task, outcome: Outcome) -> None:
        # Names may have changed since the outcome was kept.
        problem, network, condition = task.block
        named = dataclasses.replace(
            outcome, problem=problem, network=network, condition=condition, method=task.method.name
        )
        self.done.append((task, named))
        self._outcomes.append(named)
        self._show(len(self._outcomes), self._total, named)


def _on_grid(task: Task, outcome: Outcome) -> list[Task]:
    """The same with multiples of what turned out to be the default."""
    default = outcome.parameters.get(work.tuned(task.method))
    if default is None:
        return []
    return [dataclasses.replace(task, factor=factor, value=factor * default) for factor in task.method.grid]


def _check(comparison: Comparison, data_dir: Path | None) -> None:
    """Show a mistake in any table before anything long starts."""
    stand_in = {problem.name: Target(1.0, 1.0) for problem in comparison.problems}
    for task in tasks_of(comparison, stand_in, data_dir):
        work.check(task)
