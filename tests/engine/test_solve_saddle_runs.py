"""A run on a saddle point problem: checkpoints, warm starts, callbacks, limits, what it prints and stores."""

import json

import numpy as np
import pytest
from saddle_problems import box, constrained_case, l2_ball, least_squares, linear, quadratic, saddle_case

import gradslide as gs

METHODS = {
    "PDS": gs.PDS(),
    "PDS with stages": gs.PDS(growth=1.5),
    "CondatVu": gs.CondatVu(),
}


def problem_of(mu=0.0, b_shift=0.0, A_factor=1.0, make_loss=quadratic):
    rng = np.random.default_rng(3)
    loss = make_loss(rng, 2, 3).loss
    A = rng.normal(size=(2, 6))
    b = A @ np.full(6, 0.2) + b_shift
    return gs.LinearlyConstrained(loss, A_factor * A, b, gs.domains.Box(-1, 1), mu)


def assert_same(one, other):
    assert one.status is other.status
    np.testing.assert_array_equal(one.x, other.x)
    np.testing.assert_array_equal(one.dual, other.dual)
    for name in one.outputs:
        np.testing.assert_array_equal(one.outputs[name], other.outputs[name])
    assert one.certificate == other.certificate
    spent, again = ({**costs.to_dict(), "seconds": 0} for costs in (one.costs, other.costs))
    assert spent == again
    columns, again = ({**run.history.to_dict(), "seconds": None} for run in (one, other))
    assert columns == again


@pytest.mark.covering
@pytest.mark.parametrize("make_loss", [quadratic, linear])
@pytest.mark.parametrize("mu", [0.0, 2.0])
@pytest.mark.parametrize("name", METHODS)
def test_an_interrupted_run_gives_the_same_bits(name, mu, make_loss, tmp_path):
    problem, path = problem_of(mu, make_loss=make_loss), tmp_path / "run.npz"
    whole = gs.solve(problem, method=METHODS[name], stop=gs.Stop(iterations=40))
    for iterations in (1, 17, 40):
        last = gs.solve(problem, method=METHODS[name], stop=gs.Stop(iterations=iterations), checkpoint=path)
    assert_same(last, whole)
    if name == "PDS with stages" and mu > 0 and make_loss is quadratic:
        assert gs.schedules.theorem_1(**whole.parameters).row(40).stage > 1


def test_saddle_points_and_entropy_are_resumed_too(tmp_path):
    for seed in range(6):
        problem, path = saddle_case(seed + 8, 0.2).problem, tmp_path / f"{seed}.npz"
        whole = gs.solve(problem, method=gs.PDS(), stop=gs.Stop(iterations=12), record_every=5)
        for iterations in (7, 12):
            last = gs.solve(
                problem, method=gs.PDS(), stop=gs.Stop(iterations=iterations), record_every=5, checkpoint=path
            )
        assert_same(last, whole)


@pytest.mark.parametrize("method", [gs.PDS(R=1.0), gs.CondatVu(ratio=1.0)])
@pytest.mark.parametrize("change", [{"b_shift": 1e-3}, {"A_factor": 1.001}, {"mu": 0.1}])
def test_a_checkpoint_of_another_problem_is_refused(change, method, tmp_path):
    path = tmp_path / "run.npz"
    gs.solve(problem_of(), method=method, stop=gs.Stop(iterations=3), checkpoint=path)
    with pytest.raises(gs.InputError, match="must belong to this run"):
        gs.solve(problem_of(**change), method=method, stop=gs.Stop(iterations=6), checkpoint=path)
    afresh = gs.solve(problem_of(**change), method=method, stop=gs.Stop(iterations=6), checkpoint=path, resume=False)
    assert afresh.costs.gradients == 6


def test_a_checkpoint_of_another_set_of_multipliers_is_refused(tmp_path):
    path, rng = tmp_path / "run.npz", np.random.default_rng(0)
    loss, A = gs.losses.Quadratic(np.eye(3), np.ones(3)), rng.normal(size=(2, 3))
    one, other = (gs.Saddle(loss, A, dual_domain=gs.domains.L2Ball(radius)) for radius in (1.0, 1.5))
    gs.solve(one, method=gs.PDS(R=1.0), stop=gs.Stop(iterations=3), checkpoint=path)
    with pytest.raises(gs.InputError, match="must belong to this run"):
        gs.solve(other, method=gs.PDS(R=1.0), stop=gs.Stop(iterations=3), checkpoint=path)


@pytest.mark.parametrize("method", [gs.PDS(R=0.5), gs.CondatVu(ratio=1.0)])
def test_a_warm_start_brings_the_point_and_the_multipliers(method):
    case = constrained_case(1, 0.5, make_loss=quadratic, make_x=box, sense="==", m=1)
    cold = gs.solve(case.problem, method=method, stop=gs.Stop(iterations=400), record_every=100)
    few = gs.Stop(iterations=5)
    warm = gs.solve(case.problem, method=method, stop=few, warm_start=cold)
    point_only = gs.solve(case.problem, method=method, stop=few, x0=cold.x)
    nothing = gs.solve(case.problem, method=method, stop=few)

    def error(solution):
        return np.linalg.norm(solution.x - case.x) + np.linalg.norm(solution.dual - cold.dual)

    assert np.linalg.norm(cold.dual) > 0.1
    assert error(warm) < 0.1 * min(error(point_only), error(nothing))


def test_a_warm_start_with_other_multipliers_is_refused():
    solution = gs.solve(problem_of(), stop=gs.Stop(iterations=2))
    other = gs.LinearlyConstrained(problem_of().loss, np.ones((3, 6)), 0.0, gs.domains.Box(-1, 1))
    with pytest.raises(gs.InputError, match="multipliers of shape"):
        gs.solve(other, stop=gs.Stop(iterations=2), warm_start=solution)


