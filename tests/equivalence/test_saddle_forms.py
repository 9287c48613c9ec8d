"""Equal iterates: constraints that say "all agents agree" = the network; Algorithm 5 as printed = the library; SPDS
without noise = PDS. And what an iteration costs."""

from itertools import islice, pairwise

import numpy as np
import pytest
import saddle_problems
from paper_twins import iterates, theorem_2_rows
from problems import least_squares, logistic
from saddle_problems import constrained_case
from scipy.optimize import minimize

import gradslide as gs

DOMAINS = {
    "free": gs.domains.Free(),
    "box": gs.domains.Box(-0.2, 0.3),
    "ball": gs.domains.L2Ball(0.5),
    "entropy": gs.domains.EntropySimplex(),
    "l1 penalty": gs.domains.Free(penalty=gs.L1(0.2)),
    "one each": gs.domains.PerAgent([gs.domains.L2Ball(0.3), gs.domains.Box(-1, 1), *[gs.domains.NonNegative()] * 5]),
}
GRAPH = gs.Graph.random(7, 3, seed=2)


def operator_of(graph, coupling, d):
    matrix = graph.incidence.toarray().T if coupling == "incidence" else graph.laplacian.toarray()
    return np.kron(matrix, np.eye(d))


def assert_same_run(loss, domain, mu, coupling, method, iterations, rtol=1e-9):
    A = operator_of(GRAPH, coupling, loss.d)
    networked = iterates(gs.Problem(loss, domain, mu), GRAPH, method, gs.Stop(iterations=iterations))
    central = iterates(gs.LinearlyConstrained(loss, A, 0.0, domain, mu), None, method, gs.Stop(iterations=iterations))
    assert len(networked) == len(central) == iterations
    for there, here in zip(networked, central, strict=True):
        for name in ("x", "x_hat", "x_bar", "x_under", "y"):
            np.testing.assert_allclose(getattr(here, name), getattr(there, name), rtol=rtol, atol=1e-11)
        for dual in ("dual", "dual_bar"):
            w = getattr(there, dual).w
            np.testing.assert_allclose(getattr(here, dual).w, w, rtol=rtol, atol=1e-11)
            np.testing.assert_allclose((A.T @ getattr(here, dual).s[0]).reshape(w.shape), w, rtol=rtol, atol=1e-10)
    # A run in which nothing happens would agree as well.
    assert np.ptp(central[-1].x_bar) > 0
    assert np.any(central[-1].dual.w != 0)


@pytest.mark.covering
@pytest.mark.parametrize("coupling", ["incidence", "laplacian"])
@pytest.mark.parametrize("mu", [0.0, 0.3])
@pytest.mark.parametrize("name", DOMAINS)
def test_constraints_that_make_all_agents_agree_are_the_network(name, mu, coupling):
    loss = logistic(np.random.default_rng(0), GRAPH.m, 4)
    A_norm = GRAPH.laplacian_norm if coupling == "laplacian" else GRAPH.laplacian_norm**0.5
    method = gs.PDS(L=3.0, R=1.5, coupling=coupling, norm=A_norm)
    assert_same_run(loss, DOMAINS[name], mu, coupling, method, 15)


@pytest.mark.parametrize("coupling", ["incidence", "laplacian"])
def test_they_are_over_several_stages(coupling):
    loss = least_squares(np.random.default_rng(1), GRAPH.m, 3)
    method = gs.PDS(L=3.0, R=1.0, coupling=coupling, norm=8.0, growth=2.0)
    schedule = gs.schedules.theorem_1(L=3.0, mu=2.0, A_norm=8.0, R=1.0, growth=2.0)
    iterations = 2 * schedule.stage_length + 2
    assert schedule.row(iterations).stage == 2
    assert_same_run(loss, DOMAINS["ball"], 2.0, coupling, method, iterations)


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_they_are_for_linear_losses(mu):
    loss = gs.losses.Linear(np.random.default_rng(2).normal(size=(GRAPH.m, 3)))
    assert_same_run(loss, DOMAINS["box"], mu, "incidence", gs.PDS(R=0.7, norm=3.0), 20)


