"""Auto mode with nothing tuned: every set, penalty, loss, graph and agreement; hard problems, mistakes, bad links."""

import numpy as np
import pytest
from auto_twins import AGREEMENTS
from error_messages import check_message
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
from gradslide.theory.reference import reference

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
        self.size = max(np.linalg.norm(x), np.linalg.norm(start[0] - x)) or 1.0
        self.height = max(abs(self.objective), total(problem, start.mean(axis=0)) - self.objective) or 1.0

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
# Softmax has 2 x 3 coordinates, which these do not fit.
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
GRADIENTS = {"exact": 450, "late": 1000, "none": 1500}
COMBINATIONS = [(name, agreement) for name in DOMAINS for agreement in AGREEMENTS]


def make(number):
    """Combination `number`, losses, graphs and mu in turn: the problem, the same with values, a graph, and its kind."""
    rng = np.random.default_rng(number)
    name, (i, j) = COMBINATIONS[number][0], divmod(number, len(AGREEMENTS))
    graph_name, graph = list(GRAPHS.items())[(i + 4 * j) % len(GRAPHS)]
    kind, mu = LOSSES[(i + 3 * j) % len(LOSSES)], (0.0, 0.05)[(i // 2 + j) % 2]
    if kind is softmax and name in NEEDS_D:
        kind = huber
    loss = valued = logistic(rng, graph.m, D) if isinstance(kind, str) else kind(rng, graph.m, D)
    if isinstance(kind, str):
        value = {"value": valued.value} if kind == "values" else {}
        loss = gs.losses.Custom(gradient=valued.gradient, agents=graph.m, dimension=D, **value)
    problems = (gs.Problem(each, DOMAINS[name], mu) for each in (loss, valued))
    return *problems, graph, (kind, graph_name, mu)


@pytest.mark.covering
@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize("name", DOMAINS)
def test_it_works_the_first_time(name, agreement):
    problem, valued, graph, _ = make(COMBINATIONS.index((name, agreement)))
    solution = check(problem, graph, gs.AutoPDS(agreement=agreement), optimum(valued), GRADIENTS[agreement])
    assert np.all(problem.domain.contains(solution.x, 1e-7))


def test_the_combinations_meet_every_loss_graph_and_mu_with_every_agreement():
    met = {agreement: [] for agreement in AGREEMENTS}
    for number, (_, agreement) in enumerate(COMBINATIONS):
        met[agreement].append(make(number)[-1])
    for seen in met.values():
        kinds, graphs, mus = map(set, zip(*seen, strict=True))
        assert (kinds, graphs, mus) == (set(LOSSES), set(GRAPHS), {0.0, 0.05})


# Sets, penalties and centres of the agents' own.

M = 9
BOUNDS = np.random.default_rng(5).uniform(0.1, 0.5, size=(M, D))
WEIGHTS = np.random.default_rng(6).random((M, D))
CENTRES = np.random.default_rng(7).normal(size=(M, D))
BALL = {"type": "ineq", "fun": lambda x: 0.35**2 - x @ x, "jac": lambda x: -2 * x}
HALF = {"type": "ineq", "fun": lambda x: -0.2 - x.sum(), "jac": lambda x: -np.ones_like(x)}
FIXED = {"type": "eq", "fun": lambda x: x[:1] - 0.05, "jac": lambda x: np.eye(len(x))[:1]}


def in_turn(*domains):
    return PerAgent([domains[i % len(domains)] for i in range(M)])


# Each: the domain, and the intersection of all, or what scipy is to be told of it.
OWN = {
    "boxes one by one": (PerAgent([Box(-0.3 - 0.1 * i, 0.2 + 0.05 * (i % 4)) for i in range(M)]), Box(-0.3, 0.2)),
    "stacked boxes": (Box(lo=-BOUNDS, hi=BOUNDS), Box(-BOUNDS.min(axis=0), BOUNDS.min(axis=0))),
    "radii": (L2Ball(np.linspace(0.3, 1.0, M)), L2Ball(0.3)),
    "one point in common": (in_turn(Box(0.1, 1.0), Box(-1.0, 0.1)), Box(0.1, 0.1)),
    "weights of l1": (Free(penalty=gs.L1(WEIGHTS)), Free(penalty=gs.L1(WEIGHTS.mean(axis=0)))),
    "kinds": (
        in_turn(Box(-0.3, 0.2), L2Ball(0.35), Free(), NonNegative()),
        {"bounds": [(0.0, 0.2)] * D, "constraints": [BALL]},
    ),
    "flat kinds": (
        in_turn(Halfspace(np.ones(D), -0.2), L2Ball(0.35), Free(), Affine(np.eye(D)[:1], np.array([0.05]))),
        {"constraints": [BALL, HALF, FIXED]},
    ),
    "centres": (Free(center=CENTRES), {}),
    "centres of a box": (Box(-0.3, 0.2, center=CENTRES), {"bounds": [(-0.3, 0.2)] * D}),
}
OWN_GRADIENTS = {"exact": 350, "late": 700, "none": 2500}
OWN_GRAPHS = [gs.Graph.path(M), gs.Graph.star(M), gs.Graph.ring(M), gs.Graph.grid(3, 3)]


@pytest.mark.covering
@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize("name", OWN)
def test_agents_with_domains_of_their_own(name, agreement):
    number = list(OWN).index(name)
    domain, common = OWN[name]
    mu = 0.3 if "centres" in name else (0.0, 0.05)[number % 2]
    make_loss = (logistic, least_squares, quadratic)[(number + AGREEMENTS.index(agreement)) % 3]
    problem = gs.Problem(make_loss(np.random.default_rng(number), M, D), domain, mu)
    best = optimum_by_scipy(problem, **common) if isinstance(common, dict) else optimum(problem, common)
    graph = OWN_GRAPHS[number % len(OWN_GRAPHS)]
    solution = check(problem, graph, gs.AutoPDS(agreement=agreement), best, OWN_GRADIENTS[agreement])
    assert np.all(problem.domain.contains(solution.x, 1e-9))


def corners():
    """Agents that each sit in a corner of a box of their own for long, and the optimum."""
    lo = -0.3 + 0.2 * np.random.default_rng(5).random((M, D))
    problem = gs.Problem(logistic(np.random.default_rng(7), M, D), Box(lo, lo + 0.5))
    return problem, optimum(problem, Box(lo.max(axis=0), lo.min(axis=0) + 0.5))


@pytest.mark.first(2)
@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_own_sets_where_only_consensus_is_missing_do_not_stall(agreement):
    """With an R that stays 1 the multipliers creep up for 1,000 iterations."""
    problem, best = corners()
    limit = {"exact": 500, "late": 600, "none": 4000}[agreement]
    check(problem, gs.Graph.path(M), gs.AutoPDS(agreement=agreement), best, limit)


@pytest.mark.parametrize("agreement", ["late", "exact"])
def test_rounding_is_no_curvature(agreement):
    """Long after the end, where nothing but rounding is left, L stays what it was and no sum is off."""
    problem, best = corners()
    method, stop = gs.AutoPDS(agreement=agreement), gs.Stop(iterations=700)
    solution = gs.solve(problem, gs.Graph.path(M), method, stop=stop, record_every=100)
    assert solution.parameters["L"] <= 2 * np.max(problem.smoothness())
    assert best.error(solution.x) <= 1e-7
    assert solution.warnings == ()


# What is hard.

RING = gs.Graph.ring(8)


@pytest.mark.covering
@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize("make_loss", [logistic, least_squares])
@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_data_of_any_scale(scale, make_loss, agreement):
    """Features times 1e4 make x* 1e-4 times as long, and L 1e8 times as large."""

    class Scaled:
        """A generator whose first draw, the features, is scaled."""

        def __init__(self, seed):
            self._rng, self._scale = np.random.default_rng(seed), scale

        def normal(self, size):
            factor, self._scale = self._scale, 1.0
            return factor * self._rng.normal(size=size)

        def choice(self, *arguments, **options):
            return self._rng.choice(*arguments, **options)

    problem = gs.Problem(make_loss(Scaled(3), 8, D), L2Ball(0.2 / scale))
    limit = {"exact": 250, "late": 350, "none": 1200}[agreement]
    check(problem, RING, gs.AutoPDS(agreement=agreement), optimum(problem), limit)


@pytest.mark.covering
@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize("domain", [Free(), L2Ball(np.linspace(0.3, 1.0, 8)), EntropySimplex()], ids=repr)
def test_agents_with_very_different_data(domain, agreement):
    """One agent has features 30 times as large, and one has none at all."""
    rng = np.random.default_rng(4)
    features, labels = rng.normal(size=(64, D)), rng.choice([-1, 1], size=64)
    features[:8] *= 30.0
    features[8:16] = 0.0
    problem = gs.Problem(gs.losses.Logistic(features, labels, agents=8), domain)
    best = optimum(problem, L2Ball(0.3) if isinstance(domain, L2Ball) else None)
    limit = {"exact": 400, "late": 900, "none": 6000}[agreement]
    check(problem, RING, gs.AutoPDS(agreement=agreement), best, limit)


@pytest.mark.covering
@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize("domain", [Free(), L2Ball(np.linspace(0.3, 1.0, 8)), EntropySimplex()], ids=repr)
def test_no_data_at_all(domain, agreement):
    """Every point is optimal: nothing moves, and nothing is divided by."""
    problem = gs.Problem(gs.losses.Logistic(np.zeros((8, D)), np.ones(8), agents=8), domain)
    solution = gs.solve(problem, RING, gs.AutoPDS(agreement=agreement), stop=gs.Stop(iterations=20))
    np.testing.assert_allclose(solution.x, problem.start(), atol=1e-12)


@pytest.mark.covering
@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize("domain", [L2Ball(0.3), L2Ball(np.linspace(0.3, 1.0, 8)), EntropySimplex()], ids=repr)
def test_a_linear_loss(domain, agreement):
    """There is no curvature to take L from."""
    problem = gs.Problem(gs.losses.Linear(np.random.default_rng(1).normal(size=(8, D))), domain)
    c = problem.loss.gradient(problem.start()).sum(axis=0)
    x = -0.3 * c / np.linalg.norm(c) if domain.norm == 2 else np.eye(D)[np.argmin(c)]
    limit = {"exact": 400, "late": 400, "none": 800}[agreement]
    check(problem, RING, gs.AutoPDS(agreement=agreement), Optimum(problem, x, problem.start()), limit)


@pytest.mark.covering
@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize(("make_loss", "mu"), [(least_squares, 0.0), (logistic, 0.1)])
def test_a_start_far_away(make_loss, mu, agreement):
    """The accuracy is that of a start nearby."""
    problem = gs.Problem(make_loss(np.random.default_rng(0), 8, D), mu=mu)
    limit = {"exact": 300, "late": 500, "none": 1500}[agreement]
    check(problem, RING, gs.AutoPDS(agreement=agreement), optimum(problem), limit, x0=np.full(D, 1e3))


@pytest.mark.parametrize("name", ["free", "l2 ball", "entropy"])
def test_float32(name):
    rng = np.random.default_rng(3)
    features, labels = rng.normal(size=(64, D)), rng.choice([-1, 1], size=64)
    best = optimum(gs.Problem(gs.losses.Logistic(features, labels, agents=8), DOMAINS[name]))
    problem = gs.Problem(gs.losses.Logistic(features.astype(np.float32), labels, agents=8), DOMAINS[name])
    solution = check(problem, RING, gs.AutoPDS(), best, 500)
    assert solution.x.dtype == np.float32


def test_two_thousand_agents():
    problem = gs.Problem(logistic(np.random.default_rng(0), 2000, 3), L2Ball(0.3))
    graph = gs.Graph.random(2000, 4, seed=0)
    solution = gs.solve(problem, graph, gs.AutoPDS(), stop=gs.Stop(iterations=60), record_every=60)
    best = optimum(problem)
    assert abs(total(problem, solution.mean) - best.objective) <= 1e-6 * best.objective
    assert solution.history[-1].disagreement <= 2e-2 * best.size


# Ends by itself, with nothing given.


@pytest.mark.covering
@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize("name", ["free", "l2 ball", "l1", "entropy", "stacked boxes", "kinds"])
def test_it_knows_when_to_end(name, agreement):
    if name in OWN:
        domain, common = OWN[name]
        problem = gs.Problem(logistic(np.random.default_rng(9), M, D), domain)
        best = optimum_by_scipy(problem, **common) if isinstance(common, dict) else optimum(problem, common)
    else:
        problem = gs.Problem(logistic(np.random.default_rng(9), M, D), DOMAINS[name])
        best = optimum(problem)
    solution = gs.solve(problem, gs.Graph.grid(3, 3), gs.AutoPDS(agreement=agreement), record_every=100)
    assert solution.status is (gs.Status.STATIONARY if name in OWN else gs.Status.CONVERGED)
    assert abs(total(problem, solution.mean) - best.objective) <= 2e-4 * best.objective
    assert np.max(np.linalg.norm(solution.x - solution.mean, axis=1)) <= 1.1e-2 * np.linalg.norm(solution.mean)
    if solution.certificate is not None:
        assert solution.certificate.lower <= best.objective * (1 + 1e-9)


# Parameters that are given.

GIVEN = gs.Problem(logistic(np.random.default_rng(2), 8, D), L2Ball(0.4))


@pytest.mark.parametrize("inner", ["shared", "own", "sliding"])
def test_any_inner_loop_that_fits_may_be_forced(inner):
    solution = check(GIVEN, RING, gs.AutoPDS(inner=inner), optimum(GIVEN), 600)
    assert ("R" in solution.parameters) == (inner != "shared")


@pytest.mark.parametrize("inner", ["own", "sliding"])
def test_the_euclidean_simplex_may_be_solved_by_every_inner_loop(inner):
    problem = gs.Problem(GIVEN.loss, Simplex())
    check(problem, RING, gs.AutoPDS(inner=inner), optimum(problem), 600)


def test_what_is_given_is_kept():
    L = float(np.max(GIVEN.smoothness()))
    method = gs.AutoPDS(L=L, K=4, spectrum=(float(RING.algebraic_connectivity), float(RING.laplacian_norm)))
    solution = check(GIVEN, RING, method, optimum(GIVEN), 300)
    assert (solution.parameters["L"], solution.parameters["K"]) == (L, 4)
    assert solution.costs.rounds >= 4 * (solution.costs.gradients - 1)
    entropy = gs.Problem(GIVEN.loss, EntropySimplex())
    solution = check(entropy, RING, gs.AutoPDS(R=1.5), optimum(entropy), 300)
    assert solution.parameters["R"] == 1.5


@pytest.mark.parametrize("mu", [0.0, 0.05])
def test_prox_sliding_spends_fewer_gradients_where_they_are_expensive(mu):
    problem = gs.Problem(logistic(np.random.default_rng(2), 8, D), EntropySimplex(), mu)
    best = optimum(problem)
    methods = [gs.AutoPDS(balance=balance, agreement="exact", first_L=1.0) for balance in (1.0, 100.0)]
    cheap, expensive = (check(problem, RING, method, best, 400) for method in methods)
    assert expensive.costs.gradients < cheap.costs.gradients / 2


@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_a_strongly_convex_entropy_does_not_slide_for_ever(agreement):
    """T_k grows geometrically where mu > 0: without a limit on it "none" takes 100,000 rounds."""
    problem = gs.Problem(huber(np.random.default_rng(46), 9, D), EntropySimplex(), 0.1)
    method, stop = gs.AutoPDS(agreement=agreement), gs.Stop(iterations=100, rounds=100_000)
    solution = gs.solve(problem, gs.Graph.star(9), method, stop=stop, record_every=100)
    assert solution.status is gs.Status.ITERATION_LIMIT
    assert solution.costs.rounds < (25_000 if agreement == "none" else 5_000)


# Mistakes.

MISTAKES = {
    "balance": (0, -1, "x", None, float("nan"), float("inf"), [1]),
    "agreement": ("lat", None, 3),
    "inner": ("share", 3),
    "L": (0, -1, "a", float("nan"), float("inf")),
    "first_L": (0, -1, "a", float("inf")),
    "K": (0, 1.5, -1, "a", float("nan")),
    "R": (0, -1, "a", float("inf")),
    "spectrum": ((0, 1), (2, 1), (1,), (1, 2, 3), 3, "ab", (float("nan"), 1), (1, float("inf")), ("a", "b"), (-1, 2)),
    "restarts": (0, 1, 1.0, "yes", None),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in MISTAKES.items() for value in values])
def test_each_wrong_parameter_is_one_clear_error(name, value):
    check_message(lambda: gs.AutoPDS(**{name: value}), [name])


def unlike(inner):
    return gs.solve(gs.Problem(GIVEN.loss, L2Ball(np.linspace(0.3, 1, 8))), RING, gs.AutoPDS(inner=inner))


def entropic(inner):
    return gs.solve(gs.Problem(GIVEN.loss, EntropySimplex()), RING, gs.AutoPDS(inner=inner))


SADDLE = gs.Saddle(
    gs.losses.Quadratic(np.eye(3), np.ones(3)), np.ones((2, 3)), domain=L2Ball(1.0), dual_domain=L2Ball(1.0)
)
EQUATIONS = gs.LinearlyConstrained(gs.losses.Quadratic(np.eye(3), np.ones(3)), np.ones((1, 3)), [1.0])
NO_GRADIENT = gs.losses.Custom(sample_gradient=lambda x, batch, streams: x, agents=8, dimension=D)
REFUSED = {
    "L and first_L": (lambda: gs.AutoPDS(L=1.0, first_L=2.0), ["L", "first_L", "both"]),
    "shared, where sets differ": (
        lambda: unlike("shared"),
        ['inner="shared"', "same X and penalty", "leave inner out"],
    ),
    "shared, with entropy": (lambda: entropic("shared"), ['inner="shared"', "Euclidean", "EntropySimplex"]),
    "own, with entropy": (lambda: entropic("own"), ['inner="own"', "Euclidean", "EntropySimplex"]),
    "exchanges of a saddle point": (lambda: gs.solve(SADDLE, method=gs.AutoPDS(K=3)), ["balance, L and R", "K"]),
    "a spectrum of equations": (
        lambda: gs.solve(EQUATIONS, method=gs.AutoPDS(spectrum=(1.0, 2.0))),
        ["balance, L and R", "spectrum"],
    ),
    "samples only": (lambda: gs.solve(gs.Problem(NO_GRADIENT), RING, gs.AutoPDS()), ["gradient"]),
    "a limit on samples": (
        lambda: gs.solve(GIVEN, RING, gs.AutoPDS(), stop=gs.Stop(samples=5)),
        ["AutoPDS", "samples"],
    ),
    "a spectrum of another graph": (
        lambda: gs.solve(GIVEN, gs.Graph.complete(8), gs.AutoPDS(spectrum=(0.1, 4.0))),
        ["spectrum[1]", "degree of 7"],
    ),
    "a class for a method": (lambda: gs.solve(GIVEN, RING, gs.AutoPDS), ["method", "brackets"]),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_what_cannot_work_is_refused(mistake):
    check_message(*REFUSED[mistake])


def test_there_is_no_way_to_ask_for_sampled_gradients():
    with pytest.raises(TypeError, match="oracle"):
        gs.AutoPDS(oracle=gs.oracles.WithReplacement())


# Networks with troubles.

KINDS = {"free": Free(), "ball": L2Ball(0.4), "radii": L2Ball(np.linspace(0.3, 1.0, 8)), "entropy": EntropySimplex()}
HARMLESS = {
    "lossy": lambda: Lossy(RING, 0.1),
    "bursty": lambda: Bursty(RING),
    "sleeping": lambda: Sleeping(RING, 0.1),
    "delayed": lambda: Delayed(RING, 0.0),
}
HARMFUL = {
    "one way": lambda: Lossy(RING, 0.1, direction="each"),
    "noisy": lambda: Noisy(RING, 1e-3),
    "stragglers": lambda: Stragglers(RING),
}


def troubled(network, kind, agreement):
    problem = gs.Problem(GIVEN.loss, KINDS[kind])
    stop = gs.Stop(iterations=100, rounds=20_000)
    return problem, gs.solve(problem, network, gs.AutoPDS(agreement=agreement), stop=stop, record_every=50)


@pytest.mark.covering
@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trouble", HARMLESS)
def test_links_that_fail_both_ways_do_no_harm(trouble, kind, agreement):
    problem, solution = troubled(HARMLESS[trouble](), kind, agreement)
    assert solution.warnings == ()
    best = optimum(problem, L2Ball(0.3) if kind == "radii" else None)
    assert abs(total(problem, solution.mean) - best.objective) <= (1e-2 if agreement == "none" else 1e-4) * best.height


@pytest.mark.covering
@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trouble", HARMFUL)
def test_what_breaks_the_sums_is_said(trouble, kind, agreement):
    with pytest.warns(RuntimeWarning, match="invariant of AutoPDS is broken"):
        _, solution = troubled(HARMFUL[trouble](), kind, agreement)
    assert np.all(np.isfinite(solution.x))


@pytest.mark.parametrize("kind", KINDS)
def test_compressed_messages_keep_the_sums(kind):
    _, solution = troubled(Compressed(RING, gs.compressors.TopK(k=2)), kind, "late")
    assert solution.warnings == ()
    assert np.all(np.isfinite(solution.x))


# Real data.


@pytest.mark.first(2)
@pytest.mark.skipif(gs.data.find("mushrooms", DATA) is None, reason=f"mushrooms is not in {DATA}")
@pytest.mark.parametrize(
    ("domain", "common"),
    [
        (Simplex(5.0), None),
        (EntropySimplex(), None),
        (L1Ball(10.0), None),
        (L2Ball(np.linspace(3, 9, 20)), L2Ball(3.0)),
    ],
    ids=["simplex", "entropy", "l1 ball", "radii"],
)
def test_mushrooms(domain, common):
    data = gs.data.load("mushrooms", DATA)
    problem = gs.Problem(gs.losses.Logistic(data.features[:4000].toarray(), data.labels[:4000], agents=20), domain)
    best = optimum(problem, common)
    check(problem, gs.Graph.random(20, 4, seed=0), gs.AutoPDS(), best, 600)
