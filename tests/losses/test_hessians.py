"""Hessians against differences of gradients, and scales of columns."""

import numpy as np
import pytest
import scipy.sparse as sp

import gradslide as gs
from gradslide.losses import linear_model
from gradslide.losses import rows as blocks
from gradslide.losses.linear_model import LinearModel

RNG = np.random.default_rng(5)
ROWS, SIGNS, CLASSES = RNG.normal(size=(30, 4)), np.where(RNG.random(30) < 0.5, 1.0, -1.0), RNG.integers(3, size=30)
SIZES = [3, 12, 15]
SPLITS = np.split(np.arange(30), np.cumsum(SIZES)[:-1])
WEIGHTS = RNG.uniform(0.5, 2.0, size=30)
LOSSES = {
    "logistic": gs.losses.Logistic(ROWS, SIGNS, splits=SPLITS),
    "weighted": gs.losses.Logistic(ROWS, SIGNS, splits=SPLITS, sample_weight=WEIGHTS),
    "mean": gs.losses.Logistic(ROWS, SIGNS, splits=SPLITS, reduction="mean"),
    "sparse": gs.losses.Logistic(sp.csr_array(ROWS * (np.abs(ROWS) > 0.5)), SIGNS, splits=SPLITS),
    "least squares": gs.losses.LeastSquares(ROWS, SIGNS, splits=SPLITS),
    "huber": gs.losses.Huber(ROWS, SIGNS, splits=SPLITS, delta=0.7),
    "hinge": gs.losses.SmoothedHinge(ROWS, SIGNS, splits=SPLITS, gamma=0.8),
    "softmax": gs.losses.Softmax(ROWS, CLASSES, splits=SPLITS),
    "poisson": gs.losses.Poisson(ROWS, CLASSES, WEIGHTS, splits=SPLITS),
    "quadratic": gs.losses.Quadratic(np.stack([np.diag(each) for each in np.abs(ROWS[:3])]), ROWS[:3]),
    "linear": gs.losses.Linear(ROWS[:3]),
    "stacked": gs.losses.stack(
        [gs.losses.Logistic(ROWS[:9], SIGNS[:9], agents=2), gs.losses.Huber(ROWS[9:], SIGNS[9:])]
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_they_are_the_derivatives_of_the_gradient(name):
    loss = LOSSES[name]
    assert loss.has_hessian
    x = np.random.default_rng(1).normal(size=(loss.m, loss.d))
    found, h = loss.hessian(x), 1e-6
    assert found.shape == (loss.m, loss.d, loss.d)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, found.swapaxes(1, 2), atol=1e-12)
    for j in range(loss.d):
        step = h * np.eye(loss.d)[j]
        differences = (loss.gradient(x + step) - loss.gradient(x - step)) / (2 * h)
        np.testing.assert_allclose(found[:, :, j], differences, atol=1e-6)


def test_single_precision_data_have_hessians_in_double_precision():
    single = gs.losses.Logistic(ROWS.astype(np.float32), SIGNS, splits=SPLITS)
    x = np.zeros((3, 4))
    np.testing.assert_allclose(single.hessian(x.astype(np.float32)), LOSSES["logistic"].hessian(x), rtol=1e-5)


def test_a_loss_without_them_says_so():
    custom = gs.losses.Custom(gradient=lambda x: x, agents=3, dimension=2)
    assert not custom.has_hessian
    with pytest.raises(gs.InputError, match="this needs the hessian of the loss; got Custom without it; give hessian="):
        custom.hessian(np.zeros((3, 2)))

    class Steeper(gs.losses.Logistic):
        def gradient(self, x):
            return 2 * super().gradient(x)

    own = Steeper(ROWS, SIGNS, splits=SPLITS)
    assert not own.has_hessian
    with pytest.raises(gs.InputError, match="a Hessian needs a loss over NumPy arrays that has one; got Steeper"):
        own.hessian(np.zeros((3, 4)))


def test_squares_of_columns():
    scaled = ROWS * [1.0, 10.0, 0.0, 1e-3]
    expected = [(scaled[rows] ** 2).sum(axis=0) for rows in SPLITS]
    for features in (scaled, sp.csr_array(scaled)):
        np.testing.assert_allclose(gs.losses.Logistic(features, SIGNS, splits=SPLITS).column_squares(), expected)
    assert LOSSES["quadratic"].column_squares() is None


@pytest.mark.parametrize("name", LOSSES)
def test_all_derivatives_at_once(name):
    loss = LOSSES[name]
    x = np.random.default_rng(2).normal(size=(loss.m, loss.d))
    values, gradients, hessians = loss.derivatives(x)
    np.testing.assert_allclose(values, loss.value(x), rtol=1e-13)
    np.testing.assert_allclose(gradients, loss.gradient(x), rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(hessians, loss.hessian(x))


@pytest.mark.parametrize("name", ["logistic", "weighted"])
def test_compiled_code_takes_one_pass_for_all_derivatives(name, monkeypatch):
    plain = LOSSES[name]
    loss, calls = plain.take(range(plain.m)), []
    loss.compiled = True
    products, passes = LinearModel._scores, LinearModel._in_compiled_pass
    monkeypatch.setattr(LinearModel, "_scores", lambda *given: calls.append("product") or products(*given))
    monkeypatch.setattr(
        LinearModel, "_in_compiled_pass", lambda *given, **more: calls.append("pass") or passes(*given, **more)
    )
    x = np.random.default_rng(2).normal(size=(loss.m, loss.d))
    found = loss.derivatives(x)
    assert calls == ["pass"]
    for one, other in zip(found, plain.derivatives(x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["logistic", "weighted", "softmax", "stacked"])
def test_many_hessians_are_summed(name, monkeypatch):
    loss = LOSSES[name]
    x = np.random.default_rng(2).normal(size=(loss.m, loss.d))
    monkeypatch.setattr(linear_model, "_MOST_HESSIANS", 10)
    hessians = loss.derivatives(x)[2]
    assert len(hessians) == 1
    np.testing.assert_allclose(hessians[0], loss.hessian(x).sum(axis=0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("share", [0.01, 0.5])
def test_the_sum_of_sparse_hessians(share, monkeypatch):
    """Few nonzeros take sparse products, many dense ones, in chunks of rows."""
    monkeypatch.setattr(blocks, "_CHUNK_ENTRIES", 100)
    monkeypatch.setattr(linear_model, "_MOST_HESSIANS", 10)
    rng = np.random.default_rng(3)
    features = sp.random_array((300, 8), density=share, format="csr", rng=rng)
    loss = gs.losses.Logistic(features, np.where(rng.random(300) < 0.5, 1.0, -1.0), agents=5)
    x = rng.normal(size=(5, 8))
    np.testing.assert_allclose(loss.derivatives(x)[2][0], loss.hessian(x).sum(axis=0), rtol=1e-12, atol=1e-12)


def test_the_oracle_counts_all_derivatives():
    costs = gs.Costs()
    gs.oracles.Oracle(LOSSES["logistic"], costs).derivatives(np.zeros((3, 4)))
    assert (costs.gradients, costs.values, costs.hessians) == (1, 1, 1)
