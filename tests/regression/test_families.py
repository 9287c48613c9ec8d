"""Families of regressions: residuals are derivatives of the loss, and metrics are sums over sites."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from gradslide.regression.design import Rows
from gradslide.regression.families import FAMILIES

CASES = [("linear", 0), ("logistic", 2), ("logistic", 3), ("poisson", 0)]


def rows_of(family, classes, n=40, seed=0):
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, classes, n) if classes else rng.poisson(2.0, n).astype(float)
    return Rows(rng.normal(size=(n, 3)), targets, rng.uniform(0.5, 2, n), rng.uniform(1, 3, n), np.ones(n))


@pytest.mark.parametrize(("name", "classes"), CASES)
def test_residuals_are_derivatives_of_the_loss(name, classes):
    family, rows = FAMILIES[name], rows_of(name, classes)
    loss = family.loss(rows, [np.arange(rows.n)], classes)
    x = np.random.default_rng(1).normal(size=loss.d) * 0.3
    scores = rows.features @ x.reshape(family.outputs(classes), 3).T
    slopes = (rows.weight[:, None] * family.residuals(scores, rows)).T @ rows.features
    np.testing.assert_allclose(slopes.ravel(), loss.gradient(x[None])[0], rtol=1e-10)


@pytest.mark.parametrize(("name", "classes"), [*CASES, ("cox", 0)])
def test_metrics_of_all_are_those_of_added_sums(name, classes):
    """Of Cox each site compares its own rows only."""
    family, rows = FAMILIES[name], rows_of(name, classes)
    scores = np.random.default_rng(2).normal(size=(rows.n, family.outputs(classes)))
    parts = np.split(np.arange(rows.n), [5, 17])
    sums = [family.of_predictions(scores[own], rows.take(own)) for own in parts]
    added = {key: sum(each[key] for each in sums) for key in sums[0]}
    if name == "cox":
        assert added["w"] == sum(each["w"] for each in sums)
        assert 0 < family.metrics(added)["concordance"] < 1
    else:
        whole = family.metrics(family.of_predictions(scores, rows))
        assert family.metrics(added) == pytest.approx(whole, rel=1e-12)
    nothing = family.of_predictions(scores[:0], rows.take(np.arange(0)))
    assert family.metrics(nothing) == {}
    assert family.metrics({}) == {}
    assert {key: np.shape(each) for key, each in nothing.items()} == {
        key: np.shape(each) for key, each in added.items()
    }


@pytest.mark.parametrize("spread", [0.1, 1.0, 8.0, 40.0])
def test_the_bound_of_the_area_under_the_curve_holds(spread):
    rng = np.random.default_rng(3)
    scores = spread * rng.normal(size=(2000, 1)) + rng.normal()
    targets = (rng.random(2000) < 1 / (1 + np.exp(-np.clip(scores[:, 0], -3, 3)))).astype(np.int64)
    rows = Rows.plain(np.zeros((2000, 1)), targets, np.ones(2000))
    found = FAMILIES["logistic"].metrics(FAMILIES["logistic"].of_predictions(scores, rows))
    assert abs(found["AUC"] - roc_auc_score(targets, scores[:, 0])) <= found["AUC exact to"] + 1e-12


def test_ties_among_hazards_and_times():
    rows = Rows(
        np.zeros((4, 1)), np.array([1.0, 1.0, 2.0, 3.0]), np.ones(4), np.ones(4), np.array([1.0, 0.0, 1.0, 1.0])
    )
    scores = np.array([[1.0], [0.0], [1.0], [2.0]])
    # Row 0 is before 1 (censored at the same time), 2 and 3; row 2 before 3: concordant, tied, not, not.
    sums = FAMILIES["cox"].of_predictions(scores, rows)
    assert (sums["w"], sums["concordant"]) == (4, 1.5)


def test_many_rows_are_not_compared_with_each_other():
    n = 20_001
    rows = Rows(np.zeros((n, 1)), np.arange(n) * 1.0, np.ones(n), np.ones(n), np.ones(n))
    assert FAMILIES["cox"].metrics(FAMILIES["cox"].of_predictions(np.zeros((n, 1)), rows)) == {}
