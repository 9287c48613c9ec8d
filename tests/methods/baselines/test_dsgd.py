"""D-SGD: iterate by iterate against loops over agents, its steps and averages, its rates, its costs."""

import dataclasses
import math

import numpy as np
import pytest
from baselines import (
    check_needs_common_domain,
    check_needs_euclidean,
    check_norm_is_paid_for_once,
    check_refusals,
    check_resume,
    check_states,
    metropolis,
    own_starts,
    small_problem,
    smoothness,
)
from error_messages import check_message
from paper_twins import iterates
from problems import random_case

import gradslide as gs
from gradslide._support.randomness import Streams
from gradslide.losses.partition import with_replacement
from gradslide.theory.reference import reference


def drawn_gradient(problem, agent, x, seed, start, count):
    """The mean over the rows that agent draws, row by row: 8 rows per agent, logistic loss, summed."""
    draw = with_replacement(Streams(seed, range(problem.m)).at(agent, start), 8, count)
    total = sum(
        n * problem.loss.take([agent]).gradient_of_rows(x[None], [np.array([row])], [np.ones(1)])[0]
        for row, n in zip(draw.rows, draw.counts, strict=True)
    )
    return total / count + problem.mu * (x - problem.domain.center[0])


def naive(problem, graph, x, *, steps, prox, batch, seed):
    """Agent by agent: x_k, and the averages with weights a_k or 1/a_k."""
    W, m, taken, seen, weights = metropolis(graph), graph.m, 0, [], []
    for a in steps:
        new = []
        for i in range(m):
            heard = sum(W[i, j] * x[j] for j in range(m))
            new.append(prox(heard - a * drawn_gradient(problem, i, x[i], seed, taken, batch), a))
        x, taken = np.array(new), taken + batch
        seen.append(x)
        weights.append(a if problem.mu == 0 else 1 / a)
        yield x, np.average(seen, axis=0, weights=weights)


PROX = {
    "free": (gs.domains.Free(), lambda v, a: v),
    "centred": (gs.domains.Free(center=0.3), lambda v, a: v),
    "box": (gs.domains.Box(-0.2, 0.3), lambda v, a: np.clip(v, -0.2, 0.3)),
    "l1": (gs.domains.Free(penalty=gs.L1(0.4)), lambda v, a: np.sign(v) * np.maximum(np.abs(v) - 0.4 * a, 0)),
}


