"""AdaptiveSliding: against other solvers, its bound, what scales change, its costs, and problems without a solution."""

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from saddle_problems import SENSES, constrained_case, saddle_case
from scipy.optimize import linprog

import gradslide as gs
from gradslide._support.errors import InputError
from gradslide.engine.environment import SaddleEnvironment
from gradslide.methods import geometry as geometries
from gradslide.methods import sliding
from gradslide.methods.base import Context
from gradslide.methods.sliding import AdaptiveSliding
from gradslide.results.costs import Costs
from gradslide.theory.optimality import saddle_residuals


class Steps:
    """A method step by step, on a saddle point problem."""

    def __init__(self, problem, method):
        self.costs = Costs()
        there = SaddleEnvironment(problem, method, self.costs)
        context = Context(problem, there.oracle, there.network, there.coupling, problem.start())
        self.method = method
        self.context = replace(context, prepared=method.prepare(context))
        self.state = method.init(self.context)

    def step(self):
        self.state = self.method.step(self.context, self.state)
        return self.state


def solved(problem, kkt=1e-7, products=60_000, method=None):
    stop = gs.Stop(kkt=kkt, operator_products=products)
    return gs.solve(problem, method=method or AdaptiveSliding(), stop=stop, record_every=50)


def program(seed, scale=1.0, n=40, k=10):
    """A quadratic program in a box whose multipliers stay the same when A and b are multiplied; A is an operator."""
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.normal(size=(n, n)))[0]
    Q = (U * np.logspace(0, -2, n)) @ U.T
    A, x, z = scale * rng.normal(size=(k, n)) / 10, np.clip(rng.normal(size=n), -2, 2), rng.normal(size=k)
    c = -(Q @ x + A.T @ z) - np.sign(x) * (abs(x) == 2) * rng.uniform(0, 1, size=n)
    operator = (lambda v: A @ v, lambda v: A.T @ v)
    return gs.LinearlyConstrained(gs.losses.Quadratic((Q + Q.T) / 2, c), operator, A @ x, gs.domains.Box(-2.0, 2.0)), x


# ---- Solutions


@pytest.mark.first(8)
@pytest.mark.parametrize("seed", range(24))
def test_linear_constraints_agree_with_another_solver(seed):
    case = constrained_case(seed, mu=(0.0, 0.3)[seed % 2], sense=SENSES[seed % 4])
    solution = solved(case.problem, 1e-8)
    assert solution.status in (gs.Status.CONVERGED, gs.Status.STATIONARY), case.label
    value = float(case.problem.objective(solution.x).sum())
    assert value == pytest.approx(case.optimum, abs=1e-5 * (1 + abs(case.optimum))), case.label


@pytest.mark.first(6)
@pytest.mark.parametrize("seed", range(20))
def test_saddle_points_agree_with_another_solver(seed):
    case = saddle_case(seed)
    problem, solution = case.problem, solved(case.problem, 1e-8)
    value = float(problem.objective(solution.x).sum()) + problem.duals.conjugate(problem.product(solution.x))
    optimum = case.optimum()
    assert value == pytest.approx(optimum, abs=2e-5 * (1 + abs(optimum))), case.label


def test_the_residuals_that_it_reports_are_those_at_its_answer():
    problem, _ = program(0)
    steps = Steps(problem, AdaptiveSliding())
    for _ in range(60):
        state = steps.step()
        x, z = state.answer.x, state.answer.z
        pull = problem.A.apply_adjoint(z[0]).reshape(x.shape)
        value = float(problem.objective(x).sum())
        found = saddle_residuals(
            problem, problem.duals, x, z, problem.loss.gradient(x), problem.product(x), pull, value
        )
        for name, number in found.to_dict().items():
            assert getattr(state.kkt, name) == pytest.approx(number, rel=1e-6, abs=1e-13)


@pytest.mark.parametrize("has_value", [True, False])
def test_a_loss_with_values_and_one_without(has_value):
    exact, x = program(1)
    loss = exact.loss
    Q, c = loss.quadratic_part()[0], loss.gradient(np.zeros((1, 40)))[0]

    def value(v):
        return v @ Q @ v / 2 + c @ v

    own = gs.losses.Custom(gradient=[lambda v: Q @ v + c], value=[value] if has_value else None, agents=1, dimension=40)
    b = exact.product(x[None])[0]
    solution = solved(gs.LinearlyConstrained(own, (exact.A.apply, exact.A.apply_adjoint), b, exact.domain))
    np.testing.assert_allclose(solution.mean, x, atol=1e-4)
    assert (solution.costs.values > 0) == has_value