def test_another_right_hand_side_is_another_run():
    """The comparison above can fail."""
    loss = logistic(np.random.default_rng(0), GRAPH.m, 4)
    A = operator_of(GRAPH, "incidence", 4)
    method, stop = gs.PDS(L=3.0, R=1.5, norm=3.0), gs.Stop(iterations=5)
    same, other = (gs.solve(gs.LinearlyConstrained(loss, A, b), method=method, stop=stop) for b in (0.0, 1e-3))
    assert np.max(np.abs(same.x - other.x)) > 1e-7


def algorithm_5(problem, rows, argmin_z, argmin_x):
    """As in the paper; x and z flat, each step by the argmin that it is given. y_k is the gradient at x_under_k."""
    x = x_prev = x_before = x_hat = x_under = x_bar = problem.start()[0]
    z = z_bar = problem.duals.start()[0]
    A, S = problem.A.matrix, 0.0
    for row in rows:
        if row.k == 1:
            # A new stage starts at the averages.
            x = x_prev = x_before = x_hat = x_under = x_bar
            z, S = z_bar, 0.0
        x_tilde = x + row.lam * (x_hat - x_prev)
        x_under = (x_tilde + row.tau * x_under) / (1 + row.tau)
        y = problem.loss.gradient(x_under[None])[0]
        anchor, xs, zs = x, [], []
        for t in range(1, row.T + 1):
            u = x + row.alpha(t) * (x - x_before)
            z = argmin_z(A @ u, row.q, z)
            x, x_before = argmin_x(y + A.T @ z, row.eta(t), x, row.p, anchor), x
            xs.append(x)
            zs.append(z)
        x_prev, x_hat = anchor, np.mean(xs, axis=0)
        x_bar, z_bar = (
            (S * bar + row.beta * new) / (S + row.beta) for bar, new in ((x_bar, x_hat), (z_bar, np.mean(zs, axis=0)))
        )
        S += row.beta
        yield {"x": x, "x_hat": x_hat, "x_bar": x_bar, "y": y, "z": z, "z_bar": z_bar}


def check_against_algorithm_5(problem, argmin_z, argmin_x, tolerance, iterations=8, growth=64.0):
    rng = np.random.default_rng(0)
    L, R, A_norm = float(problem.smoothness()[0]), rng.uniform(0.5, 1.0), problem.operator_norm()
    schedule = gs.schedules.theorem_1(L=L, mu=problem.mu, A_norm=A_norm, R=R, growth=growth)
    rows = islice(schedule.rows(), iterations)
    states = iterates(problem, None, gs.PDS(L=L, R=R, norm=A_norm, growth=growth), gs.Stop(iterations=iterations))
    for view, state in zip(algorithm_5(problem, rows, argmin_z, argmin_x), states, strict=True):
        for name in ("x", "x_hat", "x_bar", "y"):
            np.testing.assert_allclose(getattr(state, name)[0], view[name], atol=tolerance)
        np.testing.assert_allclose(state.dual.s[0], view["z"], atol=tolerance)
        np.testing.assert_allclose(state.dual_bar.s[0], view["z_bar"], atol=tolerance)
    return schedule.row(iterations).stage


@pytest.mark.parametrize("mu", [0.0, 0.4])
def test_entropy_on_both_sides_is_algorithm_5_as_printed(mu):
    rng = np.random.default_rng(3)
    root = rng.normal(size=(4, 4))
    b = rng.normal(size=5)
    problem = gs.Saddle(
        gs.losses.Quadratic(root @ root.T, rng.normal(size=4)),
        rng.normal(size=(5, 4)),
        gs.terms.Linear(b),
        gs.domains.EntropySimplex(),
        gs.domains.EntropySimplex(),
        mu,
    )

    def normalised(weights):
        return weights / np.sum(weights)

    def argmin_z(Au, q, z):
        return normalised(z * np.exp((Au - b) / q))

    def argmin_x(g, eta, x, p, anchor):
        # nu = sum x log(4 x), whose centre is uniform.
        logs = (eta * np.log(x) + p * np.log(anchor) + mu * np.log(1 / 4) - g) / (mu + eta + p)
        return normalised(np.exp(logs))

    check_against_algorithm_5(problem, argmin_z, argmin_x, 1e-10)
    if mu > 0:
        assert check_against_algorithm_5(problem, argmin_z, argmin_x, 1e-9, iterations=40, growth=1.5) >= 1


