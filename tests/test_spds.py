"""SPDS: Algorithm 3 and Theorem 2. Its iterates, its bounds in expectation, what it counts, what it finds by itself and
what it refuses."""

import dataclasses
import itertools
import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from agents import agent_view, check_iterates, edge_form, iterates, theorem_2_rows
from problems import least_squares, logistic, make_case
from scipy import stats

import gradslide as gs
from gradslide import guarantees, schedules
from gradslide.errors import InputError
from gradslide.oracles import Noise, Sampler, WithoutReplacement, WithReplacement

COUPLINGS = ["incidence", "laplacian"]
GRAPHS = {
    "ring": gs.Graph.ring(5),
    "star": gs.Graph.star(5),
    "complete": gs.Graph.complete(5),
    "random": gs.Graph.random(5, 3, seed=1),
}


def norm_of(graph, coupling):
    return graph.laplacian_norm ** (1.0 if coupling == "laplacian" else 0.5)


def batches(solution):
    """The batch sizes c_k of a run's parameters, and its T_k."""
    given = {name: value for name, value in solution.parameters.items() if name != "sigma"}
    schedule = schedules.theorem_2(**given)
    rows = [schedule.row(k) for k in range(1, schedule.N + 1)]
    return [row.c for row in rows], [row.T for row in rows]


def small_problem(mu=0.0, m=5):
    return gs.Problem(logistic(np.random.default_rng(3), m, 3), gs.domains.L2Ball(1.0), mu)


# ---- iterates

SETS = {
    "free": lambda: gs.domains.Free(),
    "ball": lambda: gs.domains.L2Ball(0.5),
    "box with l1 penalty": lambda: gs.domains.Box(-0.4, 0.3, penalty=gs.L1(0.2)),
    "centred": lambda: gs.domains.Free(center=0.5, penalty=gs.ElasticNet(0.2, 0.1)),
    "simplex": lambda: gs.domains.Simplex(),
    "one each": lambda: gs.domains.PerAgent(
        [
            gs.domains.L2Ball(0.4),
            gs.domains.Box(-0.3, 0.2),
            gs.domains.Free(penalty=gs.L1(0.3)),
            gs.domains.NonNegative(),
            gs.domains.L2Ball(0.7),
            gs.domains.Simplex(),
        ]
    ),
}
# tau = 3.46 is rounded up to 3.5 and Delta is 8: mu > 0 goes past it.
L, R, C, N = 3.0, 1.0, 2.0, 13


def setting(mu, kind):
    graph = gs.Graph.random(6, 3, seed=2)
    return gs.Problem(logistic(np.random.default_rng(0), graph.m, 4), SETS[kind](), mu), graph


def pds_with(schedule, coupling):
    """PDS that walks along a given schedule."""

    class Given(gs.PDS):
        def init(self, context):
            return dataclasses.replace(super().init(context), schedule=schedule)

    return Given(L=schedule.L, R=schedule.R, coupling=coupling)


