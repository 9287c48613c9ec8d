"""Penalized coefficients of sites that keep their rows, against scikit-learn's on all rows."""

import re
import warnings

import numpy as np
import pytest
import site_tables as data
from lifelines import CoxPHFitter
from site_tables import assert_same, features_of, fit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, PoissonRegressor, Ridge
from sklearn.preprocessing import StandardScaler

TIGHT = {"tol": 1e-12, "max_iter": 100_000}


def assert_same_coefficients(ours, theirs, tolerance=1e-6, zero=1e-9):
    """Intercepts and slopes, by class."""
    rows = np.column_stack([np.ravel(theirs.intercept_), np.atleast_2d(theirs.coef_)])
    assert_same(ours.coefficients, rows, tolerance, zero)
    assert ours.standard_errors is None
    assert "no standard errors" in ours.covariance.problem
    assert ours.warnings == ()
    assert ours.provenance["status"] == "CONVERGED"


def scaled(table, *others):
    """Standardized features, and the deviations."""
    scaler = StandardScaler()
    return scaler.fit_transform(features_of(table, *others)), scaler


def in_original_units(model, scaler):
    """A model of standardized columns as one of the columns as they are."""
    model.coef_ = model.coef_ / scaler.scale_
    model.intercept_ = model.intercept_ - model.coef_ @ scaler.mean_
    return model


@pytest.mark.parametrize("weight", [None, "w"])
def test_ridge(weight):
    table = data.weighted(data.diabetes())
    ours = fit(table if weight else table.drop(columns="w"), family="linear", label="target", ridge=3.0, weight=weight)
    weights = table["w"] if weight else None
    theirs = Ridge(alpha=3.0, solver="cholesky").fit(features_of(table, "target", "w"), table["target"], weights)
    assert_same_coefficients(ours, theirs)


def test_lasso():
    table = data.diabetes()
    ours = fit(table, "path", family="linear", label="target", lasso=2.0 * len(table))
    theirs = Lasso(alpha=2.0, **TIGHT).fit(features_of(table, "target"), table["target"])
    assert_same_coefficients(ours, theirs)
    assert np.array_equal(ours.coefficients[1:] == 0, theirs.coef_ == 0)
    assert np.any(theirs.coef_ == 0)


def test_elastic_net():
    table, alpha, share = data.diabetes(), 1.5, 0.3
    n = len(table)
    ours = fit(table, "star", family="linear", label="target", lasso=n * alpha * share, ridge=n * alpha * (1 - share))
    theirs = ElasticNet(alpha=alpha, l1_ratio=share, **TIGHT).fit(features_of(table, "target"), table["target"])
    assert_same_coefficients(ours, theirs)


def test_two_classes():
    """All 30 columns as they are; scikit-learn gets them scaled, and the ridge of each with it."""
    table = data.breast_cancer()
    ours = fit(table, family="logistic", label="target", ridge=1 / 0.5)
    theirs = LogisticRegression(C=0.5, solver="newton-cholesky", tol=1e-14, max_iter=1000)
    assert_same_coefficients(ours, theirs.fit(features_of(table, "target"), table["target"]))


@pytest.mark.parametrize("weight", [None, "w"])
def test_several_classes(weight):
    table = data.weighted(data.wine())
    ours = fit(
        table if weight else table.drop(columns="w"), family="logistic", label="target", ridge=2.0, weight=weight
    )
    theirs = LogisticRegression(C=0.5, solver="newton-cholesky", tol=1e-14, max_iter=1000)
    theirs.fit(features_of(table, "target", "w"), table["target"], table["w"] if weight else None)
    assert_same_coefficients(ours, theirs, zero=1e-8)


