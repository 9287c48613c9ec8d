"""A private folder for each agent of a network on loopback: its key, its spec, its rows."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import tomli_w

from gradslide._support import storage
from gradslide._support.types import Array
from gradslide.domains import Domain
from gradslide.experiments import build
from gradslide.experiments.build import problem_on
from gradslide.experiments.rows import Rows
from gradslide.experiments.section import Section
from gradslide.experiments.spec import VERSION, Spec
from gradslide.graphs.graph import Graph
from gradslide.losses import Loss
from gradslide.network.peers.keys import make_key_pair
from gradslide.network.peers.neighbour import free_addresses

FILE = "AGENT.toml"
RESULTS = "results"
_BUILDER = "gradslide.experiments.agent.local.folders:build_from_rows"
# Many processes that start on few cores take their time.
_DEADLINE = 120.0


ROWS = "rows.npz"
_KIND, _VERSION = "rows", 1


def name_of(agent: int) -> str:
    return f"agent-{agent}"


def lay_out(spec: Spec, run: str, graph: Graph, rows: Rows, place: Path) -> list[Path]:
    """Write the folders of all agents, by number, each with everything that its process receives."""
    folders = [place / name_of(agent) for agent in range(graph.m)]
    for folder in folders:
        folder.mkdir(mode=0o700, parents=True)
    keys, targets = _keys(folders, place), build.targets_of(spec.problem.get("loss"), rows.labels)
    addresses = free_addresses(graph.m)
    for agent, folder in enumerate(folders):
        neighbours = [
            {"name": name_of(other), "address": addresses[other], "public_key": keys[other]}
            for other in _neighbours(graph, agent)
        ]
        top = {
            "version": VERSION,
            "name": name_of(agent),
            "secret_key": f"{name_of(agent)}.secret",
            "listen": addresses[agent],
            "run": run,
            "diameter": graph.diameter,
            "deadline": _DEADLINE,
            "meet": _DEADLINE,
            "neighbour": neighbours,
            "problem": {"builder": _BUILDER, "mu": spec.problem.get("mu", 0.0)},
            "method": spec.method,
            **({} if spec.stop is None else {"stop": spec.stop}),
            "output": {"dir": RESULTS, "checkpoint": False},
        }
        storage.write_atomically(folder / FILE, tomli_w.dumps(top).encode())
        own = rows.splits[agent]
        write_rows(folder, rows.features[own], {name: values[own] for name, values in targets.items()}, spec.problem)
    return folders


def _keys(folders: list[Path], place: Path) -> list[str]:
    """The public keys. Agents are numbered in the order of theirs: agent i must have the i-th."""
    made = sorted((make_key_pair(folder.name, place).public, folder.name) for folder in folders)
    for folder, (_, name) in zip(folders, made, strict=True):
        for kind in ("secret", "public"):
            (place / f"{name}.{kind}").rename(folder / f"{folder.name}.{kind}")
    return [public for public, _ in made]


def _neighbours(graph: Graph, agent: int) -> list[int]:
    ends: list[Any] = graph.edges.tolist()
    return [v if u == agent else u for u, v in ends if agent in (u, v)]


def write_rows(folder: Path, features: Array, targets: Mapping[str, Array], problem: Mapping[str, Any]) -> Path:
    """targets: labels or numbers, under the name that the loss has for them. problem: the table of
    a spec.
    """
    meta = {"problem": dict(problem), "targets": list(targets), "shape": list(features.shape)}
    arrays = {f"targets.{name}": values for name, values in targets.items()}
    if sp.issparse(features):
        arrays |= {name: getattr(features, name) for name in ("data", "indices", "indptr")}
    else:
        arrays["features"] = features
    return storage.write(folder / ROWS, _KIND, _VERSION, meta, arrays)


def build_from_rows(folder: Path) -> tuple[Loss, Domain, tuple[str, ...]]:
    """The builder of an agent's spec: the loss on the rows that lie in this folder, and the domain."""
    meta, arrays = storage.read(folder / ROWS, _KIND, _VERSION)
    if "features" in arrays:
        features = arrays["features"]
    else:
        features = sp.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=tuple(meta["shape"]))
    targets = {name: arrays[f"targets.{name}"] for name in meta["targets"]}
    problem = problem_on(Section("problem", meta["problem"]), features, targets, [np.arange(features.shape[0])])
    # The rows of one table: its columns are in the same order everywhere.
    return problem.loss, problem.domain, tuple(map(str, range(features.shape[1])))
