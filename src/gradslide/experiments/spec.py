"""A run as a TOML file: data, problem, networks, method, stop, output. Version 1 of the format."""

import itertools
import tomllib
from collections.abc import Container
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from gradslide.errors import InputError
from gradslide.experiments.section import Section

VERSION = 1


@dataclass(frozen=True)
class OutputSpec:
    """dir: where results go; plot: draw the curves; checkpoint: keep what is needed to go on after an interruption."""

    dir: Path
    plot: bool = True
    checkpoint: bool = False


@dataclass(frozen=True)
class Spec:
    """A parsed file; the tables that name things are turned into objects by `build`."""

    name: str
    title: str
    data: dict[str, Any]
    problem: dict[str, Any]
    networks: list[dict[str, Any]]
    method: dict[str, Any]
    stop: dict[str, Any] | None
    output: OutputSpec
    folder: Path = field(default_factory=Path)

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


def read_spec(path: Path) -> Spec:
    """Read and check a spec file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            "the spec must be a readable TOML file", f"{path} ({error.strerror})", "check the path"
        ) from None
    except UnicodeDecodeError:
        raise InputError("the spec must be UTF-8 text", f"{path}, which is not", "save it as UTF-8") from None
    return parse_spec(text, name=path.stem, folder=path.parent)


def main_job_text() -> str:
    """The built-in spec that `gradslide run` takes without arguments."""
    return resources.files("gradslide.experiments").joinpath("misfire.toml").read_text(encoding="utf-8")


def main_job() -> Spec:
    return parse_spec(main_job_text(), name="misfire", folder=Path())


def parse_spec(text: str, name: str, folder: Path) -> Spec:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError("the spec must be valid TOML", str(error), "correct that line") from None
    top = Section("top level", table)
    version = top.take("version", int)
    if version != VERSION:
        raise InputError(f"version of the spec must be {VERSION}", version, f"write version = {VERSION}")
    title = top.take("title", str, name)
    data, problem = top.take("data", dict), top.take("problem", dict)
    networks = top.take_any("network")
    # A name will do for a method without further keys.
    named = isinstance(top.peek("method"), str)
    method = {"name": top.take("method", str)} if named else top.take("method", dict, {"name": "pds"})
    stop = top.optional("stop", dict)
    output = Section("output", top.take("output", dict, {}))
    top.finish()
    if isinstance(networks, dict):
        networks = [networks]
    if not isinstance(networks, list) or not networks:
        raise InputError(
            "a spec needs a [network] table, or several [[network]]",
            networks,
            'add [network] with topology = "ring"',
        )
    parsed = OutputSpec(
        dir=Path(output.take("dir", str, f"gradslide-results/{name}")),
        plot=output.take("plot", bool, True),
        checkpoint=output.take("checkpoint", bool, False),
    )
    output.finish()
    return Spec(name, title, data, problem, networks, method, stop, parsed, folder)
