"""Categorical columns and classes, against formulas of statsmodels."""

import numpy as np
import pandas as pd
import pytest
import site_tables as data
import statsmodels.formula.api as smf
from site_tables import assert_same, fit

import gradslide as gs


def smokers():
    """The diabetes table with categories: text, true/false, and numbers."""
    table = data.diabetes()
    ages = pd.cut(table["age"], [0, 40, 60, 100], labels=["young", "middle", "old"]).astype(str)
    return pd.DataFrame(
        {
            "site": table["site"],
            "target": table["target"],
            "bmi": table["bmi"],
            "group": ages,
            "sex": table["sex"].astype(int),
            "high": table["bp"] > 100,
        }
    )


def test_text_booleans_and_numbers():
    table = smokers()
    ours = fit(table, family="linear", label="target", categorical=["sex"])
    theirs = smf.ols("target ~ bmi + C(group) + C(sex) + C(high)", table).fit()
    assert ours.names == ("intercept", "bmi", "group=old", "group=young", "sex=2", "high=true")
    order = ["Intercept", "bmi", "C(group)[T.old]", "C(group)[T.young]", "C(sex)[T.2]", "C(high)[T.True]"]
    assert_same(ours.coefficients, theirs.params[order])
    assert_same(ours.standard_errors, theirs.bse[order])
    assert_same(ours.statistics["R2"], theirs.rsquared)


def test_stated_levels():
    """The first one is the reference."""
    table = smokers()
    levels = {"group": ["young", "middle", "old"], "sex": [2, 1], "high": [True, False]}
    ours = fit(table, family="linear", label="target", categorical=levels)
    reference = "C(group, Treatment('young')) + C(sex, Treatment(2)) + C(high, Treatment(True))"
    theirs = smf.ols(f"target ~ bmi + {reference}", table).fit()
    assert ours.names[2:] == ("group=middle", "group=old", "sex=1", "high=false")
    by_name = theirs.params.rename(lambda name: name.split("[T.")[-1].rstrip("]").lower())
    assert_same(ours.coefficients, by_name[["intercept", "bmi", "middle", "old", "1", "false"]])


def test_a_level_may_be_absent_at_a_site():
    table = smokers()
    table = table[(table["site"] != "west") | (table["group"] != "old")]
    levels = {"group": ["young", "middle", "old"]}
    regression = gs.Regression(family="linear", label="target", features=["bmi", "group"], categorical=levels)
    tables = {name: rows.drop(columns="site") for name, rows in table.groupby("site")}
    ours = gs.fit(regression, tables).model
    theirs = smf.ols("target ~ bmi + C(group, Treatment('young'))", table).fit()
    assert_same(ours.coefficients, theirs.params.to_numpy()[[0, 3, 1, 2]])
    unstated = gs.Regression(family="linear", label="target", features=["bmi", "group"])
    with pytest.raises(gs.InputError, match=r"levels of 'group': 1 there is not here; state them alike"):
        gs.fit(unstated, tables)


def test_a_class_may_be_absent_at_a_site():
    table = data.votes()
    table = table[(table["site"] != "north") | (table["PID"] != 6)]
    regression = gs.Regression(family="logistic", label="PID", classes=range(7))
    tables = {name: rows.drop(columns="site") for name, rows in table.groupby("site")}
    assert 6 not in set(tables["north"]["PID"])
    ours = gs.fit(regression, tables).model
    theirs = fit(table, family="logistic", label="PID")
    assert_same(ours.coefficients, theirs.coefficients, 1e-9)


def test_the_order_of_classes_says_which_is_the_reference():
    table = data.affairs()
    ours = fit(table, family="logistic", label="any", classes=[1, 0])
    theirs = fit(table, family="logistic", label="any")
    assert_same(ours.coefficients, -theirs.coefficients, 1e-7)
    assert "log-odds of '0'" in ours.summary()
    table = data.votes().assign(PID=lambda rows: rows["PID"] // 3)
    last = fit(table, family="logistic", label="PID", classes=[2, 0, 1])
    first = fit(table, family="logistic", label="PID")
    blocks = np.vstack([np.zeros(6), first.coefficients.reshape(2, 6)])
    assert_same(last.coefficients, blocks[:2] - blocks[2], 1e-7)
    assert last.names[0] == "0: intercept"
    assert "Reference class: '2'." in last.summary()


def test_text_and_booleans_as_classes():
    table = data.affairs()
    plain = fit(table, family="logistic", label="any")
    for values in (table["any"] == 1, np.where(table["any"] == 1, "yes", "no")):
        model = fit(table.assign(any=values), family="logistic", label="any")
        assert_same(model.coefficients, plain.coefficients, 1e-12)
    assert model.schema.classes == ("no", "yes")


def test_a_categorical_column_of_pandas():
    table = smokers()
    given = {"family": "linear", "label": "target", "features": ["bmi", "group"]}
    plain, categories = fit(table, **given), fit(table.astype({"group": "category"}), **given)
    assert_same(categories.coefficients, plain.coefficients, 1e-12)
