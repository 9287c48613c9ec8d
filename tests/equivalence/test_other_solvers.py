"""Solutions and multipliers against other solvers: linear and quadratic programs, least squares, logistic losses."""

import cvxpy as cp
import numpy as np
import pytest
import saddle_problems
from saddle_problems import constrained_case, saddle_case
from scipy.optimize import linprog, minimize

import gradslide as gs

LIMIT = gs.Stop(operator_products=20_000)
SIDES = [saddle_problems.free, saddle_problems.box, saddle_problems.nonnegative, saddle_problems.simplex]
SCALES = [(1.0, 1.0), (1e-3, 1e2), (1e3, 1e-2), (1.0, 1e3)]
LOSSES = [saddle_problems.quadratic, saddle_problems.least_squares, saddle_problems.logistic, saddle_problems.linear]


def assert_signs(problem, z, product, tolerance):
    """z >= 0 at upper bounds, <= 0 at lower ones, and 0 between them."""
    term = problem.duals.term
    above, below = z > tolerance, z < -tolerance
    assert np.all(np.isfinite(term.upper[0][above]))
    assert np.all(np.isfinite(term.lower[0][below]))
    np.testing.assert_allclose(product[above], term.upper[0][above], atol=1e-2)
    np.testing.assert_allclose(product[below], term.lower[0][below], atol=1e-2)


@pytest.mark.covering
@pytest.mark.parametrize("sense", ["==", "<=", ">=", "interval"])
@pytest.mark.parametrize("make_loss", LOSSES)
@pytest.mark.parametrize("make_x", SIDES)
def test_solutions_agree_with_an_interior_point_solver(make_x, make_loss, sense):
    for seed in (1, 2):
        case = constrained_case(seed, 0.3, make_loss=make_loss, make_x=make_x, sense=sense, m=1)
        solution = gs.solve(case.problem, method=gs.PDS(R=case.R), stop=LIMIT, output="last", record_every=10)
        label = f"seed {seed}: {case.label}"
        np.testing.assert_allclose(solution.x, case.x, atol=1e-3, err_msg=label)
        assert solution.history[-1].objective == pytest.approx(case.optimum, abs=1e-3 * (1 + case.z_star)), label
        assert solution.history[-1].residual < 1e-3, label
        assert_signs(case.problem, solution.dual, case.problem.A.matrix @ solution.mean, 1e-2)


def test_the_multipliers_of_a_quadratic_program_solve_its_KKT_system():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        root, c, A = rng.normal(size=(6, 6)), rng.normal(size=6), rng.normal(size=(2, 6))
        Q, b = root @ root.T + np.eye(6), rng.normal(size=2)
        x, z = np.split(np.linalg.solve(np.block([[Q, A.T], [A, np.zeros((2, 2))]]), np.r_[-c, b]), [6])
        problem = gs.LinearlyConstrained(gs.losses.Quadratic(root @ root.T, c), A, b, mu=1.0)
        R = gs.guarantees.theory_R(V=x @ x / 2, z_star=float(np.linalg.norm(z)))
        solution = gs.solve(problem, method=gs.PDS(R=R), stop=LIMIT, output="last", record_every=10)
        np.testing.assert_allclose(solution.mean, x, atol=1e-3)
        np.testing.assert_allclose(solution.dual, z, atol=1e-2 * (1 + np.linalg.norm(z)))


@pytest.mark.slow
def test_minus_the_multiplier_is_the_price_of_the_right_hand_side():
    loss, A = gs.losses.Quadratic(np.diag([1.0, 2.0, 4.0]), [1.0, -1.0, 0.5]), np.ones((1, 3))
    for sense, b in (("==", 1.0), ("<=", -2.0), (">=", 2.0)):
        runs = [
            gs.solve(
                gs.LinearlyConstrained(loss, A, b + shift, gs.domains.Free(), 0.1, sense=sense),
                method=gs.PDS(),
                stop=LIMIT,
                output="last",
                record_every=10,
            )
            for shift in (-1e-2, 0.0, 1e-2)
        ]
        low, _, high = (run.history[-1].objective for run in runs)
        expected = -runs[1].dual[0]
        assert (high - low) / 2e-2 == pytest.approx(expected, abs=5e-2)
        assert abs(expected) > 0.3
        assert {"<=": expected < 0, ">=": expected > 0}.get(sense, True)


