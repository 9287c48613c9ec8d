"""A loss in more dimensions is the loss of its own coordinates."""

import numpy as np
import pytest
import scipy.sparse as sp

import gradslide as gs
from gradslide.losses.padded import Padded, padded, without_padding

RNG = np.random.default_rng(0)
ROWS, LABELS = RNG.normal(size=(8, 3)), RNG.choice([-1.0, 1.0], size=8)
LOSSES = {
    "Logistic": gs.losses.Logistic(ROWS, LABELS, agents=2),
    "single precision": gs.losses.Logistic(ROWS.astype(np.float32), LABELS, agents=2),
    "LeastSquares": gs.losses.LeastSquares(ROWS, LABELS, agents=2),
    "Quadratic": gs.losses.Quadratic(np.stack([np.eye(3), np.diag([1.0, 2.0, 3.0])]), RNG.normal(size=(2, 3))),
    "Linear": gs.losses.Linear(RNG.normal(size=(2, 3))),
}


@pytest.fixture(params=LOSSES)
def pair(request):
    return LOSSES[request.param], Padded(LOSSES[request.param], 5)


def point(dtype=float):
    return np.random.default_rng(1).normal(size=(2, 5)).astype(dtype)


def test_values_gradients_and_hessians(pair):
    loss, larger = pair
    x = point(loss.dtype)
    np.testing.assert_array_equal(larger.value(x), loss.value(x[:, :3]))
    np.testing.assert_array_equal(larger.value_in_doubles(x), loss.value_in_doubles(x[:, :3]))
    for gradient in (larger.gradient(x), larger.value_and_gradient(x)[1], larger.derivatives(x)[1]):
        np.testing.assert_array_equal(gradient[:, :3], loss.gradient(x[:, :3]))
        assert not gradient[:, 3:].any()
        assert gradient.dtype == loss.dtype
    for hessian in (larger.hessian(x), larger.derivatives(x)[2]):
        np.testing.assert_allclose(hessian[:, :3, :3], loss.hessian(x[:, :3]))
        assert not hessian[:, 3:].any()
        assert not hessian[:, :, 3:].any()
    assert larger.smoothness().tolist() == loss.smoothness().tolist()


def test_evaluations_follow_changes(pair):
    loss, larger = pair
    if not loss.has_evaluation:
        assert not larger.has_evaluation
        return
    x = point(loss.dtype)
    at, other = larger.evaluation(x), x + np.float32(1e-4)
    change, error = at.change(other)
    expected = loss.evaluation(x[:, :3]).change(other[:, :3])
    np.testing.assert_array_equal(change, expected[0])
    np.testing.assert_array_equal(error, expected[1])
    assert at.gradient.shape == (2, 5)


def test_quadratic_parts():
    dense = padded(LOSSES["Quadratic"], 5).quadratic_part()
    assert [part.shape for part in dense] == [(5, 5)] * 2
    sparse = padded(gs.losses.Quadratic(sp.eye_array(3, format="csr"), np.ones(3)), 4).quadratic_part()
    assert sp.issparse(sparse[0])
    np.testing.assert_array_equal(sparse[0].toarray(), np.diag([1.0, 1.0, 1.0, 0.0]))
    assert padded(LOSSES["Logistic"], 5).quadratic_part() is None


def test_sampled_gradients_have_the_same_mean():
    loss, larger = LOSSES["Logistic"], padded(LOSSES["Logistic"], 5)
    x, rows = point(), [np.array([0, 2]), np.array([1, 1])]
    np.testing.assert_array_equal(larger.gradient_of_rows(x, rows)[:, :3], loss.gradient_of_rows(x[:, :3], rows))
    one, other = (np.random.default_rng(5).spawn(2) for _ in range(2))
    np.testing.assert_array_equal(larger.sample_gradient(x, 3, one)[:, :3], loss.sample_gradient(x[:, :3], 3, other))
    assert larger.rows_per_agent.tolist() == loss.rows_per_agent.tolist()


def test_smoothness_over_a_set_sees_the_set_in_its_own_coordinates():
    loss = gs.losses.Poisson(abs(ROWS), np.arange(8.0), agents=2)
    box = gs.domains.Box(-1.0, 1.0)

    def problem(loss):
        return gs.Problem(loss, box).smoothness()

    np.testing.assert_allclose(problem(padded(loss, 5)), problem(loss))


def test_losses_of_one_kind_merge_and_come_apart():
    parts = [LOSSES["Logistic"].take([0]), gs.losses.Logistic(RNG.normal(size=(4, 2)), np.ones(4), agents=1)]
    stacked = gs.losses.stack([padded(part, 3) for part in [parts[0], parts[1], parts[1]]])
    assert len(stacked.parts) == 2
    assert without_padding(stacked.take([0])).d == 3
    assert without_padding(stacked.take([2])).d == 2
    assert padded(stacked, 4).take([2]).inner.d == 2
    x = RNG.normal(size=(3, 3))
    np.testing.assert_array_equal(stacked.gradient(x)[2, :2], parts[1].gradient(x[2:, :2])[0])


def test_user_code_is_checked_as_before():
    loss = gs.losses.Custom(gradient=lambda x: x, value=lambda x: (x**2).sum(axis=1) / 2, agents=1, dimension=2)
    assert padded(loss, 3).is_user_supplied
    assert gs.check_loss(padded(LOSSES["Logistic"], 5)).ok


def test_fewer_dimensions_are_refused():
    with pytest.raises(gs.InputError, match="d must be at least 3, that of the loss; got 2"):
        Padded(LOSSES["Linear"], 2)
