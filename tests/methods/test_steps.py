"""What methods find out about the sets of all agents before they start."""

import numpy as np
import pytest

import gradslide as gs
from gradslide._support.errors import InputError


def towards(target):
    """Each agent wants to be at the target."""
    return gs.losses.LeastSquares(np.eye(3), np.asarray(target, dtype=float), agents=1)


@pytest.mark.parametrize("seed", range(12))
def test_no_halfspace_is_taken_for_the_whole_space(seed):
    """Whatever its direction: some hold every point of a small sample."""
    a = np.random.default_rng(seed).normal(size=3)
    problem = gs.Problem(towards(5 * a), gs.domains.Halfspace(a, 1.0))
    for method in (None, gs.AutoPDS(), gs.PDS()):
        solution = gs.solve(problem, gs.Graph.from_edges(1, []), method, stop=gs.Stop(iterations=100))
        assert a @ solution.x[0] <= 1.0 + 1e-9


def test_a_set_beyond_all_measure_still_bounds():
    problem = gs.Problem(towards([1e9, 0.0, 0.0]), gs.domains.L2Ball(1e8))
    solution = gs.solve(problem, gs.Graph.from_edges(1, []), stop=gs.Stop(iterations=100))
    np.testing.assert_allclose(solution.x, [[1e8, 0.0, 0.0]], rtol=1e-6, atol=1e2)


def test_different_halfspaces_are_not_taken_for_one():
    a = np.eye(3)[:2]
    X = gs.domains.PerAgent([gs.domains.Halfspace(a[0], 1.0), gs.domains.Halfspace(-a[0], 1.0)])
    loss = gs.losses.stack([towards([5.0, 0.0, 0.0]), towards([5.0, 0.0, 0.0])])
    solution = gs.solve(gs.Problem(loss, X), gs.Graph.path(2), stop=gs.Stop(iterations=500))
    np.testing.assert_allclose(solution.x[:, 0], 1.0, atol=1e-3)
    with pytest.raises(InputError, match="DualAveraging needs the same X"):
        gs.solve(gs.Problem(loss, X), gs.Graph.path(2), gs.DualAveraging(), stop=gs.Stop(iterations=5))
