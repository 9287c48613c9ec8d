"""Statuses claim no more than was verified."""

import time
import warnings

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
    assert {gs.Status.CONVERGED, gs.Status.STATIONARY, gs.Status.FEASIBLE} == REACHED


def test_a_run_that_ends_far_above_its_start_has_diverged():
    stop = gs.Stop(iterations=200)
    problem = gs.Problem(quadratic(scale=3.0))
    solution = gs.solve(problem, gs.Graph.ring(4), gs.NIDS(step_size=1.0), stop=stop, check_loss=False)
    assert solution.history[-1].objective > 1e10
    assert solution.status is gs.Status.DIVERGED


def test_points_of_which_the_sum_of_squares_overflows_are_no_divergence():
    """In single precision. How many agents there are does not matter."""
    loss = gs.losses.LeastSquares(np.ones((600, 1), np.float32), np.full(600, 1e18, np.float32), agents=600)
    problem, stop = gs.Problem(loss), gs.Stop(iterations=20)
    solution = gs.solve(problem, gs.Graph.complete(600), gs.NIDS(step_size=1.0), stop=stop, check_loss=False)
    assert not np.isfinite(np.vdot(solution.x, solution.x))
    assert solution.status is gs.Status.ITERATION_LIMIT
    np.testing.assert_allclose(solution.x, 1e18, rtol=1e-5)


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
        solution = gs.solve(problem, gs.Graph.ring(4), gs.AutoPDS(), check_loss=False)
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


def raw_columns(**options):
    """Ones, age, cost in dollars, smoker, blood pressure: 2,000 rows at four sites, as they come."""
    rng, n = np.random.default_rng(0), 2000
    age, cost = rng.uniform(20, 90, n), np.exp(rng.normal(9, 1.2, n))
    smoker, pressure = rng.random(n) < 0.3, rng.normal(130, 20, n)
    features = np.c_[np.ones(n), age, cost, smoker, pressure]
    odds = 6 - 0.05 * age - 1e-5 * cost - 0.8 * smoker - 0.01 * pressure
    labels = np.where(rng.random(n) < 1 / (1 + np.exp(odds)), 1, -1)
    return gs.Problem(gs.losses.Logistic(features, labels, agents=4), **options)


@pytest.mark.parametrize("options", [{}, {"mu": 0.01}, {"domain": gs.domains.Box(-10, 10)}], ids=["free", "mu", "box"])
def test_raw_columns_are_warned_of_and_not_said_to_have_converged(options):
    """Relative to the gradient at the start, which dollars dominate, the residuals are small 11 % above the optimum."""
    problem = raw_columns(**options)
    stop = None if not options else gs.Stop(gap=gs.Relative(1e-4), iterations=500)
    with pytest.warns(RuntimeWarning, match="columns 2 and 3 of the features differ in scale by a factor of 5.9e"):
        solution = gs.solve(problem, gs.Graph.ring(4), gs.AutoPDS(), stop=stop, record_every=1000)
    best = gs.reference.reference(problem)
    assert best.objective == pytest.approx(877.62 if "mu" in options else 876.967, abs=0.01)
    assert best.error <= 1e-9 * best.objective
    is_right = solution.objective <= best.objective * (1 + 1e-4)
    assert (solution.status is gs.Status.CONVERGED) == is_right
    if not options:
        # The agents' own estimate of what is missing.
        assert solution.kkt.error == pytest.approx(solution.objective - best.objective, rel=0.5)
        assert "estimated error" in str(solution.kkt)


def test_without_hessians_small_residuals_are_stationary_only():
    solution = gs.solve(gs.Problem(quadratic()), gs.Graph.ring(4))
    assert solution.status is gs.Status.STATIONARY
    assert solution.status.fulfils(has_targets=True)
    built_in = gs.Problem(gs.losses.Quadratic(np.eye(2)[None].repeat(4, 0), -TARGETS))
    converged = gs.solve(built_in, gs.Graph.ring(4))
    assert converged.status is gs.Status.CONVERGED
    assert converged.costs.hessians >= 1
    optimum = -2 * np.sum(TARGETS.mean(axis=0) ** 2)
    assert converged.objective - optimum <= 1e-4 * abs(optimum)
    assert converged.kkt.error == pytest.approx(converged.objective - optimum, abs=1e-9)


