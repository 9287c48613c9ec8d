"""The loss of scaled columns: value, gradient and Hessian are those of its parts, and of each other."""

import numpy as np
import pytest

import gradslide as gs
from gradslide.fitting.penalized import PenalizedLoss

KEPT, RIDGE = np.array([1, 2, 4, 5, 7, 8]), np.array([0.5, 0.0, 2.0, 0.0, 1.0, 3.0])


def losses(kept=KEPT):
    rng = np.random.default_rng(0)
    base = gs.losses.Softmax(rng.normal(size=(30, 3)), rng.integers(0, 3, 30), 3, agents=4)
    return base, PenalizedLoss(base, kept, RIDGE if len(kept) == 6 else np.ones(9))


@pytest.mark.parametrize("kept", [KEPT, np.arange(9)])
def test_derivatives_agree(kept):
    _, loss = losses(kept)
    x, step = np.random.default_rng(1).normal(size=(2, 4, len(kept)))
    h = 1e-5
    values, gradients, hessians = loss.derivatives(x)
    np.testing.assert_allclose(values, loss.value(x))
    np.testing.assert_allclose(gradients, loss.gradient(x))
    np.testing.assert_allclose(hessians, loss.hessian(x))
    ahead, behind = x + h * step, x - h * step
    slopes = (loss.value(ahead) - loss.value(behind)) / (2 * h)
    np.testing.assert_allclose(slopes, np.sum(gradients * step, axis=1), rtol=1e-6)
    bends = (loss.gradient(ahead) - loss.gradient(behind)) / (2 * h)
    np.testing.assert_allclose(bends, np.einsum("mij,mj->mi", hessians, step), rtol=1e-5, atol=1e-7)
    again = loss.value_and_gradient(x)
    np.testing.assert_allclose(again[0], values)
    np.testing.assert_allclose(again[1], gradients)


def test_left_out_coordinates_are_zero():
    base, loss = losses()
    x = np.random.default_rng(2).normal(size=(4, 6))
    whole = np.zeros((4, 9))
    whole[:, KEPT] = x
    np.testing.assert_allclose(loss.value(x), base.value(whole) + x**2 @ RIDGE / 2)
    np.testing.assert_allclose(loss.gradient(x), base.gradient(whole)[:, KEPT] + RIDGE * x)
    values, gradients, hessians = loss.unpenalized(x)
    np.testing.assert_allclose(values, base.value(whole))
    np.testing.assert_allclose(gradients, base.gradient(whole)[:, KEPT])
    np.testing.assert_allclose(hessians, base.hessian(whole)[:, KEPT[:, None], KEPT])


def test_some_agents():
    _, loss = losses()
    x = np.random.default_rng(3).normal(size=(2, 6))
    part = loss.take([3, 1])
    both = np.zeros((4, 6))
    both[[3, 1]] = x
    np.testing.assert_allclose(part.value(x), loss.value(both)[[3, 1]])
    assert part.rows_per_agent.tolist() == loss.rows_per_agent[[3, 1]].tolist()


def test_smoothness_is_a_bound():
    _, loss = losses()
    x = np.random.default_rng(4).normal(size=(4, 6))
    largest = np.linalg.eigvalsh(loss.hessian(x))[:, -1]
    assert np.all(largest <= loss.smoothness())
