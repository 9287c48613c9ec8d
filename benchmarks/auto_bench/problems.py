"""The problems and networks of the benchmark, and the optimum of each problem."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

import gradslide as gs
from gradslide._support import storage

AGENTS = 100
FROM_FILE = ("G1", "G2", "G3")
MADE = {"ring": gs.Graph.ring, "star": gs.Graph.star}
NETWORKS = (*FROM_FILE, *MADE)
# About half of the unconstrained |x*|_1 = 124.6, so that the constraint is active.
L1_RADIUS = 62.0
# Required relative error of an optimum, where it can be proved.
PRECISION = 1e-9


@dataclass(frozen=True)
class Case:
    """A problem over agents, and the same problem with one agent, over the intersection of all sets."""

    problem: gs.Problem
    whole: gs.Problem

    def total(self, x: np.ndarray) -> float:
        """Return the sum of all f_i at one point (d,)."""
        return float(self.whole.objective(x[None])[0])

    def project(self, x: np.ndarray) -> np.ndarray:
        """Return the projection of x onto the intersection of all sets, (d,)."""
        return self.whole.domain.project(x[None])[0]


@dataclass(frozen=True)
class Optimum:
    """f*, |x*|, and a proved bound on the relative error of f*, or None."""

    objective: float
    size: float
    error: float | None


def _logistic(
    name: str,
    rows: int | None = None,
    *,
    split: str = "contiguous",
    mu: float = 0.0,
    domain: gs.domains.Domain | None = None,
    common: gs.domains.Domain | None = None,
) -> Callable[[Path | None], Case]:
    """Return a builder. common: the intersection of all sets with the sum of all penalties, if not `domain`."""

    def build(data_dir: Path | None) -> Case:
        data = gs.data.load(name, data_dir)
        features, labels = data.features[:rows], data.labels[:rows]
        splits = gs.data.split(split, labels, AGENTS)
        whole = gs.Problem(gs.losses.Logistic(features, labels, agents=1), common or domain, AGENTS * mu)
        return Case(gs.Problem(gs.losses.Logistic(features, labels, splits=splits), domain, mu), whole)

    return build


def _ijcnn1(**options: object) -> Callable[[Path | None], Case]:
    return _logistic("ijcnn1", 20_000, **options)


def _boxes() -> tuple[gs.domains.Box, gs.domains.Box]:
    """-c_i <= x <= c_i with c_i between 5 and 15 for each agent and coordinate, and their intersection."""
    c = np.random.default_rng(0).uniform(5.0, 15.0, size=(AGENTS, 22))
    least = c.min(axis=0)
    return gs.domains.Box(lo=-c, hi=c), gs.domains.Box(lo=-least, hi=least)


def _ridge(data_dir: Path | None) -> Case:
    """Least squares with columns of very different scale; mu makes the condition number of the sum of all f_i 1e4."""
    condition, rows, d = 1e4, 20 * AGENTS, 50
    rng = np.random.default_rng(0)
    features = rng.normal(size=(rows, d)) * np.geomspace(1.0, 1e-3, d)
    targets = features @ (rng.normal(size=d) / np.geomspace(1.0, 1e-2, d)) + 0.1 * rng.normal(size=rows)
    eigenvalues = np.linalg.eigvalsh(features.T @ features)
    mu = float(eigenvalues[-1] - condition * eigenvalues[0]) / (condition - 1) / AGENTS
    problem = gs.Problem(gs.losses.LeastSquares(features, targets, agents=AGENTS), mu=mu)
    return Case(problem, gs.Problem(gs.losses.LeastSquares(features, targets, agents=1), mu=AGENTS * mu))


UNCONSTRAINED: dict[str, Callable[[Path | None], Case]] = {
    "ijcnn1": _ijcnn1(),
    "ijcnn1 sorted": _ijcnn1(split="sorted"),
    "ijcnn1 mu=0.02": _ijcnn1(mu=0.02),
    "a9a mu=0.05": _logistic("a9a", mu=0.05),
    "mushrooms mu=0.05": _logistic("mushrooms", mu=0.05),
}
_OWN, _SHARED = _boxes()
CONSTRAINED: dict[str, Callable[[Path | None], Case]] = {
    "l2 ball": _ijcnn1(domain=gs.domains.L2Ball(10.0)),
    "l1 ball": _ijcnn1(domain=gs.domains.L1Ball(L1_RADIUS)),
    "l1 penalty": _ijcnn1(
        domain=gs.domains.Free(penalty=gs.L1(1.0)), common=gs.domains.Free(penalty=gs.L1(1.0 * AGENTS))
    ),
    "box per agent": _ijcnn1(domain=_OWN, common=_SHARED),
}
RIDGE = "ridge 1e4"
PROBLEMS = {**UNCONSTRAINED, **CONSTRAINED, RIDGE: _ridge}
# Problems that do not run on all networks.
ON = {"ijcnn1 mu=0.02": ("G1",), RIDGE: ("G1",), **dict.fromkeys(CONSTRAINED, FROM_FILE)}


def cells(problems: list[str] | None = None, networks: list[str] | None = None) -> list[tuple[str, str]]:
    """Return the pairs of problem and network, restricted to the given names."""
    return [
        (problem, network)
        for problem in problems or PROBLEMS
        for network in networks or NETWORKS
        if network in ON.get(problem, NETWORKS)
    ]


def dimension(name: str) -> int:
    """Return the number of columns."""
    return {"a9a": 123, "mushrooms": 112, "ridge": 50}.get(name.split()[0], 22)


@cache
def case(name: str, data_dir: Path | None) -> Case:
    return PROBLEMS[name](data_dir)


@cache
def graph(name: str, data_dir: Path | None) -> gs.Graph:
    if name in MADE:
        return MADE[name](AGENTS)
    path = network_file(name, data_dir)
    return gs.Graph.from_edges(AGENTS, np.loadtxt(path, dtype=int))


def network_file(name: str, data_dir: Path | None) -> Path:
    return gs.data.data_directory(data_dir) / "networks" / f"{name}.edges"


def optimum(name: str, data_dir: Path | None, out: Path) -> Optimum:
    """Return the optimum of a problem, cached on disk."""
    path = out / "optima" / f"{name}.json"
    if path.exists():
        return Optimum(**json.loads(path.read_text(encoding="utf-8")))
    whole = case(name, data_dir).whole
    found = gs.reference.reference(whole, tolerance=1e-12, iterations=100_000)
    error = _proved_error(whole, found.x)
    best = Optimum(found.objective, float(np.linalg.norm(found.x)), error)
    if error is not None and error > PRECISION:
        print(f"{name}: the optimum is known only to {error:.1e}")
    storage.write_atomically(path, json.dumps(vars(best)).encode())
    return best


def _proved_error(whole: gs.Problem, x: np.ndarray) -> float | None:
    """(f(x) - lower bound)/|f(x)|: convexity bounds the loss from below by its tangent at x."""
    value, slope = whole.loss.value_and_gradient(x[None])
    lower = value[0] - float(slope[0] @ x) + float(whole.domain.linear_minimum(slope, whole.mu)[0])
    objective = float(whole.objective(x[None])[0])
    return None if np.isinf(lower) else float(objective - lower) / abs(objective)