@pytest.mark.parametrize("kkt", [1e-3, gs.Relative(1e-3, to=1.0)])
def test_an_absolute_target_on_the_residuals_says_nothing_about_the_objective(kkt):
    loss = gs.losses.Quadratic(np.eye(2)[None].repeat(4, 0), -TARGETS)
    solution = gs.solve(gs.Problem(loss), gs.Graph.ring(4), stop=gs.Stop(kkt=kkt, iterations=1000))
    assert solution.status is gs.Status.STATIONARY
    assert solution.status.fulfils(has_targets=True)


@pytest.mark.parametrize("domain", [gs.domains.Free(), gs.domains.Box(-5000.0, 5000.0)], ids=["free", "box"])
@pytest.mark.parametrize(("far", "shift"), [(1000.0, 50.0), (100.0, 5.0), (0.0, 0.0)])
def test_a_shift_that_is_small_at_the_start_is_found_at_the_answer(far, shift, domain):
    centers = np.random.default_rng(0).normal(size=(4, 3)) * 5 + far
    loss = gs.losses.Custom(
        value=lambda x: ((x - centers) ** 2).sum(axis=1) / 2,
        gradient=lambda x: x - centers + shift,
        agents=4,
        dimension=3,
    )
    optimum = float(np.sum((centers - centers.mean(axis=0)) ** 2) / 2)
    run = lambda **given: gs.solve(gs.Problem(loss, domain), gs.Graph.ring(4), **given)  # noqa: E731
    if shift:
        with pytest.warns(RuntimeWarning, match="contradict each other at the answer"):
            solution = run()
        assert solution.objective > 2 * optimum
        assert solution.status is gs.Status.CONTRADICTORY
        assert run(check_loss=False).status in (gs.Status.CONVERGED, gs.Status.STATIONARY)
    else:
        solution = run()
        assert solution.status in (gs.Status.CONVERGED, gs.Status.STATIONARY)
        assert solution.objective == pytest.approx(optimum, rel=1e-3)


LINEAR = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
ENDLESS = {
    "free": lambda: gs.Problem(gs.losses.Linear(LINEAR)),
    "half-space": lambda: gs.Problem(gs.losses.Linear(LINEAR), gs.domains.Halfspace(np.ones(2), 1.0)),
    "affine": lambda: gs.Problem(gs.losses.Linear(LINEAR + np.eye(2)[0]), gs.domains.Affine(np.ones((1, 2)), [1.0])),
    "orthant": lambda: gs.Problem(gs.losses.Linear(-LINEAR), gs.domains.NonNegative()),
    "custom": lambda: gs.Problem(
        gs.losses.Custom(value=lambda x: -x[:, 0], gradient=lambda x: [-1.0, 0.0] + 0 * x, agents=4, dimension=2)
    ),
}


@pytest.mark.first(1)
@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.parametrize("method", [gs.AutoPDS(), gs.Auto(), gs.LBFGS()], ids=lambda method: method.name)
def test_an_objective_without_a_lower_bound_never_converges(name, method):
    """Far away no step is seen, since it is lost in rounding."""
    with pytest.warns(RuntimeWarning, match="no lower bound"):
        solution = gs.solve(ENDLESS[name](), gs.Graph.ring(4), method, record_every=100)
    assert solution.status is gs.Status.DIVERGED
    assert "no lower bound" in solution.warnings[0]
    if method.name != "AutoPDS":
        assert solution.costs.gradients < 150


def test_large_objectives_of_bounded_problems_are_no_divergence():
    cost = np.full((4, 2), 1e15)
    problem = gs.Problem(gs.losses.Linear(cost), gs.domains.Box(-1e8, 1e8))
    solution = gs.solve(problem, gs.Graph.ring(4))
    assert solution.status is gs.Status.CONVERGED
    assert solution.objective == pytest.approx(-8e23)


