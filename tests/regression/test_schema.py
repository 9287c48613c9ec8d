"""What the tables of all sites must have in common, and what sites tell each other of theirs."""

import datetime
import json

import numpy as np
import pytest

import gradslide as gs
from gradslide.data.tables import read_table
from gradslide.regression.schema import Schema, read_schema

TABLE = {
    "age": [51.0, 63.0, 44.0, 70.0],
    "weight": [70, 81, 66, 90],
    "stage": ["I", "II", "III", "II"],
    "smoker": [True, False, True, False],
    "relapse": ["no", "yes", "no", "yes"],
}
FEATURES = ["age", "weight", "stage", "smoker"]


def schema(table=TABLE, **declaration):
    given = {"family": "logistic", "label": "relapse", "features": FEATURES, "units": {"age": "years"}, **declaration}
    regression = gs.Regression(**given)
    return read_schema(regression, read_table(table))


def test_kinds_levels_and_columns():
    found = schema()
    assert [(each.name, each.role, each.kind) for each in found.variables] == [
        ("age", "feature", "number"),
        ("weight", "feature", "number"),
        ("stage", "feature", "categorical"),
        ("smoker", "feature", "categorical"),
        ("relapse", "label", "categorical"),
    ]
    assert found.columns == ("age", "weight", "stage=II", "stage=III", "smoker=true")
    assert found.classes == ("no", "yes")
    assert schema(features=None).columns == found.columns
    assert Schema.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_levels_of_numbers_are_sorted_as_numbers():
    stages = read_table({"stage": [10.0, 9.0, 2.5, 10.0], "relapse": [1, 2, 10, 2]})
    regression = gs.Regression(family="logistic", label="relapse", categorical=["stage"])
    found = read_schema(regression, stages)
    assert found.features[0].levels == ("2.5", "9", "10")
    assert found.classes == ("1", "2", "10")


