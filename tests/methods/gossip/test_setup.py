"""Scores by agent."""

import numpy as np
import pytest

import gradslide as gs
from gradslide.methods.gossip.setup import ScoreRows


@pytest.mark.parametrize("rest", [(), (3,)])
@pytest.mark.parametrize(("sizes", "most"), [((4, 4), 4), ((2, 5, 1), 5), ((2, 2), 7)])
def test_scores_by_agent_and_back(sizes, most, rest):
    scores = np.random.default_rng(0).normal(size=(sum(sizes), *rest))
    rows = ScoreRows(np.array(sizes), most, np.zeros(1))
    by_agent = rows.by_agent(scores)
    assert by_agent.shape == (len(sizes), most, *rest)
    np.testing.assert_array_equal(by_agent[1, : sizes[1]], scores[sizes[0] : sizes[0] + sizes[1]])
    assert not by_agent[0, sizes[0] :].any()
    np.testing.assert_array_equal(rows.flat(by_agent), scores)


def test_a_run_with_sites_of_different_sizes_goes_on_from_a_checkpoint_to_the_bit(tmp_path):
    rng, sizes = np.random.default_rng(1), [3, 40, 11, 7]
    features, splits = rng.normal(size=(sum(sizes), 5)), np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    loss = gs.losses.Logistic(features, np.where(rng.random(len(features)) < 0.5, 1, -1), splits=splits)
    problem, graph, path = gs.Problem(loss, mu=0.01), gs.Graph.ring(4), tmp_path / "run.npz"
    whole = gs.solve(problem, graph, gs.AutoPDS(), stop=gs.Stop(iterations=30))
    gs.solve(problem, graph, gs.AutoPDS(), stop=gs.Stop(iterations=17), checkpoint=path)
    rest = gs.solve(problem, graph, gs.AutoPDS(), stop=gs.Stop(iterations=30), checkpoint=path)
    np.testing.assert_array_equal(rest.x, whole.x)
    assert rest.costs.values == whole.costs.values
