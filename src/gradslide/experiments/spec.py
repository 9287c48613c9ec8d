"""A run as a TOML file: data, problem, networks, method, stop, output. Version 1 of the format."""

import itertools
import re
import tomllib
from collections.abc import Container
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from gradslide._support.errors import InputError
from gradslide.experiments.regression import RegressionSpec, parse_regression, takes_tables
from gradslide.experiments.section import Section

VERSION = 1
# The name of the method that `solve` takes by default.
DEFAULT_METHOD = "auto"


@dataclass(frozen=True)
class OutputSpec:
    """dir: where results go; plot: draw the curves; checkpoint: keep what is needed to go on after
    an interruption, about every checkpoint_seconds."""

    dir: Path
    plot: bool = True
    checkpoint: bool = False
    checkpoint_seconds: float = 60.0


@dataclass(frozen=True)
class Spec:
    """A parsed file; the tables that name things are turned into objects by `build`. regression: if it
    fits one to tables; then there is no data, problem, method and stop.
    """

    name: str
    title: str
    data: dict[str, Any]
    problem: dict[str, Any]
    networks: list[dict[str, Any]]
    method: dict[str, Any]
    stop: dict[str, Any] | None
    output: OutputSpec
    folder: Path = field(default_factory=Path)
    regression: RegressionSpec | None = None

    def networks_by_name(self) -> dict[str, Section]:
        """One section per network, under its own name or a made one."""
        sections: dict[str, Section] = {}
        for table in self.networks:
            section = Section("network", table)
            wanted = section.take("name", str, str(table.get("topology", "network")))
            sections[unused(wanted, sections, " ({})")] = section
        return sections


def unused(wanted: str, taken: Container[str], numbering: str) -> str:
    """The wanted name, or the first numbered one that is not taken."""
    numbered = (wanted + numbering.format(n) for n in itertools.count(2))
    return next(name for name in itertools.chain([wanted], numbered) if name not in taken)


def stem(name: str, taken: Container[str]) -> str:
    """How the names of files begin that belong to something of that name."""
    return unused(re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") or "network", taken, "-{}")


def read_spec(path: Path) -> Spec:
    """Read and check a spec file."""
    return parse_spec(read_text(path), name=path.stem, folder=path.parent)


def read_text(path: Path) -> str:
    """The text of a spec file."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            "the spec must be a readable TOML file", f"{path} ({error.strerror})", "check the path"
        ) from None
    except UnicodeDecodeError:
        raise InputError("the spec must be UTF-8 text", f"{path}, which is not", "save it as UTF-8") from None


def main_job_text() -> str:
    """The built-in spec that `gradslide run` takes without arguments."""
    return resources.files("gradslide.experiments").joinpath("misfire.toml").read_text(encoding="utf-8")


def main_job() -> Spec:
    return parse_spec(main_job_text(), name="misfire", folder=Path())


def versioned(text: str) -> Section:
    """The top level of a spec in the version of the format that this release reads."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError("the spec must be valid TOML", str(error), "correct that line") from None
    top = Section("top level", table)
    version = top.take("version", int)
    if version != VERSION:
        raise InputError(f"version of the spec must be {VERSION}", version, f"write version = {VERSION}")
    return top


def tables_of(top: Section, key: str, default: Any = None) -> list[Any]:
    """One table [key] or several [[key]]."""
    tables = top.take_any(key, default)
    if isinstance(tables, dict):
        tables = [tables]
    if not isinstance(tables, list) or (not tables and default is None):
        got = "none" if tables is None else tables
        remedy = top.remedy_without(key, f"add [{key}]") if tables is None else f"add [{key}]"
        raise InputError(f"a spec needs a [{key}] table, or several [[{key}]]", got, remedy)
    return tables


def parse_output(top: Section, name: str, *, checkpoints: bool = True) -> OutputSpec:
    """The table [output]. checkpoints: whether it may ask for them."""
    output = Section("output", top.take("output", dict, {}))
    parsed = OutputSpec(
        dir=Path(output.take("dir", str, f"gradslide-results/{name}")),
        plot=output.take("plot", bool, True),
        checkpoint=output.take("checkpoint", bool, False) if checkpoints else False,
        checkpoint_seconds=output.take("checkpoint_seconds", float, 60.0) if checkpoints else 60.0,
    )
    output.finish()
    return parsed


def parse_method(top: Section) -> dict[str, Any]:
    """The table [method], by default what `solve` takes; a name will do for one without further
    keys.
    """
    named = isinstance(top.peek("method"), str)
    return {"name": top.take("method", str)} if named else top.take("method", dict, {"name": DEFAULT_METHOD})


def parse_spec(text: str, name: str, folder: Path) -> Spec:
    top = versioned(text)
    title = top.take("title", str, name)
    if takes_tables(top):
        return _regression_spec(top, name, title, folder)
    data, problem = top.take("data", dict), top.take("problem", dict)
    networks = tables_of(top, "network")
    method = parse_method(top)
    stop = top.optional("stop", dict)
    output = parse_output(top, name)
    top.finish()
    return Spec(name, title, data, problem, networks, method, stop, output, folder)


def _regression_spec(top: Section, name: str, title: str, folder: Path) -> Spec:
    """A regression over tables; without [[network]] its graph is the default one."""
    regression = parse_regression(top)
    networks, output = tables_of(top, "network", []), parse_output(top, name)
    top.finish()
    return Spec(name, title, {}, {}, networks, {}, None, output, folder, regression)
