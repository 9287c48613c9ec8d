"""Damped Chebyshev mixing: the polynomial itself, where its eigenvalues lie, what it keeps, and its rounding."""

import math

import numpy as np
import pytest
from auto_twins import Net

import gradslide as gs
from gradslide.graphs.chebyshev import chebyshev, damped_chebyshev

GRAPHS = {
    "ring": gs.Graph.ring(11),
    "path": gs.Graph.path(9),
    "star": gs.Graph.star(10),
    "random": gs.Graph.random(14, 4, seed=3),
    "weighted": gs.Graph.from_edges(10, [(i, (i + 1) % 10) for i in range(10)], np.linspace(0.5, 2, 10)),
}


def spectrum(N, D):
    """Eigenvalues and eigenvectors of N = D^-1 Lap, D-orthonormal."""
    root = np.sqrt(D)
    values, vectors = np.linalg.eigh((root[:, None] * N) / root)
    return values, vectors / root[:, None]


def damped(value, K, least, most):
    """What an eigenvector with this eigenvalue is multiplied by: 1 - (1 - T_K(s)/T_K(s_0))/(1 + 1/T_K(s_0))."""
    if K == 1:
        return 1 - value / most
    middle, half = (most + least) / 2, (most - least) / 2
    s = (middle - value) / half
    T = math.cosh(K * math.acosh(s)) if s > 1 else math.cos(K * math.acos(max(-1, s)))
    T_0 = math.cosh(K * math.acosh(middle / half))
    return 1 - (1 - T / T_0) / (1 + 1 / T_0)


class Network:
    """N, and how often it was asked for."""

    def __init__(self, graph, is_weighed=True):
        self.D = Net(graph).D[:, 0] if is_weighed else np.ones(graph.m)
        self.N = graph.laplacian.toarray() / self.D[:, None]
        self.values, self.vectors = spectrum(self.N, self.D)
        self.least, self.most = float(self.values[1]), float(self.values[-1])
        self.asked = 0

    def multiply(self, v):
        self.asked += 1
        return self.N.astype(v.dtype) @ v

    def narrowed(self, K):
        """Between which eigenvalues auto mode wants the result small."""
        return max(self.least, self.most / K**2)

    def mix(self, v, K, least=None):
        least = self.narrowed(K) if least is None else least
        r, q = damped_chebyshev(self.multiply, v, K, least=least, most=self.most)
        return v - r, q


