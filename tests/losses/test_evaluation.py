"""Values of single precision losses, and their changes, against the same data in double precision."""

import numpy as np
import pytest
import scipy.sparse as sp

import gradslide as gs

RNG = np.random.default_rng(2)
M, N, P = 4, 30, 6
# Scores are small differences of large terms.
ROWS = (RNG.normal(size=(M * N, P)) + 10.0).astype(np.float32)
SIGNS, CLASSES = np.where(RNG.random(M * N) < 0.5, 1.0, -1.0).astype(np.float32), RNG.integers(3, size=M * N)
SQUARE = np.einsum("irj,irk->ijk", *2 * [ROWS.reshape(M, N, P)]) / N
SPARSE = sp.csr_array(ROWS * (RNG.random(ROWS.shape) < 0.5))
WEIGHTS = RNG.uniform(0.5, 2.0, size=M * N).astype(np.float32)


def fast(loss):
    loss.compiled = True
    return loss


LOSSES = {
    "logistic": lambda to: gs.losses.Logistic(to(ROWS), SIGNS, agents=M),
    "weighted": lambda to: gs.losses.Logistic(to(ROWS), SIGNS, agents=M, sample_weight=WEIGHTS),
    "unequal": lambda to: gs.losses.Logistic(to(ROWS), SIGNS, splits=np.split(np.arange(M * N), [3, 40, 80])),
    "sparse": lambda to: gs.losses.Logistic(to(SPARSE), SIGNS, agents=M),
    "compiled": lambda to: fast(gs.losses.Logistic(to(ROWS), SIGNS, agents=M)),
    "compiled sparse": lambda to: fast(gs.losses.Logistic(to(SPARSE), SIGNS, agents=M)),
    "least squares": lambda to: gs.losses.LeastSquares(to(ROWS), SIGNS, agents=M),
    "huber": lambda to: gs.losses.Huber(to(ROWS), SIGNS, agents=M),
    "hinge": lambda to: gs.losses.SmoothedHinge(to(ROWS), SIGNS, agents=M),
    "softmax": lambda to: gs.losses.Softmax(to(ROWS), CLASSES, agents=M),
    "poisson": lambda to: gs.losses.Poisson(to(ROWS), CLASSES, agents=M),
    "quadratic": lambda to: gs.losses.Quadratic(to(SQUARE), to(ROWS[:M])),
    "linear": lambda to: gs.losses.Linear(to(ROWS[:M])),
    "stacked": lambda to: gs.losses.stack(
        [gs.losses.Logistic(to(ROWS[:60]), SIGNS[:60], agents=2), gs.losses.Quadratic(to(SQUARE[:2]), to(ROWS[:2]))]
    ),
}


# Compiling takes longer than all the rest.
NAMES = [pytest.param(name, marks=[pytest.mark.slow] * name.startswith("compiled")) for name in LOSSES]


def both(name):
    return (LOSSES[name](lambda data, t=t: data.astype(t)) for t in (np.float32, np.float64))


def near(x, length, seed=3):
    move = np.random.default_rng(seed).normal(size=x.shape)
    return x + (length * move / np.linalg.norm(move)).astype(np.float32)


@pytest.mark.parametrize("length", [1e-1, 1e-3, 1e-5])
@pytest.mark.parametrize("name", NAMES)
def test_what_a_change_is_beyond_the_linear_part(name, length):
    single, exact = both(name)
    assert single.has_evaluation
    assert not exact.has_evaluation
    x = np.random.default_rng(1).normal(size=(single.m, single.d)).astype(np.float32)
    there = near(x, length)
    found = single.evaluation(x)
    np.testing.assert_array_equal(found.gradient, single.gradient(x))
    change, error = found.change(there)
    assert change.dtype == error.dtype == found.value.dtype == np.float64
    d = (there - x).astype(np.float64)
    measured = change - np.sum(found.gradient.astype(np.float64) * d, axis=1)
    value, gradient = exact.value_and_gradient(x.astype(np.float64))
    true = exact.value(there.astype(np.float64)) - value - np.sum(gradient * d, axis=1)
    rounding = 1e-14 * np.abs(value)
    assert (np.abs(measured - true) <= error + rounding + 1e-5 * np.abs(true)).all()
    # A difference of values in single precision would be off by this share of the value.
    assert (error <= 1e-5 * length * (1 + np.linalg.norm(gradient, axis=1) + N * 30)).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_value_is_known_to_what_it_says(name):
    single, exact = both(name)
    x = np.random.default_rng(1).normal(size=(single.m, single.d)).astype(np.float32)
    found, true = single.evaluation(x), exact.value(x.astype(np.float64))
    np.testing.assert_allclose(found.value, single.value(x), rtol=1e-12)
    assert (np.abs(found.value - true) <= 4 * found.rounding() + 1e-13 * np.abs(true)).all()
    assert (found.rounding() <= 1e-5 * (1 + np.abs(true)) * 10).all()


def test_users_who_override_the_value_keep_it():
    class Shifted(gs.losses.Logistic):
        def value(self, x):
            return super().value(x) + 1

    assert not Shifted(ROWS, SIGNS, agents=M).has_evaluation
    custom = gs.losses.Custom(value=lambda x: x[:, 0], gradient=np.ones_like, agents=2, dimension=1, dtype=np.float32)
    assert not custom.has_evaluation


def test_products_are_not_rounded_to_single_precision():
    from gradslide._support.arrays import dot

    for columns in (100, 100_000):
        a, b = np.random.default_rng(0).normal(size=(2, 3, columns)).astype(np.float32)
        exact = np.sum(a.astype(np.float64) * b.astype(np.float64), axis=1)
        np.testing.assert_allclose(dot(a, b), exact, rtol=1e-12)
