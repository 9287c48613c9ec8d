"""From the spec of an agent to the objects of its run: keys, neighbours, problem, method, stop."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from gradslide._support.errors import InputError, require
from gradslide._version import __version__
from gradslide.engine.stopping import Stop
from gradslide.experiments import build
from gradslide.experiments.agent.builder import built
from gradslide.experiments.agent.spec import AgentSpec, NeighbourSpec
from gradslide.experiments.section import Section
from gradslide.methods.base import AnyMethod
from gradslide.network.peers.keys import KeyPair, read_public, read_secret
from gradslide.network.peers.neighbour import Neighbour, require_neighbours
from gradslide.problems.problem import Problem

_NO_FEATURES = (
    "no names of features were stated: a site with its columns in another order would spoil the answer unnoticed; "
    "state them, alike for all agents, with features = [...] under [problem], or as the third result of the builder"
)
_UNCHECKED_FEATURES = (
    "the names of features in the file were not checked against the data: a site with its columns in another order "
    "would spoil the answer unnoticed; let the builder return them as its third result, as it finds them in the data"
)


@dataclass(frozen=True)
class Place:
    """Who an agent is, and who its neighbours are."""

    own: KeyPair
    neighbours: list[Neighbour]


def build_place(spec: AgentSpec) -> Place:
    """Read the keys."""
    own = read_secret(spec.secret_key)
    neighbours = [_neighbour(spec, each) for each in spec.neighbours]
    require_neighbours(own, spec.listen, neighbours)
    return Place(own, neighbours)


@dataclass(frozen=True)
class Agent:
    """settings: what all agents must have alike, for neighbours to compare. features: the names of
    the columns, if they are stated. feature_warning: what is wrong with them, if anything is.
    """

    problem: Problem
    method: AnyMethod
    stop: Stop | None
    settings: dict[str, str]
    features: tuple[str, ...] | None
    feature_warning: str


def build_agent(spec: AgentSpec) -> Agent:
    """Build the problem and the rules of the run. The data are read last."""
    method, stop = build_rules(spec.method, spec.stop)
    made = built(spec.builder, spec.folder)
    problem = Problem(made.loss, made.domain, spec.mu)
    features = _common_features(spec.features, made.features)
    if features is not None:
        _require_columns(features, problem.d)
    settings = {**_settings(problem, method, stop), **_feature_settings(features)}
    warning = "" if made.features is not None else _NO_FEATURES if features is None else _UNCHECKED_FEATURES
    return Agent(problem, method, stop, settings, features, warning)


def _common_features(said: tuple[str, ...] | None, found: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The names of the columns that the spec states, or the builder; both must agree."""
    if said is not None and found is not None and said != found:
        place = next(i for i in range(max(len(said), len(found))) if said[i : i + 1] != found[i : i + 1])
        got = f"{found[place : place + 1]} where the spec has {said[place : place + 1]}, as number {place}"
        rule = "the builder's features must be those of the spec, in the same order"
        raise InputError(rule, got, "put the columns in the order of the spec")
    return said if said is not None else found


def _require_columns(features: tuple[str, ...], d: int) -> None:
    """Refuse names that cannot be those of all columns. Losses of several classes have d = classes x columns."""
    rule = f"features must name every column: their number must be d = {d}, or divide it for several classes"
    require(d % len(features) == 0, rule, f"{len(features)} names", "name all columns, a constant one too")


def _feature_settings(features: tuple[str, ...] | None) -> dict[str, str]:
    """Names and order apart, so that neighbours can say what differs. Only hashes leave this machine."""
    if features is None:
        return {"features": "not stated"}
    return {"features": _hash(sorted(features)), "order of features": _hash(features)}


def _hash(names: Iterable[str]) -> str:
    return hashlib.blake2b(json.dumps(list(names)).encode(), digest_size=8).hexdigest()


def build_rules(method: dict[str, Any], stop: dict[str, Any] | None) -> tuple[AnyMethod, Stop | None]:
    """Method and stop as in other specs, without what requires the data of all agents."""
    theory = build.Theory(R=lambda coupling: _unknown_to_agents("R"), distance=lambda: _unknown_to_agents("distance"))
    made = build.method_from(Section("method", method), theory)
    for name in ("objective", "residual"):
        rule = f"[stop] of agents in processes of their own takes no {name}: no agent sees all of the others"
        require(name not in (stop or {}), rule, f"one in {stop}", "use gap or kkt, which the agents agree on")
    return made, build.stop_from(stop, method, lambda: _unknown_to_agents("objective"))


def _unknown_to_agents(name: str) -> NoReturn:
    raise InputError(
        f'{name} of agents in processes of their own must be a number: no agent sees what "theory" takes',
        '"theory"',
        "leave it out for an estimate",
    )


def _neighbour(spec: AgentSpec, said: NeighbourSpec) -> Neighbour:
    """With its key, which is given as text or as a file beside the spec."""
    beside = spec.folder / said.public_key
    return Neighbour(said.name, said.address, read_public(beside if beside.is_file() else said.public_key))


def _settings(problem: Problem, method: AnyMethod, stop: Stop | None) -> dict[str, str]:
    """One by one, so that neighbours can say which of them differs."""
    told = {
        "gradslide": ".".join(__version__.split(".")[:2]),
        "d": str(problem.d),
        "dtype": str(problem.dtype),
        "mu": repr(problem.mu),
        "method": type(method).__name__,
        "stop": "the method's own" if stop is None else "given",
    }
    told |= {f"method.{name}": repr(value) for name, value in vars(method).items()}
    if stop is not None:
        told |= {f"stop.{name}": repr(getattr(stop, name)) for name in stop.given}
    return told
