"""Messages that arrive with noise, or compressed: against loops over messages, and with links that fail."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from error_messages import check_message

import gradslide as gs
from gradslide.graphs import mixing

network, compressors = gs.network, gs.compressors
GRAPH = gs.Graph.random(10, 4, seed=2)
TOP, ROUGH = compressors.TopK(k=2), compressors.Quantization(levels=2)


def weights_of(kind, graph=GRAPH):
    if kind == "laplacian":
        return graph.laplacian
    if kind == "metropolis":
        return mixing.metropolis(graph).matrix
    if kind == "no diagonal":
        return graph.adjacency
    lopsided = sp.csr_array(sp.eye_array(graph.m) + graph.adjacency)
    lopsided.data = np.random.default_rng(5).normal(size=lopsided.nnz)
    return lopsided


WEIGHTS = ["laplacian", "metropolis", "no diagonal", "lopsided"]


def rows(m=GRAPH.m, d=6, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=(m, d)).astype(dtype)


def links(inner, direction="each"):
    return network.Lossy(inner, 0.4, direction=direction, seed=3)


class Recorded:
    """A compressor that keeps what it made."""

    def __init__(self, inner):
        self.inner, self.made = inner, []

    def __repr__(self):
        return repr(self.inner)

    def compress(self, v, random):
        self.made.append(self.inner.compress(v, random))
        return self.made[-1]

    def floats(self, v):
        return self.inner.floats(v)


# Noise


def check_noise(noise, variances):
    """Rows (m, N) of independent Gaussians with these variances, within five standard deviations."""
    N = noise.shape[1]
    deviations = np.sqrt(variances)
    assert np.all(np.abs(noise.mean(axis=1)) <= 1e-15 + 5 * deviations / math.sqrt(N))
    np.testing.assert_allclose(noise.var(axis=1), variances, rtol=5 * math.sqrt(2 / N), atol=1e-28)
    loud = noise[variances > 0] / deviations[variances > 0, None]
    if len(loud) > 1:
        correlations = np.corrcoef(loud)[~np.eye(len(loud), dtype=bool)]
        assert np.abs(correlations).max() < 5 / math.sqrt(N)
    # The fourth moment of a Gaussian is 3.
    assert abs(np.mean(loud**4) - 3) < 5 * math.sqrt(96 / loud.size)


def squares(weights, heard):
    off = weights.toarray() ** 2 * heard
    return off.sum(axis=1) - np.diag(off)


@pytest.mark.parametrize("kind", WEIGHTS)
def test_noise_has_the_variance_of_the_messages_heard(kind):
    weights, v = weights_of(kind), rows(d=20_000)
    noise = network.Noisy(GRAPH, 0.7).combine(v, weights) - weights @ v
    check_noise(noise, 0.49 * squares(weights, 1))


def test_noise_is_new_in_every_exchange_and_alike_in_every_run():
    first, v = network.Noisy(GRAPH, 0.5), rows(d=2000)
    noise = [first.combine(v, GRAPH.laplacian) - GRAPH.laplacian @ v for _ in range(2)]
    assert abs(np.corrcoef(noise[0].ravel(), noise[1].ravel())[0, 1]) < 5 / math.sqrt(noise[0].size)
    second = network.Noisy(GRAPH, 0.5)
    again = [second.combine(v, GRAPH.laplacian) - GRAPH.laplacian @ v for _ in range(2)]
    np.testing.assert_array_equal(again, noise)
    first.session.begin()
    np.testing.assert_array_equal(first.combine(v, GRAPH.laplacian) - GRAPH.laplacian @ v, noise[0])
    other = network.Noisy(GRAPH, 0.5, seed=1)
    assert np.abs(other.combine(v, GRAPH.laplacian) - GRAPH.laplacian @ v - noise[0]).max() > 0.1


@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize("direction", ["both", "each"])
def test_what_is_lost_has_no_noise(outside, direction):
    if outside:
        condition = lossy = links(network.Noisy(GRAPH, 0.7), direction)
    else:
        lossy = links(GRAPH, direction)
        condition = network.Noisy(lossy, 0.7)
    weights, v = weights_of("lopsided"), rows(d=20_000)
    for _ in range(3):
        result = condition.combine(v, weights)
        heard = np.eye(GRAPH.m, dtype=bool)
        heard[tuple(GRAPH.edges[:, ::-1].T)] = lossy.delivered[:, 0]
        heard[tuple(GRAPH.edges.T)] = lossy.delivered[:, 1]
        effective = weights.toarray() * heard
        effective += np.diag(weights.toarray().sum(axis=1) - effective.sum(axis=1))
        check_noise(result - effective @ v, 0.49 * squares(weights, heard))
        assert heard.sum() < heard.size
    assert 0 < lossy.delivered.mean() < 1


def test_agents_that_hear_nobody_have_no_noise():
    graph = gs.Graph.path(4)
    for order in (
        lambda: network.Varying(network.Noisy(graph, 1.0), graphs=[[(0, 1)], [(1, 2), (2, 3)]]),
        lambda: network.Noisy(network.Varying(graph, graphs=[[(0, 1)], [(1, 2), (2, 3)]]), 1.0),
    ):
        noise = order().combine(np.zeros((4, 5)), graph.laplacian)
        assert np.abs(noise[:2]).min() > 0
        np.testing.assert_array_equal(noise[2:], 0)


def test_several_links_inside_all_silence_the_noise():
    inner = network.Sleeping(GRAPH, 0.4, length=2)
    outer = network.Lossy(inner, 0.4)
    noisy = network.Noisy(network.Compressed(outer, compressors.TopK(share=1.0)), 1.0)
    for _ in range(10):
        noise = noisy.combine(np.zeros((GRAPH.m, 3)), GRAPH.laplacian)
        arrived = (outer.delivered & inner.delivered)[:, 0]
        hears = np.isin(np.arange(GRAPH.m), GRAPH.edges[arrived])
        np.testing.assert_array_equal(np.abs(noise).min(axis=1) > 0, hears)


def test_no_noise_changes_no_bit_and_a_lone_agent_hears_none():
    v = rows()
    np.testing.assert_array_equal(network.Noisy(GRAPH, 0).combine(v, GRAPH.laplacian), GRAPH.laplacian @ v)
    alone = network.Noisy(gs.Graph.path(1), 5.0)
    np.testing.assert_array_equal(alone.combine(v[:1], mixing.metropolis(alone.graph).matrix), v[:1])
    pair = network.Noisy(gs.Graph.path(2), 0.5)
    noise = pair.combine(rows(2, 20_000), pair.laplacian) - pair.laplacian @ rows(2, 20_000)
    check_noise(noise, np.array([0.25, 0.25]))


# Compression


def naive_compressed(v, C, weights, graph, arrived):
    """Message by message: rowsum_i v_i + sum over the messages heard of w_ij (C_j - C_i)."""
    weights = weights.toarray()
    result = weights.sum(axis=1)[:, None] * v
    for (one, other), (there, back) in zip(graph.edges, arrived, strict=True):
        if there:
            result[other] += weights[other, one] * (C[one] - C[other])
        if back:
            result[one] += weights[one, other] * (C[other] - C[one])
    return result


@pytest.mark.parametrize("compressor", [TOP, ROUGH])
@pytest.mark.parametrize("kind", WEIGHTS)
def test_agents_compare_compressed_values(kind, compressor):
    recorded, weights = Recorded(compressor), weights_of(kind)
    condition = network.Compressed(GRAPH, recorded)
    for exchange in range(4):
        v = rows(seed=exchange)
        result = condition.combine(v, weights)
        C = recorded.made[exchange]
        assert np.abs(C - v).max() > 0.1
        expected = naive_compressed(v, C, weights, GRAPH, np.ones((len(GRAPH.edges), 2), dtype=bool))
        np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize("kind", WEIGHTS)
def test_compressed_messages_get_lost_too(kind, outside):
    recorded, weights = Recorded(ROUGH), weights_of(kind)
    if outside:
        condition = lossy = links(network.Compressed(GRAPH, recorded))
    else:
        lossy = links(GRAPH)
        condition = network.Compressed(lossy, recorded)
    for exchange in range(5):
        v = rows(seed=exchange)
        result = condition.combine(v, weights)
        expected = naive_compressed(v, recorded.made[exchange], weights, GRAPH, lossy.delivered)
        np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("compressor", [TOP, ROUGH])
def test_compression_keeps_sums(compressor):
    condition, v = network.Lossy(network.Compressed(GRAPH, compressor), 0.3), rows()
    for _ in range(5):
        laplace = condition.combine(v, GRAPH.laplacian)
        mixed = condition.combine(v, mixing.metropolis(GRAPH).matrix)
        np.testing.assert_allclose(laplace.sum(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(mixed.mean(axis=0), v.mean(axis=0), atol=1e-12)


def test_rounding_is_new_in_every_exchange_and_alike_in_every_run():
    v = rows()
    first, second = network.Compressed(GRAPH, ROUGH), network.Compressed(GRAPH, ROUGH)
    results = [first.combine(v, GRAPH.laplacian) for _ in range(3)]
    assert np.abs(results[0] - results[1]).max() > 0.1
    np.testing.assert_array_equal([second.combine(v, GRAPH.laplacian) for _ in range(3)], results)
    second.session.begin()
    np.testing.assert_array_equal(second.combine(v, GRAPH.laplacian), results[0])
    other = network.Compressed(GRAPH, ROUGH, seed=1)
    assert np.abs(other.combine(v, GRAPH.laplacian) - results[0]).max() > 0.1


def test_a_method_that_encodes_by_itself_is_left_alone():
    v, plain = rows(), network.Local(GRAPH)
    condition = network.Compressed(GRAPH, ROUGH)
    np.testing.assert_array_equal(condition.combine(v, GRAPH.laplacian, TOP), plain.combine(v, GRAPH.laplacian))
    assert (
        condition.costs.exchange_floats(v, TOP)
        == plain.costs.exchange_floats(v, TOP)
        != condition.costs.exchange_floats(v)
    )


@pytest.mark.parametrize("compressor", [compressors.TopK(share=0.1), compressors.Quantization()])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_floats_are_counted_after_compression(compressor, dtype):
    v = rows(d=100, dtype=dtype)
    condition = network.Lossy(network.Compressed(network.Delayed(GRAPH, 0), compressor), 0.1)
    assert condition.costs.exchange_floats(v) == 2 * len(GRAPH.edges) * compressor.floats(v)
    assert condition.costs.exchange_floats(v) < network.Local(GRAPH).costs.exchange_floats(v) / 3


def test_only_the_outer_one_of_two_compresses():
    v = rows()
    twice = network.Compressed(network.Compressed(GRAPH, ROUGH), TOP)
    np.testing.assert_array_equal(
        twice.combine(v, GRAPH.laplacian), network.Compressed(GRAPH, TOP).combine(v, GRAPH.laplacian)
    )
    assert twice.costs.exchange_floats(v) == 2 * len(GRAPH.edges) * TOP.floats(v)


def test_a_lone_agent_keeps_what_it_has():
    alone, v = network.Compressed(gs.Graph.path(1), ROUGH), rows(1)
    np.testing.assert_allclose(alone.combine(v, mixing.metropolis(alone.graph).matrix), v, rtol=1e-12)
    np.testing.assert_array_equal(alone.combine(v, alone.laplacian), 0 * v)


# Together


@pytest.mark.parametrize("kind", WEIGHTS)
def test_the_order_does_not_matter(kind):
    weights = weights_of(kind)
    orders = [
        links(network.Noisy(network.Compressed(GRAPH, ROUGH), 0.3)),
        links(network.Compressed(network.Noisy(GRAPH, 0.3), ROUGH)),
        network.Noisy(links(network.Compressed(GRAPH, ROUGH)), 0.3),
        network.Compressed(network.Noisy(links(GRAPH), 0.3), ROUGH),
    ]
    for exchange in range(4):
        v = rows(seed=exchange)
        first, *others = [condition.combine(v, weights) for condition in orders]
        for other in others:
            np.testing.assert_allclose(other, first, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "make",
    [
        lambda: network.Noisy(GRAPH, 0.3),
        lambda: network.Compressed(GRAPH, TOP),
        lambda: network.Compressed(GRAPH, ROUGH),
        lambda: links(network.Noisy(network.Compressed(GRAPH, ROUGH), 0.3)),
        lambda: network.Noisy(links(network.Compressed(GRAPH, ROUGH)), 0.3),
    ],
)
def test_single_precision_stays_single(make):
    condition = make()
    for weights in (GRAPH.laplacian, mixing.metropolis(GRAPH).matrix):
        assert condition.combine(rows(dtype=np.float32), weights).dtype == np.float32
        assert condition.combine(rows(), weights).dtype == np.float64


def test_they_go_on_from_what_they_remember():
    def make():
        return network.Noisy(network.Compressed(network.Bursty(GRAPH, 0.2), ROUGH), 0.2)

    first, v = make(), rows()
    for _ in range(4):
        first.combine(v, GRAPH.laplacian)
    memory = first.session.checkpoint()
    later = [first.combine(v, GRAPH.laplacian) for _ in range(4)]
    second = make()
    second.session.resume(memory)
    np.testing.assert_array_equal([second.combine(v, GRAPH.laplacian) for _ in range(4)], later)


def test_they_show_what_they_are():
    inner = network.Compressed(GRAPH, TOP, seed=4)
    assert repr(inner) == f"Compressed({GRAPH!r}, compressor={TOP!r}, seed=4)"
    assert repr(network.Noisy(inner, 0.5)) == f"Noisy({inner!r}, sigma=0.5, seed=0)"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: network.Noisy(GRAPH, -1), ["sigma must be >= 0"]),
        (lambda: network.Noisy(GRAPH, "1"), ["sigma"]),
        (lambda: network.Noisy(GRAPH, math.inf), ["sigma"]),
        (lambda: network.Noisy(None, 1), ["Noisy needs a network"]),
        (lambda: network.Noisy(GRAPH, 1, seed="a"), ["seed"]),
        (lambda: network.Compressed(GRAPH, 0.1), ["Compressed needs a compressor", "TopK"]),
        (lambda: network.Compressed(GRAPH, compressors.TopK), ["Compressed needs a compressor"]),
        (lambda: network.Compressed(GRAPH, TOP, seed=1.5), ["seed"]),
    ],
)
def test_mistakes_are_refused(make, words):
    check_message(make, words)
