"""How good predictions are for rows of the fit and for test rows, against scikit-learn and lifelines on all rows."""

import numpy as np
import pandas as pd
import pytest
import site_tables as data
from lifelines.utils import concordance_index
from site_tables import assert_same, fit
from sklearn import metrics

import gradslide as gs


def halves(table):
    """Rows to fit, and rows to test."""
    is_test = np.random.default_rng(5).random(len(table)) < 0.4
    return table[~is_test], table[is_test]


def evaluated(table, **declaration):
    """The model of half of the rows, the other half, and the metrics of either."""
    rows, test = halves(table)
    model = gs.fit(gs.Regression(**declaration), rows, sites="site", test=test).model
    return model, [(rows, model.evaluation["fit"]), (test, model.evaluation["test"])]


@pytest.mark.parametrize("weight", [None, "w"])
def test_numbers(weight):
    table = data.weighted(data.diabetes())
    features = ["bmi", "age", "bp"]
    model, found = evaluated(table, family="linear", label="target", features=features, weight=weight)
    for rows, ours in found:
        y, given = rows["target"], (model.predict(rows), rows["w"] if weight else None)
        assert_same(ours["RMSE"], metrics.root_mean_squared_error(y, given[0], sample_weight=given[1]))
        assert_same(ours["mean absolute error"], metrics.mean_absolute_error(y, given[0], sample_weight=given[1]))
        assert_same(ours["R2"], metrics.r2_score(y, given[0], sample_weight=given[1]))
        assert model.evaluate(rows) == pytest.approx(ours, rel=1e-10)


@pytest.mark.parametrize("weight", [None, "w"])
def test_two_classes(weight):
    table = data.weighted(data.affairs())
    features = ["rate_marriage", "age", "yrs_married", "religious"]
    model, found = evaluated(table, family="logistic", label="any", features=features, weight=weight)
    for rows, ours in found:
        y, p, w = rows["any"], model.predict(rows)[:, 1], rows["w"] if weight else None
        assert_same(ours["accuracy"], metrics.accuracy_score(y, p > 0.5, sample_weight=w))
        assert_same(ours["log-loss"], metrics.log_loss(y, p, sample_weight=w))
        assert_same(ours["Brier score"], metrics.brier_score_loss(y, p, sample_weight=w))
        assert_same(ours["calibration"], np.average(p, weights=w) / np.average(y, weights=w))
        missed = abs(ours["AUC"] - metrics.roc_auc_score(y, p, sample_weight=w))
        assert 0 < missed <= ours["AUC exact to"] < 0.01
        assert model.evaluate(rows) == pytest.approx(ours, rel=1e-10)


def test_auc_of_rare_events():
    """All probabilities are small: bins are narrow there, too."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=20_000)
    table = data.at_sites(pd.DataFrame({"x": x, "y": rng.random(20_000) < np.exp(1.2 * x - 7)}))
    model = fit(table, family="logistic", label="y")
    ours, p = model.evaluation["fit"], model.predict(table)[:, 1]
    assert np.mean(p) < 0.005
    assert abs(ours["AUC"] - metrics.roc_auc_score(table["y"], p)) <= ours["AUC exact to"] < 0.02


def test_several_classes():
    table = data.votes()
    model, found = evaluated(table, family="logistic", label="PID")
    for rows, ours in found:
        y, p = rows["PID"], model.predict(rows)
        assert_same(ours["accuracy"], metrics.accuracy_score(y, p.argmax(axis=1)))
        assert_same(ours["log-loss"], metrics.log_loss(y, p))
        assert_same(ours["Brier score"], np.mean(np.sum((p - np.eye(7)[y]) ** 2, axis=1)))


def test_counts():
    table = data.rossi()
    model, found = evaluated(table, family="poisson", label="prio", exposure="week", features=["age", "fin", "race"])
    for rows, ours in found:
        y, mean = rows["prio"], model.predict(rows)
        assert_same(ours["mean deviance"], metrics.mean_poisson_deviance(y, mean))
        assert_same(ours["mean absolute error"], metrics.mean_absolute_error(y, mean))
        assert_same(ours["dispersion"], np.mean((y - mean) ** 2 / mean))
        assert_same(ours["calibration"], mean.sum() / y.sum())


def test_times():
    """Rows are compared with rows of their own site."""
    table = data.rossi()
    model, found = evaluated(table, family="cox", time="week", event="arrest")
    for rows, ours in found:
        pairs = agreed = 0.0
        for _, own in rows.groupby("site"):
            weeks, events = own["week"].to_numpy(), own["arrest"].to_numpy()
            later = (weeks[None] > weeks[:, None]) | ((weeks[None] == weeks[:, None]) & (events[None] == 0))
            count = np.sum(later[events == 1])
            pairs += count
            agreed += count * concordance_index(weeks, -model.predict(own), events)
        assert_same(ours["concordance"], agreed / pairs)


@pytest.mark.parametrize(
    ("name", "declaration"),
    [
        ("diabetes", {"family": "linear", "label": "target"}),
        ("affairs", {"family": "logistic", "label": "any"}),
        ("visits", {"family": "poisson", "label": "mdvis"}),
        ("rossi", {"family": "cox", "time": "week", "event": "arrest"}),
    ],
)
def test_sites_one_by_one(name, declaration):
    """Each site knows the metrics of its own rows; a site without test rows has none of these."""
    table = getattr(data, name)()
    rows, test = halves(table)
    model = gs.fit(gs.Regression(**declaration), rows, sites="site", test=test[test["site"] != "north"]).model
    assert set(model.by_site) == set(data.SITES)
    assert "test" not in model.by_site["north"]
    for label, found in model.by_site.items():
        assert found["fit"] == pytest.approx(model.evaluate(rows[rows["site"] == label]), rel=1e-9)
    west = model.evaluate(test[test["site"] == "west"])
    assert model.by_site["west"]["test"] == pytest.approx(west, rel=1e-9)
    assert "Test rows: " in model.summary()


def test_predictions_of_a_class_that_test_rows_lack():
    table, regression = data.affairs(), gs.Regression(family="logistic", label="any")
    test = table[table["any"] == 0]
    model = gs.fit(regression, table, sites="site", test=test).model
    found = model.evaluation["test"]
    assert set(found) == {"accuracy", "log-loss", "Brier score"}
    assert_same(found["accuracy"], np.mean(model.predict(test)[:, 0] > 0.5))


def test_predictions_far_beyond_the_rows_of_the_fit():
    """Means overflow; no warning comes of it, and sums are finite."""
    table, regression = data.visits(), gs.Regression(family="poisson", label="mdvis")
    far = table.assign(disea=table["disea"] + 1e6)
    model = gs.fit(regression, table, sites="site", test=far).model
    assert np.all(model.predict(far) == np.inf)
    assert_same(model.evaluation["test"]["mean deviance"], 2e15)


def test_test_rows_are_of_the_sites_of_the_fit():
    table = data.diabetes()
    regression = gs.Regression(family="linear", label="target")
    with pytest.raises(gs.InputError, match=r"test rows must be of the sites of the fit; got elsewhere; use centre"):
        gs.fit(regression, table, sites="site", test=table.assign(site="elsewhere"))
    with pytest.raises(gs.InputError, match=r"at least 1 rows .*; got 0 in test rows of north after"):
        gs.fit(
            gs.Regression(family="linear", label="target", missing="drop"),
            table,
            sites="site",
            test=table[table["site"] == "north"].assign(bmi=np.nan),
        )
