"""A fit says where coefficients are infinite or not determined; where they are only large, it does not."""

import numpy as np
import pandas as pd
import pytest
import site_tables as data
import statsmodels.api as sm
from site_tables import assert_same, fit, quietly

import gradslide as gs


def made(columns, seed=0, **more):
    """A table of made-up columns at five sites."""
    return data.at_sites(pd.DataFrame({**columns, **more}), seed)


def normal(n, p=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, p))


def named(X):
    return {f"x{j}": column for j, column in enumerate(X.T)}


def bernoulli(scores, seed=1):
    return (np.random.default_rng(seed).random(len(scores)) < 1 / (1 + np.exp(-scores))).astype(int)


# ---- coefficients that grow without end


def complete():
    X = normal(200)
    return made(named(X), y=(X[:, 0] + 0.5 * X[:, 1] > 0).astype(int)), "logistic", {"x0", "x1"}


def a_group_of_one_class():
    X = normal(300, 2)
    group = np.arange(300) % 10 == 0
    return made(named(X), group=group, y=bernoulli(X[:, 0]) | group), "logistic", {"group=true"}


def overlapping_in_one_value_only():
    dose = np.repeat([0.0, 1.0, 2.0, 3.0], 50)
    y = np.where(dose < 1, 0, np.where(dose > 1, 1, np.arange(200) % 2))
    return made({"dose": dose, "x0": normal(200, 1)[:, 0]}, y=y), "logistic", {"dose", "intercept"}


def one_row_of_a_level():
    X = normal(1000, 2)
    return made(named(X), rare=np.arange(1000) == 17, y=bernoulli(X[:, 0])), "logistic", {"rare=true"}


def one_class_of_three():
    X = normal(300, 2)
    y = np.where(X[:, 1] > 0.3, 2, bernoulli(X[:, 0]))
    return made(named(X), y=y), "logistic", {"x1"}


def a_group_without_counts():
    X = normal(300, 2)
    group = np.arange(300) % 7 == 0
    counts = np.random.default_rng(3).poisson(np.exp(0.3 * X[:, 0])) * ~group
    return made(named(X), group=group, y=counts), "poisson", {"group=true"}


def a_group_without_counts_among_large_ones():
    """So many that nothing is left of the curvature along its coefficient."""
    x = normal(400, 1)[:, 0]
    group = np.arange(400) % 50 == 0
    counts = np.random.default_rng(3).poisson(np.exp(np.clip(5 * x + 2, -8, 6))) * ~group
    return made({"x": x, "group": group}, y=counts), "poisson", {"group=true"}


def a_group_without_events():
    X = normal(300, 2)
    group = np.arange(300) % 5 == 0
    rng = np.random.default_rng(4)
    table = made(named(X), group=group, time=rng.exponential(size=300).round(2), event=(rng.random(300) < 0.7) & ~group)
    return table, "cox", {"group=true"}


def the_order_of_events():
    risk = normal(200, 1)[:, 0]
    return made({"risk": risk, "x0": normal(200, 1, 5)[:, 0]}, time=np.exp(-risk), event=np.ones(200)), "cox", {"risk"}


ENDLESS = [complete, a_group_of_one_class, overlapping_in_one_value_only, one_row_of_a_level, one_class_of_three]
ENDLESS += [a_group_without_counts, a_group_without_counts_among_large_ones]
ENDLESS += [a_group_without_events, the_order_of_events]


@pytest.mark.parametrize("make", ENDLESS)
def test_coefficients_that_grow_without_end(make):
    table, family, culprits = make()
    label = {"time": "time", "event": "event"} if family == "cox" else {"label": "y"}
    solution = gs.fit(gs.Regression(family=family, **label), table, sites="site")
    model = solution.model
    assert solution.status is gs.Status.UNBOUNDED
    assert model.provenance["status"] == "UNBOUNDED"
    assert model.standard_errors is None
    assert model.tests is None
    (warning,) = model.warnings
    assert "there is no maximum likelihood estimate" in warning
    assert all(repr(name) in warning for name in culprits), warning
    assert "Status:                      UNBOUNDED" in model.summary()
    # A ridge makes it finite.
    assert fit(table, family=family, ridge=1.0, **label).provenance["status"] == "CONVERGED"


# ---- coefficients that are only large, or columns that are only odd


def strong():
    X = normal(400)
    return named(X), bernoulli(12 * X[:, 0] - 9 * X[:, 1]), "logistic"


def a_few_outliers():
    X = normal(500)
    X[:5] *= 60
    return named(X), bernoulli(X @ [1.0, -1.0, 0.5]), "logistic"


def heavy_tails():
    X = np.exp(4 * normal(1500))
    return named(X), bernoulli(np.clip(np.log(X) @ [0.5, -0.5, 0.2], -3, 3)), "logistic"


