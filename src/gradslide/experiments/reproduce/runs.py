"""Many runs side by side, each kept on disk as soon as it is done."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gradslide._support.cores import usable_cores
from gradslide._support.errors import InputError
from gradslide._version import __version__
from gradslide.experiments.parallel import pool
from gradslide.experiments.parallel.cache import ResultCache, digest
from gradslide.experiments.reproduce.paper import Data

Show = Callable[[int, int, str], None]


class ReproductionTask(Protocol):
    """A frozen dataclass: all that a process needs, and what it is called while it runs."""

    @property
    def data(self) -> Data: ...

    @property
    def label(self) -> str: ...


T = TypeVar("T", bound=ReproductionTask)
# What a run had at some point: numbers by name.
Facts = dict[str, Any]


def all_rounds(facts: Facts) -> int:
    """Control rounds are rounds, too."""
    return int(facts["rounds"] + facts["control_rounds"])


@dataclass(frozen=True)
class CachedFacts:
    """What a task gave: numbers, texts, lists and tables of these."""

    found: dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """Where runs are made. folder: for results; full: the expensive ones too; fresh: do again what
    was done before.
    """

    folder: Path
    data: Data
    full: bool = False
    fresh: bool = False
    processes: int = field(default_factory=usable_cores)
    show: Show = lambda done, total, last: None

    def budget(self, given: dict[str, Any]) -> int:
        """Rounds of an expensive baseline."""
        return int(given["full"] if self.full else given["rounds"])

    def outcomes(self, tasks: Sequence[T], perform: Callable[[T], dict[str, Any]]) -> dict[T, dict[str, Any]]:
        """What each task gives. perform: a function of a module, which raises KeyboardInterrupt
        where Ctrl-C ended it; what was done by then is kept."""
        store = ResultCache(self.folder / "runs", self.fresh)
        done: dict[T, dict[str, Any]] = {}
        missing = []
        for task in dict.fromkeys(tasks):
            if (known := store.read(_name(task, perform), CachedFacts)) is None:
                missing.append(task)
            else:
                done[task] = known.found
        total = len(done) + len(missing)
        for task, found in pool.performed(missing, perform, self.processes):
            if found is None:
                raise InputError("a run must end", f"{task.label}: its process died", "try again with --processes 1")
            store.write(_name(task, perform), CachedFacts(found))
            done[task] = found
            self.show(len(done), total, task.label)
        return {task: done[task] for task in tasks}


def _name(task: Any, perform: Callable[..., Any]) -> str:
    """The same for the same run, wherever its files are: fields that do not distinguish tasks are
    left out.
    """
    told = {each.name for each in fields(task) if each.compare}
    said = {name: value for name, value in asdict(task).items() if name in told}
    said["data"] = [task.data.name, task.data.digest]
    return digest([type(task).__name__, perform.__name__, said, __version__])