def test_single_precision_stays_single():
    problem, x = program(2)
    Q, c = problem.loss.quadratic_part()[0], problem.loss.gradient(np.zeros((1, 40)))[0]
    A = np.stack([problem.A.apply(row) for row in np.eye(40)], axis=1)
    single = [each.astype(np.float32) for each in (Q, c, A)]
    b = single[2] @ x.astype(np.float32)
    problem = gs.LinearlyConstrained(gs.losses.Quadratic(*single[:2]), single[2], b, gs.domains.Box(-2.0, 2.0))
    solution = solved(problem, 1e-4, 4000)
    assert solution.x.dtype == np.float32
    np.testing.assert_allclose(solution.mean, x, atol=2e-2)


def test_a_terms_own_prox_and_entropy_on_both_sides():
    rng = np.random.default_rng(3)
    A, c = rng.normal(size=(6, 8)), rng.normal(size=8)
    simplex = gs.domains.EntropySimplex()
    solution = solved(gs.Saddle(gs.losses.Linear(c), A, domain=simplex, dual_domain=simplex), 1e-5)
    # min c.x + t with A x <= t on the simplex
    rows, one = np.hstack([A, -np.ones((6, 1))]), [[*np.ones(8), 0.0]]
    exact = linprog([*c, 1.0], rows, np.zeros(6), one, [1.0], bounds=[(0, None)] * 8 + [(None, None)])
    assert c @ solution.mean + (A @ solution.mean).max() == pytest.approx(exact.fun, abs=1e-3)
    term = gs.terms.Prox(lambda v, step: v / (1 + step))
    smooth = gs.Saddle(gs.losses.Quadratic(np.eye(8), c), A, term)
    np.testing.assert_allclose(solved(smooth).mean, -np.linalg.solve(np.eye(8) + A.T @ A, c), atol=1e-5)


def test_a_warm_start_at_the_solution_is_over_at_once():
    problem, _ = program(3)
    first = solved(problem, 1e-9)
    again = gs.solve(problem, method=AdaptiveSliding(), warm_start=first, stop=gs.Stop(kkt=1e-7, iterations=50))
    assert again.costs.gradients < first.costs.gradients / 4


# ---- The bound of an epoch


def gap_and_bound(case, L, iterations=25, omega=None):
    """The gap of the averages after one epoch without restarts, and the bound of the notes."""
    problem = case.problem
    steps = Steps(problem, AdaptiveSliding(L=L, omega=omega or math.sqrt(case.U / case.V)))
    geometry, state = steps.context.prepared, steps.state
    Y, constant = 0.0, 0.0
    for _ in range(iterations):
        beta, S = state.weights.beta, state.epoch.S + state.weights.beta
        value = float(problem.loss.value(state.under.x).sum())
        Y = Y + beta / S * (state.gradient.y - Y)
        constant = constant + beta / S * (value - float(np.vdot(state.gradient.y, state.under.x)) - constant)
        state = sliding._ahead(steps.context, geometry, sliding._outer_iteration(geometry, state))
    bar, epoch = state.bar, state.epoch
    lower = float(problem.domain.linear_minimum(Y + bar.pull, 0.0).sum()) + constant - problem.duals.h(bar.z)
    upper = float(problem.objective(bar.x).sum()) + problem.duals.conjugate(bar.product)
    return upper - lower, ((epoch.P + epoch.Pi) * case.V + epoch.Pi * case.U / state.omega**2) / epoch.S


@pytest.mark.parametrize("seed", [seed for seed in range(24) if seed % 4 < 3])
def test_the_gap_of_an_epoch_is_within_its_bound(seed, monkeypatch):
    monkeypatch.setattr(geometries, "_STRETCH", 1.0)
    case = saddle_case(seed)
    for iterations in (1, 4, 25):
        gap, bound = gap_and_bound(case, case.L, iterations)
        assert gap <= bound * (1 + 1e-9), case.label


def test_the_bound_fails_if_L_is_too_small(monkeypatch):
    monkeypatch.setattr(geometries, "_STRETCH", 1.0)
    cases = [saddle_case(seed) for seed in range(24) if seed % 4 < 3]
    assert any(np.greater(*gap_and_bound(case, case.L / 1e3)) for case in cases)


