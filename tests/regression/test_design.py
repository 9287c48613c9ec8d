"""Rows of a site: which take part, with which numbers, and what is refused."""

import numpy as np
import pandas as pd
import pytest
import site_tables as data
from site_tables import assert_same, fit

import gradslide as gs
from gradslide.data.tables import read_table
from gradslide.regression.design import Rows, design_matrix, read_rows
from gradslide.regression.schema import read_schema

TABLE = {
    "age": [51.0, 63.0, 44.0, 70.0],
    "stage": ["I", "II", "III", "II"],
    "days": [10, 20, 30, 40],
    "w": [1.0, 2.0, 0.5, 1.0],
    "y": [0, 2, 1, 3],
    "died": [True, False, True, True],
}


def rows(table=None, **declaration):
    given = {"family": "poisson", "label": "y", "features": ["age", "stage"], "minimum_rows": 1, **declaration}
    regression, read = gs.Regression(**given), read_table({**TABLE, **(table or {})})
    return read_rows(regression, read_schema(regression, read), read)


def test_columns_weights_and_exposures():
    found = rows(weight="w", exposure="days")
    assert found.features.tolist() == [[51, 0, 0], [63, 1, 0], [44, 0, 1], [70, 1, 0]]
    assert found.targets.tolist() == TABLE["y"]
    assert found.weight.tolist() == TABLE["w"]
    assert found.exposure.tolist() == TABLE["days"]
    assert found.event.tolist() == [1, 1, 1, 1]
    times = rows(family="cox", label=None, time="days", event="died")
    assert times.targets.tolist() == TABLE["days"]
    assert times.event.tolist() == [1, 0, 1, 1]
    classes = rows(family="logistic", label="y", classes=[3, 2, 1, 0])
    assert classes.targets.tolist() == [3, 1, 2, 0]


def test_rows_of_several_sites():
    one, other = rows(), rows({"age": [1.0, 2.0, 3.0, 4.0]})
    joined = Rows.joined([one, other])
    assert joined.n == 8
    assert joined.features[:, 0].tolist() == [*TABLE["age"], 1, 2, 3, 4]
    assert joined.take(np.array([0, 4])).targets.tolist() == [0, 0]
    assert Rows.joined([one]) is one


@pytest.mark.parametrize(
    ("table", "declaration", "message"),
    [
        ({"age": [1.0, np.inf, -np.inf, 2.0]}, {}, "feature 'age' must hold finite numbers; got 2 that are infinite"),
        ({"y": [0, -1, 2, 3]}, {}, "label 'y' must be at least 0; got -1; correct these entries"),
        ({"w": [1.0, -0.5, 1.0, 1.0]}, {"weight": "w"}, "weight 'w' must be at least 0; got -0.5"),
        ({"days": [1, 0, 1, 1]}, {"exposure": "days"}, "exposure 'days' must be above 0; got 0"),
        (
            {"days": [1, -2, 1, 1]},
            {"family": "cox", "label": None, "time": "days", "event": "died"},
            "time 'days' must be at least 0; got -2",
        ),
        (
            {"died": [0, 1, 2, 9]},
            {"family": "cox", "label": None, "time": "days", "event": "died"},
            "event must be 0 or 1; got 2, 9 in 'died'; give 1 where the event happened, 0 where it was censored",
        ),
        (
            {},
            {"categorical": {"stage": ["I", "II"]}},
            "feature 'stage' must have one of its levels, I, II; got 'III' in 1 rows; correct these entries, or state",
        ),
        (
            {},
            {"family": "logistic", "classes": [0, 1]},
            "label 'y' must have one of its levels, 0, 1; got '2', '3' in 2 rows",
        ),
        ({}, {"minimum_rows": 5}, r"at least 5 rows \(minimum_rows\); got 4 in dict of arrays; leave this site out"),
        ({"w": [0.0] * 4}, {"weight": "w"}, "at least 1 rows .*; got 0 in dict of arrays after 4 were left out"),
    ],
)
def test_values_that_are_refused(table, declaration, message):
    with pytest.raises(gs.InputError, match=message):
        rows(table, **declaration)


# ---- missing entries

GAPS = {"age": [51.0, None, 44.0, 70.0], "stage": ["I", "II", None, "II"], "y": [0, 2, 1, None]}


