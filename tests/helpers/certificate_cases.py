"""Problems for the tests of certificates, with their optima; a method that has last steps."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from problems import GRAPHS

import gradslide as gs
from gradslide.engine.stopping import has_grown
from gradslide.theory.reference import reference

RING = gs.Graph.ring(6)
ALL_DUE = [k for k in range(5, 500) if has_grown(k, 0.5)]

# Numbers that float32 holds exactly: a problem and its twin in double precision are one and the same.
LOSSES = ("least squares", "huber", "logistic", "hinge", "quadratic", "softmax")
DOMAINS = {
    "box": lambda d: gs.domains.Box(-0.25, 0.25),
    "l2 ball": lambda d: gs.domains.L2Ball(0.5),
    "ball elsewhere": lambda d: gs.domains.L2Ball(0.5, origin=2.0),
    "l1 ball": lambda d: gs.domains.L1Ball(0.5),
    "simplex": lambda d: gs.domains.Simplex(),
    "entropy": lambda d: gs.domains.EntropySimplex(),
    "elastic net": lambda d: gs.domains.Free(penalty=gs.ElasticNet(0.25, 0.5)),
    "net in a ball": lambda d: gs.domains.L2Ball(0.5, penalty=gs.ElasticNet(0.25, 0.125)),
    "l1 in a box": lambda d: gs.domains.Box(-0.5, 0.25, penalty=gs.L1(0.25)),
    "free": lambda d: gs.domains.Free(),
    "nonnegative": lambda d: gs.domains.NonNegative(),
    "halfspace": lambda d: gs.domains.Halfspace(np.eye(d)[0], -0.25),
    "affine": lambda d: gs.domains.Affine(np.eye(d)[:1], np.array([0.75])),
    "centred": lambda d: gs.domains.Free(center=0.5),
    "l1 penalty": lambda d: gs.domains.Free(penalty=gs.L1(0.25)),
}
UNBOUNDED = list(DOMAINS)[9:]


def make_loss(kind: str, rng: np.random.Generator, m: int, dtype=np.float64) -> gs.losses.Loss:
    n, d = 6 * m, 3
    size = rng.choice([0.5, 1.0, 4.0])
    features = (size * rng.normal(size=(n, d))).astype(np.float32).astype(dtype)
    targets = (2 * rng.normal(size=n)).astype(np.float32).astype(dtype)
    labels = rng.choice([-1, 1], size=n)
    if kind == "least squares":
        return gs.losses.LeastSquares(features, targets, agents=m)
    if kind == "huber":
        return gs.losses.Huber(features, 4 * targets, delta=0.25, agents=m)
    if kind == "logistic":
        return gs.losses.Logistic(features, labels, agents=m)
    if kind == "hinge":
        return gs.losses.SmoothedHinge(features, labels, gamma=0.125, agents=m)
    if kind == "softmax":
        return gs.losses.Softmax(features[:, :2], rng.integers(3, size=n), classes=3, agents=m)
    roots = np.round(8 * rng.normal(size=(m, d, d))) / 8
    slopes = rng.normal(size=(m, d)).astype(np.float32)
    return gs.losses.Quadratic((roots @ roots.swapaxes(1, 2)).astype(dtype), slopes.astype(dtype))


@dataclass(frozen=True)
class Case:
    problem: gs.Problem
    graph: gs.Graph
    optimum: float
    label: str


@cache
def make_case(seed: int, dtype=np.float64) -> Case:
    """Losses, domains and graphs in turn, so that all are met; mu > 0 where X is unbounded, and now and then."""
    kind = LOSSES[seed % len(LOSSES)]
    label = list(DOMAINS)[(seed // len(LOSSES) + seed) % len(DOMAINS)]
    graph = GRAPHS[seed % 7 % len(GRAPHS)](np.random.default_rng(seed))
    mu = (0.25, 2.0**-6, 2.0)[seed % 3] if label in UNBOUNDED or seed % 4 == 0 else 0.0
    twin, problem = (
        gs.Problem(loss, DOMAINS[label](loss.d), mu)
        for loss in (make_loss(kind, np.random.default_rng(seed), graph.m, each) for each in (np.float64, dtype))
    )
    found = reference(twin, tolerance=1e-10)
    name = f"{kind}, {label}, mu={mu}, {graph!r}, {np.dtype(dtype)}"
    return Case(problem, graph, found.objective, name)


def small_problem(mu: float = 0.0, domain: gs.domains.Domain | None = None, m: int = 6) -> gs.Problem:
    domain = gs.domains.L2Ball(0.5) if domain is None else domain
    return gs.Problem(make_loss("logistic", np.random.default_rng(5), m), domain, mu)


FREE = small_problem(domain=gs.domains.Free(), mu=0.0)
METHOD = gs.PDS(L=8.0, R=1.0, norm=2.0)


def spent(costs: gs.Costs) -> dict:
    return {name: count for name, count in costs.to_dict().items() if name != "seconds"}


@dataclass(frozen=True)
class MixState:
    x: np.ndarray
    finished: bool = False

    def copy(self):
        return self


@dataclass(frozen=True)
class Mixer:
    """Gossip, whose last step is to agree on the mean; it must only be taken once."""

    def init(self, context):
        return MixState(np.arange(float(context.x0.size)).reshape(context.x0.shape))

    def step(self, context, state):
        assert not state.finished
        return MixState(context.network.combine(state.x, np.eye(6) - 0.2 * RING.laplacian.toarray()))

    def output(self, state):
        return state.x

    def finish(self, context, state, factor):
        assert not state.finished
        mean = context.network.agree(state.x, "sum") / context.network.m
        return MixState(np.broadcast_to(mean, state.x.shape).copy(), finished=True)
