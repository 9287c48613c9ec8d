"""Runs without a network end on KKT residuals: which status they have, what it costs, and what is told of them."""

import json

import numpy as np
import pytest

import gradslide as gs
from gradslide.domains import Box


def problem_of(seed=0, domain=None):
    rng = np.random.default_rng(seed)
    half, A, x = rng.normal(size=(8, 8)), rng.normal(size=(4, 8)), rng.normal(size=8)
    loss = gs.losses.Quadratic(half.T @ half / 8 + np.eye(8), rng.normal(size=8))
    return gs.LinearlyConstrained(loss, A, A @ x, domain, sense="<=")


FIRST_ORDER = {"PDS": gs.PDS(), "CondatVu": gs.CondatVu()}


@pytest.mark.parametrize("name", FIRST_ORDER)
def test_first_order_methods_end_on_kkt(name):
    problem = problem_of()
    solution = gs.solve(problem, method=FIRST_ORDER[name], stop=gs.Stop(kkt=1e-3, operator_products=200_000))
    expected = gs.solve(problem)
    assert solution.status is gs.Status.CONVERGED
    assert solution.kkt.largest <= 1e-3
    assert solution.objective == pytest.approx(expected.objective, rel=1e-2)
    np.testing.assert_allclose(solution.mean, expected.mean, atol=2e-2)


def test_relative_and_absolute_targets_mean_the_same():
    runs = [
        gs.solve(problem_of(), method=gs.CondatVu(), stop=gs.Stop(kkt=kkt, iterations=5000))
        for kkt in (1e-4, gs.Relative(1e-4))
    ]
    assert runs[0].status is runs[1].status is gs.Status.CONVERGED
    assert np.array_equal(runs[0].x, runs[1].x)


def test_checks_are_counted_and_rare():
    stop, never = gs.Stop(kkt=1e-12, iterations=100), gs.Stop(iterations=100)
    checked, free = (gs.solve(problem_of(), method=gs.CondatVu(), stop=each) for each in (stop, never))
    gradients = checked.costs.gradients - free.costs.gradients
    # Two outputs, whenever iterations have grown by half; and one at the start, which shows the units.
    assert 10 <= gradients <= 40
    assert checked.costs.operator_products - free.costs.operator_products == 2 * (gradients - 1)


def test_methods_that_know_their_residuals_pay_nothing():
    stop, never = gs.Stop(kkt=1e-6), gs.Stop(iterations=2)
    assert gs.solve(problem_of(), stop=stop).costs.gradients == gs.solve(problem_of(), stop=never).costs.gradients


@pytest.mark.parametrize("name", [None, *FIRST_ORDER])
def test_feasibility_alone_is_no_convergence(name):
    method = FIRST_ORDER.get(name)
    solution = gs.solve(problem_of(), method=method, stop=gs.Stop(residual=1e-3, operator_products=100_000))
    assert solution.status is gs.Status.FEASIBLE
    assert "optimal" in solution.status.value
    assert solution.kkt is not None


def test_kkt_with_other_targets_needs_all_of_them():
    domain = Box(-3.0, 3.0)
    stop = gs.Stop(kkt=1e-3, gap=1e-6, operator_products=300_000)
    solution = gs.solve(problem_of(domain=domain), method=gs.CondatVu(), stop=stop)
    assert solution.status is gs.Status.CONVERGED
    assert solution.kkt.largest <= 1e-3
    assert abs(solution.gap) <= 1e-6


def test_a_named_output_is_kept():
    stop = gs.Stop(kkt=1e-3, iterations=20_000)
    solution = gs.solve(problem_of(), method=gs.PDS(), output="average", stop=stop)
    assert solution.output == "average"
    assert solution.status is gs.Status.CONVERGED
    assert solution.kkt.largest <= 1e-3


@pytest.mark.parametrize("method", [None, gs.CondatVu()], ids=str)
def test_limits_are_no_convergence(method):
    stop = gs.Stop(kkt=1e-13, iterations=1 if method is None else 50)
    solution = gs.solve(problem_of(), method=method, stop=stop)
    assert solution.status is gs.Status.ITERATION_LIMIT
    assert solution.kkt.largest > 1e-13


def test_unknown_complementarity_is_stationary():
    loss = gs.losses.Quadratic(np.eye(3), -np.ones(3))
    problem = gs.Saddle(loss, np.eye(3), h=gs.terms.Prox(lambda v, step: np.clip(v, -0.5, 0.5)))
    solution = gs.solve(problem, method=gs.CondatVu(), stop=gs.Stop(kkt=1e-6, iterations=2000))
    assert solution.status is gs.Status.STATIONARY
    assert solution.kkt.complementarity is None
    np.testing.assert_allclose(solution.mean, 0.5, atol=1e-4)


def test_residuals_are_saved_shown_and_resumed(tmp_path):
    problem = problem_of()
    solution = gs.solve(problem, method=gs.CondatVu(), stop=gs.Stop(kkt=1e-4, iterations=5000))
    again = gs.load(solution.save(tmp_path / "solution.npz"))
    assert again.kkt == solution.kkt
    assert set(solution.kkt.to_dict()) == {"primal", "dual", "complementarity"}
    assert json.loads(json.dumps(solution.to_dict()))["kkt"] == solution.kkt.to_dict()
    assert "kkt=" in repr(solution)
    assert "complementarity" in solution._repr_html_()
    path = tmp_path / "run.npz"
    for iterations in (30, 5000):
        stop = gs.Stop(kkt=1e-4, iterations=iterations)
        part = gs.solve(problem, method=gs.CondatVu(), stop=stop, checkpoint=path)
    assert part.status is gs.Status.CONVERGED
    assert part.history[-1].iteration == solution.history[-1].iteration
    ended = gs.solve(problem, method=gs.CondatVu(), stop=stop, checkpoint=path)
    assert ended.costs.gradients == part.costs.gradients
    assert ended.kkt == part.kkt


def test_rays_are_saved(tmp_path):
    loss = gs.losses.Quadratic(np.eye(2), np.zeros(2))
    solution = gs.solve(gs.LinearlyConstrained(loss, np.ones((2, 2)), [0.0, 1.0]))
    assert solution.status is gs.Status.INFEASIBLE
    again = gs.load(solution.save(tmp_path / "solution.npz"))
    np.testing.assert_array_equal(again.ray, solution.ray)
    assert again.status is gs.Status.INFEASIBLE


@pytest.mark.parametrize("method", [gs.SPDS(N=5, R=1.0, c=1.0), gs.DGD(L=1.0)], ids=["SPDS", "DGD"])
def test_methods_without_multipliers_refuse(method):
    with pytest.raises(gs.InputError, match=r"multipliers|network"):
        gs.solve(problem_of(), method=method, stop=gs.Stop(kkt=1e-3))
