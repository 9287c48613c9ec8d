"""Graph: construction and its refusals, matrices, spectrum, distances, generators."""

import pickle
import subprocess
import sys

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import DATA

import gradslide as gs
from gradslide._support.errors import InputError
from gradslide.graphs import bounded_degree, distances, spectrum
from gradslide.graphs.graph import Graph

SMALL = {
    "lone": lambda: Graph.path(1),
    "pair": lambda: Graph.path(2),
    "ring": lambda: Graph.ring(9),
    "even ring": lambda: Graph.ring(10),
    "path": lambda: Graph.path(7),
    "star": lambda: Graph.star(6),
    "complete": lambda: Graph.complete(7),
    "grid": lambda: Graph.grid(3, 5),
    "torus": lambda: Graph.torus(4, 5),
    "hypercube": lambda: Graph.hypercube(4),
    "regular": lambda: Graph.regular(12, 3, seed=1),
    "small world": lambda: Graph.small_world(20, 4, 0.3, seed=2),
    "geometric": lambda: Graph.geometric(30, seed=3),
    "random": lambda: Graph.random(30, 5, seed=4),
    "weighted": lambda: Graph.from_edges(4, [(3, 0), (1, 2), (2, 0), (0, 1)], [0.5, 2.0, 3.0, 4.0]),
}


@pytest.fixture(params=SMALL)
def graph(request):
    return SMALL[request.param]()


def as_networkx(graph):
    result = nx.Graph()
    result.add_nodes_from(range(graph.m))
    result.add_weighted_edges_from((int(u), int(v), w) for (u, v), w in zip(graph.edges, graph.weights, strict=True))
    return result


# Structure


def test_edges_are_sorted_once_each_and_oriented(graph):
    assert (graph.edges[:, 0] < graph.edges[:, 1]).all()
    assert len({tuple(pair) for pair in graph.edges.tolist()}) == len(graph.edges)
    assert graph.edges.tolist() == sorted(graph.edges.tolist())


def test_matrices_agree_with_networkx(graph):
    other = as_networkx(graph)
    expected = nx.laplacian_matrix(other, nodelist=range(graph.m)).toarray()
    np.testing.assert_allclose(graph.laplacian.toarray(), expected, atol=1e-14)
    np.testing.assert_allclose((graph.incidence @ graph.incidence.T).toarray(), expected, atol=1e-13)
    np.testing.assert_array_equal(graph.degrees, [d for _, d in other.degree])
    np.testing.assert_allclose(graph.weighted_degrees, [d for _, d in other.degree(weight="weight")])
    for i in range(graph.m):
        assert graph.neighbours(i).tolist() == sorted(other[i])
    assert graph.laplacian.dtype == graph.incidence.dtype == graph.adjacency.dtype == np.float64
    assert graph.incidence.shape == (graph.m, len(graph.edges))


def test_weights_follow_their_edges():
    graph = SMALL["weighted"]()
    assert graph.edges.tolist() == [[0, 1], [0, 2], [0, 3], [1, 2]]
    assert graph.weights.tolist() == [4.0, 3.0, 0.5, 2.0]


def test_a_lone_agent_is_a_graph():
    lone = Graph.path(1)
    assert (lone.laplacian_norm, lone.norm_bound, lone.condition, lone.diameter) == (0.0, 0.0, 1.0, 0)
    assert lone.algebraic_connectivity == np.inf
    assert lone.radius_center() == (0, 0)
    assert lone.describe()["l2"] is None
    assert Graph.from_edges(1, []) == Graph.complete(1) == Graph.hypercube(0) == Graph.regular(1, 0) == lone


def test_immutable_and_hashable_by_content():
    pairs = np.array([[1, 0], [1, 2]])
    graph = Graph.from_edges(3, pairs)
    pairs[0] = 2
    assert graph == Graph.path(3)
    assert hash(graph) == hash(Graph.path(3))
    assert graph.fingerprint == Graph.from_edges(3, [(2, 1), (0, 1)]).fingerprint
    assert graph != Graph.from_edges(3, [(0, 1), (1, 2)], [1.0, 2.0])
    assert graph != Graph.path(4)
    assert graph != "graph"
    with pytest.raises(AttributeError):
        graph.m = 4
    for array in (graph.edges, graph.weights, graph.degrees, graph.laplacian.data, graph.spectrum()):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7
    assert pickle.loads(pickle.dumps(graph)) == graph
    # The fingerprint is written into saved runs: it must not change between versions.
    assert graph.fingerprint.startswith("9512d368ca52de44")