@pytest.mark.parametrize("method", [gs.Auto(), gs.LBFGS(), gs.AutoPDS()], ids=lambda method: method.name)
@pytest.mark.parametrize("offset", [1e5, 1e6])
def test_an_objective_that_falls_by_orders_of_magnitude_is_not_done_too_early(method, offset):
    """Far below the start, and far above the optimum."""
    rng = np.random.default_rng(0)
    features = np.c_[np.ones(400), rng.normal(size=(400, 2))]
    targets = offset + features @ [0.0, 1.0, -2.0] + rng.normal(size=400)
    problem = gs.Problem(gs.losses.LeastSquares(features, targets, agents=4))
    solution = gs.solve(problem, gs.Graph.ring(4), method)
    assert solution.status is gs.Status.CONVERGED
    assert solution.objective == pytest.approx(gs.reference.reference(problem).objective, rel=1e-3)


def test_targets_that_exact_sums_fulfil_at_once_are_warned_of():
    loss = gs.losses.LeastSquares(np.ones((4, 1)), np.arange(4.0), agents=4)
    stop = gs.Stop(disagreement=1e-3, iterations=50)
    with pytest.warns(RuntimeWarning, match="with exact sums agents never disagree"):
        assert gs.solve(gs.Problem(loss), gs.Graph.ring(4), stop=stop).status is gs.Status.FEASIBLE


def test_raw_columns_are_harmless_by_default():
    for options in ({}, {"mu": 0.01}, {"domain": gs.domains.Box(-10, 10)}):
        problem = raw_columns(**options)
        solution, best = gs.solve(problem, gs.Graph.ring(4)), gs.reference.reference(problem)
        assert solution.status is gs.Status.CONVERGED
        assert solution.warnings == ()
        assert solution.objective <= best.objective * (1 + 1e-4)
        assert solution.costs.gradients <= 7


@pytest.mark.first(1)
@pytest.mark.parametrize("copies", [2, 5])
def test_redundant_rows_of_an_affine_set_change_no_estimate(copies):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(400, 5)) @ np.diag([1, 30, 1e3, 0.5, 3])
    labels = np.sign(features[:, 0] + 0.03 * features[:, 1] + 2 * rng.normal(size=400))
    loss = gs.losses.Logistic(features, labels, agents=4)
    one, several = (gs.Problem(loss, gs.domains.Affine(np.ones((k, 5)), np.ones(k))) for k in (1, copies))
    best = gs.reference.reference(one).objective
    assert gs.reference.reference(several).objective == pytest.approx(best, rel=1e-9)
    with pytest.warns(RuntimeWarning, match="differ in scale"):
        solution = gs.solve(several, gs.Graph.ring(4), gs.AutoPDS(), record_every=1000)
    assert solution.status is gs.Status.CONVERGED
    assert solution.objective <= best * (1 + 1e-4)
    assert solution.kkt.error == pytest.approx(solution.objective - best, rel=0.1)


def constrained(**options):
    rng = np.random.default_rng(0)
    loss = gs.losses.Quadratic(np.eye(4), rng.normal(size=4))
    return gs.LinearlyConstrained(loss, rng.normal(size=(2, 4)), [5.0, -5.0], **options)


@pytest.mark.parametrize("target", ["objective", "gap"])
def test_an_objective_counts_only_where_linear_constraints_hold(target):
    problem = constrained(domain=gs.domains.Box(-20.0, 20.0))
    exact = gs.solve(problem, stop=gs.Stop(residual=1e-8, gap=1e-6, iterations=20_000))
    assert exact.status is gs.Status.CONVERGED
    given = (
        {"objective": gs.Relative(1e-3, to=exact.objective)} if target == "objective" else {"gap": gs.Relative(1e-3)}
    )
    solution = gs.solve(problem, stop=gs.Stop(**given, iterations=5000))
    assert solution.status is gs.Status.CONVERGED
    last = solution.history[-1]
    assert last.residual <= 1e-4 * last.residual_scale
    assert solution.objective == pytest.approx(exact.objective, rel=3e-3)


