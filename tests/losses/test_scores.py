"""Values and gradients from scores: one product for a point, and none for points on a line through known ones."""

import numpy as np
import pytest
import scipy.sparse as sp

import gradslide as gs

LOSSES = {
    "logistic": gs.losses.Logistic,
    "least squares": gs.losses.LeastSquares,
    "huber": gs.losses.Huber,
    "hinge": gs.losses.SmoothedHinge,
    "softmax": gs.losses.Softmax,
    "poisson": gs.losses.Poisson,
}
SIZES = {"equal": (20, 20, 20), "unequal": (30, 3, 27)}


def make(name, sizes="unequal", dtype=np.float64, sparse=False, compiled=False):
    """A loss of three agents with weights, and three points per agent."""
    rng = np.random.default_rng(len(name))
    features, ends = rng.normal(size=(60, 5)).astype(dtype), np.cumsum(SIZES[sizes])
    targets = rng.integers(0, 3, 60) if name in ("poisson", "softmax") else np.where(rng.random(60) < 0.4, 1, -1)
    splits = np.split(np.arange(60), ends[:-1])
    rows = sp.csr_array(features) if sparse else features
    loss = LOSSES[name](rows, targets, splits=splits, sample_weight=rng.uniform(0.5, 2.0, 60))
    if compiled:
        loss.compiled = True
    return loss, rng.normal(size=(3, 3, loss.d)).astype(dtype)


CASES = [
    *((name, {"sizes": sizes, "sparse": sparse}) for name in LOSSES for sizes in SIZES for sparse in (False, True)),
    *((name, {"compiled": True, "sparse": sparse}) for name in list(LOSSES)[:4] for sparse in (False, True)),
    *((name, {"compiled": True, "dtype": np.float32}) for name in list(LOSSES)[:4]),
]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_an_extrapolation_is_the_value_here_and_value_and_gradient_ahead(name, options):
    loss, (x, before, _) = make(name, **options)
    precise = loss.dtype == np.float64
    for theta in (0.0, 0.6, -0.3):
        found = loss.extrapolation(x, loss.scores(before) if theta else None, theta)
        value, gradient = loss.value_and_gradient((x + theta * (x - before)).astype(loss.dtype))
        np.testing.assert_allclose(found.value, loss.value(x), rtol=1e-13)
        np.testing.assert_allclose(found.value_ahead, value, rtol=1e-12 if precise else 1e-5)
        scale = np.abs(gradient).max()
        np.testing.assert_allclose(found.gradient, gradient, rtol=0, atol=(1e-13 if precise else 1e-5) * scale)
        np.testing.assert_array_equal(found.scores, loss.scores(x))
        assert found.gradient.dtype == loss.dtype


@pytest.mark.parametrize(("name", "options"), CASES)
def test_scores_alone_give_the_bits_of_the_loss(name, options):
    loss, (x, *_) = make(name, **options)
    value, gradient = loss.value_and_gradient(x)
    scores = loss.scores(x)
    np.testing.assert_array_equal(loss.value_of_scores(scores), value)
    found = loss.value_and_gradient_of_scores(scores)
    np.testing.assert_array_equal(found[0], value)
    np.testing.assert_array_equal(found[1], gradient)
    ahead = loss.extrapolation(x, None, 0.0)
    np.testing.assert_array_equal(ahead.gradient, gradient)
    assert ahead.value_ahead is ahead.value


def test_many_extrapolations_do_not_accumulate_rounding_errors():
    """Scores of every point come from a product of their own, however long the chain."""
    loss, (x, before, direction) = make("logistic")
    scores = loss.scores(before)
    for k in range(2000):
        found = loss.extrapolation(x, scores, 0.99)
        expected = loss.gradient(x + 0.99 * (x - before))
        assert np.abs(found.gradient - expected).max() <= 2e-14 * np.abs(expected).max() + 1e-13
        before, x, scores = x, x + 0.01 * np.cos(k) * direction, found.scores


def test_single_precision_has_scores_only_where_they_are_double():
    assert not make("logistic", dtype=np.float32)[0].has_scores
    loss, (x, *_) = make("logistic", dtype=np.float32, compiled=True)
    assert loss.has_scores
    assert loss.scores(x).dtype == np.float64


def test_a_loss_that_overrides_its_value_has_no_scores():
    class Own(gs.losses.Logistic):
        def value(self, x):
            return 2 * super().value(x)

        def gradient(self, x):
            return 2 * super().gradient(x)

    rng = np.random.default_rng(0)
    assert not Own(rng.normal(size=(10, 2)), np.where(rng.random(10) < 0.5, 1, -1), agents=2).has_scores
    assert not gs.losses.Custom(gradient=lambda x: x, value=lambda x: x[:, 0], agents=2, dimension=1).has_scores