def test_repr_and_describe():
    assert repr(Graph.star(5)) == "Graph(m=5, edges=4, max_degree=4)"
    assert "weighted" in repr(SMALL["weighted"]())
    facts = Graph.star(5).describe()
    assert (facts["m"], facts["edges"], facts["degree_min"], facts["degree_max"]) == (5, 4, 1, 4)
    assert facts["degree_mean"] == pytest.approx(1.6)
    assert (facts["diameter"], facts["diameter_bound"]) == (2, 2)
    assert (facts["lmax"], facts["l2"], facts["condition"]) == pytest.approx((5, 1, 5))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Graph.from_edges(5, [(0, 1), (2, 3)]), "connected; got 3 components; add edges"),
        (lambda: Graph.from_edges(2, []), "connected; got 2 components"),
        (lambda: Graph.from_edges(0, []), "at least 1; got 0"),
        (lambda: Graph.from_edges(2.5, [(0, 1)]), "whole number"),
        (lambda: Graph.from_edges(2, [(0, 1), (1, 1)]), r"own neighbour; got \[\[1, 1\]\]"),
        (lambda: Graph.from_edges(2, [(0, 1), (1, 0)]), r"once; got \(0, 1\) more than once"),
        (lambda: Graph.from_edges(2, [(0, 2)]), r"0 to 1; got \[2\]"),
        (lambda: Graph.from_edges(2, [(-1, 0)]), "0 to 1"),
        (lambda: Graph.from_edges(2, [(0, 1, 1.0)]), "pairs of whole numbers"),
        (lambda: Graph.from_edges(2, [(0, 1), (1,)]), "pairs of whole numbers"),
        (lambda: Graph.from_edges(2, [(0.0, 1.0)]), "pairs of whole numbers"),
        (lambda: Graph.from_edges(2, [(0, 1)], [0.0]), "positive and finite"),
        (lambda: Graph.from_edges(2, [(0, 1)], [np.nan]), "positive and finite"),
        (lambda: Graph.from_edges(2, [(0, 1)], [np.inf]), "positive and finite"),
        (lambda: Graph.from_edges(2, [(0, 1)], [1.0, 2.0]), r"shape \(1,\)"),
        (lambda: Graph.from_edges(2, [(0, 1)], ["heavy"]), "numbers"),
        (lambda: Graph.from_networkx(nx.DiGraph([(0, 1)])), "undirected"),
        (lambda: Graph.from_networkx(nx.MultiGraph([(0, 1), (1, 0)])), "more than once"),
        (lambda: Graph.from_networkx(nx.Graph()), "at least 1; got 0"),
        (lambda: Graph.from_networkx(nx.path_graph(3), weight="cost"), "attribute 'cost'"),
        (lambda: Graph.ring(0), "at least 1"),
        (lambda: Graph.grid(3, 0), "cols must be"),
        (lambda: Graph.path(3).neighbours(3), "between 0 and 2"),
        (lambda: Graph.regular(5, 3), "m \\* degree even"),
        (lambda: Graph.regular(5, 6), "below m"),
        (lambda: Graph.regular(6, 1), "degree >= 2"),
        (lambda: Graph.small_world(10, 3, 0.1), "even"),
        (lambda: Graph.small_world(10, 4, 1.5), "probability"),
        (lambda: Graph.geometric(50, radius=0.01), "connected"),
        (lambda: Graph.geometric(50, radius=-1.0), "positive"),
        (lambda: Graph.random(1, 1), "at least two agents"),
        (lambda: Graph.random(5, 1), "between 2 and m - 1 = 4; got 1"),
        (lambda: Graph.random(5, 5), "between 2 and m - 1 = 4; got 5"),
        (lambda: Graph.random(5, 2.5), "whole number"),
        (lambda: Graph.random(10, 3, edges=8), r"edges must be between m - 1 = 9 .* = 15; got 8"),
        (lambda: Graph.random(10, 3, edges=16), "edges must be between"),
        (lambda: Graph.path(2001).spectrum(), "m <= 2000; got 2001"),
    ],
)
def test_refusals(build, words):
    with pytest.raises(InputError, match=words):
        build()


