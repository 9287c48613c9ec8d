"""Values in double precision of data in single precision."""

import numpy as np
import pytest
import scipy.sparse as sp

import gradslide as gs
from gradslide.losses import rows as blocks

RNG = np.random.default_rng(8)
ROWS = (RNG.normal(size=(30, 4)) + 100).astype(np.float32)
SIGNS, CLASSES = np.where(RNG.random(30) < 0.5, 1.0, -1.0).astype(np.float32), RNG.integers(3, size=30)
WEIGHTS = RNG.uniform(0.5, 2.0, size=30).astype(np.float32)
ROOTS = (np.round(8 * RNG.normal(size=(3, 4, 4))) / 8).astype(np.float32)
SPLITS = np.split(np.arange(30), [3, 15])
MAKERS = {
    "logistic": lambda dtype: gs.losses.Logistic(ROWS.astype(dtype), SIGNS, splits=SPLITS),
    "weighted": lambda dtype: gs.losses.Logistic(ROWS.astype(dtype), SIGNS, splits=SPLITS, sample_weight=WEIGHTS),
    "sparse": lambda dtype: gs.losses.Huber(sp.csr_array(ROWS.astype(dtype)), SIGNS.astype(dtype), splits=SPLITS),
    "least squares": lambda dtype: gs.losses.LeastSquares(ROWS.astype(dtype), SIGNS.astype(dtype), splits=SPLITS),
    "hinge": lambda dtype: gs.losses.SmoothedHinge(ROWS.astype(dtype), SIGNS, splits=SPLITS, gamma=0.5),
    "softmax": lambda dtype: gs.losses.Softmax(ROWS.astype(dtype), CLASSES, splits=SPLITS),
    "sparse softmax": lambda dtype: gs.losses.Softmax(sp.csr_array(ROWS.astype(dtype)), CLASSES, splits=SPLITS),
    "poisson": lambda dtype: gs.losses.Poisson(ROWS.astype(dtype) / 128, CLASSES, splits=SPLITS),
    "quadratic": lambda dtype: gs.losses.Quadratic(
        (ROOTS @ ROOTS.swapaxes(1, 2)).astype(dtype), ROWS[:3].astype(dtype)
    ),
    "linear": lambda dtype: gs.losses.Linear(ROWS[:3].astype(dtype)),
    "stacked": lambda dtype: gs.losses.stack(
        [
            gs.losses.Logistic(ROWS[:9].astype(dtype), SIGNS[:9], agents=2),
            gs.losses.Huber(ROWS[9:].astype(dtype), SIGNS[9:].astype(dtype)),
        ]
    ),
}


@pytest.mark.parametrize("chunk", [None, 20], ids=["at once", "in chunks"])
@pytest.mark.parametrize("name", MAKERS)
def test_they_are_those_of_the_same_data_in_double_precision(name, chunk, monkeypatch):
    if chunk is not None:
        monkeypatch.setattr(blocks, "_CHUNK_ENTRIES", chunk)
    single, double = MAKERS[name](np.float32), MAKERS[name](np.float64)
    x = np.random.default_rng(1).normal(size=(single.m, single.d))
    found, expected = single.value_in_doubles(x), double.value(x)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    # In single precision that would be too much to ask.
    assert np.max(np.abs(single.value(x) - expected) / abs(expected)) > 1e-10
    np.testing.assert_array_equal(double.value_in_doubles(x), expected)


def test_user_code_in_single_precision_has_none():
    def zero(x):
        return 0 * x

    given = {"gradient": zero, "value": lambda x: x[:, 0], "agents": 2, "dimension": 1, "smoothness": 0.0}
    x = np.ones((2, 1))
    single, double = gs.losses.Custom(**given, dtype=np.float32), gs.losses.Custom(**given)
    assert single.value_in_doubles(x) is None
    assert double.value_in_doubles(x).tolist() == [1.0, 1.0]
    mixed = gs.losses.stack([single, gs.losses.Linear(np.ones((1, 1), dtype=np.float32))])
    assert mixed.value_in_doubles(np.ones((3, 1))) is None
