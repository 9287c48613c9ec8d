"""Coefficients of sites that keep their rows, against scikit-learn's on all rows."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn import datasets
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

import gradslide as gs
from gradslide.sklearn import DecentralizedLasso, DecentralizedLogisticRegression, DecentralizedRidge

WITH_PENALTY = tuple(int(part) for part in sklearn.__version__.split(".")[:2]) < (1, 8)


def rows(name, scaled=True):
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return (StandardScaler().fit_transform(X) if scaled else X), y


def logistic(penalty="l2", C=1.0, l1_ratio=None, **options):
    """scikit-learn's, in the words of its release, as exact as it can be."""
    share = {"l2": 0.0, "l1": 1.0, None: 0.0}.get(penalty, l1_ratio)
    solver = "lbfgs" if share == 0 else "saga"
    options = {"tol": 1e-10, "max_iter": 50_000, "solver": solver, "random_state": 0} | options
    if WITH_PENALTY:
        return LogisticRegression(penalty=penalty, C=C, l1_ratio=l1_ratio, **options)
    return LogisticRegression(C=np.inf if penalty is None else C, l1_ratio=share, **options)


def assert_agree(ours, theirs, tolerance=1e-4):
    for mine, other in ((ours.coef_, theirs.coef_), (ours.intercept_, theirs.intercept_)):
        mine, other = np.asarray(mine), np.asarray(other)
        if other.ndim == 0:
            mine = mine.reshape(())
        assert mine.shape == other.shape
        assert np.max(np.abs(mine - other) / np.maximum(1, np.abs(other))) <= tolerance


@pytest.mark.covering
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("penalty", ["l2", "l1", "elasticnet"])
@pytest.mark.parametrize("name", ["breast_cancer", "wine", "iris"])
def test_logistic_regression(name, penalty, fit_intercept):
    X, y = rows(name)
    options = {"C": 0.05, "l1_ratio": 0.4 if penalty == "elasticnet" else None, "fit_intercept": fit_intercept}
    ours = DecentralizedLogisticRegression(penalty, **options).fit(X, y)
    # scikit-learn's saga is slow here, and liblinear knows no intercept that is free.
    quick = {"solver": "liblinear"} if (name, penalty, fit_intercept) == ("breast_cancer", "l1", False) else {}
    theirs = logistic(penalty, **options, **quick).fit(X, y)
    assert_agree(ours, theirs)
    assert np.allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-4)
    assert np.allclose(ours.predict_log_proba(X), np.log(ours.predict_proba(X)))
    assert np.array_equal(ours.coef_ == 0, theirs.coef_ == 0)
    assert ours.score(X, y) == theirs.score(X, y)


@pytest.mark.first(2)
@pytest.mark.parametrize("name", ["breast_cancer", "wine", "iris"])
def test_defaults_on_rows_as_they_are(name):
    X, y = rows(name, scaled=False)
    solver = {"solver": "newton-cholesky"} if name == "breast_cancer" else {"solver": "newton-cg"}
    assert_agree(DecentralizedLogisticRegression().fit(X, y), logistic(**solver).fit(X, y))


def test_no_penalty():
    X, y = rows("iris")
    X, y = X[50:, :2], y[50:]  # classes that cannot be told apart without errors
    theirs = logistic(None).fit(X, y)
    assert_agree(DecentralizedLogisticRegression(None).fit(X, y), theirs)
    assert_agree(DecentralizedLogisticRegression(C=np.inf).fit(X, y), theirs)


def test_no_penalty_of_three_classes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.argmax(X + rng.gumbel(size=(300, 3)), axis=1)
    assert_agree(DecentralizedLogisticRegression(None).fit(X, y), logistic(None).fit(X, y))


@pytest.mark.parametrize("class_weight", ["balanced", {0: 3.0, 2: 0.5}])
def test_class_weights(class_weight):
    X, y = rows("wine")
    keep = np.r_[0:40, 59:100, 130:178]
    ours = DecentralizedLogisticRegression(class_weight=class_weight).fit(X[keep], y[keep])
    assert_agree(ours, logistic(class_weight=class_weight).fit(X[keep], y[keep]))


@pytest.mark.covering
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("alpha", "scaled"), [(0.01, True), (10.0, True), (1.0, False)])
def test_ridge(alpha, scaled, fit_intercept):
    X, y = datasets.load_diabetes(return_X_y=True, scaled=scaled)
    options = {"alpha": alpha, "fit_intercept": fit_intercept}
    assert_agree(DecentralizedRidge(**options).fit(X, y), Ridge(**options, solver="cholesky").fit(X, y))