def test_a_networkx_graph_will_do_for_a_graph():
    ring = nx.cycle_graph(["a", "b", "c", "d"])
    loss = gs.losses.LeastSquares(np.eye(8), np.arange(8.0), agents=4)
    problem = gs.Problem.build(ring, lambda i: loss.take([i]), mu=0.1)
    solutions = [gs.solve(problem, each, stop=gs.Stop(iterations=5)) for each in (ring, Graph.ring(4))]
    np.testing.assert_array_equal(solutions[0].x, solutions[1].x)
    assert gs.network.Local(ring).graph == Graph.ring(4)
    assert gs.network.Lossy(ring, 0.1).graph == Graph.ring(4)


def test_networkx_is_not_imported_to_find_that_out():
    code = "import sys, gradslide as gs; gs.network.Local(gs.Graph.ring(3)); print('networkx' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "False"


def test_from_networkx_numbers_nodes_in_order():
    other = nx.Graph()
    other.add_edge("b", "a", cost=2.0)
    other.add_edge("a", "c", cost=3.0)
    graph = Graph.from_networkx(other, weight="cost")
    assert graph == Graph.from_edges(3, [(0, 1), (1, 2)], [2.0, 3.0])
    assert Graph.from_networkx(other) == Graph.path(3)


def test_load(tmp_path):
    file = tmp_path / "net.edges"
    file.write_text("# a network\n0 1\n\n2 1  # the last\n")
    assert Graph.load(file) == Graph.path(3)
    file.write_text("0 1 2.5\n1 2 1")
    assert Graph.load(file) == Graph.from_edges(3, [(0, 1), (1, 2)], [2.5, 1.0])
    for text, words in [
        ("0 1\n1 x\n", "line 2 of .* got '1 x'"),
        ("0 1\n1 2 3\n", "line 2"),
        ("0\n", "line 1"),
        ("0 1 2 3\n", "line 1"),
        ("# nothing\n", "must hold edges"),
        ("1 2\n2 3\n", "counted from 0; got 1"),
    ]:
        file.write_text(text)
        with pytest.raises(InputError, match=words):
            Graph.load(file)


@pytest.mark.skipif(not (DATA / "networks").is_dir(), reason="the reference networks are not in the data directory")
@pytest.mark.parametrize(("name", "degree", "edges"), [("G1", 4, 150), ("G2", 9, 235), ("G3", 20, 640)])
def test_reference_networks(name, degree, edges):
    graph = Graph.load(DATA / "networks" / f"{name}.edges")
    assert (graph.m, graph.degrees.max(), len(graph.edges)) == (100, degree, edges)


# Spectrum


def test_spectrum_and_its_bounds(graph):
    values = np.linalg.eigvalsh(graph.laplacian.toarray())
    np.testing.assert_allclose(graph.spectrum(), values, atol=1e-12)
    assert graph.laplacian_norm == pytest.approx(values[-1], abs=1e-12)
    assert graph.laplacian_norm <= graph.norm_bound * (1 + 1e-12)
    if graph.m > 1:
        assert graph.algebraic_connectivity == pytest.approx(values[1])
        assert graph.condition == pytest.approx(values[-1] / values[1])


def ring_spectrum(m):
    return 2 - 2 * np.cos(2 * np.pi * np.arange(m) / m)


def path_spectrum(m):
    return 2 - 2 * np.cos(np.pi * np.arange(m) / m)


@pytest.mark.parametrize(
    ("build", "lmax", "l2"),
    [
        (lambda: Graph.ring(5001), ring_spectrum(5001).max(), ring_spectrum(5001)[1]),
        (lambda: Graph.path(4000), path_spectrum(4000).max(), path_spectrum(4000)[1]),
        (lambda: Graph.grid(40, 70), path_spectrum(40).max() + path_spectrum(70).max(), path_spectrum(70)[1]),
        (
            lambda: Graph.torus(41, 71),
            ring_spectrum(41).max() + ring_spectrum(71).max(),
            ring_spectrum(71)[1],
        ),
        (lambda: Graph.star(3000), 3000.0, 1.0),
        (lambda: Graph.complete(1200), 1200.0, 1200.0),
        (lambda: Graph.hypercube(12), 24.0, 2.0),
    ],
    ids=["ring", "path", "grid", "torus", "star", "complete", "hypercube"],
)
def test_sparse_eigenvalues_against_closed_forms(build, lmax, l2):
    graph = build()
    assert lmax * (1 - 1e-12) <= graph.laplacian_norm <= min(lmax * (1 + 1.1e-4), graph.norm_bound)
    assert graph.algebraic_connectivity == pytest.approx(l2, rel=1e-7)


