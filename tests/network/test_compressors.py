"""Compressors: how much gets through, without bias where it is said so, and what is sent."""

import math

import numpy as np
import pytest
from error_messages import check_message
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gradslide.network.compressors import Quantization, TopK


def rng(seed=0):
    return np.random.default_rng(seed)


VECTORS = arrays(
    np.float64,
    st.tuples(st.integers(1, 3), st.integers(1, 9)),
    elements=st.floats(-1e100, 1e100, allow_subnormal=False),
)


@settings(max_examples=100, deadline=None)
@given(VECTORS, st.integers(1, 10))
def test_top_k_keeps_the_largest_and_contracts(v, k):
    compressor = TopK(k=k)
    kept = compressor.compress(v, rng())
    d = v.shape[1]
    scale = max(1e-300, float(np.max(np.abs(v))))
    for row, out in zip(v / scale, kept / scale, strict=True):
        chosen = np.flatnonzero(out)
        assert len(chosen) <= min(k, d)
        np.testing.assert_array_equal(out[chosen], row[chosen])
        left = np.abs(np.delete(row, chosen))
        if len(chosen) == min(k, d) < d:
            assert np.max(left) <= np.min(np.abs(row[chosen]))
        assert np.sum((out - row) ** 2) <= (1 - compressor.quality(d)) * np.sum(row**2) * (1 + 1e-12)
    np.testing.assert_array_equal(compressor.contract(v, rng()), kept)


def test_top_k_against_sorting():
    v = rng(1).normal(size=(50, 12))
    for k in (1, 5, 11, 12, 20):
        kept = TopK(k=k).compress(v, rng())
        for row, out in zip(v, kept, strict=True):
            expected = np.zeros(12)
            order = sorted(range(12), key=lambda j: -abs(row[j]))[:k]
            expected[order] = row[order]
            np.testing.assert_array_equal(out, expected)


def test_the_worst_vector_of_top_k_is_flat():
    flat = np.ones((1, 10))
    kept = TopK(k=3).compress(flat, rng())
    assert np.sum((kept - flat) ** 2) == pytest.approx((1 - TopK(k=3).quality(10)) * 10)


@pytest.mark.parametrize(
    ("share", "d", "kept"),
    [
        (0.1, 100, 10),
        (0.07, 100, 7),
        (0.1, 30, 3),
        (0.1, 5, 1),
        (0.5, 5, 3),
        (1.0, 7, 7),
        (1e-6, 50, 1),
        (0.29, 100, 29),
    ],
)
def test_a_share_is_rounded_up(share, d, kept):
    assert TopK(share=share).kept(d) == kept
    assert TopK(share=share).quality(d) == kept / d
    v = rng(2).normal(size=(3, d))
    assert (np.count_nonzero(TopK(share=share).compress(v, rng()), axis=1) == kept).all()


@settings(max_examples=100, deadline=None)
@given(VECTORS, st.integers(1, 40), st.integers(0, 1000))
def test_quantized_entries_are_levels_next_to_the_entry(v, levels, seed):
    out = Quantization(levels=levels).compress(v, rng(seed))
    assert np.isfinite(out).all()
    scales = np.max(np.abs(v), axis=1)
    for row, got, scale in zip(v, out, scales, strict=True):
        if scale == 0:
            assert (got == 0).all()
            continue
        unit = np.linalg.norm(row / scale) / levels
        multiples = got / scale / unit
        np.testing.assert_allclose(multiples, np.round(multiples), atol=1e-8)
        assert (np.abs(got / scale - row / scale) <= unit * (1 + 1e-9)).all()
        assert (got * np.sign(row) >= 0).all()


@pytest.mark.parametrize("levels", [1, 2, 4, 16])
@pytest.mark.parametrize("d", [1, 3, 20])
def test_quantization_has_no_bias_and_the_variance_that_theory_gives(levels, d):
    compressor, v = Quantization(levels=levels), rng(3).normal(size=(1, d))
    draws = 20_000
    out = compressor.compress(np.tile(v, (draws, 1)), rng(4))
    square = float(np.sum(v**2))
    deviations = out.std(axis=0, ddof=1) / math.sqrt(draws)
    assert (np.abs(out.mean(axis=0) - v[0]) <= 5 * deviations + 1e-12).all()
    variance = float(np.mean(np.sum((out - v) ** 2, axis=1)))
    worst = min(d / levels**2, math.sqrt(d) / levels) * square
    assert variance <= worst * 1.02
    assert compressor.quality(d) == pytest.approx(1 / (1 + worst / square))


