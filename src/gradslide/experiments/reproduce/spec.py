"""What a table is reproduced from: published figures, networks, and what is tried beside them, in a packaged file."""

import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from gradslide.experiments.reproduce.instance import network_of
from gradslide.graphs.graph import Graph


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


# A network's name and a target loss.
Row = tuple[str, float]
# What the paper's own line of a row is called.
PAPER = "paper"


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