def rare_events():
    X = normal(4000)
    return named(X), bernoulli(X @ [1.0, 0.5, 0.0] - 6), "logistic"


def one_exception_in_a_group():
    X = normal(2000, 2)
    group = np.arange(2000) % 4 == 0
    y = bernoulli(X[:, 0]) | group
    y[np.flatnonzero(group)[3]] = 0
    return {**named(X), "group": group.astype(float)}, y, "logistic"


def nearly_collinear():
    X = normal(1000)
    X[:, 1] = X[:, 0] + 1e-3 * X[:, 1]
    return named(X), bernoulli(X @ [3.0, 0.0, 2.0]), "logistic"


def many_nearly_separating_columns():
    table = data.breast_cancer()
    names = ["mean radius", "mean texture", "mean smoothness", "mean concavity", "texture error"]
    return {name: table[name].to_numpy() for name in names}, table["target"].to_numpy(), "logistic"


def large_counts():
    X = normal(500)
    return named(X), np.random.default_rng(6).poisson(np.exp(X @ [2.5, -1.5, 0.5])), "poisson"


def mostly_zeros():
    X = normal(3000)
    return named(X), np.random.default_rng(7).poisson(np.exp(X @ [1.5, -1.0, 0.5] - 5)), "poisson"


FINITE = [strong, a_few_outliers, heavy_tails, rare_events, one_exception_in_a_group, nearly_collinear]
FINITE += [many_nearly_separating_columns, large_counts, mostly_zeros]


@pytest.mark.parametrize("make", FINITE)
def test_large_coefficients_are_no_infinite_ones(make):
    columns, y, family = make()
    table = made(columns, y=y)
    model = fit(table, family=family, label="y")
    assert model.provenance["status"] == "CONVERGED"
    assert not any("maximum likelihood" in each or "collinear" in each for each in model.warnings)
    X = sm.add_constant(np.column_stack(list(columns.values())))
    theirs = (sm.Logit if family == "logistic" else sm.Poisson)(y, X)
    theirs = quietly(theirs.fit, method="newton", tol=1e-14, maxiter=200, disp=0, start_params=model.coefficients * 0.9)
    assert_same(model.coefficients, theirs.params, 1e-5)
    assert_same(model.standard_errors, theirs.bse, 1e-5)


def test_a_strong_effect_on_times():
    X = normal(400)
    table = made(
        named(X), time=np.exp(-6 * X[:, 0]) * np.random.default_rng(8).exponential(size=400), event=np.ones(400)
    )
    model = fit(table, family="cox", time="time", event="event")
    assert model.provenance["status"] == "CONVERGED"
    assert model.warnings == ()
    assert 5 < model.coefficients[0] < 7


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_no_false_alarms(seed):
    """Random problems of all kinds, each with a unique optimum."""
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(300, 3000)), int(rng.integers(1, 8))
    X = rng.normal(size=(n, p)) @ rng.normal(size=(p, p)) * 10.0 ** rng.integers(-4, 6, p) + rng.normal(size=p)
    S = (X - X.mean(axis=0)) / X.std(axis=0)
    scores = S @ rng.normal(size=p) * rng.uniform(0.2, 3)
    for family, y in (
        ("logistic", bernoulli(scores, seed)),
        ("poisson", rng.poisson(np.exp(np.clip(scores - 1, -9, 5)))),
    ):
        model = fit(made(named(X), y=y), family=family, label="y")
        assert model.provenance["status"] == "CONVERGED"
        assert model.standard_errors is not None, model.warnings


# ---- columns that rows do not tell apart


@pytest.mark.parametrize("family", ["linear", "logistic", "poisson", "cox"])
def test_collinear_columns_are_named(family):
    X = normal(200, 4)
    X[:, 2] = X[:, 0] - 2 * X[:, 1]
    y = {"linear": X[:, 0], "logistic": bernoulli(X[:, 0]), "poisson": np.arange(200) % 4, "cox": np.arange(200) % 2}
    table = made(named(X), y=y[family], time=1.0 + np.arange(200) % 50)
    label = {"time": "time", "event": "y"} if family == "cox" else {"label": "y", "features": list(named(X))}
    solution = gs.fit(gs.Regression(family=family, **label), table, sites="site")
    model = solution.model
    assert solution.status is gs.Status.CONVERGED
    assert model.standard_errors is None
    text = "the rows do not determine the coefficients of 'x0', 'x1', 'x2': the columns are collinear; leave one out"
    assert text in model.warnings
    assert "AIC" not in model.statistics
    assert "Standard errors:                  none" in model.summary()
    without = fit(table.drop(columns="x2"), family=family, **{**label, "features": ["x0", "x1", "x3"]})
    assert without.standard_errors is not None