@pytest.mark.parametrize("mu", [0.0, 0.4])
def test_a_ball_and_a_box_are_algorithm_5_with_steps_by_a_general_solver(mu):
    rng = np.random.default_rng(4)
    root, weight, b = rng.normal(size=(3, 3)), 0.5, rng.normal(size=2)
    problem = gs.Saddle(
        gs.losses.Quadratic(root @ root.T, rng.normal(size=3)),
        rng.normal(size=(2, 3)),
        gs.terms.Quadratic(weight, b),
        gs.domains.L2Ball(0.8),
        gs.domains.Box(-0.6, 0.4),
        mu,
    )
    ball = {"type": "ineq", "fun": lambda x: 0.64 - x @ x, "jac": lambda x: -2 * x}

    def argmin_z(Au, q, z):
        def value(v):
            return weight / 2 * v @ v + (b - Au) @ v + q / 2 * (v - z) @ (v - z)

        return minimize(
            value, z, jac=lambda v: weight * v + b - Au + q * (v - z), bounds=[(-0.6, 0.4)] * 2, tol=1e-14
        ).x

    def argmin_x(g, eta, x, p, anchor):
        def value(v):
            return mu / 2 * v @ v + g @ v + eta / 2 * (v - x) @ (v - x) + p / 2 * (v - anchor) @ (v - anchor)

        def slope(v):
            return mu * v + g + eta * (v - x) + p * (v - anchor)

        return minimize(value, x, jac=slope, constraints=[ball], method="SLSQP", options={"ftol": 1e-15}).x

    check_against_algorithm_5(problem, argmin_z, argmin_x, 1e-5)


