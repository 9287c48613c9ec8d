"""A comparison as a TOML file. Version 1 of the format."""

import warnings
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from gradslide._support.errors import InputError, require, require_number, unknown_name
from gradslide.experiments.build import parameters_of
from gradslide.experiments.catalogue import METHODS
from gradslide.experiments.section import Section
from gradslide.experiments.spec import DEFAULT_METHOD, OutputSpec, parse_output, read_text, tables_of, unused, versioned
from gradslide.network.clock import PRESETS

LIMITS = ("iterations", "gradients", "samples", "rounds", "seconds")


@dataclass(frozen=True)
class Entry:
    """One of several problems, networks, conditions or methods: its name, and the rest of its
    table.
    """

    name: str
    table: dict[str, Any]


@dataclass(frozen=True)
class Contender(Entry):
    """A method. grid: multiples of its default (of the parameter that it says users would tune)."""

    grid: tuple[float, ...] = ()

    @property
    def is_random(self) -> bool:
        """Whether it has a seed, and leaves it to the comparison."""
        return "seed" not in self.table and "seed" in parameters_of(self.table.get("name"))


@dataclass(frozen=True)
class Comparison:
    """A parsed file.

    accuracies: relative errors of the objective at the mean of the agents. disagreement_factor: the
    largest disagreement that an accuracy allows, in units of the accuracy times |x*|. seeds: for
    methods and conditions that are random. clocks: by name. limits: any ends a run.
    """

    name: str
    title: str
    problems: list[Entry]
    networks: list[Entry]
    conditions: list[Entry]
    methods: list[Contender]
    accuracies: list[float]
    disagreement_factor: float
    seeds: list[int]
    clocks: dict[str, dict[str, float]]
    limits: dict[str, Any]
    processes: int | None
    output: OutputSpec
    folder: Path = field(default_factory=Path)

    def __post_init__(self) -> None:
        if self.processes is not None:
            require_number("processes", self.processes, "leave it out for one per core", least=1, whole=True)


def read_comparison(path: Path) -> Comparison:
    """Read and check a comparison file."""
    return parse_comparison(read_text(path), name=path.stem, folder=path.parent)


def example_text() -> str:
    """The built-in comparison that `gradslide compare` takes without arguments."""
    return resources.files("gradslide.experiments").joinpath("compare.toml").read_text(encoding="utf-8")


def example_comparison() -> Comparison:
    return parse_comparison(example_text(), name="compare", folder=Path())


def parse_comparison(text: str, name: str, folder: Path) -> Comparison:
    top = versioned(text)
    title = top.take("title", str, name)
    accuracies = _numbers(top, "accuracies", [1e-2, 1e-3, 1e-4])
    factor = _disagreement_factor(top)
    seeds = top.take("seeds", list, [0])
    grid = _numbers(top, "grid", [])
    processes = top.optional("processes", int)
    problems, networks = _entries(top, "problem"), _entries(top, "network")
    conditions = _entries(top, "condition", [{"name": "reliable network"}])
    methods = [_contender(entry, grid) for entry in _entries(top, "method", [DEFAULT_METHOD])]
    clocks = {entry.name: entry.table for entry in _entries(top, "clock", [])}
    limits = _limits(top.section("limits", {"gradients": 1000, "rounds": 100_000}))
    output = parse_output(top, name, checkpoints=False)
    top.finish()
    require_number("disagreement_factor", factor, "10 is the default", above=0)
    for seed in seeds:
        require_number("a seed", seed, "for example seeds = [0, 1, 2]", least=0, whole=True)
    require(bool(seeds), "seeds must hold at least one", seeds, "for example seeds = [0, 1, 2]")
    for name_of_clock, table in clocks.items():
        if not table:
            raise unknown_name("a clock without numbers of its own", name_of_clock, PRESETS)
        if table.get("preset", "lan") not in PRESETS:
            raise unknown_name("preset in [[clock]]", table["preset"], PRESETS)
    return Comparison(
        name=name,
        title=title,
        problems=problems,
        networks=networks,
        conditions=conditions,
        methods=methods,
        accuracies=sorted(accuracies, reverse=True),
        disagreement_factor=factor,
        seeds=seeds,
        clocks=clocks,
        limits=limits,
        processes=processes,
        output=output,
        folder=folder,
    )


def _disagreement_factor(top: Section) -> float:
    """The key disagreement_factor, or its old name."""
    if top.peek("apart") is not None:
        rule = "apart in a comparison is now called disagreement_factor"
        require(top.peek("disagreement_factor") is None, rule, "both", "leave out apart")
        warnings.warn(f"{rule}; the old name will be removed in 0.3", DeprecationWarning, stacklevel=4)
        return top.take("apart", float)
    return top.take("disagreement_factor", float, 10.0)


def _entries(top: Section, key: str, default: Any = None) -> list[Entry]:
    """[key] or several [[key]], each under its own name or a made one; a string stands for a table
    with that name.
    """
    found: dict[str, Entry] = {}
    for table in tables_of(top, key, default):
        section = Section(key, {"name": table} if isinstance(table, str) else table)
        rest = dict(section.rest())
        label = rest.pop("label", None) if key == "method" else None
        made = label or rest.get("name") or rest.get("topology") or rest.get("preset") or key
        if key != "method":
            rest.pop("name", None)
        require(isinstance(made, str), f"name in [[{key}]] must be a string", repr(made), "correct the spec")
        if key == "clock" and made in PRESETS:
            rest.setdefault("preset", made)
        name = unused(made, found, " ({})")
        found[name] = Entry(name, rest)
    return list(found.values())


def _contender(entry: Entry, grid: list[float]) -> Contender:
    table = dict(entry.table)
    own = table.pop("grid", grid)
    if own is False:
        own = []
    factors = tuple(_numbers(Section("method", {"grid": own}), "grid", []))
    name = Section("method", table).take("name", str)
    if "grid" in entry.table and factors and name in METHODS:
        rule = f"a method with a grid must have something to tune, which {name} has not"
        require(bool(METHODS[name].tuned), rule, f"grid = {own}", "write grid = false")
    return Contender(entry.name, table, factors)


def _numbers(section: Section, key: str, default: list[float]) -> list[float]:
    numbers = section.take(key, list, default)
    for number in numbers:
        require_number(f"each of {key}", number, f"for example {key} = [0.1, 0.01]", above=0)
    if key == "accuracies":
        require(bool(numbers), "accuracies must hold at least one", numbers, "for example accuracies = [1e-2, 1e-3]")
    return [float(number) for number in numbers]


def _limits(table: Section) -> dict[str, Any]:
    limits = {name: table.optional(name, float if name == "seconds" else int) for name in LIMITS}
    table.finish()
    given = {name: limit for name, limit in limits.items() if limit is not None}
    if not given:
        raise InputError("[limits] must hold a limit", "none", "for example gradients = 1000")
    for name, limit in given.items():
        require_number(f"{name} in [limits]", limit, "leave it out for no limit", above=0)
    return given
