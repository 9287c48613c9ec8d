"""Couplings of agents with variables of their own: products, adjoints, norms, and what they cost."""

import numpy as np
import pytest

import gradslide as gs
from gradslide.network import coupled_rows
from gradslide.network.coupled_rows import NeighbourRows, SharedRows, agreed_dimension, fitting_rows

SIZES = (2, 1, 3, 2, 1, 2, 3)
M, D = len(SIZES), max(SIZES)
GRAPH = gs.Graph.from_edges(M, [*((i, (i + 1) % M) for i in range(M)), (0, 2), (3, 5)])
# Each constraint concerns one agent, two neighbours, or three that are neighbours of each other.
CLIQUES = [*map(tuple, GRAPH.edges.tolist()), (0, 1, 2), (3, 4, 5), (6,), (2,)]
BOTH = (SharedRows, NeighbourRows)


def problem(seed=0, dtype=float, cliques=CLIQUES):
    rng = np.random.default_rng(seed)
    blocks = [np.zeros((len(cliques), size)) for size in SIZES]
    for row, agents in enumerate(cliques):
        for i in agents:
            blocks[i][row] = rng.normal(size=SIZES[i])
    losses = [gs.losses.Quadratic(np.eye(size, dtype=dtype), rng.normal(size=size).astype(dtype)) for size in SIZES]
    lower = np.where(np.arange(len(cliques)) % 3 == 0, -np.inf, -0.1)
    return gs.Problem(losses, coupling=gs.Coupled(blocks, lower=lower, upper=rng.uniform(size=len(cliques))))


def counted(graph=GRAPH):
    costs = gs.Costs()
    return gs.network.Counted(gs.network.Local(graph), costs), costs


def dense(made):
    """[A_1, ..., A_m] in padded coordinates."""
    blocks = [np.zeros((made.coupling.k, D)) for _ in SIZES]
    for block, own in zip(blocks, made.coupling.blocks, strict=True):
        block[:, : own.shape[1]] = own.toarray()
    return np.hstack(blocks)


def rows_of(coupling, values):
    """Values of each constraint, from what its agents have; all have the same bits."""
    if isinstance(coupling, SharedRows):
        return values[0]
    found = np.full(coupling.coupled.k, np.nan)
    for agent, row in np.argwhere(coupling.coupled.participants):
        value = values[agent, coupling._plan.slots[row]]
        assert np.isnan(found[row]) or found[row] == value
        found[row] = value
    return found


@pytest.mark.parametrize("kind", BOTH)
def test_products_are_those_of_the_matrix(kind):
    made, rng = problem(), np.random.default_rng(1)
    coupling, A = kind(made, counted()[0]), dense(made)
    x = rng.normal(size=(M, D))
    np.testing.assert_allclose(rows_of(coupling, coupling.product(x)), A @ x.ravel(), atol=1e-13)
    dual = coupling.start(x)
    assert not coupling.pull(dual).any()
    z = coupling.ascend(dual, x, 2.0)
    # z+ = argmin h(z) - <A x, z> + |z|^2 for the support function h of the interval.
    v = A @ x.ravel() / 2
    expected = v - np.clip(v, made.coupling.lower / 2, made.coupling.upper / 2)
    np.testing.assert_allclose(coupling.multipliers(z), expected, atol=1e-13)
    np.testing.assert_allclose(coupling.pull(z).ravel(), A.T @ expected, atol=1e-13)
    np.testing.assert_array_equal(coupling.start(x, z.s).w, z.w)


