"""Equal iterates: agent view = network view, edge form = node form, stacked = one by one."""

from itertools import islice

import numpy as np
import pytest
from paper_twins import agent_view, check_iterates, edge_form, iterates
from problems import least_squares, logistic

import gradslide as gs


def setting(mu=0.0, domain=None, graph=None, seed=0):
    rng = np.random.default_rng(seed)
    graph = graph or gs.Graph.random(7, 3, seed=2)
    loss = logistic(rng, graph.m, 4)
    return gs.Problem(loss, domain or gs.domains.L2Ball(0.5), mu), graph


@pytest.mark.parametrize("mu", [0.0, 0.3])
def test_agent_view_equals_network_view(mu):
    problem, graph = setting(mu)
    L, R = 3.0, 4.0
    rows = list(islice(gs.schedules.theorem_1(L=L, mu=mu, A_norm=graph.laplacian_norm, R=R).rows(), 12))
    assert all(row.stage == 0 for row in rows)
    states = iterates(problem, graph, gs.PDS(L=L, R=R, coupling="laplacian"), gs.Stop(iterations=12))
    for view, state in zip(agent_view(problem, graph, rows), states, strict=True):
        check_iterates(state, view, rtol=1e-11)
        np.testing.assert_allclose(state.dual.s, view.z, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("mu", [0.0, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
def test_edge_form_equals_node_form(mu, weighted):
    """z on the edges against (s, w) on the nodes."""
    graph = gs.Graph.random(9, 4, seed=5)
    if weighted:
        graph = gs.Graph.from_edges(9, graph.edges, np.random.default_rng(1).uniform(0.5, 2.0, len(graph.edges)))
    problem, graph = setting(mu, graph=graph)
    B = graph.incidence.toarray()
    L, R = 3.0, 4.0
    rows = islice(gs.schedules.theorem_1(L=L, mu=mu, A_norm=graph.laplacian_norm**0.5, R=R).rows(), 12)
    states = iterates(problem, graph, gs.PDS(L=L, R=R), gs.Stop(iterations=12))
    for view, state in zip(edge_form(problem, graph, rows), states, strict=True):
        check_iterates(state, view, rtol=1e-10)
        np.testing.assert_allclose(state.dual.w, B @ view.z, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(B.T @ state.dual.s, view.z, rtol=1e-10, atol=1e-12)
        edge_norm = float(np.sum(view.z**2)) ** 0.5
        node_norm = gs.coupling.Incidence(gs.network.Local(graph)).dual_norm(state.dual)
        assert node_norm == pytest.approx(edge_norm, rel=1e-9)


def test_per_agent_domains_equal_the_stacked_domain():
    rng = np.random.default_rng(4)
    radii = rng.uniform(0.2, 1.0, size=7)
    one_each = gs.domains.PerAgent([gs.domains.L2Ball(radius) for radius in radii])
    runs = []
    for domain in (one_each, gs.domains.L2Ball(radii)):
        problem, graph = setting(domain=domain)
        runs.append(gs.solve(problem, graph, gs.PDS(L=3.0, R=1.0), stop=gs.Stop(iterations=20)).x)
    np.testing.assert_array_equal(*runs)


def test_build_equals_the_problem_with_all_data():
    problem, graph = setting()
    network = gs.network.Local(graph)
    asked = []

    def builder(i):
        asked.append(i)
        return problem.loss.take([i]), gs.domains.L2Ball(0.5)

    built = gs.Problem.build(network, builder)
    assert asked == list(range(graph.m))
    method, stop = gs.PDS(L=3.0, R=1.0), gs.Stop(iterations=20)
    one, other = gs.solve(problem, graph, method, stop=stop), gs.solve(built, network, method, stop=stop)
    np.testing.assert_allclose(one.x, other.x, rtol=1e-12, atol=1e-14)


def test_sparse_features_give_the_same_run():
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    features = rng.normal(size=(40, 5)) * (rng.random((40, 5)) < 0.4)
    targets = rng.normal(size=40)
    runs = []
    for kind in (np.asarray, sp.csr_array):
        loss = gs.losses.LeastSquares(kind(features), targets, agents=6)
        runs.append(gs.solve(gs.Problem(loss), gs.Graph.ring(6), gs.PDS(R=0.5), stop=gs.Stop(iterations=30)).x)
    np.testing.assert_allclose(*runs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("coupling", ["incidence", "laplacian"])
def test_float32_stays_float32_and_float64_stays_float64(coupling):
    for dtype in (np.float32, np.float64):
        rng = np.random.default_rng(0)
        double = least_squares(rng, 6, 3)
        loss = gs.losses.LeastSquares(
            rng.normal(size=(18, 3)).astype(dtype), rng.normal(size=18).astype(dtype), agents=6
        )
        assert double.dtype == np.float64
        solution = gs.solve(
            gs.Problem(loss, gs.domains.Box(-1, 1)),
            gs.Graph.ring(6),
            gs.PDS(coupling=coupling),
            stop=gs.Stop(iterations=5),
        )
        assert solution.x.dtype == dtype
        assert solution.dual.dtype == dtype
        assert all(array.dtype == dtype for array in solution.outputs.values())
