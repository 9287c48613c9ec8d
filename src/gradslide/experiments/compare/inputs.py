"""The files that a comparison reads: where they are, which are missing, and what is in them."""

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path

from gradslide import data as datasets
from gradslide._support.errors import InputError
from gradslide.experiments import build
from gradslide.experiments.compare.spec import Comparison, Entry
from gradslide.experiments.section import Section


class Files:
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
