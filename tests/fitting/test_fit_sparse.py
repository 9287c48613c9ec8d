"""Rows that are sparse stay sparse, and fits of many columns need no square matrices."""

import resource

import numpy as np
import pytest
import scipy.sparse as sp
from site_tables import assert_same
from sklearn.linear_model import Ridge

import gradslide as gs
from gradslide.fitting.fit import fit_rows
from gradslide.fitting.objective import Objective
from gradslide.regression.design import Rows
from gradslide.regression.families import FAMILIES


def problem(n, p, family, seed=0):
    """Sparse rows, and targets of this family: of "logistic" 0 and 1, of "classes" 0 to 2."""
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, p), density=min(0.2, 20 / p), format="csr", rng=rng, dtype=np.float64)
    X.data *= 10
    scores = np.asarray(X @ (rng.normal(size=p) * (rng.random(p) < 0.3))) / 10
    if family == "linear":
        return X, scores + rng.normal(size=n)
    if family == "poisson":
        return X, rng.poisson(np.exp(np.clip(scores, -3, 3))).astype(float)
    if family == "classes":
        return X, rng.integers(0, 3, n)
    return X, (rng.random(n) < 1 / (1 + np.exp(-scores))).astype(np.int64)


def fitted(X, y, family, *, ridge=0.0, lasso=0.0, covariance="model", **options):
    n, p = X.shape
    classes = {"logistic": 2, "classes": 3}.get(family, 0)
    objective = Objective(
        family=FAMILIES["logistic" if classes else family],
        classes=classes,
        ridge=np.full(p, ridge),
        lasso=np.full(p, lasso),
        standardize=False,
        has_intercept=True,
        covariance=covariance,
        columns=[str(j) for j in range(p)],
    )
    sites = [Rows.plain(X[own], y[own], np.ones(len(own))) for own in np.split(np.arange(n), [n // 10, n // 3, n // 2])]
    return fit_rows(objective, sites, gs.network.Local(gs.Graph.path(4)), **options)


@pytest.mark.parametrize("family", ["linear", "logistic", "classes", "poisson"])
@pytest.mark.parametrize("options", [{}, {"ridge": 2.0}, {"covariance": "rows"}])
def test_sparse_rows_give_what_dense_ones_give(family, options):
    X, y = problem(400, 12, family)
    sparse, dense = fitted(X, y, family, **options), fitted(X.toarray(), y, family, **options)
    assert_same(sparse.coefficients, dense.coefficients, 1e-8)
    assert_same(sparse.statistics.mean, dense.statistics.mean, 1e-12)
    assert_same(sparse.statistics.deviation, dense.statistics.deviation, 1e-12)
    if sparse.covariance.matrix is not None:
        assert_same(sparse.covariance.standard_errors, dense.covariance.standard_errors, 1e-8)
    assert (sparse.covariance.matrix is None) == ("ridge" in options)


def test_constant_columns_are_found():
    X, y = problem(400, 5, "linear")
    X = sp.csr_array(sp.hstack([X, np.full((400, 1), 1 / 3), np.zeros((400, 1))]))
    with pytest.raises(gs.InputError, match="got '5', '6', the same in all rows of all sites"):
        fitted(X, y, "linear")


def test_more_coefficients_than_hessians_are_for():
    X, y = problem(3000, 1001, "linear")
    fit = fitted(X, y, "linear", ridge=5.0)
    theirs = Ridge(alpha=5.0, solver="sparse_cg", tol=1e-12).fit(X, y)
    assert fit.solution.status is gs.Status.STATIONARY
    assert fit.solution.costs.hessians == 0
    assert_same(fit.coefficients[0, 1:], theirs.coef_, 1e-5, zero=1e-7)
    plain = fitted(X, y, "linear")
    message = "there are no standard errors of more than 1000 coefficients, here 1002"
    assert plain.covariance.problem == message
    assert plain.solution.warnings == (message,)


@pytest.mark.slow
@pytest.mark.parametrize("penalties", [{"ridge": 20.0}, {"lasso": 20.0}])
def test_20000_columns(penalties):
    X, y = problem(1500, 20_000, "logistic")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fit = fitted(X, y, "logistic", **penalties)
    # In kilobytes; a matrix of 20,000 by 20,000 has 3.2e6 of them.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1e6
    assert fit.solution.status is gs.Status.STATIONARY
    coefficients = fit.coefficients[0, 1:]
    scores = X @ coefficients + fit.coefficients[0, 0]
    residuals = 1 / (1 + np.exp(-scores)) - y
    slopes = X.T @ residuals
    assert abs(residuals.sum()) < 1e-4
    if "ridge" in penalties:
        assert np.max(np.abs(slopes + 20 * coefficients)) < 1e-4
    else:
        free = coefficients != 0
        assert 0 < np.sum(free) < 1500
        assert np.max(np.abs(slopes + 20 * np.sign(coefficients))[free]) < 1e-4
        assert np.max(np.abs(slopes)) < 20 + 1e-4