def test_missing_entries_are_refused_and_counted():
    message = (
        r"no entry may be missing; got in dict of arrays 1 of 'age', 1 of 'stage', 1 of 'y'; correct them, or agree"
    )
    with pytest.raises(gs.InputError, match=message):
        rows(GAPS)


def test_rows_with_missing_entries_are_left_out():
    found = rows(GAPS, missing="drop", categorical={"stage": ["I", "II", "III"]})
    assert found.targets.tolist() == [0]
    assert found.left_out == 3
    assert found.imputed == 0
    assert rows({"days": [1, None, 3, 4]}, missing="drop").n == 4
    assert rows({"days": [1, None, 3, 4]}, missing="drop", exposure="days").exposure.tolist() == [1, 3, 4]


def test_missing_numbers_are_marked_and_rows_without_a_label_left_out():
    found = rows({**GAPS, "stage": TABLE["stage"]}, missing="mean")
    assert found.targets.tolist() == [0, 2, 1]
    assert (found.left_out, found.imputed) == (1, 1)
    assert np.isnan(found.features).tolist() == [[False] * 3, [True, False, False], [False] * 3]
    with pytest.raises(gs.InputError, match=r"missing categories have no mean; got in .* 1 of 'stage'; give"):
        rows(GAPS, missing="mean")


def gappy():
    """The diabetes table with missing entries in two columns and in the label; one site has none in bp."""
    rng = np.random.default_rng(9)
    table = data.diabetes()[["site", "bmi", "bp", "age", "target"]].copy()
    table.loc[rng.random(len(table)) < 0.1, "bmi"] = np.nan
    table.loc[(rng.random(len(table)) < 0.2) | (table["site"] == "south"), "bp"] = np.nan
    table.loc[rng.random(len(table)) < 0.05, "target"] = np.nan
    return table


def test_a_fit_without_the_rows_that_lack_something():
    table = gappy()
    with pytest.raises(gs.InputError, match=r"got in centre \d+ of 'bmi', \d+ of 'bp', \d+ of 'target'; correct"):
        fit(table, family="linear", label="target")
    full = table[table["site"] != "south"]
    regression = gs.Regression(family="linear", label="target", missing="drop")
    model, expected = (gs.fit(regression, each, sites="site").model for each in (full, full.dropna()))
    assert_same(model.coefficients, expected.coefficients, 1e-12)
    assert model.statistics["rows left out"] == len(full) - len(full.dropna())
    assert f"Rows left out:{len(full) - len(full.dropna()):>24}" in model.summary()


def test_a_fit_with_means_in_their_place():
    """The means are those of all sites: a site that has none of a column takes part."""
    table = gappy()
    model = fit(table, family="linear", label="target", missing="mean")
    labelled = table.dropna(subset="target")
    means = labelled[["bmi", "bp", "age"]].mean()
    expected = fit(labelled.fillna(means), family="linear", label="target")
    assert_same(model.coefficients, expected.coefficients, 1e-9)
    assert_same(model.standard_errors, expected.standard_errors, 1e-9)
    assert_same(model.means, means, 1e-12)
    gaps = int(labelled[["bmi", "bp"]].isna().to_numpy().sum())
    assert model.statistics["entries imputed"] == gaps
    assert f"Entries imputed:{gaps:>22}" in model.summary()
    assert_same(list(model.evaluation["fit"].values()), list(expected.evaluation["fit"].values()), 1e-9)


def test_weighted_means():
    table = data.weighted(gappy().dropna(subset="target"))
    model = fit(table, family="linear", label="target", missing="mean", weight="w")
    repeated = table.loc[table.index.repeat(table["w"])]
    assert_same(model.means, repeated[["bmi", "bp", "age"]].mean(), 1e-12)


def test_a_column_that_no_site_has():
    table = gappy().assign(bp=np.nan)
    with pytest.raises(gs.InputError, match="a column needs entries at some site; got none of 'bp'; leave it out"):
        fit(table, family="linear", label="target", missing="mean")


def test_categories_of_missing_rows():
    table = pd.DataFrame({"x": ["a", None, "b"], "y": [1.0, 2.0, 3.0]})
    regression = gs.Regression(family="linear", label="y", missing="drop")
    read = read_table(table)
    matrix = design_matrix(read_schema(regression, read), read)
    assert matrix[[0, 2]].tolist() == [[0.0], [1.0]]
    assert np.isnan(matrix[1, 0])
