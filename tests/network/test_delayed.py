"""The simulated slow network: what is waited for, and what is not."""

import numpy as np
import pytest
from five_agents import GRAPHS, small_problem

import gradslide as gs
from gradslide.network import delayed


@pytest.fixture
def naps(monkeypatch):
    """The seconds of every nap, none of which is taken."""
    taken = []
    monkeypatch.setattr(delayed.time, "sleep", taken.append)
    return taken


def test_every_exchange_and_control_round_takes_longer_and_observations_do_not(naps):
    graph, few = GRAPHS["ring"], gs.Stop(iterations=5)
    network = gs.network.Delayed(gs.network.Local(graph, exact_norm=False), 0.25)
    solution = gs.solve(small_problem(), network, gs.PDS(), stop=few)
    costs = solution.costs
    assert sum(naps) == pytest.approx(0.25 * (costs.rounds + costs.control_rounds))
    assert costs.rounds >= 5
    assert costs.control_rounds > 0
    plain = gs.solve(small_problem(), gs.network.Local(graph, exact_norm=False), gs.PDS(), stop=few)
    np.testing.assert_array_equal(solution.x, plain.x)
    assert costs.rounds == plain.costs.rounds


def test_a_graph_will_do_for_a_network(naps):
    network = gs.network.Delayed(GRAPHS["star"], 0.5)
    solution = gs.solve(small_problem(), network, gs.NIDS(), stop=gs.Stop(iterations=2))
    assert solution.status is gs.Status.ITERATION_LIMIT
    assert set(naps) >= {0.5}


@pytest.mark.parametrize(
    ("network", "seconds", "words"),
    [
        (GRAPHS["ring"], -1, "seconds must be >= 0"),
        (GRAPHS["ring"], "1", "seconds"),
        (5, 0.1, "needs a network; got int 5"),
    ],
)
def test_mistakes_are_refused(network, seconds, words):
    with pytest.raises(gs.InputError, match=words):
        gs.network.Delayed(network, seconds)
