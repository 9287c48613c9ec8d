"""What a fitted regression does: predict, evaluate, compare with a smaller one, save and load."""

import json

import numpy as np
import pandas as pd
import pytest
import site_tables as data
import statsmodels.api as sm
from site_tables import GRAPHS, assert_same, features_of, fit, quietly

import gradslide as gs
from gradslide.regression import load_model


def tight(model):
    return quietly(model.fit, disp=0, method="newton", tol=1e-14, maxiter=100)


# ---- predictions


def test_numbers():
    table = data.diabetes()
    model = fit(table, family="linear", label="target")
    theirs = sm.OLS(table["target"], sm.add_constant(features_of(table, "target"))).fit()
    assert_same(model.predict(table), theirs.fittedvalues)
    assert_same(model.predict(table.head(3)[::-1]), theirs.fittedvalues[[2, 1, 0]])


def test_two_classes():
    table = data.affairs()
    model = fit(table, family="logistic", label="any")
    theirs = tight(sm.Logit(table["any"], sm.add_constant(features_of(table, "any")))).predict()
    assert_same(model.predict(table), np.column_stack([1 - theirs, theirs]))


@pytest.mark.parametrize("ridge", [0.0, 3.0])
def test_several_classes(ridge):
    table = data.votes()
    model = fit(table, family="logistic", label="PID", ridge=ridge)
    predicted = model.predict(table)
    if not ridge:
        theirs = tight(sm.MNLogit(table["PID"], sm.add_constant(features_of(table, "PID"))))
        assert_same(predicted, theirs.predict())
    assert_same(predicted.sum(axis=1), np.ones(len(table)), 1e-12)
    assert model.coefficients.size == (7 if ridge else 6) * 6


def test_counts():
    table = data.rossi()
    model = fit(table, family="poisson", label="prio", exposure="week", features=["age", "fin"])
    theirs = sm.GLM(
        table["prio"], sm.add_constant(table[["age", "fin"]]), sm.families.Poisson(), exposure=table["week"]
    )
    assert_same(model.predict(table), theirs.fit(tol=1e-14).fittedvalues)
    with pytest.raises(gs.InputError, match="exposure 'week' must be above 0; got 0"):
        model.predict(table.assign(week=0))
    with pytest.raises(gs.InputError, match="'week'"):
        model.predict(table.drop(columns="week"))


def test_times():
    """Hazards relative to that of a row of zeros."""
    table = data.rossi()
    model = fit(table, family="cox", time="week", event="arrest")
    expected = np.exp(features_of(table, "week", "arrest")[list(model.names)] @ model.coefficients)
    assert_same(model.predict(table.drop(columns=["week", "arrest"])), expected)


def test_without_an_intercept():
    table = data.diabetes()
    model = fit(table, family="linear", label="target", intercept=False)
    assert_same(model.predict(table), features_of(table, "target") @ model.coefficients)


def test_unknown_levels_and_columns():
    table = pd.DataFrame({"x": list("abc") * 20, "y": np.arange(60.0)})
    model = gs.fit(gs.Regression(family="linear", label="y"), table).model
    with pytest.raises(gs.InputError, match="feature 'x' must have one of its levels, a, b, c; got 'd' in 2 rows"):
        model.predict({"x": ["a", "d", "d"]})
    with pytest.raises(gs.InputError, match="'x'"):
        model.predict({"z": ["a"]})


def with_gaps(missing):
    table = data.diabetes()[["site", "bmi", "bp", "target"]].assign(
        old=lambda rows: np.where(rows["bp"] > 90, "old", "young")
    )
    return fit(table, family="linear", label="target", missing=missing)


def test_missing_entries():
    gaps = {"bmi": [25.0, None, 30.0], "bp": [100.0, 90.0, 80.0], "old": ["old", "young", None]}
    full = {"bmi": [25.0, 26.375792, 30.0], "bp": [100.0, 90.0, 80.0], "old": ["old", "young", "young"]}
    with pytest.raises(
        gs.InputError, match="may be missing; got in dict of arrays 1 of 'bmi', 1 of 'old'; complete them"
    ):
        with_gaps("refuse").predict(gaps)
    dropped, filled = with_gaps("drop").predict(gaps), with_gaps("mean").predict(gaps)
    expected = with_gaps("refuse").predict(full)
    assert np.isnan(dropped).tolist() == [False, True, True]
    assert np.isnan(filled).tolist() == [False, False, True]
    assert_same(dropped[0], expected[0])
    assert_same(filled[:2], expected[:2], 1e-6)


def test_predictions_as_a_table():
    model = with_gaps("drop")
    names, rows = model.prediction_table({"bmi": [25.0, None], "bp": [100.0, 90.0], "old": ["old", "young"]})
    assert names == ["row", "expected value"]
    assert rows[1] == [2, None]
    table = data.votes()
    model = fit(table, family="logistic", label="PID", missing="drop")
    names, rows = model.prediction_table(table.head(5).assign(age=[np.nan, 30, 40, 50, 60]))
    assert names == ["row", *(f"probability of {k}" for k in range(7)), "class"]
    assert rows[0] == [1, *[None] * 8]
    assert rows[1][-1] == str(np.argmax(rows[1][1:-1]))


