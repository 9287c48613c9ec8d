"""Newton and LBFGS under linear constraints and for saddle points: answers, costs, and what cannot be solved."""

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import LinearConstraint, linprog, minimize
from scipy.sparse.linalg import aslinearoperator

import gradslide as gs
from gradslide.domains import Box, L2Ball, NonNegative, PerAgent, Simplex
from gradslide.problems import polyhedral


def random_program(seed, n=60, k=90, domain=None):
    """A quadratic program with many active rows, and with a Hessian of half rank where X is bounded."""
    rng = np.random.default_rng(seed)
    half, A, inside = rng.normal(size=(n // 2, n)), rng.normal(size=(k, n)), rng.normal(size=n)
    Q = half.T @ half / n + (0.01 * np.eye(n) if domain is None else 0)
    c, b = rng.normal(size=n), A @ inside + rng.exponential(size=k) * (rng.random(k) < 0.7)
    return Q, c, A, b, gs.LinearlyConstrained(gs.losses.Quadratic(Q, c), A, b, domain, sense="<=")


def optimum_of(Q, c, A, b, size=np.inf):
    """By Clarabel, for A x <= b and |x_j| <= size."""
    rows, ends = [A], [b]
    if np.isfinite(size):
        rows += [np.eye(len(c)), -np.eye(len(c))]
        ends += [np.full(2 * len(c), size)]
    G, h = np.vstack(rows), np.concatenate(ends)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.NonnegativeConeT(len(h))]
    return clarabel.DefaultSolver(sp.csc_matrix(Q), c, sp.csc_matrix(G), h, cones, settings).solve().obj_val


def logistic(seed, n=12, rows=300, k=8, scales=1.0):
    """A logistic loss under inequalities, several of them active."""
    rng = np.random.default_rng(seed)
    X, labels = rng.normal(size=(rows, n)), np.sign(rng.normal(size=rows))
    A = rng.normal(size=(k, n))
    x = rng.normal(size=n)
    b = A @ x + 0.01
    scales = np.broadcast_to(scales, n)
    loss = gs.losses.Logistic(X * scales, labels, agents=1)
    return loss, A * scales, b, gs.LinearlyConstrained(loss, A * scales, b, sense="<=")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("size", [np.inf, 3.0])
def test_quadratic_programs_are_solved_by_default(seed, size):
    *program, problem = random_program(seed, domain=Box(-size, size) if np.isfinite(size) else None)
    solution = gs.solve(problem)
    assert solution.status is gs.Status.CONVERGED
    assert solution.kkt.largest <= 1e-6
    assert solution.objective == pytest.approx(optimum_of(*program, size), rel=1e-6)
    assert solution.costs.gradients == 2
    assert solution.parameters["method"] == "Newton"
    if np.isfinite(size):
        assert solution.certificate.lower <= solution.objective + 1e-9 * abs(solution.objective)
        assert solution.gap <= 1e-5 * abs(solution.objective)


@pytest.mark.parametrize("method", [None, gs.Newton(), gs.LBFGS()], ids=str)
def test_a_loss_that_is_not_quadratic_agrees_with_trust_constr(method):
    loss, A, b, problem = logistic(0)
    solution = gs.solve(problem, method=method, stop=gs.Stop(kkt=1e-8))
    given = {"jac": lambda x: loss.gradient(x[None])[0], "method": "trust-constr", "options": {"gtol": 1e-9}}
    expected = minimize(
        lambda x: float(loss.value(x[None])[0]), np.zeros(12), constraints=LinearConstraint(A, -np.inf, b), **given
    )
    assert solution.status is gs.Status.CONVERGED
    np.testing.assert_allclose(solution.mean, expected.x, atol=1e-4)
    assert solution.objective <= expected.fun + 1e-6
    assert np.all(solution.dual >= -1e-12)
    np.testing.assert_allclose(loss.gradient(solution.x)[0] + A.T @ solution.dual, 0, atol=1e-5)
    assert solution.costs.gradients < expected.njev


def test_columns_of_any_units_cost_the_same():
    counts, objectives = [], []
    for scales in (1.0, np.geomspace(1e-4, 1e4, 12)):
        *_, problem = logistic(1, scales=scales)
        solution = gs.solve(problem, method=gs.Newton(), stop=gs.Stop(iterations=8), check_loss=False)
        counts.append(solution.costs.gradients)
        objectives.append([record.objective for record in solution.history])
    assert counts[0] == counts[1]
    np.testing.assert_allclose(objectives[0][1:], objectives[1][1:], rtol=1e-4)
    np.testing.assert_allclose(objectives[0][-1], objectives[1][-1], rtol=1e-8)


def test_linear_programs_agree_with_linprog():
    rng = np.random.default_rng(3)
    A, inside = rng.normal(size=(60, 100)), rng.exponential(size=100)
    c, b = A.T @ rng.normal(size=60) + rng.exponential(size=100), A @ inside
    solution = gs.solve(gs.LinearlyConstrained(gs.losses.Linear(c), A, b, NonNegative()))
    expected = linprog(c, A_eq=A, b_eq=b)
    assert solution.status is gs.Status.CONVERGED
    assert solution.objective == pytest.approx(expected.fun, rel=1e-7)
    np.testing.assert_allclose(-solution.dual, expected.eqlin.marginals, atol=1e-5)


def robust_regression(kind):
    rng = np.random.default_rng(4)
    features, targets = rng.normal(size=(40, 5)), rng.normal(size=40)
    loss = gs.losses.Quadratic(0.1 * np.eye(5), np.zeros(5))
    h, Z = gs.terms.Linear(targets), {"l1": Box(-1.0, 1.0), "max": Simplex(1.0), "squares": None}[kind]
    h = gs.terms.Quadratic(2.0, targets) if kind == "squares" else h
    problem = gs.Saddle(loss, features, h=h, dual_domain=Z)

    def objective(x):
        left = features @ x - targets
        return 0.05 * x @ x + {"l1": np.abs(left).sum(), "max": left.max(), "squares": left @ left / 4}[kind]

    return problem, objective


@pytest.mark.parametrize("kind", ["l1", "max", "squares"])
def test_terms_in_place_of_constraints(kind):
    problem, objective = robust_regression(kind)
    solution = gs.solve(problem)
    assert solution.status is gs.Status.CONVERGED
    assert solution.objective == pytest.approx(objective(solution.mean), rel=1e-10)
    rng = np.random.default_rng(0)
    for size in (1e-1, 1e-3):
        nearby = solution.mean + size * rng.normal(size=(50, 5))
        assert min(map(objective, nearby)) >= solution.objective - 1e-8


def test_blocks_of_x_with_sets_of_their_own():
    rng = np.random.default_rng(5)
    centers, A = rng.normal(size=(3, 4)), rng.normal(size=(2, 12))
    loss = gs.losses.Quadratic(np.stack([np.eye(4)] * 3), -centers)
    sets = PerAgent([Box(-0.5, 0.5), Simplex(1.0), Box(0.0, 2.0)])
    for method in (None, gs.LBFGS()):
        solution = gs.solve(gs.LinearlyConstrained(loss, A, [0.1, -0.2], sets), method=method)
        assert solution.status is gs.Status.CONVERGED
        assert solution.x.shape == (3, 4)
        np.testing.assert_allclose(A @ solution.x.ravel(), [0.1, -0.2], atol=1e-6)
        assert solution.x[1].sum() == pytest.approx(1.0)
        assert np.abs(solution.x[0]).max() <= 0.5


def test_a_start_that_violates_constraints_costs_no_gradient():
    visited = []

    def value(x):
        visited.append(x.copy())
        return -np.log(x).sum(axis=1)

    loss = gs.losses.Custom(value=value, gradient=lambda x: -1 / x, agents=1, dimension=3)
    problem = gs.LinearlyConstrained(loss, np.vstack([np.eye(3), np.ones(3)]), [-0.1, -0.1, -0.1, 3.0])
    problem = gs.LinearlyConstrained(loss, np.vstack([-np.eye(3), np.ones(3)]), [-0.1] * 3 + [3.0], sense="<=")
    solution = gs.solve(problem, x0=-np.ones(3), check_loss=False)
    np.testing.assert_allclose(solution.mean, 1.0, atol=1e-5)
    assert np.min(visited) >= 0.1 - 1e-8


def test_gradients_may_be_infinite_where_constraints_end():
    """x log x has its minimum inside, and x^1.5 + x at its end, where users' code may know no gradient."""

    def entropy(x):
        return np.where(x > 0, np.log(np.where(x > 0, x, 1)) + 1, -np.inf)

    def power(x):
        return np.where(x > 0, 1.5 * np.sqrt(np.abs(x)) + 1, np.nan)

    with np.errstate(all="ignore"):
        inner = gs.losses.Custom(
            value=lambda x: np.where(x > 0, x * np.log(np.where(x > 0, x, 1)), 0).sum(axis=1),
            gradient=entropy,
            agents=1,
            dimension=3,
        )
        problem = gs.LinearlyConstrained(inner, [[1.0, 2.0, 3.0]], 3.0, NonNegative())
        solution = gs.solve(problem, x0=[3.0, 0.001, 0.001], check_loss=False)
        assert solution.status is gs.Status.CONVERGED
        assert np.ptp((np.log(solution.mean) + 1) / [1, 2, 3]) < 1e-4
        outer = gs.losses.Custom(
            value=lambda x: (np.abs(x) ** 1.5 + x).sum(axis=1), gradient=power, agents=1, dimension=2
        )
        problem = gs.LinearlyConstrained(outer, [[1.0, 1.0]], 0.0, NonNegative(), sense=">=")
        solution = gs.solve(problem, x0=[1.0, 2.0], check_loss=False)
        assert solution.status is gs.Status.CONVERGED
        np.testing.assert_allclose(solution.mean, 0, atol=1e-5)


def test_a_start_at_the_solution_still_needs_multipliers():
    loss = gs.losses.Custom(value=lambda x: (x**2).sum(axis=1), gradient=lambda x: 2 * x, agents=1, dimension=2)
    problem = gs.LinearlyConstrained(loss, [[1.0, 2.0]], 3.0, Box(0.0, [np.inf, 1.0]), sense=">=")
    solution = gs.solve(problem)
    assert solution.status is gs.Status.CONVERGED
    np.testing.assert_allclose(solution.mean, 1.0, atol=1e-8)
    np.testing.assert_allclose(solution.dual, -2.0, atol=1e-6)


@pytest.mark.parametrize("method", [None, gs.LBFGS()], ids=str)
def test_resumed_runs_have_the_same_bits(tmp_path, method):
    *_, problem = logistic(2)
    whole = gs.solve(problem, method=method, stop=gs.Stop(iterations=6))
    for iterations in (2, 5, 6):
        path = tmp_path / "run.npz"
        part = gs.solve(problem, method=method, stop=gs.Stop(iterations=iterations), checkpoint=path)
    assert np.array_equal(part.x, whole.x)
    assert np.array_equal(part.dual, whole.dual)
    assert part.costs.operator_products == whole.costs.operator_products


def test_a_warm_start_takes_fewer_evaluations():
    *_, problem = logistic(3)
    cold = gs.solve(problem)
    warm = gs.solve(problem, warm_start=cold)
    assert warm.status is gs.Status.CONVERGED
    assert warm.costs.gradients == 2 < cold.costs.gradients


@pytest.mark.parametrize("method", [gs.Newton(), gs.LBFGS()], ids=["Newton", "LBFGS"])
@pytest.mark.parametrize("seed", range(8))
def test_single_precision_ends_at_the_optimum(seed, method):
    """Rows leave room for rounding: points amid it are no violation."""
    rng = np.random.default_rng(seed)
    n, k, scales = 20, 25, 10.0 ** rng.uniform(-1, 1, size=20)
    X, labels = rng.normal(size=(150, n)) * scales, np.sign(rng.normal(size=150))
    A = rng.normal(size=(k, n))
    b = A @ (0.3 * rng.normal(size=n)) + 0.1 * rng.exponential(size=k)

    def problem(dtype):
        loss = gs.losses.Logistic(X.astype(dtype), labels.astype(dtype), agents=1)
        return gs.LinearlyConstrained(loss, A.astype(dtype), b.astype(dtype), sense="<=", domain=Box(-5.0, 5.0))

    solution, exact = gs.solve(problem(np.float32), method=method), gs.solve(problem(np.float64))
    assert solution.status is exact.status is gs.Status.CONVERGED
    assert solution.objective == pytest.approx(exact.objective, rel=1e-4)


@pytest.mark.parametrize("start", [0.1, 3.0, 10.0])
def test_walls_at_the_end_of_a_bound_teach_nothing(start):
    """1/x + x from far away: steps end at 0, where the values are finite and the curvature is not that inside."""
    loss = gs.losses.Custom(
        value=[lambda x: float(1 / x[0] + x[0]) if x[0] > 0 else np.inf],
        gradient=[lambda x: 1 - 1 / x**2],
        agents=1,
        dimension=1,
    )
    problem = gs.LinearlyConstrained(loss, [[1.0]], 20.0, sense="<=", domain=NonNegative())
    solution = gs.solve(problem, method=gs.LBFGS(), x0=np.array([start]), stop=gs.Stop(kkt=1e-6, iterations=60))
    assert solution.status is gs.Status.CONVERGED
    assert solution.mean[0] == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_squares_over_a_variable_that_falls_to_zero(seed):
    """At x[0] = 1e-14 the value is finite: 1e14. A rejected step to there is no knowledge about curvature."""
    rng = np.random.default_rng(seed)
    A, b = rng.normal(size=(20, 4)), rng.normal(size=20)

    def value(x):
        return float(np.sum((A @ x - b) ** 2) / x[0]) if x[0] > 0 else np.inf

    def gradient(x):
        left = A @ x - b
        return 2 * A.T @ left / x[0] - np.array([left @ left / x[0] ** 2, 0.0, 0.0, 0.0])

    loss = gs.losses.Custom(value=[value], gradient=[gradient], agents=1, dimension=4)
    problem = gs.LinearlyConstrained(loss, [[1.0, 0, 0, 0]], 2.0, sense="<=", domain=Box([0.0, *[-np.inf] * 3], np.inf))
    start = np.array([1.0, 0.0, 0.0, 0.0])
    solution = gs.solve(problem, x0=start)
    exact = minimize(value, start, jac=gradient, bounds=[(1e-9, 2.0), *[(None, None)] * 3], tol=1e-12)
    assert solution.status is gs.Status.CONVERGED
    assert solution.objective == pytest.approx(exact.fun, rel=1e-4)


FAR = {
    "a limit of 2e14": (gs.losses.Linear([-1e5, -2e5]), [[1.0, 1.0]], {"b": 2e14, "sense": "<="}, [0, 2e14]),
    "entries of 1e15": (gs.losses.Linear([-1.0, -1.0]), [[1e15, 2e15]], {"b": 4e15, "sense": "<="}, [4.0, 0]),
    "an equation": (gs.losses.Quadratic(np.eye(2), [-3.0, -3.0]), [[1e15, 2e15]], {"b": 4e15}, [2.0, 1.0]),
    "a limit that holds back": (
        gs.losses.Quadratic(np.eye(2), [-1e14, -2e14]),
        [[1.0, 1.0]],
        {"b": 1e14, "sense": "<="},
        [0, 1e14],
    ),
    "a limit beyond": (
        gs.losses.Quadratic(np.eye(2), [-1e14, -2e14]),
        [[1.0, 1.0]],
        {"b": 1e17, "sense": "<="},
        [1e14, 2e14],
    ),
    "values of 1e20": (gs.losses.Quadratic(np.eye(2), [-1e10, -2e10]), [[1.0, 1.0]], {"b": 1e10}, [0, 1e10]),
}


@pytest.mark.parametrize("name", FAR)
def test_far_bounds_and_small_units_are_neither_unbounded_nor_diverging(name):
    loss, A, given, expected = FAR[name]
    solution = gs.solve(gs.LinearlyConstrained(loss, A, domain=NonNegative(), **given))
    assert solution.status is gs.Status.CONVERGED
    np.testing.assert_allclose(solution.mean, expected, rtol=1e-6, atol=1e-6 * np.max(expected))


def test_programs_that_are_solved_again_with_far_bounds_count_twice(monkeypatch):
    solved, once = [], polyhedral.minimize_qp
    monkeypatch.setattr(
        polyhedral, "minimize_qp", lambda *args, **given: solved.append(once(*args, **given)) or solved[-1]
    )
    loss, A, given, _ = FAR["a limit of 2e14"]
    problem = gs.LinearlyConstrained(loss, A, domain=NonNegative(), **given)
    found = polyhedral.polyhedral(problem).minimize(np.array([-1e5, -2e5]), np.zeros((2, 2)))
    assert len(solved) == 2
    assert found.factorizations == sum(each.iterations for each in solved)
    assert found.products == sum(each.products for each in solved)


def test_far_bounds_of_coupled_agents():
    losses = [gs.losses.Linear([-1e5]), gs.losses.Linear([-2e5])]
    problem = gs.Problem(losses, Box(0.0, 1e15), coupling=gs.Coupled([[[1.0]], [[-1.0]]], 0.0))
    solution = gs.solve(problem, gs.Graph.path(2))
    assert solution.status is gs.Status.CONVERGED
    np.testing.assert_allclose(solution.x, 1e15, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e3, 1e7])
