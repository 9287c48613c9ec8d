"""CHOCO-SGD: iterate by iterate against agents that keep a copy of each neighbour, its rate, and what it sends."""

import dataclasses
import math

import numpy as np
import pytest
from baselines import (
    check_norm_is_paid_for_once,
    check_refusals,
    check_resume,
    check_states,
    metropolis,
    small_problem,
)
from error_messages import check_message
from paper_twins import iterates
from problems import least_squares

import gradslide as gs
from gradslide.network.compressors import Quantization, TopK
from gradslide.theory.reference import reference

EXACT = {"batch": 8, "oracle": gs.oracles.WithoutReplacement()}  # every row once: no noise


def gradient(problem, x):
    return problem.loss.gradient(x) + problem.mu * x


def naive(problem, graph, x, *, steps, gamma, compress):
    """Algorithm 2 of the paper: agent i keeps a copy xh_j of each neighbour j and of itself."""
    m, W = graph.m, metropolis(graph)
    copies = [{j: np.zeros(problem.d) for j in range(m) if W[i, j] > 0} for i in range(m)]
    for k, a in enumerate(steps):
        half = x - a * gradient(problem, x)
        sent = compress(half - np.array([copies[i][i] for i in range(m)]), k)
        for i in range(m):
            for j in copies[i]:
                copies[i][j] = copies[i][j] + sent[j]
        x = np.array(
            [half[i] + gamma * sum(W[i, j] * (copies[i][j] - copies[i][i]) for j in copies[i]) for i in range(m)]
        )
        yield x, np.array([copies[i][i] for i in range(m)])


def top(k):
    def compress(v, iteration):
        kept = np.zeros_like(v)
        for i, row in enumerate(v):
            for j in sorted(range(len(row)), key=lambda j: -abs(row[j]))[:k]:
                kept[i, j] = row[j]
        return kept

    return compress


def quantized(levels, seed):
    """Between the two nearest levels at random, then scaled by 1/(1 + variance)."""

    def compress(v, iteration):
        u = np.random.default_rng([seed, iteration]).random(v.shape)
        out = np.zeros_like(v)
        for i, row in enumerate(v):
            norm, d = np.linalg.norm(row), len(row)
            for j, entry in enumerate(row):
                level = math.floor(levels * abs(entry) / norm + u[i, j])
                out[i, j] = math.copysign(norm * level / levels, entry)
            out[i] /= 1 + min(d / levels**2, math.sqrt(d) / levels)
        return out

    return compress


COMPRESSORS = {
    "top 1": (TopK(k=1), top(1)),
    "top half": (TopK(share=0.5), top(3)),
    "quantized": (Quantization(levels=4), quantized(4, 7)),
}


