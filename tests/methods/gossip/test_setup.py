"""What auto mode finds out before its first iteration."""

import math

import numpy as np
import pytest
from auto_twins import followed, opened
from baselines import small_problem

import gradslide as gs


def test_a_linear_loss_gets_a_first_L_that_moves_x_by_about_1():
    c, graph = np.random.default_rng(2).normal(size=(7, 3)), gs.Graph.ring(7)
    problem, sizes = gs.Problem(gs.losses.Linear(c), gs.domains.L2Ball(0.4)), np.linalg.norm(c, axis=1)
    values = np.linalg.eigvalsh(graph.laplacian.toarray())
    spectrum = (values[1], values[-1] + 1e-9)
    mean = math.sqrt(np.mean(sizes**2))
    for given, L in (
        ({}, mean),
        ({"spectrum": spectrum}, mean),
        ({"spectrum": spectrum, "agreement": "none"}, sizes.max()),
    ):
        assert opened(problem, graph, gs.AutoPDS(**given))[1].smoothness.L == pytest.approx(L, rel=1e-12)


@pytest.mark.parametrize("inner", ["own", "sliding"])
def test_the_first_L_is_looked_for_within_X(inner):
    asked = []

    def gradient(x):
        asked.append(x.copy())
        return x + 1

    problem = gs.Problem(gs.losses.Custom(gradient=gradient, agents=5, dimension=2), gs.domains.Box(0.0, 1.0))
    gs.solve(problem, gs.Graph.ring(5), gs.AutoPDS(inner=inner), x0=np.full((5, 2), 2e-4), stop=gs.Stop(iterations=3))
    assert min(x.min() for x in asked) >= 0


def test_without_sums_and_with_a_spectrum_the_first_L_is_a_maximum():
    problem, graph = small_problem(2, None, 0.05), gs.Graph.star(7)
    context, state = opened(problem, graph, gs.AutoPDS(agreement="none", spectrum=(1.0, 7.0)))
    x = context.x0
    y = problem.loss.gradient(x)
    e = -1e-3 * y / np.linalg.norm(y, axis=1, keepdims=True)
    change = problem.loss.gradient(x + e) + problem.mu * e - y
    assert state.smoothness.L == pytest.approx(np.max(np.linalg.norm(change, axis=1)) / 1e-3, rel=1e-6)


def test_the_first_L_of_sliding_is_measured_in_the_norm_of_nu():
    problem, graph = small_problem(5, gs.domains.EntropySimplex(), 0.1), gs.Graph.ring(7)
    context, state = opened(problem, graph, gs.AutoPDS(agreement="exact"))
    x = context.x0
    y = problem.loss.gradient(x)
    size = np.linalg.norm(y, axis=1)
    near = problem.domain.project(x - 1e-3 * y / size[:, None])
    change = np.abs(problem.loss.gradient(near) - y).max(axis=1)
    move = np.abs(near - x).sum(axis=1)
    expected = np.linalg.norm(size * change) / np.linalg.norm(size * move)
    assert state.smoothness.L == pytest.approx(expected, rel=1e-6)


def test_cheap_gradients_do_not_slacken_consensus():
    """A balance below 1 is as 1: R is for expensive gradients."""
    problem, graph = small_problem(3, gs.domains.EntropySimplex(), 0.05), gs.Graph.ring(7)
    found = [
        [s.tuning.R for s in followed(problem, graph, gs.AutoPDS(agreement="exact", balance=balance), 60)[0]]
        for balance in (0.01, 1.0)
    ]
    assert found[0] == found[1]
    assert len(set(found[0])) > 1


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
