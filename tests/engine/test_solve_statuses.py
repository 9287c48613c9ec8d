"""Statuses claim no more than was verified."""

import time

import numpy as np
import pytest

import gradslide as gs
from gradslide.results.status import REACHED

TARGETS = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5], [-2.0, 4.0]])


def quadratic(scale=1.0, shift=0.0, sign=1.0, **options):
    """Half the squared distances from four points, with a gradient that may be another function's."""

    def value(x):
        return 0.5 * np.sum((x - TARGETS) ** 2, axis=-1)

    def gradient(x):
        return sign * scale * (x - TARGETS) + shift

    return gs.losses.Custom(value=value, gradient=gradient, agents=4, dimension=2, smoothness=1.0, **options)


def program(seed=0):
    """A quadratic program with an equality and no box."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(3, 8))
    loss = gs.losses.Quadratic(np.eye(8)[None], rng.normal(size=(1, 8)))
    return gs.LinearlyConstrained(loss, A, A @ rng.normal(size=8))


def test_feasible_is_not_optimal():
    solution = gs.solve(program(), stop=gs.Stop(residual=1e-3, gradients=2000))
    assert solution.status is gs.Status.FEASIBLE
    assert solution.status.fulfils(has_targets=True)
    assert "optimal" in solution.status.value


@pytest.mark.parametrize(
    "stop", [gs.Stop(disagreement=1.0), gs.Stop(residual=1.0), gs.Stop(residual=1.0, disagreement=1.0)]
)
def test_agreement_is_not_optimality(stop):
    solution = gs.solve(gs.Problem(quadratic()), gs.Graph.ring(4), gs.PDS(L=1.0, R=1.0), stop=stop)
    assert solution.status is gs.Status.FEASIBLE


def test_with_a_target_on_the_objective_it_has_converged():
    stop = gs.Stop(residual=1e-3, objective=1e6, gradients=2000)
    assert gs.solve(program(), stop=stop).status is gs.Status.CONVERGED
    assert {gs.Status.CONVERGED, gs.Status.FEASIBLE} == REACHED


def test_a_run_that_ends_far_above_its_start_has_diverged():
    stop = gs.Stop(iterations=200)
    problem = gs.Problem(quadratic(scale=3.0))
    solution = gs.solve(problem, gs.Graph.ring(4), gs.NIDS(step_size=1.0), stop=stop, check_loss=False)
    assert solution.history[-1].objective > 1e10
    assert solution.status is gs.Status.DIVERGED


def test_a_start_at_the_optimum_is_no_divergence():
    """The objective there is 0: any rounding is above it."""
    loss = gs.losses.LeastSquares(np.eye(4), np.zeros(4), agents=4)
    for method in (gs.PDS(L=1.0, R=1.0), gs.NIDS(step_size=0.5)):
        solution = gs.solve(gs.Problem(loss), gs.Graph.ring(4), method, stop=gs.Stop(iterations=50))
        assert solution.status is not gs.Status.DIVERGED


def test_bounds_that_contradict_each_other_are_a_status():
    """With the wrong sign the lower bound lies above the objective."""
    problem = gs.Problem(quadratic(sign=-1.0), gs.domains.L2Ball(10.0))
    with pytest.warns(RuntimeWarning, match="lower bound"):
        solution = gs.solve(problem, gs.Graph.ring(4), check_loss=False)
    assert solution.status is gs.Status.CONTRADICTORY
    assert not solution.status.fulfils(has_targets=True)
    assert not solution.status.fulfils(has_targets=False)


def test_seconds_are_wall_time(monkeypatch):
    """Also those that observations take, of which there are fewer then."""
    from gradslide.engine.observers import NetworkObserver

    metrics = NetworkObserver.metrics

    def slow(self, *arguments):
        time.sleep(0.05)
        return metrics(self, *arguments)

    monkeypatch.setattr(NetworkObserver, "metrics", slow)
    problem = gs.Problem(gs.losses.LeastSquares(np.eye(4), np.arange(4.0), agents=4))
    began = time.perf_counter()
    solution = gs.solve(problem, gs.Graph.ring(4), gs.NIDS(step_size=0.01), stop=gs.Stop(seconds=1.0))
    took = time.perf_counter() - began
    assert solution.status is gs.Status.TIME_LIMIT
    # What is left after the limit: one record of the last iteration.
    assert 1.0 <= took
    assert len(solution.history) * 0.05 < 0.5 * took
    assert solution.history[-1].iteration > len(solution.history)
