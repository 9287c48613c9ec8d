"""Which output a run returns: the one asked for, else any that reaches the targets."""

import numpy as np
import pytest

import gradslide as gs


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    loss = gs.losses.Quadratic(np.diag(np.linspace(1, 4, 10)), rng.normal(size=10))
    A = np.linalg.qr(rng.normal(size=(10, 3)))[0].T
    return gs.LinearlyConstrained(loss, A, A @ rng.uniform(-0.5, 0.5, size=10), gs.domains.Box(-1, 1))


def test_the_output_that_reaches_the_targets_first_is_returned(problem):
    solution = gs.solve(problem, method=gs.PDS())
    assert solution.status is gs.Status.CONVERGED
    assert solution.output == "last"
    np.testing.assert_array_equal(solution.x, solution.outputs["last"])
    last = solution.history[-1]
    assert last.objective == solution.certificate.upper == pytest.approx(float(problem.objective(solution.x)[0]))
    assert last.residual == solution.certificate.residual
    iterations = [record.iteration for record in solution.history]
    assert iterations == list(range(1, len(iterations) + 1))
    # The multipliers are those of the last iteration too: they fulfil what the average's do not yet.
    average = gs.solve(problem, method=gs.PDS(), output="average", stop=gs.Stop(iterations=last.iteration))
    assert not np.array_equal(solution.dual, average.dual)


def test_an_output_that_was_asked_for_is_kept(problem):
    quick = gs.solve(problem, method=gs.PDS())
    stop = gs.Stop(gap=gs.Relative(1e-4), residual=gs.Relative(1e-4), iterations=400)
    slow = gs.solve(problem, method=gs.PDS(), output="average", stop=stop)
    assert slow.output == "average"
    assert slow.costs.gradients > 2 * quick.costs.gradients


def test_a_finished_run_that_is_resumed_returns_the_same(problem, tmp_path):
    path = tmp_path / "run.npz"
    first = gs.solve(problem, method=gs.PDS(), checkpoint=path)
    again = gs.solve(problem, method=gs.PDS(), checkpoint=path)
    assert again.output == first.output == "last"
    np.testing.assert_array_equal(again.x, first.x)
    np.testing.assert_array_equal(again.dual, first.dual)
    assert again.history.to_dict() == first.history.to_dict()
    assert again.certificate == first.certificate


def test_without_targets_the_recommended_output_is_returned(problem):
    assert gs.solve(problem, method=gs.PDS(), stop=gs.Stop(iterations=50)).output == "average"
    assert gs.solve(problem, method=gs.CondatVu(), stop=gs.Stop(iterations=50)).output == "last"
    linear = gs.LinearlyConstrained(gs.losses.Linear(np.ones(10)), np.ones((1, 10)), 1.0, gs.domains.Simplex())
    assert gs.solve(linear, method=gs.CondatVu(), stop=gs.Stop(iterations=50)).output == "average"


def test_the_best_lower_bound_so_far_is_recorded(problem):
    history = gs.solve(problem, method=gs.PDS(), stop=gs.Stop(iterations=80)).history
    lower = [record.lower for record in history]
    assert lower == sorted(lower)
    assert all(record.gap == record.objective - record.lower for record in history)


def test_distances_are_those_of_the_two_prox_functions(problem):
    x, z, x0 = np.full(10, 0.25), np.array([1.0, -2.0, 2.0]), np.full(10, 0.5)
    assert problem.distances(x, z) == (pytest.approx(4.5), pytest.approx(10 * 0.25**2 / 2))
    assert problem.distances(x, z, x0).V == pytest.approx(10 * 0.25**2 / 2)
    assert problem.distances(0 * x, z, x0).V == pytest.approx(10 * 0.5**2 / 2)


def test_a_set_as_h_is_its_indicator():
    rng = np.random.default_rng(1)
    loss, A, ball = gs.losses.Linear(rng.normal(size=4)), rng.normal(size=(3, 4)), gs.domains.L1Ball(2.0)
    as_h, as_domain = (
        gs.solve(gs.Saddle(loss, A, domain=gs.domains.Simplex(), **given), stop=gs.Stop(iterations=30))
        for given in ({"h": ball}, {"dual_domain": ball})
    )
    np.testing.assert_array_equal(as_h.x, as_domain.x)
    np.testing.assert_array_equal(as_h.dual, as_domain.dual)
    assert np.abs(as_h.dual).sum() <= 2 + 1e-12


def test_the_average_of_the_gradients_is_kept_and_saved(problem, tmp_path):
    solution = gs.solve(problem, method=gs.PDS(), stop=gs.Stop(iterations=40))
    # f is quadratic: the average gradient is the gradient at an average of the points, and near that of the answer.
    np.testing.assert_allclose(solution.y, problem.loss.gradient(solution.x), atol=0.05)
    np.testing.assert_array_equal(gs.load(solution.save(tmp_path / "solution.npz")).y, solution.y)
