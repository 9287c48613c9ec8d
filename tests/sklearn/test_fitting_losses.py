"""The losses and the penalty behind the estimators, against plain ones."""

import numpy as np
import pytest
import scipy.sparse as sp

import gradslide as gs
from gradslide.sklearn.refinement import SiteRows
from gradslide.sklearn.scaling import AnchoredL1, Recentring, RidgedLoss

SPLITS = [np.arange(5), np.arange(5, 20), np.arange(20, 30)]


def example(classes, seed=0):
    rng = np.random.default_rng(seed)
    targets = rng.normal(size=30) if classes is None else rng.integers(0, classes, size=30)
    rows = SiteRows(rng.normal(size=(30, 4)), targets, rng.uniform(0.5, 2, size=30), SPLITS)
    outputs = 1 if classes in (None, 2) else classes
    return rows, rng.normal(size=(outputs, 4)), rng


every_kind = pytest.mark.parametrize("classes", [None, 2, 4])


@every_kind
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
def test_bregman_divergences_are_those_of_the_plain_loss(classes, size):
    rows, point, rng = example(classes)
    plain, divergence = rows.loss(classes), rows.bregman(classes, rows.features @ point.T)
    anchor = np.tile(point.reshape(-1), (3, 1))
    step = size * rng.normal(size=anchor.shape)
    value, gradient = divergence.value_and_gradient(step)
    slope = plain.gradient(anchor)
    expected = plain.value(anchor + step) - plain.value(anchor) - np.vecdot(slope, step)
    assert np.allclose(value, expected, rtol=1e-9, atol=1e-12)
    assert np.allclose(gradient, plain.gradient(anchor + step) - slope)
    assert np.allclose(divergence.smoothness(), plain.smoothness())


@every_kind
@pytest.mark.parametrize("size", [1e-12, 1e-5])
def test_bregman_divergences_keep_their_digits(classes, size):
    rows, point, rng = example(classes)
    direction = rng.normal(size=(3, point.size))
    value = rows.bregman(classes, rows.features @ point.T).value(size * direction)
    plain, anchor, h = rows.loss(classes), np.tile(point.reshape(-1), (3, 1)), 1e-4
    change = plain.gradient(anchor + h * direction) - plain.gradient(anchor - h * direction)
    assert np.allclose(value, size**2 / 2 * np.vecdot(change / (2 * h), direction), rtol=1e-4, atol=0)


@every_kind
@pytest.mark.parametrize("is_free", [True, False])
def test_recentred_rows(classes, is_free):
    rows, point, rng = example(classes)
    mean, outputs = rows.features.mean(axis=0), len(point)
    ones = np.ones((30, 1))
    centred = np.hstack([rows.features - mean, ones]) if is_free else rows.features - mean
    raw = sp.csr_array(np.hstack([rows.features, ones]))
    dense = SiteRows(centred, rows.targets, rows.weight, SPLITS).loss(classes)
    base = SiteRows(raw, rows.targets, rows.weight, SPLITS).loss(classes)
    ridge = rng.uniform(size=dense.d)
    loss = RidgedLoss(base, Recentring(outputs, mean, is_free), ridge)
    u = rng.normal(size=(3, dense.d))
    value, gradient = loss.value_and_gradient(u)
    assert np.allclose(value, dense.value(u) + 0.5 * u**2 @ ridge)
    assert np.allclose(gradient, dense.gradient(u) + ridge * u)
    assert np.allclose(value, loss.value(u))
    assert np.allclose(gradient, loss.gradient(u))
    assert np.all(loss.smoothness() >= dense.smoothness())
    assert np.allclose(loss.take([2]).gradient(u[2:]), gradient[2:])


@every_kind
def test_a_problem_from_an_anchor(classes):
    rows, point, rng = example(classes)
    same, ridge = Recentring(len(point), None, False), rng.uniform(size=point.size)
    plain = RidgedLoss(rows.loss(classes), same, ridge)
    at, u = np.tile(point.reshape(-1), (3, 1)), rng.normal(size=(3, point.size))
    moved = RidgedLoss(rows.bregman(classes, rows.features @ point.T), same, ridge, plain.gradient(at))
    assert np.allclose(moved.value(u), plain.value(at + u) - plain.value(at))
    assert np.allclose(moved.gradient(u), plain.gradient(at + u))
    assert np.allclose(moved.take([1]).gradient(u[1:2]), moved.gradient(u)[1:2])


def test_a_penalty_from_an_anchor():
    rng = np.random.default_rng(0)
    weight, anchor, u = rng.uniform(size=6), rng.normal(size=6), rng.normal(size=(3, 6))
    plain = gs.domains.Free(penalty=gs.L1(weight)).bind(3, 6, np.float64)
    moved = gs.domains.Free(penalty=AnchoredL1(weight, anchor)).bind(3, 6, np.float64)
    assert np.allclose(moved.r(u), plain.r(u + anchor) - plain.r(np.tile(anchor, (3, 1))))
    assert np.allclose(moved.prox(u, 1.0), plain.prox(u + anchor, 1.0) - anchor)
