"""From the spec of an agent to the objects of its run: keys, neighbours, problem, method, stop."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol

from gradslide._support.errors import InputError, require
from gradslide._support.hashing import digest
from gradslide._version import __version__
from gradslide.data.tables import read_table
from gradslide.engine.solve import solve
from gradslide.engine.stopping import Stop
from gradslide.experiments import build
from gradslide.experiments.agent.builder import built
from gradslide.experiments.agent.spec import AgentSpec, BuilderSpec, NeighbourSpec
from gradslide.experiments.regression import RegressionSpec
from gradslide.experiments.section import Section
from gradslide.fitting.fit import fit_site
from gradslide.methods.base import AnyMethod
from gradslide.network.peers.errors import Explain
from gradslide.network.peers.keys import KeyPair, read_public, read_secret
from gradslide.network.peers.neighbour import Neighbour, require_neighbours
from gradslide.network.peers.network import Peers
from gradslide.problems.problem import Problem
from gradslide.regression.declaration import Regression
from gradslide.regression.design import read_rows, read_test_rows
from gradslide.regression.families import FAMILIES
from gradslide.regression.schema import read_schema
from gradslide.results.solution import Solution

_NO_FEATURES = (
    "no names of features were stated: a site with its columns in another order would spoil the answer unnoticed; "
    "state them, alike for all agents, with features = [...] under [problem], or as the third result of the builder"
)
_UNCHECKED_FEATURES = (
    "the names of features in the file were not checked against the data: a site with its columns in another order "
    "would spoil the answer unnoticed; let the builder return them as its third result, as it finds them in the data"
)


def require_unrevoked(spec: AgentSpec, keys: Iterable[str]) -> None:
    """Refuse a network in which an agent has a key that was revoked."""
    found = sorted(set(keys) & set(spec.revoked))
    rule = "no agent may have a key that was revoked"
    require(not found, rule, ", ".join(found), "that agent needs a new key, which its neighbours list")


@dataclass(frozen=True)
class Place:
    """Who an agent is, where it listens, and who its neighbours are."""

    own: KeyPair
    listen: str | None
    neighbours: list[Neighbour]

    def check(self) -> None:
        """Refuse neighbours that cannot be told apart, or reached."""
        require_neighbours(self.own, self.listen, self.neighbours)

    @property
    def keys(self) -> list[str]:
        """Of this agent and its neighbours."""
        return [self.own.public, *(each.public_key for each in self.neighbours)]

    def told_of_failures(self) -> list[list[Neighbour]]:
        """Who is told of a failure together; of neighbours with one key, or one name, each by itself."""
        keys, names = (Counter(getattr(each, of) for each in self.neighbours) for of in ("public_key", "name"))
        others = [each for each in self.neighbours if each.public_key != self.own.public]
        single = [each for each in others if keys[each.public_key] == names[each.name] == 1]
        groups = [single, *([each] for each in others if each not in single)]
        return [group for group in groups if group]


def build_place(spec: AgentSpec) -> Place:
    """Read the keys."""
    return Place(read_secret(spec.secret_key), spec.listen, [_neighbour(spec, each) for each in spec.neighbours])


class Agent(Protocol):
    """What an agent solves with the others."""

    @property
    def settings(self) -> dict[str, str]:
        """What all agents must have alike, for neighbours to compare."""
        ...

    @property
    def explain(self) -> dict[str, Explain]:
        """For settings whose differences need words: from a neighbour's value to sentences."""
        ...

    @property
    def has_targets(self) -> bool:
        """Whether the run is to reach any."""
        ...

    @property
    def described(self) -> str:
        """The problem in words."""
        ...

    @property
    def schema_hash(self) -> str:
        """Of the columns of the table; empty without one."""
        ...

    def solve(self, network: Peers, **options: Any) -> Solution:
        """Solve it. options: as for `gs.solve`."""
        ...


def build_agent(spec: AgentSpec) -> Agent:
    """Build what the agent solves. The data are read last."""
    if isinstance(spec.task, RegressionSpec):
        return RegressionAgent(spec, spec.task)
    return BuilderAgent(spec, spec.task)


class BuilderAgent:
    """A problem whose loss a function of the user builds, and the rules of the run."""

    def __init__(self, spec: AgentSpec, task: BuilderSpec) -> None:
        self._method, self._stop = build_rules(task.method, task.stop)
        made = built(task.builder, spec.folder)
        self._problem = Problem(made.loss, made.domain, task.mu)
        features = _common_features(task.features, made.features)
        if features is not None:
            _require_columns(features, self._problem.d)
        self.settings = {**_settings(self._problem, self._method, self._stop), **_feature_settings(features)}
        self.explain: dict[str, Explain] = {}
        self.described, self.schema_hash = repr(self._problem), ""
        self.has_targets = self._stop is not None and self._stop.has_targets
        self._warning = "" if made.features is not None else _NO_FEATURES if features is None else _UNCHECKED_FEATURES

    def solve(self, network: Peers, **options: Any) -> Solution:
        """Solve the problem; names of features that were not checked are a warning."""
        solution = solve(self._problem, network, self._method, stop=self._stop, **options)
        return replace(solution, warnings=(*solution.warnings, self._warning)) if self._warning else solution


class RegressionAgent:
    """A regression over the tables of all sites, of which this agent reads its own."""

    has_targets = True

    def __init__(self, spec: AgentSpec, task: RegressionSpec) -> None:
        rule = 'with secure_sums, covariance must be "model" or "rows"'
        got = '"site": sums of products of few sites give away the parts of each'
        require(not (spec.secure_sums and task.regression.covariance == "site"), rule, got, "change one of them")
        self._name, self._run, self._regression = spec.name, spec.run, task.regression
        table = read_table(task.table, spec.folder)
        self._schema = read_schema(task.regression, table)
        self._rows = read_rows(task.regression, self._schema, table)
        self._tests = None
        if task.test is not None:
            self._tests = [read_test_rows(task.regression, self._schema, read_table(task.test, spec.folder))]
        self.settings = {
            "gradslide": _release(),
            "data": "a table",
            **shared_settings(task.regression),
            "test rows": "none" if task.test is None else "given",
            "columns": self._schema.told(),
        }
        self.explain: dict[str, Explain] = {"columns": self._schema.differences}
        self.schema_hash = self._schema.hash
        count = len(self._schema.columns)
        title = FAMILIES[task.regression.family].title
        self.described = f"{title} over tables, {count} column{'s' * (count > 1)}"

    def solve(self, network: Peers, **options: Any) -> Solution:
        """Fit the regression."""
        given = {"tests": self._tests, "run": self._run, "labels": [self._name], "keys": network.public_keys, **options}
        return fit_site(self._regression, self._schema, [self._rows], network, **given)


def shared_settings(regression: Regression) -> dict[str, str]:
    """What all sites must have alike besides the columns, one by one."""
    names = (
        "family",
        "intercept",
        "ridge",
        "lasso",
        "standardize",
        "covariance",
        "confidence",
        "missing",
        "minimum_rows",
        "for_release",
    )
    factors = [f"{name}={factor!r}" for name, factor in sorted(regression.penalty_factors.items())]
    return {name: str(getattr(regression, name)) for name in names} | {"penalty factors": _hash(factors)}


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
    return digest(json.dumps(list(names)).encode(), size=8)


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
        "gradslide": _release(),
        "data": "a builder",
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


def _release() -> str:
    """The part of the version that all agents must have alike."""
    return ".".join(__version__.split(".")[:2])