def test_averages_have_the_weights_beta():
    steps = Steps(program(4)[0], AdaptiveSliding(L=1.0))
    geometry, state, xs, weights = steps.context.prepared, steps.state, [], []
    for _ in range(6):
        # With T = 1 the average of an outer iteration is its last iterate.
        state = replace(state, weights=state.weights._replace(T=1))
        weights.append(state.weights.beta)
        state = sliding._ahead(steps.context, geometry, sliding._outer_iteration(geometry, state))
        xs.append(state.last.x)
        np.testing.assert_allclose(state.bar.x, np.average(xs, axis=0, weights=weights), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(state.last.product[0], steps.context.problem.product(state.last.x)[0], atol=1e-12)
        np.testing.assert_allclose(state.bar.product, steps.context.problem.product(state.bar.x), atol=1e-12)
    beta, S = weights[-1], sum(weights)
    assert beta**2 * state.curvature.L == pytest.approx(state.epoch.P * S, rel=1e-12)


# ---- Costs and scales


def test_gradients_do_not_depend_on_the_norm_of_A():
    spent = {scale: solved(program(5, scale)[0], 1e-5).costs for scale in (1.0, 10.0, 100.0, 1000.0)}
    gradients = [costs.gradients for costs in spent.values()]
    assert max(gradients) <= 2 * min(gradients), gradients
    assert spent[1000.0].operator_products < 10 * spent[1.0].operator_products


def test_a_high_price_of_gradients_saves_gradients():
    gradients, products = {}, {}
    for balance in (0.01, 100.0):
        method = AdaptiveSliding(balance=balance)
        spent = [solved(program(seed, 100.0)[0], 1e-6, method=method).costs for seed in range(30, 36)]
        gradients[balance] = sum(costs.gradients for costs in spent)
        products[balance] = sum(costs.operator_products for costs in spent)
    assert gradients[100.0] < gradients[0.01], (gradients, products)
    assert products[100.0] > products[0.01], (gradients, products)


@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_units_of_f_and_of_the_rows_change_nothing(unit):
    rng = np.random.default_rng(7)
    G, A, x, c = rng.normal(size=(20, 20)), rng.normal(size=(6, 20)), rng.uniform(-1, 1, size=20), rng.normal(size=20)
    gradients = []
    for factor in (1.0, unit):
        rows = factor ** rng.uniform(0, 1, size=6)
        loss = gs.losses.Quadratic(G @ G.T, c)
        problem = gs.LinearlyConstrained(loss, rows[:, None] * A, rows * (A @ x), gs.domains.Box(-1.5, 1.5))
        gradients.append(solved(problem, 1e-6).costs.gradients)
    # Residuals are relative to 1 at least, so that small units are easier.
    assert gradients[1] < 2 * gradients[0] + 20


def test_a_linear_f_takes_one_gradient():
    rng = np.random.default_rng(8)
    A, x, z = rng.normal(size=(20, 12)), np.maximum(rng.normal(size=12), 0), np.maximum(rng.normal(size=20), 0)
    b = A @ x + np.where(z > 0, 0, rng.uniform(size=20))
    c = -A.T @ z + np.where(x > 0, 0, rng.uniform(size=12))
    problem = gs.LinearlyConstrained(gs.losses.Linear(c), A, b, gs.domains.NonNegative(), sense="<=")
    solution = solved(problem)
    assert solution.costs.gradients == 1
    np.testing.assert_allclose(solution.mean, x, atol=1e-4)
    assert b @ solution.dual == pytest.approx(b @ z, abs=1e-4)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_it_takes_no_more_than_condat_and_vu_at_the_best_of_nine_ratios(seed):
    problem, _ = program(20 + seed)
    mine = solved(problem, 1e-5).costs
    rivals = []
    for ratio in 10.0 ** np.arange(-2, 2.5, 0.5):
        found = solved(problem, 1e-5, products=4000, method=gs.CondatVu(ratio=ratio))
        if found.status is not gs.Status.PRODUCT_LIMIT:
            rivals.append(found.costs)
    assert mine.gradients < min(costs.gradients for costs in rivals)
    # Its products are those of the search for ||A||, too.
    assert mine.gradients + mine.operator_products < 1.5 * min(c.gradients + c.operator_products for c in rivals)


def test_every_product_and_gradient_is_counted():
    problem, _ = program(9)
    steps = Steps(problem, AdaptiveSliding())
    before = steps.costs.operator_products, steps.costs.gradients
    inner = steps.state.inner
    for _ in range(20):
        state = steps.step()
        assert state.proof is None
    assert steps.costs.operator_products - before[0] >= 2 * (state.inner - inner)
    assert steps.costs.gradients - before[1] >= 20


# ---- The state


def test_a_resumed_run_is_the_whole_run(tmp_path):
    problem, _ = program(10)
    path, whole = tmp_path / "run.npz", gs.solve(problem, method=AdaptiveSliding(), stop=gs.Stop(iterations=40))
    gs.solve(problem, method=AdaptiveSliding(), stop=gs.Stop(iterations=17), checkpoint=path)
    resumed = gs.solve(problem, method=AdaptiveSliding(), stop=gs.Stop(iterations=40), checkpoint=path)
    assert np.array_equal(resumed.x, whole.x)
    assert resumed.costs.operator_products == whole.costs.operator_products


def test_a_proof_that_there_is_no_solution_can_be_saved(tmp_path):
    A = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    problem = gs.LinearlyConstrained(gs.losses.LeastSquares(np.eye(3), np.ones(3)), A, [1.0, 2.0])
    stop, path = gs.Stop(kkt=1e-8, iterations=3000), tmp_path / "run.npz"
    for _ in range(2):
        solution = gs.solve(problem, method=AdaptiveSliding(), stop=stop, checkpoint=path)
        assert solution.status is gs.Status.INFEASIBLE


def test_a_step_leaves_the_old_state_as_it_is():
    steps = Steps(program(11)[0], AdaptiveSliding())
    for _ in range(30):
        old, saved = steps.state, pickle.dumps(steps.state)
        steps.step()
        assert pickle.dumps(old) == saved


def test_rows_are_scaled_where_that_is_possible():
    A = np.diag([1.0, 100.0])
    loss = gs.losses.Quadratic(np.eye(2), np.ones(2))

    def weights(problem):
        geometry = Steps(problem, AdaptiveSliding()).context.prepared
        return geometry.duals.domain.weights, geometry.domain.weights

    rows, columns = weights(gs.LinearlyConstrained(loss, A, 1.0))
    np.testing.assert_allclose(rows[0, 1] / rows[0, 0], 100.0**2, rtol=0.02)
    assert columns is None
    assert weights(gs.LinearlyConstrained(gs.losses.Linear(np.ones(2)), A, 1.0, gs.domains.Box(0, 1)))[1] is not None
    for problem in (
        gs.LinearlyConstrained(loss, (lambda x: A @ x, lambda z: A @ z), 1.0),
        gs.Saddle(loss, A, gs.terms.Prox(lambda v, step: v)),
        gs.Saddle(loss, A, dual_domain=gs.domains.L2Ball(1.0)),
        gs.LinearlyConstrained(loss, A, 1.0, mu=0.5, domain=gs.domains.L2Ball(3.0), scaling="rows"),
    ):
        assert weights(problem)[1] is None
        np.testing.assert_array_equal(weights(problem)[0], problem.duals.domain.weights)


# ---- Problems without a solution


def recession(problem, Q, c, A, sense, lo, hi):
    """Whether the constraints are feasible, and a direction leads to minus infinity, by linear programs."""
    b = problem.duals.term.upper if sense != ">=" else problem.duals.term.lower
    parts = {"<=": {"A_ub": A, "b_ub": b[0]}, ">=": {"A_ub": -A, "b_ub": -b[0]}, "==": {"A_eq": A, "b_eq": b[0]}}[sense]
    feasible = linprog(0 * c, bounds=list(zip(lo, hi, strict=True)), **parts).status != 2
    bounds = [(-float(np.isinf(low)), float(np.isinf(high))) for low, high in zip(lo, hi, strict=True)]
    flat = {name: 0 * value if name.startswith("b") else value for name, value in parts.items()}
    flat["A_eq"] = np.vstack([flat.get("A_eq", np.zeros((0, len(c)))), Q])
    flat["b_eq"] = np.zeros(len(flat["A_eq"]))
    return feasible, linprog(c, bounds=bounds, **flat).fun < -1e-9


def any_program(seed):
    """A random program with or without a solution, and its true status."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(3, 15)), int(rng.integers(2, 15))
    A = rng.normal(size=(k, n)) * (rng.random((k, n)) < 0.6) * 10.0 ** rng.uniform(-2, 2)
    A[~A.any(axis=1), 0] = 1.0
    b = A @ rng.normal(size=n) + (rng.normal(size=k) * abs(A).max() if seed % 3 else 0)
    lo = [np.full(n, -np.inf), np.zeros(n), -np.ones(n), np.where(rng.random(n) < 0.5, -np.inf, -1)][seed % 4]
    hi = [np.full(n, np.inf), np.full(n, np.inf), np.ones(n), np.where(rng.random(n) < 0.5, np.inf, 1)][seed % 4]
    sense, c = SENSES[seed // 4 % 3], rng.normal(size=n)
    G = rng.normal(size=(n, max(1, n // 2))) * 10.0 ** rng.uniform(-1, 1) * (seed % 2)
    loss = gs.losses.Quadratic(G @ G.T, c) if seed % 2 else gs.losses.Linear(c)
    problem = gs.LinearlyConstrained(loss, A, b, gs.domains.Box(lo, hi), sense=sense)
    feasible, falls = recession(problem, G.T, c, A, sense, lo, hi)
    return problem, (gs.Status.UNBOUNDED if falls else None) if feasible else gs.Status.INFEASIBLE


def check_statuses(seeds):
    """Return how many statuses were found; none may be wrong."""
    found = 0
    for seed in seeds:
        problem, truth = any_program(seed)
        steps = Steps(problem, AdaptiveSliding())
        while steps.costs.operator_products < 20_000 and steps.state.kkt.largest > 1e-7:
            steps.step()
            if steps.method.no_solution(steps.state) is not None:
                break
        proof = steps.method.no_solution(steps.state)
        assert proof is None or proof.status is truth, (seed, truth, proof.status)
        found += proof is not None or (truth is None and steps.state.kkt.largest <= 1e-7)
        if proof is not None and proof.status is gs.Status.INFEASIBLE:
            z = proof.ray / abs(proof.ray).max()
            slope = problem.A.apply_adjoint(z)[None]
            # What rounding or an infinite ray leaves of zero, compared with the terms that cancel.
            terms = abs(problem.A.entries()).T @ abs(z)
            slope = np.where(abs(slope) < 1e-7 * terms.max(), 0, slope)
            assert problem.domain.linear_minimum(slope)[0] > problem.duals.term.value(z[None])
    return found


def test_proofs_that_there_is_no_solution():
    assert check_statuses(range(40)) >= 38


@pytest.mark.slow
def test_no_false_proof_in_many_problems():
    assert check_statuses(range(1000, 2200)) >= 1100


def test_contradictory_constraints_that_agree_in_all_but_one_number():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(3, 5))
    A = np.vstack([A, A.sum(axis=0)])
    x = rng.normal(size=5)
    for shift, status in ((0.0, None), (1e-2, gs.Status.INFEASIBLE)):
        problem = gs.LinearlyConstrained(gs.losses.LeastSquares(np.eye(5), x), A, A @ x + [0, 0, 0, shift])
        solution = solved(problem)
        assert (solution.status is status) == (status is not None)


def test_inner_iterations_do_not_grow_for_ever_without_a_proof():
    """As a term of its own, the constraint x_1 + x_2 = 9 on a ball is not known to be one."""
    term = gs.terms.Prox(lambda v, step: v - 9.0 * step)
    loss = gs.losses.Quadratic(np.eye(2), -np.ones(2))
    steps = Steps(gs.Saddle(loss, [[1.0, 1.0]], term, gs.domains.L2Ball(1.0)), AdaptiveSliding())
    inner = [steps.step().inner for _ in range(150)]
    assert steps.state.proof is None
    assert inner[-1] < 30_000


# ---- Input


def test_refusals():
    for arguments in ({"balance": 0}, {"L": -1.0}, {"omega": 0.0}):
        with pytest.raises(InputError):
            AdaptiveSliding(**arguments)
    loss = gs.losses.LeastSquares(np.ones((4, 1)), np.arange(4.0), agents=4)
    with pytest.raises(InputError, match="linear constraints"):
        gs.solve(gs.Problem(loss), gs.Graph.ring(4), AdaptiveSliding(), stop=gs.Stop(iterations=2))
