"""Auto mode, untouched, on every kind of problem: each set, penalty, loss, graph and agreement, and what users get wrong."""

import numpy as np
import pytest
from messages import check_message
from problems import huber, least_squares, logistic, quadratic, smoothed_hinge, softmax
from real_data import DATA
from scipy.optimize import minimize

import gradslide as gs
from gradslide.domains import (
    Affine,
    Box,
    EntropySimplex,
    Free,
    GroupBall,
    Halfspace,
    L1Ball,
    L2Ball,
    NonNegative,
    PerAgent,
    Simplex,
)
from gradslide.network import Bursty, Compressed, Delayed, Lossy, Noisy, Sleeping, Stragglers
from gradslide.reference import reference

AGREEMENTS = ("late", "exact", "none")
ACCURACY = 1e-4
D = 4
PARTS = [[0, 1], list(range(2, D))]


def total(problem, x):
    """The sum of all f_i at one point (d,)."""
    return float(np.sum(problem.objective(np.broadcast_to(x, (problem.m, problem.d)))))


class Optimum:
    """x* and f*, and the error of answers: of the objective at their mean, and how far they are from it."""

    def __init__(self, problem, x, start):
        self.problem, self.x, self.objective = problem, x, total(problem, x)
        self.size = max(np.linalg.norm(x), np.linalg.norm(start[0] - x))
        self.height = max(abs(self.objective), total(problem, start.mean(axis=0)) - self.objective)

    def error(self, x):
        mean = x.mean(axis=0, dtype=float)
        objective = abs(total(self.problem, mean) - self.objective) / self.height
        return max(objective, float(np.max(np.linalg.norm(x - mean, axis=1))) / self.size)


def optimum(problem, common=None):
    """Of a problem whose sets have the intersection `common`, by an independent solver with all data in one place."""
    pooled = problem if common is None else gs.Problem(problem.loss, common, problem.mu)
    return Optimum(problem, reference(pooled).x, problem.start())


def optimum_by_scipy(problem, **constraints):
    """Where no set is common to all, and there is no penalty."""
    start, d = problem.start(), problem.d

    def value(x):
        return total(problem, x) / problem.m

    def slope(x):
        at = np.broadcast_to(x, (problem.m, d))
        return np.mean(problem.loss.gradient(at) + problem.mu * problem.domain.grad_nu(at), axis=0)

    x, options = np.zeros(d), {"ftol": 1e-15, "maxiter": 500}
    for _ in range(3):
        x = minimize(value, x, jac=slope, method="SLSQP", options=options, **constraints).x
    return Optimum(problem, x, start)


def check(problem, network, method, best, limit, **options):
    """The accuracy is reached within so many gradients; the solution."""

    def accurate(record, x):
        return best.error(x) <= ACCURACY

    stop = gs.Stop(gradients=limit, rounds=200_000)
    solution = gs.solve(problem, network, method, stop=stop, callback=accurate, record_every=10_000, **options)
    assert best.error(solution.x) <= ACCURACY
    assert solution.status in (gs.Status.STOPPED, gs.Status.GRADIENT_LIMIT)
    assert solution.warnings == ()
    return solution


# Every kind of set and penalty that all agents can have in common.

DOMAINS = {
    "free": Free(),
    "box": Box(-0.3, 0.2),
    "nonnegative": NonNegative(),
    "l2 ball": L2Ball(0.4),
    "l1 ball": L1Ball(0.5),
    "simplex": Simplex(),
    "entropy": EntropySimplex(),
    "halfspace": Halfspace(np.ones(D), -0.2),
    "affine": Affine(np.ones((1, D)), np.array([0.7])),
    "group ball": GroupBall(0.3, PARTS),
    "l1": Free(penalty=gs.L1(0.3)),
    "group l1": Free(penalty=gs.GroupL1(0.5, PARTS)),
    "elastic net in a ball": L2Ball(0.6, penalty=gs.ElasticNet(0.2, 0.1)),
    "l1 in a box": Box(-0.3, 0.2, penalty=gs.L1(0.3)),
    "centre": Free(center=0.5),
    "box off centre": Box(-0.3, 0.2, center=0.5),
    "entropy off centre": EntropySimplex(center=np.array([0.1, 0.2, 0.3, 0.4])),
}
DOMAINS_IN_SIX = {"group ball": GroupBall(0.3, [[0, 1, 4], [2, 3, 5]])}
# Softmax has 2 x 3 coordinates.
NEEDS_D = {"halfspace", "affine", "group ball", "group l1", "entropy off centre"}
LOSSES = [logistic, least_squares, quadratic, huber, smoothed_hinge, softmax, "values", "no values"]
GRAPHS = {
    "path": gs.Graph.path(9),
    "ring": gs.Graph.ring(8),
    "star": gs.Graph.star(9),
    "complete": gs.Graph.complete(7),
    "random": gs.Graph.random(12, 4, seed=1),
    "grid": gs.Graph.grid(3, 4),
    "weighted": gs.Graph.from_edges(8, [(i, (i + 1) % 8) for i in range(8)], np.geomspace(0.1, 10, 8)),
    "alone": gs.Graph.complete(1),
    "pair": gs.Graph.path(2),
    "hypercube": gs.Graph.hypercube(3),
}
# About three times what the slowest of them takes.
GRADIENTS = {"exact": 400, "late": 700, "none": 3000}
COMBINATIONS = [(name, agreement) for name in DOMAINS for agreement in AGREEMENTS]


def make(number, name):
    """Problem `number` with this set: losses, graphs and mu in turn; the problem, the same with values, and a graph."""
    rng = np.random.default_rng(number)
    graph_name, graph = list(GRAPHS.items())[(3 * number + number // 10) % len(GRAPHS)]
    kind = LOSSES[number % len(LOSSES)]
    if kind is softmax and name in NEEDS_D:
        kind = huber
    mu = (0.0, 0.05)[number // 2 % 2]
    loss = valued = logistic(rng, graph.m, D) if isinstance(kind, str) else kind(rng, graph.m, D)
    if isinstance(kind, str):
        value = {"value": valued.value} if kind == "values" else {}
        loss = gs.losses.Custom(gradient=valued.gradient, agents=graph.m, dimension=D, **value)
    domain = DOMAINS[name]
    return gs.Problem(loss, domain, mu), gs.Problem(valued, domain, mu), graph, (kind, graph_name, mu)


@pytest.mark.parametrize("number", range(len(COMBINATIONS)), ids=[", ".join(pair) for pair in COMBINATIONS])
def test_it_works_the_first_time(number):
    name, agreement = COMBINATIONS[number]
    problem, valued, graph, _ = make(number, name)
    solution = check(problem, graph, gs.AutoPDS(agreement=agreement), optimum(valued), GRADIENTS[agreement])
    assert np.all(problem.domain.contains(solution.x, 1e-7))


def test_the_combinations_meet_every_loss_graph_and_mu_with_every_agreement():
    met = {agreement: [] for agreement in AGREEMENTS}
    for number, (name, agreement) in enumerate(COMBINATIONS):
        met[agreement].append(make(number, name)[-1])
    for seen in met.values():
        kinds, graphs, mus = map(set, zip(*seen, strict=True))
        assert (kinds, graphs, mus) == (set(LOSSES), set(GRAPHS), {0.0, 0.05})
