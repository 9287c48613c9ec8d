"""What can be reproduced, and how: each by a function of the module of its name."""

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from gradslide import data as datasets
from gradslide._support import storage
from gradslide._support.cores import usable_cores
from gradslide._support.errors import require_number, unknown_name
from gradslide._version import __version__
from gradslide.experiments.parallel.pool import progress_of_runs
from gradslide.experiments.reproduce.paper import found_data
from gradslide.experiments.reproduce.report import Report
from gradslide.experiments.reproduce.runs import Bench
from gradslide.experiments.tables import Cell

# In the order in which all of them are run.
_MODULES = {
    "table1": "table1.experiment",
    "table2": "table2.experiment",
    "figure1": "figure1",
    "invariance": "invariance.experiment",
    "complexity": "complexity.experiment",
}
NAMES = tuple(_MODULES)
_NEED_DATA = frozenset(NAMES) - {"figure1"}


def chosen(what: Sequence[str]) -> list[str]:
    """The experiments of these names, each once; "all" is every one."""
    for name in what:
        if name not in (*NAMES, "all"):
            raise unknown_name("what to reproduce", name, (*NAMES, "all"))
    return [name for name in NAMES if name in what or "all" in what]


def reports(
    names: Sequence[str],
    *,
    out: Path,
    data_dir: Path | None,
    full: bool,
    processes: int | None,
    fresh: bool,
    quiet: bool,
    say: Callable[[str], None],
    command: str,
) -> Iterator[Report]:
    """Run one experiment after another; their reports, with what they were obtained with."""
    if processes is not None:
        require_number("processes", processes, "leave it out for one per core", least=1, whole=True)
    storage.require_writable(out)
    needs_data = not _NEED_DATA.isdisjoint(names)
    data = found_data(data_dir, say if needs_data and not quiet else lambda text: None)
    if needs_data:
        # A damaged file is told before anything long begins.
        datasets.load(data.name, data_dir, progress=False)
    for name in names:
        with progress_of_runs(not quiet) as show:
            bench = Bench(out, data, full, fresh, processes or usable_cores(), show)
            made: Report = import_module(f"{__package__}.{_MODULES[name]}").reproduce(bench)
        yield replace(made, facts={**made.facts, "obtained with": command, **_machine()})


def _machine() -> dict[str, Cell]:
    return {
        "version": f"gradslide {__version__}, Python {platform.python_version()}",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }
