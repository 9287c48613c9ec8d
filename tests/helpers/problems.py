"""Random small problems, seeded, of every kind that the theorems cover."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

import gradslide as gs
from gradslide.theory.reference import Reference, reference


class WithoutScores(gs.losses.Logistic):
    """Its values are its own, so that it has no scores."""

    def value(self, x):
        return super().value(x)

    @classmethod
    def of(cls, loss):
        return cls(loss._blocks.features, loss._targets, agents=loss.m)


@dataclass(frozen=True)
class Case:
    """A problem on a network, and what the theorems ask of it, computed when it is needed."""

    problem: gs.Problem
    graph: gs.Graph
    coupling: str
    label: str

    @cached_property
    def reference(self) -> Reference:
        return reference(self.problem)

    @cached_property
    def x0(self) -> np.ndarray:
        return self.problem.start()

    @cached_property
    def V(self) -> float:
        # May be taken too large in the theorem; where x0 is nearly optimal, R would be absurd otherwise.
        return max(self.reference.V(self.problem, self.x0), 1e-2)

    @cached_property
    def z_star(self) -> float:
        return self.reference.multiplier(self.problem, self.graph, self.coupling)

    @property
    def A_norm(self) -> float:
        lmax = self.graph.laplacian_norm
        return lmax if self.coupling == "laplacian" else lmax**0.5

    @property
    def L(self) -> float:
        return float(np.max(self.problem.smoothness()))

    @property
    def R(self) -> float:
        return gs.guarantees.theory_R(V=self.V, z_star=self.z_star)


def logistic(rng: np.random.Generator, m: int, d: int) -> gs.losses.Loss:
    features = rng.normal(size=(8 * m, d))
    return gs.losses.Logistic(features, rng.choice([-1, 1], size=8 * m), agents=m)


def least_squares(rng: np.random.Generator, m: int, d: int) -> gs.losses.Loss:
    return gs.losses.LeastSquares(rng.normal(size=(3 * m, d)), rng.normal(size=3 * m), agents=m)


def quadratic(rng: np.random.Generator, m: int, d: int) -> gs.losses.Loss:
    roots = rng.normal(size=(m, d, d))
    return gs.losses.Quadratic(roots @ roots.swapaxes(1, 2), rng.normal(size=(m, d)))


def huber(rng: np.random.Generator, m: int, d: int) -> gs.losses.Loss:
    return gs.losses.Huber(rng.normal(size=(4 * m, d)), 2 * rng.normal(size=4 * m), delta=0.5, agents=m)


def smoothed_hinge(rng: np.random.Generator, m: int, d: int) -> gs.losses.Loss:
    labels = rng.choice([-1, 1], size=8 * m)
    return gs.losses.SmoothedHinge(rng.normal(size=(8 * m, d)), labels, gamma=0.5, agents=m)


def softmax(rng: np.random.Generator, m: int, d: int) -> gs.losses.Loss:
    features = rng.normal(size=(8 * m, 2))
    return gs.losses.Softmax(features, rng.integers(3, size=8 * m), classes=3, agents=m)


LOSSES = [logistic, least_squares, quadratic, huber, smoothed_hinge, softmax]
DOMAINS: dict[str, Callable[[int], gs.domains.Domain]] = {
    "free": lambda d: gs.domains.Free(),
    "box": lambda d: gs.domains.Box(-0.3, 0.2),
    "nonnegative": lambda d: gs.domains.NonNegative(),
    "l2 ball": lambda d: gs.domains.L2Ball(0.4),
    "l1 ball": lambda d: gs.domains.L1Ball(0.5),
    "simplex": lambda d: gs.domains.Simplex(),
    "entropy": lambda d: gs.domains.EntropySimplex(),
    "halfspace": lambda d: gs.domains.Halfspace(np.ones(d), -0.2),
    "affine": lambda d: gs.domains.Affine(np.ones((1, d)), np.array([0.7])),
    "l1 penalty": lambda d: gs.domains.Free(penalty=gs.L1(0.3)),
    "elastic net in a ball": lambda d: gs.domains.L2Ball(0.6, penalty=gs.ElasticNet(0.2, 0.1)),
    "centred": lambda d: gs.domains.Free(center=0.5),
}
GRAPHS = [
    lambda rng: gs.Graph.ring(int(rng.integers(3, 9))),
    lambda rng: gs.Graph.path(int(rng.integers(2, 8))),
    lambda rng: gs.Graph.star(int(rng.integers(3, 9))),
    lambda rng: gs.Graph.complete(int(rng.integers(2, 8))),
    lambda rng: gs.Graph.random(10, 4, seed=int(rng.integers(1000))),
    lambda rng: gs.Graph.grid(2, 4),
]


@cache
def random_case(seed: int, mu: float = 0.0) -> Case:
    """Case number `seed`: losses, domains, graphs and couplings in turn, so that all are met."""
    rng = np.random.default_rng(seed)
    make_loss = LOSSES[seed % len(LOSSES)]
    label = list(DOMAINS)[(seed // len(LOSSES) + seed) % len(DOMAINS)]
    graph = GRAPHS[seed % 7 % len(GRAPHS)](rng)
    coupling = ("incidence", "laplacian")[seed // 2 % 2]
    loss = make_loss(rng, graph.m, 4)
    problem = gs.Problem(loss, DOMAINS[label](loss.d), mu)
    return Case(problem, graph, coupling, f"{make_loss.__name__}, {label}, {graph!r}, {coupling}, mu={mu}")


def alike_case(seed: int) -> Case:
    """Agents with one quadratic in common: the smoothness constant of each is that of the sum, so nothing
    hides a wrong L."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(5, 5))
    graph = GRAPHS[seed % len(GRAPHS)](rng)
    loss = gs.losses.Quadratic(np.tile(root @ root.T, (graph.m, 1, 1)), np.tile(rng.normal(size=5), (graph.m, 1)))
    return Case(gs.Problem(loss), graph, ("incidence", "laplacian")[seed % 2], f"alike {seed}")