def test_residuals_are_relative_to_what_cancels_in_gradients(scale):
    """The constraint is inactive, so that the gradient is a difference of numbers of 1e10 and 1e18."""
    rng = np.random.default_rng(0)
    X = scale * rng.normal(size=(2000, 10))
    y = X @ rng.normal(size=10) + scale * rng.normal(size=2000)
    problem = gs.LinearlyConstrained(gs.losses.LeastSquares(X, y, agents=1), np.ones((1, 10)), 100.0, sense="<=")
    solution = gs.solve(problem)
    assert solution.status is gs.Status.CONVERGED
    assert solution.costs.gradients == 2
    np.testing.assert_allclose(solution.mean, np.linalg.lstsq(X, y)[0], rtol=1e-8)


def test_targets_below_rounding_end_as_stalled():
    *_, problem = random_program(0)
    solution = gs.solve(problem, stop=gs.Stop(kkt=1e-30, iterations=200))
    assert solution.status is gs.Status.STALLED
    assert solution.kkt.largest < 1e-8
    assert solution.costs.gradients < 30


def test_a_wrong_gradient_is_no_answer():
    center = np.array([1.0, -0.5])
    loss = gs.losses.Custom(
        value=lambda x: ((x - center) ** 2).sum(axis=1) / 2, gradient=lambda x: x - center + 1, agents=1, dimension=2
    )
    problem = gs.LinearlyConstrained(loss, [[1.0, 1.0]], 0.3, sense="<=")
    with pytest.warns(RuntimeWarning, match="contradict each other"):
        solution = gs.solve(problem, check_loss=False)
    assert solution.status is gs.Status.CONTRADICTORY


