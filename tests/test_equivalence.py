"""Equal iterates: agent view = network view, edge form = node form, stacked = one by one."""

from itertools import islice

import numpy as np
import pytest
from problems import least_squares, logistic

import gradslide as gs


def setting(mu=0.0, domain=None, graph=None, seed=0):
    rng = np.random.default_rng(seed)
    graph = graph or gs.Graph.random(7, 3, seed=2)
    loss = logistic(rng, graph.m, 4)
    return gs.Problem(loss, domain or gs.domains.L2Ball(0.5), mu), graph


def iterates(problem, graph, method, iterations):
    """The method's state after each outer iteration, from the outputs that `solve` sees."""
    seen = []

    class Spy:
        coupling = method.coupling

        def init(self, context):
            return method.init(context)

        def step(self, context, state):
            state = method.step(context, state)
            seen.append(state)
            return state

        def output(self, state):
            return method.output(state)

    gs.solve(problem, graph, Spy(), stop=gs.Stop(iterations=iterations))
    return seen


class Agent:
    """Agent i of Algorithm 1, straight from the paper. It knows its loss, its row of the Laplacian, and its inbox."""

    def __init__(self, i, problem, graph):
        self.loss = problem.loss.take([i])
        self.domain = problem.domain.take([i])
        self.mu = problem.mu
        laplacian = graph.laplacian.toarray()
        self.row = {j: laplacian[i, j] for j in np.flatnonzero(laplacian[i])}
        start = problem.start()[i]
        self.x = self.x_prev = self.x_before = self.x_hat = self.x_under = self.x_bar = start
        self.z = np.zeros_like(start)
        self.S = 0.0

    def weigh(self, inbox):
        """sum over the neighbourhood of L^(i,j) times what j sent"""
        return sum(self.row[j] * inbox[j] for j in self.row)

    def begin(self, row):
        self.x_tilde = self.x + row.lam * (self.x_hat - self.x_prev)
        self.x_under = (self.x_tilde + row.tau * self.x_under) / (1 + row.tau)
        self.y = self.loss.gradient(self.x_under[None])[0]
        self.anchor, self.inner = self.x, []

    def extrapolate(self, alpha):
        return self.x + alpha * (self.x - self.x_before)

    def ascend(self, inbox, q):
        self.z = self.z + self.weigh(inbox) / q
        return self.z

    def descend(self, inbox, eta, p):
        theta = (
            eta * self.domain.grad_nu(self.x[None])[0]
            + p * self.domain.grad_nu(self.anchor[None])[0]
            - self.y
            - self.weigh(inbox)
        )
        self.x_before, self.x = self.x, self.domain.prox(theta[None], self.mu + eta + p)[0]
        self.inner.append(self.x)

    def end(self, row):
        self.x_prev, self.x_hat = self.anchor, np.mean(self.inner, axis=0)
        self.x_bar = (self.S * self.x_bar + row.beta * self.x_hat) / (self.S + row.beta)
        self.S += row.beta


def neighbourhood(agents, messages, i):
    return {j: messages[j] for j in agents[i].row}


@pytest.mark.parametrize("mu", [0.0, 0.3])
def test_agent_view_equals_network_view(mu):
    problem, graph = setting(mu)
    L, R = 3.0, 4.0
    schedule = gs.schedules.theorem_1(L=L, mu=mu, A_norm=graph.laplacian_norm, R=R)
    agents = {i: Agent(i, problem, graph) for i in range(graph.m)}
    states = iterates(problem, graph, gs.PDS(L=L, R=R, coupling="laplacian"), 12)
    for row, state in zip(islice(schedule.rows(), 12), states, strict=True):
        assert row.stage == 0
        for agent in agents.values():
            agent.begin(row)
        for t in range(1, row.T + 1):
            sent = {i: agent.extrapolate(row.alpha(t)) for i, agent in agents.items()}
            sent = {i: agent.ascend(neighbourhood(agents, sent, i), row.q) for i, agent in agents.items()}
            for i, agent in agents.items():
                agent.descend(neighbourhood(agents, sent, i), row.eta(t), row.p)
        for i, agent in agents.items():
            agent.end(row)
            for name in ("x", "x_hat", "x_under", "x_bar", "y"):
                np.testing.assert_allclose(getattr(state, name)[i], getattr(agent, name), rtol=1e-11, atol=1e-12)
            np.testing.assert_allclose(state.dual.s[i], agent.z, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("mu", [0.0, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
def test_edge_form_equals_node_form(mu, weighted):
    """z on the edges, z <- z + B^T u / q and A^T z = B z, against (s, w) on the nodes."""
    graph = gs.Graph.random(9, 4, seed=5)
    if weighted:
        graph = gs.Graph.from_edges(9, graph.edges, np.random.default_rng(1).uniform(0.5, 2.0, len(graph.edges)))
    problem, graph = setting(mu, graph=graph)
    B = graph.incidence.toarray()
    L, R, x0 = 3.0, 4.0, problem.start()
    schedule = gs.schedules.theorem_1(L=L, mu=mu, A_norm=graph.laplacian_norm**0.5, R=R)
    x = x_prev = x_before = x_hat = x_under = x0
    z = np.zeros((B.shape[1], problem.d))
    domain = problem.domain
    for row, state in zip(schedule.rows(), iterates(problem, graph, gs.PDS(L=L, R=R), 12), strict=False):
        x_under = (x + row.lam * (x_hat - x_prev) + row.tau * x_under) / (1 + row.tau)
        y, anchor, inner = problem.loss.gradient(x_under), x, []
        for t in range(1, row.T + 1):
            z = z + B.T @ (x + row.alpha(t) * (x - x_before)) / row.q
            theta = row.eta(t) * domain.grad_nu(x) + row.p * domain.grad_nu(anchor) - y - B @ z
            x, x_before = domain.prox(theta, mu + row.eta(t) + row.p), x
            inner.append(x)
        x_prev, x_hat = anchor, np.mean(inner, axis=0)
        np.testing.assert_allclose(state.x, x, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(state.dual.w, B @ z, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(B.T @ state.dual.s, z, rtol=1e-10, atol=1e-12)
        edge_norm = float(np.sum(z * z)) ** 0.5
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
