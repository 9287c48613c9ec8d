"""The survey, in which the agents learn the graph, against agents that flood their edges."""

import numpy as np
import pytest
from piggyback import GRAPH, GRAPHS, integers, loss_of

import gradslide as gs
from gradslide import network
from gradslide.network import Counted, delayed
from gradslide.network.central import Central
from gradslide.network.clock import Timeline
from gradslide.results.costs import Costs


def flooded_edges(graph):
    """Exchanges until all agents know all edges, and the numbers that were sent until nobody had news."""
    known = [{tuple(edge) for edge in graph.edges.tolist() if i in edge} for i in range(graph.m)]
    news, exchanges, numbers, needed = [set(edges) for edges in known], 0, 0, 0
    while any(news):
        inboxes = [set() for _ in range(graph.m)]
        for i, edges in enumerate(news):
            for j in graph.neighbours(i).tolist():
                inboxes[j] |= edges
                numbers += 2 * len(edges)
        exchanges += 1
        news = [inbox - edges for inbox, edges in zip(inboxes, known, strict=True)]
        if any(news):
            needed = exchanges
        for edges, new in zip(known, news, strict=True):
            edges |= new
    assert all(len(edges) == len(graph.edges) for edges in known)
    return needed, numbers


@pytest.mark.parametrize("name", GRAPHS)
def test_a_survey_is_flooding(name):
    graph, costs = GRAPHS[name], Costs()
    net = Counted(network.Lossy(graph, 0.3), costs)
    exchanges, numbers = flooded_edges(graph)
    rows = integers(graph.m)
    answer = net.survey(rows, lambda found, values: np.append(np.sum(values, axis=0), [found.m, len(found.edges)]))
    np.testing.assert_array_equal(answer, [*rows.sum(axis=0), graph.m, len(graph.edges)])
    radius = graph.radius_center()[1]
    assert costs.control_rounds == net.costs.survey_rounds == graph.diameter + radius
    links = 2 * len(graph.edges)
    assert numbers == links**2
    # The rows are flooded as the edges are, the answer passes once over every link of the tree.
    assert (
        costs.floats_sent
        == net.costs.survey_floats(rows, answer)
        == numbers + links * rows.size + (graph.m - 1) * len(answer)
    )
    assert exchanges <= graph.diameter
    assert costs.rounds == 0


def test_weights_are_part_of_what_is_learned():
    plain, weighted = (gs.Graph.from_edges(3, [(0, 1), (1, 2)], weights) for weights in (None, [1.0, 2.0]))
    nothing = np.zeros((3, 0))
    sizes = [network.Local(graph).costs.survey_floats(nothing, np.zeros(0)) for graph in (plain, weighted)]
    assert sizes == [4 * 4, 4 * 6]


def test_a_survey_takes_its_time_on_a_clock():
    graph, costs = gs.Graph.path(3), Costs()
    timeline = Timeline(gs.Clock(latency=0.5, bandwidth=8.0), graph, loss_of(3), costs)
    Counted(network.Local(graph), costs, timeline).survey(np.zeros((3, 0)), lambda found, values: np.zeros(6))
    # Three rounds; four numbers of eight bytes over each of four links, and six over the two of the tree.
    assert costs.simulated_seconds == pytest.approx(3 * 0.5 + 4 + 3, rel=1e-12)


def test_a_survey_moves_nothing_that_rides():
    net = Counted(network.Local(GRAPH), Costs())
    net.start_reduce(integers(GRAPH.m), "max")
    for _ in range(5):
        net.survey(integers(GRAPH.m), lambda graph, values: values[0])
        net.agree(integers(GRAPH.m), "sum")
    assert net.completed() == []


def test_a_slow_network_takes_longer_for_a_survey_and_not_for_piggybacked_reductions(monkeypatch):
    naps = []
    monkeypatch.setattr(delayed.time, "sleep", naps.append)
    slow = network.Delayed(GRAPH, 0.25)
    slow.start_reduce(integers(GRAPH.m), "sum")
    slow.completed()
    assert naps == []
    assert slow.survey(np.ones((GRAPH.m, 1)), lambda graph, values: np.array([graph.m + len(values)])) == 2 * GRAPH.m
    assert sum(naps) == 0.25 * slow.costs.survey_rounds > 0


def test_without_a_network_there_is_nothing_to_survey():
    rows = np.ones((3, 1))
    for ask in (
        lambda: Central(3).survey(rows, lambda graph, values: values),
        lambda: Central(3).costs.survey_rounds,
        lambda: Central(3).costs.survey_floats(rows, rows),
    ):
        with pytest.raises(gs.InputError, match="needs a network"):
            ask()
