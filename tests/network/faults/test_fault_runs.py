"""Methods on networks that misbehave: where they still converge, what is counted, and runs that go on later."""

import warnings

import numpy as np
import pytest
from error_messages import check_message
from problems import logistic

import gradslide as gs
from gradslide.theory.reference import reference

network = gs.network
GRAPH = gs.Graph.random(10, 4, seed=0)
PROBLEM = gs.Problem(logistic(np.random.default_rng(0), 10, 3), mu=0.1)
OPTIMUM = reference(PROBLEM).x


def halves(graph):
    return [graph.edges[::2], graph.edges[1::2]] if graph.m > 2 else [graph.edges, []]


BOTH_WAYS = {
    "lossy": lambda graph: network.Lossy(graph, 0.2),
    "bursty": lambda graph: network.Bursty(graph, 0.2),
    "sleeping": lambda graph: network.Sleeping(graph, 0.2),
    "varying": lambda graph: network.Varying(graph),
    "in turn": lambda inner: network.Varying(inner, graphs=halves(getattr(inner, "graph", inner))),
    "several": lambda graph: network.Lossy(network.Sleeping(network.Varying(graph, up=0.9), 0.1), 0.1),
}
ONE_WAY = {
    "lossy each": lambda graph: network.Lossy(graph, 0.2, direction="each"),
    "bursty each": lambda graph: network.Bursty(graph, 0.2, direction="each"),
    "stragglers": lambda graph: network.Stragglers(graph, 0.2),
}
MESSAGES = {
    "noisy": lambda graph: network.Noisy(graph, 0.01),
    "compressed": lambda graph: network.Compressed(graph, gs.compressors.Quantization(levels=4)),
    "all at once": lambda graph: network.Bursty(
        network.Lossy(network.Noisy(network.Compressed(graph, gs.compressors.TopK(k=2)), 0.01), 0.1), 0.1
    ),
}
ALL = BOTH_WAYS | ONE_WAY | MESSAGES
METHODS = {"PDS": gs.PDS(R=0.3), "NIDS": gs.NIDS(), "CondatVu": gs.CondatVu(coupling="laplacian")}


