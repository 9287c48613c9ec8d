"""Exact sums over the tree: results, rounds, floats and simulated time on every kind of network."""

import math

import numpy as np
import pytest
from peers_agents import GRAPH, all_well, together

import gradslide as gs
from gradslide.network.faults.fault import Fault

ROWS = np.random.default_rng(0).normal(size=(GRAPH.m, 3)) * [1.0, 1e-8, 1e8]
RADIUS = GRAPH.radius_center()[1]


def counted(network):
    costs = gs.Costs()
    return gs.network.Counted(network, costs), costs


def test_a_total_is_the_sum_and_costs_vectors_up_and_down_the_tree():
    network, costs = counted(gs.network.Local(GRAPH))
    np.testing.assert_allclose(network.total(ROWS), [math.fsum(column) for column in ROWS.T], rtol=1e-15)
    assert (costs.rounds, costs.control_rounds) == (2 * RADIUS, 0)
    assert costs.floats_sent == 2 * (GRAPH.m - 1) * 3


def test_rows_may_be_sums_over_several_agents_already():
    network = gs.network.Local(GRAPH)
    np.testing.assert_allclose(network.total(ROWS.sum(axis=0, keepdims=True)), network.total(ROWS), rtol=1e-13)


def test_single_precision_is_summed_in_double_precision():
    found = gs.network.Local(GRAPH).total(ROWS.astype(np.float32))
    assert found.dtype == np.float64


def test_a_relay_sends_the_answer_of_the_root_down():
    network, costs = counted(gs.network.Local(GRAPH))
    answer = network.relay(ROWS, lambda total: np.append(total, 7.0), 4)
    np.testing.assert_allclose(answer, [*ROWS.sum(axis=0), 7.0], rtol=1e-12)
    assert costs.rounds == 2 * RADIUS
    assert costs.floats_sent == (GRAPH.m - 1) * (3 + 4)


def test_the_clock_charges_latency_and_bandwidth():
    costs = gs.Costs()
    loss = gs.losses.Linear(ROWS)
    timeline = gs.network.clock.Timeline(gs.Clock(latency=1.0, bandwidth=8.0), GRAPH, loss, costs)
    network = gs.network.Counted(gs.network.Local(GRAPH), costs, timeline)
    network.relay(ROWS, lambda total: total[:1], 1)
    assert costs.simulated_seconds == pytest.approx(RADIUS * (1 + 3) + RADIUS * (1 + 1))


def test_piggybacked_reductions_travel_with_them():
    network = gs.network.Local(GRAPH)
    network.start_reduce(np.ones((GRAPH.m, 1)), "sum")
    assert network.completed() == []
    network.total(ROWS)
    assert [each.tolist() for each in network.completed()] == [[GRAPH.m]]


FAULTS = {
    "lossy": lambda network: gs.network.Lossy(network, 0.1),
    "noisy": lambda network: gs.network.Noisy(network, 0.1),
    "compressed": lambda network: gs.network.Compressed(network, gs.compressors.TopK(k=2)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_unreliable_networks_refuse(name):
    network = FAULTS[name](gs.network.Local(GRAPH))
    assert isinstance(network, Fault)
    assert not network.is_reliable
    assert not gs.network.Counted(network, gs.Costs()).is_reliable
    for attempt in (lambda: network.total(ROWS), lambda: network.relay(ROWS, lambda total: total, 3)):
        with pytest.raises(gs.InputError, match="exact sums need a network on which every message arrives"):
            attempt()


def test_delays_count_every_round(monkeypatch):
    slept = []
    monkeypatch.setattr("time.sleep", slept.append)
    network = gs.network.Delayed(gs.network.Local(GRAPH), 0.5)
    network.total(ROWS)
    network.relay(ROWS, lambda total: total, 3)
    assert slept == [0.5 * 2 * RADIUS] * 2


def test_peers_have_the_same_bits_and_the_root_alone_computes():
    """A sum over the tree may differ from the exact one by rounding."""
    computed = []

    def act(i, network):
        def solve(total):
            computed.append(i)
            return np.append(total, 1.0)

        own = ROWS[list(network.agents)]
        return np.concatenate([network.total(own), network.relay(own, solve, 4)])

    results = all_well(together(GRAPH, act))
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])
    np.testing.assert_allclose(results[0], [*ROWS.sum(axis=0), *ROWS.sum(axis=0), 1.0], rtol=1e-12)
    assert computed == [GRAPH.radius_center()[0]]


def test_peers_pass_on_what_is_not_finite():
    rows = np.where(np.arange(GRAPH.m)[:, None] == 3, [np.inf, np.nan, 1.0], 1.0)
    results = all_well(together(GRAPH, lambda i, network: network.total(rows[list(network.agents)])))
    for result in results:
        assert result[0] == math.inf
        assert math.isnan(result[1])
        assert result[2] == GRAPH.m
