"""Run a comparison: read what is cached, make the other runs in parallel, and cache every outcome
at once.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradslide import data as datasets
from gradslide._support.cores import usable_cores
from gradslide._support.errors import InputError
from gradslide.experiments import build
from gradslide.experiments.compare import work
from gradslide.experiments.compare.spec import Comparison, Entry
from gradslide.experiments.compare.task import ComparisonTask, Contents, Outcome, Target, tasks_of
from gradslide.experiments.parallel import pool
from gradslide.experiments.parallel.cache import ResultCache, digest, digest_of
from gradslide.experiments.section import Section

Say = Callable[[str], None]
Show = Callable[[int, int, str], None]


class Files:
    """Where the files of problems and networks are; None where they need none, or where it is not
    here.
    """

    def __init__(self, folder: Path, data_dir: Path | None) -> None:
        self.folder, self.data_dir = folder, data_dir

    def data(self, problem: Entry) -> Path | None:
        table = Section("problem", problem.table).section("data")
        name, file = table.optional("name", str), table.optional("file", str)
        if file is not None:
            return self.folder / file if (self.folder / file).is_file() else None
        return None if name in (None, "misfire") else datasets.find(str(name), self.data_dir)

    def network(self, network: Entry) -> Path | None:
        file = Section("network", network.table).optional("file", str)
        return None if file is None else build.found_file(file, self.folder, self.data_dir)

    def lacks(self, entry: Entry, path: Path | None) -> bool:
        """Whether it needs a file that is not here."""
        table = entry.table.get("data", entry.table)
        return path is None and ("file" in table or table.get("name", "misfire") != "misfire")


def available(comparison: Comparison, files: Files, say: Callable[[str], None]) -> Comparison:
    """Without the optional problems and networks whose files are not here."""

    def here(entries: Iterable[Entry], what: str, find: Callable[[Entry], Path | None]) -> list[Entry]:
        kept = []
        for entry in entries:
            optional = Section(what, entry.table).take("optional", bool, False)
            if optional and files.lacks(entry, find(entry)):
                places = f"{files.folder} or {datasets.data_directory(files.data_dir)}"
                say(f"{what} {entry.name}: left out, its file is not in {places}")
            else:
                kept.append(entry)
        if not kept:
            raise InputError(f"a comparison needs a {what}", "none whose file is here", "check --data-dir")
        return kept

    return dataclasses.replace(
        comparison,
        problems=here(comparison.problems, "problem", files.data),
        networks=here(comparison.networks, "network", files.network),
    )


class OutcomeCache:
    """fresh: nothing is read."""

    def __init__(self, folder: Path, fresh: bool) -> None:
        self._files = ResultCache(folder, fresh)

    def target(self, problem: Entry, content: str, folder: Path, data_dir: Path | None) -> Target:
        name = f"optimum-{digest([problem.table, content])}"
        if (known := self._files.read(name, Target)) is not None:
            return known
        found = work.optimum(problem.table, folder, data_dir)
        self._files.write(name, found)
        return found

    def outcome(self, task: ComparisonTask) -> Outcome | None:
        return self._files.read(task.key, Outcome)

    def store(self, task: ComparisonTask, outcome: Outcome) -> None:
        """What failed or was interrupted is tried again another time."""
        if outcome.kind in ("done", "refused"):
            self._files.write(task.key, outcome)


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
    cache = OutcomeCache(comparison.output.dir / "runs", fresh)
    targets = {}
    for problem in comparison.problems:
        say(f"{problem.name}: the reference optimum, with all data in one place")
        targets[problem.name] = cache.target(problem, contents.problems[problem.name], comparison.folder, data_dir)
    defaults = tasks_of(comparison, targets, data_dir, contents)
    processes = comparison.processes or usable_cores()
    outcomes: list[Outcome] = []
    try:
        wave = _Wave(cache, processes, show, outcomes, len(defaults) + sum(len(task.method.grid) for task in defaults))
        wave.run(defaults)
        wave.run([again for task, outcome in list(wave.done) for again in _on_grid(task, outcome)])
    except KeyboardInterrupt:
        return Compared(comparison, targets, outcomes, data_dir, interrupted=True)
    is_cut = any(each.kind == "interrupted" for each in outcomes)
    return Compared(comparison, targets, outcomes, data_dir, interrupted=is_cut)


def performed(tasks: Sequence[ComparisonTask], processes: int) -> Iterator[tuple[ComparisonTask, Outcome]]:
    """The outcome of each task as soon as it is there."""
    for task, outcome in pool.performed(tasks, work.perform, processes):
        yield task, outcome or Outcome.of(task, kind="failed", message="the process that ran it died")


class _Wave:
    """Tasks that can be done side by side."""

    def __init__(self, cache: OutcomeCache, processes: int, show: Show, outcomes: list[Outcome], total: int) -> None:
        self._cache, self._processes, self._show = cache, processes, show
        self._outcomes, self._total = outcomes, total
        self.done: list[tuple[ComparisonTask, Outcome]] = []

    def run(self, tasks: list[ComparisonTask]) -> None:
        missing = []
        for task in tasks:
            if (known := self._cache.outcome(task)) is None:
                missing.append(task)
            else:
                self._note(task, known)
        for task, outcome in performed(missing, self._processes):
            self._cache.store(task, outcome)
            self._note(task, outcome)

    def _note(self, task: ComparisonTask, outcome: Outcome) -> None:
        # Names may have changed since the outcome was kept.
        problem, network, condition = task.block
        named = dataclasses.replace(
            outcome, problem=problem, network=network, condition=condition, method=task.method.name
        )
        self.done.append((task, named))
        self._outcomes.append(named)
        self._show(len(self._outcomes), self._total, f"{named.method} ({problem}, {network})")


def _on_grid(task: ComparisonTask, outcome: Outcome) -> list[ComparisonTask]:
    """The same with multiples of what turned out to be the default."""
    default = outcome.parameters.get(work.tuned(task.method))
    if default is None or isinstance(default, str):
        return []
    return [dataclasses.replace(task, factor=factor, value=factor * default) for factor in task.method.grid]


def _check(comparison: Comparison, data_dir: Path | None) -> None:
    """Show a mistake in any table before anything long starts."""
    stand_in = {problem.name: Target(1.0, 1.0) for problem in comparison.problems}
    for task in tasks_of(comparison, stand_in, data_dir):
        work.check(task)