def solve(condition, method, iterations, problem=PROBLEM, **options):
    """Whether solve warns that an invariant is broken is none of our business here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*invariant", category=RuntimeWarning)
        stop = gs.Stop(iterations=iterations)
        return gs.solve(problem, condition, method, stop=stop, record_every=iterations, **options)


def error(solution):
    """How far the agents are from the optimum at most."""
    return float(np.abs(solution.x - OPTIMUM).max())


@pytest.mark.first(3)
@pytest.mark.parametrize("name", BOTH_WAYS)
def test_methods_converge_where_links_fail_in_both_directions(name):
    condition = BOTH_WAYS[name](GRAPH)
    assert error(solve(condition, gs.NIDS(), 400)) < 1e-7
    assert error(solve(condition, gs.CondatVu(), 600, output="last")) < 1e-7
    early, late = (error(solve(condition, gs.PDS(), iterations)) for iterations in (20, 120))
    assert late < early / 4
    assert late < 2e-3


@pytest.mark.first(1)
@pytest.mark.parametrize("name", ONE_WAY)
def test_methods_miss_the_optimum_where_one_direction_fails_alone(name):
    """They agree, and on the wrong point: the true error stays where it is however long they run."""
    for method, iterations in ((gs.NIDS(), 400), (gs.PDS(), 120)):
        good, bad = (solve(each, method, iterations) for each in (GRAPH, ONE_WAY[name](GRAPH)))
        assert error(good) < 2e-3
        assert error(bad) > 5e-3
        assert error(bad) > 10 * error(good)
    assert np.ptp(solve(ONE_WAY[name](GRAPH), gs.NIDS(), 1000).x, axis=0).max() < 1e-7


def test_noise_leaves_an_error_in_proportion():
    coarse, fine = (error(solve(network.Noisy(GRAPH, sigma), gs.NIDS(), 300)) for sigma in (1e-2, 1e-4))
    assert error(solve(GRAPH, gs.NIDS(), 300)) < 1e-7
    assert 1e-5 < fine < 1e-2
    assert coarse == pytest.approx(100 * fine, rel=0.3)


@pytest.mark.covering
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ALL)
def test_two_runs_over_one_network_are_alike(name, method):
    condition = ALL[name](GRAPH)
    first, second = (solve(condition, METHODS[method], 12) for _ in range(2))
    np.testing.assert_array_equal(first.x, second.x)
    assert first.costs.rounds == second.costs.rounds
    fresh = solve(ALL[name](GRAPH), METHODS[method], 12)
    np.testing.assert_array_equal(fresh.x, first.x)
    assert np.abs(first.x - solve(GRAPH, METHODS[method], 12).x).max() > 1e-6
    assert first.settings["network"] == repr(condition)


def test_another_seed_is_another_run():
    one, other = (solve(network.Lossy(GRAPH, 0.2, seed=seed), gs.NIDS(), 12) for seed in (0, 1))
    assert np.abs(one.x - other.x).max() > 1e-6


@pytest.mark.parametrize("name", ALL)
def test_costs_are_those_of_a_network_where_all_arrives(name):
    plain = solve(network.Local(GRAPH, exact_norm=False), METHODS["PDS"], 12).costs
    costs = solve(ALL[name](network.Local(GRAPH, exact_norm=False)), METHODS["PDS"], 12).costs
    assert costs.rounds == plain.rounds > 12
    assert costs.control_rounds == plain.control_rounds > 0
    assert costs.gradients == plain.gradients
    per_message = {"compressed": gs.compressors.Quantization(levels=4).floats(PROBLEM.start())}.get(name, 3)
    assert costs.floats_sent == costs.rounds * 2 * len(GRAPH.edges) * per_message
    assert plain.floats_sent == plain.rounds * 2 * len(GRAPH.edges) * 3


@pytest.mark.covering
@pytest.mark.parametrize("method", ["PDS", "NIDS"])
@pytest.mark.parametrize("name", ALL)
def test_a_run_that_goes_on_later_gives_the_same_bits(name, method, tmp_path):
    path = tmp_path / "run.npz"
    whole = solve(ALL[name](GRAPH), METHODS[method], 20)
    solve(ALL[name](GRAPH), METHODS[method], 9, checkpoint=path)
    resumed = solve(ALL[name](GRAPH), METHODS[method], 20, checkpoint=path)
    np.testing.assert_array_equal(resumed.x, whole.x)
    assert resumed.costs.rounds == whole.costs.rounds
    assert resumed.costs.floats_sent == whole.costs.floats_sent


def test_a_checkpoint_belongs_to_its_conditions(tmp_path):
    path = tmp_path / "run.npz"
    solve(network.Lossy(GRAPH, 0.2), gs.NIDS(), 5, checkpoint=path)
    for other in (network.Lossy(GRAPH, 0.2, seed=1), network.Lossy(GRAPH, 0.3), network.Bursty(GRAPH, 0.2), GRAPH):
        check_message(
            lambda network=other: solve(network, gs.NIDS(), 10, checkpoint=path), ["must belong to this run", "network"]
        )


@pytest.mark.covering
@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("name", BOTH_WAYS | MESSAGES)
def test_one_agent_and_two(name, m):
    problem = gs.Problem(logistic(np.random.default_rng(1), m, 3), mu=0.1)
    solution = solve(ALL[name](gs.Graph.path(m)), gs.NIDS(), 300, problem)
    assert np.isfinite(solution.x).all()
    if m == 1 or name in BOTH_WAYS:
        np.testing.assert_allclose(solution.x, np.tile(reference(problem).x, (m, 1)), atol=1e-6)
    assert solution.costs.rounds == (0 if m == 1 else 299)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ALL)
def test_single_precision_stays_single(name, method):
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(80, 3)).astype(np.float32), rng.choice([-1, 1], size=80)
    problem = gs.Problem(gs.losses.Logistic(features, labels, agents=10), mu=0.1)
    solution = solve(ALL[name](GRAPH), METHODS[method], 5, problem)
    assert solution.x.dtype == np.float32
    assert np.isfinite(solution.x).all()
