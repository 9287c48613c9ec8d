"""Decentralized ADMM: against exact local solutions, its rate, its local solver, its costs, and what it refuses."""

import numpy as np
import pytest
from baselines import check_warm_start, stepped_twice
from error_messages import check_message
from multiplier_cases import GRAPHS, check_linear, errors_of, weighted
from paper_twins import iterates
from problems import huber, least_squares, logistic, quadratic, random_case

import gradslide as gs


def naive(loss, graph, x, c, mu, iterations):
    """Quadratics solved exactly, agent by agent: (Q_i + mu + 2 c deg_i) x+ = c sum_j w_ij (x_i + x_j) - phi_i - c_i."""
    W, d = graph.adjacency.toarray(), x.shape[1]
    zero = np.zeros((graph.m, d))
    linear = loss.gradient(zero)
    Q = np.stack([loss.gradient(zero + e) - linear for e in np.eye(d)], axis=2)
    phi = np.zeros_like(x)
    for _ in range(iterations):
        new = np.empty_like(x)
        for i in range(graph.m):
            pull = c * sum(W[i, j] * (x[i] + x[j]) for j in range(graph.m)) - phi[i] - linear[i]
            new[i] = np.linalg.solve(Q[i] + (mu + 2 * c * W[i].sum()) * np.eye(d), pull)
        x = new
        for i in range(graph.m):
            phi[i] += c * sum(W[i, j] * (x[i] - x[j]) for j in range(graph.m))
        yield x, phi.copy()


