"""Mixing matrices: against naive definitions, their eigenvalues, and large networks."""

import networkx as nx
import numpy as np
import pytest
from error_messages import check_message
from hypothesis import given, settings
from hypothesis import strategies as st

import gradslide as gs
from gradslide.graphs import spectrum
from gradslide.graphs.mixing import MIXINGS, Mixing, best_constant, laplacian, metropolis, require_mixing

GRAPHS = {
    "two": gs.Graph.path(2),
    "ring": gs.Graph.ring(8),
    "odd ring": gs.Graph.ring(7),
    "path": gs.Graph.path(9),
    "star": gs.Graph.star(6),
    "complete": gs.Graph.complete(5),
    "grid": gs.Graph.grid(3, 4),
    "two sides": gs.Graph.from_edges(6, [(i, j) for i in range(3) for j in range(3, 6)]),
    "random": gs.Graph.random(12, 4, seed=3),
    "weighted": gs.Graph.from_edges(4, [(0, 1), (1, 2), (2, 3), (0, 2)], [0.5, 2.0, 1.5, 0.1]),
}


def dense_laplacian(graph):
    """Pair by pair."""
    L = np.zeros((graph.m, graph.m))
    for (i, j), w in zip(graph.edges, graph.weights, strict=True):
        L[i, j] = L[j, i] = -w
        L[i, i] += w
        L[j, j] += w
    return L


def naive(name, graph):
    m = graph.m
    if name == "metropolis":
        W = np.zeros((m, m))
        for i, j in graph.edges:
            degree = max(len(graph.neighbours(i)), len(graph.neighbours(j)))
            W[i, j] = W[j, i] = 1 / (1 + degree)
        for i in range(m):
            W[i, i] = 1 - sum(W[i])
        return W
    L = dense_laplacian(graph)
    values = np.sort(np.linalg.eigvalsh(L))
    return np.eye(m) - L / (values[-1] if name == "laplacian" else (values[-1] + values[1]) / 2)


@pytest.mark.parametrize("name", MIXINGS)
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_the_matrix_is_what_its_definition_says(name, graph):
    mixing = MIXINGS[name](graph)
    W = mixing.matrix.toarray()
    np.testing.assert_allclose(W, naive(name, graph), atol=1e-12)
    np.testing.assert_array_equal(W, W.T)
    np.testing.assert_allclose(W.sum(axis=1), 1, atol=1e-14)
    off = W - np.diag(np.diag(W))
    linked = {(i, j) for i, j in zip(*np.nonzero(off), strict=True) if i < j}
    assert linked == {tuple(edge) for edge in graph.edges.tolist()}
    assert (off >= 0).all()
    if name == "metropolis":
        assert (W >= 0).all()
        assert (np.diag(W) > 0).all()


@pytest.mark.parametrize("name", MIXINGS)
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_eigenvalues_and_gap(name, graph):
    mixing = MIXINGS[name](graph)
    values = np.sort(np.linalg.eigvalsh(naive(name, graph)))
    assert values[-1] == pytest.approx(1)
    assert mixing.second == pytest.approx(values[-2], abs=1e-12)
    assert mixing.least == pytest.approx(values[0], abs=1e-12)
    assert mixing.spectral_gap == pytest.approx(1 - max(abs(values[0]), abs(values[-2])), abs=1e-12)
    assert mixing.spectral_gap > -1e-12
    if name == "laplacian":
        assert mixing.least == pytest.approx(0, abs=1e-12)
    v = np.random.default_rng(0).normal(size=(graph.m, 3))
    off = np.linalg.norm(v - v.mean(axis=0))
    mixed = mixing.matrix @ v
    np.testing.assert_allclose(mixed.mean(axis=0), v.mean(axis=0), atol=1e-14)
    assert np.linalg.norm(mixed - v.mean(axis=0)) <= (1 - mixing.spectral_gap) * off * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("name", MIXINGS)
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_lazy_has_no_negative_eigenvalue(name, graph):
    mixing = MIXINGS[name](graph)
    least = np.linalg.eigvalsh(naive(name, graph))[0]
    if least < -1e-3:
        np.testing.assert_allclose(mixing.lazy.matrix.toarray(), (np.eye(graph.m) + naive(name, graph)) / 2, atol=1e-12)
        assert mixing.lazy.second == pytest.approx((1 + mixing.second) / 2)
    else:
        assert mixing.lazy is mixing
    assert np.linalg.eigvalsh(mixing.lazy.matrix.toarray())[0] >= -1e-12
    assert mixing.lazy.lazy is mixing.lazy


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_the_best_constant_is_the_best_of_a_grid(graph):
    L = dense_laplacian(graph)

    def gap(constant):
        return 1 - np.sort(np.abs(np.linalg.eigvalsh(np.eye(graph.m) - constant * L)))[-2]

    best = best_constant(graph)
    constant = -best.matrix.toarray()[tuple(graph.edges[0])] / L[tuple(graph.edges[0])]
    assert best.spectral_gap == pytest.approx(gap(constant))
    assert all(gap(constant * factor) < best.spectral_gap for factor in (0.5, 0.8, 0.95, 1.05, 1.2, 1.5))
    assert max(gap(c) for c in np.linspace(0.01, 2, 400) / graph.laplacian_norm) <= best.spectral_gap + 1e-12


