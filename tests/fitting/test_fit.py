"""Coefficients, errors and likelihoods of sites that keep their rows, against statsmodels and lifelines."""

import numpy as np
import pandas as pd
import pytest
import site_tables as data
import statsmodels.api as sm
from lifelines import CoxPHFitter
from scipy.stats import norm
from site_tables import assert_same, features_of, fit, quietly
from statsmodels.duration.hazard_regression import PHReg

import gradslide as gs
from gradslide.fitting.sites import site_data

TIGHT = {"disp": 0, "method": "newton", "tol": 1e-14, "maxiter": 100}


def design(table, *others, intercept=True):
    """The features, with a column of ones in front."""
    features = features_of(table, *others)
    return sm.add_constant(features) if intercept else features


def repeated(table):
    """Rows of weight w, w times."""
    return table.loc[table.index.repeat(table["w"])]


def assert_same_tests(ours, theirs, tolerance=1e-6):
    """Coefficients, covariance, statistics, p-values and intervals; of several classes one after the other."""
    tests = ours.tests
    columns = [theirs.params, theirs.bse, theirs.tvalues]
    for mine, other in zip((ours.coefficients, tests.errors, tests.statistics), columns, strict=True):
        assert_same(mine, np.asarray(other).T, tolerance)
    assert_same(tests.p_values, np.asarray(theirs.pvalues).T, 100 * tolerance, zero=1e-12)
    matrix = np.asarray(theirs.cov_params())
    np.testing.assert_allclose(ours.covariance.matrix, matrix, rtol=tolerance, atol=tolerance * np.abs(matrix).max())
    interval = np.asarray(theirs.conf_int()).reshape(-1, 2)
    spread = tolerance * np.max(np.abs(interval))
    np.testing.assert_allclose(np.column_stack([tests.low, tests.high]), interval, rtol=tolerance, atol=spread)


def assert_same_statistics(ours, **theirs):
    for name, value in theirs.items():
        assert_same(ours.statistics[name.replace("_", " ")], value, 1e-8)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weight", [None, "w"])
def test_linear(weight, intercept):
    table = data.weighted(data.diabetes())
    given = table if weight else table.drop(columns="w")
    ours = fit(given, family="linear", label="target", weight=weight, intercept=intercept)
    rows, weights = design(table, "target", "w", intercept=intercept), table["w"] if weight else 1.0
    theirs = sm.WLS(table["target"], rows, weights=weights).fit()
    assert_same_tests(ours, theirs)
    assert ours.tests.letter == "t"
    r2 = "R2" if intercept else "R2 (uncentred)"
    found = {"log-likelihood": theirs.llf, r2: theirs.rsquared, "adjusted R2": theirs.rsquared_adj}
    assert_same_statistics(ours, **found, AIC=theirs.aic, BIC=theirs.bic, scale=theirs.scale, deviance=theirs.ssr)
    if intercept:
        null = sm.WLS(table["target"], np.ones(len(table)), weights=weights).fit()
        test = theirs.compare_lr_test(null)
        assert_same_statistics(ours, **{"null log-likelihood": null.llf, "null deviance": null.ssr})
        assert_same_statistics(ours, LR=test[0], LR_p=test[1], LR_degrees_of_freedom=test[2])


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weight", [None, "w"])
def test_two_classes(weight, intercept):
    table = data.weighted(data.affairs())
    given = table if weight else table.drop(columns="w")
    ours = fit(given, "star", family="logistic", label="any", weight=weight, intercept=intercept)
    every = repeated(table) if weight else table
    theirs = sm.Logit(every["any"], design(every, "any", "w", intercept=intercept)).fit(**TIGHT)
    assert_same_tests(ours, theirs)
    assert ours.tests.letter == "z"
    assert_same_statistics(ours, **{"log-likelihood": theirs.llf, "deviance": -2 * theirs.llf})
    assert_same_statistics(ours, AIC=theirs.aic, BIC=theirs.bic)
    if intercept:
        assert_same_statistics(ours, **{"null log-likelihood": theirs.llnull, "pseudo R2": theirs.prsquared})
        assert_same_statistics(ours, LR=theirs.llr, LR_degrees_of_freedom=theirs.df_model)
        assert_same(ours.statistics["LR p"], theirs.llr_pvalue, 1e-6)