@pytest.mark.parametrize("mu", [0.0, 0.7])
@pytest.mark.parametrize("make_loss", [quadratic, least_squares])
def test_agents_agree_with_exact_solutions(make_loss, mu):
    graph, rng = weighted(), np.random.default_rng(1)
    loss, c, x0 = make_loss(rng, 6, 3), 0.4, rng.normal(size=(6, 3))
    method = gs.ADMM(c=c, tolerance=1e-13)
    states = iterates(gs.Problem(loss, mu=mu), graph, method, gs.Stop(iterations=20), x0=x0)
    views = naive(loss, graph, x0, c, mu, 20)
    for k, (state, (x, phi)) in enumerate(zip(states, views, strict=True), start=1):
        np.testing.assert_allclose(state.x, x, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(method.invariant(state), phi, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(method.dual(state), c * sum(s.x for s in states[:k]), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(graph.laplacian @ method.dual(state), phi, rtol=1e-7, atol=1e-9)


SETS = {
    "ball": lambda: gs.domains.L2Ball(0.5),
    "box with l1 penalty": lambda: gs.domains.Box(-0.4, 0.3, penalty=gs.L1(0.2)),
    "centred": lambda: gs.domains.Free(center=0.5, penalty=gs.ElasticNet(0.2, 0.1)),
    "simplex": gs.domains.Simplex,
    "one each": lambda: gs.domains.PerAgent(
        [gs.domains.L2Ball(0.4), gs.domains.Box(-0.3, 0.2), gs.domains.Free(penalty=gs.L1(0.3))] * 2
    ),
}


@pytest.mark.parametrize("mu", [0.0, 0.7])
@pytest.mark.parametrize("kind", SETS)
def test_every_local_problem_is_solved(kind, mu):
    """No point of a slow and plain proximal gradient method from x+ on is better: x+ is its fixed point."""
    graph = weighted()
    problem, c = gs.Problem(logistic(np.random.default_rng(0), 6, 3), SETS[kind](), mu), 0.8
    states = iterates(problem, graph, gs.ADMM(c=c), gs.Stop(iterations=6))
    W, S = graph.adjacency.toarray(), 200.0
    phi, x = np.zeros((6, 3)), problem.start()
    for state in states:
        for i in range(6):
            domain, new = problem.domain.take([i]), state.x[i : i + 1]
            slope = problem.loss.take([i]).gradient(new) + mu * domain.grad_nu(new) + phi[i]
            slope = slope + 2 * c * sum(W[i, j] * (new - (x[i] + x[j]) / 2) for j in range(6))
            again = domain.prox(S * domain.grad_nu(new) - slope, S)
            assert S * np.linalg.norm(again - new) < 1e-7
        x = state.x
        phi = phi + c * graph.laplacian @ x
        assert problem.domain.contains(x, 1e-12).all()


@pytest.mark.covering
@pytest.mark.parametrize("graph", GRAPHS, ids=str)
@pytest.mark.parametrize("make_loss", [logistic, quadratic, huber])
def test_it_converges_linearly_with_its_defaults_if_f_is_strongly_convex(make_loss, graph):
    problem = gs.Problem(make_loss(np.random.default_rng(3), graph.m, 3), mu=1.0)
    check_linear(errors_of(problem, graph, gs.ADMM(), 60, 5))


@pytest.mark.first(3)
@pytest.mark.parametrize("seed", [0, 7, 8, 9, 10, 14])
def test_it_reaches_the_optimum_under_constraints_and_penalties(seed):
    case = random_case(seed)
    last = gs.solve(case.problem, case.graph, gs.ADMM(), stop=gs.Stop(iterations=150), record_every=150).history[-1]
    assert last.objective == pytest.approx(case.reference.objective, abs=1e-4), case.label
    assert last.disagreement < 1e-2, case.label


def test_agents_with_sets_of_their_own_meet_where_the_sets_do():
    """min |x - 1|^2 over x >= 0 and x <= 1/4, one of them each."""
    sets = [gs.domains.Box(0.0, 2.0), gs.domains.Box(-1.0, 0.25), gs.domains.L2Ball(5.0)]
    loss = gs.losses.Quadratic(np.tile(2 * np.eye(2), (3, 1, 1)), np.full((3, 2), -2.0))
    problem = gs.Problem(loss, gs.domains.PerAgent(sets))
    solution = gs.solve(problem, gs.Graph.path(3), gs.ADMM(c=1.0), stop=gs.Stop(iterations=80))
    np.testing.assert_allclose(solution.x, 0.25, atol=1e-6)


# ---- the local solver


def test_a_looser_tolerance_takes_fewer_gradients_and_most_is_a_limit():
    problem, graph = gs.Problem(logistic(np.random.default_rng(0), 6, 3)), weighted()
    stop = gs.Stop(iterations=10)
    spent = [gs.solve(problem, graph, gs.ADMM(tolerance=t), stop=stop).costs.gradients for t in (1e-3, 1e-6, 1e-9)]
    assert spent[0] < spent[1] < spent[2]
    history = gs.solve(problem, graph, gs.ADMM(most=4), stop=stop).history
    assert [record.gradients for record in history] == list(range(4, 44, 4))


def test_an_agent_that_is_ready_does_not_move_on():
    """What it finds does not depend on how long its neighbours need: here the second is 1,000 times slower."""
    easy = np.diag([1.0, 0.3])
    loss = gs.losses.Quadratic(np.stack([easy, np.diag([1000.0, 1.0])]), np.ones((2, 2)))
    graph, method, stop = gs.Graph.path(2), gs.ADMM(c=0.01, tolerance=1e-4), gs.Stop(iterations=1)
    together = iterates(gs.Problem(loss), graph, method, stop)[0]
    alike = gs.losses.Quadratic(np.stack([easy, easy]), np.ones((2, 2)))
    alone = iterates(gs.Problem(alike), graph, method, stop)[0]
    np.testing.assert_array_equal(together.x[0], alone.x[0])


def test_local_problems_are_solved_at_an_accelerated_rate():
    """sqrt(kappa) log(1/tolerance) gradients, kappa = (L + 2 c deg)/(2 c deg); plain steps take kappa times that."""
    Q = np.tile(np.diag([1000.0, 1.0, 30.0]), (2, 1, 1))
    problem = gs.Problem(gs.losses.Quadratic(Q, np.ones((2, 3))))
    costs = gs.solve(problem, gs.Graph.path(2), gs.ADMM(c=0.5), stop=gs.Stop(iterations=1)).costs
    root = np.sqrt(1001.0)
    assert root < costs.gradients < root * np.log(1e9) * 1.3


def gradients_per_iteration(problem, x0, iterations=60):
    history = gs.solve(problem, gs.Graph.ring(4), gs.ADMM(), stop=gs.Stop(iterations=iterations), x0=x0).history
    return np.diff([record.gradients for record in history])


def test_where_gradients_vanish_local_problems_are_not_solved_below_rounding():
    """Agents with the same optimum, in 0: their gradients and multipliers are nothing but rounding in the end."""
    rng = np.random.default_rng(0)
    features, residuals = rng.normal(size=(5, 2)), rng.normal(size=5)
    residuals -= features @ np.linalg.lstsq(features, residuals)[0]
    problem = gs.Problem(gs.losses.LeastSquares(np.tile(features, (4, 1)), np.tile(residuals, 4), agents=4))
    assert gradients_per_iteration(problem, np.ones(2), 150)[-20:].max() <= 3


def test_far_from_the_origin_local_problems_are_not_solved_below_rounding():
    targets = 1e9 + np.arange(8.0).reshape(4, 2)
    problem = gs.Problem(gs.losses.Quadratic(np.tile(np.diag([3.0, 1.0]), (4, 1, 1)), -targets * [3.0, 1.0]))
    assert gradients_per_iteration(problem, 1e9).max() < 100


def test_large_gradients_in_float32_are_not_balanced_below_rounding():
    """Two agents with the same rows and opposite labels pull against each other, and meet in 0."""
    features = (3 + np.random.default_rng(0).normal(size=(200, 4))).astype(np.float32)
    labels = np.repeat([1.0, -1.0], 200)
    problem = gs.Problem(gs.losses.Logistic(np.tile(features, (2, 1)), labels, agents=2))
    stop = gs.Stop(iterations=15)
    costs = gs.solve(problem, gs.Graph.path(2), gs.ADMM(c=500.0), stop=stop, x0=np.full(4, 0.1)).costs
    assert costs.gradients < 15 * 50


# ---- costs


def test_an_iteration_takes_one_exchange():
    graph = weighted()
    problem = gs.Problem(logistic(np.random.default_rng(1), 6, 3))
    solution = gs.solve(problem, graph, gs.ADMM(c=0.3), stop=gs.Stop(iterations=12))
    assert [record.rounds for record in solution.history] == list(range(2, 14))
    costs = solution.costs
    assert (costs.values, costs.samples, costs.control_rounds) == (0, 0, 0)
    assert costs.floats_sent == 13 * 2 * len(graph.edges) * problem.d
    defaults = gs.solve(problem, graph, gs.ADMM(), stop=gs.Stop(iterations=12)).costs
    assert defaults.rounds == 13
    assert defaults.control_rounds == gs.network.Local(graph).costs.control_rounds("max")


def test_the_gradients_of_the_local_solver_are_counted():
    calls = []

    def slope(x):
        calls.append(1)
        return x - np.array([[1.0], [3.0]])

    loss = gs.losses.Custom(gradient=slope, smoothness=1.0, agents=2, dimension=1)
    costs = gs.solve(gs.Problem(loss), gs.Graph.path(2), gs.ADMM(), stop=gs.Stop(iterations=9)).costs
    # At the end two more are looked at, for the KKT residuals.
    assert costs.gradients == len(calls) - 2 > 9


# ---- how it starts and goes on


def test_a_run_goes_on_to_the_bit(tmp_path):
    graph, problem = weighted(), gs.Problem(logistic(np.random.default_rng(1), 6, 3), gs.domains.L2Ball(0.5))
    whole = gs.solve(problem, graph, gs.ADMM(), stop=gs.Stop(iterations=9))
    for iterations in (4, 9):
        stop = gs.Stop(iterations=iterations)
        parts = gs.solve(problem, graph, gs.ADMM(), stop=stop, checkpoint=tmp_path / "run.npz")
    np.testing.assert_array_equal(parts.x, whole.x)
    np.testing.assert_array_equal(parts.dual, whole.dual)
    assert parts.costs.gradients == whole.costs.gradients


def test_float32_stays_float32_and_comes_to_an_end():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(40, 4)).astype(np.float32)
    loss = gs.losses.Logistic(features, rng.choice([-1, 1], size=40), agents=5)
    problem, graph = gs.Problem(loss, gs.domains.L2Ball(1.0), mu=0.1), gs.Graph.ring(5)
    for method in (gs.ADMM(), gs.ADMM(c=np.float64(0.3), L=np.float64(9.0), tolerance=np.float64(1e-9))):
        for state in iterates(problem, graph, method, gs.Stop(iterations=3)):
            dtypes = {state.x.dtype, state.lap.dtype, state.dual.w.dtype, state.largest.dtype}
            assert dtypes == {np.dtype(np.float32)}
        costs = gs.solve(problem, graph, method, stop=gs.Stop(iterations=40)).costs
        assert costs.gradients < 40 * 100


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_a_lone_agent_solves_its_problem_at_once(mu):
    problem = gs.Problem(logistic(np.random.default_rng(0), 1, 3), gs.domains.L2Ball(1.0), mu)
    solution = gs.solve(problem, gs.Graph.complete(1), gs.ADMM(), stop=gs.Stop(iterations=1))
    np.testing.assert_allclose(solution.x[0], gs.reference.reference(problem).x, atol=1e-6)
    assert solution.costs.rounds == 0
    assert solution.costs.gradients < 300


def test_a_lone_agent_without_strong_convexity_has_momentum_too():
    problem = gs.Problem(gs.losses.Quadratic(np.diag([50.0, 1.0]), np.ones(2)))
    solution = gs.solve(problem, gs.Graph.complete(1), gs.ADMM(tolerance=1e-6), stop=gs.Stop(iterations=1))
    np.testing.assert_allclose(solution.x, [[-0.02, -1.0]], atol=1e-5)
    assert solution.costs.gradients < 500


def test_a_linear_loss_is_solved_too():
    c = np.array([[1.0, -2.0], [-3.0, 1.0], [0.5, 0.5]])
    problem = gs.Problem(gs.losses.Linear(c), gs.domains.Box(-1.0, 1.0))
    solution = gs.solve(problem, gs.Graph.path(3), gs.ADMM(), stop=gs.Stop(iterations=200))
    np.testing.assert_allclose(solution.x, np.broadcast_to([1.0, 1.0], (3, 2)), atol=1e-6)
    ball = gs.Problem(gs.losses.Linear(np.array([3.0, -4.0])), gs.domains.L2Ball(1.0))
    alone = gs.solve(ball, gs.Graph.complete(1), gs.ADMM(), stop=gs.Stop(iterations=40))
    np.testing.assert_allclose(alone.x, [[-0.6, 0.8]], atol=1e-6)


def test_a_copied_state_can_be_gone_on_from_again():
    problem = gs.Problem(logistic(np.random.default_rng(0), 6, 3))
    for first, second in stepped_twice(problem, weighted(), gs.ADMM()):
        np.testing.assert_array_equal(first.x, second.x)
        np.testing.assert_array_equal(first.dual.w, second.dual.w)


def test_a_warm_start_brings_its_multipliers():
    problem = gs.Problem(logistic(np.random.default_rng(0), 6, 3), mu=0.5)
    check_warm_start(problem, weighted(), gs.ADMM(), iterations=100)


# ---- what it refuses


def test_entropy_is_refused():
    problem = gs.Problem(logistic(np.random.default_rng(0), 6, 3), gs.domains.EntropySimplex())
    check_message(lambda: gs.solve(problem, weighted(), gs.ADMM()), ["ADMM needs a Euclidean domain"])


@pytest.mark.parametrize(
    "given",
    [{"c": 0.0}, {"L": -1.0}, {"tolerance": 0.0}, {"tolerance": np.nan}, {"most": 0}, {"most": 2.5}, {"c": "high"}],
)
def test_parameters_that_do_not_fit_are_refused(given):
    check_message(lambda: gs.ADMM(**given), [next(iter(given))])


def test_a_saddle_point_problem_is_refused():
    problem = gs.LinearlyConstrained(gs.losses.Quadratic(np.eye(3), np.ones(3)), np.eye(3)[:1], 0.3)
    check_message(lambda: gs.solve(problem, method=gs.ADMM()), ["network"])


def test_parameters_are_reported():
    problem = gs.Problem(logistic(np.random.default_rng(0), 6, 3), mu=1.0)
    stop = gs.Stop(iterations=1)
    assert gs.solve(problem, weighted(), gs.ADMM(c=2), stop=stop).parameters == {"c": 2.0}
    found = gs.solve(problem, weighted(), gs.ADMM(L=9.0), stop=stop).parameters["c"]
    assert found == gs.solve(problem, weighted(), gs.DLM(L=9.0), stop=stop).parameters["c"]
    assert gs.ADMM.tuned == "c"