@pytest.mark.parametrize(("least", "is_convex"), [(-0.5, False), (-1e-12, True)])
def test_a_negative_eigenvalue_of_the_hessian_is_no_answer(least, is_convex):
    H = np.diag([1.0, 2.0, least])
    loss = gs.losses.Custom(
        value=[lambda x: x @ H @ x / 2 - x.sum()],
        gradient=[lambda x: H @ x - 1],
        hessian=[lambda x: H],
        agents=1,
        dimension=3,
    )
    problem = gs.LinearlyConstrained(loss, [[1.0, 1.0, 1.0]], 0.3, domain=Box(-2.0, 2.0))
    if is_convex:
        assert gs.solve(problem).status is gs.Status.CONVERGED
        return
    with pytest.warns(RuntimeWarning, match="the Hessian has the eigenvalue -0.5"):
        solution = gs.solve(problem)
    assert solution.status is gs.Status.CONTRADICTORY


def test_a_barrier_that_is_infinite_at_the_start_says_what_to_do():
    loss = gs.losses.Custom(
        value=[lambda x: -np.log(np.maximum(x, 0)).sum()],
        gradient=[lambda x: -1 / x],
        hessian=[lambda x: np.diag(1 / x**2)],
        agents=1,
        dimension=3,
    )
    problem = gs.LinearlyConstrained(loss, [[1.0, 2.0, 3.0]], 1.0, domain=Box(0.0, 1.0))
    with (
        np.errstate(divide="ignore"),
        pytest.raises(gs.InputError, match=r"finite at the start; got agent 0 .* give x0="),
    ):
        gs.solve(problem)
    for given in ({"x0": np.full(3, 0.1)}, {"check_loss": False}):
        with np.errstate(divide="ignore"):
            solution = gs.solve(problem, **given)
        assert solution.status is gs.Status.CONVERGED
        np.testing.assert_allclose(solution.mean, 1 / (3 * np.array([1.0, 2.0, 3.0])), rtol=1e-5)


