"""From the tables of a spec to a problem, networks, a method and a stop."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradslide import data as datasets
from gradslide._support.errors import InputError, require
from gradslide._support.types import Array
from gradslide.engine.stopping import TARGETS, Relative, Stop
from gradslide.experiments.catalogue import (
    COMPRESSORS,
    CONDITIONS,
    DOMAINS,
    LOSSES,
    METHODS,
    ORACLES,
    PENALTIES,
    TOPOLOGIES,
)
from gradslide.experiments.rows import read_rows
from gradslide.experiments.section import Section
from gradslide.experiments.spec import Spec
from gradslide.graphs.graph import Graph
from gradslide.methods.base import AnyMethod
from gradslide.network import Local, Network
from gradslide.problems.problem import Problem

# Topologies whose parameters say how many agents there are.
_SIZED_BY_SHAPE = ("grid", "torus", "hypercube")


def build_problem(spec: Spec, data_dir: Path | None, agents: Sequence[int] | None = None) -> Problem:
    """The loss on the data, split over its agents, and the domain; agents: those that live here,
    all by default.
    """
    return problem_from(Section("data", spec.data), Section("problem", spec.problem), spec.folder, data_dir, agents)


def agents_of(spec: Spec) -> int:
    """How many agents there are."""
    m = Section("data", spec.data).take("agents", int)
    require(m >= 1, "agents in [data] must be one or more", f"{m} agents", "each of them has rows of its own")
    return m


def problem_from(
    data: Section, table: Section, folder: Path, data_dir: Path | None, agents: Sequence[int] | None = None
) -> Problem:
    """The same from two tables; folder: where files are looked for."""
    rows = read_rows(data, folder, data_dir, agents)
    targets = {name: labels[rows.here] for name, labels in targets_of(table.peek("loss"), rows.labels).items()}
    return problem_on(table, rows.features, targets, rows.splits)


def problem_on(table: Section, features: Array, targets: Mapping[str, Array], splits: Sequence[Array]) -> Problem:
    """What [problem] says, on these rows. targets: labels or numbers, under the name that the loss
    has for them.
    """
    mu = table.take("mu", float, 0.0)
    penalty = table.optional("penalty", dict)
    domain_arguments: dict[str, Any] = {}
    if penalty is not None:
        domain_arguments["penalty"] = Section("problem.penalty", penalty).construct("penalty", PENALTIES, key="kind")
    domain = table.section("domain", {"set": "free"}).construct("set", DOMAINS, key="set", **domain_arguments)
    given = {"features": features, "splits": splits, "agents": None, "sample_weight": None, "allow_overlap": False}
    return Problem(table.construct("loss", LOSSES, key="loss", **given, **targets), domain, mu)


def build_graph(section: Section, m: int, folder: Path, data_dir: Path | None = None) -> Graph:
    """A generator by name, or an edge list file beside the spec or in the data directory; m comes
    from the data.
    """
    file = section.optional("file", str)
    if file is not None:
        section.finish()
        graph = Graph.load(found_file(file, folder, data_dir) or folder / file)
    else:
        graph = _generated(section, m)
    require(
        graph.m == m,
        "network and data must have the same number of agents",
        f"{graph.m} and {m}",
        "change the one or the other",
    )
    return graph


def found_file(file: str, folder: Path, data_dir: Path | None) -> Path | None:
    """A file beside the spec, or in the data directory; None where there is none."""
    places = (folder / file, datasets.data_directory(data_dir) / file)
    return next((place for place in places if place.is_file()), None)


def conditions_over(graph: Graph, tables: list[Any], **given: Any) -> Network:
    """The network under these conditions. given: what those take that have such a parameter, a seed
    for example.
    """
    network: Network = Local(graph)
    order = {kind: place for place, kind in enumerate(CONDITIONS)}
    sections = [Section("condition", table) for table in tables]
    # `construct` refuses unknown kinds.
    for section in sorted(sections, key=lambda section: -order.get(str(section.peek("kind")), 0)):
        takes = parameters_of(section.peek("kind"), CONDITIONS)
        arguments = {name: value for name, value in given.items() if name in takes and section.peek(name) is None}
        if "compressor" in takes:
            inner = section.section("compressor")
            arguments["compressor"] = inner.construct("compressor", COMPRESSORS, key="kind")
        network = section.construct("condition", CONDITIONS, key="kind", network=network, **arguments)
    return network


def describe_topology(topology: str, m: int, options: list[str]) -> Graph:
    """A network from the words of a command line: a topology with name=value options, or an edge
    list file.
    """
    is_file = topology not in TOPOLOGIES and ("." in topology or Path(topology).exists())
    if is_file:
        require(not options, "an edge list file takes no --set", ", ".join(options), "leave it out")
        return Graph.load(topology)
    table: dict[str, Any] = {"topology": topology}
    for option in options:
        name, separator, value = option.partition("=")
        if not separator:
            raise InputError("a --set option must be name=value", repr(option), "for example --set max_degree=9")
        table[name] = _number(name, value)
    return _generated(Section("network", table), m)


def _generated(section: Section, m: int) -> Graph:
    """The topology that a section names, with m agents unless its shape says how many."""
    size = {} if section.peek("topology") in _SIZED_BY_SHAPE else {"m": m}
    return section.construct("topology", TOPOLOGIES, key="topology", **size)


@dataclass(frozen=True)
class Theory:
    """What a theorem asks for, from a reference optimum: R of Theorem 1 for a coupling, and |x_0 -
    x*|.
    """

    R: Callable[[str], float]
    distance: Callable[[], float]


def build_method(spec: Spec, theory: Theory) -> AnyMethod:
    """The method; R = "theory" and distance = "theory" take them from a reference optimum."""
    return method_from(Section("method", spec.method), theory)


def parameters_of(name: Any, makers: Mapping[str, Callable[..., Any]] = METHODS) -> set[str]:
    """The names of the parameters of what has that name; none where there is no such thing."""
    known = isinstance(name, str) and name in makers
    return set(inspect.signature(makers[name]).parameters) if known else set()


def method_from(table: Section, theory: Theory, **given: Any) -> AnyMethod:
    """The same from a table, with what is given besides."""
    name = table.peek("name")
    takes = parameters_of(name)
    if _is_word(table, "R"):
        R = theory.R(table.peek("coupling") or "incidence")
        # Theorem 2 has |x_0 - x*| where Theorem 1 has sqrt(V).
        given["R"] = R / math.sqrt(2) if name == "spds" else R
    if "distance" in takes and _is_word(table, "distance"):
        given["distance"] = theory.distance()
    if "oracle" in takes and (sampling := table.take_any("oracle")) is not None:
        words = {"kind": sampling} if isinstance(sampling, str) else sampling
        given["oracle"] = Section("method.oracle", words).construct("way of sampling", ORACLES, key="kind")
    if "compressor" in takes and (compressor := table.take_any("compressor")) is not None:
        section = Section("method.compressor", compressor)
        given["compressor"] = section.construct("compressor", COMPRESSORS, key="kind")
    built: AnyMethod = table.construct("method", METHODS, **given)
    return built


def _is_word(table: Section, name: str) -> bool:
    """Whether a number is left to theory."""
    if not isinstance(table.peek(name), str):
        return False
    if (word := table.take(name, str)) != "theory":
        raise InputError(
            f'{name} in [method] must be a number or "theory"', repr(word), "or leave it out for an estimate"
        )
    return True


def build_stop(spec: Spec, optimum: Callable[[], float]) -> Stop | None:
    return stop_from(spec.stop, spec.method, optimum)


def stop_from(stop: dict[str, Any] | None, method: dict[str, Any], optimum: Callable[[], float]) -> Stop | None:
    """Targets are numbers, or {relative = 1e-3}; a relative objective is relative to the reference
    optimum unless `to` is given. None for a method that knows when to end."""
    if stop is None:
        kind = METHODS.get(method.get("name", ""))
        if kind is not None and (kind.fixes_iterations or kind.stops_itself):
            return None
        raise InputError("a spec needs a table 'stop'", "none", "add [stop] with iterations = 1000")
    table = Section("stop", stop)
    targets: dict[str, Any] = {}
    for name in TARGETS:
        value = table.take_any(name)
        if isinstance(value, dict):
            inner = Section(f"stop.{name}", value)
            relative, to = inner.take("relative", float), inner.optional("to", float)
            inner.finish()
            value = Relative(relative, optimum() if name == "objective" and to is None else to)
        elif value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InputError(
                f"{name} in [stop] must be a number or {{relative = ...}}", repr(value), "correct the spec"
            )
        targets[name] = value
    limits = {name: table.optional(name, int) for name in ("iterations", "gradients", "samples", "rounds")}
    seconds = table.optional("seconds", float)
    table.finish()
    return Stop(**targets, **limits, seconds=seconds)


def needs_reference(spec: Spec) -> bool:
    """Whether the spec speaks of the optimum without giving it."""
    objective = (spec.stop or {}).get("objective")
    return "theory" in (spec.method.get("R"), spec.method.get("distance")) or (
        isinstance(objective, dict) and "to" not in objective
    )


def targets_of(loss: Any, labels: Array) -> dict[str, Array]:
    """The labels under the name, and in the form, that the loss takes them."""
    if loss in ("least_squares", "huber"):
        return {"targets": labels}
    if loss == "poisson":
        return {"counts": labels}
    if loss == "softmax":
        return {"labels": np.unique(labels, return_inverse=True)[1]}
    return {"labels": labels}


def _number(name: str, text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{name} must be a number", repr(text), f"for example --set {name}=4") from None