@pytest.mark.first(2)
@pytest.mark.parametrize(
    "build",
    [
        lambda: Graph.random(1500, 4, seed=1),
        lambda: Graph.random(1500, 3, seed=1, edges=1499),
        lambda: Graph.random(1500, 20, seed=1),
        lambda: Graph.regular(1500, 3, seed=1),
        lambda: Graph.small_world(1500, 4, 0.1, seed=1),
        lambda: Graph.geometric(1500, seed=1),
        lambda: Graph.from_edges(
            1500, Graph.random(1500, 6, seed=2).edges, np.random.default_rng(0).uniform(0.01, 10, 2250)
        ),
    ],
    ids=["sparse", "tree", "dense", "regular", "small world", "geometric", "weighted"],
)
def test_sparse_eigenvalues_against_dense(build):
    graph = build()
    exact = spectrum.all_eigenvalues(graph.laplacian)
    assert exact[-1] * (1 - 1e-12) <= graph.laplacian_norm <= exact[-1] * (1 + 1.1e-4)
    assert graph.algebraic_connectivity == pytest.approx(exact[1], rel=1e-6)
    assert build().algebraic_connectivity == graph.algebraic_connectivity


def test_conjugate_gradients_stand_in_when_lanczos_stalls(monkeypatch):
    import scipy.sparse.linalg as linalg

    graph = Graph.random(1500, 4, seed=1)
    exact = graph.algebraic_connectivity
    eigsh = linalg.eigsh

    def stalls_on_smallest(*args, **options):
        if options["which"] == "SA":
            raise linalg.ArpackNoConvergence("no convergence", np.empty(0), np.empty((0, 0)))
        return eigsh(*args, **options)

    monkeypatch.setattr(linalg, "eigsh", stalls_on_smallest)
    assert spectrum.second_eigenvalue(graph.laplacian, graph.norm_bound, graph.m) == pytest.approx(exact, rel=1e-6)


# Distances


def test_distances_agree_with_networkx(graph):
    other = as_networkx(graph)
    exact = nx.eccentricity(other)
    assert distances.eccentricities(graph.adjacency).tolist() == [exact[i] for i in range(graph.m)]
    assert graph.diameter == graph.diameter_bound == max(exact.values())
    center, radius = graph.radius_center()
    assert radius == min(exact.values()) == exact[center]
    lengths = nx.single_source_shortest_path_length(other, graph.m // 2)
    assert distances.hop_distances(graph.adjacency, graph.m // 2).tolist() == [lengths[i] for i in range(graph.m)]


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    m=st.integers(3, 150),
    max_degree=st.integers(2, 6),
    seed=st.integers(0, 10**6),
    searches=st.integers(0, 48),
)
def test_estimated_extent_encloses_the_exact_one(m, max_degree, seed, searches):
    graph = Graph.random(m, min(max_degree, m - 1), seed=seed)
    exact, guess = graph._extent, distances.estimated_extent(graph.adjacency, searches)
    assert guess.diameter_low <= exact.diameter_low == graph.diameter <= guess.diameter_high
    assert guess.diameter_high <= 2 * graph.diameter
    assert exact.radius <= guess.radius == distances.hop_distances(graph.adjacency, guess.center).max()


def test_eccentricities_in_several_batches(monkeypatch):
    graph = Graph.random(300, 3, seed=0)
    whole = distances.eccentricities(graph.adjacency)
    monkeypatch.setattr(distances, "_GATHER_WORDS", 1)
    np.testing.assert_array_equal(distances.eccentricities(graph.adjacency), whole)


def test_diameter_of_large_graphs():
    assert Graph.grid(60, 50).diameter == 108
    assert Graph.ring(3001).diameter == 1500
    assert Graph.path(2500).diameter == 2499
    assert Graph.path(2500).radius_center()[1] == 1250
    expander = Graph.regular(2500, 3, seed=0)
    with pytest.raises(InputError, match="use diameter_bound"):
        _ = expander.diameter
    assert expander.describe()["diameter"] is None
    assert distances.eccentricities(expander.adjacency).max() <= expander.diameter_bound


# Generators


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (Graph.ring(8), nx.cycle_graph(8)),
        (Graph.ring(2), nx.path_graph(2)),
        (Graph.path(8), nx.path_graph(8)),
        (Graph.star(8), nx.star_graph(7)),
        (Graph.complete(6), nx.complete_graph(6)),
        (Graph.grid(3, 4), nx.grid_2d_graph(3, 4)),
        (Graph.grid(1, 4), nx.path_graph(4)),
        (Graph.torus(3, 4), nx.grid_2d_graph(3, 4, periodic=True)),
        (Graph.torus(2, 3), nx.grid_2d_graph(2, 3, periodic=True)),
        (Graph.torus(1, 5), nx.cycle_graph(5)),
        (Graph.hypercube(3), nx.hypercube_graph(3)),
    ],
)
def test_named_networks_equal_networkx(graph, expected):
    assert graph == Graph.from_networkx(expected)