def random_program(seed):
    """min <c, x> in a box: feasible at its centre, its vertex unique with probability 1."""
    rng = np.random.default_rng(seed)
    n, k = 8, 3
    A, c = rng.normal(size=(k, n)), rng.normal(size=n)
    return c, A, A @ np.full(n, 0.5)


@pytest.mark.first(1)
@pytest.mark.parametrize("sense", ["==", "<="])
def test_linear_programs_agree_with_linprog(sense):
    for seed in range(4):
        c, A, b = random_program(seed)
        rows = {"A_eq": A, "b_eq": b} if sense == "==" else {"A_ub": A, "b_ub": b}
        exact = linprog(c, **rows, bounds=(0, 1))
        # scipy's marginals are prices of b.
        prices = exact.eqlin.marginals if sense == "==" else exact.ineqlin.marginals
        problem = gs.LinearlyConstrained(gs.losses.Linear(c), A, b, gs.domains.Box(0, 1), sense=sense)
        solution = gs.solve(problem, method=gs.PDS(), stop=LIMIT, output="last", record_every=10)
        assert solution.costs.gradients <= 2
        np.testing.assert_allclose(solution.mean, exact.x, atol=1e-3)
        np.testing.assert_allclose(solution.dual, -prices, atol=1e-2)
        assert solution.history[-1].objective == pytest.approx(exact.fun, abs=1e-3)


def test_a_transport_problem_in_the_orthant_agrees_with_linprog():
    """X is unbounded: no gap, but the same answer."""
    rng = np.random.default_rng(0)
    cost, supply, demand = rng.uniform(1, 2, size=(3, 4)), np.array([0.5, 0.3, 0.2]), np.full(4, 0.25)
    A = np.vstack([np.kron(np.eye(3), np.ones(4)), np.kron(np.ones(3), np.eye(4))])
    b = np.r_[supply, demand]
    exact = linprog(cost.reshape(-1), A_eq=A, b_eq=b)
    problem = gs.LinearlyConstrained(gs.losses.Linear(cost.reshape(-1)), A, b, gs.domains.NonNegative())
    solution = gs.solve(problem, method=gs.PDS(), stop=LIMIT, output="last", record_every=10)
    assert solution.certificate is None
    assert solution.history[-1].objective == pytest.approx(exact.fun, abs=1e-3)
    np.testing.assert_allclose(solution.mean, exact.x, atol=1e-3)


def test_a_logistic_loss_with_bounds_agrees_with_SLSQP():
    rng = np.random.default_rng(1)
    features, labels, A = rng.normal(size=(30, 4)), rng.choice([-1.0, 1.0], size=30), rng.normal(size=(2, 4))
    loss = gs.losses.Logistic(features, labels, agents=1)
    lower, upper = np.array([0.2, -np.inf]), np.array([np.inf, -0.1])
    exact = minimize(
        lambda x: loss.value(x[None])[0] + 0.05 * x @ x,
        np.zeros(4),
        jac=lambda x: loss.gradient(x[None])[0] + 0.1 * x,
        constraints=[
            {"type": "ineq", "fun": lambda x: A[0] @ x - 0.2},
            {"type": "ineq", "fun": lambda x: -0.1 - A[1] @ x},
        ],
        options={"ftol": 1e-13},
    )
    problem = gs.LinearlyConstrained(loss, A, mu=0.1, lower=lower, upper=upper)
    solution = gs.solve(problem, method=gs.PDS(), stop=LIMIT, output="last", record_every=10)
    np.testing.assert_allclose(solution.mean, exact.x, atol=1e-3)
    assert solution.history[-1].objective == pytest.approx(exact.fun, abs=1e-3)


