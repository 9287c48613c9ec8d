"""A fitted regression as an estimator of scikit-learn predicts the same."""

import pickle

import numpy as np
import pandas as pd
import pytest
import site_tables as data
from site_tables import assert_same, features_of, fit
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor

import gradslide as gs

CASES = {
    "numbers": (data.diabetes, {"family": "linear", "label": "target"}, LinearRegression),
    "no intercept": (data.diabetes, {"family": "linear", "label": "target", "intercept": False}, LinearRegression),
    "two classes": (data.affairs, {"family": "logistic", "label": "any"}, LogisticRegression),
    "several classes": (data.votes, {"family": "logistic", "label": "PID"}, LogisticRegression),
    "a ridge": (data.wine, {"family": "logistic", "label": "target", "ridge": 1.0}, LogisticRegression),
    "counts": (data.visits, {"family": "poisson", "label": "mdvis"}, PoissonRegressor),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_only(name):
    make, declaration, kind = CASES[name]
    table = make()
    solution = gs.fit(gs.Regression(**declaration), table, sites="site")
    estimator, features = solution.to_sklearn(), features_of(table, declaration["label"])
    assert isinstance(estimator, kind)
    assert list(estimator.feature_names_in_) == list(features.columns)
    assert estimator.n_features_in_ == features.shape[1]
    predict = estimator.predict_proba if kind is LogisticRegression else estimator.predict
    assert_same(predict(features), solution.model.predict(table), 1e-9, zero=1e-15)
    if kind is LogisticRegression:
        assert estimator.classes_.tolist() == sorted(set(table[declaration["label"]]))
        hits = np.mean(estimator.predict(features) == table[declaration["label"]])
        assert_same(hits, solution.model.evaluation["fit"]["accuracy"], 1e-9)
    copied = pickle.loads(pickle.dumps(estimator))
    assert_same(copied.predict(features), estimator.predict(features), 1e-15)
    with pytest.raises(ValueError, match="feature names"):
        estimator.predict(features.rename(columns=str.upper))
    assert clone(estimator).get_params() == estimator.get_params()


def mixed():
    table = data.diabetes()
    return pd.DataFrame(
        {
            "site": table["site"],
            "bmi": table["bmi"],
            "group": np.where(table["age"] < 40, "young", np.where(table["age"] > 60, "old", "middle")),
            "sex": table["sex"].astype(int),
            "high": table["bp"] > 100,
            "target": table["target"],
            "class": np.where(table["target"] > 200, "bad", np.where(table["target"] > 100, "medium", "good")),
            "count": (table["target"] // 50).astype(int),
        }
    )


@pytest.mark.parametrize(("family", "label"), [("linear", "target"), ("logistic", "class"), ("poisson", "count")])
def test_categories(family, label):
    table = mixed()
    features = ["group", "bmi", "sex", "high"]
    categorical = {"group": ["young", "middle", "old"], "sex": None}
    model = fit(table, family=family, label=label, features=features, categorical=categorical)
    pipeline = model.to_sklearn()
    predict = pipeline.predict_proba if family == "logistic" else pipeline.predict
    assert_same(predict(table[features]), model.predict(table), 1e-9)
    if family == "logistic":
        assert set(pipeline.predict(table[features])) <= {"bad", "good", "medium"}
    with pytest.raises(ValueError, match="unknown categories"):
        predict(table[features].assign(group="new"))


def test_true_and_false_as_classes():
    table = mixed()
    estimator = fit(table, family="logistic", label="high", features=["bmi"]).to_sklearn()
    assert estimator.predict(table[["bmi"]]).dtype == bool


def test_what_scikit_learn_has_no_estimator_for():
    table = data.rossi()
    with pytest.raises(gs.InputError, match="scikit-learn must have a model of this family; got cox; use predict, or"):
        fit(table, family="cox", time="week", event="arrest").to_sklearn()
    with pytest.raises(gs.InputError, match="PoissonRegressor has no exposure; got exposure 'week'; use predict"):
        fit(table, family="poisson", label="prio", exposure="week").to_sklearn()
    solution = gs.solve(gs.Problem(gs.losses.LeastSquares(np.ones((4, 1)), np.ones(4), agents=2)), gs.Graph.path(2))
    with pytest.raises(gs.InputError, match="to_sklearn needs a fitted regression"):
        solution.to_sklearn()