@pytest.mark.parametrize("mu", [0.0, 1.0])
@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("kind", SETS)
def test_without_noise_it_is_pds_with_the_same_schedule(kind, coupling, mu):
    problem, graph = setting(mu, kind)
    schedule = schedules.theorem_2(N=N, L=L, mu=mu, A_norm=norm_of(graph, coupling), R=R, c=C)
    assert mu == 0 or schedule.Delta < N
    sampled = iterates(problem, graph, gs.SPDS(N=N, L=L, R=R, c=C, coupling=coupling, oracle=Noise(0.0)))
    exact = iterates(problem, graph, pds_with(schedule, coupling), gs.Stop(iterations=N))
    for one, other in zip(sampled, exact, strict=True):
        for name in ("x", "x_prev", "x_before", "x_hat", "x_under", "x_bar", "y"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        np.testing.assert_array_equal(np.stack(one.dual), np.stack(other.dual))
        np.testing.assert_array_equal(np.stack(one.dual_bar), np.stack(other.dual_bar))


@dataclass(frozen=True)
class Recorded:
    """A way of sampling that keeps what is asked for, and every gradient."""

    inner: object
    seen: list = dataclasses.field(default_factory=list, repr=False)

    def open(self, loss, agents, seed):
        recorder = _Recorder()
        recorder.inner, recorder.seen = self.inner.open(loss, agents, seed), self.seen
        return recorder


class _Recorder(Sampler):
    def draw(self, start, count):
        return start, count, self.inner.draw(start, count)

    def gradient(self, x, samples):
        start, count, drawn = samples
        v = self.inner.gradient(x, drawn)
        self.seen.append(SimpleNamespace(start=start, count=count, x=x.copy(), v=v.copy()))
        return v


@pytest.mark.parametrize("mu", [0.0, 1.0])
@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("kind", ["ball", "box with l1 penalty", "one each"])
def test_algorithm_3_as_printed(kind, coupling, mu):
    problem, graph = setting(mu, kind)
    oracle = Recorded(WithReplacement())
    states = iterates(problem, graph, gs.SPDS(N=N, L=L, R=R, c=C, coupling=coupling, oracle=oracle, seed=4))
    rows = theorem_2_rows(N=N, L=L, mu=mu, A_norm=norm_of(graph, coupling), R=R, c=C)
    naive = agent_view if coupling == "laplacian" else edge_form
    views = naive(problem, graph, rows, [asked.v for asked in oracle.seen])
    B = graph.incidence.toarray()
    for view, state, asked in zip(views, states, oracle.seen, strict=True):
        check_iterates(state, view, rtol=1e-9)
        z = state.dual.s if coupling == "laplacian" else B.T @ state.dual.s
        np.testing.assert_allclose(z, view.z, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(asked.x, view.x_under, rtol=1e-9, atol=1e-12)
        assert np.linalg.norm(asked.v - problem.loss.gradient(view.x_under)) > 1e-3


def test_no_sample_is_used_twice():
    problem, graph = setting(0.0, "ball")
    for given in ({"R": R, "c": C}, {"c": C}):
        oracle = Recorded(WithReplacement())
        solution = gs.solve(problem, graph, gs.SPDS(N=N, L=L, oracle=oracle, **given))
        sizes = ([] if "R" in given else 64 * [1]) + batches(solution)[0]
        asked = [(asked.start, asked.count) for asked in oracle.seen]
        assert asked == list(zip(itertools.accumulate([0, *sizes]), sizes, strict=False))


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_gradients_are_asked_for_inside_the_set(mu):
    problem, graph = setting(mu, "one each")
    oracle = Recorded(Noise(30.0))
    gs.solve(problem, graph, gs.SPDS(N=N, L=L, R=R, c=C, oracle=oracle))
    assert len(oracle.seen) == N
    for asked in oracle.seen:
        assert problem.domain.contains(asked.x, 1e-12).all()


# ---- the bounds of Theorem 2, in expectation


@dataclass(frozen=True)
class Errors:
    """f(x_bar_N) - f* and ||A x_bar_N|| of many runs, and what the theorem says of their means."""

    objective: np.ndarray
    residual: np.ndarray
    bound: guarantees.Bound

    def hold(self):
        """Whether even the upper limits of 99 % confidence are below the bounds."""
        return limit(self.objective, 0.99) <= self.bound.objective, limit(self.residual, 0.99) <= self.bound.residual

    def are_violated(self):
        """Whether even the lower limits are above the bounds."""
        return limit(self.objective, 0.01) > self.bound.objective, limit(self.residual, 0.01) > self.bound.residual


def limit(values, level):
    """The limit of that one-sided confidence for the mean."""
    return values.mean() + stats.t.ppf(level, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))


def measure(problem, graph, method, *, sigma, V, z_star, optimum, seeds, x0=None):
    """Runs of the method over many seeds, against the bound with the sigma that is declared."""
    network = gs.network.Local(graph)
    A = gs.coupling.make(method.coupling, network)
    runs = [
        gs.solve(problem, network, dataclasses.replace(method, seed=seed), x0=x0, record_every=method.N)
        for seed in range(seeds)
    ]
    found = {name: value for name, value in runs[0].parameters.items() if name != "sigma"}
    return Errors(
        objective=np.array([problem.objective(run.x).sum() for run in runs]) - optimum,
        residual=np.array([A.residual(run.x) for run in runs]),
        bound=guarantees.spds(**found, m=problem.m, sigma=sigma, V=V, z_star=z_star),
    )


def measure_case(case, oracle, sigma, N, seeds=100):
    distance = math.sqrt(2 * case.V)
    method = gs.SPDS(
        N=N,
        L=case.L,
        R=(case.z_star + 1) / (4 * distance),
        sigma=sigma,
        distance=distance,
        coupling=case.coupling,
        oracle=oracle,
    )
    return measure(
        case.problem,
        case.graph,
        method,
        sigma=sigma,
        V=case.V,
        z_star=case.z_star,
        optimum=case.reference.objective,
        seeds=seeds,
    )


@pytest.mark.parametrize("mu", [0.0, 2.0])
@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("name", GRAPHS)
def test_theorem_2_holds_in_expectation(name, coupling, mu):
    graph = GRAPHS[name]
    domain = {"ring": gs.domains.L2Ball(0.4), "star": gs.domains.Box(-0.3, 0.2)}.get(name, gs.domains.NonNegative())
    problem = gs.Problem(logistic(np.random.default_rng(5), graph.m, 3), domain, mu)
    case = make_case(problem, graph, coupling, name)
    errors = measure_case(case, Noise(3.0), 3.0, N=9)
    assert errors.objective.std() > 0
    assert errors.hold() == (True, True)


def largest_sigma(features, targets, rows, radius):
    """Root of the largest variance of one sampled gradient of least squares over a box, averaged over agents.

    E|G - grad|^2 <= E|G|^2, which is convex in x: its maximum is at a corner.
    """
    corners = radius * np.array(list(itertools.product([-1, 1], repeat=features.shape[1])))
    total = 0.0
    for own in rows:
        A, b = features[own], targets[own]
        squares = len(own) * np.sum(A**2, axis=1) @ (A @ corners.T - b[:, None]) ** 2
        total += squares.max()
    return math.sqrt(total / len(rows))


@pytest.mark.parametrize("mu", [0.0, 2.0])
@pytest.mark.parametrize("coupling", COUPLINGS)
def test_theorem_2_holds_with_rows_of_least_squares(coupling, mu):
    rng = np.random.default_rng(8)
    features, targets = rng.normal(size=(30, 3)), rng.normal(size=30)
    rows = np.array_split(np.arange(30), 5)
    radius = 0.3
    loss = gs.losses.LeastSquares(features, targets, splits=rows)
    case = make_case(gs.Problem(loss, gs.domains.Box(-radius, radius), mu), GRAPHS["ring"], coupling, "rows")
    sigma = largest_sigma(features, targets, rows, radius)
    assert gs.oracles.estimate_sigma(case.problem) <= sigma
    assert measure_case(case, WithReplacement(), sigma, N=7).hold() == (True, True)


@pytest.mark.parametrize("mu", [0.0, 2.0])
def test_theorem_2_holds_with_rows_of_logistic_regression(mu):
    """sigma: the largest along the runs."""
    rng = np.random.default_rng(9)
    features, labels = rng.normal(size=(30, 3)), rng.choice([-1, 1], size=30)
    loss = gs.losses.Logistic(features, labels, agents=5)
    case = make_case(gs.Problem(loss, gs.domains.L2Ball(0.5), mu), GRAPHS["star"], "incidence", "rows")

    def variance(x):
        signed = (features * labels[:, None]).reshape(5, 6, 3)
        G = -6 * signed / (1 + np.exp(np.einsum("ird,id->ir", signed, x)))[:, :, None]
        return np.mean(np.sum((G - G.mean(axis=1, keepdims=True)) ** 2, axis=2))

    oracle = Recorded(WithReplacement())
    sigma = 1.1 * math.sqrt(variance(case.x0))
    errors = measure_case(case, oracle, sigma, N=7)
    assert max(variance(asked.x) for asked in oracle.seen) <= sigma**2
    assert errors.hold() == (True, True)


@dataclass(frozen=True)
class Alike:
    """Agents with one and the same loss, whose minimiser is 0 whatever mu is, and where every sample has variance
    sigma^2 wherever it is taken. From x_0 = 0 the bound is one on noise alone."""

    loss: gs.losses.Loss
    oracle: object
    sigma: float
    # The problem is the one with L = 1 in other units: x in `unit`, f in L unit^2.
    unit: float = 1.0

    @property
    def L(self):
        return float(self.loss.smoothness().max())

    def measure(self, graph, coupling, declared, *, mu=0.0, N=3, R=0.2, seeds=100):
        problem = gs.Problem(self.loss, gs.domains.Box(-2 * self.unit, 2 * self.unit), self.L * mu)
        method = gs.SPDS(
            N=N,
            L=self.L,
            R=R * self.L,
            sigma=declared,
            distance=2 * self.unit,
            coupling=coupling,
            oracle=self.oracle,
        )
        optimum = float(problem.objective(np.zeros((problem.m, problem.d))).sum())
        return measure(
            problem,
            graph,
            method,
            sigma=declared,
            V=0.0,
            z_star=0.0,
            optimum=optimum,
            seeds=seeds,
            x0=np.zeros(problem.d),
        )


def noisy(m):
    return Alike(gs.losses.Quadratic(np.tile(np.eye(2), (m, 1, 1)), np.zeros((m, 2))), Noise(20.0), 20.0)


def located(m):
    """The mean of numbers: G = x - b, with b = 20 or -20."""
    loss = gs.losses.LeastSquares(
        np.ones((4 * m, 1)), np.tile([20.0, 20.0, -20.0, -20.0], m), agents=m, reduction="mean"
    )
    return Alike(loss, WithReplacement(), 20.0)


def coins(m):
    """Logistic regression on a constant: slopes of the two labels differ by 1 everywhere."""
    loss = gs.losses.Logistic(
        np.ones((4 * m, 1)), np.tile([1, 1, -1, -1], m), agents=m, sample_weight=np.full(4 * m, 10.0)
    )
    return Alike(loss, WithReplacement(), 20.0, unit=0.1)


ALIKE = {"noise": noisy, "rows of least squares": located, "rows of logistic regression": coins}


@pytest.mark.parametrize("mu", [0.0, 0.5])
@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("name", GRAPHS)
def test_the_bounds_hold_and_break_when_sigma_is_declared_ten_times_too_small(name, coupling, mu):
    graph = GRAPHS[name]
    alike = noisy(graph.m)
    assert alike.measure(graph, coupling, alike.sigma, mu=mu).hold() == (True, True)
    assert alike.measure(graph, coupling, alike.sigma / 10, mu=mu).are_violated() == (True, True)


@pytest.mark.parametrize("mu", [0.0, 0.5])
@pytest.mark.parametrize("kind", ["rows of least squares", "rows of logistic regression"])
def test_with_sampled_rows_the_bounds_break_too(kind, mu):
    graph = gs.Graph.ring(3)
    alike = ALIKE[kind](graph.m)
    assert alike.measure(graph, "incidence", alike.sigma, mu=mu).hold() == (True, True)
    assert alike.measure(graph, "incidence", alike.sigma / 10, mu=mu).are_violated() == (True, True)


@pytest.mark.parametrize("kind", ALIKE)
def test_past_Delta_the_bound_on_the_objective_breaks_too(kind):
    graph = gs.Graph.path(2)
    alike = ALIKE[kind](graph.m)
    # tau = 2, Delta = 5.
    run = {"mu": 1.0, "N": 7, "R": 0.02}
    assert alike.measure(graph, "incidence", alike.sigma, **run).hold() == (True, True)
    objective, _ = alike.measure(graph, "incidence", alike.sigma / 10, **run).are_violated()
    assert objective


# ---- the theorem's closed form


def bound_sets(count):
    rng = np.random.default_rng(6)
    for index in range(count):
        L = 10 ** rng.uniform(-2, 3)
        mu = (0.0, L * 10 ** rng.uniform(-4, 0), L * 10 ** rng.uniform(0, 2.5))[index % 3]
        yield {
            "N": int(10 ** rng.uniform(0, 2 if mu < L else 1.3)),
            "L": L,
            "mu": mu,
            "R": 10 ** rng.uniform(-2, 1),
            "A_norm": 10 ** rng.uniform(-1, 1.5),
            "c": L**2 * 10 ** rng.uniform(-4, 4),
        }


def test_the_exact_sums_are_below_the_closed_form_of_theorem_2():
    """As printed up to Delta, and past it for the branch lambda^(N - Delta); 2/N^2 then needs twice the noise."""
    rng = np.random.default_rng(7)
    past = 0
    for given in bound_sets(900):
        schedule = schedules.theorem_2(**given)
        L, N = schedule.L, schedule.N
        distance = (0.0, 10 ** rng.uniform(-1, 1))[N % 2]
        sigma, m, z_star = L * 10 ** rng.uniform(-2, 2), int(rng.integers(1, 20)), 10 ** rng.uniform(-1, 1)
        bound = guarantees.spds(**given, sigma=sigma, m=m, V=distance**2 / 2, z_star=z_star)
        noise = L * m * sigma**2 / given["c"]
        way, dual = 4 * L * distance**2, L / (8 * given["R"] ** 2) * (z_star + 1) ** 2
        factors = [(2 / N**2, 1)]
        if N > schedule.Delta:
            lam = (schedule.Delta - 1) / (schedule.Delta + 1)
            factors = [(2 / N**2, 2), (lam ** (N - schedule.Delta), 1)]
            past += 1
        for factor, share in factors:
            assert bound.objective <= factor * (way + share * noise) * (1 + 1e-9), given
            assert bound.residual <= factor * (dual + way + share * noise) * (1 + 1e-9), given
    assert past > 100


def test_the_bound_is_the_closed_form_with_the_exact_sum_of_beta():
    """Up to Delta and for batches so large that rounding them up does not show: with m sigma^2, N (N + 1) for N^2."""
    L, R, c, sigma, m, distance, z_star = 3.0, 0.7, 1e9, 2e4, 6, 0.5, 1.3
    told = {"sigma": sigma, "m": m, "V": distance**2 / 2, "z_star": z_star}
    way, noise = 4 * L * distance**2, L * m * sigma**2 / c
    assert noise > way / 3
    for N in (1, 2, 9):
        for mu in (0.0, 0.1):
            bound = guarantees.spds(N, L=L, R=R, c=c, A_norm=2.0, mu=mu, **told)
            assert bound.objective == pytest.approx(2 / (N * (N + 1)) * (way + noise), rel=1e-6)
            dual = L / (8 * R**2) * (z_star + 1) ** 2
            assert bound.residual == pytest.approx(2 / (N * (N + 1)) * (dual + way + noise), rel=1e-6)


def test_past_Delta_2_over_N_squared_does_not_follow_from_the_sums():
    """Proposition 2 gives less than the theorem claims there: up to 1.17 times its bound, from noise alone."""
    given = {"N": 160, "L": 900.0, "mu": 1.0, "R": 1.0, "A_norm": 1.0, "c": 1e9}
    assert schedules.theorem_2(**given).Delta == 121
    bound = guarantees.spds(**given, sigma=1.0, m=1, V=0.0, z_star=0.0).objective
    printed = 2 / given["N"] ** 2 * given["L"] / given["c"]
    assert 1.1 * printed < bound < 1.2 * printed


# ---- what it counts


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_samples_are_the_batches_of_the_schedule_whatever_the_graph(coupling, mu):
    problem, spent = small_problem(mu), set()
    for graph in GRAPHS.values():
        solution = gs.solve(problem, graph, gs.SPDS(N=14, R=1.0, c=5.0, L=3.0, coupling=coupling))
        rows = theorem_2_rows(N=14, L=3.0, mu=mu, A_norm=norm_of(graph, coupling), R=1.0, c=5.0)
        assert solution.costs.samples == sum(row.c for row in rows)
        assert solution.costs.rounds == (2 if coupling == "laplacian" else 1) * sum(row.T for row in rows)
        assert (solution.costs.gradients, solution.costs.values) == (0, 0)
        spent.add(solution.costs.samples)
    assert len(spent) == 1


def test_samples_do_not_depend_on_the_graph_where_L_is_found_and_R_is_large():
    graphs = [gs.Graph.ring(5), gs.Graph.star(5), gs.Graph.complete(5)]
    method = gs.SPDS(N=4, R=300.0, c=50.0)
    assert len({gs.solve(small_problem(), graph, method).costs.samples for graph in graphs}) == 1


def test_records_count_samples_and_rounds_batch_by_batch():
    solution = gs.solve(small_problem(), GRAPHS["ring"], gs.SPDS(N=8, R=1.0, c=5.0, L=3.0))
    sizes, slides = batches(solution)
    assert [record.samples for record in solution.history] == list(itertools.accumulate(sizes))
    assert [record.rounds for record in solution.history] == list(itertools.accumulate(slides))


@pytest.mark.parametrize(
    "left_out",
    [
        {"R": 1.0},
        {"c": 0.5},
        {},
        {"R": 1.0, "sigma": 2.0},
        {"R": 1.0, "distance": 2.0},
        {"sigma": 2.0, "distance": 2.0},
        {"R": 1.0, "L": 3.0},
    ],
)
def test_what_is_left_out_costs_64_samples(left_out):
    for graph in GRAPHS.values():
        solution = gs.solve(small_problem(), graph, gs.SPDS(N=6, **left_out))
        assert solution.costs.samples == 64 + sum(batches(solution)[0])
        assert solution.costs.gradients == 0


@pytest.mark.parametrize(
    "given",
    [
        {"N": 6, "c": 0.5},
        {"N": 6, "sigma": 2.0, "distance": 2.0},
        {"N": 6, "samples": 90},
        {"eps": 1.0, "sigma": 2.0, "distance": 2.0},
        {"eps": 1.0, "c": 0.5, "distance": 2.0},
        {"samples": 90, "sigma": 2.0, "distance": 2.0},
    ],
)
def test_what_is_given_costs_nothing(given):
    solution = gs.solve(small_problem(), GRAPHS["ring"], gs.SPDS(R=1.0, **given))
    assert solution.costs.samples == sum(batches(solution)[0])
    assert solution.parameters["R"] == 1.0


# ---- what it finds by itself


def test_theorem_2s_c_and_N_are_what_the_theorem_says():
    problem, given = small_problem(), {"sigma": 2.0, "distance": 3.0, "R": 1.0, "L": 4.0}
    solution = gs.solve(problem, GRAPHS["ring"], gs.SPDS(eps=0.5, **given))
    assert solution.parameters["c"] == pytest.approx(2 * 5 * 2.0**2 / 3.0**2)
    assert solution.parameters["N"] == math.ceil(math.sqrt(13 * 4.0 * 3.0**2 / 0.5))
    assert solution.parameters["sigma"] == 2.0
    assert len(solution.history) == solution.parameters["N"]


def test_the_probe_is_the_estimate_from_64_samples():
    problem = small_problem()
    method = gs.SPDS(N=4, seed=3)
    found = gs.solve(problem, GRAPHS["ring"], method).parameters
    assert found["sigma"] == pytest.approx(gs.oracles.estimate_sigma(problem, samples=64, seed=3), rel=1e-12)
    assert found["L"] == pytest.approx(problem.smoothness().max())
    # c = 2 m sigma^2 / D^2, where D is at most what the ball of radius 1 allows.
    assert math.sqrt(2 * 5 * found["sigma"] ** 2 / found["c"]) <= math.sqrt(5) * (1 + 1e-9)


def test_the_R_it_finds_is_that_of_pds_in_theorem_2s_units():
    """(||z*|| + 1)/(4 D) where Theorem 1 has (||z*|| + 1)/(4 sqrt(V)), and D^2 = 2 V."""
    problem, graph = small_problem(), GRAPHS["ring"]
    exact = gs.solve(problem, graph, gs.PDS(), stop=gs.Stop(iterations=1)).parameters["R"]
    found = gs.solve(problem, graph, gs.SPDS(N=1, c=1.0, oracle=Noise(0.0))).parameters
    assert found["R"] == pytest.approx(exact / math.sqrt(2), rel=1e-9)
    assert found["sigma"] == pytest.approx(0.0, abs=1e-9)


def test_a_distance_that_is_given_is_kept():
    solution = gs.solve(small_problem(), GRAPHS["ring"], gs.SPDS(N=4, distance=0.25))
    found = solution.parameters
    assert math.sqrt(2 * 5 * found["sigma"] ** 2 / found["c"]) == pytest.approx(0.25)


def test_spds_N_is_the_theorems_for_mu_0():
    rng = np.random.default_rng(1)
    for _ in range(300):
        L, distance, eps = 10 ** rng.uniform(-2, 3), 10 ** rng.uniform(-2, 2), 10 ** rng.uniform(-3, 3)
        N = guarantees.spds_N(eps, L=L, distance=distance)
        assert N == max(1, math.ceil(math.sqrt(13 * L * distance**2 / eps)))


def test_spds_N_with_the_theorems_R_and_c_reaches_eps():
    rng = np.random.default_rng(2)
    too_short = 0
    for index in range(400):
        L, distance = 10 ** rng.uniform(-2, 3), 10 ** rng.uniform(-2, 2)
        mu = 0.0 if index % 3 == 0 else L * 10 ** rng.uniform(-4, 2.5)
        eps = L * distance**2 / 10 ** rng.uniform(-1, 3)
        sigma, m, z_star = L * distance * 10 ** rng.uniform(-2, 1), int(rng.integers(1, 30)), 10 ** rng.uniform(-1, 2)
        N = guarantees.spds_N(eps, L=L, distance=distance, mu=mu)
        run = {"L": L, "mu": mu, "A_norm": 2.0, "R": (z_star + 1) / (4 * distance)}
        run["c"] = guarantees.spds_c(sigma, m=m, distance=distance)
        told = {"sigma": sigma, "m": m, "V": distance**2 / 2, "z_star": z_star}
        bound = guarantees.spds(N, **run, **told)
        assert max(bound.objective, bound.residual) <= eps * (1 + 1e-9), run
        half = guarantees.spds(max(1, N // 2), **run, **told)
        too_short += max(half.objective, half.residual) > eps
        if mu > 0:
            schedule = schedules.theorem_2(N=1, **run)
            Delta = schedule.Delta
            printed = Delta + math.log(5 * schedule.L * distance**2 / eps) / math.log((Delta + 1) / (Delta - 1))
            assert N <= max(Delta, math.ceil(printed)), run
    # N is not large for nothing: half of it would mostly not do.
    assert too_short > 300


def criterion(samples, N, *, L, distance, sigma, mu):
    """What `spds_N_for` makes small, for one N."""
    schedule = schedules.theorem_2(N=N, L=L, mu=mu, A_norm=0.0, R=1.0, c=0.0).with_samples(samples)
    rows = [schedule.row(n) for n in range(1, N + 1)]
    return guarantees.proposition_2(rows, V=distance**2 / 2, z_star=0.0, variance=sigma**2).objective


def test_an_accuracy_beyond_double_precision_is_refused():
    with pytest.raises(gs.InputError, match="double precision"):
        guarantees.spds_N(1e-18, L=1.0, distance=1.0, mu=4.0)


def test_spds_N_for_is_close_to_the_best_of_all_N():
    rng = np.random.default_rng(3)
    for index in range(16):
        L, distance = 10 ** rng.uniform(-2, 3), 10 ** rng.uniform(-1, 2)
        mu = 0.0 if index % 2 == 0 else L * 10 ** rng.uniform(-3, 0)
        given = {"L": L, "mu": mu, "distance": distance, "sigma": L * distance * 10 ** rng.uniform(-1, 2)}
        samples = int(10 ** rng.uniform(1.7, 2.2))
        N = guarantees.spds_N_for(samples, **given)
        longest = int(min(samples, schedules.theorem_2(N=1, L=L, mu=mu, A_norm=0.0, R=1.0, c=0.0).longest))
        best = min(criterion(samples, n, **given) for n in range(1, longest + 1))
        assert criterion(samples, N, **given) <= 1.05 * best, (samples, given)


def test_a_budget_finds_N_and_c_and_is_kept():
    problem = small_problem()
    for samples in (64, 200, 1000):
        solution = gs.solve(problem, GRAPHS["ring"], gs.SPDS(samples=samples, R=1.0, sigma=3.0, distance=1.0))
        assert samples - solution.parameters["N"] < solution.costs.samples <= samples
        N = guarantees.spds_N_for(samples, L=solution.parameters["L"], distance=1.0, sigma=3.0)
        assert solution.parameters["N"] == N


# ---- how it ends


def test_it_runs_its_N_outer_iterations_and_is_complete():
    solution = gs.solve(small_problem(), GRAPHS["ring"], gs.SPDS(N=7, R=1.0, c=0.5))
    assert solution.status is gs.Status.COMPLETED
    assert [record.iteration for record in solution.history] == list(range(1, 8))


def test_it_never_goes_past_N():
    for stop in (gs.Stop(iterations=100), gs.Stop(iterations=7), gs.Stop(residual=1e-300), gs.Stop(samples=10**9)):
        solution = gs.solve(small_problem(), GRAPHS["ring"], gs.SPDS(N=7, R=1.0, c=0.5), stop=stop)
        assert (solution.status, solution.history[-1].iteration) == (gs.Status.COMPLETED, 7)


def test_limits_and_targets_end_it_earlier():
    method = gs.SPDS(N=20, R=1.0, c=5.0, L=3.0)
    problem, graph = small_problem(), GRAPHS["ring"]
    whole = gs.solve(problem, graph, method)
    sizes, slides = (np.cumsum(counts) for counts in batches(whole))
    for stop, status, iteration in [
        (gs.Stop(iterations=3), gs.Status.ITERATION_LIMIT, 3),
        (gs.Stop(samples=int(sizes[4])), gs.Status.SAMPLE_LIMIT, 5),
        (gs.Stop(samples=int(sizes[4]) + 1), gs.Status.SAMPLE_LIMIT, 6),
        (gs.Stop(rounds=int(slides[8])), gs.Status.ROUND_LIMIT, 9),
        (gs.Stop(objective=whole.history[6].objective, iterations=20), gs.Status.CONVERGED, None),
    ]:
        solution = gs.solve(problem, graph, method, stop=stop)
        assert solution.status is status
        last = solution.history[-1].iteration
        assert last == iteration if iteration else last <= 7
        # Up to there it is the same run.
        assert solution.history[-1].objective == whole.history[last - 1].objective


@pytest.mark.parametrize("oracle", [WithReplacement(), WithoutReplacement(), Noise(2.0)], ids=repr)
def test_the_seed_decides_the_run(oracle):
    problem, graph = small_problem(), GRAPHS["ring"]
    runs = [gs.solve(problem, graph, gs.SPDS(N=6, R=1.0, c=0.5, oracle=oracle, seed=seed)).x for seed in (1, 1, 2)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert np.abs(runs[0] - runs[2]).max() > 1e-4


@pytest.mark.parametrize("oracle", [WithReplacement(), WithoutReplacement(), Noise(2.0)], ids=repr)
@pytest.mark.parametrize("given", [{"R": 1.0, "c": 2.0}, {}], ids=["all given", "found"])
def test_a_run_that_goes_on_from_a_checkpoint_is_the_same_to_the_bit(oracle, given, tmp_path):
    problem, graph = small_problem(), GRAPHS["random"]
    method = gs.SPDS(N=9, oracle=oracle, seed=5, **given)
    whole = gs.solve(problem, graph, method)
    for iterations in (2, 3, 7):
        part = gs.solve(problem, graph, method, stop=gs.Stop(iterations=iterations), checkpoint=tmp_path / "run.npz")
        assert part.status is gs.Status.ITERATION_LIMIT
        assert part.history[-1].iteration == iterations
    rest = gs.solve(problem, graph, method, checkpoint=tmp_path / "run.npz")
    assert rest.status is gs.Status.COMPLETED
    for name, output in whole.outputs.items():
        np.testing.assert_array_equal(rest.outputs[name], output)
    np.testing.assert_array_equal(rest.dual, whole.dual)
    assert rest.parameters == whole.parameters
    assert (rest.costs.samples, rest.costs.rounds) == (whole.costs.samples, whole.costs.rounds)
    assert [record.samples for record in rest.history] == [record.samples for record in whole.history]
    # A run that is done is not run again.
    again = gs.solve(problem, graph, method, checkpoint=tmp_path / "run.npz")
    assert (again.status, again.costs.samples) == (gs.Status.COMPLETED, whole.costs.samples)
    with pytest.raises(InputError, match="must belong to this run"):
        gs.solve(problem, graph, dataclasses.replace(method, seed=6), checkpoint=tmp_path / "run.npz")


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("oracle", [WithReplacement(), WithoutReplacement(), Noise(0.5)], ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float32_stays_float32(dtype, oracle, coupling):
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(18, 3)).astype(dtype), rng.normal(size=18).astype(dtype)
    loss = gs.losses.LeastSquares(features, targets, agents=6, sample_weight=rng.uniform(0.5, 2, 18))
    problem, graph = gs.Problem(loss, gs.domains.Box(-1, 1)), gs.Graph.ring(6)
    for method in (
        gs.SPDS(N=5, coupling=coupling, oracle=oracle),
        gs.SPDS(N=5, R=np.float64(0.7), c=np.float64(0.3), L=np.float64(9.0), coupling=coupling, oracle=oracle),
    ):
        solution = gs.solve(problem, graph, method)
        assert all(array.dtype == dtype for array in [solution.dual, *solution.outputs.values()])
        for state in iterates(problem, graph, method):
            assert {state.x.dtype, state.y.dtype, state.x_bar.dtype} == {np.dtype(dtype)}


def test_a_lone_agent_needs_no_network():
    loss = least_squares(np.random.default_rng(0), 1, 3)
    solution = gs.solve(gs.Problem(loss), gs.Graph.from_edges(1, []), gs.SPDS(N=30, R=1.0, c=5.0))
    assert solution.costs.rounds == 0
    assert solution.costs.samples == sum(batches(solution)[0])


# ---- losses of one's own


def streaming(value=True, **wrong):
    """f_i(x) = |x - a_i|^2 / 2, of which only noisy gradients are known."""
    centers = np.arange(10.0).reshape(5, 2)

    def sampled(i):
        return lambda x, batch, rng: x - centers[i] + rng.normal(size=(batch, 2)).mean(axis=0)

    return gs.losses.Custom(
        sample_gradient=[sampled(i) for i in range(5)],
        value=(lambda x: 0.5 * np.sum((x - centers) ** 2, axis=1)) if value else None,
        smoothness=1.0,
        agents=5,
        dimension=2,
        **wrong,
    )


def test_a_loss_that_can_only_be_sampled_is_solved():
    problem, graph = gs.Problem(streaming()), GRAPHS["ring"]
    solution = gs.solve(problem, graph, gs.SPDS(N=40, c=0.1))
    # The mean of the centres is (4, 5).
    assert np.abs(solution.mean - [4.0, 5.0]).max() < 0.2
    assert solution.history[-1].objective == pytest.approx(40.0, abs=0.1)
    assert (solution.costs.gradients, solution.costs.samples) == (0, 64 + sum(batches(solution)[0]))


def test_a_loss_without_a_value_runs_without_an_objective():
    graph, method = GRAPHS["ring"], gs.SPDS(N=6, R=1.0, c=0.1)
    known, unknown = (gs.solve(gs.Problem(streaming(value)), graph, method) for value in (True, False))
    np.testing.assert_array_equal(known.x, unknown.x)
    assert [(record.objective, record.local_objective) for record in unknown.history] == 6 * [(None, None)]
    assert all(record.residual > 0 and record.disagreement > 0 for record in unknown.history)
    assert known.history[-1].objective is not None
    with pytest.raises(InputError, match=r"Stop\(objective=\.\.\.\) needs a loss that has a value"):
        gs.solve(gs.Problem(streaming(False)), graph, method, stop=gs.Stop(objective=1.0))


def test_a_run_without_a_value_goes_on_from_a_checkpoint(tmp_path):
    problem, method = gs.Problem(streaming(False)), gs.SPDS(N=6, R=1.0, c=0.1)
    whole = gs.solve(problem, GRAPHS["ring"], method)
    gs.solve(problem, GRAPHS["ring"], method, stop=gs.Stop(iterations=3), checkpoint=tmp_path / "run.npz")
    np.testing.assert_array_equal(gs.solve(problem, GRAPHS["ring"], method, checkpoint=tmp_path / "run.npz").x, whole.x)


# ---- what it refuses

FLAT = gs.losses.Logistic(np.zeros((10, 3)), np.tile([1, -1], 5), agents=5)
MISTAKES = {
    "no length": (lambda: gs.SPDS(), ["needs N, or samples, or eps and distance", "N=None", "for example N=100"]),
    "N is 0": (lambda: gs.SPDS(N=0), ["N must be a whole number >= 1", "got 0"]),
    "N is no whole number": (lambda: gs.SPDS(N=2.5), ["N must be a whole number", "2.5"]),
    "N is a truth value": (lambda: gs.SPDS(N=True), ["N must be a whole number", "True"]),
    "eps without a distance": (lambda: gs.SPDS(eps=0.1), ["eps needs a distance", "distance=None", "an estimate"]),
    "eps and N": (lambda: gs.SPDS(eps=0.1, distance=1.0, N=5), ["eps alone finds N", "N=5"]),
    "eps and samples": (lambda: gs.SPDS(eps=0.1, distance=1.0, samples=50), ["eps alone finds N", "samples=50"]),
    "eps is 0": (lambda: gs.SPDS(eps=0.0, distance=1.0), ["eps must be > 0", "0.0"]),
    "c and samples": (lambda: gs.SPDS(N=5, c=1.0, samples=50), ["exclude each other", "c=1.0", "drop one"]),
    "fewer samples than N": (lambda: gs.SPDS(N=5, samples=4), ["samples must be a whole number >= 5", "got 4"]),
    "no samples": (lambda: gs.SPDS(samples=0), ["samples must be a whole number >= 1", "got 0"]),
    "samples is no whole number": (lambda: gs.SPDS(samples=9.5), ["samples must be a whole number", "9.5"]),
    "c below 0": (lambda: gs.SPDS(N=5, c=-1.0), ["c must be >= 0", "-1.0"]),
    "R is 0": (lambda: gs.SPDS(N=5, R=0.0), ["R must be > 0", "0.0"]),
    "L is 0": (lambda: gs.SPDS(N=5, L=0.0), ["L must be > 0", "0.0", "larger"]),
    "L is NaN": (lambda: gs.SPDS(N=5, L=math.nan), ["L must be > 0", "nan"]),
    "norm below 0": (lambda: gs.SPDS(N=5, norm=-1.0), ["||A|| must be >= 0", "-1.0"]),
    "sigma below 0": (lambda: gs.SPDS(N=5, sigma=-1.0), ["sigma must be >= 0", "-1.0", "estimate_sigma"]),
    "distance is 0": (lambda: gs.SPDS(N=5, distance=0.0), ["distance must be > 0", "0.0"]),
    "a word for sigma": (lambda: gs.SPDS(N=5, sigma="big"), ["sigma must be", "'big'"]),
    "negative seed": (lambda: gs.SPDS(N=5, seed=-1), ["seed must be a whole number >= 0", "-1", "seed=0"]),
    "seed is no whole number": (lambda: gs.SPDS(N=5, seed=0.5), ["seed must be a whole number", "0.5"]),
    "oracle is a class": (
        lambda: gs.SPDS(N=5, oracle=WithReplacement),
        ["one of gs.oracles", "the class WithReplacement", "WithReplacement()"],
    ),
    "oracle is a word": (lambda: gs.SPDS(N=5, oracle="rows"), ["one of gs.oracles", "str 'rows'"]),
    "unknown coupling": (lambda: gs.SPDS(N=5, coupling="laplace"), ["coupling", "'laplace'", "'laplacian'?"]),
    "batch beyond all measure": (
        lambda: gs.solve(small_problem(), GRAPHS["ring"], gs.SPDS(N=1000, L=1.0, R=1.0, c=1e9)),
        ["a batch can hold 1e+15 samples", "2.5e+17 in outer iteration 1000", "lower N or c"],
    ),
    "entropy": (
        lambda: gs.solve(gs.Problem(logistic(np.random.default_rng(0), 5, 3), gs.domains.EntropySimplex()), *FEW),
        ["Euclidean", "EntropySimplex", "use Simplex"],
    ),
    "flat losses": (lambda: gs.solve(gs.Problem(FLAT), *FEW), ["L of SPDS must be > 0", "0.0", "larger"]),
    "N beyond a stage": (
        lambda: gs.solve(small_problem(mu=4.0), GRAPHS["ring"], gs.SPDS(N=300, L=1.0, R=1.0, c=0.0)),
        ["N must be at most 58", "300", "lower N"],
    ),
    "rows of a quadratic": (
        lambda: gs.solve(gs.Problem(noisy(5).loss), *FEW),
        ["needs a loss with rows", "Quadratic", "LeastSquares"],
    ),
    "an unknown smoothness": (
        lambda: gs.solve(gs.Problem(gs.losses.Custom(sample_gradient=lambda x, *_: x, agents=5, dimension=2)), *FEW),
        ["smoothness", "give smoothness="],
    ),
    "a loss without samples": (
        lambda: gs.solve(gs.Problem(gs.losses.Custom(gradient=lambda x: x, smoothness=1, agents=5, dimension=2)), *FEW),
        ["sample_gradient", "give sample_gradient="],
    ),
}
FEW = GRAPHS["ring"], gs.SPDS(N=5, R=1.0, c=0.5)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_one_clear_error(mistake):
    make, words = MISTAKES[mistake]
    with pytest.raises(InputError) as error:
        make()
    message = str(error.value)
    assert message.count("; got ") == 1
    assert all(word in message for word in words), message


def test_numbers_of_numpy_are_numbers():
    method = gs.SPDS(N=np.int64(5), R=np.float32(0.5), c=np.float64(1.0), seed=np.int64(3))
    assert type(method.R) is float
    assert gs.solve(small_problem(), GRAPHS["ring"], method).parameters["N"] == 5