def test_counts():
    table = data.visits()
    ours = fit(table, "random", family="poisson", label="mdvis", ridge=0.05 * len(table))
    theirs = PoissonRegressor(alpha=0.05, solver="newton-cholesky", tol=1e-12, max_iter=1000)
    assert_same_coefficients(ours, theirs.fit(features_of(table, "mdvis"), table["mdvis"]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["breast_cancer", "wine"])
@pytest.mark.parametrize("share", [1.0, 0.4])
def test_classes_with_a_lasso(name, share):
    table = getattr(data, name)()
    strength = 5.0
    penalties = {"lasso": strength * share, "ridge": strength * (1 - share)}
    ours = fit(table, family="logistic", label="target", standardize=True, **penalties)
    features, scaler = scaled(table, "target")
    theirs = LogisticRegression(C=1 / strength, l1_ratio=share, solver="saga", random_state=0, **TIGHT)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        theirs.fit(features, table["target"])
    theirs = in_original_units(theirs, scaler)
    if name == "wine":
        # All intercepts together are free.
        theirs.intercept_ -= theirs.intercept_.mean()
    assert_same_coefficients(ours, theirs, 1e-6, zero=1e-7)
    assert np.any(theirs.coef_ == 0)


@pytest.mark.parametrize("penalties", [{"ridge": 20.0}, {"lasso": 500.0}, {"lasso": 300.0, "ridge": 30.0}])
def test_penalties_of_standardized_columns(penalties):
    table = data.diabetes()
    ours = fit(table, family="linear", label="target", standardize=True, **penalties)
    features, scaler = scaled(table, "target")
    alpha = sum(penalties.values())
    theirs = ElasticNet(alpha=alpha / len(table), l1_ratio=penalties.get("lasso", 0.0) / alpha, **TIGHT)
    if "lasso" not in penalties:
        theirs = Ridge(alpha=alpha, solver="cholesky")
    assert_same_coefficients(ours, in_original_units(theirs.fit(features, table["target"]), scaler))


def test_factor_0_leaves_a_column_without_penalty():
    """It is the same as removing that column, and the mean, from label and features before."""
    table = data.diabetes()
    ours = fit(table, family="linear", label="target", ridge=50.0, penalty_factors={"bmi": 0.0, "age": 4.0})
    features = features_of(table, "target")
    rest = features.drop(columns="bmi")
    free = np.column_stack([np.ones(len(table)), features["bmi"]])
    residual = np.eye(len(table)) - free @ np.linalg.pinv(free)
    factors = np.where(rest.columns == "age", 2.0, 1.0)
    theirs = Ridge(alpha=50.0, fit_intercept=False, solver="cholesky")
    theirs.fit(residual @ rest / factors, residual @ table["target"])
    slopes = dict(zip(rest.columns, theirs.coef_ / factors, strict=True))
    assert_same([ours.coefficients[ours.names.index(name)] for name in slopes], list(slopes.values()))


@pytest.mark.parametrize("name", ["wine", "breast_cancer"])
def test_factor_0_in_a_classification(name):
    """A column without penalty has the coefficient that a penalty of almost nothing gives it."""
    table = getattr(data, name)().iloc[:, [0, 1, 2, -2, -1]]
    column = table.columns[0]
    given = {"family": "logistic", "label": "target", "ridge": 1.0}
    ours = fit(table, **given, penalty_factors={column: 0.0})
    nearly = fit(table, **given, penalty_factors={column: 1e-9})
    assert_same(ours.coefficients, nearly.coefficients, 1e-5)
    assert abs(np.sum(ours.coefficients.reshape(-1, 4)[:, 1])) < 1e-9 or name == "breast_cancer"


def test_times():
    """lifelines penalizes columns divided by their deviations with n - 1 in place of n, and the mean over the rows."""
    table = data.rossi()
    n = len(table)
    ours = fit(table, family="cox", time="week", event="arrest", ridge=20.0, standardize=True)
    fitter = CoxPHFitter(penalizer=20.0 / n * (n - 1) / n, l1_ratio=0.0)
    theirs = fitter.fit(table, "week", "arrest", strata="site", fit_options={"precision": 1e-14})
    assert_same(ours.coefficients, theirs.params_)


def test_summary_of_a_penalized_model():
    text = fit(data.diabetes(), family="linear", label="target", ridge=3.0, lasso=1.0).summary()
    assert re.search(r"Penalty: +ridge 3, lasso 1", text)
    assert "Estimates with a penalty are biased: they have no standard errors." in text
    assert "std err" not in text