UNBOUNDED = {
    "a plane": (gs.losses.Linear([1.0, 0.0]), [[0.0, 1.0]], {"b": 1.0}, None),
    "a cone": (gs.losses.Linear([-1.0, -1.0]), [[1.0, -1.0]], {"b": 0.0, "sense": "<="}, NonNegative()),
    "a flat direction": (gs.losses.Quadratic(np.diag([1.0, 0.0]), [0.0, 1.0]), [[1.0, 0.0]], {"b": 1.0}, None),
    "squares": (
        gs.losses.Quadratic(np.ones((2, 2)), [1.0, -1.0]),
        [[1.0, 1.0]],
        {"lower": -1.0, "upper": 1.0},
        None,
    ),
}


@pytest.mark.parametrize("name", UNBOUNDED)
def test_simple_unbounded_problems_come_with_a_ray(name):
    loss, A, sides, domain = UNBOUNDED[name]
    A = np.array(A)
    solution = gs.solve(gs.LinearlyConstrained(loss, A, domain=domain, **sides))
    assert solution.status is gs.Status.UNBOUNDED
    ray = solution.ray[0]
    far = 1e6 * ray
    assert float(loss.value(far[None])[0]) < -1e5
    lower, upper = sides.get("lower", -np.inf), sides.get("upper", np.inf)
    if "b" in sides:
        lower, upper = (-np.inf if sides.get("sense") == "<=" else 0.0), 0.0
    assert np.all(A @ ray <= max(0.0, upper if np.isinf(upper) else 0.0) + 1e-7)
    assert np.all(A @ ray >= min(0.0, lower if np.isinf(lower) else 0.0) - 1e-7)
    if domain is not None:
        assert np.all(ray >= -1e-9)