def test_known_spectra():
    assert metropolis(gs.Graph.complete(5)).spectral_gap == pytest.approx(1)
    m = 8
    ring = metropolis(gs.Graph.ring(m))
    assert ring.second == pytest.approx((1 + 2 * np.cos(2 * np.pi / m)) / 3)
    assert ring.least == pytest.approx(-1 / 3)
    hypercube = laplacian(gs.Graph.hypercube(4))
    assert hypercube.second == pytest.approx(1 - 2 / 8)


def test_a_bound_on_the_norm_makes_a_lazier_matrix():
    graph = gs.Graph.star(6)
    mixing = laplacian(graph, norm=12.0)
    np.testing.assert_allclose(mixing.matrix.toarray(), np.eye(6) - dense_laplacian(graph) / 12, atol=1e-15)
    assert mixing.least == pytest.approx(1 - 6 / 12)


def test_metropolis_does_not_look_at_the_weights():
    graph = GRAPHS["weighted"]
    np.testing.assert_array_equal(
        metropolis(graph).matrix.toarray(), metropolis(gs.Graph(graph.m, graph.edges)).matrix.toarray()
    )


@pytest.mark.parametrize("name", MIXINGS)
def test_a_lone_agent_keeps_what_it_has(name):
    mixing = MIXINGS[name](gs.Graph.path(1))
    np.testing.assert_array_equal(mixing.matrix.toarray(), [[1.0]])
    assert (mixing.second, mixing.least, mixing.spectral_gap) == (0.0, 1.0, 1.0)
    assert mixing.lazy is mixing
    assert laplacian(gs.Graph.path(1), norm=0.0).matrix.toarray() == [[1.0]]


@pytest.mark.parametrize("name", MIXINGS)
def test_two_agents_take_the_mean(name):
    mixing = MIXINGS[name](gs.Graph.path(2))
    np.testing.assert_allclose(mixing.matrix.toarray(), np.full((2, 2), 0.5), atol=1e-14)
    assert mixing.spectral_gap == pytest.approx(1)


@pytest.mark.parametrize("name", MIXINGS)
def test_large_networks_need_no_dense_matrix(name, monkeypatch):
    def refuse(*given):
        raise AssertionError("dense work")

    monkeypatch.setattr(spectrum, "all_eigenvalues", refuse)
    m = 2_000
    graph = gs.Graph.ring(m)
    mixing = MIXINGS[name](graph)
    W = mixing.matrix
    assert W.nnz <= 3 * m
    np.testing.assert_allclose(W.sum(axis=1), 1, atol=1e-13)
    share = -W[0, 1] / -1.0
    eigenvalues = 1 - share * (2 - 2 * np.cos(2 * np.pi * np.arange(m) / m))
    second, least = np.sort(eigenvalues)[-2], eigenvalues.min()
    assert 1 - mixing.second == pytest.approx(1 - second, rel=1e-2)
    assert mixing.least == pytest.approx(least, abs=2e-4)
    assert (mixing.lazy is mixing) == (name == "laplacian")


def test_a_matrix_that_is_lazy_already_is_not_halved_for_what_is_not_known_better():
    """From m = 1,000 on the largest eigenvalue is known to 1e-4, from above: the least of W seems negative."""
    graph = gs.Graph.random(1_200, 6, seed=1)
    exact = float(np.linalg.eigvalsh(graph.laplacian.toarray())[-1])
    mixing = laplacian(graph, exact)
    assert -1e-3 < mixing.least < -1e-12
    assert mixing.lazy is mixing


def test_matrices_are_kept_and_cannot_be_changed():
    graph = gs.Graph.ring(6)
    mixing = metropolis(graph)
    assert metropolis(gs.Graph.ring(6)) is mixing
    assert mixing.matrix is mixing.matrix
    with pytest.raises(ValueError, match="read-only"):
        mixing.matrix.data[0] = 2.0
    assert repr(mixing).startswith("Mixing(m=6, second=0.66666")


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 12), st.integers(0, 10_000))
def test_any_graph_has_doubly_stochastic_matrices(m, seed):
    rng = np.random.default_rng(seed)
    tree = [(int(rng.integers(j)), j) for j in range(1, m)]
    pairs = set(tree) | {(i, j) for i in range(m) for j in range(i + 1, m) if rng.random() < 0.2}
    graph = gs.Graph.from_edges(m, sorted(pairs), rng.uniform(0.1, 3, size=len(pairs)))
    assert nx.is_connected(nx.Graph(list(pairs)))
    for name, make in MIXINGS.items():
        W = make(graph).matrix.toarray()
        np.testing.assert_allclose(W, naive(name, graph), atol=1e-10)
        assert -1 - 1e-9 <= np.linalg.eigvalsh(W)[0]


def test_mistakes_are_refused():
    check_message(lambda: require_mixing("metropolys"), ["mixing", "did you mean 'metropolis'?"])
    check_message(lambda: require_mixing(None), ["mixing", "choose one of best_constant, laplacian, metropolis"])
    for norm in (0.0, -1.0, float("nan"), float("inf"), "4"):
        check_message(lambda norm=norm: laplacian(gs.Graph.ring(4), norm), ["norm must be > 0", repr(norm)])
    for name in MIXINGS:
        require_mixing(name)
    assert isinstance(metropolis(gs.Graph.ring(4)), Mixing)
