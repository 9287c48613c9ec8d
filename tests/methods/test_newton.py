"""Newton: evaluations do not depend on the network, nor on the units of columns; all sets, far starts, flat losses."""

from itertools import pairwise

import numpy as np
import pytest
from problems import DOMAINS

import gradslide as gs
from gradslide.methods import newton

RNG = np.random.default_rng(3)
FEATURES = RNG.normal(size=(240, 4))
LABELS = np.sign(FEATURES @ [1.0, -2.0, 0.5, 0.0] + RNG.normal(size=240))
GRAPHS = {
    "ring": gs.Graph.ring(12),
    "star": gs.Graph.star(12),
    "path": gs.Graph.path(12),
    "random": gs.Graph.random(12, 4, seed=1),
    "complete": gs.Graph.complete(12),
}


def logistic(features=FEATURES, domain=None, mu=0.0, agents=12, dtype=np.float64):
    return gs.Problem(gs.losses.Logistic(features.astype(dtype), LABELS, agents=agents), domain, mu)


def solve(problem, graph=GRAPHS["random"], **given):
    return gs.solve(problem, graph, gs.Newton(), **given)


@pytest.mark.parametrize("domain", [None, gs.domains.L2Ball(1.0)], ids=["free", "ball"])
def test_evaluations_do_not_depend_on_the_network(domain):
    found = [solve(logistic(domain=domain), graph) for graph in GRAPHS.values()]
    for solution, graph in zip(found, GRAPHS.values(), strict=True):
        costs = solution.costs
        assert solution.status is gs.Status.CONVERGED
        np.testing.assert_array_equal(solution.x, found[0].x)
        assert costs.gradients == costs.values == costs.hessians == found[0].costs.gradients <= 7
        assert costs.rounds == 2 * costs.gradients * graph.radius_center()[1]
        # The survey, and nothing for targets.
        assert costs.control_rounds == graph.diameter_bound + graph.radius_center()[1]


def test_all_agents_have_the_same_point():
    solution = solve(logistic())
    assert np.ptp(solution.x, axis=0).max() == 0


@pytest.mark.parametrize("domain", [None, gs.domains.Box(-1.0, 0.5)], ids=["free", "box"])
def test_units_of_columns_change_nothing(domain):
    units = np.array([1.0, 1e-4, 1e4, 30.0])
    scaled = None if domain is None else gs.domains.Box(-1.0 / units, 0.5 / units)
    stop = gs.Stop(iterations=6)
    plain = solve(logistic(domain=domain), stop=stop)
    other = solve(logistic(FEATURES * units, scaled), stop=stop)
    assert other.warnings == ()
    np.testing.assert_allclose(other.mean * units, plain.mean, rtol=1e-6)
    seen = [[record.objective for record in solution.history] for solution in (plain, other)]
    np.testing.assert_allclose(*seen, rtol=1e-9)


def test_raw_columns():
    """Ones, ages, dollars, a flag and blood pressures: first-order methods get nowhere."""
    rng, n = np.random.default_rng(0), 2000
    age, cost = rng.uniform(20, 90, n), np.exp(rng.normal(9, 1.2, n))
    smoker, bp = rng.random(n) < 0.3, rng.normal(130, 20, n)
    features = np.c_[np.ones(n), age, cost, smoker, bp]
    p = 1 / (1 + np.exp(6 - 0.05 * age - 1e-5 * cost - 0.8 * smoker - 0.01 * bp))
    labels = np.where(rng.random(n) < p, 1, -1)
    for options, optimum in (({}, 876.967), ({"mu": 0.01}, 877.624), ({"domain": gs.domains.Box(-10, 10)}, 876.967)):
        problem = gs.Problem(gs.losses.Logistic(features, labels, agents=4), **options)
        solution = solve(problem, gs.Graph.ring(4))
        assert solution.status is gs.Status.CONVERGED
        assert solution.objective == pytest.approx(optimum, rel=1e-6)
        assert solution.costs.gradients <= 7


@pytest.mark.parametrize("mu", [0.0, 0.1])
@pytest.mark.parametrize("label", [name for name in DOMAINS if name != "entropy"])
def test_every_euclidean_set_and_penalty(label, mu):
    problem = logistic(domain=DOMAINS[label](4), mu=mu)
    solution, best = solve(problem), gs.reference.reference(problem)
    assert solution.status is gs.Status.CONVERGED
    assert solution.objective <= best.objective * (1 + 1e-4) + 1e-9
    assert solution.costs.gradients <= 8
    assert problem.domain.contains(solution.x, 1e-9).all()
    if solution.certificate is not None:
        assert solution.certificate.lower <= best.objective * (1 + 1e-12) <= solution.certificate.upper * (1 + 1e-12)
        assert solution.certificate.gap <= 1e-4 * abs(solution.certificate.upper)


@pytest.mark.parametrize("seed", range(3))
def test_far_starts(seed):
    x0 = 30 * np.random.default_rng(seed).normal(size=4)
    problem = logistic(mu=0.01)
    solution = solve(problem, x0=x0)
    assert solution.status is gs.Status.CONVERGED
    assert solution.objective == pytest.approx(gs.reference.reference(problem).objective, rel=1e-4)


