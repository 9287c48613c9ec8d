"""The paper's experiments as data: its problem, its networks and its published figures."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from gradslide import data as datasets
from gradslide.data.splits import split
from gradslide.domains import L2Ball
from gradslide.experiments.parallel.cache import digest_of
from gradslide.graphs.graph import Graph
from gradslide.losses import Logistic
from gradslide.problems.problem import Problem
from gradslide.theory.reference import Reference, reference

ROWS = 20_000
# Of ijcnn1, in the file's order: what the paper's target losses are measured against where the data is another.
_START, _OPTIMUM = 138.62943611198907, 38.29323064


# A network's name and a target loss.
Row = tuple[str, float]
# What the paper's own line of a row is called.
PAPER = "paper"


@dataclass(frozen=True)
class Data:
    """A set of rows. digest: of its file; empty for the built-in one. data_dir: where files are."""

    name: str
    digest: str
    data_dir: Path | None

    @property
    def is_papers(self) -> bool:
        return self.name == "ijcnn1"

    @property
    def label(self) -> str:
        if self.is_papers:
            return f"ijcnn1, its first {ROWS:,} rows"
        return f"misfire, {ROWS:,} built-in rows: ijcnn1 was not found, so no figure is comparable with the paper's"


def found_data(data_dir: Path | None, say: Callable[[str], None]) -> Data:
    """ijcnn1 if it is available; else the built-in data, with a message."""
    path = datasets.find("ijcnn1", data_dir)
    if path is not None:
        return Data("ijcnn1", digest_of(path), data_dir)
    say(
        f"ijcnn1 is not in {datasets.data_directory(data_dir)}: built-in data takes its place "
        "(`gradslide data get ijcnn1` fetches it)"
    )
    return Data("misfire", "", data_dir)


@lru_cache(maxsize=4)
def problem_of(
    data: Data, agents: int, split_by: str = "contiguous", radius: float | None = None, mu: float = 0.0
) -> Problem:
    """Logistic regression, the sum over rows. split_by: "contiguous", the file's order, or
    "shuffled" (seed 0).
    """
    found = datasets.load(data.name, data.data_dir, progress=False)
    features = found.features[:ROWS]
    features = features if isinstance(features, np.ndarray) else features.toarray()
    labels = found.labels[:ROWS]
    loss = Logistic(features, labels, splits=split(split_by, labels, agents, seed=0))
    return Problem(loss, None if radius is None else L2Ball(radius), mu=mu)


@lru_cache(maxsize=4)
def optimum_of(
    data: Data, agents: int, split_by: str = "contiguous", radius: float | None = None, mu: float = 0.0
) -> Reference:
    return reference(problem_of(data, agents, split_by, radius, mu))


def loss_level(data: Data, agents: int, target: float) -> float:
    """A target loss of the paper's tables, (1/m) sum_i f_i; of other data the one that is as far
    from its optimum, relative to the start."""
    if data.is_papers:
        return target
    problem, optimum = problem_of(data, agents), optimum_of(data, agents).objective / agents
    start = float(np.sum(problem.objective(problem.start()))) / agents
    return optimum + (target - _OPTIMUM) / (_START - _OPTIMUM) * (start - optimum)


def levels_text(data: Data, levels: Mapping[float, float]) -> str:
    """Target losses, and what replaces them where the data is not the paper's."""
    if data.is_papers:
        return ", ".join(f"{target:g}" for target in levels)
    return ", ".join(f"{level:.4g} in the place of {target:g}" for target, level in levels.items())


@lru_cache(maxsize=32)
def network_of(max_degree: int, edges: int, seed: int, agents: int = 100) -> Graph:
    """A random connected network with exactly this maximum degree."""
    return Graph.random(agents, max_degree=max_degree, edges=edges, seed=seed)


def packaged(name: str) -> dict[str, Any]:
    """The TOML file of that name beside this module."""
    return tomllib.loads(resources.files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def grid(given: float | dict[str, float]) -> list[float]:
    """One number, or a geometric grid."""
    if isinstance(given, dict):
        return [float(value) for value in np.geomspace(given["from"], given["to"], int(given["count"]))]
    return [float(given)]


@dataclass(frozen=True)
class Net:
    """A kind of network of the paper, and the seed that draws one of it."""

    name: str
    max_degree: int
    edges: int
    seed: int
    agents: int = 100

    @property
    def graph(self) -> Graph:
        return network_of(self.max_degree, self.edges, self.seed, self.agents)

    def norm(self, coupling: str) -> float:
        """||A||."""
        return float(self.graph.laplacian_norm ** (1.0 if coupling == "laplacian" else 0.5))

    @property
    def label(self) -> str:
        return f"{self.name}, seed {self.seed}"


def networks(spec: dict[str, Any]) -> list[Net]:
    """Every kind with every seed."""
    return [Net(**table, seed=seed, agents=spec["agents"]) for table in spec["network"] for seed in spec["seeds"]]


def said(row: Row) -> str:
    return f"{row[0]}, {row[1]:g}"


@dataclass(frozen=True)
class Published:
    """A row of the paper's table. work: gradients or samples."""

    method: str
    network: str
    target: float
    residual: float
    rounds: int
    work: int


def published(spec: dict[str, Any], method: str) -> dict[Row, Published]:
    """The paper's rows of a method, by network and target."""
    rows: dict[Row, Published] = {}
    for table in spec["published"]:
        named = {key: value for key, value in table.items() if key not in ("gradients", "samples")}
        row = Published(**named, work=table.get("gradients", table.get("samples")))
        if row.method == method:
            rows[row.network, row.target] = row
    return rows