def infeasible_problem(seed):
    """A combination of the rows with weights z contradicts the bounds; other rows and columns hide it."""
    rng = np.random.default_rng(seed)
    n, k = 8, 12
    A, z = rng.normal(size=(k, n)), np.where(rng.random(k) < 0.5, rng.exponential(size=k), 0.0)
    z[0] = 1.0
    # A'z = 0, and b'z = -1: no x has A x <= b.
    A[0] = -(z[1:] @ A[1:])
    b = rng.normal(size=k)
    b[0] = -1.0 - z[1:] @ b[1:]
    loss = gs.losses.Quadratic(np.eye(n), rng.normal(size=n)) if seed % 2 else gs.losses.Linear(rng.normal(size=n))
    return A, b, gs.LinearlyConstrained(loss, A, b, sense="<=")


@pytest.mark.first(10)
@pytest.mark.parametrize("seed", range(50))
def test_infeasible_problems_come_with_a_certificate(seed):
    A, b, problem = infeasible_problem(seed)
    solution = gs.solve(problem)
    assert solution.status is gs.Status.INFEASIBLE
    z = solution.ray
    assert np.all(z >= -1e-9)
    np.testing.assert_allclose(A.T @ z, 0, atol=1e-7)
    assert b @ z < -1e-3


def unbounded_problem(seed):
    """A direction that rows and bounds allow, along which f has no curvature and falls."""
    rng = np.random.default_rng(seed)
    n, k = 8, 6
    ray = rng.normal(size=n)
    A = rng.normal(size=(k, n))
    A -= np.outer(np.maximum(A @ ray, 0) + (rng.random(k) < 0.5) * rng.exponential(size=k), ray) / (ray @ ray)
    half = rng.normal(size=(4, n))
    half -= np.outer(half @ ray, ray) / (ray @ ray)
    c = rng.normal(size=n)
    c -= (1 + c @ ray) / (ray @ ray) * ray
    Q = half.T @ half if seed % 2 else np.zeros((n, n))
    return Q, c, A, gs.LinearlyConstrained(gs.losses.Quadratic(Q, c), A, rng.normal(size=k), sense="<=")