@pytest.mark.parametrize(("weight", "intercept"), [(None, True), ("w", True), (None, False)])
def test_several_classes(weight, intercept):
    table = data.weighted(data.votes())
    given = table if weight else table.drop(columns="w")
    ours = fit(given, "path", family="logistic", label="PID", weight=weight, intercept=intercept)
    every = repeated(table) if weight else table
    theirs = quietly(sm.MNLogit(every["PID"], design(every, "PID", "w", intercept=intercept)).fit, **TIGHT)
    assert_same_tests(ours, theirs)
    assert ours.names[: intercept + 1] == ("1: intercept",) * intercept + ("1: logpopul",)
    assert_same_statistics(ours, **{"log-likelihood": theirs.llf, "deviance": -2 * theirs.llf})
    assert_same_statistics(ours, AIC=2 * ours.coefficients.size - 2 * theirs.llf)
    shares = every["PID"].value_counts() / len(every) if intercept else np.full(7, 1 / 7)
    assert_same_statistics(ours, **{"null log-likelihood": np.sum(every["PID"].value_counts() * np.log(shares))})
    assert ours.statistics["LR degrees of freedom"] == 30


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("weight", "exposure"), [(None, None), ("w", None), (None, "week"), ("w", "week")])
def test_counts(weight, exposure, intercept):
    table = data.weighted(data.rossi() if exposure else data.visits())
    label, *dropped = ("arrest", "week") if exposure else ("mdvis",)
    given = table if weight else table.drop(columns="w")
    ours = fit(given, "complete", family="poisson", label=label, weight=weight, exposure=exposure, intercept=intercept)
    rows = design(table, label, *dropped, "w", intercept=intercept)
    weights, exposures = table["w"] if weight else None, table["week"] if exposure else None
    model = sm.GLM(table[label], rows, sm.families.Poisson(), freq_weights=weights, exposure=exposures)
    theirs = model.fit(tol=1e-15, maxiter=100)
    assert_same_tests(ours, theirs)
    assert_same_statistics(ours, **{"log-likelihood": theirs.llf, "deviance": theirs.deviance, "AIC": theirs.aic})
    size = ours.statistics["weight"]
    assert_same_statistics(ours, BIC=len(theirs.params) * np.log(size) - 2 * theirs.llf)
    if intercept:
        found = {"null log-likelihood": theirs.llnull, "null deviance": theirs.null_deviance}
        assert_same_statistics(ours, **found, **{"pseudo R2": theirs.pseudo_rsquared("mcf")})
        assert_same_statistics(ours, LR=2 * (theirs.llf - theirs.llnull))
    assert_same(ours.evaluation["fit"]["dispersion"], theirs.pearson_chi2 / size)


@pytest.mark.parametrize("weight", [None, "w"])
def test_times(weight):
    table = data.weighted(data.rossi())
    given = table if weight else table.drop(columns="w")
    ours = fit(given, family="cox", time="week", event="arrest", weight=weight)
    theirs = CoxPHFitter().fit(
        given, "week", "arrest", strata="site", weights_col=weight, fit_options={"precision": 1e-12}
    )
    found = theirs.summary
    pairs = [(ours.coefficients, "coef"), (ours.tests.errors, "se(coef)"), (ours.tests.statistics, "z")]
    pairs += [(ours.tests.p_values, "p"), (ours.tests.low, "coef lower 95%"), (ours.tests.high, "coef upper 95%")]
    for mine, name in pairs:
        assert_same(mine, found[name])
    assert ours.names == tuple(found.index)
    np.testing.assert_allclose(ours.covariance.matrix, theirs.variance_matrix_, rtol=1e-6)
    test = theirs.log_likelihood_ratio_test()
    assert_same_statistics(ours, **{"log-likelihood": theirs.log_likelihood_, "AIC": theirs.AIC_partial_})
    assert_same_statistics(ours, LR=test.test_statistic, LR_p=test.p_value, LR_degrees_of_freedom=test.degrees_freedom)
    assert_same(ours.evaluation["fit"]["concordance"], theirs.concordance_index_)
    if not weight:
        same = PHReg(
            table["week"],
            features_of(table, "week", "arrest", "w"),
            table["arrest"],
            strata=table["site"],
            ties="efron",
        )
        assert_same_tests(ours, quietly(same.fit))
        assert ours.statistics["weighted events"] == table["arrest"].sum()


ROBUST = [
    ("linear", "diabetes", "target", lambda y, X: sm.OLS(y, X), {}),
    ("logistic", "affairs", "any", lambda y, X: sm.Logit(y, X), TIGHT),
    ("poisson", "visits", "mdvis", lambda y, X: sm.Poisson(y, X), TIGHT),
    ("logistic", "votes", "PID", lambda y, X: sm.MNLogit(y, X), TIGHT),
]