@pytest.mark.covering
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("l1_ratio", [1.0, 0.5])
@pytest.mark.parametrize("alpha", [0.01, 1.0])
def test_lasso_and_elastic_net(alpha, l1_ratio, fit_intercept):
    X, y = datasets.load_diabetes(return_X_y=True, scaled=False)
    options = {"alpha": alpha, "fit_intercept": fit_intercept}
    other = Lasso if l1_ratio == 1 else ElasticNet
    theirs = other(**options, **({} if l1_ratio == 1 else {"l1_ratio": l1_ratio}), tol=1e-10, max_iter=100_000)
    assert_agree(DecentralizedLasso(**options, l1_ratio=l1_ratio).fit(X, y), theirs.fit(X, y))


def test_lasso_has_the_same_zeros():
    X, y = datasets.load_diabetes(return_X_y=True)
    ours = DecentralizedLasso(0.3, graph=gs.Graph.ring(7)).fit(X, y)
    theirs = Lasso(0.3, tol=1e-10).fit(X, y)
    assert np.array_equal(ours.coef_ == 0, theirs.coef_ == 0)
    assert 0 < np.sum(ours.coef_ == 0) < 10


def test_sample_weights():
    X, y = datasets.load_diabetes(return_X_y=True)
    weight = np.random.default_rng(0).integers(0, 4, size=len(y))
    assert_agree(DecentralizedRidge(0.1).fit(X, y, weight), Ridge(0.1, solver="cholesky").fit(X, y, weight))
    assert_agree(DecentralizedLasso(0.1).fit(X, y, weight), Lasso(0.1, tol=1e-10).fit(X, y, sample_weight=weight))
    label = (y > 140).astype(int)
    assert_agree(
        DecentralizedLogisticRegression(class_weight="balanced").fit(X, label, weight),
        DecentralizedLogisticRegression(class_weight="balanced").fit(np.repeat(X, weight, 0), np.repeat(label, weight)),
        1e-6,
    )


@pytest.mark.first(2)
@pytest.mark.parametrize("graph", ["ring", "star", "path", "complete"])
def test_any_graph_and_any_split(graph):
    X, y = rows("breast_cancer")
    sizes = np.array([1, 3, 10, 50, 105, 400])  # the first sites have rows of one class
    sites = np.repeat(np.arange(6), sizes)
    order = np.argsort(y, kind="stable")
    ours = DecentralizedLogisticRegression(graph=getattr(gs.Graph, graph)(6)).fit(X[order], y[order], sites=sites)
    assert_agree(ours, logistic().fit(X, y))


@pytest.mark.first(1)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_sparse_rows(fit_intercept):
    rng = np.random.default_rng(1)
    X = rng.uniform(1, 3, size=(200, 8)) * (rng.uniform(size=(200, 8)) < 0.3)
    y = X @ rng.normal(size=8) + rng.normal(size=200) + 5
    label = np.digitize(y, np.quantile(y, [0.3, 0.6]))
    for model, target in (
        (DecentralizedRidge(fit_intercept=fit_intercept), y),
        (DecentralizedLasso(0.1, fit_intercept=fit_intercept), y),
        (DecentralizedLogisticRegression(fit_intercept=fit_intercept), label),
        (DecentralizedLogisticRegression("l1", fit_intercept=fit_intercept), label == 1),
    ):
        dense = model.fit(X, target)
        coef, intercept, scores = dense.coef_, dense.intercept_, dense.predict(X)
        for make in (sp.csr_array, sp.csc_matrix):
            sparse = model.fit(make(X), target)
            assert np.allclose(sparse.coef_, coef, atol=1e-6)
            assert np.allclose(sparse.intercept_, intercept, atol=1e-6)
            assert np.allclose(sparse.predict(make(X)), scores, atol=1e-5)


def test_columns_of_any_size_and_offset():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(150, 5)) * 10.0 ** np.arange(-4, 6, 2) + 10.0 ** np.arange(0, 10, 2)
    y = (X - X.mean(axis=0)) / X.std(axis=0) @ np.arange(5) + rng.normal(size=150)
    ours = DecentralizedRidge(1e-6).fit(X, y)
    theirs = Ridge(1e-6, solver="svd").fit(X, y)
    assert np.allclose(ours.coef_, theirs.coef_, rtol=1e-5)
    assert np.allclose(ours.predict(X), theirs.predict(X), atol=1e-5)


def test_constant_columns_and_targets():
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.normal(size=40), np.full(40, 1e6 / 3)])
    ours = DecentralizedRidge(0.0).fit(X, X[:, 0])
    assert np.allclose(ours.coef_, [1, 0])
    ours = DecentralizedLasso().fit(X, np.full(40, 0.1))
    assert np.allclose(ours.coef_, 0)
    assert np.isclose(ours.intercept_, 0.1)


def test_a_run_that_stops_short_says_so():
    X, y = rows("breast_cancer")
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        model = DecentralizedLogisticRegression(max_iter=3).fit(X, y)
    assert model.n_iter_ == 3
    assert model.solution_.status is gs.Status.ITERATION_LIMIT
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        separable = DecentralizedLogisticRegression(None, max_iter=50).fit([[-1.0], [1.0]], [0, 1])
    assert separable.coef_[0, 0] > 1
