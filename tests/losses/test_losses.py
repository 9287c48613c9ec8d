"""Losses with rows, and Quadratic: against naive twins written from the definitions, one agent at a time."""

import lzma

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import KINDS, LAYOUTS, SMOOTH, M, P, make_data, make_loss, make_quadratic, point
from real_data import DATA

import gradslide as gs
from gradslide._support.errors import InputError
from gradslide.losses import Huber, LeastSquares, Logistic, Quadratic, SmoothedHinge, Softmax, stack
from gradslide.losses.rows import RowBlocks


def naive_value(kind, features, targets, rows, factors, x):
    phi = KINDS[kind][2]
    values = []
    for x_i, own, w in zip(x, rows, factors, strict=True):
        X = x_i.reshape(-1, P)
        values.append(sum(w_r * phi(X @ features[r], targets[r]) for w_r, r in zip(w, own, strict=True)))
    return np.array(values)


def finite_differences(value, x, h=1e-6):
    gradient = np.empty_like(x)
    for j in range(x.shape[1]):
        step = np.zeros_like(x)
        step[:, j] = h
        gradient[:, j] = (value(x + step) - value(x - step)) / (2 * h)
    return gradient


def streams(m, seed=0):
    return np.random.default_rng(seed).spawn(m)


# ---- values and gradients


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_value_and_gradient_match_the_definition(kind, layout, weighted, reduction):
    loss, *problem = make_loss(kind, layout, weighted=weighted, reduction=reduction)
    x = point(loss)
    value, gradient = loss.value(x), loss.gradient(x)
    assert value.shape == (loss.m,)
    assert gradient.shape == (loss.m, loss.d)
    np.testing.assert_allclose(value, naive_value(kind, *problem, x), rtol=1e-12)
    np.testing.assert_allclose(gradient, finite_differences(loss.value, x), atol=2e-7)
    both = loss.value_and_gradient(x)
    np.testing.assert_array_equal(both[0], value)
    np.testing.assert_array_equal(both[1], gradient)
    np.testing.assert_array_equal(loss.rows_per_agent, [len(own) for own in problem[2]])


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=14),
    p=st.integers(1, 4),
    outputs=st.integers(1, 3),
    sparse=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_row_blocks_are_a_linear_map_and_its_adjoint(sizes, p, outputs, sparse, seed):
    rng = np.random.default_rng(seed)
    n, m = sum(sizes), len(sizes)
    features = rng.standard_normal((n, p)) * (rng.random((n, p)) < 0.7)
    blocks = RowBlocks(sp.csr_array(features) if sparse else features, np.array(sizes))
    x, r = rng.standard_normal((m, p, outputs)), rng.standard_normal((n, outputs))
    owner = np.repeat(np.arange(m), sizes)
    expected = np.stack([features[row] @ x[owner[row]] for row in range(n)])
    np.testing.assert_allclose(blocks.operator.apply(x), expected, atol=1e-12)
    assert np.vdot(blocks.operator.apply(x), r) == pytest.approx(np.vdot(x, blocks.operator.pull(r)), abs=1e-10)
    sums = np.array([r[owner == i, 0].sum() for i in range(m)])
    np.testing.assert_allclose(blocks.operator.sums(r[:, 0]), sums, atol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_float32_stays_float32_and_agrees(kind, layout):
    single, *_ = make_loss(kind, layout, weighted=True, reduction="mean", dtype=np.float32)
    double, *_ = make_loss(kind, layout, weighted=True, reduction="mean")
    x = point(single)
    draws = np.zeros((single.m, 2), dtype=int)
    for name, arguments in (("value", ()), ("gradient", ()), ("gradient_of_rows", (draws,))):
        result = getattr(single, name)(x, *arguments)
        # Values are sums in double precision.
        assert result.dtype == (np.float64 if name == "value" else np.float32)
        np.testing.assert_allclose(result, getattr(double, name)(x, *arguments), rtol=2e-4, atol=2e-6)
    assert single.sample_gradient(x, 2, streams(single.m)).dtype == np.float32
    assert single.value_and_gradient(x)[1].dtype == np.float32
    if kind in SMOOTH:
        np.testing.assert_allclose(single.smoothness(), double.smoothness(), rtol=1e-5)


def test_scalars_of_numpy_do_not_raise_the_precision():
    features, targets, _ = make_data("huber")
    loss = Huber(features.astype(np.float32), targets, delta=np.float64(0.5))
    assert loss.gradient(point(loss)).dtype == np.float32


def test_integers_become_float64():
    loss = LeastSquares(np.arange(6).reshape(3, 2), [1, 2, 3])
    assert loss.dtype == np.float64
    assert loss.gradient(np.ones((1, 2), dtype=int)).dtype == np.float64


@pytest.mark.parametrize("kind", SMOOTH)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extreme_scores_neither_overflow_nor_warn(kind, dtype):
    features, targets, _ = make_data(kind)
    loss = KINDS[kind][0](features.astype(dtype), targets, agents=M)
    scale = 1e15 if dtype == np.float32 else 1e30
    for sign in (-1, 1):
        value, gradient = loss.value_and_gradient(sign * point(loss, scale=scale))
        assert np.isfinite(value).all()
        assert np.isfinite(gradient).all()


def test_logistic_keeps_small_slopes_of_well_classified_rows():
    loss = Logistic([[1.0]], [1])
    value, gradient = loss.value_and_gradient([[50.0]])
    assert value[0] == pytest.approx(np.exp(-50), rel=1e-12)
    assert gradient[0, 0] == pytest.approx(-np.exp(-50), rel=1e-12)


def test_labels_zero_and_one_mean_minus_one_and_one():
    features, labels, _ = make_data("logistic")
    x = np.ones((1, P))
    for loss in (Logistic, SmoothedHinge):
        assert loss(features, (labels + 1) // 2).value(x) == loss(features, labels).value(x)
        assert loss(features, labels > 0).value(x) == loss(features, labels).value(x)


def test_softmax_of_two_classes_is_logistic():
    features, labels, _ = make_data("logistic")
    logistic, softmax = Logistic(features, labels, agents=M), Softmax(features, labels > 0, agents=M)
    assert (softmax.classes, softmax.d) == (2, 2 * P)
    x = point(logistic)
    flattened = np.concatenate([np.zeros_like(x), x], axis=1)
    np.testing.assert_allclose(softmax.value(flattened), logistic.value(x), rtol=1e-12)
    np.testing.assert_allclose(softmax.gradient(flattened)[:, P:], logistic.gradient(x), rtol=1e-9)


def test_masks_are_row_numbers():
    features, labels, _ = make_data("logistic")
    masks = [labels > 0, labels < 0]
    by_mask = Logistic(features, labels, splits=masks)
    by_number = Logistic(features, labels, splits=[np.flatnonzero(mask) for mask in masks])
    x = point(by_mask)
    np.testing.assert_array_equal(by_mask.value(x), by_number.value(x))


def test_a_row_counts_once_for_each_of_its_owners_where_that_is_allowed():
    features, labels, _ = make_data("logistic")
    overlapping = Logistic(features, labels, splits=[range(5), range(3, 8)], allow_overlap=True)
    rows = [0, 1, 2, 3, 4, 3, 4, 5, 6, 7]
    copied = Logistic(features[rows], labels[rows], agents=2)
    x = point(copied)
    np.testing.assert_array_equal(overlapping.value(x), copied.value(x))


@pytest.mark.parametrize("keywords", [{"agents": 5}, {"agents": 4}, {"splits": [range(10), range(10, 20)]}])
def test_contiguous_dense_rows_are_not_copied(keywords):
    features = np.random.default_rng(0).standard_normal((20, 3))
    loss = LeastSquares(features, np.zeros(20), **keywords)
    assert np.shares_memory(loss._blocks.features, features)
    assert np.shares_memory(loss.take([1])._blocks.features, features)


def test_sparse_features_stay_sparse_and_the_callers_data_is_left_alone():
    rows = sp.coo_array(([1.0, 2.0, 3.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    duplicated = sp.csr_array(([1.0, 2.0, 3.0], [1, 1, 0], [0, 2, 3]), shape=(2, 2))
    for features in (rows, duplicated):
        loss = LeastSquares(features, [0.0, 0.0])
        np.testing.assert_allclose(loss.smoothness(1), 9.0)
        np.testing.assert_allclose(loss.smoothness(), 9.0)
        assert sp.issparse(loss._blocks.features)
    assert duplicated.nnz == 3


# ---- smoothness


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", SMOOTH)
def test_smoothness_is_the_largest_eigenvalue_of_the_hessian_bound(kind, layout, weighted):
    loss, features, _, rows, factors = make_loss(kind, layout, weighted=weighted)
    curvature = KINDS[kind][3]
    grams = [features[own].T @ (w[:, None] * features[own]) for own, w in zip(rows, factors, strict=True)]
    spectral = [curvature[2] * np.linalg.eigvalsh(gram)[-1] for gram in grams]
    entrywise = [curvature[1] * np.abs(gram).max() for gram in grams]
    np.testing.assert_allclose(loss.smoothness(), spectral, rtol=1e-12)
    np.testing.assert_allclose(loss.smoothness(norm=1), entrywise, rtol=1e-12)
    assert loss.smoothness() is loss.smoothness(norm=2)
    with pytest.raises(ValueError, match="read-only"):
        loss.smoothness()[0] = 0


def lipschitz_ratios(loss, norm, pairs=200):
    """Largest |grad(x) - grad(y)| / |x - y| met, relative to the constant, over all agents."""
    rng = np.random.default_rng(2)
    dual = np.inf if norm == 1 else 2
    worst = 0.0
    for _ in range(pairs):
        x = rng.standard_normal((loss.m, loss.d)) * 0.3
        h = rng.standard_normal((loss.m, loss.d)) * 10.0 ** rng.uniform(-3, 1)
        if norm == 1 and rng.random() < 0.7:  # the steepest directions of the l1 norm are the axes
            h *= np.eye(loss.d)[rng.integers(loss.d, size=loss.m)]
        change = np.linalg.norm(loss.gradient(x + h) - loss.gradient(x), ord=dual, axis=1)
        ratio = change / np.linalg.norm(h, ord=norm, axis=1) / loss.smoothness(norm)
        worst = max(worst, ratio.max())
    return worst


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("kind", SMOOTH)
def test_smoothness_bounds_the_change_of_the_gradient(kind, norm):
    loss, *_ = make_loss(kind, "ragged", weighted=True)
    worst = lipschitz_ratios(loss, norm)
    assert worst <= 1 + 1e-9
    assert worst > 0.5  # a constant twice too large would be a loose bound


@pytest.mark.parametrize("norm", [1, 2])
def test_smoothness_of_quadratic(norm):
    Q, c = make_quadratic()
    loss = Quadratic(Q, c)
    expected = np.linalg.eigvalsh(Q)[:, -1] if norm == 2 else np.abs(Q).max(axis=(1, 2))
    np.testing.assert_allclose(loss.smoothness(norm), expected, rtol=1e-12)
    assert 0.5 < lipschitz_ratios(loss, norm) <= 1 + 1e-9


@pytest.mark.covering
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("shape", [(510, 620), (620, 510)])
def test_large_blocks_use_lanczos_and_are_never_too_small(shape, sparse):
    features = np.random.default_rng(0).standard_normal(shape)
    features[np.abs(features) < 1.5] = 0
    exact = np.linalg.norm(features, ord=2) ** 2
    loss = LeastSquares(sp.csr_array(features) if sparse else features, np.zeros(shape[0]))
    assert exact * (1 - 1e-13) <= loss.smoothness()[0] <= exact * (1 + 1e-8)


def test_features_that_are_all_zero_have_smoothness_zero():
    for features in (np.zeros((3, 2)), sp.csr_array((3, 2)), np.zeros((502, 501))):
        loss = LeastSquares(features, np.zeros(features.shape[0]))
        assert loss.smoothness()[0] == loss.smoothness(1)[0] == 0


# ---- sampled gradients


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_sampled_gradient_is_unbiased(kind, layout):
    loss, *_ = make_loss(kind, layout, weighted=True, reduction="mean")
    x = point(loss)
    for i in range(loss.m):  # exact expectation: every row is equally likely
        alone = loss.take([i])
        estimates = [alone.gradient_of_rows(x[[i]], [[row]]) for row in range(loss.rows_per_agent[i])]
        np.testing.assert_allclose(np.mean(estimates, axis=0), alone.gradient(x[[i]]), atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_of_several_rows_is_the_mean_over_single_ones(kind):
    loss, *_ = make_loss(kind, "splits", weighted=True)
    x = point(loss)
    rows = np.random.default_rng(3).integers(loss.rows_per_agent[:, None], size=(loss.m, 5))
    singly = np.mean([loss.gradient_of_rows(x, rows[:, [k]]) for k in range(5)], axis=0)
    np.testing.assert_allclose(loss.gradient_of_rows(x, rows), singly, atol=1e-12)


def test_every_row_can_be_drawn_and_no_other():
    loss = LeastSquares(np.eye(5), -np.ones(5), splits=[[0, 1], [2, 3, 4]])
    drawn = loss.sample_gradient(np.zeros((2, 5)), 1000, streams(2)) != 0
    np.testing.assert_array_equal(drawn, [[True, True, False, False, False], [False, False, True, True, True]])


@pytest.mark.parametrize("layout", ["two sizes", "sparse"])
def test_an_agents_draw_depends_on_its_own_stream_only(layout):
    loss, *_ = make_loss("logistic", layout)
    x = point(loss)
    full = loss.sample_gradient(x, 3, streams(M))
    np.testing.assert_array_equal(full, loss.sample_gradient(x, 3, streams(M)))
    np.testing.assert_allclose(loss.take([2]).sample_gradient(x[[2]], 3, streams(M)[2:3]), full[[2]], atol=1e-14)
    others = streams(M, seed=9)
    others[2] = streams(M)[2]
    mixed = loss.sample_gradient(x, 3, others)
    np.testing.assert_allclose(mixed[2], full[2], atol=1e-14)
    assert not np.allclose(mixed, full)


# ---- Quadratic


def test_quadratic_matches_the_definition():
    Q, c = make_quadratic()
    loss = Quadratic(Q, c)
    x = point(loss)
    expected = [0.5 * x_i @ Q_i @ x_i + c_i @ x_i for x_i, Q_i, c_i in zip(x, Q, c, strict=True)]
    np.testing.assert_allclose(loss.value(x), expected, rtol=1e-12)
    np.testing.assert_allclose(loss.gradient(x), finite_differences(loss.value, x), atol=1e-6)
    value, gradient = loss.value_and_gradient(x)
    np.testing.assert_array_equal(value, loss.value(x))
    np.testing.assert_array_equal(gradient, loss.gradient(x))


def test_quadratic_of_one_agent_and_in_float32():
    Q, c = make_quadratic(m=1)
    one = Quadratic(Q[0].astype(np.float32), c[0])
    x = point(one)
    assert (one.m, one.d) == (1, 4)
    assert (one.value(x).dtype, one.gradient(x).dtype) == (np.float64, np.float32)
    np.testing.assert_allclose(one.gradient(x), Quadratic(Q, c).gradient(x), rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_singular_and_zero_matrices_are_convex(dtype):
    Q, c = make_quadratic(d=30, rank=2)
    assert (Quadratic(Q.astype(dtype), c).smoothness() > 0).all()
    assert Quadratic(np.zeros((2, 2), dtype), np.ones(2)).smoothness()[0] == 0


# ---- take and stack


@pytest.mark.parametrize("chosen", [[2], [1, 2], [3, 0, 3], [0, 1, 2, 3]])
@pytest.mark.parametrize("kind", [*KINDS, "sparse", "quadratic"])
def test_take_restricts_to_agents_in_order(kind, chosen):
    if kind == "quadratic":
        loss = Quadratic(*make_quadratic(m=M))
    else:
        loss, *_ = make_loss(
            "logistic" if kind == "sparse" else kind,
            "sparse" if kind == "sparse" else "splits",
            weighted=True,
        )
    x = point(loss)
    part = loss.take(chosen)
    assert (part.m, part.d, part.dtype) == (len(chosen), loss.d, loss.dtype)
    np.testing.assert_allclose(part.value(x[chosen]), loss.value(x)[chosen], rtol=1e-12)
    np.testing.assert_allclose(part.gradient(x[chosen]), loss.gradient(x)[chosen], atol=1e-12)
    for norm in () if kind == "poisson" else (1, 2):
        np.testing.assert_allclose(part.smoothness(norm), loss.smoothness(norm)[chosen], rtol=1e-12)
        np.testing.assert_array_equal(loss.take(chosen).smoothness(norm), loss.smoothness(norm)[chosen])


@pytest.mark.parametrize("agents", [[], [4], [-1], [0.5], 1, [[0]]])
def test_take_refuses_agents_that_are_not_there(agents):
    loss, *_ = make_loss("logistic")
    with pytest.raises(InputError, match="agents to take"):
        loss.take(agents)


@pytest.mark.parametrize("kind", [*KINDS, "quadratic"])
def test_stack_merges_alike_losses_into_one(kind):
    if kind == "quadratic":
        loss = Quadratic(*make_quadratic(m=M))
    else:
        loss, *_ = make_loss(kind, "splits", weighted=True)
    merged = stack([loss.take([0]), loss.take([1, 2]), loss.take([3])])
    assert type(merged) is type(loss)
    x = point(loss)
    np.testing.assert_allclose(merged.value(x), loss.value(x), rtol=1e-12)
    np.testing.assert_allclose(merged.gradient(x), loss.gradient(x), atol=1e-12)
    if kind != "poisson":
        np.testing.assert_allclose(merged.smoothness(), loss.smoothness(), rtol=1e-12)


def test_stack_merges_different_weights_and_reductions():
    features, labels, weights = make_data("logistic")
    parts = [
        Logistic(sp.csr_array(features[:9]), labels[:9]),
        Logistic(sp.csr_array(features[9:]), labels[9:], sample_weight=weights[9:], reduction="mean"),
    ]
    merged = stack(parts)
    x = point(merged)
    assert isinstance(merged, Logistic)
    np.testing.assert_allclose(merged.value(x), [parts[0].value(x[:1])[0], parts[1].value(x[1:])[0]], rtol=1e-12)


def mixed_parts():
    features, targets, _ = make_data("huber")
    return [
        Huber(features, targets, delta=0.5, agents=2),
        Huber(features, targets, delta=1.0),
        LeastSquares(sp.csr_array(features), targets, agents=2),
        Quadratic(*make_quadratic(m=2, d=P)),
    ]


def test_stack_of_unlike_losses_evaluates_each():
    parts = mixed_parts()
    mixed = stack(parts)
    assert mixed.m == 7
    x = point(mixed)
    pieces = np.split(x, [2, 3, 5])
    for name in ("value", "gradient"):
        expected = np.concatenate([getattr(part, name)(own) for part, own in zip(parts, pieces, strict=True)])
        np.testing.assert_array_equal(getattr(mixed, name)(x), expected)
    value, gradient = mixed.value_and_gradient(x)
    np.testing.assert_array_equal(value, mixed.value(x))
    np.testing.assert_array_equal(gradient, mixed.gradient(x))
    np.testing.assert_array_equal(mixed.smoothness(), np.concatenate([part.smoothness() for part in parts]))

    chosen = [6, 0, 1, 3, 4, 2]
    part = mixed.take(chosen)
    np.testing.assert_allclose(part.gradient(x[chosen]), mixed.gradient(x)[chosen], atol=1e-12)
    np.testing.assert_allclose(mixed.take([5, 6]).smoothness(), mixed.smoothness()[5:])
    np.testing.assert_allclose(stack([part, mixed]).value(np.r_[x[chosen], x])[6:], mixed.value(x))


def test_stacked_losses_sample_from_each_agents_stream():
    rows = stack(mixed_parts()[:3])
    x = point(rows)
    full = rows.sample_gradient(x, 2, streams(5))
    alone = mixed_parts()[2].sample_gradient(x[3:], 2, streams(5)[3:])
    np.testing.assert_array_equal(full[3:], alone)


def test_take_from_a_stack_keeps_each_parts_own_constants():
    parts = mixed_parts()
    mixed = stack(parts)
    quadratic = mixed.take([5, 6])
    np.testing.assert_allclose(quadratic.smoothness(2), parts[3].smoothness(2))
    np.testing.assert_allclose(quadratic.smoothness(1), parts[3].smoothness(1))


def test_stack_refuses_nothing_and_unequal_dimensions():
    with pytest.raises(InputError, match="at least one loss"):
        stack([])
    with pytest.raises(InputError, match=r"same dimension d; got \[3, 4\]"):
        stack([LeastSquares(np.ones((2, 3)), [0, 1]), LeastSquares(np.ones((2, 4)), [0, 1])])


# ---- bad input

A, Y = np.arange(12.0).reshape(4, 3), np.array([1, -1, 1, -1])
WITH_NAN = np.where(A == 5, np.nan, A)

BAD_ROWS = {
    "features 1-D": ({"features": A[0]}, "features must be 2-D"),
    "no columns": ({"features": np.ones((4, 0))}, "at least one column"),
    "features text": ({"features": [["a"], ["b"]]}, "real numbers"),
    "features complex": ({"features": A * 1j}, "real numbers"),
    "sparse complex": ({"features": sp.csr_array(A * 1j)}, "real numbers"),
    "NaN": ({"features": WITH_NAN}, "features must be finite; got 1 NaN"),
    "NaN, where": ({"features": WITH_NAN}, "1 NaN or infinite entries in 1 of 4 rows, column 2; drop those rows"),
    "sparse NaN": ({"features": sp.csr_array(WITH_NAN)}, "finite; got 1 NaN .* in 1 of 4 rows, column 2; drop"),
    "many NaN": ({"features": np.full((4, 9), np.nan)}, "36 NaN .* 4 of 4 rows, columns 0, 1, 2, 3, 4 and 4 more;"),
    "text in a column": (
        {"features": np.array([[1, "red"]] * 4, dtype=object)},
        "real numbers; got an array of type object with text in column 1; encode them",
    ),
    "text in all columns": ({"features": [["a", "1"], ["b", "2"]]}, "with text in column 0; encode them as numbers"),
    "numbers as text": ({"features": [["1"], ["2"]]}, "an array of type <U1; convert it to float"),
    "labels text": ({"labels": ["no", "yes", "no", "yes"]}, "labels must hold real numbers.*map the two classes"),
    "infinite": ({"features": np.where(A == 5, np.inf, A)}, "finite"),
    "few labels": ({"labels": Y[:3]}, "labels must be 1-D with one entry per row of features, 4 in all"),
    "labels 2-D": ({"labels": Y[:, None]}, "labels must be 1-D"),
    "labels sparse": ({"labels": sp.csr_array(Y[None])}, "labels must be dense"),
    "labels 1, 2": ({"labels": [1, 2, 1, 2]}, r"labels must be in \{-1, 1\} or \{0, 1\}; got \[1, 2\]"),
    "labels -1, 0, 1": ({"labels": [-1, 0, 1, 1]}, "labels must be in"),
    "labels NaN": ({"labels": [1, np.nan, 1, -1]}, "labels must be finite"),
    "no agents": ({"agents": 0}, "agents must be an integer of at least 1"),
    "half an agent": ({"agents": 1.5}, "agents must be an integer"),
    "more agents than rows": ({"agents": 5}, "at least one row per agent; got 5 agents for 4 rows"),
    "no rows": ({"features": A[:0], "labels": Y[:0]}, "at least one row per agent"),
    "agents and splits": ({"agents": 1, "splits": [[0]]}, "not both"),
    "no splits": ({"splits": []}, "at least one agent"),
    "empty split": ({"splits": [[0], []]}, "an empty split for agent 1"),
    "empty mask": ({"splits": [np.zeros(4, bool)]}, "an empty split for agent 0"),
    "short mask": ({"splits": [[True, False]]}, "mask in splits"),
    "split too far": ({"splits": [[0, 4]]}, r"lie in 0..3; got \[4\] for agent 0"),
    "split negative": ({"splits": [[-1]]}, "lie in 0..3"),
    "split floats": ({"splits": [[0.0, 1.0]]}, "row numbers or masks"),
    "overlapping splits": (
        {"splits": [[0], [1, 3], [2, 3]]},
        "got row 3 in the splits of agents 1 and 2; .*overlap=True",
    ),
    "overlapping masks": ({"splits": [Y > 0, A[:, 0] < 5]}, "row 0 in the splits of agents 0 and 1"),
    "a row twice": ({"splits": [[0, 2, 0], [1]]}, "row 0 twice in the split of agent 0"),
    "negative weight": ({"sample_weight": [1, 1, -1, 1]}, "sample_weight must not be negative; got -1"),
    "few weights": ({"sample_weight": [1.0]}, "sample_weight must be 1-D"),
    "weight NaN": ({"sample_weight": [1, 1, np.nan, 1]}, "sample_weight must be finite"),
    "weightless mean": (
        {"sample_weight": [1, 1, 0, 0], "agents": 2, "reduction": "mean"},
        "total weight 0 at agent 1",
    ),
    "reduction": ({"reduction": "means"}, "did you mean 'mean'"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_row_losses_refuse_bad_input(case):
    keywords, message = BAD_ROWS[case]
    keywords = {"features": A, "labels": Y} | keywords
    features, labels = keywords.pop("features"), keywords.pop("labels")
    for loss in (Logistic, SmoothedHinge):
        with pytest.raises(InputError, match=message):
            loss(features, labels, **keywords)


FRAME = {"age": [50.0, 61.0, 47.0, 58.0], "dose": [1, 2, 3, 4], "treated": [True, False, True, True]}


def frame(**columns):
    return pytest.importorskip("pandas").DataFrame({**FRAME, **columns})


def test_a_frame_of_numbers_is_an_array():
    pandas = pytest.importorskip("pandas")
    expected = np.column_stack(list(FRAME.values())).astype(float)
    for table in (frame(), frame(dose=pandas.array([1, 2, 3, 4], dtype="Int64")), frame().astype(float)):
        np.testing.assert_array_equal(Logistic(table, Y)._blocks.features, expected)
    assert Logistic(frame().astype(np.float32), Y).dtype == np.float32


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"age": [50.0, np.nan, np.inf, 58.0]},
            "2 NaN or infinite entries in 2 of 4 rows, column 'age'; drop",
        ),
        ({"dose": [1, None, 3, 4], "age": [1, np.nan, 3, 4]}, "2 NaN .* in 1 of 4 rows, columns 'age', 'dose'; drop"),
        (
            {"site": ["a", "b", "a", "b"]},
            "real numbers; got column 'site' of type .*; encode them as numbers",
        ),
        ({"site": ["a", "b", "a", "b"], "note": [{}, 1, 2, 3]}, "columns 'site', 'note' of type .*get_dummies"),
        ({"day": np.array(["2026-01-01"] * 4, dtype="datetime64[s]")}, "column 'day' of type datetime64"),
    ],
)
def test_what_is_wrong_in_a_frame_is_named_by_its_columns(columns, message):
    with pytest.raises(InputError, match=message):
        Logistic(frame(**columns), Y)


def test_missing_values_of_pandas_are_named():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(InputError, match=r"1 NaN .* in 1 of 4 rows, column 'dose'"):
        Logistic(frame(dose=pandas.array([1, None, 3, 4], dtype="Int64")), Y)


def test_a_category_is_encoded_by_the_user():
    pandas = pytest.importorskip("pandas")
    table = frame(site=pandas.Categorical(["a", "b", "a", "b"]))
    with pytest.raises(InputError, match="column 'site' of type category"):
        Logistic(table, Y)
    assert Logistic(pandas.get_dummies(table), Y).d == 5


def test_labels_of_softmax_that_are_text_get_a_way_to_number_them():
    with pytest.raises(InputError, match=r"labels must hold real .*np\.unique\(labels, return_inverse=True\)\[1\]"):
        Softmax(A, ["a", "b", "c", "a"])


@pytest.mark.parametrize("bad", [0, -1.0, np.inf, np.nan])
def test_delta_and_gamma_must_be_positive(bad):
    with pytest.raises(InputError, match="delta must be > 0"):
        Huber(A, Y, delta=bad)
    with pytest.raises(InputError, match="gamma must be > 0"):
        SmoothedHinge(A, Y, gamma=bad)


@pytest.mark.parametrize("loss", [LeastSquares, Huber])
def test_targets_must_be_finite_and_fit(loss):
    with pytest.raises(InputError, match="targets must be finite"):
        loss(A, [1, 2, 3, np.inf])
    with pytest.raises(InputError, match="targets must be 1-D"):
        loss(A, [1, 2, 3])


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        ([0, 1, 2, -1], None, "integers 0..K-1"),
        ([0, 1, 2, 0.5], None, "integers 0..K-1"),
        ([0, 1, 2, 3], 3, "labels must be below classes = 3; got 3"),
        ([0, 0, 0, 0], 1, "classes must be an integer of at least 2"),
        ([0, 0, 0, 1], 2.0, "classes must be an integer of at least 2"),
    ],
)
def test_softmax_refuses_bad_labels(labels, classes, message):
    with pytest.raises(InputError, match=message):
        Softmax(A, labels, classes=classes)


@pytest.mark.parametrize(
    ("Q", "c", "message"),
    [
        (np.ones((2, 3)), np.ones(2), r"Q must have shape \(d, d\) or \(m, d, d\)"),
        (np.ones(3), np.ones(3), "Q must have shape"),
        (np.eye(2), np.ones(3), "c must have shape"),
        (np.eye(2), np.ones((1, 2)), "c must have shape"),
        (np.full((2, 2), np.nan), np.ones(2), "Q must be finite"),
        (np.eye(2), [0, np.inf], "c must be finite"),
        ([[1, 1], [0, 1]], np.ones(2), "Q must be symmetric"),
        ([np.eye(2), [[1, 2], [2, 1]]], np.ones((2, 2)), "semidefinite; got an eigenvalue of -1 at agent 1"),
    ],
)
def test_quadratic_refuses_bad_input(Q, c, message):
    with pytest.raises(InputError, match=message):
        Quadratic(Q, c)


def test_quadratic_has_no_rows_to_sample():
    with pytest.raises(InputError, match="needs a loss with rows"):
        Quadratic(np.eye(2), np.ones(2)).sample_gradient(np.zeros((1, 2)), 1, streams(1))


@pytest.mark.parametrize("shape", [(3,), (1, 3), (2, 2), (2, 3, 1)])
def test_x_must_have_one_row_per_agent(shape):
    rows, quadratic = LeastSquares(A, Y, agents=2), Quadratic(*make_quadratic(m=2, d=3))
    for loss in (rows, quadratic, stack([rows.take([0]), quadratic.take([1])])):
        for evaluate in (loss.value, loss.gradient, loss.value_and_gradient):
            with pytest.raises(InputError, match=r"x must have shape \(m, d\) = \(2, 3\)"):
                evaluate(np.zeros(shape))


def test_sampling_refuses_bad_arguments():
    loss = LeastSquares(A, Y, agents=2)
    x = np.zeros((2, 3))
    for batch in (0, 1.5):
        with pytest.raises(InputError, match="batch must be an integer"):
            loss.sample_gradient(x, batch, streams(2))
    with pytest.raises(InputError, match="one random generator per agent, 2 in all; got 3"):
        loss.sample_gradient(x, 1, streams(3))
    for rows in ([[0]], [0, 1], np.zeros((2, 1)), np.zeros((2, 0), int)):
        with pytest.raises(InputError, match="rows must be one or more integers for each agent"):
            loss.gradient_of_rows(x, rows)
    for rows in ([[0], [2]], [[-1], [0]]):
        with pytest.raises(InputError, match=r"rows must lie in 0..n_i - 1"):
            loss.gradient_of_rows(x, rows)


def test_norm_must_be_known():
    with pytest.raises(InputError, match="norm must be 1 or 2"):
        LeastSquares(A, Y).smoothness(norm=3)


# ---- real data


def test_ijcnn1_constants():
    datasets = pytest.importorskip("sklearn.datasets")
    path = DATA / "ijcnn1.svm.xz"
    if not path.exists():
        pytest.skip("ijcnn1.svm.xz is not in the data directory")
    with lzma.open(path, "rb") as file:
        features, labels = datasets.load_svmlight_file(file, n_features=22)
    sparse = Logistic(features[:20_000], labels[:20_000], agents=100)
    dense = Logistic(features[:20_000].toarray(), labels[:20_000], agents=100)
    assert dense.smoothness().max() == pytest.approx(38.3859, abs=5e-5)
    np.testing.assert_allclose(sparse.smoothness(), dense.smoothness(), rtol=1e-12)
    x = point(dense)
    np.testing.assert_allclose(sparse.gradient(x), dense.gradient(x), atol=1e-10)
    assert dense.value(np.zeros((100, 22))).sum() == pytest.approx(20_000 * np.log(2))


class Ridge(gs.losses.LeastSquares):
    """A user's class that changes what a built-in loss computes."""

    def value(self, x):
        return super().value(x) + 50 * np.sum(x**2, axis=1)

    def gradient(self, x):
        return super().gradient(x) + 100 * x


class LogisticWithSquares(gs.losses.Logistic):
    def curvature(self, norm):
        return super().curvature(norm) + 2

    def row_values(self, scores, targets):
        return super().row_values(scores, targets) + scores**2

    def row_slopes(self, scores, targets):
        return super().row_slopes(scores, targets) + 2 * scores


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_class_that_overrides_value_and_gradient_inherits_nothing_that_follows_from_them(dtype):
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(40, 5)).astype(dtype), rng.normal(size=40).astype(dtype)
    ridge, x = Ridge(features, targets, agents=4), rng.normal(size=(4, 5)).astype(dtype)
    values, gradients = ridge.value_and_gradient(x)
    np.testing.assert_array_equal(values, ridge.value(x))
    np.testing.assert_array_equal(gradients, ridge.gradient(x))
    assert not ridge.has_hessian
    assert not ridge.has_evaluation
    assert (ridge.value_in_doubles(x.astype(np.float64)) is None) == (dtype == np.float32)
    with pytest.raises(gs.InputError, match="needs a loss that is a sum over rows"):
        ridge.sample_gradient(x, 2, [np.random.default_rng(i) for i in range(4)])
    stop = gs.Stop(gap=gs.Relative(1e-3), iterations=300)
    solution = gs.solve(gs.Problem(ridge, gs.domains.Box(-5.0, 5.0)), gs.Graph.ring(4), stop=stop)
    exact = gs.Problem(gs.losses.LeastSquares(features, targets, agents=4), gs.domains.Box(-5.0, 5.0), mu=100.0)
    optimum = gs.reference.reference(exact).objective
    assert solution.status is gs.Status.CONVERGED
    assert solution.certificate.lower <= optimum * (1 + 1e-6)
    assert solution.certificate.upper >= optimum * (1 - 1e-6)


def test_a_class_with_rows_of_its_own_has_no_inherited_curvature():
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(12, 3)), np.sign(rng.normal(size=12))
    assert not LogisticWithSquares(features, labels, agents=2).has_hessian

    class Curved(LogisticWithSquares):
        def row_curvatures(self, scores, targets):
            return super(LogisticWithSquares, self).row_curvatures(scores, targets) + 2

    assert Curved(features, labels, agents=2).has_hessian
    assert gs.check_loss(Curved(features, labels, agents=2)).findings == ()