@pytest.mark.parametrize("kind", BOTH)
def test_pull_is_adjoint_to_product(kind):
    made, rng = problem(), np.random.default_rng(2)
    coupling = kind(made, counted()[0])
    x = rng.normal(size=(M, D))
    z = coupling.ascend(coupling.start(x), rng.normal(size=(M, D)), 1.0)
    one = rows_of(coupling, coupling.product(x)) @ coupling.multipliers(z)
    assert one == pytest.approx(float(np.vdot(x, coupling.pull(z))), rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_both_take_the_same_steps(dtype):
    made, found = problem(dtype=dtype), []
    for kind in BOTH:
        coupling = kind(made, counted()[0])
        x = np.zeros((M, D), dtype=dtype)
        dual = coupling.start(x)
        for _ in range(5):
            x = x - dtype(0.1) * (made.loss.gradient(x) + coupling.pull(dual))
            dual = coupling.ascend(dual, x, 5.0)
        assert x.dtype == coupling.pull(dual).dtype == dual.s.dtype == dtype
        found.append((x, coupling.multipliers(dual)))
    assert np.abs(found[0][1]).max() > 0
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12 if dtype == np.float64 else 1e-5)


def test_the_norm_is_exact_or_a_bound(monkeypatch):
    made = problem()
    exact = np.linalg.norm(dense(made), 2)
    shared, neighbours = (kind(made, counted()[0]) for kind in BOTH)
    assert shared.norm() == pytest.approx(exact, rel=1e-9)
    assert exact <= neighbours.norm() <= np.sqrt(3) * exact
    monkeypatch.setattr(coupled_rows, "_MOST_GRAM", 5)
    assert exact <= shared.norm() <= 3 * exact


@pytest.mark.parametrize("kind", BOTH)
def test_weights_of_rows_scale_the_norm(kind, monkeypatch):
    coupling, A = kind(problem(), counted()[0]), dense(problem())
    squares = coupling.row_squares()
    np.testing.assert_allclose(rows_of(coupling, squares), np.sum(A**2, axis=1), rtol=1e-12)
    weights = np.where(squares > 0, squares, 1.0)
    exact = np.linalg.norm(A / np.linalg.norm(A, axis=1)[:, None], 2)
    assert exact * (1 - 1e-9) <= coupling.norm(weights) <= np.sqrt(3) * exact
    monkeypatch.setattr(coupled_rows, "_MOST_GRAM", 5)
    assert exact <= coupling.norm(weights) <= 3 * exact


@pytest.mark.parametrize("kind", BOTH)
def test_multipliers_are_stored_and_counted_once(kind):
    made = problem()
    coupling, z = kind(made, counted()[0]), np.random.default_rng(4).normal(size=(1, made.coupling.k))
    stored = coupling.placed(z)
    np.testing.assert_array_equal(rows_of(coupling, stored), z[0])
    dual = coupling.start(np.zeros((M, D)), stored)
    np.testing.assert_allclose(coupling.pull(dual).ravel(), dense(made).T @ z[0], atol=1e-13)
    np.testing.assert_array_equal(coupling.multipliers(dual), z[0])
    # Of several processes only one would count a shared entry; here it is all of them, each once.
    assert np.sum(coupling.counted() * stored**2) == pytest.approx(np.sum(z**2))


@pytest.mark.parametrize(("cliques", "kind"), [(CLIQUES, NeighbourRows), ([*CLIQUES, (1, 4)], SharedRows)])
def test_products_are_exchanges_where_constraints_are_between_neighbours(cliques, kind):
    network, costs = counted()
    made = problem(cliques=cliques)
    coupling = fitting_rows(made, network)
    assert type(coupling) is kind
    assert (costs.rounds, costs.control_rounds) == (0, network.costs.survey_rounds)
    x = np.random.default_rng(5).normal(size=(M, D))
    np.testing.assert_allclose(rows_of(coupling, coupling.product(x)), dense(made) @ x.ravel(), atol=1e-13)