@pytest.mark.parametrize("seeds", [range(6, 12), pytest.param(range(24), marks=pytest.mark.slow)], ids=str)
def test_saddle_points_agree_with_an_interior_point_solver(seeds):
    for seed in seeds:
        case = saddle_case(seed, (0.0, 0.2)[seed // 8 % 2])
        optimum = case.optimum()
        solution = gs.solve(
            case.problem, method=gs.PDS(), stop=gs.Stop(operator_products=3000), output="last", record_every=10
        )
        assert solution.history[-1].objective == pytest.approx(optimum, abs=2e-2 * (1 + abs(optimum))), case.label


def test_a_matrix_game_has_its_value_and_strategies():
    rng = np.random.default_rng(5)
    payoff = rng.normal(size=(4, 6))
    p, value = cp.Variable(6), cp.Variable()
    program = cp.Problem(cp.Minimize(value), [payoff @ p <= value, p >= 0, cp.sum(p) == 1])
    program.solve(solver=cp.CLARABEL)
    sets = gs.domains.EntropySimplex(), gs.domains.EntropySimplex()
    problem = gs.Saddle(gs.losses.Linear(np.zeros(6)), payoff, None, *sets)
    solution = gs.solve(problem, stop=gs.Stop(gap=1e-3, operator_products=50_000))
    assert solution.status is gs.Status.CONVERGED
    assert solution.certificate.lower <= float(value.value) + 1e-7
    assert solution.certificate.upper >= float(value.value) - 1e-7
    assert solution.dual.sum() == pytest.approx(1)
    assert np.min(payoff.T @ solution.dual) >= float(value.value) - 1e-3


def well_conditioned(seed, scale, A_scale, kind):
    """Orthonormal rows times A_scale, curvature between 1 and 4 times scale; a ridge or a box."""
    rng = np.random.default_rng(seed)
    n = 12
    k = int(rng.integers(1, n // 2))
    basis = np.linalg.qr(rng.normal(size=(n, n)))[0]
    Q = scale * basis @ np.diag(rng.uniform(1, 4, size=n)) @ basis.T
    A = A_scale * np.linalg.qr(rng.normal(size=(n, k)))[0].T
    domain, mu = (gs.domains.Box(-1, 1), 0.0) if kind == "box" else (gs.domains.Free(), scale)
    b, sense = A @ rng.uniform(-0.5, 0.5, size=n), ("==", "<=")[seed % 2]
    loss = gs.losses.Quadratic((Q + Q.T) / 2, scale * rng.normal(size=n))
    return gs.LinearlyConstrained(loss, A, b, domain, mu, sense=sense)


@pytest.mark.covering
@pytest.mark.parametrize(("scale", "A_scale"), [(1e-3, 1e2), (1.0, 1.0), (1e3, 1e-2)])
@pytest.mark.parametrize("kind", ["ridge", "box"])
def test_with_nothing_given_well_conditioned_problems_converge(kind, scale, A_scale):
    for seed in range(4):
        solution = gs.solve(well_conditioned(seed, scale, A_scale, kind))
        assert solution.status is gs.Status.CONVERGED, f"seed {seed}: {solution!r}"
        assert abs(solution.certificate.gap) <= 1e-4 * (1 + abs(solution.certificate.upper))
        assert solution.certificate.residual <= 1e-4 * solution.history[-1].residual_scale


def test_the_run_does_not_hang_on_the_units_of_loss_and_A():
    runs = [
        gs.solve(well_conditioned(1, *scales, "ridge"), method=gs.PDS(), stop=gs.Stop(iterations=20))
        for scales in SCALES
    ]
    for run in runs[1:]:
        assert run.costs.operator_products == runs[0].costs.operator_products
        np.testing.assert_allclose(run.x, runs[0].x, rtol=1e-6, atol=1e-9)


def test_sampled_gradients_come_near_with_nothing_but_their_number_given():
    rng = np.random.default_rng(0)
    features, targets, A = rng.normal(size=(400, 8)), rng.normal(size=400), rng.normal(size=(2, 8))
    loss = gs.losses.LeastSquares(features, targets, agents=1, reduction="mean")
    problem = gs.LinearlyConstrained(loss, A, np.ones(2))
    solution = gs.solve(problem, method=gs.SPDS(samples=20_000, seed=1))
    Q = features.T @ features / len(targets)
    system = np.block([[Q, A.T], [A, np.zeros((2, 2))]])
    x = np.linalg.solve(system, np.r_[features.T @ targets / len(targets), np.ones(2)])[:8]
    assert solution.costs.samples <= 20_000
    assert solution.history[-1].residual < 3e-2
    assert solution.history[-1].objective == pytest.approx(float(loss.value(x[None])[0]), rel=3e-2)
