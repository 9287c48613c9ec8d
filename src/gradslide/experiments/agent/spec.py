"""One agent as a TOML file: who it is, its neighbours, its problem, the method, the stop. Version 1
of the format.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from gradslide._support.errors import InputError, require, require_number
from gradslide.experiments.regression import RegressionSpec, parse_regression, takes_tables
from gradslide.experiments.section import Section
from gradslide.experiments.spec import OutputSpec, parse_method, read_text, tables_of, versioned

# Exchanges by which agents learn the graph: enough for most networks, and each is small.
_DIAMETER = 16


@dataclass(frozen=True)
class NeighbourSpec:
    """name: what this agent calls it. address: where it listens; None if it dials. public_key: its
    text, or a file.
    """

    name: str
    address: str | None
    public_key: str


@dataclass(frozen=True)
class AgentSpec:
    """A parsed file. Its paths are relative to `folder`, where it lies. task: what to solve."""

    name: str
    secret_key: Path
    listen: str | None
    run: str
    diameter: int
    deadline: float
    meet: float
    neighbours: tuple[NeighbourSpec, ...]
    revoked: tuple[str, ...]
    secure_sums: bool
    task: "RegressionSpec | BuilderSpec"
    output: OutputSpec
    folder: Path = field(default_factory=Path)


@dataclass(frozen=True)
class BuilderSpec:
    """A problem whose loss a function of the user builds. method, stop: tables, as in other specs."""

    builder: str
    mu: float
    features: tuple[str, ...] | None
    method: dict[str, Any]
    stop: dict[str, Any] | None


def template_text() -> str:
    """A commented example of the format."""
    return resources.files("gradslide.experiments.agent").joinpath("template.toml").read_text(encoding="utf-8")


def read_agent(path: Path) -> AgentSpec:
    """Read and check the file of an agent."""
    if not path.exists():
        remedy = "write a commented one with: gradslide agent --init"
        raise InputError("an agent needs its file", f"{path}, which does not exist", remedy)
    return parse_agent(read_text(path), path.parent)


def parse_agent(text: str, folder: Path) -> AgentSpec:
    top = versioned(text)
    name = top.take("name", str)
    secret_key = folder / top.take("secret_key", str, f"{name}.secret")
    listen = top.optional("listen", str)
    run = top.take("run", str)
    require(bool(run.strip()), "run must name the run, alike for all agents", repr(run), 'for example run = "trial-1"')
    diameter = top.take("diameter", int, _DIAMETER)
    require_number("diameter", diameter, "bound the hops between any two agents", least=1, whole=True)
    deadline = top.take("deadline", float, 60.0)
    require_number("deadline", deadline, "60 waits a minute", above=0)
    meet = top.take("meet", float, 600.0)
    require_number("meet", meet, "600 waits ten minutes for neighbours to appear", above=0)
    neighbours = tuple(_neighbour(table) for table in tables_of(top, "neighbour"))
    secure_sums, revoked = top.take("secure_sums", bool, False), top.take("revoked", list, [])
    rule, remedy = "revoked must be a list of public keys", 'for example ["ed25519:..."]'
    require(all(isinstance(key, str) and key.startswith("ed25519:") for key in revoked), rule, revoked, remedy)
    task = parse_regression(top, is_agent=True) if takes_tables(top) else _builder(top)
    output = _output(top, folder)
    top.finish()
    return AgentSpec(
        name=name,
        secret_key=secret_key,
        listen=listen,
        run=run,
        diameter=diameter,
        deadline=deadline,
        meet=meet,
        neighbours=neighbours,
        secure_sums=secure_sums,
        revoked=tuple(revoked),
        task=task,
        output=output,
        folder=folder,
    )


def _neighbour(table: Any) -> NeighbourSpec:
    section = Section("neighbour", table)
    name, address = section.take("name", str), section.optional("address", str)
    public_key = section.take("public_key", str, f"{name}.public")
    section.finish()
    return NeighbourSpec(name, address, public_key)


def _builder(top: Section) -> BuilderSpec:
    rule, remedy = "an agent needs [problem], or [data] and [model]", "gradslide agent --init writes an example"
    require(top.peek("problem") is not None, rule, "neither", top.remedy_without("problem", remedy))
    section = Section("problem", top.take("problem", dict))
    builder, mu = section.take("builder", str), section.take("mu", float, 0.0)
    features = section.optional("features", list)
    section.finish()
    method, stop = parse_method(top), top.optional("stop", dict)
    return BuilderSpec(builder, mu, None if features is None else feature_names(features), method, stop)


def feature_names(features: Iterable[Any]) -> tuple[str, ...]:
    """The names of columns as a tuple, if they are different texts."""
    names = tuple(features)
    rule, remedy = "features must be the names of the columns, in their order", 'for example ["age", "smoker"]'
    require(bool(names), rule, "none", remedy)
    require(all(isinstance(name, str) for name in names), rule, names, remedy)
    twice = [name for name, count in Counter(names).items() if count > 1]
    require(not twice, rule, f"{', '.join(twice)} twice", remedy)
    return names


def _output(top: Section, folder: Path) -> OutputSpec:
    """As in other specs, but there is nothing to plot, and a checkpoint unless none is wanted."""
    section = Section("output", top.take("output", dict, {}))
    where = folder / section.take("dir", str, "results")
    checkpoint, seconds = section.take("checkpoint", bool, True), section.take("checkpoint_seconds", float, 60.0)
    section.finish()
    require_number("checkpoint_seconds", seconds, "0 writes after every outer iteration", least=0)
    return OutputSpec(where, plot=False, checkpoint=checkpoint, checkpoint_seconds=seconds)