def test_what_sums_cost():
    network, costs = counted()
    made = problem()
    coupling, k = SharedRows(made, network), made.coupling.k
    coupling.product(np.zeros((M, D)))
    links = 2 * (M - 1)
    assert (costs.rounds, costs.control_rounds, costs.floats_sent) == (2 * GRAPH.radius, 0, links * k)
    coupling.norm()
    gram = (M - 1) * (k * (k + 1) // 2 + k + 1)
    assert (costs.rounds, costs.floats_sent) == (4 * GRAPH.radius, links * k + gram)


def test_what_exchanges_cost():
    network, costs = counted()
    coupling = NeighbourRows(problem(), network)
    assert (costs.rounds, costs.control_rounds) == (0, network.costs.survey_rounds)
    surveyed = costs.floats_sent
    dual = coupling.start(np.zeros((M, D)))
    dual = coupling.ascend(dual, np.ones((M, D)), 1.0)
    coupling.ascend(dual, np.ones((M, D)), 1.0)
    assert costs.rounds == 2
    assert costs.floats_sent - surveyed == 2 * 2 * len(GRAPH.edges) * coupling.slots


def test_slots_are_about_the_rows_of_a_neighbourhood():
    """One constraint per link of a long ring: two slots would be enough for the agents, three keep neighbours apart."""
    m = 50
    ring = gs.Graph.ring(m)
    blocks = [np.zeros((m, 1)) for _ in range(m)]
    for row, (i, j) in enumerate(ring.edges):
        blocks[i][row], blocks[j][row] = 1.0, -1.0
    made = gs.Problem(gs.losses.Linear(np.ones((m, 1))), coupling=gs.Coupled(blocks, 0.0))
    coupling = NeighbourRows(made, gs.network.Local(ring))
    assert 4 <= coupling.slots <= 5
    x = np.random.default_rng(0).normal(size=(m, 1))
    np.testing.assert_allclose(rows_of(coupling, coupling.product(x)), dense_ring(ring) @ x[:, 0], atol=1e-14)


def dense_ring(ring):
    A = np.zeros((ring.m, ring.m))
    for row, (i, j) in enumerate(ring.edges):
        A[row, i], A[row, j] = 1.0, -1.0
    return A


def test_constraints_of_agents_without_a_link_are_refused():
    made = problem(cliques=[*CLIQUES, (1, 4)])
    told = f"row {len(CLIQUES)}, which concerns agents 1 and 4, without a link; add links, or use exact sums"
    with pytest.raises(gs.InputError, match=told):
        NeighbourRows(made, counted()[0])
    SharedRows(made, counted()[0])


@pytest.mark.parametrize("kind", BOTH)
def test_constraints_that_concern_nobody_are_refused_unless_0_fulfils_them(kind):
    blocks = [np.array([[1.0], [0.0], [0.0]])] * M
    losses = gs.losses.Linear(np.ones((M, 1)))
    graph = gs.Graph.complete(M)

    def made(b):
        return kind(gs.Problem(losses, coupling=gs.Coupled(blocks, b)), gs.network.Local(graph)).norm()

    assert made([1.0, 0.0, 0.0]) == pytest.approx(np.sqrt(M))
    with pytest.raises(gs.InputError, match="no entry in row 2, which must lie between 3 and 3"):
        made([1.0, 0.0, 3.0])


def test_the_dimension_of_all_is_agreed_on():
    network, costs = counted()
    assert agreed_dimension(problem(), network) == D
    assert (costs.rounds, costs.control_rounds) == (0, GRAPH.diameter)
    with pytest.raises(gs.InputError, match="the problem must have a coupling"):
        agreed_dimension(gs.Problem(gs.losses.Linear(np.ones((M, 2)))), network)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (gs.Coupled([np.ones((2, 1))], 1.0), "got different numbers of rows"),
        (gs.Coupled([np.ones((1, 1))], 2.0), "got different bounds"),
        (gs.Coupled([np.ones((1, 1))], 1.0, sense="<="), "got different bounds"),
    ],
)
def test_agents_that_were_given_different_constraints_all_learn_it(other, told):
    """Two processes, of which each sees the maximum over both."""
    loss = gs.losses.Linear([1.0])
    problems = [gs.Problem(loss, coupling=gs.Coupled([np.ones((1, 1))], 1.0)), gs.Problem(loss, coupling=other)]
    rows = []

    class Listening:
        agents = (0,)

        def agree(self, values, reduction):
            rows.append(values[0])
            return values[0]

    for each in problems:
        agreed_dimension(each, Listening())

    class Both(Listening):
        def agree(self, values, reduction):
            return np.maximum(*rows)

    for each in problems:
        with pytest.raises(gs.InputError, match=told):
            agreed_dimension(each, Both())
