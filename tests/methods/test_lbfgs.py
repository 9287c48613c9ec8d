"""LBFGS: evaluations do not depend on the network; all sets, losses without Hessians, large dimensions, far starts."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from problems import DOMAINS

import gradslide as gs
from gradslide.methods import lbfgs
from gradslide.problems.model import minimize_model
from gradslide.programs.low_rank import LowRank

RNG = np.random.default_rng(3)
FEATURES = RNG.normal(size=(240, 4))
LABELS = np.sign(FEATURES @ [1.0, -2.0, 0.5, 0.0] + RNG.normal(size=240))
GRAPHS = {"ring": gs.Graph.ring(12), "star": gs.Graph.star(12), "random": gs.Graph.random(12, 4, seed=1)}


def logistic(features=FEATURES, domain=None, mu=0.0, agents=12, dtype=np.float64):
    return gs.Problem(gs.losses.Logistic(features.astype(dtype), LABELS, agents=agents), domain, mu)


def solve(problem, graph=GRAPHS["random"], memory=20, **given):
    return gs.solve(problem, graph, gs.LBFGS(memory=memory), **given)


@pytest.mark.parametrize("domain", [None, gs.domains.L2Ball(1.0)], ids=["free", "ball"])
def test_evaluations_do_not_depend_on_the_network(domain):
    found = [solve(logistic(domain=domain), graph) for graph in GRAPHS.values()]
    for solution, graph in zip(found, GRAPHS.values(), strict=True):
        costs = solution.costs
        np.testing.assert_array_equal(solution.x, found[0].x)
        assert costs.gradients == costs.values == found[0].costs.gradients <= 20
        # At the end one Hessian estimates the error of the objective, unless a gap is certified.
        assert costs.hessians == (0 if domain else 1)
        assert costs.rounds == 2 * graph.radius_center()[1] * (costs.gradients - costs.hessians)


@pytest.mark.parametrize("mu", [0.0, 0.1])
@pytest.mark.parametrize("label", [name for name in DOMAINS if name != "entropy"])
def test_every_euclidean_set_and_penalty(label, mu):
    problem = logistic(domain=DOMAINS[label](4), mu=mu)
    stop = gs.Stop(kkt=gs.Relative(1e-6), iterations=100)
    solution, best = solve(problem, stop=stop), gs.reference.reference(problem)
    assert solution.status is gs.Status.CONVERGED
    assert solution.objective <= best.objective * (1 + 1e-6) + 1e-9
    assert problem.domain.contains(solution.x, 1e-9).all()


@pytest.mark.parametrize("domain", [None, gs.domains.Box(-1.0, 0.5)], ids=["free", "box"])
def test_units_of_columns_change_nothing(domain):
    units = np.array([1.0, 1e-4, 1e4, 30.0])
    scaled = None if domain is None else gs.domains.Box(-1.0 / units, 0.5 / units)
    stop = gs.Stop(iterations=8)
    plain = solve(logistic(domain=domain), stop=stop)
    other = solve(logistic(FEATURES * units, scaled), stop=stop)
    np.testing.assert_allclose(other.mean * units, plain.mean, rtol=1e-5)


def test_losses_without_hessians():
    targets = np.arange(36.0).reshape(12, 3)
    weights = np.array([1.0, 10.0, 100.0])
    loss = gs.losses.Custom(
        value=lambda x: np.sum(weights * (x - targets) ** 2, axis=1),
        gradient=lambda x: 2 * weights * (x - targets),
        agents=12,
        dimension=3,
    )
    solution = solve(gs.Problem(loss), stop=gs.Stop(kkt=gs.Relative(1e-8), iterations=100))
    np.testing.assert_allclose(solution.mean, targets.mean(axis=0), rtol=1e-6)
    assert solution.costs.hessians == 0


def test_large_sparse_problems():
    """2,000 columns, against SciPy on the pooled data."""
    rng = np.random.default_rng(1)
    features = sp.random(1500, 2000, 0.01, random_state=1, format="csr")
    labels = np.where(features @ rng.normal(size=2000) + 0.1 * rng.normal(size=1500) > 0, 1.0, -1.0)
    problem = gs.Problem(gs.losses.Logistic(features, labels, agents=12), mu=0.01)

    def pooled(x):
        margins = labels * (features @ x)
        value = np.logaddexp(0, -margins).sum() + 0.06 * x @ x
        return value, -features.T @ (labels / (1 + np.exp(margins))) + 0.12 * x

    best = scipy.optimize.minimize(pooled, np.zeros(2000), jac=True, method="L-BFGS-B", options={"ftol": 1e-14})
    solution = solve(problem, stop=gs.Stop(gap=gs.Relative(1e-6), iterations=200))
    assert solution.status is gs.Status.CONVERGED
    assert solution.objective == pytest.approx(best.fun, rel=1e-6)
    # A link of the tree carries d + 7 numbers up (2 d + 7 once) and d + 10 down.
    assert solution.costs.floats_sent < 2 * 2 * 11 * 2000 * (solution.costs.gradients + 1)


@pytest.mark.parametrize("seed", range(3))
def test_far_starts(seed):
    problem = logistic(mu=0.01)
    x0 = 30 * np.random.default_rng(seed).normal(size=4)
    solution = solve(problem, x0=x0, stop=gs.Stop(gap=gs.Relative(1e-6), iterations=300))
    assert solution.status is gs.Status.CONVERGED
    assert solution.objective == pytest.approx(gs.reference.reference(problem).objective, rel=1e-6)


def test_separable_data_end():
    problem = gs.Problem(gs.losses.Logistic(FEATURES, np.sign(FEATURES[:, 0]), agents=12))
    solution = solve(problem)
    assert solution.status in (gs.Status.CONVERGED, gs.Status.STATIONARY)
    assert solution.objective <= 1e-2


def test_single_precision():
    single, double = (solve(logistic(dtype=dtype, domain=gs.domains.L2Ball(1.0))) for dtype in (np.float32, np.float64))
    assert single.x.dtype == np.float32
    assert single.objective == pytest.approx(double.objective, rel=1e-4)


@pytest.mark.parametrize("iterations", [1, 6])
def test_resumed_runs_are_the_same(iterations, tmp_path):
    whole = solve(logistic(), stop=gs.Stop(iterations=12))
    path = tmp_path / "run.npz"
    solve(logistic(), stop=gs.Stop(iterations=iterations), checkpoint=path)
    resumed = solve(logistic(), stop=gs.Stop(iterations=12), checkpoint=path)
    np.testing.assert_array_equal(resumed.x, whole.x)
    assert resumed.costs.gradients == whole.costs.gradients


def test_memory_must_be_a_number():
    with pytest.raises(gs.InputError, match="memory"):
        gs.LBFGS(memory=0)


def pairs(d, k, seed=0):
    """Steps, and changes of the gradient of a quadratic function with curvatures from 1 to 100."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
    H = (Q * np.geomspace(1, 100, d)) @ Q.T
    steps = rng.normal(size=(k, d))
    return H, steps, steps @ H