@pytest.mark.first(10)
@pytest.mark.parametrize("seed", range(50))
def test_unbounded_problems_come_with_a_ray(seed):
    Q, c, A, problem = unbounded_problem(seed)
    solution = gs.solve(problem)
    assert solution.status is gs.Status.UNBOUNDED
    ray = solution.ray[0]
    np.testing.assert_allclose(Q @ ray, 0, atol=1e-6)
    assert np.all(A @ ray <= 1e-6)
    assert c @ ray < -1e-3


@pytest.mark.slow
def test_no_feasible_problem_is_called_otherwise():
    """500 problems that are feasible and bounded, many hardly so, with wild scales."""
    for seed in range(500):
        rng = np.random.default_rng(1000 + seed)
        n, k = int(rng.integers(2, 15)), int(rng.integers(1, 20))
        A = rng.normal(size=(k, n)) * 10.0 ** rng.uniform(-3, 3, size=(k, 1)) * 10.0 ** rng.uniform(-2, 2, size=n)
        A[:, rng.random(n) < 0.2] = 0
        inside = rng.normal(size=n) * 10.0 ** rng.uniform(-2, 2)
        slack = rng.exponential(size=k) * 10.0 ** rng.uniform(-8, 2, size=k) * (rng.random(k) < 0.8)
        z = rng.exponential(size=k) * (rng.random(k) < 0.5)
        half = rng.normal(size=(int(rng.integers(0, n + 1)), n)) * 10.0 ** rng.uniform(-2, 2)
        # The gradient at `inside` is that of a minimizer for some right-hand side: the objective is bounded.
        c = -half.T @ (half @ inside) - A.T @ z
        problem = gs.LinearlyConstrained(gs.losses.Quadratic(half.T @ half, c), A, A @ inside + slack, sense="<=")
        solution = gs.solve(problem, stop=gs.Stop(kkt=1e-5, iterations=50))
        assert solution.status not in (gs.Status.INFEASIBLE, gs.Status.UNBOUNDED), seed
        assert solution.status is gs.Status.CONVERGED, (seed, solution)


