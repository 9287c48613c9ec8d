"""Which site owns a row: labels, graphs, pipelines, cross-validation; and what a fit leaves behind."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn import datasets
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import gradslide as gs
from gradslide._support.errors import InputError
from gradslide.sklearn import DecentralizedLasso, DecentralizedLogisticRegression, DecentralizedRidge

X, Y = datasets.load_diabetes(return_X_y=True)
HOSPITALS = np.array(["Ulm", "Bonn", "Köln", "Trier", "Jena"])[np.arange(len(Y)) % 5]


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_labels_of_any_kind():
    model = DecentralizedRidge().fit(X, Y, sites=HOSPITALS)
    assert model.sites_.tolist() == ["Bonn", "Jena", "Köln", "Trier", "Ulm"]
    assert model.graph_.m == len(model.solution_.x) == 5
    by_number = DecentralizedRidge().fit(X, Y, sites=(np.arange(len(Y)) % 5 * 7).tolist())
    assert by_number.sites_.tolist() == [0, 7, 14, 21, 28]
    assert np.allclose(by_number.coef_, model.coef_, atol=1e-6)


def test_without_labels_rows_are_cut_into_blocks():
    assert DecentralizedRidge().fit(X, Y).sites_.tolist() == [0, 1, 2, 3]
    assert DecentralizedRidge(n_sites=9, tol=1e-4).fit(X, Y).graph_.m == 9
    assert DecentralizedRidge(n_sites=9).fit(X[:3], Y[:3]).graph_.m == 3
    assert DecentralizedRidge(graph=gs.Graph.ring(6)).fit(X, Y).graph_.m == 6
    assert DecentralizedRidge(n_sites=1).fit(X, Y).solution_.costs.rounds == 0


def test_default_graphs():
    few, many = (DecentralizedRidge(n_sites=m, tol=1e-2).fit(X, Y).graph_ for m in (4, 20))
    assert len(few.edges) == 6
    assert many.degrees.max() <= 4
    assert many == DecentralizedRidge(n_sites=20, tol=1e-2).fit(X, Y).graph_


def test_sites_without_rows_pass_on():
    sites = np.array([0, 2, 5])[np.arange(len(Y)) % 3]
    model = DecentralizedRidge(graph=gs.Graph.path(6)).fit(X, Y, sites=sites)
    assert model.sites_.tolist() == [0, 1, 2, 3, 4, 5]
    assert np.allclose(model.coef_, DecentralizedRidge().fit(X, Y).coef_, atol=1e-5)
    label = Y > 100
    model = DecentralizedLogisticRegression(graph=gs.Graph.star(6)).fit(X, label, sites=sites)
    assert np.allclose(model.coef_, DecentralizedLogisticRegression().fit(X, label).coef_, atol=1e-6)


def test_a_network_in_the_place_of_a_graph():
    network = gs.network.Local(gs.Graph.ring(5))
    model = DecentralizedRidge(graph=network).fit(X, Y, sites=HOSPITALS)
    assert model.graph_ == gs.Graph.ring(5)
    assert np.allclose(model.coef_, DecentralizedRidge().fit(X, Y).coef_, atol=1e-9)
    with pytest.raises(gs.InputError, match="exact sums need a network on which every message arrives"):
        DecentralizedRidge(graph=gs.network.Lossy(gs.Graph.ring(5), lost=0.05)).fit(X, Y, sites=HOSPITALS)


@pytest.mark.parametrize(
    ("parameters", "sites", "message"),
    [
        ({}, HOSPITALS[:-1], "sites must name the owner of each row, 442 in all; got shape \\(441,\\)"),
        ({}, HOSPITALS[:, None], "sites must name the owner"),
        ({}, [None] * 442, "no missing labels; got 442"),
        ({}, np.where(np.arange(442) < 2, np.nan, 1.0), "no missing labels; got 2"),
        ({}, [1, "a"] * 221, None),
        ({}, np.array([1, "a"] * 221, dtype=object), "labels that can be sorted"),
        ({"graph": gs.Graph.ring(4)}, HOSPITALS, "one agent for each site; got 4 agents and 5 sites"),
        ({"graph": gs.Graph.ring(6)}, HOSPITALS, "number the sites 0..5"),
        ({"graph": gs.Graph.ring(6)}, np.arange(442) % 5 + 2, "got 6 agents and 5 sites"),
        ({"graph": "ring"}, HOSPITALS, "graph must be a gs.Graph or a network; got str 'ring'"),
        ({"graph": gs.Graph}, None, "graph must be a gs.Graph"),
        ({"n_sites": 0}, None, "n_sites must be a whole number >= 1"),
        ({"max_iter": 0}, None, "max_iter must be a whole number"),
        ({"tol": 0.0}, None, "tol must be > 0"),
        ({"alpha": -1.0}, None, "alpha must be >= 0"),
    ],
)
def test_bad_input(parameters, sites, message):
    model = DecentralizedRidge(**parameters)
    if message is None:  # numpy turns them into strings
        assert model.fit(X, Y, sites=sites).sites_.tolist() == ["1", "a"]
        return
    with pytest.raises(InputError, match=message):
        model.fit(X, Y, sites=sites)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"penalty": "l3"}, "penalty must be one of the known names"),
        ({"penalty": "elasticnet"}, "l1_ratio must be"),
        ({"l1_ratio": 1.0}, 'l1_ratio is for penalty="elasticnet"'),
        ({"C": 0.0}, "C must be > 0"),
    ],
)
def test_bad_penalties(parameters, message):
    with pytest.raises(InputError, match=message):
        DecentralizedLogisticRegression(**parameters).fit(X, Y > 100)
    with pytest.raises(InputError, match="l1_ratio must be"):
        DecentralizedLasso(l1_ratio=2.0).fit(X, Y)
    with pytest.raises(InputError, match="sample_weight must be finite"):
        DecentralizedLasso().fit(X, Y, -np.ones(442))


def test_an_agent_elsewhere_is_refused():
    elsewhere = gs.network.Local(gs.Graph.ring(5))
    elsewhere.agents = range(2)
    with pytest.raises(InputError, match="all live in this process; got 2 of 5"):
        DecentralizedRidge(graph=elsewhere).fit(X, Y)


def test_pipelines_carry_sites(routing):
    pipeline = Pipeline([("scale", StandardScaler()), ("fit", DecentralizedRidge().set_fit_request(sites=True))])
    pipeline.fit(X, Y, sites=HOSPITALS)
    assert pipeline["fit"].sites_.tolist() == sorted(set(HOSPITALS))
    assert pipeline.score(X, Y) > 0.5


def test_cross_validation_carries_sites(routing):
    model = DecentralizedRidge(0.01).set_fit_request(sites=True)
    found = cross_validate(model, X, Y, params={"sites": HOSPITALS}, cv=3, return_estimator=True)
    assert [len(each.sites_) for each in found["estimator"]] == [5, 5, 5]
    assert min(found["test_score"]) > 0.3


def test_grid_search_carries_sites_and_weights(routing):
    model = DecentralizedLogisticRegression(tol=1e-6).set_fit_request(sites=True, sample_weight=True)
    model.set_score_request(sample_weight=False)
    search = GridSearchCV(model, {"C": [1e-3, 1.0], "penalty": ["l1", "l2"]}, cv=KFold(3))
    search.fit(X, Y > 140, sites=HOSPITALS, sample_weight=np.ones(len(Y)))
    assert search.best_params_["C"] == 1.0
    assert search.best_estimator_.sites_.tolist() == sorted(set(HOSPITALS))


def test_folds_that_lack_a_site(routing):
    sites = np.arange(len(Y)) * 3 // len(Y)  # in the order of the rows: each fold takes one of them away
    for graph, left in ((None, 2), (gs.Graph.path(3), 3)):
        model = DecentralizedRidge(0.01, graph=graph).set_fit_request(sites=True)
        found = cross_validate(model, X, Y, params={"sites": sites}, cv=KFold(3), return_estimator=True)
        assert [each.graph_.m for each in found["estimator"]] == [left] * 3
        assert min(found["test_score"]) > 0.3


def test_without_routing():
    pipeline = Pipeline([("scale", StandardScaler()), ("fit", DecentralizedRidge())])
    assert len(pipeline.fit(X, Y, fit__sites=HOSPITALS)["fit"].sites_) == 5


def test_what_a_fit_leaves():
    model = DecentralizedRidge(graph=gs.Graph.ring(5)).fit(X, Y, sites=HOSPITALS)
    residuals = Y - model.predict(X)
    # Half of what scikit-learn minimizes.
    objective = (residuals @ residuals + model.coef_ @ model.coef_) / 2
    solution = model.solution_
    assert np.isclose(solution.objective, objective, rtol=1e-12)
    assert np.allclose(solution.x, np.append(model.intercept_, model.coef_))
    assert model.n_iter_ == solution.history[-1].iteration
    assert solution.costs.gradients == solution.history[-1].gradients
    # Three sums besides, up to the centre of the ring and down again: four rounds each.
    assert solution.costs.rounds == solution.history[-1].rounds + 3 * 4
    assert solution.kkt.stationarity <= 1e-9 * solution.kkt.scale


def test_pickles_clones_and_names():
    frame, label = pd.DataFrame(X, columns=list("abcdefghij")), np.where(Y > 140, "high", "low")
    model = DecentralizedLogisticRegression(C=2.0, graph=gs.Graph.ring(5))
    model.fit(frame, pd.Series(label), sites=pd.Series(HOSPITALS))
    assert model.feature_names_in_.tolist() == list("abcdefghij")
    assert model.classes_.tolist() == ["high", "low"]
    assert set(model.predict(frame)) == {"high", "low"}
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(frame), model.predict_proba(frame))
    assert clone(model).graph == model.graph
    assert not hasattr(clone(model), "coef_")


def test_scikit_learn_is_named_where_it_is_missing():
    program = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import gradslide\n"
        "assert 'gradslide.sklearn' not in sys.modules\n"
        "try:\n    import gradslide.sklearn\n"
        "except gradslide.InputError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (
        "gradslide.sklearn needs scikit-learn; got none installed; in a checkout of gradslide: pip install '.[sklearn]'"
    )