@pytest.mark.covering
@pytest.mark.parametrize("mu", [0.0, 0.4])
@pytest.mark.parametrize("name", COMPRESSORS)
def test_iterates_agree_with_agents_that_keep_copies(name, mu):
    compressor, compress = COMPRESSORS[name]
    graph, problem = gs.Graph.random(7, 3, seed=2), small_problem(3, None, mu, d=5)
    x0 = np.random.default_rng(0).normal(size=(7, 5))
    a = 0.03
    steps = [a / math.sqrt(k + 1) if mu == 0 else 1 / (1 / a + mu * k / 2) for k in range(25)]
    method = gs.ChocoSGD(step_size=a, gamma=0.3, compressor=compressor, seed=7, **EXACT)
    states = iterates(problem, graph, method, gs.Stop(iterations=25), x0=x0)
    views = naive(problem, graph, x0, steps=steps, gamma=0.3, compress=compress)
    seen = []
    for state, (x, xh) in zip(states, views, strict=True):
        np.testing.assert_allclose(state.x, x, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(state.xh, xh, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(state.s, metropolis(graph) @ xh, rtol=1e-9, atol=1e-11)
        seen.append(x)
        weights = np.array(steps[: len(seen)]) if mu == 0 else 1 / np.array(steps[: len(seen)])
        average = method.output(state)["average"]
        np.testing.assert_allclose(average, np.average(seen, axis=0, weights=weights), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("compressor", [TopK(share=1.0), TopK(k=3)])
def test_without_compression_and_gamma_1_it_is_dsgd_that_steps_before_it_mixes(compressor):
    """x+ = W (x - a_k G(x)): the order of D-SGD turned round, with the same samples."""
    graph, problem = gs.Graph.random(7, 3, seed=2), small_problem(3, None, 0.4)
    method = gs.ChocoSGD(step_size=0.05, gamma=1.0, compressor=compressor, batch=2, seed=3)
    x, W, samples = np.zeros((7, 3)), metropolis(graph), 0
    sampler = method.oracle.open(problem.loss, range(7), 3)
    for k, state in enumerate(iterates(problem, graph, method, gs.Stop(iterations=20))):
        G = sampler.gradient(x, sampler.draw(samples, 2)) + 0.4 * x
        x, samples = W @ (x - G / (1 / 0.05 + 0.4 * k / 2)), samples + 2
        np.testing.assert_allclose(state.x, x, rtol=1e-9, atol=1e-12)


def test_one_step_is_the_same_as_that_of_dsgd_from_a_common_start():
    """W x_0 = x_0, and x_half of the first iteration is what D-SGD has after it."""
    graph, problem, stop = gs.Graph.ring(7), small_problem(3), gs.Stop(iterations=1)
    choco = gs.ChocoSGD(step_size=0.05, gamma=1.0, compressor=TopK(share=1.0), seed=3)
    one = gs.solve(problem, graph, choco, stop=stop).x
    other = gs.solve(problem, graph, gs.DSGD(step_size=0.05, seed=3), stop=stop).x
    np.testing.assert_allclose(one, metropolis(graph) @ other, atol=1e-14)


@pytest.mark.parametrize("graph", [gs.Graph.ring(7), gs.Graph.star(7), gs.Graph.complete(7)])
@pytest.mark.parametrize("compressor", [TopK(share=0.5), Quantization(levels=4)])
def test_gamma_is_that_of_the_theorem(graph, compressor):
    eigenvalues = np.linalg.eigvalsh(metropolis(graph))
    delta = 1 - np.sort(np.abs(eigenvalues))[-2]
    beta = np.linalg.norm(np.eye(7) - metropolis(graph), 2)
    omega = 3 / 5 if isinstance(compressor, TopK) else 1 / (1 + min(5 / 16, math.sqrt(5) / 4))
    gamma = delta**2 * omega / (16 * delta + delta**2 + 4 * beta**2 + 2 * delta * beta**2 - 8 * delta * omega)
    method = gs.ChocoSGD(step_size=0.1, compressor=compressor)
    solution = gs.solve(small_problem(d=5), graph, method, stop=gs.Stop(iterations=1))
    assert solution.parameters == {"step_size": 0.1, "gamma": pytest.approx(gamma)}


@pytest.mark.first(1)
@pytest.mark.parametrize("compressor", [TopK(k=1), Quantization(levels=4), Quantization(levels=1)])
def test_gossip_alone_agrees_on_the_mean_at_a_linear_rate(compressor):
    """Without gradients it is CHOCO-GOSSIP: 1 - delta^2 omega/82 per exchange, in squares, with the theorem's gamma."""
    graph = gs.Graph.complete(6)
    still = gs.Problem(
        gs.losses.Custom(
            gradient=lambda x: 0 * x,
            value=lambda x: 0 * x[:, 0],
            smoothness=1.0,
            sample_gradient=lambda x, batch, streams: 0 * x,
            agents=6,
            dimension=4,
        )
    )
    x0 = np.random.default_rng(0).normal(size=(6, 4))
    states = iterates(still, graph, gs.ChocoSGD(compressor=compressor), gs.Stop(iterations=1500), x0=x0)
    off = [np.sum((state.x - x0.mean(axis=0)) ** 2) + np.sum((state.x - state.xh) ** 2) for state in states]
    omega = compressor.quality(4)
    first = np.sum((x0 - x0.mean(axis=0)) ** 2) + np.sum(x0**2)
    assert all(error <= first * (1 - omega / 82) ** (k + 1) for k, error in enumerate(off))
    np.testing.assert_allclose(states[-1].x.mean(axis=0), x0.mean(axis=0), atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("compressor", [TopK(share=0.4), Quantization(levels=4)])
def test_for_mu_above_0_the_error_falls_like_1_over_k(compressor):
    problem = gs.Problem(least_squares(np.random.default_rng(1), 6, 5), mu=2.0)
    optimum, graph = reference(problem), gs.Graph.ring(6)
    errors = {}
    for iterations in (150, 1200):
        method = gs.ChocoSGD(compressor=compressor, gamma=0.3)
        left = []
        for seed in range(3):
            run = dataclasses.replace(method, seed=seed)
            stop = gs.Stop(iterations=iterations)
            solution = gs.solve(problem, graph, run, stop=stop, record_every=iterations)
            left.append(solution.history[-1].objective - optimum.objective)
        errors[iterations] = np.mean(left)
    assert errors[1200] < errors[150] / 4
    assert errors[1200] < 0.01 * np.sum(problem.objective(problem.start()))


def test_with_the_default_parameters_the_error_falls():
    problem = small_problem(1, None, 1.0, d=4)
    start = float(np.sum(problem.objective(problem.start())))
    solution = gs.solve(problem, gs.Graph.ring(7), gs.ChocoSGD(), stop=gs.Stop(iterations=1500), record_every=500)
    assert solution.output == "average"
    optimum = reference(problem).objective
    assert solution.history[-1].objective - optimum < 0.2 * (start - optimum)


@pytest.mark.parametrize(
    ("compressor", "floats"),
    [
        (TopK(k=4), 5),  # 4 (64 + 5)/64 = 4.3
        (TopK(share=0.25), 6),  # 5 (64 + 5)/64 = 5.4
        (TopK(share=1.0), 20),
        (Quantization(levels=16), 3),  # (64 + 20 * 6)/64 = 2.9
        (Quantization(levels=1), 2),  # (64 + 20 * 2)/64 = 1.6
    ],
)
def test_an_iteration_takes_a_batch_and_one_exchange_of_compressed_vectors(compressor, floats):
    graph, problem = gs.Graph.random(7, 3, seed=2), small_problem(d=20)
    method = gs.ChocoSGD(step_size=0.1, batch=4, compressor=compressor, gamma=0.1)
    solution = gs.solve(problem, graph, method, stop=gs.Stop(iterations=10))
    assert [r.samples for r in solution.history] == [4 * k for k in range(1, 11)]
    assert [r.rounds for r in solution.history] == list(range(1, 11))
    costs = solution.costs
    assert (costs.gradients, costs.values, costs.control_rounds) == (0, 0, 0)
    assert costs.floats_sent == 10 * 2 * len(graph.edges) * floats


def test_float32_has_fewer_bits_to_send():
    rng = np.random.default_rng(0)
    loss = gs.losses.LeastSquares(
        rng.normal(size=(21, 20)).astype(np.float32), rng.normal(size=21).astype(np.float32), agents=7
    )
    graph = gs.Graph.ring(7)
    solution = gs.solve(gs.Problem(loss), graph, gs.ChocoSGD(step_size=0.01), stop=gs.Stop(iterations=2))
    assert solution.costs.floats_sent == 2 * 14 * math.ceil((32 + 20 * 6) / 32)
    assert solution.x.dtype == np.float32


def test_the_invariant_adds_up_to_zero_in_units_of_the_gradient():
    graph, problem = gs.Graph.random(7, 3, seed=2), small_problem(2, None, 0.2)
    method = gs.ChocoSGD(step_size=0.05, gamma=0.4, decay=0.0, **EXACT)
    for state in iterates(problem, graph, method, gs.Stop(iterations=400)):
        rows = method.invariant(state)
        assert np.max(np.abs(rows.sum(axis=0))) <= 1e-12 * np.abs(rows).sum() + 1e-12
    # At rest the pull of the neighbours is what the gradient takes: x = x - a g + gamma (s - xh).
    np.testing.assert_allclose(rows, gradient(problem, state.x), atol=1e-6)


def test_a_run_that_goes_on_later_gives_the_same_bits(tmp_path):
    check_resume(gs.ChocoSGD(batch=3), tmp_path)
    check_norm_is_paid_for_once(gs.ChocoSGD, tmp_path)


def test_states_can_be_kept_and_float32_stays():
    check_states(gs.ChocoSGD(gamma=np.float64(0.2)))
    check_states(gs.ChocoSGD(compressor=TopK(k=2), step_size=np.float64(0.01)))


def test_the_seed_is_also_that_of_the_compressor():
    problem, graph, stop = small_problem(), gs.Graph.ring(7), gs.Stop(iterations=3)
    runs = [gs.solve(problem, graph, gs.ChocoSGD(step_size=0.1, seed=seed, **EXACT), stop=stop).x for seed in (0, 0, 1)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_a_lone_agent_is_stochastic_gradient_descent():
    problem, stop = small_problem(0, None, 1.0, m=1), gs.Stop(iterations=200)
    solution = gs.solve(problem, gs.Graph.path(1), gs.ChocoSGD(step_size=0.05, seed=2), stop=stop)
    same = gs.solve(problem, gs.Graph.path(1), gs.DSGD(step_size=0.05, seed=2), stop=stop)
    np.testing.assert_allclose(solution.x, same.x, rtol=1e-9, atol=1e-12)
    assert solution.costs.rounds == solution.costs.control_rounds == solution.costs.floats_sent == 0


def test_what_it_cannot_solve_is_refused():
    check_refusals(gs.ChocoSGD)
    graph = gs.Graph.ring(7)
    for domain in (gs.domains.Box(-1, 1), gs.domains.L2Ball(5.0), gs.domains.Free(penalty=gs.L1(0.1))):
        problem = small_problem(domain=domain)
        words = ["ChocoSGD needs X = R^d and no penalty", "Problem("]
        check_message(lambda problem=problem: gs.solve(problem, graph, gs.ChocoSGD()), words)
    problem = small_problem(domain=gs.domains.EntropySimplex())
    check_message(lambda: gs.solve(problem, graph, gs.ChocoSGD()), ["ChocoSGD needs a Euclidean domain"])
    for gamma in (0.0, -0.1, 1.1, math.nan, "1"):
        check_message(lambda gamma=gamma: gs.ChocoSGD(gamma=gamma), ["gamma must be > 0 and <= 1", repr(gamma)])
    check_message(lambda: gs.ChocoSGD(compressor=TopK), ["compressor must be one of gs.compressors", "the class TopK"])
    check_message(lambda: gs.ChocoSGD(compressor="top"), ["compressor must be one of gs.compressors", "'top'"])
    check_message(lambda: gs.ChocoSGD(batch=0), ["batch must be a whole number >= 1"])