@pytest.mark.parametrize("covariance", ["rows", "site"])
@pytest.mark.parametrize(("family", "name", "label", "model", "options"), ROBUST)
def test_robust_errors(family, name, label, model, options, covariance):
    """Linear models use t; errors that are clustered by site use t with one degree of freedom less than sites.

    statsmodels has the factor n/(n - k) of HC1 for linear models only.
    """
    table = getattr(data, name)()
    ours = fit(table, "random", family=family, label=label, covariance=covariance)
    if covariance == "rows":
        kind = {"cov_type": "HC1", "use_t": family == "linear"}
    else:
        kind = {"cov_type": "cluster", "cov_kwds": {"groups": table["site"].factorize()[0]}, "use_t": True}
    theirs = quietly(model(table[label], design(table, label)).fit, **options, **kind)
    if covariance == "rows" and family != "linear":
        n, k = len(table), len(ours.names)
        errors = np.sqrt(n / (n - k)) * np.asarray(theirs.bse).T
        assert_same(ours.tests.errors, errors)
        assert_same(
            ours.tests.p_values, 2 * norm.sf(np.abs(ours.coefficients.reshape(errors.shape) / errors)), zero=1e-12
        )
    else:
        assert_same_tests(ours, theirs)
    assert ours.covariance.kind == covariance


def test_confidence():
    table = data.affairs()
    ours = fit(table, family="logistic", label="any", confidence=0.8).tests
    theirs = sm.Logit(table["any"], design(table, "any")).fit(**TIGHT).conf_int(alpha=0.2)
    assert_same(ours.low, theirs[0], 1e-6)
    assert_same(ours.high, theirs[1], 1e-6)


def test_robust_errors_of_times():
    """lifelines has no factor for small samples, and ignores ties in them: there are none here."""
    table = data.rossi()
    table["week"] += np.random.default_rng(0).random(len(table)) * 0.9
    ours = fit(table, family="cox", time="week", event="arrest", covariance="site")
    theirs = quietly(
        CoxPHFitter().fit, table.assign(group=table["site"]), "week", "arrest", strata="site", cluster_col="group"
    )
    n, k = len(table), len(ours.names)
    factor = np.sqrt(5 / 4 * (n - 1) / (n - k))
    assert_same(ours.standard_errors, factor * theirs.standard_errors_, 1e-5)
    assert ours.covariance.degrees == 4


@pytest.mark.parametrize(("steps", "status"), [(1, "ITERATION_LIMIT"), (2, "ITERATION_LIMIT"), (30, "CONVERGED")])
def test_a_limit_on_the_steps(steps, status):
    table, regression = data.affairs(), gs.Regression(family="logistic", label="any")
    given = site_data(regression, table, "site", None)
    solution = given.fit(gs.network.Local(gs.Graph.ring(5)), iterations=steps)
    assert solution.status.name == status
    assert solution.model.is_sound == (status == "CONVERGED")
    assert solution.model.warnings == ()


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_an_optimum_up_to_rounding(seed):
    """The solver cannot tell, since columns are nearly collinear; but one more step changes nothing."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(1000, 3))
    X[:, 1] = X[:, 0] + 1e-5 * X[:, 1]
    y = (rng.random(1000) < 1 / (1 + np.exp(-X @ [1.0, -1.0, 0.5]))).astype(int)
    table = pd.DataFrame({"site": np.arange(1000) % 5, "a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y})
    given = site_data(gs.Regression(family="logistic", label="y"), table, "site", None)
    solution = given.fit(gs.network.Local(gs.Graph.ring(5)), iterations=40)
    assert solution.status is gs.Status.CONVERGED
    # statsmodels gets the same model in columns that are not collinear.
    columns = np.column_stack([X[:, 0], 1e5 * (X[:, 1] - X[:, 0]), X[:, 2]])
    theirs = sm.Logit(y, sm.add_constant(columns)).fit(**TIGHT)
    assert_same(solution.model.coefficients[2], 1e5 * theirs.params[2], 1e-4)
    assert_same(solution.model.standard_errors[2], 1e5 * theirs.bse[2], 1e-4)
    assert_same(solution.model.statistics["log-likelihood"], theirs.llf, 1e-10)


def test_steps_go_on_until_coefficients_are_exact():
    """Gradients may be small long before coefficients are exact; a large tolerance stands for that here."""
    table, regression = data.visits(), gs.Regression(family="poisson", label="mdvis")
    given = site_data(regression, table, "site", None)
    early, exact = (given.fit(gs.network.Local(gs.Graph.ring(5)), tolerance=each) for each in (0.1, 1e-12))
    assert early.model.provenance["objective"] > exact.model.provenance["objective"] * (1 + 1e-6)
    assert_same(early.mean, exact.mean)
    assert_same(early.model.standard_errors, exact.model.standard_errors)
