"""Sizes that a laptop should carry."""

import numpy as np
import pytest

import gradslide as gs


def test_10_000_agents_in_100_dimensions():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(20_000, 100)).astype(np.float32)
    labels = np.where(features @ rng.normal(size=100) > 0, 1, -1)
    problem = gs.Problem(gs.losses.Logistic(features, labels, agents=10_000), gs.domains.L2Ball(1.0))
    solution = gs.solve(problem, gs.Graph.random(10_000, 6, seed=0), gs.PDS(R=1.0), stop=gs.Stop(iterations=3))
    assert solution.x.shape == (10_000, 100)
    assert solution.x.dtype == np.float32
    assert solution.history[-1].objective < float(np.log(2)) * 20_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "graph",
    [
        lambda: gs.Graph.random(100_000, 6, seed=0),
        # The last exchanges mix over the whole ring: they are as many as it has agents.
        lambda: gs.Graph.ring(10_000),
        lambda: gs.Graph.grid(316, 316),
    ],
)
def test_runs_over_many_agents(graph):
    network = graph()
    d = 10
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(network.m, d))
    loss = gs.losses.Quadratic(np.broadcast_to(np.eye(d), (network.m, d, d)), -centres)
    solution = gs.solve(gs.Problem(loss), network, gs.AutoPDS(), stop=gs.Stop(iterations=5))
    # One at the start, and one in each outer iteration.
    assert solution.costs.gradients == 6
    np.testing.assert_allclose(solution.mean, centres.mean(axis=0), atol=0.05)
    exact = gs.solve(gs.Problem(loss), network)
    assert exact.costs.gradients == 2
    np.testing.assert_allclose(exact.mean, centres.mean(axis=0), atol=1e-9)