@pytest.mark.parametrize(("m", "degree"), [(2, 1), (3, 2), (9, 2), (10, 3), (101, 4), (30, 15), (60, 57), (8, 7)])
def test_regular(m, degree):
    graph = Graph.regular(m, degree, seed=5)
    assert (graph.degrees == degree).all()
    assert graph == Graph.regular(m, degree, seed=5)


@pytest.mark.parametrize("build", [Graph.small_world, Graph.geometric, lambda m, seed: Graph.random(m, 4, seed)])
def test_seeds(build):
    assert build(50, seed=1) == build(50, seed=1) == build(50, seed=np.random.default_rng(1))
    assert build(50, seed=1) != build(50, seed=2)


def test_small_world_keeps_its_edge_count():
    assert len(Graph.small_world(40, 6, 0.5, seed=0).edges) == 120
    assert (Graph.small_world(40, 6, 0.0).degrees == 6).all()


@pytest.mark.parametrize("m", [1, 2, 3, 10, 500])
def test_geometric_finds_a_radius_that_connects(m):
    assert Graph.geometric(m, seed=0).m == m


@pytest.mark.parametrize(
    ("m", "max_degree", "edges"),
    [
        (100, 4, 150),
        (100, 9, 235),
        (100, 20, 640),
        (100, 4, 200),
        (100, 3, 150),
        (11, 5, 27),
        (50, 2, 49),
        (50, 2, 50),
        (50, 49, 49),
        (20, 19, 190),
        (60, 7, 59),
        (2, 1, 1),
        (3, 2, 3),
        (4, 3, 6),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_random_meets_degree_and_edges(m, max_degree, edges, seed):
    graph = Graph.random(m, max_degree, seed=seed, edges=edges)
    assert (graph.m, graph.degrees.max(), len(graph.edges)) == (m, max_degree, edges)
    assert graph == Graph.random(m, max_degree, seed=seed, edges=edges)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(st.data())
def test_random_reaches_every_admissible_count(data):
    m = data.draw(st.integers(3, 24))
    max_degree = data.draw(st.integers(2, m - 1))
    most = m * max_degree // 2
    edges = data.draw(st.one_of(st.none(), st.just(most), st.integers(m - 1, most)))
    graph = Graph.random(m, max_degree, seed=data.draw(st.integers(0, 1000)), edges=edges)
    assert graph.degrees.max() == max_degree
    assert edges is None or len(graph.edges) == edges


def test_random_puts_the_hub_anywhere():
    hubs = {int(Graph.random(30, 12, seed=seed, edges=29).degrees.argmax()) for seed in range(20)}
    assert len(hubs) > 8


def test_random_default_edge_count_follows_erdos_renyi():
    # Degree 9 and 20 are what a sparse Erdos-Renyi graph has; degree 4 needs the floor to be connected.
    assert bounded_degree.default_edges(100, 4) == 150
    for degree in (9, 20):
        count = bounded_degree.default_edges(100, degree)
        p = 2 * count / (100 * 99)
        largest = [max(d for _, d in nx.gnp_random_graph(100, p, seed=s).degree) for s in range(300)]
        assert np.mean(np.array(largest) <= degree) == pytest.approx(0.5, abs=0.12)
    assert bounded_degree.default_edges(10, 9) == 45
    assert bounded_degree.default_edges(50, 2) == 49


def test_random_at_scale():
    graph = Graph.random(100_000, 4, seed=1)
    assert (graph.degrees.max(), len(graph.edges)) == (4, 150_000)


def test_radius():
    for graph, radius in ((gs.Graph.ring(7), 3), (gs.Graph.star(9), 1), (gs.Graph.path(5), 2), (gs.Graph.ring(8), 4)):
        assert graph.radius == graph.radius_center()[1] == radius