REFUSED = {
    "an operator": (lambda A: aslinearoperator(A), {}, gs.Newton(), ["entries of A", "AutoPDS"]),
    "a ball": (lambda A: A, {"domain": L2Ball(1.0)}, gs.LBFGS(), ["polyhedral", "AutoPDS"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_quadratic_program_is_refused(name):
    make, given, method, words = REFUSED[name]
    problem = gs.LinearlyConstrained(gs.losses.Quadratic(np.eye(3), np.ones(3)), make(np.ones((1, 3))), 1.0, **given)
    with pytest.raises(gs.InputError) as error:
        gs.solve(problem, method=method)
    assert all(word in str(error.value) for word in words)
    assert gs.solve(problem, stop=gs.Stop(iterations=3)).parameters["method"] != "Newton"


def test_newton_needs_hessians():
    loss = gs.losses.Custom(value=lambda x: (x**4).sum(axis=1), gradient=lambda x: 4 * x**3, agents=1, dimension=2)
    problem = gs.LinearlyConstrained(loss, [[1.0, 1.0]], 1.0)
    with pytest.raises(gs.InputError, match=r"Hessians.*LBFGS"):
        gs.solve(problem, method=gs.Newton())
    solution = gs.solve(problem)
    assert solution.parameters["method"] == "LBFGS"
    np.testing.assert_allclose(solution.mean, 0.5, atol=1e-4)


def transport(**sides):
    return gs.LinearlyConstrained(gs.losses.Linear([1.0, 2.0]), np.ones((1, 2)), domain=NonNegative(), **sides)


HARD = {
    "large right-hand sides": (lambda: transport(lower=3e9), [3e9, 0.0]),
    "small costs": (
        lambda: gs.LinearlyConstrained(
            gs.losses.Linear([-3e-7, -5e-7]), np.ones((1, 2)), 1.0, NonNegative(), sense="<="
        ),
        [0.0, 1.0],
    ),
    "a set that is a point": (
        lambda: gs.LinearlyConstrained(gs.losses.Linear([1.0, 0.0]), [[1, 0], [-1, 0], [0, 1]], 0.0, NonNegative()),
        [0.0, 0.0],
    ),
    "inequalities that leave a point": (
        lambda: gs.LinearlyConstrained(gs.losses.Linear([1.0]), [[1.0], [-1.0], [-1.0]], 0.0, sense="<="),
        [0.0],
    ),
    "two copies of a row": (
        lambda: gs.LinearlyConstrained(
            gs.losses.Linear([-2.0, 0.0]),
            [[2.0, -2.0], [1.0, 0.0], [-2.0, 2.0]],
            [0.0, 1.0, 0.0],
            Box([-2.0, 0.0], np.inf),
            sense="<=",
        ),
        [1.0, 1.0],
    ),
    "single precision": (
        lambda: gs.LinearlyConstrained(
            gs.losses.Quadratic(np.eye(2, dtype=np.float32), np.zeros(2, dtype=np.float32)),
            [[0.3, 0.7], [0.1, 0.9], [0.4, 1.6]],
            np.array([[0.3, 0.7], [0.1, 0.9], [0.4, 1.6]]) @ [0.3, 0.6],
        ),
        [0.3, 0.6],
    ),
    "rows of rank 1 in single precision": (
        lambda: gs.LinearlyConstrained(
            gs.losses.Quadratic(np.eye(3, dtype=np.float32), np.ones(3, dtype=np.float32)),
            [[0.1, 0.2, 0.3], [0.3, 0.6, 0.9]],
            [0.1, 0.3],
        ),
        [-0.5, 0.0, 0.5],
    ),
    "a maximum without an end": (
        lambda: gs.Saddle(
            gs.losses.Quadratic(np.eye(2), np.zeros(2)),
            [[-1.0, -1.0]],
            h=gs.terms.Linear(-1.0),
            dual_domain=NonNegative(),
        ),
        [0.5, 0.5],
    ),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_cases(name):
    make, expected = HARD[name]
    problem = make()
    solution = gs.solve(problem, x0=None)
    assert solution.status is gs.Status.CONVERGED
    scale = max(1.0, float(np.max(np.abs(expected))))
    np.testing.assert_allclose(solution.mean, expected, atol=scale * (1e-5 if problem.dtype == np.float32 else 1e-6))


def test_contradictory_copies_of_a_row_are_infeasible_though_the_objective_falls():
    a = [-1, -2, 0, 0, 1, -1, 2]
    c = [1e4, 2e4, -2e4, 1e4, 0, -1e4, -1e4]
    box = Box([-1, 0, -1, -2, -2, -np.inf, 0], [1, 0, 2, *[np.inf] * 4])
    problem = gs.LinearlyConstrained(gs.losses.Linear(c), [a, a], lower=[-np.inf, 2], upper=[-2, 2], domain=box)
    assert gs.solve(problem).status is gs.Status.INFEASIBLE
    terms = {"h": gs.terms.Linear(-np.ones(2)), "dual_domain": NonNegative()}
    apart = gs.Saddle(gs.losses.Quadratic(np.eye(1), np.zeros(1)), [[1.0], [-1.0]], **terms)
    assert gs.solve(apart).status is gs.Status.INFEASIBLE


def test_what_has_no_solution_has_no_certificate():
    box = Box([0, 0.5, 0.5], [0, 0.5, 0.5])
    problem = gs.LinearlyConstrained(gs.losses.Quadratic(np.eye(3), np.zeros(3)), np.ones((1, 3)), 2.0, box)
    solution = gs.solve(problem)
    assert solution.status is gs.Status.INFEASIBLE
    assert solution.certificate is None
    assert solution.to_dict()["ray"] == solution.ray.tolist()


def test_a_sparse_diagonal_beside_dense_rows_is_eliminated():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(30, 200))
    b, box = A @ rng.uniform(size=200), Box(0.0, 1.0)
    dense, sparse = (
        gs.solve(gs.LinearlyConstrained(gs.losses.Quadratic(Q, np.zeros(200)), A, b, box))
        for Q in (np.eye(200), sp.eye_array(200, format="csr"))
    )
    np.testing.assert_allclose(sparse.mean, dense.mean, atol=1e-7)