@pytest.mark.parametrize("method", [gs.PDS(), gs.CondatVu()])
def test_the_callback_sees_every_iteration_and_may_stop(method):
    seen = []

    def watch(record, x):
        seen.append(record)
        assert x.shape == (2, 3)
        x[:] = np.nan
        return record.iteration == 7

    solution = gs.solve(problem_of(), method=method, callback=watch)
    assert solution.status is gs.Status.STOPPED
    assert [record.iteration for record in seen] == list(range(1, 8))
    assert np.all(np.isfinite(solution.x))
    assert seen[-1].residual == solution.history[-1].residual


def test_metrics_may_be_thinned():
    seen = []
    stop = gs.Stop(iterations=11)
    thin = gs.solve(
        problem_of(), method=gs.PDS(), stop=stop, record_every=4, callback=lambda record, x: seen.append(record.gap)
    )
    full = gs.solve(problem_of(), method=gs.PDS(), stop=stop)
    assert [record.iteration for record in thin.history] == [4, 8, 11]
    assert [gap is not None for gap in seen] == [k in (4, 8, 11) for k in range(1, 12)]
    np.testing.assert_array_equal(thin.x, full.x)
    assert thin.history[-1].gap == full.history[-1].gap


def test_progress_shows_products_residual_and_gap(capsys):
    gs.solve(problem_of(), method=gs.PDS(), stop=gs.Stop(iterations=5), progress=True)
    shown = capsys.readouterr().err
    assert "PDS" in shown
    assert all(word in shown for word in ("gradients", "products", "residual", "gap"))
    gs.solve(saddle_case(0).problem, stop=gs.Stop(iterations=5), progress="game", method=gs.CondatVu())
    assert "game" in capsys.readouterr().err


@pytest.mark.parametrize("method", [gs.PDS(), gs.CondatVu()])
def test_float32_stays_float32(method):
    rng = np.random.default_rng(0)
    root, A = rng.normal(size=(4, 4)), rng.normal(size=(2, 4))
    runs = {}
    for dtype in (np.float32, np.float64):
        loss = gs.losses.Quadratic((root @ root.T).astype(dtype), np.ones(4, dtype=dtype))
        # A and b in double precision do not raise it.
        problem = gs.LinearlyConstrained(loss, A, A @ np.full(4, 0.2), gs.domains.Box(-1, 1))
        runs[dtype] = solution = gs.solve(problem, method=method, stop=gs.Stop(iterations=30))
        assert solution.dual.dtype == dtype
        assert all(array.dtype == dtype for array in solution.outputs.values())
    np.testing.assert_allclose(runs[np.float32].x, runs[np.float64].x, atol=1e-3)


def test_float32_converges_and_is_not_called_infeasible():
    for seed in range(6):
        rng = np.random.default_rng(seed)
        features, targets = (rng.normal(size=shape).astype(np.float32) for shape in ((12, 4), (12,)))
        A = rng.normal(size=(2, 4)).astype(np.float32)
        loss = gs.losses.LeastSquares(features, targets, agents=1)
        problem = gs.LinearlyConstrained(loss, A, A @ np.full(4, 0.2, np.float32), gs.domains.Box(-1, 1), 0.5)
        solution = gs.solve(problem, stop=gs.Stop(gap=1e-2, residual=1e-3, operator_products=20_000))
        assert solution.status is gs.Status.CONVERGED


def test_a_solution_says_what_it_is():
    solution = gs.solve(problem_of(), stop=gs.Stop(iterations=5))
    shown = repr(solution)
    for word in ("ITERATION_LIMIT", "gradients=", "operator_products=", "objective=", "residual=", "gap="):
        assert word in shown
    assert "disagreement" not in shown
    assert "LinearlyConstrained" in repr(problem_of())
    assert "A: 2 x 6" in solution.settings["problem"]


@pytest.mark.parametrize("method", [gs.PDS(), gs.CondatVu()])
def test_the_limit_on_products_ends_the_run(method):
    solution = gs.solve(problem_of(), method=method, stop=gs.Stop(operator_products=300, iterations=1000))
    assert solution.status is gs.Status.PRODUCT_LIMIT
    assert solution.costs.operator_products >= 300
    assert all(record.operator_products < 300 for record in solution.history[:-1])


@pytest.mark.parametrize("case", [saddle_case(3), saddle_case(0), constrained_case(0, make_x=l2_ball)])
def test_a_solution_can_be_written_as_JSON(case):
    for method in (gs.PDS(), gs.CondatVu()):
        solution = gs.solve(case.problem, method=method, stop=gs.Stop(iterations=3))
        again = json.loads(json.dumps(solution.to_dict(), allow_nan=False))
        assert again["costs"]["operator_products"] == solution.costs.operator_products
        assert again["certificate"]["lower"] == solution.certificate.lower
        assert again["final"]["gap"] == solution.history[-1].gap


def test_targets_that_nobody_measures_are_refused():
    for stop in (gs.Stop(disagreement=1e-3),):
        with pytest.raises(gs.InputError):
            gs.solve(problem_of(), stop=stop)
    with pytest.raises(gs.InputError, match="residual"):
        gs.solve(saddle_case(0).problem, stop=gs.Stop(residual=1e-3))
    with pytest.raises(gs.InputError, match="no network"):
        gs.solve(problem_of(), gs.Graph.ring(3))


def test_runs_are_reproducible():
    problem = problem_of(make_loss=least_squares)
    assert_same(*(gs.solve(problem, stop=gs.Stop(iterations=20)) for _ in range(2)))
