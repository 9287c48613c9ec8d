"""What SPDS finds by itself: N, c, R, sigma and the distance."""

import math

import numpy as np
import pytest
from five_agents import COUPLINGS, GRAPHS, small_problem
from problems import least_squares

import gradslide as gs
from gradslide.oracles import Noise
from gradslide.theory import guarantees, schedules


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
    one = gs.Stop(iterations=1)
    exact = gs.solve(problem, graph, gs.PDS(), stop=one).parameters["R"]
    # With so many outer iterations the last inner loop is long enough for the network to mix.
    found = gs.solve(problem, graph, gs.SPDS(N=500, c=0.01, oracle=Noise(0.0)), stop=one).parameters
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


@pytest.mark.parametrize("cases", [4, pytest.param(16, marks=pytest.mark.slow)])
def test_spds_N_for_is_close_to_the_best_of_all_N(cases):
    rng = np.random.default_rng(3)
    for index in range(cases):
        L, distance = 10 ** rng.uniform(-2, 3), 10 ** rng.uniform(-1, 2)
        mu = 0.0 if index % 2 == 0 else L * 10 ** rng.uniform(-3, 0)
        given = {"L": L, "mu": mu, "distance": distance, "sigma": L * distance * 10 ** rng.uniform(-1, 2)}
        samples = int(10 ** rng.uniform(1.7, 2.2))
        N = guarantees.spds_N_for(samples, **given)
        longest = int(min(samples, schedules.theorem_2(N=1, L=L, mu=mu, A_norm=0.0, R=1.0, c=0.0).stage_length))
        best = min(criterion(samples, n, **given) for n in range(1, longest + 1))
        assert criterion(samples, N, **given) <= 1.05 * best, (samples, given)


def test_a_budget_finds_N_and_c_and_is_kept():
    problem = small_problem()
    for samples in (64, 200, 1000):
        solution = gs.solve(problem, GRAPHS["ring"], gs.SPDS(samples=samples, R=1.0, sigma=3.0, distance=1.0))
        assert samples - solution.parameters["N"] < solution.costs.samples <= samples
        N = guarantees.spds_N_for(samples, L=solution.parameters["L"], distance=1.0, sigma=3.0)
        assert solution.parameters["N"] == N


@pytest.mark.parametrize("samples", [3, 40, 500, 2000])
def test_what_is_found_is_paid_from_the_budget(samples):
    solution = gs.solve(small_problem(), GRAPHS["ring"], gs.SPDS(samples=samples))
    assert solution.status is gs.Status.COMPLETED
    assert samples - solution.parameters["N"] < solution.costs.samples <= samples


def test_a_budget_that_estimates_use_up_is_refused():
    with pytest.raises(gs.InputError, match=r"samples must be at least 5; got 4; .* took 2"):
        gs.solve(small_problem(), GRAPHS["ring"], gs.SPDS(N=3, samples=4))


def test_without_noise_a_large_budget_does_not_mean_a_large_N():
    for mu in (0.0, 0.1, 10.0):
        N = guarantees.spds_N_for(30_000, L=1.0, distance=1.0, sigma=0.0, mu=mu)
        assert N < 2000
        rows = list(map(schedules.theorem_2(N=N, L=1.0, mu=mu, A_norm=0.0, R=1.0, c=0.0).row, (1, N)))
        assert guarantees.proposition_1(rows[0], rows[-1], V=0.5, z_star=0.0).objective < 1e-5


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("mu", [0.0, 0.5])
@pytest.mark.parametrize("name", GRAPHS)
def test_with_the_R_it_finds_the_last_inner_loop_mixes_the_network(name, mu, coupling):
    """In about ||A||/sigma exchanges, sigma the smallest nonzero singular value of A: four times that."""
    graph, power = GRAPHS[name], 1.0 if coupling == "laplacian" else 0.5
    spreads = (graph.laplacian_norm / graph.algebraic_connectivity) ** power
    method = gs.SPDS(N=12, c=0.01, coupling=coupling)
    found = gs.solve(small_problem(mu), graph, method, stop=gs.Stop(iterations=1)).parameters
    schedule = schedules.theorem_2(**{name: value for name, value in found.items() if name != "sigma"})
    assert schedule.row(12).T >= math.floor(4 * spreads)


def test_a_lone_agent_has_nothing_to_mix():
    problem = gs.Problem(least_squares(np.random.default_rng(0), 1, 3))
    assert gs.solve(problem, gs.Graph.path(1), gs.SPDS(samples=100)).status is gs.Status.COMPLETED


def test_noise_does_not_pass_for_a_distance():
    """It comes from sampled gradients at x_0, whose noise is taken off."""
    problem = gs.Problem(least_squares(np.random.default_rng(0), 5, 3))
    gradients = problem.loss.gradient(problem.start())
    sigma = 16 * math.sqrt(np.mean(np.sum(gradients**2, axis=1)))
    distances = {}
    for noise in (0.0, sigma):
        method = [gs.SPDS(N=1, oracle=Noise(noise), sigma=1.0, seed=seed) for seed in range(30)]
        found = [gs.solve(problem, GRAPHS["ring"], each).parameters["c"] for each in method]
        # c = 2 m sigma^2 / D^2
        distances[noise] = math.sqrt(np.mean([2 * 5 / c for c in found]))
    # Left in, the noise of 64 samples would make it sqrt(1 + 16^2/64) = 2.2 times as large.
    assert distances[sigma] < 1.5 * distances[0.0]