def test_several_sets_of_collinear_columns_are_all_named():
    X = normal(200, 4)
    table = made({"a": X[:, 0], "twice a": 2 * X[:, 0], "b": X[:, 1], "less b": 1 - X[:, 1], "c": X[:, 2]}, y=X[:, 3])
    (warning,) = fit(table, family="linear", label="y").warnings
    assert "'a', 'twice a', 'b', 'less b'" in warning
    assert "'c'" not in warning


def test_constant_columns_are_named():
    X = normal(200, 2)
    table = made({"x": X[:, 0], "same": np.full(200, 0.1), "none": np.zeros(200)}, y=X[:, 1])
    message = r"must have different values; got 'same', 'none', the same in all rows of all sites; leave it out"
    with pytest.raises(gs.InputError, match=message):
        fit(table, family="linear", label="y")
    assert fit(table, family="linear", label="y", ridge=1.0).coefficients[2:].tolist() == [0.0, 0.0]
    # Without an intercept a constant column takes its place.
    plain = fit(table.drop(columns="none"), family="linear", label="y", intercept=False)
    theirs = fit(table[["x", "y", "site"]], family="linear", label="y")
    assert_same(plain.coefficients * [1, 0.1], theirs.coefficients[::-1])


@pytest.mark.parametrize("value", [1e-300, 0.1, 1 / 3, 1e9 + 0.1])
def test_rounding_makes_no_constant_column_vary(value):
    table = made({"x": normal(5000, 1)[:, 0], "same": np.full(5000, value)}, y=normal(5000, 1, 2)[:, 0])
    with pytest.raises(gs.InputError, match="got 'same', the same"):
        fit(table, family="linear", label="y")


def test_columns_that_hardly_vary_are_no_constant_ones():
    x = normal(200, 1)[:, 0]
    y = x + normal(200, 1, 2)[:, 0]
    table = made({"x": 1e6 + 1e-4 * x}, y=y)
    theirs = sm.OLS(y, sm.add_constant(table["x"].to_numpy() - 1e6)).fit()
    assert_same(fit(table, family="linear", label="y").coefficients[1], theirs.params[1], 1e-6)


def test_too_few_rows():
    X = normal(12, 11)
    table = pd.DataFrame({**named(X), "y": X[:, 0] + 1.0})
    model = gs.fit(gs.Regression(family="linear", label="y"), table).model
    assert model.warnings == ("12 rows say nothing about the errors of 12 coefficients",)
    assert model.standard_errors is None


def test_errors_clustered_by_few_sites():
    table = data.diabetes()
    model = fit(table, family="linear", label="target", covariance="site")
    (warning,) = model.warnings
    assert "standard errors clustered by 5 sites say little" in warning
    assert model.standard_errors is not None
    alone = gs.fit(gs.Regression(family="linear", label="target", covariance="site"), table.drop(columns="site")).model
    assert alone.warnings == ("one site says nothing about how sites differ: no errors clustered by site",)
    many = table.assign(site=np.arange(len(table)) % 12)
    assert (
        gs.fit(gs.Regression(family="linear", label="target", covariance="site"), many, sites="site").model.warnings
        == ()
    )


def test_counts_that_vary_too_much():
    table = data.visits()
    model = fit(table, family="poisson", label="mdvis")
    theirs = sm.GLM(table["mdvis"], sm.add_constant(data.features_of(table, "mdvis")), sm.families.Poisson()).fit()
    factor = theirs.pearson_chi2 / len(table)
    assert factor > 1.5
    assert model.warnings == (
        f"counts vary {factor:.3g} times as much as a Poisson distribution's: standard errors are too small; "
        'use covariance="rows"',
    )
    assert fit(table, family="poisson", label="mdvis", covariance="rows").warnings == ()
    assert fit(table, family="poisson", label="mdvis", ridge=1.0).warnings == ()


@pytest.mark.parametrize(
    ("family", "label", "message"),
    [
        ("logistic", {"label": "y", "classes": [0, 1, 2]}, "every class must have rows at some site; got 1 without"),
        ("poisson", {"label": "zero"}, "some count must be positive; got none at any site"),
        ("cox", {"time": "x", "event": "zero"}, "a Cox regression needs events; got none at any site"),
    ],
)
def test_targets_that_no_model_fits(family, label, message):
    table = made(
        {"x": np.abs(normal(200, 1)[:, 0]), "y": np.arange(200) % 2, "zero": np.zeros(200)}, other=normal(200, 1)[:, 0]
    )
    with pytest.raises(gs.InputError, match=message):
        fit(table, family=family, features=["other"], **label)


def test_a_label_without_spread():
    table = made({"x": normal(200, 1)[:, 0]}, y=np.full(200, 3.0))
    model = fit(table, family="linear", label="y")
    assert_same(model.coefficients, [3.0, 0.0], zero=1e-12)
    assert np.isnan(model.statistics["R2"])
    assert "R2" not in model.summary()