def test_starts_that_differ_are_averaged():
    x0 = np.random.default_rng(0).normal(size=(12, 4))
    same = solve(logistic(), x0=x0.mean(axis=0), stop=gs.Stop(iterations=4))
    other = solve(logistic(), x0=x0, stop=gs.Stop(iterations=4))
    np.testing.assert_allclose(other.x, same.x, rtol=1e-9)
    assert other.costs.rounds == same.costs.rounds + 2 * GRAPHS["random"].radius_center()[1]


LOSSES = {
    "huber": lambda: gs.losses.Huber(FEATURES, 30 * LABELS + FEATURES[:, 0], delta=1.0, agents=12),
    "hinge": lambda: gs.losses.SmoothedHinge(FEATURES, LABELS, gamma=0.1, agents=12),
    "softmax": lambda: gs.losses.Softmax(FEATURES, (LABELS > 0) + (FEATURES[:, 1] > 0).astype(int), agents=12),
    "least squares": lambda: gs.losses.LeastSquares(FEATURES, LABELS, agents=12),
    "quadratic": lambda: gs.losses.Quadratic(np.eye(4)[None].repeat(12, 0), RNG.normal(size=(12, 4))),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_with_kinks_and_flat_regions(name):
    """At 0 all rows of Huber and the hinge are on their straight parts: there is no curvature at all."""
    problem = gs.Problem(LOSSES[name](), mu=0.01)
    solution = solve(problem, stop=gs.Stop(gap=gs.Relative(1e-6), iterations=300))
    assert solution.status is gs.Status.CONVERGED
    assert solution.objective == pytest.approx(gs.reference.reference(problem).objective, rel=1e-5)
    if name in ("least squares", "quadratic"):
        assert solution.costs.gradients == 2


def test_a_penalty_on_a_flat_start():
    problem = gs.Problem(LOSSES["huber"](), gs.domains.Free(penalty=gs.L1(0.1)))
    solution = solve(problem, stop=gs.Stop(kkt=gs.Relative(1e-4), iterations=300))
    assert solution.status is gs.Status.CONVERGED
    assert solution.objective == pytest.approx(gs.reference.reference(problem).objective, rel=1e-3)


def test_separable_data_end():
    """There is no minimizer, and an infimum of 0 that is approached."""
    labels = np.sign(FEATURES[:, 0])
    problem = gs.Problem(gs.losses.Logistic(FEATURES, labels, agents=12))
    solution = solve(problem)
    assert solution.status is gs.Status.CONVERGED
    assert solution.objective <= 1e-4
    assert solution.costs.gradients <= 80


def test_single_precision():
    single, double = (solve(logistic(dtype=dtype, domain=gs.domains.L2Ball(1.0))) for dtype in (np.float32, np.float64))
    assert single.x.dtype == np.float32
    # Bounds leave room for rounding.
    assert single.costs.gradients <= double.costs.gradients + 1
    assert single.objective == pytest.approx(double.objective, rel=1e-4)
    assert single.certificate.lower <= double.certificate.upper
    assert single.certificate.upper >= double.certificate.lower


def test_trial_points_that_are_not_finite_are_rejected():
    """exp(x) - 5 x from -40, where it is nearly straight: the first steps overflow."""

    class Exponential(gs.losses.Loss):
        def __init__(self):
            super().__init__(2, 1, np.float64)

        def value(self, x):
            return np.exp(x[:, 0]) - 5 * x[:, 0]

        def gradient(self, x):
            return np.exp(x) - 5

        @property
        def has_hessian(self):
            return True

        def hessian(self, x):
            return np.exp(x)[:, :, None]

        def compute_smoothness(self, norm):
            return np.full(2, np.inf)

        def take_agents(self, agents):
            return self

    solution = gs.solve(gs.Problem(Exponential()), gs.Graph.path(2), gs.Newton(), x0=np.array([-40.0]))
    assert solution.parameters["rejected"] > 0
    assert solution.status is gs.Status.CONVERGED
    assert solution.mean[0] == pytest.approx(np.log(5.0), rel=1e-2)


def test_a_negative_eigenvalue_of_the_hessian_is_no_answer():
    """The loss of one agent may not be convex where the sum is; the sum must be."""
    for first, is_convex in ((-0.5, True), (-1.5, False)):
        curvatures = np.array([first, 1.0])
        loss = gs.losses.Custom(
            value=[lambda x, c=c: c * x @ x / 2 - x.sum() for c in curvatures],
            gradient=[lambda x, c=c: c * x - 1 for c in curvatures],
            hessian=[lambda x, c=c: np.diag([c]) for c in curvatures],
            agents=2,
            dimension=1,
        )
        problem = gs.Problem(loss, gs.domains.Box(-1.0, 1.0))
        if is_convex:
            assert solve(problem, gs.Graph.path(2), check_loss=False).status is gs.Status.CONVERGED
            continue
        with pytest.warns(RuntimeWarning, match="the Hessian has the eigenvalue -0.5"):
            solution = solve(problem, gs.Graph.path(2), check_loss=False)
        assert solution.status is gs.Status.CONTRADICTORY


def test_what_it_cannot_do_is_refused():
    custom = gs.losses.Custom(value=lambda x: x[:, 0] ** 2, gradient=lambda x: 2 * x, agents=3, dimension=1)
    with pytest.raises(gs.InputError, match="Newton needs losses with values and Hessians"):
        solve(gs.Problem(custom), gs.Graph.path(3))
    with pytest.raises(gs.InputError, match="Newton needs a Euclidean domain"):
        solve(logistic(domain=gs.domains.EntropySimplex()))
    own = gs.domains.Box(-np.arange(1.0, 13.0)[:, None] * np.ones(4), np.inf)
    with pytest.raises(gs.InputError, match="Newton needs the same X and penalty"):
        solve(logistic(domain=own))
    with pytest.raises(gs.InputError, match="exact sums need a network"):
        solve(logistic(), gs.network.Lossy(GRAPHS["random"], 0.1))


@pytest.mark.parametrize("iterations", [1, 3])
def test_resumed_runs_are_the_same(iterations, tmp_path):
    whole = solve(logistic(), stop=gs.Stop(iterations=6))
    path = tmp_path / "run.npz"
    solve(logistic(), stop=gs.Stop(iterations=iterations), checkpoint=path)
    resumed = solve(logistic(), stop=gs.Stop(iterations=6), checkpoint=path)
    np.testing.assert_array_equal(resumed.x, whole.x)
    assert resumed.costs.gradients == whole.costs.gradients


def test_a_gap_is_certified_and_targets_cost_nothing():
    stop = gs.Stop(gap=gs.Relative(1e-8), kkt=gs.Relative(1e-6), disagreement=1e-9, iterations=20)
    solution = solve(logistic(mu=0.1), stop=stop)
    bare = solve(logistic(mu=0.1), stop=gs.Stop(iterations=solution.costs.gradients))
    assert solution.status is gs.Status.CONVERGED
    assert solution.certificate.gap <= 1e-8 * solution.objective
    for name in ("gradients", "values", "rounds", "control_rounds", "floats_sent"):
        assert getattr(solution.costs, name) == getattr(bare.costs, name)


def test_large_problems_sum_hessians_first(monkeypatch):
    expected = solve(logistic(), stop=gs.Stop(iterations=4))
    monkeypatch.setattr("gradslide.losses.linear_model._MOST_HESSIANS", 10)
    np.testing.assert_allclose(solve(logistic(), stop=gs.Stop(iterations=4)).x, expected.x, rtol=1e-9)


def test_one_agent_alone():
    solution = gs.solve(logistic(agents=1), gs.Graph.from_edges(1, []), gs.Newton())
    assert solution.status is gs.Status.CONVERGED
    assert solution.costs.rounds == solution.costs.control_rounds == 0


def test_damping_falls_after_good_steps_and_rises_after_rejected_ones():
    problem = logistic(mu=0.01)
    seen = []

    class Watched(newton.Newton):
        def step(self, context, state):
            state = super().step(context, state)
            seen.append((state.rejected, state.model.damping))
            return state

    gs.solve(problem, GRAPHS["ring"], Watched(), x0=np.full(4, 40.0), stop=gs.Stop(iterations=40))
    rises = [after[1] > before[1] for before, after in pairwise(seen) if after[0] > before[0]]
    assert rises
    assert all(rises)
    assert seen[-1][1] == 0


def test_the_hessian_at_the_answer_gives_standard_errors(tmp_path):
    """Against that of the pooled data, and the spread of estimates over many samples."""
    solution = solve(logistic(mu=0.1), stop=gs.Stop(kkt=gs.Relative(1e-8), iterations=20))
    scores = FEATURES @ solution.mean
    weights = 1 / ((1 + np.exp(scores)) * (1 + np.exp(-scores)))
    np.testing.assert_allclose(solution.hessian, (FEATURES.T * weights) @ FEATURES + 1.2 * np.eye(4), rtol=1e-9)
    np.testing.assert_array_equal(gs.load(solution.save(tmp_path / "solution.npz")).hessian, solution.hessian)
    assert gs.solve(logistic(), GRAPHS["ring"], gs.LBFGS()).hessian is None

    x, estimates, errors = np.array([1.0, -0.5]), [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        features = rng.normal(size=(400, 2))
        labels = np.where(rng.random(400) < 1 / (1 + np.exp(-features @ x)), 1, -1)
        fit = solve(gs.Problem(gs.losses.Logistic(features, labels, agents=12)))
        estimates.append(fit.mean)
        errors.append(np.sqrt(np.diag(np.linalg.inv(fit.hessian))))
    np.testing.assert_allclose(np.std(estimates, axis=0), np.mean(errors, axis=0), rtol=0.25)
