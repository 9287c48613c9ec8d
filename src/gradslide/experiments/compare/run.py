"""Run a comparison: what is done already is read, the rest is done in parallel, and every outcome is kept at once."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from gradslide import data as datasets
from gradslide import storage
from gradslide.errors import InputError
from gradslide.experiments import build
from gradslide.experiments.compare import work
from gradslide.experiments.compare.pool import performed
from gradslide.experiments.compare.spec import Comparison, Entry
from gradslide.experiments.compare.task import Contents, Outcome, Target, Task, digest, tasks_of
from gradslide.experiments.section import Section

Say = Callable[[str], None]
Show = Callable[[int, int, Outcome | None], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Compared:
    """All outcomes. interrupted: some are missing, and a later run goes on from here."""

    comparison: Comparison
    targets: dict[str, Target]
    outcomes: list[Outcome]
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
    files = _Files(comparison.folder, data_dir)
    comparison = _available(comparison, files, say)
    _check(comparison, data_dir)
    contents = Contents(
        {problem.name: _digest_of(files.data(problem)) for problem in comparison.problems},
        {network.name: _digest_of(files.network(network)) for network in comparison.networks},
    )
    kept = _Kept(comparison.output.dir / "runs", fresh)
    targets = {}
    for problem in comparison.problems:
        say(f"{problem.name}: the reference optimum, with all data in one place")
        targets[problem.name] = kept.target(problem, contents.problems[problem.name], comparison.folder, data_dir)
    defaults = tasks_of(comparison, targets, None if data_dir is None else str(data_dir), contents)
    processes = comparison.processes or _cores()
    outcomes: list[Outcome] = []
    try:
        wave = _Wave(kept, processes, show, outcomes, len(defaults) + sum(len(task.method.grid) for task in defaults))
        wave.run(defaults)
        wave.run([again for task, outcome in list(wave.done) for again in _on_grid(task, outcome)])
    except KeyboardInterrupt:
        return Compared(comparison, targets, outcomes, interrupted=True)
    return Compared(comparison, targets, outcomes, interrupted=any(each.kind == "interrupted" for each in outcomes))


def _cores() -> int:
    """Those that this process may use, where the system says so."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Wave:
    """Tasks that can be done side by side."""

    def __init__(self, kept: "_Kept", processes: int, show: Show, outcomes: list[Outcome], total: int) -> None:
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


class _Kept:
    """One file per outcome."""

    def __init__(self, folder: Path, fresh: bool) -> None:
        storage.require_writable(folder)
        self._folder, self._fresh = folder, fresh

    def target(self, problem: Entry, content: str, folder: Path, data_dir: Path | None) -> Target:
        path = self._folder / f"optimum-{digest([problem.table, content])}.json"
        if (known := self._read(path, Target)) is not None:
            return known
        found = work.optimum(problem.table, str(folder), None if data_dir is None else str(data_dir))
        storage.write_atomically(path, json.dumps(asdict(found)).encode())
        return found

    def outcome(self, task: Task) -> Outcome | None:
        return self._read(self._folder / f"{task.key}.json", Outcome)

    def keep(self, task: Task, outcome: Outcome) -> None:
        """What failed or was interrupted is tried again another time."""
        if outcome.kind in ("done", "refused"):
            storage.write_atomically(self._folder / f"{task.key}.json", json.dumps(asdict(outcome)).encode())

    def _read(self, path: Path, kind: Callable[..., T]) -> T | None:
        """None for a damaged file too."""
        if self._fresh or not path.exists():
            return None
        try:
            return kind(**json.loads(path.read_text(encoding="utf-8")))
        except (TypeError, ValueError):
            return None


class _Files:
    """Where the files of problems and networks are; None where they need none, or where it is not here."""

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


def _digest_of(path: Path | None) -> str:
    return "" if path is None else hashlib.sha256(path.read_bytes()).hexdigest()


def _available(comparison: Comparison, files: _Files, say: Say) -> Comparison:
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


def _check(comparison: Comparison, data_dir: Path | None) -> None:
    """Show a mistake in any table before anything long starts."""
    stand_in = {problem.name: Target(1.0, 1.0) for problem in comparison.problems}
    for task in tasks_of(comparison, stand_in, None if data_dir is None else str(data_dir)):
        work.check(task)