# ---- tests of nested models


def test_likelihood_ratios():
    table = data.affairs()
    larger = fit(table, family="logistic", label="any")
    features = ["age", "yrs_married", "religious"]
    smaller = fit(table, family="logistic", label="any", features=features)
    theirs = tight(sm.Logit(table["any"], sm.add_constant(features_of(table, "any"))))
    other = tight(sm.Logit(table["any"], sm.add_constant(table[features])))
    statistic, degrees, p = larger.likelihood_ratio_test(smaller)
    assert_same(statistic, 2 * (theirs.llf - other.llf))
    assert degrees == len(theirs.params) - 4
    assert 0 < p < 1
    given = {"family": "logistic", "label": "any", "features": features}
    renamed = table.rename(columns={"age": "years"})
    for model, message in (
        (fit(table.iloc[:-1], **given), "the same rows; got 1592.0 and 1591.0; fit them alike"),
        (fit(table, **{**given, "family": "linear"}), "the same family; got logistic and linear"),
        (fit(table, **given, ridge=1.0), "needs models without penalties"),
        (fit(data.weighted(table), **given, weight="w"), "the same columns but features; got"),
        (fit(table.assign(any=(table["educ"] > 14) * 1), **given), "the same label at the same rows; got"),
        (larger, "must be among this one's; got all of them"),
        (fit(renamed, **{**given, "features": ["years"]}), "must be among this one's; got years"),
    ):
        with pytest.raises(gs.InputError, match=message):
            larger.likelihood_ratio_test(model)


# ---- model cards

CARDS = {
    "linear": (data.diabetes, {"family": "linear", "label": "target", "covariance": "rows"}),
    "classes": (data.votes, {"family": "logistic", "label": "PID"}),
    "counts": (data.visits, {"family": "poisson", "label": "mdvis", "units": {"disea": "1"}}),
    "times": (data.rossi, {"family": "cox", "time": "week", "event": "arrest"}),
    "penalty": (data.wine, {"family": "logistic", "label": "target", "ridge": 2.0, "penalty_factors": {"ash": 0.0}}),
    "clusters": (
        data.affairs,
        {"family": "logistic", "label": "any", "covariance": "site", "categorical": ["children"]},
    ),
}


@pytest.mark.parametrize("name", CARDS)
def test_a_saved_model_is_the_same(name, tmp_path):
    make, declaration = CARDS[name]
    table = make()
    model = fit(table, **declaration)
    path = model.save(tmp_path / "model.json")
    other = load_model(path)
    assert other.regression == model.regression
    assert other.schema == model.schema
    assert np.array_equal(other.predict(table), model.predict(table))
    assert other.summary() == model.summary()
    assert other.table() == model.table()
    assert other.hash == model.hash
    assert other.evaluate(table) == model.evaluate(table)
    assert repr(other) == repr(model)
    assert json.loads(path.read_text())["provenance"]["schema"] == model.schema.hash


def test_a_solution_keeps_its_model(tmp_path):
    table = data.diabetes()
    solution = gs.fit(gs.Regression(family="linear", label="target"), table, sites="site")
    loaded = gs.load(solution.save(tmp_path / "solution.npz"))
    assert loaded.model.hash == solution.model.hash
    assert np.array_equal(loaded.x, solution.x)
    assert np.array_equal(loaded.x[0], loaded.model.coefficients)
    assert loaded.warnings == solution.warnings


def test_the_solution_has_original_units_and_all_costs():
    table = data.diabetes()
    solution = gs.fit(gs.Regression(family="linear", label="target"), table, GRAPHS["ring"], sites="site")
    assert solution.x.shape == (5, 11)
    assert np.array_equal(solution.mean, solution.model.coefficients)
    # 2 sums before the fit, one for each step, and 2 after it.
    assert solution.costs.gradients == solution.model.provenance["gradients"]
    assert solution.costs.rounds == (solution.costs.gradients - 2 + 4) * 2 * GRAPHS["ring"].radius


def test_undefined_numbers_survive(tmp_path):
    table = pd.DataFrame({"x": np.arange(20.0), "y": np.full(20, 3.0)})
    model = gs.fit(gs.Regression(family="linear", label="y"), table).model
    other = load_model(model.save(tmp_path / "model.json"))
    assert np.isnan(other.statistics["R2"])
    assert other.summary() == model.summary()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"a model must be a model card in JSON; got .*model.json \(No such file"),
        ("no json", r"got .*model.json, which is no JSON; give the model.json that"),
        ("[1, 2]", "which is something else"),
        ('{"format": "another"}', "which is something else"),
        ('{"format": "gradslide regression", "version": 99}', "a model card must be of version 1; got 99; fit it anew"),
    ],
)
def test_files_that_are_no_model_cards(content, message, tmp_path):
    path = tmp_path / "model.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(gs.InputError, match=message):
        load_model(path)
