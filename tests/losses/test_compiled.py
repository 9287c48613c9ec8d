"""Compiled losses: the numbers of the plain ones to rounding, and the same bits however the work is shared."""

import numpy as np
import pytest
import scipy.sparse as sp

from gradslide._support.errors import InputError
from gradslide.kernels import threads
from gradslide.losses import Huber, LeastSquares, Logistic, SmoothedHinge, Softmax, compiled, stack

P = 13
KINDS = {
    "logistic": Logistic,
    "squares": LeastSquares,
    "huber": lambda *a, **k: Huber(*a, delta=0.7, **k),
    "hinge": lambda *a, **k: SmoothedHinge(*a, gamma=0.6, **k),
}
EQUAL = [12] * 6
RAGGED = [1, 40, 3, 8, 2, 17, 9, 1, 30, 5, 16]  # more sizes than plain code does by dense runs


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Blocks, segments and shares so small that all of them occur."""
    monkeypatch.setattr(compiled, "_BLOCK_ENTRIES", 8 * P)
    monkeypatch.setattr(compiled, "_SPARSE_BLOCK", 8)
    monkeypatch.setattr(compiled, "_SEGMENT_ENTRIES", 100)
    monkeypatch.setattr(compiled, "_ENTRIES_PER_THREAD", 50)


def make(kind="logistic", sizes=RAGGED, *, sparse=False, dtype=np.float64, weighted=False, **more):
    """A plain loss."""
    rng = np.random.default_rng(0)
    n = sum(sizes)
    features = rng.standard_normal((n, P)).astype(dtype)
    if sparse:
        features = sp.csr_array(features * (rng.random((n, P)) < 0.4))
    targets = rng.choice([-1, 1], n) if kind in ("logistic", "hinge") else rng.standard_normal(n)
    if weighted:
        more["sample_weight"] = rng.uniform(0.2, 2.0, n)
    rows = np.split(np.arange(n), np.cumsum(sizes)[:-1])
    return KINDS[kind](features, targets, splits=rows, **more)


def compile_(loss):
    """The same by compiled code."""
    other = loss.take(range(loss.m)) if loss.m == 1 else stack([loss.take([i]) for i in range(loss.m)])
    other.compiled = True
    return other


def pair(*given, **more):
    return make(*given, **more), compile_(make(*given, **more))


def point(loss, scale=1.0):
    return scale * np.random.default_rng(1).standard_normal((loss.m, loss.d)).astype(loss.dtype)


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("sizes", [EQUAL, RAGGED])
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_is_plain_to_rounding(kind, sizes, sparse, dtype):
    tolerance = {"rtol": 1e-13, "atol": 1e-13} if dtype == np.float64 else {"rtol": 2e-5, "atol": 1e-5}
    for more in ({}, {"weighted": True}, {"weighted": True, "reduction": "mean"}):
        plain, fast = pair(kind, sizes, sparse=sparse, dtype=dtype, **more)
        assert (plain.compiled, fast.compiled) == (False, True)
        x = point(plain)
        value, gradient = fast.value_and_gradient(x)
        assert (value.dtype, gradient.dtype) == (np.float64, dtype)
        np.testing.assert_allclose(value, plain.value(x), **tolerance)
        np.testing.assert_allclose(gradient, plain.gradient(x), **tolerance)
        np.testing.assert_array_equal(fast.value(x), value)
        np.testing.assert_array_equal(fast.gradient(x), gradient)


@pytest.mark.parametrize("scale", [1e4, 1e15])
@pytest.mark.parametrize("kind", KINDS)
def test_extreme_scores_do_not_overflow(kind, scale):
    for dtype in (np.float32, np.float64):
        plain, fast = pair(kind, dtype=dtype)
        for sign in (-1, 1):
            x = sign * point(plain, scale)
            value, gradient = fast.value_and_gradient(x)
            assert np.isfinite(value).all()
            assert np.isfinite(gradient).all()
            np.testing.assert_allclose(value, plain.value(x), rtol=1e-4, atol=1e-30)
            np.testing.assert_allclose(gradient, plain.gradient(x), rtol=1e-4, atol=1e-2)


def test_the_logistic_function_is_right_to_the_last_digits():
    margins = np.concatenate([np.linspace(-60, 60, 4001), [-1e5, -700.5, -1e-300, 0.0, 1e-300, 690.0]])
    loss = Logistic(np.ones((1, 1)), [1])
    loss.compiled = True
    found = np.array([loss.value_and_gradient([[z]]) for z in margins], dtype=object)
    value, slope = (np.array([float(pair[k].item()) for pair in found]) for k in (0, 1))
    np.testing.assert_allclose(value, np.logaddexp(0, -margins), rtol=1e-15 * 4)
    np.testing.assert_allclose(slope, -1 / (1 + np.exp(np.minimum(margins, 700))), rtol=1e-15 * 4)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_finite_in_x_shows_and_stays_with_its_agent(kind, bad):
    for sparse in (False, True):
        plain, fast = pair(kind, sparse=sparse)
        x = point(plain)
        good = fast.value_and_gradient(x)
        x[1, 2] = bad
        with np.errstate(all="ignore"):
            expected, found = plain.value_and_gradient(x), fast.value_and_gradient(x)
        others = np.arange(plain.m) != 1
        for before, one, two in zip(good, found, expected, strict=True):
            np.testing.assert_array_equal(one[others], before[others])
            np.testing.assert_allclose(one[1], two[1], rtol=1e-12, atol=1e-12)
            assert not np.array_equal(one[1], before[1])


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_agents_bits_do_not_depend_on_its_neighbours_or_on_threads(sparse, dtype, monkeypatch):
    used = []
    pool = threads._pool
    monkeypatch.setattr(threads, "_pool", lambda process, workers: used.append(workers) or pool(process, workers))
    fast = compile_(make(sparse=sparse, dtype=dtype, weighted=True))
    x = point(fast)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    value, gradient = fast.value_and_gradient(x)
    assert used == []
    for count in ("2", "3", "7"):
        monkeypatch.setenv("OMP_NUM_THREADS", count)
        again = fast.value_and_gradient(x)
        np.testing.assert_array_equal(again[0], value)
        np.testing.assert_array_equal(again[1], gradient)
        assert used.pop() == int(count) - 1
    for agents in ([1], [5, 1], [0, 2, 3, 4], [10, 8, 1, 0]):
        part = fast.take(agents)
        assert part.compiled
        np.testing.assert_array_equal(part.value(x[agents]), value[agents])
        np.testing.assert_array_equal(part.gradient(x[agents]), gradient[agents])


def test_one_large_agent_is_shared_between_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    plain, fast = pair(sizes=[100])
    assert len(fast._blocks.compiled._shares()) == 3
    np.testing.assert_allclose(fast.gradient(point(fast)), plain.gradient(point(fast)), rtol=1e-12)


@pytest.mark.parametrize(("given", "expected"), [("3", 3), ("2,4", 2), ("0", None), ("many", None), ("", None)])
def test_threads_are_those_of_openmp_or_all_cores(given, expected, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    monkeypatch.setattr(threads, "usable_cores", lambda: 5)
    assert threads.thread_count() == (expected or 5)


def test_large_losses_are_compiled_and_their_parts_with_them(monkeypatch):
    entries = sum(RAGGED) * P
    for limit, expected in ((entries, True), (entries + 1, False)):
        monkeypatch.setattr(compiled, "_LEAST_ENTRIES", limit)
        loss = make()
        assert loss.compiled is expected
        assert loss.take([1]).compiled is expected
        assert stack([loss.take([0]), loss.take([1, 2])]).compiled is expected
    parts = [make().take([0]), make().take(range(1, 11))]
    monkeypatch.setattr(compiled, "_LEAST_ENTRIES", entries)
    assert stack(parts).compiled
    assert not make(sparse=True).compiled  # what is not stored does not count
    assert make("squares", sparse=False).compiled


def test_another_phi_is_never_taken_for_the_one_compiled(monkeypatch):
    class Twice(Logistic):
        def row_values(self, scores, targets):
            return 2 * super().row_values(scores, targets)

    class Timed(Logistic):
        def gradient(self, x):
            return super().gradient(x)

    monkeypatch.setattr(compiled, "_LEAST_ENTRIES", 1)
    features, labels = np.ones((4, 2)), [1, -1, 1, -1]
    assert Timed(features, labels).compiled
    for loss in (Twice(features, labels), Softmax(features, [0, 1, 2, 0])):
        assert not loss.compiled
        with pytest.raises(InputError, match="one score per row"):
            loss.compiled = True


@pytest.mark.parametrize("sparse", [False, True])
def test_neither_data_nor_indices_are_copied(sparse):
    _, fast = pair(sparse=sparse)
    fast.value_and_gradient(point(fast))
    features = fast._blocks.features
    assert np.shares_memory(fast._blocks.compiled._data, features.data if sparse else features)
    assert "_map" not in vars(fast._blocks)
    if sparse:
        assert np.shares_memory(fast._blocks.compiled._indices, features.indices)


def test_no_layout_makes_the_compiler_start_anew():
    from gradslide.kernels.rows_pass import rows_pass

    features = np.random.default_rng(0).standard_normal((20, P))
    x = np.asfortranarray(np.random.default_rng(1).standard_normal((2, P)))
    expected = None
    for writeable in (True, False):
        features.flags.writeable = x.flags.writeable = writeable
        loss = Logistic(features, np.ones(20), agents=2)
        loss.compiled = True
        gradient = loss.gradient(x)
        expected = (gradient, len(rows_pass.signatures)) if expected is None else expected
        np.testing.assert_array_equal(gradient, expected[0])
        assert len(rows_pass.signatures) == expected[1]