STATE = "state them alike at all sites, with categorical = { stage = [...] }"
DIFFERENT = {
    "a feature that is missing there": (
        schema(features=FEATURES[1:], units={}),
        ["feature 'age' is not a feature there"],
    ),
    "a feature that is missing here": (
        schema({**TABLE, "bmi": [1.0, 2.0, 3.0, 4.0]}, features=[*FEATURES, "bmi"]),
        ["1 feature there is not one here"],
    ),
    "two of them": (
        schema({**TABLE, "bmi": [1.0, 2.0, 3.0, 4.0], "bp": [1.0, 2.0, 3.0, 4.0]}, features=[*FEATURES, "bmi", "bp"]),
        ["2 features there are not one here"],
    ),
    "order": (
        schema(features=["weight", "age", "stage", "smoker"]),
        ["the order of the features: 'age' is number 1 here, 2 there"],
    ),
    "kind": (
        schema({**TABLE, "age": ["old", "old", "young", "old"]}),
        ["'age' is a number here and categorical there"],
    ),
    "unit": (
        schema(units={"age": "days"}),
        ["'age' is in years here and in days there"],
    ),
    "no unit": (
        schema(units={"weight": "kg", "age": "years"}),
        ["'weight' is in no unit here and in kg there"],
    ),
    "levels": (
        schema({**TABLE, "stage": ["I", "II", "IV", "V"]}),
        [f"levels of 'stage': 'III' is not there; 2 there are not here; {STATE}"],
    ),
    "order of levels": (
        schema(categorical={"stage": ["III", "II", "I"]}),
        [f"levels of 'stage': they are the same in another order; {STATE}"],
    ),
    "classes": (
        schema({**TABLE, "relapse": ["no", "yes", "unknown", "yes"]}),
        ["levels of 'relapse': 1 there is not here; state them alike at all sites, with classes = [...]"],
    ),
    "label": (
        schema({**TABLE, "death": TABLE["relapse"]}, label="death"),
        ["label 'relapse' is not a label there", "1 label there is not one here"],
    ),
    "weights": (
        schema(features=["age", "stage", "smoker"], weight="weight"),
        ["feature 'weight' is not a feature there", "1 weight there is not one here"],
    ),
    "several at once": (
        schema({**TABLE, "stage": ["I", "II", "I", "II"]}, features=["smoker", "stage", "age"], units={"age": "days"}),
        [
            "feature 'weight' is not a feature there",
            "the order of the features: 'age' is number 1 here, 3 there",
            "'age' is in years here and in days there",
            f"levels of 'stage': 'III' is not there; {STATE}",
        ],
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_every_difference_is_said_column_by_column(name):
    other, expected = DIFFERENT[name]
    assert schema().differences(other.told()) == expected


def test_tables_that_are_alike():
    other = {**TABLE, "age": [1.0, 2.0, 3.0, np.nan], "unused": [1, 2, 3, 4]}
    assert schema().differences(schema(other).told()) == []
    assert schema().hash == schema(other).hash
    assert schema().hash != schema(units={}).hash
    assert schema().differences(None) == ["the other site uses no [data] table"]


def test_no_name_leaves_a_site_in_clear():
    told = schema(categorical={"stage": ["I", "II", "III"]}).told()
    assert "years" in told
    for name in [*TABLE, "II", "III", "yes", "true"]:
        assert name not in told
    # Differences name what is here only.
    other = schema({**TABLE, "stage": ["I", "II", "secret", "II"]}).told()
    assert "secret" not in " ".join(schema().differences(other))


@pytest.mark.parametrize(
    ("table", "declaration", "message"),
    [
        ({}, {"features": ["agee"]}, "'agee'; did you mean 'age'"),
        ({}, {"label": "relaps"}, "'relaps'; did you mean 'relapse'"),
        ({"age": [datetime.date(2020, 1, 1)] * 4}, {}, "feature 'age' must hold numbers or categories; got dates, for"),
        (
            {"age": [[1], [2], [3], [4]]},
            {},
            "feature 'age' must hold .*; got values that are neither",
        ),
        ({"stage": ["I"] * 4}, {}, "categorical column 'stage' must have two or more levels; got 'I'; leave it out"),
        ({"relapse": ["no"] * 4}, {}, "label 'relapse' must have two or more classes; got 'no'; state them"),
        (
            {},
            {"family": "linear"},
            "label 'relapse' must hold numbers; got text, for example 'no' in row 1",
        ),
        ({"relapse": [True, False] * 2}, {"family": "poisson"}, "label 'relapse' must hold numbers; got true/false"),
        ({}, {"categorical": ["sex"]}, "columns in categorical must be features; got 'sex'; correct the name"),
        ({}, {"penalty_factors": {"sex": 0.0}}, "columns in penalty_factors must be features; got 'sex'"),
        ({}, {"units": {"bmi": "kg"}}, "columns in units must be used; got 'bmi'"),
        ({"intercept": [1, 2, 3, 4]}, {"features": ["age", "intercept"]}, "different names; got 'intercept' twice"),
        ({"stage=II": [1, 2, 3, 4]}, {"features": ["age", "stage", "stage=II"]}, "got 'stage=II' twice; rename"),
    ],
)
def test_columns_that_do_not_fit_their_role(table, declaration, message):
    with pytest.raises(gs.InputError, match=message):
        schema({**TABLE, **table}, **declaration)


def test_a_typing_error_among_numbers_is_named():
    ages = [str(age) for age in range(60)]
    ages[37] = "4o"
    table = {"age": ages, "relapse": [0, 1] * 30}
    with pytest.raises(
        gs.InputError, match="'age' must hold numbers, or categories; got '4o' in row 38 among 59 numbers"
    ):
        schema(table, features=["age"])
    with pytest.raises(gs.InputError, match="'age' must have at most 50 levels, unless they are stated; got 60, for"):
        schema(table, features=["age"], categorical=["age"])
    with pytest.raises(gs.InputError, match="label 'relapse' must have at most 50 classes; got 60; for numbers, use"):
        schema({"age": range(60), "relapse": np.arange(60)}, features=["age"])


def test_a_table_needs_features():
    with pytest.raises(gs.InputError, match="a regression needs a feature; got none in dict of arrays; add a column"):
        schema({"relapse": ["a", "b"]}, features=None, units={})