@pytest.mark.parametrize("levels", [1, 4, 16])
@pytest.mark.parametrize("make", [lambda d: np.ones(d), lambda d: np.arange(1.0, d + 1), lambda d: np.eye(d)[0] + 0.01])
def test_contracted_vectors_err_by_no_more_than_quality_allows(levels, make):
    compressor, v = Quantization(levels=levels), make(30)[None]
    out = compressor.contract(np.tile(v, (20_000, 1)), rng(5))
    error = float(np.mean(np.sum((out - v) ** 2, axis=1)))
    assert error <= (1 - compressor.quality(30)) * float(np.sum(v**2)) * 1.02
    plain = compressor.compress(np.tile(v, (3, 1)), rng(6))
    np.testing.assert_allclose(
        compressor.contract(np.tile(v, (3, 1)), rng(6)), plain * compressor.quality(30), rtol=1e-14
    )


def test_without_its_scale_coarse_quantization_is_no_contraction():
    v = np.ones((5_000, 100))
    out = Quantization(levels=1).compress(v, rng(7))
    assert np.mean(np.sum((out - v) ** 2, axis=1)) > 100


@pytest.mark.parametrize("compressor", [TopK(k=2), Quantization()])
@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
def test_the_unit_does_not_matter(compressor, scale):
    v = rng(8).normal(size=(4, 6))
    np.testing.assert_allclose(
        compressor.contract(scale * v, rng(9)), scale * compressor.contract(v, rng(9)), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("compressor", [TopK(k=2), TopK(share=1.0), Quantization(), Quantization(levels=1)])
def test_rows_of_zeros_float32_and_the_seed(compressor):
    v = rng(10).normal(size=(4, 6))
    v[1] = 0
    out = compressor.contract(v, rng(11))
    assert (out[1] == 0).all()
    assert (out[[0, 2, 3]] != 0).any(axis=1).all()
    np.testing.assert_array_equal(out, compressor.contract(v, rng(11)))
    small = compressor.contract(v.astype(np.float32), rng(11))
    assert small.dtype == np.float32
    assert compressor.compress(v.astype(np.float32), rng(11)).dtype == np.float32
    before = v.copy()
    compressor.compress(v, rng(12))
    np.testing.assert_array_equal(v, before)


def test_rows_are_compressed_each_by_itself():
    v = rng(13).normal(size=(4, 6)) * np.array([[1e-6], [1.0], [1e6], [1.0]])
    assert (np.count_nonzero(TopK(k=2).compress(v, rng()), axis=1) == 2).all()
    out = Quantization(levels=64).compress(v, rng())
    np.testing.assert_array_less(
        np.linalg.norm(out - v, axis=1), 0.1 * np.linalg.norm(v, axis=1), err_msg="a row lost its scale"
    )


@pytest.mark.parametrize(
    ("compressor", "d", "dtype", "floats"),
    [
        (TopK(k=10), 100, np.float64, 12),  # 10 (64 + 7)/64 = 11.1
        (TopK(k=10), 100, np.float32, 13),  # 10 (32 + 7)/32 = 12.2
        (TopK(k=1), 2, np.float64, 2),  # (64 + 1)/64
        (TopK(k=5), 5, np.float64, 5),
        (TopK(k=9), 5, np.float64, 5),
        (TopK(share=0.5), 64, np.float64, 35),  # 32 (64 + 6)/64
        (TopK(share=0.999), 1000, np.float64, 1000),  # never more than the vector itself
        (TopK(k=1), 1, np.float64, 1),
        (Quantization(levels=16), 100, np.float64, 11),  # (64 + 600)/64 = 10.4
        (Quantization(levels=16), 100, np.float32, 20),  # (32 + 600)/32 = 19.75
        (Quantization(levels=1), 100, np.float64, 5),  # (64 + 200)/64 = 4.1
        (Quantization(levels=3), 100, np.float64, 6),  # 7 values: 3 bits
        (Quantization(levels=4), 100, np.float64, 8),  # 9 values: 4 bits
        (Quantization(levels=16), 1, np.float64, 1),
    ],
)
def test_sizes_of_messages(compressor, d, dtype, floats):
    assert compressor.floats(np.zeros((3, d), dtype=dtype)) == floats


def test_mistakes_are_refused():
    for given_ in ({}, {"k": 1, "share": 0.5}):
        check_message(lambda given_=given_: TopK(**given_), ["TopK needs k or share", "TopK(share=0.1)"])
    for k in (0, -1, 1.5, True, "2"):
        check_message(lambda k=k: TopK(k=k), ["k must be a whole number >= 1", repr(k)])
    for share in (0.0, -0.1, 1.1, math.nan, "0.1"):
        check_message(lambda share=share: TopK(share=share), ["share must be > 0 and <= 1", repr(share)])
    for levels in (0, -3, 2.5, True):
        check_message(lambda levels=levels: Quantization(levels=levels), ["levels must be a whole number >= 1"])
    with pytest.raises(TypeError):
        TopK(3)