def test_SPDS_without_noise_is_PDS_with_its_schedule():
    rng = np.random.default_rng(5)
    loss = gs.losses.LeastSquares(rng.normal(size=(20, 4)), rng.normal(size=20), agents=1)
    A = rng.normal(size=(2, 4))
    problem = gs.LinearlyConstrained(loss, A, A @ rng.normal(size=4), gs.domains.Box(-2, 2))
    N, L, R, A_norm = 12, float(loss.smoothness()[0]), 0.6, problem.operator_norm()
    sampled = gs.SPDS(N=N, R=R, c=0.0, L=L, norm=A_norm, oracle=gs.oracles.Noise(0.0))
    solution = gs.solve(problem, method=sampled)
    assert solution.status is gs.Status.COMPLETED
    assert (solution.costs.samples, solution.costs.gradients) == (N, 0)
    exact = gs.solve(problem, method=gs.PDS(L=2 * L, R=2 * R, norm=A_norm), stop=gs.Stop(iterations=N))
    rows = theorem_2_rows(N=N, L=L, mu=0.0, A_norm=A_norm, R=R, c=0.0)
    assert exact.costs.operator_products == solution.costs.operator_products == 2 * sum(row.T for row in rows)
    for name in ("average", "hat", "last"):
        np.testing.assert_allclose(solution.outputs[name], exact.outputs[name], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(solution.dual, exact.dual, rtol=1e-10, atol=1e-12)


def test_SPDS_solves_a_constrained_problem():
    case = constrained_case(1, make_loss=saddle_problems.least_squares, make_x=saddle_problems.box, sense="==", m=1)
    solution = gs.solve(case.problem, method=gs.SPDS(N=300, R=case.R, c=0.0, oracle=gs.oracles.Noise(0.0)))
    assert solution.history[-1].objective == pytest.approx(case.optimum, abs=1e-3)
    assert solution.history[-1].residual < 1e-3


class Counter:
    """A as a pair of functions that count."""

    def __init__(self, A):
        self.A, self.forward, self.adjoint = A, 0, 0

    def pair(self):
        def forward(x):
            self.forward += 1
            return self.A @ x

        def adjoint(z):
            self.adjoint += 1
            return self.A.T @ z

        return forward, adjoint


class CountingLoss:
    """A quadratic that counts its gradients and values, as a loss of one's own."""

    def __init__(self, Q):
        self.Q, self.gradients, self.values = Q, 0, 0

    def loss(self, with_value=True):
        def gradient(x):
            self.gradients += 1
            return x @ self.Q

        def value(x):
            self.values += 1
            return np.vecdot(x, x @ self.Q) / 2

        return gs.losses.Custom(
            gradient=gradient,
            value=value if with_value else None,
            smoothness=float(np.linalg.norm(self.Q, 2)),
            agents=1,
            dimension=len(self.Q),
        )


def inner_iterations(solution, N):
    known = {name: value for name, value in solution.parameters.items() if name != "growth"}
    return sum(row.T for row in islice(gs.schedules.theorem_1(**known).rows(), N))


@pytest.mark.parametrize("mu", [0.0, 0.5])
@pytest.mark.parametrize("given", [{}, {"R": 0.8}, {"R": 0.8, "norm": 4.0}])
def test_an_inner_iteration_takes_one_product_with_A_and_one_with_its_adjoint(given, mu):
    A, N = np.random.default_rng(6).normal(size=(3, 5)), 9
    counter, quadratic = Counter(A), CountingLoss(np.eye(5))
    problem = gs.LinearlyConstrained(quadratic.loss(), counter.pair(), 0.1, gs.domains.Box(-1, 1), mu)
    before = counter.forward, counter.adjoint, quadratic.gradients, quadratic.values
    solution = gs.solve(problem, method=gs.PDS(**given), stop=gs.Stop(iterations=N), record_every=N, check_loss=False)
    after = counter.forward, counter.adjoint, quadratic.gradients, quadratic.values
    forward, adjoint, gradients, values = (now - then for now, then in zip(after, before, strict=True))
    inner = inner_iterations(solution, N)
    setup = solution.costs.operator_products - 2 * inner
    assert setup == 0 if "norm" in given else setup > 0
    # Three forward products look from outside: for the last record, the certificate and the residuals, which also
    # take one with the adjoint, two gradients (one shows the units) and a value.
    forward, adjoint, gradients, values = forward - 3, adjoint - 1, gradients - 2, values - 1
    assert forward + adjoint == solution.costs.operator_products
    assert adjoint >= inner
    if "norm" in given:
        assert (forward, adjoint) == (inner, inner)
    # The default R takes a gradient beside the one at x_0, which serves the first outer iteration.
    assert gradients == solution.costs.gradients == (N if "R" in given else N + 1)
    # Two more values look from outside: for the last record and the certificate.
    assert values - 2 == solution.costs.values == N


def test_no_values_are_taken_where_no_gap_can_be_measured():
    A = np.random.default_rng(6).normal(size=(3, 5))
    for domain, mu, values in (
        (gs.domains.Free(), 0.0, 0),
        (gs.domains.NonNegative(), 0.0, 0),
        (gs.domains.Free(), 0.1, 9),
        (gs.domains.L2Ball(1.0), 0.0, 9),
    ):
        problem = gs.LinearlyConstrained(CountingLoss(np.eye(5)).loss(), A, 0.1, domain, mu)
        solution = gs.solve(problem, method=gs.PDS(R=1.0), stop=gs.Stop(iterations=9), check_loss=False)
        assert solution.costs.values == values
        assert (solution.history[-1].gap is not None) == (values > 0)


def test_a_linear_loss_takes_one_gradient():
    A = np.random.default_rng(6).normal(size=(3, 5))
    problem = gs.LinearlyConstrained(gs.losses.Linear(np.ones(5)), A, 0.1, gs.domains.Box(-1, 1))
    solution = gs.solve(problem, method=gs.PDS(R=1.0, norm=4.0), stop=gs.Stop(iterations=9))
    assert solution.costs.gradients == 1
    assert solution.costs.operator_products == 2 * sum(range(1, 10))
    products = [record.operator_products for record in solution.history]
    assert [later - earlier for earlier, later in pairwise(products)] == [2 * k for k in range(2, 10)]