def dense(matrix):
    rows = np.array([matrix @ row for row in np.eye(len(matrix.diagonal))])
    return (rows + rows.T) / 2


def test_the_matrix_is_that_of_bfgs():
    """Each update satisfies the secant equation, and the matrix is the one of the recursion with dense matrices."""
    _, steps, changes = pairs(7, 4)
    metric = np.linspace(1.0, 2.0, 7)
    memory = lbfgs.Memory(metric, 3.0, steps, changes)
    matrix, diagonal = gs.LBFGS().matrix(memory), gs.LBFGS().scales(memory)
    B = np.diag(3.0 * metric)
    np.testing.assert_array_equal(diagonal, 3.0 * metric)
    for s, y in zip(steps, changes, strict=True):
        B = B - np.outer(B @ s, B @ s) / (s @ B @ s) + np.outer(y, y) / (s @ y)
    np.testing.assert_allclose(dense(matrix), B, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(matrix @ steps[-1], changes[-1], rtol=1e-9)


@pytest.mark.parametrize("label", [name for name in DOMAINS if name != "entropy"])
@pytest.mark.parametrize("k", [0, 2, 12])
def test_models_of_low_rank_have_the_minima_of_dense_ones(label, k):
    """Up to more columns than there are dimensions, with steps that lie in the span of the gradient, too."""
    d, domain = 9, DOMAINS[label](9).bind(1, 9, np.float64)
    H, steps, changes = pairs(d, k, seed=2)
    matrix = gs.LBFGS(memory=20).matrix(lbfgs.Memory(np.ones(d), 5.0, steps, changes))
    x = domain.project(np.full((1, d), 0.3))[0]
    g = 10 * (steps[0] if k else np.ones(d)) - H @ x
    low, full = (minimize_model(x, g, each, domain, 0.1, 3) for each in (matrix, dense(matrix)))
    assert low.decrease == pytest.approx(full.decrease, rel=1e-6, abs=1e-9)
    np.testing.assert_allclose(low.x, full.x, rtol=1e-3, atol=1e-4)


def test_low_rank_matrices():
    rng = np.random.default_rng(1)
    factors = rng.normal(size=(6, 2))
    matrix = LowRank(np.linspace(1.0, 2.0, 6), factors, np.array([2.0, -0.01]))
    dense = np.diag(matrix.diagonal) + (factors * matrix.weights) @ factors.T
    v, many = rng.normal(size=6), rng.normal(size=(6, 3))
    np.testing.assert_allclose(matrix @ v, dense @ v)
    np.testing.assert_allclose(matrix.solve(v), np.linalg.solve(dense, v))
    np.testing.assert_allclose(matrix.solve(many), np.linalg.solve(dense, many))
    chosen = np.array([True, False, True, True, False, True])
    np.testing.assert_allclose(matrix.within(chosen) @ v[chosen], dense[np.ix_(chosen, chosen)] @ v[chosen])
    np.testing.assert_allclose(matrix.plus(1.0) @ v, dense @ v + v)


def wrong(sign=1.0, shift=0.0):
    """A quadratic loss whose gradient has another sign, or is that of another function."""
    targets = np.arange(24.0).reshape(12, 2)
    return gs.losses.Custom(
        value=lambda x: ((x - targets) ** 2).sum(axis=1) / 2,
        gradient=lambda x: sign * (x - targets) + shift,
        agents=12,
        dimension=2,
    )


@pytest.mark.parametrize("given", [{"sign": -1.0}, {"shift": 30.0}], ids=["sign", "shift"])
def test_gradients_that_contradict_values_end_the_run(given):
    with pytest.warns(RuntimeWarning, match="contradict each other"):
        solution = solve(gs.Problem(wrong(**given)), check_loss=False)
    assert solution.status is gs.Status.CONTRADICTORY
    assert solution.costs.gradients < 20


def test_losses_that_are_not_convex_end_the_run():
    targets = np.arange(12.0)[:, None]
    bent = gs.losses.Custom(
        value=lambda x: np.sum(np.cos(x - targets), axis=1),
        gradient=lambda x: -np.sin(x - targets),
        agents=12,
        dimension=1,
    )
    with pytest.warns(RuntimeWarning, match="not convex"):
        solution = solve(gs.Problem(bent), x0=np.array([5.5 - np.pi + 0.3]))  # near the maximum of the sum
    assert solution.status is gs.Status.CONTRADICTORY


def test_rounding_does_not_make_the_matrix_indefinite():
    """Pairs that differ by many orders of magnitude: <s, B s> is lost in rounding, and older pairs are forgotten."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        steps = rng.normal(size=5) * (1 + 1e-9 * rng.normal(size=(6, 5)))
        matrix = gs.LBFGS().matrix(lbfgs.Memory(np.ones(5), 1e14, steps, 1e-6 * steps))
        assert np.linalg.eigvalsh(dense(matrix)).min() > -1e-1  # rounding of 1e14


def test_columns_that_no_metric_can_scale():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(100, 6)) * np.geomspace(1e-4, 1e4, 6)
    problem = gs.Problem(gs.losses.LeastSquares(features, rng.normal(size=100), agents=12), gs.domains.L2Ball(1e6))
    with pytest.warns(RuntimeWarning, match="differ in scale"):
        solution = solve(problem, stop=gs.Stop(kkt=gs.Relative(1e-8), iterations=300))
    assert solution.status is gs.Status.CONVERGED
    assert solution.objective == pytest.approx(gs.reference.reference(problem).objective, rel=1e-8)


def test_errors_are_not_estimated_in_every_evaluation():
    """Residuals are small long before the objective is; an estimate costs a gradient, a Hessian and control rounds."""
    rng = np.random.default_rng(0)
    features = np.c_[np.ones(400), rng.normal(size=(400, 10)) * np.geomspace(1, 30, 10)]
    features = features @ np.linalg.qr(rng.normal(size=(11, 11)))[0]
    problem = gs.Problem(gs.losses.LeastSquares(features, 1e6 + rng.normal(size=400), agents=12))
    solution = solve(problem)
    assert solution.status is gs.Status.CONVERGED
    assert solution.objective == pytest.approx(gs.reference.reference(problem).objective, rel=1e-3)
    assert 1 < solution.costs.hessians < solution.costs.gradients / 4


def test_starts_that_are_not_finite_are_refused():
    loss = gs.losses.Poisson(np.ones((12, 1)), np.ones(12), agents=12)
    for method in (gs.Newton(), gs.LBFGS(), gs.Auto()):
        for start in (400.0, 1000.0):
            with pytest.raises(gs.InputError, match="value and gradient at the start must be finite"):
                gs.solve(gs.Problem(loss), GRAPHS["ring"], method, x0=np.array([start]))


def test_noise_of_users_in_single_precision_is_no_contradiction():
    features, targets = FEATURES.astype(np.float32).reshape(12, 20, 4), RNG.normal(size=(12, 20)).astype(np.float32)

    def residuals(x):
        return np.einsum("aij,aj->ai", features, x.astype(np.float32)) - targets

    loss = gs.losses.Custom(
        value=lambda x: np.sqrt(1 + residuals(x) ** 2).sum(axis=1).astype(np.float64),
        gradient=lambda x: np.einsum("aij,ai->aj", features, residuals(x) / np.sqrt(1 + residuals(x) ** 2)).astype(
            np.float64
        ),
        agents=12,
        dimension=4,
    )
    solution = solve(gs.Problem(loss), stop=gs.Stop(kkt=gs.Relative(1e-6), iterations=60))
    assert solution.status in (gs.Status.STATIONARY, gs.Status.ITERATION_LIMIT)


def test_steps_that_are_lost_in_rounding_do_not_stall_a_run():
    """Far out on separable data a matrix may be so steep that no step changes x. The last digits decide whether."""
    for seed in range(12):
        features = FEATURES * (1 + 1e-15 * np.random.default_rng(seed).normal(size=FEATURES.shape))
        solution = solve(gs.Problem(gs.losses.Logistic(features, np.sign(features[:, 0]), agents=12)))
        assert solution.status is gs.Status.CONVERGED
        assert solution.costs.gradients < 1000
