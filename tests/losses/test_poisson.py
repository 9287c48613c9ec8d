"""Poisson regression: exposure, overflow, constants over bounded sets, and answers of other solvers."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

import gradslide as gs
from gradslide._support.errors import InputError
from gradslide.losses import Huber, Poisson, stack

M, N, P = 5, 60, 3
RNG = np.random.default_rng(7)
ROWS = np.column_stack([np.ones(N), RNG.normal(size=(N, P - 1)) * (RNG.random((N, P - 1)) < 0.7)])
EXPOSURE = RNG.uniform(0.3, 4.0, N)
COUNTS = RNG.poisson(EXPOSURE * np.exp(ROWS @ [0.8, 0.5, -0.7]))
WEIGHTS = RNG.uniform(0.5, 2.0, N)
X = np.random.default_rng(1).normal(size=(M, P))
OWN = np.array_split(np.arange(N), M)


def negative_log_likelihood(x, *, rows=slice(None), weights=None):
    """Up to a constant, as it is written in books."""
    scores = ROWS[rows] @ x
    terms = EXPOSURE[rows] * np.exp(scores) - COUNTS[rows] * (scores + np.log(EXPOSURE[rows]))
    return np.sum(terms if weights is None else weights[rows] * terms)


def answer(**given):
    """By SciPy."""
    found = minimize(lambda x: negative_log_likelihood(x, **given), np.zeros(P), method="BFGS", options={"gtol": 1e-9})
    return found.x


def far(loss, size):
    return np.full((loss.m, loss.d), size, dtype=loss.dtype)


# ---- values


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_it_is_the_likelihood_of_counts_with_exposure_up_to_a_constant(weights):
    loss = Poisson(ROWS, COUNTS, EXPOSURE, agents=M, sample_weight=weights)
    found = loss.value(X) - loss.value(np.zeros_like(X))
    for i, own in enumerate(OWN):
        ends = [negative_log_likelihood(x, rows=own, weights=weights) for x in (X[i], np.zeros(P))]
        assert found[i] == pytest.approx(ends[0] - ends[1], rel=1e-11)


def test_it_is_half_the_deviance():
    deviance = pytest.importorskip("sklearn.metrics").mean_poisson_deviance
    loss = Poisson(ROWS, COUNTS)
    assert loss.value(X[:1])[0] == pytest.approx(N / 2 * deviance(COUNTS, np.exp(ROWS @ X[0])), rel=1e-12)
    saturated, best = Poisson(np.eye(3), [1.0, 7.0, 1e9]), np.log([[1.0, 7.0, 1e9]])
    assert saturated.value(best)[0] == pytest.approx(0.0, abs=1e-15)
    # A mean that is off by a share h costs y h^2/2, which differences of large numbers would not show.
    assert saturated.value(best + np.array([0.0, 0.0, 1e-7]))[0] == pytest.approx(5e-6, rel=1e-6)


def test_a_mean_counts_rows_and_not_exposure():
    loss = Poisson(ROWS, COUNTS, EXPOSURE, agents=M, reduction="mean", sample_weight=WEIGHTS)
    total = Poisson(ROWS, COUNTS, EXPOSURE, agents=M, sample_weight=WEIGHTS)
    sizes = [WEIGHTS[own].sum() for own in OWN]
    np.testing.assert_allclose(loss.value(X), total.value(X) / sizes, rtol=1e-12)


def test_exposure_goes_with_its_rows():
    splits = [own[::-1] for own in OWN[::-1]]
    one = Poisson(ROWS, COUNTS, EXPOSURE, splits=splits)
    other = Poisson(ROWS, COUNTS, EXPOSURE, agents=M)
    np.testing.assert_allclose(one.gradient(X[::-1])[::-1], other.gradient(X), rtol=1e-12)
    np.testing.assert_allclose(stack([other.take([1]), other.take([3])]).value(X[:2]), other.take([1, 3]).value(X[:2]))
    same = Poisson(ROWS, COUNTS, 2.0, agents=M).value(X)
    np.testing.assert_array_equal(same, Poisson(ROWS, COUNTS, np.full(N, 2.0), agents=M).value(X))


def test_samples_with_exposure_are_unbiased():
    loss = Poisson(ROWS, COUNTS, EXPOSURE, agents=M)
    estimates = [loss.gradient_of_rows(X, np.full((M, 1), row)) for row in range(N // M)]
    np.testing.assert_allclose(np.mean(estimates, axis=0), loss.gradient(X), rtol=1e-12)


def test_frames():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"one": ROWS[:, 0], "age": ROWS[:, 1], "dose": ROWS[:, 2], "n": COUNTS, "time": EXPOSURE})
    loss = Poisson(table[["one", "age", "dose"]], table["n"], table["time"], agents=M)
    assert loss.feature_names == ["one", "age", "dose"]
    np.testing.assert_array_equal(loss.value(X), Poisson(ROWS, COUNTS, EXPOSURE, agents=M).value(X))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_overflow_is_an_infinite_value_and_no_warning(dtype, sparse):
    features = ROWS.astype(dtype)
    loss = Poisson(sp.csr_array(features) if sparse else features, COUNTS, EXPOSURE, agents=M)
    one_agent = far(loss, 0.0)
    one_agent[2] = [1e4, 0.0, 0.0]
    value, gradient, hessian = loss.derivatives(one_agent)
    assert np.isinf(value).tolist() == [i == 2 for i in range(M)]
    for found in (gradient, hessian):
        assert np.isfinite(found.reshape(M, -1)).all(axis=1).tolist() == [i != 2 for i in range(M)]
    for found in (loss.value(one_agent), loss.value_in_doubles(one_agent), loss.value_and_gradient(one_agent)[0]):
        np.testing.assert_array_equal(found, value)
    if dtype == np.float32:
        assert np.isinf(loss.evaluation(far(loss, 0.0)).change(one_agent)[0]).tolist() == [i == 2 for i in range(M)]
    assert np.isfinite(loss.value(far(loss, 0.0) - [1e4, 0, 0])).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"counts": -COUNTS}, "counts must not be negative; got -.*use LeastSquares"),
        ({"counts": -COUNTS, "exposure": EXPOSURE}, "counts must not be negative"),
        ({"counts": COUNTS[:4]}, "counts must be 1-D with one entry per row of features, 60 in all"),
        ({"counts": COUNTS[:4], "exposure": EXPOSURE}, "counts must be 1-D with one entry per row"),
        ({"counts": np.where(COUNTS > 2, np.nan, COUNTS)}, "counts must be finite"),
        ({"exposure": 0.0}, "exposure must be positive; got 0.0; remove rows without exposure"),
        ({"exposure": -EXPOSURE}, "exposure must be positive"),
        ({"exposure": EXPOSURE[:3]}, "exposure must be 1-D with one entry per row of features, 60 in all"),
        ({"exposure": EXPOSURE * np.inf}, "exposure must be finite"),
        ({"exposure": "long"}, "exposure must hold real numbers"),
    ],
)
def test_bad_input(given, message):
    with pytest.raises(InputError, match=message):
        Poisson(**{"features": ROWS, "counts": COUNTS} | given)


def test_check_loss_finds_nothing():
    report = gs.check_loss(Poisson(ROWS, COUNTS, EXPOSURE, agents=M))
    assert report.ok
    assert "hessian" in report.passed


# ---- smoothness


SETS = {
    "ball": gs.domains.L2Ball(0.9, origin=[0.1, 0.2, 0.0]),
    "l1 ball": gs.domains.L1Ball(1.0),
    "box": gs.domains.Box([-1.0, -0.5, 0.0], [0.2, 0.5, 1.0]),
    "radii": gs.domains.L2Ball(np.linspace(0.2, 1.0, M)),
    "mixed": gs.domains.PerAgent([gs.domains.L2Ball(0.5), gs.domains.Box(-0.3, 0.3)] * 2 + [gs.domains.Simplex()]),
    "penalized": gs.domains.Box(-1.0, 0.5, penalty=gs.L1(3.0)),
    "simplex": gs.domains.Simplex(),
    "entropy": gs.domains.EntropySimplex(),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", SETS)
def test_the_constant_of_a_bounded_set_bounds_all_hessians_there(name, sparse, dtype):
    features = ROWS.astype(dtype)
    loss = Poisson(sp.csr_array(features) if sparse else features, COUNTS, EXPOSURE, agents=M)
    problem = gs.Problem(loss, SETS[name])
    L, rng, nearest = problem.smoothness(), np.random.default_rng(0), 0.0
    for _ in range(100):
        x = problem.domain.project(3 * rng.normal(size=(M, P)).astype(dtype))
        hessian = loss.hessian(x)
        norms = np.abs(hessian).max(axis=(1, 2)) if problem.domain.norm == 1 else np.linalg.norm(hessian, 2, (1, 2))
        assert np.all(norms <= L * (1 + 1e-6))
        nearest = max(nearest, np.max(norms / L))
    # The rows attain their largest scores at different points.
    assert nearest > 0.4


def test_the_constant_is_exact_for_one_row():
    problem = gs.Problem(Poisson([[3.0, 4.0]], [1], 2.0), gs.domains.L2Ball(0.2))
    assert problem.smoothness()[0] == pytest.approx(2 * np.exp(5 * 0.2) * 25, rel=1e-12)
    below = gs.Problem(Poisson([[-3.0, -4.0]], [1]), gs.domains.NonNegative())
    assert below.smoothness()[0] == pytest.approx(25, rel=1e-12)


def test_in_a_stack_each_agent_has_its_own_set():
    poisson, huber = Poisson(ROWS, COUNTS, agents=2), Huber(ROWS, COUNTS, agents=2)
    domain = gs.domains.L2Ball([0.1, 0.2, 0.5, 0.8])
    mixed = gs.Problem(stack([huber, poisson]), domain).smoothness()
    np.testing.assert_allclose(mixed[:2], huber.smoothness())
    np.testing.assert_allclose(mixed[2:], gs.Problem(poisson, gs.domains.L2Ball([0.5, 0.8])).smoothness())


@pytest.mark.parametrize(
    ("domain", "got"),
    [
        (None, "a set X on which scores a x are not bounded"),
        (gs.domains.NonNegative(), "a set X on which scores a x are not bounded"),
        (gs.domains.L2Ball(1e4), "scores a x up to .* whose exponential overflows"),
    ],
)
@pytest.mark.parametrize("method", [gs.PDS(), gs.NIDS(), gs.ADMM()])
def test_methods_that_need_a_constant_say_that_there_is_none(domain, got, method):
    problem = gs.Problem(Poisson(ROWS, COUNTS, agents=M), domain)
    with pytest.raises(InputError, match=rf"Poisson has on bounded sets only; got {got}; use gs\.Newton\(\), or a"):
        gs.solve(problem, gs.Graph.ring(M), method)


def test_the_loss_alone_has_no_constant():
    with pytest.raises(InputError, match=r"got all of R\^d; use gs\.Newton"):
        Poisson(ROWS, COUNTS).smoothness()


def test_a_class_with_another_value_does_not_inherit_constants():
    class Shifted(Poisson):
        def value(self, x):
            return super().value(x) + (x**2).sum(axis=1)

        def compute_smoothness(self, norm):
            return np.full(self.m, 123.0)

    problem = gs.Problem(Shifted(ROWS, COUNTS, agents=M), gs.domains.L2Ball(1.0))
    assert not problem.loss.has_hessian
    assert problem.smoothness().tolist() == [123.0] * M


# ---- answers


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_newton_finds_the_answer_of_scipy(sparse, dtype):
    features = ROWS.astype(dtype)
    loss = Poisson(sp.csr_array(features) if sparse else features, COUNTS, EXPOSURE, agents=M)
    stop = gs.Stop(kkt=gs.Relative(1e-6 if dtype == np.float32 else 1e-9), iterations=100)
    solution = gs.solve(gs.Problem(loss), gs.Graph.ring(M), gs.Newton(), stop=stop)
    assert solution.status is gs.Status.CONVERGED
    assert solution.costs.gradients < 15
    np.testing.assert_allclose(solution.mean, answer(), atol=1e-5)


def test_newton_finds_the_answer_of_scikit_learn_with_a_ridge():
    linear_model = pytest.importorskip("sklearn.linear_model")
    ridge = 0.3
    regressor = linear_model.PoissonRegressor(alpha=ridge, fit_intercept=False, tol=1e-10, solver="newton-cholesky")
    regressor.fit(ROWS, COUNTS / EXPOSURE, sample_weight=EXPOSURE)
    # Its loss is a mean, weighted by exposure.
    problem = gs.Problem(Poisson(ROWS, COUNTS, EXPOSURE, agents=M), mu=ridge * EXPOSURE.sum() / M)
    solution = gs.solve(problem, gs.Graph.star(M), gs.Newton(), stop=gs.Stop(kkt=gs.Relative(1e-9), iterations=100))
    np.testing.assert_allclose(solution.mean, regressor.coef_, atol=1e-6)


def test_newton_rejects_steps_into_overflow():
    loss = Poisson(100 * ROWS, COUNTS, EXPOSURE, agents=M)
    # Curvature is next to nothing at the start, so the first steps are far too long.
    start = np.array([-0.1, 0.0, 0.0])
    solution = gs.solve(gs.Problem(loss), gs.Graph.ring(M), gs.Newton(), x0=start)
    assert solution.status is gs.Status.CONVERGED
    assert solution.parameters["rejected"] > 0
    np.testing.assert_allclose(100 * solution.mean, answer(), atol=1e-3)


@pytest.mark.parametrize("method", [gs.NIDS(), gs.AutoPDS(), gs.Newton()])
def test_methods_agree_on_a_bounded_set(method):
    problem = gs.Problem(Poisson(ROWS, COUNTS, EXPOSURE, agents=M), gs.domains.L2Ball(0.6))
    stop = gs.Stop(kkt=gs.Relative(1e-8), iterations=20_000)
    solution = gs.solve(problem, gs.Graph.complete(M), method, stop=stop)
    found = minimize(
        negative_log_likelihood,
        np.zeros(P),
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda x: 0.36 - x @ x},
        options={"ftol": 1e-14},
    )
    assert np.linalg.norm(found.x) == pytest.approx(0.6)
    np.testing.assert_allclose(solution.mean, found.x, atol=1e-5)


def test_without_a_bounded_set_the_default_method_never_claims_a_wrong_answer():
    solution = gs.solve(gs.Problem(Poisson(ROWS, COUNTS, EXPOSURE, agents=M)), gs.Graph.ring(M), gs.AutoPDS())
    assert solution.status is gs.Status.DIVERGED or np.allclose(solution.mean, answer(), atol=1e-3)
