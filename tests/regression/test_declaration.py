"""A regression is checked when it is declared."""

import pytest

import gradslide as gs

LINEAR = {"family": "linear", "label": "y"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"family": "linaer", "label": "y"},
            "family must be .*; got 'linaer'; did you mean 'linear'",
        ),
        (
            {"family": "linear"},
            'a linear regression needs label, .*; got none; for example label="..."',
        ),
        ({"family": "cox", "time": "t"}, "a cox regression needs event, the name of a column; got none"),
        ({"family": "cox", "time": "t", "event": "e", "label": "y"}, "label is for a linear or logistic or poisson"),
        ({**LINEAR, "exposure": "e"}, "exposure is for a poisson regression; got family 'linear'; leave it out"),
        ({**LINEAR, "time": "t"}, "time is for a cox regression; got family 'linear'"),
        ({"family": "linear", "label": 3}, "label must be the name of a column; got int 3; give a string"),
        ({**LINEAR, "features": "age"}, "features must be a sequence of different names; got str 'age'; for example"),
        ({**LINEAR, "features": ["age", "age"]}, "features must be a sequence of different names; got age twice"),
        ({**LINEAR, "features": []}, "features must be a sequence of different names; got none"),
        (
            {**LINEAR, "features": ["age", "y"]},
            "a column must have one role; got y with more; leave it out",
        ),
        ({**LINEAR, "weight": "y"}, "a column must have one role; got y with more"),
        ({**LINEAR, "classes": ["a", "b"]}, "classes are for a logistic regression; got linear; leave them out"),
        ({"family": "logistic", "label": "y", "classes": ["a"]}, "a label needs two or more classes; got"),
        (
            {**LINEAR, "categorical": {"sex": "m"}},
            "the levels of sex must be a sequence .*; got str 'm'",
        ),
        ({**LINEAR, "categorical": {"sex": ["m", "m"]}}, "the levels of sex must be .*; got m twice"),
        ({**LINEAR, "units": ["kg"]}, "units must map columns to values; got list"),
        ({**LINEAR, "penalty_factors": {"age": -1.0}}, "the penalty factor of age must be >= 0 and finite; got -1.0"),
        ({**LINEAR, "ridge": -1.0}, "ridge must be >= 0 and finite; got -1.0; 0 for none"),
        ({**LINEAR, "lasso": float("nan")}, "lasso must be >= 0 and finite; got nan"),
        ({**LINEAR, "missing": "ignore"}, "missing must be one of the known names; got 'ignore'"),
        ({**LINEAR, "covariance": "hc1"}, "covariance must be one of the known names; got 'hc1'"),
        ({**LINEAR, "confidence": 1.0}, "confidence must be > 0 and <= 1 and finite; got 1.0; 0.95 for 95 %"),
        ({**LINEAR, "minimum_rows": 2.5}, "minimum_rows must be a whole number >= 1; got 2.5"),
        ({"family": "cox", "time": "t", "event": "e", "covariance": "rows"}, "covariance of a Cox regression must be"),
        (
            {**LINEAR, "lable": "y"},
            "a keyword of Regression must be .*; got lable=; did you mean label=",
        ),
    ],
)
def test_what_is_refused(given, message):
    with pytest.raises(gs.InputError, match=message):
        gs.Regression(**given)


def test_levels_are_texts_as_tables_have_them():
    regression = gs.Regression(
        family="logistic",
        label="y",
        classes=[0.0, 1],
        categorical={"stage": [1, 2.0, 2.5], "smoker": [False, True], "group": None},
    )
    assert regression.classes == ("0", "1")
    assert regression.levels == {"stage": ("1", "2", "2.5"), "smoker": ("false", "true"), "group": None}
    assert gs.Regression(**LINEAR, categorical=["a", "b"]).levels == {"a": None, "b": None}


def test_a_declaration_survives_json():
    regression = gs.Regression(
        family="poisson",
        label="y",
        features=["a", "b"],
        categorical={"b": [1, 2]},
        exposure="e",
        units={"a": "kg"},
        penalty_factors={"a": 0.0},
        ridge=1.5,
    )
    assert gs.Regression(**regression.to_dict()) == regression


def test_cox_has_no_intercept():
    assert not gs.Regression(family="cox", time="t", event="e").has_intercept
    assert gs.Regression(**LINEAR).has_intercept
    assert not gs.Regression(**LINEAR, intercept=False).has_intercept