def test_an_objective_counts_only_where_agents_with_sets_of_their_own_agree():
    loss = gs.losses.Quadratic(np.eye(2)[None].repeat(4, 0), -TARGETS)
    low = TARGETS.mean(axis=0) + np.arange(4)[:, None] / 10
    sets = gs.domains.PerAgent([gs.domains.Box(each, 10.0) for each in low])
    stop = gs.Stop(objective=1e6, iterations=500)
    solution = gs.solve(gs.Problem(loss, sets), gs.Graph.ring(4), stop=stop)
    assert solution.status is gs.Status.CONVERGED
    assert solution.disagreement <= 1e-2 * np.linalg.norm(solution.mean)


@pytest.mark.parametrize("record_every", [1, 60])
def test_divergence_does_not_depend_on_how_often_records_are_taken(record_every):
    rng = np.random.default_rng(0)
    loss = gs.losses.LeastSquares(rng.normal(size=(24, 3)), rng.normal(size=24), agents=4)
    given = {"stop": gs.Stop(iterations=60), "record_every": record_every}
    solution = gs.solve(gs.Problem(loss), gs.Graph.ring(4), gs.NIDS(step_size=3.0), **given)
    assert solution.status is gs.Status.DIVERGED


def test_without_values_points_that_grow_have_diverged():
    loss = gs.losses.Custom(gradient=lambda x: x - TARGETS, agents=4, dimension=2, smoothness=1.0)
    method = gs.NIDS(step_size=5.0)
    short, long = (gs.solve(gs.Problem(loss), gs.Graph.ring(4), method, stop=gs.Stop(iterations=k)) for k in (5, 200))
    assert short.status is gs.Status.ITERATION_LIMIT
    assert long.status is gs.Status.DIVERGED


def test_bounds_of_a_saddle_point_problem_can_contradict_each_other():
    center = np.array([1.0, -0.5])
    loss = gs.losses.Custom(
        value=lambda x: ((x - center) ** 2).sum(axis=1) / 2,
        gradient=lambda x: x - center + 1,
        agents=1,
        dimension=2,
        smoothness=1.0,
    )
    problem = gs.Saddle(loss, np.eye(2), domain=gs.domains.Box(-2.0, 2.0), dual_domain=gs.domains.Box(-0.1, 0.1))
    with pytest.warns(RuntimeWarning, match="is above the objective"):
        solution = gs.solve(problem, method=gs.PDS(), stop=gs.Stop(iterations=300), check_loss=False)
    assert solution.status is gs.Status.CONTRADICTORY


def test_columns_are_named_also_without_a_network():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    table = pandas.DataFrame({"age": rng.normal(size=30), "dollars": 1e6 * rng.normal(size=30)})
    loss = gs.losses.LeastSquares(table, rng.normal(size=30))
    problem = gs.LinearlyConstrained(loss, [[1.0, 1.0]], [1.0])
    with pytest.warns(RuntimeWarning, match="columns dollars and age of the features differ in scale"):
        gs.solve(problem, method=gs.PDS(), stop=gs.Stop(iterations=5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gs.solve(problem).parameters["method"] == "Newton", "which does not depend on units"


def test_a_run_on_its_way_back_has_not_diverged():
    """Far starts that differ between agents: the objective at the mean rises until they agree, then falls."""
    rng = np.random.default_rng(0)
    scales = np.array([1.0, 6e4, 5e-6, 2e3, 3e4])
    features = (rng.normal(size=(30, 5)) + 1) * scales
    problem = gs.Problem(gs.losses.LeastSquares(features, rng.normal(size=30), agents=5))
    x0 = 1e5 * rng.normal(size=(5, 5)) / scales
    risen = False
    for iterations in (10, 20, 40, 60, 80):
        with pytest.warns(RuntimeWarning, match="differ in scale"):
            solution = gs.solve(problem, gs.Graph.ring(5), gs.AutoPDS(), x0=x0, stop=gs.Stop(iterations=iterations))
        seen = [record.objective for record in solution.history]
        if solution.status is gs.Status.DIVERGED:
            assert seen[-1] >= 1e-3 * max(seen)
        risen |= max(seen) > 1e6 * seen[0]
    assert risen
    assert solution.status is not gs.Status.DIVERGED