@pytest.mark.parametrize("K", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("name", GRAPHS)
def test_it_is_the_damped_polynomial(name, K):
    network = Network(GRAPHS[name])
    eye = np.eye(len(network.D))
    for least in {network.narrowed(K), network.least, network.most / 2}:
        network.asked = 0
        u, q = network.mix(eye, K, least)
        factors = [damped(value, K, least, network.most) for value in np.maximum(network.values, 0)]
        expected = (network.vectors * factors) @ network.vectors.T * network.D
        np.testing.assert_allclose(u, expected, atol=1e-12)
        np.testing.assert_allclose(u, eye - network.N @ q, atol=1e-12)
        assert network.asked == K


@pytest.mark.parametrize("K", [1, 2, 3, 4, 7, 20])
@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_taken_off_has_eigenvalues_from_0_to_1(name, K):
    network = Network(GRAPHS[name])
    u, _ = network.mix(np.eye(len(network.D)), K)
    root = np.sqrt(network.D)
    symmetric = root[:, None] * (np.eye(len(root)) - u) / root
    np.testing.assert_allclose(symmetric, symmetric.T, atol=1e-12)
    taken = np.linalg.eigvalsh(symmetric)
    assert -1e-12 <= taken[0]
    assert taken[-1] <= 1 + 1e-12
    # Only consensus is left alone.
    assert abs(taken[0]) < 1e-12 < taken[1]


@pytest.mark.parametrize("K", [1, 2, 3, 5, 9, 30])
def test_no_eigenvalue_in_the_whole_range_is_taken_too_far(K):
    """On every eigenvalue that any graph may have: not undamped, where half of them would change sign."""
    values = np.linspace(0, 1, 2001)
    for least in (1 / K**2 if K > 1 else 0.5, 0.3):
        r, q = damped_chebyshev(lambda v: values * v, np.ones_like(values), K, least=least, most=1.0)
        u = 1 - r
        assert -1e-13 <= u.min()
        assert u.max() <= 1 + 1e-13
        np.testing.assert_allclose(u, 1 - values * q, atol=1e-12)
        inside = values >= least
        if K > 1:
            T_0 = math.cosh(K * math.acosh((1 + least) / (1 - least)))
            assert u[inside].max() <= 2 / (1 + T_0) + 1e-13


@pytest.mark.parametrize("name", GRAPHS)
def test_the_weighted_mean_stays(name):
    network = Network(GRAPHS[name])
    v = np.random.default_rng(0).normal(size=(len(network.D), 3))
    for K in (1, 2, 6):
        u, _ = network.mix(v, K)
        np.testing.assert_allclose(network.D @ u, network.D @ v, atol=1e-12)
        assert np.ptp(u, axis=0).max() < np.ptp(v, axis=0).max()


def test_the_mean_that_stays_is_not_the_plain_one_where_weights_differ():
    network = Network(GRAPHS["star"])
    assert np.ptp(network.D) > 0.5
    v = np.random.default_rng(0).normal(size=(10, 1))
    u, _ = network.mix(v, 3)
    assert abs(u.mean() - v.mean()) > 1e-3


@pytest.mark.parametrize("K", [1, 2, 5])
@pytest.mark.parametrize("graph", [gs.Graph.complete(7), gs.Graph.path(2)], ids=["complete", "pair"])
def test_where_all_eigenvalues_are_alike_one_exchange_averages(graph, K):
    network = Network(graph)
    v = np.random.default_rng(1).normal(size=(graph.m, 2))
    u, q = network.mix(v, K, network.least)
    np.testing.assert_allclose(u, np.broadcast_to(v.mean(axis=0), v.shape), atol=1e-14)
    np.testing.assert_allclose(u, v - network.N @ q, atol=1e-14)
    assert network.asked == 1


def test_weights_bring_the_ends_of_a_spectrum_together():
    plain, weighed = (Network(gs.Graph.star(40), is_weighed) for is_weighed in (False, True))
    assert weighed.most / weighed.least < 0.5 * plain.most / plain.least
    v = np.random.default_rng(2).normal(size=(40, 1))
    for network in (plain, weighed):
        u, _ = network.mix(v, math.ceil(3 * math.sqrt(network.most / network.least)))
        assert np.ptp(u) < 0.02 * np.ptp(v)


@pytest.mark.parametrize("K", [50, 1_000, 5_000])
def test_many_exchanges_average_and_do_not_overflow(K):
    network = Network(gs.Graph.ring(5))
    v = np.random.default_rng(3).normal(size=(5, 2))
    with np.errstate(all="raise", under="ignore"):
        u, q = network.mix(v, K)
    np.testing.assert_allclose(u, np.broadcast_to(v.mean(axis=0), v.shape), atol=1e-12)
    np.testing.assert_allclose(u, v - network.N @ q, atol=1e-9)
    assert network.asked == K


@pytest.mark.parametrize("K", [1, 2, 6])
def test_single_precision_stays(K):
    network = Network(GRAPHS["random"])
    v = np.random.default_rng(4).normal(size=(14, 3))
    exact, (u, q) = network.mix(v, K), network.mix(v.astype(np.float32), K)
    assert (u.dtype, q.dtype) == (np.float32, np.float32)
    np.testing.assert_allclose(u, exact[0], atol=1e-5)
    np.testing.assert_allclose(q, exact[1], atol=1e-5)


def test_the_argument_is_not_changed():
    network = Network(GRAPHS["ring"])
    v = np.random.default_rng(5).normal(size=(11, 2))
    before = v.copy()
    for K in (1, 2, 4):
        network.mix(v, K)
        np.testing.assert_array_equal(v, before)


@pytest.mark.parametrize("K", [3, 12, 24, 60])
def test_rounding_errors_are_those_of_v(K):
    """q is thousands of times larger than v where weights differ much: its rounding errors must not show."""
    weights = np.geomspace(1e-2, 1e2, 10)
    graph = gs.Graph.from_edges(10, [(i, (i + 1) % 10) for i in range(10)], weights)
    net, v = Network(graph), 1 + 0.1 * np.random.default_rng(K).normal(size=(10, 7))
    bounds = {"least": net.narrowed(K), "most": net.most}
    r, _ = damped_chebyshev(net.multiply, v, K, **bounds)
    single, _ = damped_chebyshev(net.multiply, v.astype(np.float32), K, **bounds)
    final = chebyshev(net.multiply, v, K, least=net.least, most=net.most)
    final_single = chebyshev(net.multiply, v.astype(np.float32), K, least=net.least, most=net.most)
    eps = np.finfo(np.float32).eps
    for found, expected in ((single, r), (final_single, final)):
        assert np.max(np.abs(found - expected)) < 20 * K * eps