@pytest.mark.covering
@pytest.mark.parametrize(("mu", "decay"), [(0.0, None), (0.3, None), (0.0, 0.75), (0.3, 0.0)])
@pytest.mark.parametrize("name", PROX)
def test_iterates_agree_with_agents_that_send_messages(name, mu, decay):
    domain, prox = PROX[name]
    graph, problem = gs.Graph.random(7, 3, seed=2), small_problem(3, domain, mu)
    a, x0 = 0.05, own_starts(problem)
    if decay is not None:
        steps = [a / (k + 1) ** decay for k in range(20)]
    else:
        steps = [a / math.sqrt(k + 1) if mu == 0 else 1 / (1 / a + mu * k / 2) for k in range(20)]
    method = gs.DSGD(step_size=a, decay=decay, batch=3, seed=5)
    states = iterates(problem, graph, method, gs.Stop(iterations=20), x0=x0)
    views = naive(problem, graph, x0, steps=steps, prox=prox, batch=3, seed=5)
    for state, (x, x_bar) in zip(states, views, strict=True):
        np.testing.assert_allclose(state.x, x, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(method.output(state)["average"], x_bar, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(method.output(state)["last"], state.x)


def test_without_noise_it_is_decentralized_gradient_descent():
    """Every row once per iteration: x+ = W x - a g(x), whose rest point for one step is no optimum, but near."""
    graph, problem = gs.Graph.ring(7), small_problem(2, None, 0.4)
    W, a = metropolis(graph), 0.02
    method = gs.DSGD(step_size=a, decay=0.0, batch=8, oracle=gs.oracles.WithoutReplacement())
    x = np.zeros((7, 3))
    for state in iterates(problem, graph, method, gs.Stop(iterations=300)):
        x = W @ x - a * (problem.loss.gradient(x) + 0.4 * x)
        np.testing.assert_allclose(state.x, x, atol=1e-11)
    off = np.linalg.norm(x - reference(problem).x)
    assert 1e-3 < off < 0.3


class Noisy:
    """Quadratics with noise of known variance: f_i = |x - c_i|^2/2 (+ mu/2 |x|^2), G = g + noise."""

    def __init__(self, m, d, sigma, mu, seed=0):
        c = np.random.default_rng(seed).normal(size=(m, d))

        def sample_gradient(x, batch, streams):
            noise = np.stack([stream.normal(size=(batch, d)).mean(axis=0) for stream in streams])
            return x - c + sigma * noise

        loss = gs.losses.Custom(
            gradient=lambda x: x - c,
            value=lambda x: np.sum((x - c) ** 2, axis=1) / 2,
            smoothness=1.0,
            sample_gradient=sample_gradient,
            agents=m,
            dimension=d,
        )
        self.problem = gs.Problem(loss, mu=mu)
        self.x = c.mean(axis=0) / (1 + mu)

    def error(self, method, iterations, output, graph):
        """Of the objective at the mean of the agents, per agent and as a mean over five seeds."""
        errors = []
        for seed in range(5):
            run = dataclasses.replace(method, seed=seed)
            stop = gs.Stop(iterations=iterations)
            solution = gs.solve(self.problem, graph, run, stop=stop, record_every=iterations, output=output)
            errors.append((1 + self.problem.mu) / 2 * np.sum((solution.mean - self.x) ** 2))
        return float(np.mean(errors))


@pytest.mark.slow
def test_for_mu_above_0_the_error_falls_like_1_over_k():
    """The mean of the agents follows one recursion here, so the expected error of the last x is known."""
    case, graph, a = Noisy(5, 30, sigma=3.0, mu=1.0), gs.Graph.ring(5), 0.1
    square, expected = float(np.sum(case.x**2)), {}
    for k in range(1200):
        a_k = a / (1 + a * k / 2)
        square = (1 - 2 * a_k) ** 2 * square + a_k**2 * 9 * 30 / 5
        expected[k + 1] = square
    for k in (50, 200, 1200):
        last = case.error(gs.DSGD(step_size=a), k, "last", graph)
        average = case.error(gs.DSGD(step_size=a), k, "average", graph)
        # 150 squares of normal numbers.
        assert last == pytest.approx(expected[k], rel=0.4)
        # What theory has for weights 1/a_k, without the start: 2 sigma^2 d/(m mu k).
        assert k * average < 2 * 9 * 30 / 5
        assert average < 1.2 * last
    assert expected[1200] < expected[50] / 10


@pytest.mark.slow
def test_for_mu_0_the_error_of_the_average_falls_like_1_over_the_root_of_k():
    case, graph = Noisy(5, 3, sigma=3.0, mu=0.0), gs.Graph.ring(5)
    errors = {k: case.error(gs.DSGD(), k, "average", graph) for k in (100, 400, 1600)}
    assert all(math.sqrt(k) * error / math.log(k) < 3 for k, error in errors.items()), errors
    assert errors[1600] < errors[100] / 2.5, errors


def test_with_steps_that_stay_it_stays_near_the_optimum():
    case, graph = Noisy(5, 3, sigma=3.0, mu=1.0), gs.Graph.ring(5)
    errors = [case.error(gs.DSGD(step_size=a, decay=0.0), 600, "last", graph) for a in (0.2, 0.02)]
    shrinking = case.error(gs.DSGD(step_size=0.2), 600, "last", graph)
    assert errors[0] > 3 * errors[1] > 3 * shrinking / 3
    assert errors[0] > 5 * shrinking


def has_rows(case):
    return case.problem.domain.euclidean and case.problem.loss.rows_per_agent is not None


@pytest.mark.first(4)
@pytest.mark.parametrize("seed", [seed for seed in range(12) if has_rows(random_case(seed))])
def test_it_comes_near_the_optimum_of_many_problems(seed):
    case = random_case(seed, (0.0, 0.3)[seed % 2])
    solution = gs.solve(case.problem, case.graph, gs.DSGD(batch=4), stop=gs.Stop(iterations=600), record_every=600)
    left = solution.history[-1].objective - case.reference.objective
    assert solution.output == "average"
    if case.problem.mu > 0:
        start = float(np.sum(case.problem.objective(case.x0)))
        assert left <= 0.15 * (start - case.reference.objective), case.label
    else:
        # |x_0 - x*|^2/(2 sum a_k) is theory's without noise; at least as much again for that.
        a = solution.parameters["step_size"]
        assert left <= 2 * case.reference.V(case.problem, case.x0) / (a * 2 * math.sqrt(600)), case.label


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_the_default_step_bears_samples_that_are_rougher_than_f(mu):
    """Single rows of 50 features: 1/(2 L) of f would drive x to infinity for mu > 0."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(5 * 100, 50))
    problem = gs.Problem(gs.losses.LeastSquares(features, features @ rng.normal(size=50), agents=5), mu=mu)
    graph, stop = gs.Graph.ring(5), gs.Stop(iterations=1000)
    start = float(np.sum(problem.objective(problem.start())))
    solution = gs.solve(problem, graph, gs.DSGD(), stop=stop, record_every=100)
    assert max(record.objective for record in solution.history) < 1.5 * start
    assert solution.history[-1].objective - reference(problem).objective < 0.5 * start
    if mu > 0:
        unsafe = gs.DSGD(step_size=1 / (2 * smoothness(problem)))
        assert gs.solve(problem, graph, unsafe, stop=stop, output="last").history[-1].objective > 100 * start


def signal(problem, batch, seed=0):
    """|g|^2/(|g|^2 + sigma^2/batch) from 16 samples per agent at x_0."""
    x = problem.start()
    one = np.array([[drawn_gradient(problem, i, x[i], seed, j, 1) for i in range(problem.m)] for j in range(16)])
    noise = float(np.sum(one.var(axis=0, ddof=1)))
    square = float(np.sum(one.mean(axis=0) ** 2))
    square = max(square - noise / 16, 0.1 * square)
    return square / (square + noise / batch)


@pytest.mark.parametrize("mu", [0.0, 0.5])
@pytest.mark.parametrize("batch", [1, 6])
def test_the_default_steps_come_from_16_samples_and_are_counted(mu, batch):
    graph, problem = gs.Graph.random(7, 3, seed=2), small_problem(3, gs.domains.Free(center=0.2), mu)
    h, longest = signal(problem, batch), 1 / (2 * smoothness(problem))
    method = gs.DSGD(batch=batch)
    solution = gs.solve(problem, graph, method, stop=gs.Stop(iterations=10))
    network = gs.network.Local(graph)
    assert solution.costs.samples == 16 + 10 * batch
    assert solution.costs.control_rounds == network.costs.control_rounds("max") + network.costs.control_rounds("sum")
    assert solution.parameters["step_size"] == pytest.approx(longest if mu == 0 else h * longest)
    a_k = [longest / math.sqrt(k + 1 / h**2) if mu == 0 else 1 / (1 / (h * longest) + mu * k / 2) for k in range(10)]
    states = iterates(problem, graph, method, gs.Stop(iterations=10))
    assert [state.samples for state in states] == [16 + batch * k for k in range(1, 11)], "none is used twice"
    weights = np.diff([0.0] + [state.weights for state in states])
    np.testing.assert_allclose(weights, a_k if mu == 0 else 1 / np.array(a_k), rtol=1e-9)
    constant = gs.solve(problem, graph, gs.DSGD(batch=batch, decay=0.0), stop=gs.Stop(iterations=1))
    assert constant.parameters["step_size"] == pytest.approx(h * longest)


def test_where_all_is_noise_a_tenth_of_the_mean_square_counts():
    """f_i = 0 with noise: |g|^2 would come out negative."""
    case = Noisy(5, 3, sigma=2.0, mu=0.0)
    quiet = gs.solve(case.problem, gs.Graph.ring(5), gs.DSGD(decay=0.0), stop=gs.Stop(iterations=1), x0=case.x)
    assert 0 < quiet.parameters["step_size"] < 0.5
    still = gs.Problem(
        gs.losses.Custom(
            gradient=lambda x: 0 * x,
            value=lambda x: 0 * x[:, 0],
            smoothness=0.0,
            sample_gradient=lambda x, batch, streams: 0 * x,
            agents=5,
            dimension=3,
        )
    )
    assert gs.solve(still, gs.Graph.ring(5), gs.DSGD(), stop=gs.Stop(iterations=1)).parameters == {"step_size": 0.5}


def test_an_iteration_takes_a_batch_and_one_exchange():
    graph, problem = gs.Graph.random(7, 3, seed=2), small_problem()
    solution = gs.solve(problem, graph, gs.DSGD(step_size=0.1, batch=4), stop=gs.Stop(iterations=10))
    assert [r.samples for r in solution.history] == [4 * k for k in range(1, 11)]
    assert [r.rounds for r in solution.history] == list(range(1, 11))
    costs = solution.costs
    assert (costs.gradients, costs.values, costs.control_rounds) == (0, 0, 0)
    assert costs.floats_sent == 10 * 2 * len(graph.edges) * 3


def test_a_stream_that_ends_leaves_what_was_reached():
    problem, graph = small_problem(), gs.Graph.ring(7)
    rng = np.random.default_rng(0)
    streams = [[(rng.normal(size=3), 1.0) for _ in range(9)] for _ in range(7)]
    method = gs.DSGD(step_size=0.1, batch=2, oracle=gs.oracles.Stream(streams))
    solution = gs.solve(problem, graph, method, stop=gs.Stop(iterations=50))
    assert solution.status is gs.Status.STREAM_ENDED
    assert (len(solution.history), solution.costs.samples, solution.costs.rounds) == (4, 8, 4)


def test_seeds_make_the_difference():
    problem, graph, stop = small_problem(), gs.Graph.ring(7), gs.Stop(iterations=5)
    runs = [gs.solve(problem, graph, gs.DSGD(step_size=0.1, seed=seed), stop=stop).x for seed in (0, 0, 1)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_a_run_that_goes_on_later_gives_the_same_bits(tmp_path):
    check_resume(gs.DSGD(batch=3), tmp_path, gs.domains.Box(-0.3, 0.4))
    check_norm_is_paid_for_once(gs.DSGD, tmp_path)


def test_states_can_be_kept_and_float32_stays():
    check_states(gs.DSGD(), gs.domains.Box(-0.3, 0.4))
    check_states(gs.DSGD(step_size=np.float64(0.01), decay=np.float64(0.5)))


def test_a_lone_agent_is_stochastic_gradient_descent():
    problem = small_problem(0, None, 1.0, m=1)
    solution = gs.solve(problem, gs.Graph.path(1), gs.DSGD(batch=8), stop=gs.Stop(iterations=1000), record_every=500)
    assert solution.history[-1].objective == pytest.approx(reference(problem).objective, rel=0.01)
    assert solution.costs.rounds == solution.costs.control_rounds == 0


def test_what_it_cannot_solve_is_refused():
    check_refusals(gs.DSGD)
    check_needs_euclidean(gs.DSGD())
    check_needs_common_domain(gs.DSGD())
    check_message(lambda: gs.DSGD(decay=-0.1), ["decay must be >= 0 and <= 1", "-0.1"])
    check_message(lambda: gs.DSGD(decay=1.5), ["decay", "1.5"])
    check_message(lambda: gs.DSGD(batch=0), ["batch must be a whole number >= 1", "0"])
    check_message(lambda: gs.DSGD(batch=1.5), ["batch", "1.5"])
    check_message(lambda: gs.DSGD(seed=-1), ["seed must be a whole number >= 0", "-1"])
    check_message(lambda: gs.DSGD(oracle=gs.oracles.WithReplacement), ["oracle must be one of gs.oracles", "the class"])
    check_message(lambda: gs.DSGD(oracle="rows"), ["oracle must be one of gs.oracles", "rows"])
