"""Scaling: weights of the coordinates of x and z. The problem stays the same; badly scaled ones take fewer products."""

import math
import warnings

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from error_messages import check_message
from scipy.optimize import linprog

import gradslide as gs
from gradslide.domains import Box, EntropySimplex, Free, GroupBall, L1Ball, L2Ball, NonNegative, PerAgent, Simplex
from gradslide.problems.linear_map import linear_map
from gradslide.problems.saddle import DualSpace
from gradslide.problems.scaling import weights

M, D = 3, 4
RNG = np.random.default_rng(0)
WEIGHTS = 10 ** RNG.uniform(-1, 2, size=(M, D))
CENTER = np.linspace(-1, 2, D)
L1_WEIGHTS = np.linspace(0.1, 0.5, D)


def solve_tightly(problem):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")
        return problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)


SETS = {
    "free": (Free, (), lambda x: []),
    "box": (Box, (-0.5, 0.7), lambda x: [x >= -0.5, x <= 0.7]),
    "half a box": (Box, (-0.5, np.inf), lambda x: [x >= -0.5]),
    "non-negative": (NonNegative, (), lambda x: [x >= 0]),
}
PENALTIES = {
    "": (None, lambda x: 0.0),
    "l1": (gs.L1(0.3), lambda x: 0.3 * cp.norm1(x)),
    "l1 weighted": (gs.L1(L1_WEIGHTS), lambda x: cp.sum(cp.multiply(L1_WEIGHTS, cp.abs(x)))),
    "elastic net": (gs.ElasticNet(0.2, 0.8), lambda x: 0.2 * cp.norm1(x) + 0.4 * cp.sum_squares(x)),
}


def weighted(name, penalty, scales=WEIGHTS):
    make, arguments, _ = SETS[name]
    domain = make(*arguments, penalty=PENALTIES[penalty][0], center=CENTER).bind(M, D, np.float64)
    return domain.weighted(scales)


def generic_minimum(name, penalty, i, slope, scale):
    """min over X of scale nu + r + <slope, x> for agent i."""
    x = cp.Variable(D)
    nu = cp.sum(cp.multiply(WEIGHTS[i], cp.square(x - CENTER))) / 2
    objective = scale * nu + PENALTIES[penalty][1](x) + slope @ x
    least = solve_tightly(cp.Problem(cp.Minimize(objective), SETS[name][2](x)))
    return x.value, least


@pytest.mark.covering
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("name", SETS)
def test_a_weighted_prox_matches_a_generic_solver(name, penalty):
    domain, rng = weighted(name, penalty), np.random.default_rng(1)
    theta = rng.normal(size=(M, D)) * np.array([[0.3], [3], [30]])
    for scale in (0.6, np.array([[0.2], [1.0], [5.0]])):
        x = domain.prox(theta, scale)
        least = domain.linear_minimum(-theta, 0.6)
        for i in range(M):
            one = scale if np.ndim(scale) == 0 else float(scale[i, 0])
            expected, value = generic_minimum(name, penalty, i, -theta[i], one)
            np.testing.assert_allclose(x[i], expected, atol=2e-6)
            if np.ndim(scale) == 0:
                assert least[i] == pytest.approx(value, rel=1e-7, abs=1e-7)
    alike = weighted(name, penalty, np.ones(D))
    assert np.max(np.abs(alike.prox(theta, 0.6) - domain.prox(theta, 0.6))) > 0.01


@pytest.mark.parametrize("name", SETS)
def test_distances_are_weighted(name):
    domain, rng = weighted(name, ""), np.random.default_rng(2)
    a, x = rng.normal(size=(2, M, D))
    np.testing.assert_allclose(domain.nu(x), np.sum(WEIGHTS * (x - CENTER) ** 2, axis=1) / 2)
    np.testing.assert_allclose(domain.grad_nu(x), WEIGHTS * (x - CENTER))
    np.testing.assert_allclose(domain.V(a, x), np.sum(WEIGHTS * (x - a) ** 2, axis=1) / 2)
    np.testing.assert_allclose(domain.take([2, 0]).nu(x[[2, 0]]), domain.nu(x)[[2, 0]])
    np.testing.assert_array_equal(domain.start(), domain.project(np.tile(CENTER, (M, 1))))
    bound = domain.distance_bound(domain.project(a))
    assert np.all(np.isfinite(bound)) == (name == "box")
    corners = domain.project(1e3 * np.sign(rng.normal(size=(200, M, D))))
    furthest = np.max([domain.V(domain.project(a), corner) for corner in corners], axis=0)
    assert np.all(furthest <= bound * (1 + 1e-12))
    if name == "box":
        np.testing.assert_allclose(furthest, bound)


@pytest.mark.parametrize("name", SETS)
def test_dual_terms_take_the_weights_of_z_into_account(name):
    rng = np.random.default_rng(4)
    w, b, slope, q = WEIGHTS[0], rng.normal(size=D), 3 * rng.normal(size=D), 0.6
    make, arguments, constraints = SETS[name]
    domain = make(*arguments, center=CENTER).bind(1, D, np.float64).weighted(w)
    z0 = domain.project(rng.normal(size=(1, D)))
    for term, curvature in ((gs.terms.Linear(b), 0.0), (gs.terms.Quadratic(0.7, b), 0.7)):
        duals = DualSpace(domain, term)
        z = cp.Variable(D)
        h = b @ z + curvature / 2 * cp.sum_squares(z)
        distance = cp.sum(cp.multiply(w, cp.square(z - z0[0]))) / 2
        solve_tightly(cp.Problem(cp.Minimize(h - slope @ z + q * distance), constraints(z)))
        np.testing.assert_allclose(duals.ascend(z0, slope[None], q)[0], z.value, atol=2e-6)
    largest = -solve_tightly(cp.Problem(cp.Minimize(h - slope @ z), constraints(z)))
    assert duals.conjugate(slope[None]) == pytest.approx(largest, rel=1e-6)


def spread_matrix(seed=0, k=7, n=9, orders=4.0):
    """Rows and columns of sizes that spread over so many orders of magnitude."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(k, n)) * (rng.random((k, n)) < 0.7)
    return A * 10 ** rng.uniform(0, orders, size=(k, 1)) * 10 ** rng.uniform(0, orders, size=n)


def scales_in_loops(A, kind):
    """Ruiz's ten iterations, then Pock and Chambolle's, entry by entry."""
    k, n = A.shape
    rows, columns = [1.0] * k, [1.0] * n
    for step in range(11):
        size = max if step < 10 else sum
        scaled = [[abs(A[i, j]) * rows[i] * columns[j] for j in range(n)] for i in range(k)]
        row_sizes = [size(scaled[i]) or 1.0 for i in range(k)]
        column_sizes = [size(scaled[i][j] for i in range(k)) or 1.0 for j in range(n)]
        if kind != "columns":
            rows = [rows[i] / math.sqrt(row_sizes[i]) for i in range(k)]
        if kind != "rows":
            columns = [columns[j] / math.sqrt(column_sizes[j]) for j in range(n)]
    return np.array(rows), np.array(columns)


@pytest.mark.parametrize("kind", ["rows", "columns", "both"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_matrix, sp.coo_array])
def test_the_weights_are_those_of_ruiz_then_pock_and_chambolle(form, kind):
    for seed in range(5):
        A = spread_matrix(seed)
        A[2], A[:, 3] = 0.0, 0.0
        rows, columns = scales_in_loops(A, kind)
        found = weights(linear_map(form(A), 9, np.float64), kind)
        np.testing.assert_allclose(found.x, columns**-2 / np.min(columns**-2), rtol=1e-10)
        np.testing.assert_allclose(found.z, rows**-2 / np.min(rows**-2), rtol=1e-10)
        assert found.x.min() == found.z.min() == 1.0
        assert np.all(found.x == 1) == (kind == "rows")
        assert np.all(found.z == 1) == (kind == "columns")


@pytest.mark.parametrize("seed", range(6))
def test_after_scaling_both_the_norm_is_at_most_1_but_for_the_units_of_x_and_z(seed):
    """Pock and Chambolle: |D_z A D_x| <= 1. Weights of at least 1 are D^-2 in units of the largest D."""
    A = spread_matrix(seed)
    rows, columns = scales_in_loops(A, "both")
    exact = float(np.linalg.norm(rows[:, None] * A * columns, 2))
    assert 0.3 < exact <= 1 + 1e-12
    problem = gs.LinearlyConstrained(gs.losses.Linear(np.ones(9)), A, 0.0, scaling="both")
    assert problem.operator_norm() * rows.max() * columns.max() == pytest.approx(exact, rel=1e-9)
    for axis in (0, 1):
        before = np.linalg.norm(A, axis=axis)
        after = np.linalg.norm(rows[:, None] * A * columns, axis=axis)
        assert after.max() / after.min() < 5 < 20 < before.max() / before.min()


def cvxpy_solution(Q, c, A, b, box, l1):
    x = cp.Variable(len(c))
    equations = A @ x == b
    objective = cp.quad_form(x, cp.psd_wrap(Q)) / 2 + c @ x + l1 * cp.norm1(x)
    solve_tightly(cp.Problem(cp.Minimize(objective), [equations, *([x >= -box, x <= box] if np.isfinite(box) else [])]))
    return x.value, equations.dual_value


@pytest.mark.covering
@pytest.mark.parametrize("l1", [0.0, 0.2])
@pytest.mark.parametrize("box", [np.inf, 0.8])
@pytest.mark.parametrize("scaling", [None, "rows", "columns", "both"])
def test_a_scaled_problem_has_the_same_solution_and_multipliers(scaling, box, l1):
    rng = np.random.default_rng(3)
    root = rng.normal(size=(6, 6))
    Q, c = root @ root.T / 6 + np.eye(6), rng.normal(size=6)
    A = rng.normal(size=(2, 6)) * np.array([[1.0], [3.0]]) * 10 ** rng.uniform(-0.5, 0.5, size=6)
    b = A @ rng.uniform(-0.3, 0.3, size=6)
    expected, multipliers = cvxpy_solution(Q, c, A, b, box, l1)
    domain = Box(-box, box, penalty=gs.L1(l1) if l1 else None)
    problem = gs.LinearlyConstrained(gs.losses.Quadratic(Q, c), A, b, domain, scaling=scaling)
    solution = gs.solve(problem, method=gs.CondatVu(), stop=gs.Stop(iterations=2500), output="last", record_every=500)
    np.testing.assert_allclose(solution.x[0], expected, atol=1e-5)
    np.testing.assert_allclose(solution.dual, multipliers, atol=1e-5)


def linear_program(seed, spreads, k=10, n=25):
    """A well scaled linear program in bad units: (loss, A, b, domain), and its solution x* and z*."""
    rng = np.random.default_rng(seed)
    row_units = 10 ** rng.uniform(-2, 2, size=k) if "rows" in spreads else np.ones(k)
    column_units = 10 ** rng.uniform(-2, 2, size=n) if "columns" in spreads else np.ones(n)
    A, x, c = rng.normal(size=(k, n)), rng.random(n), rng.normal(size=n)
    exact = linprog(c, A_eq=A, b_eq=A @ x, bounds=(0, 1))
    bad = row_units[:, None] * A * column_units
    domain = Box(0.0, 1 / column_units)
    given = gs.losses.Linear(c * column_units), bad, row_units * (A @ x), domain
    return given, exact.x / column_units, -exact.eqlin.marginals / row_units


TARGETS = gs.Stop(gap=gs.Relative(3e-2), residual=gs.Relative(1e-2), operator_products=4_000)


def products(given, x, z, scaling):
    """How many products PDS takes with the theorem's own R, and the solution."""
    problem = gs.LinearlyConstrained(*given, scaling=scaling)
    V, U = float(problem.domain.V(problem.start(), x[None])[0]), problem.duals.U(problem.duals.start(), z[None])
    R = gs.guarantees.saddle_R(V=V, U=U)
    solution = gs.solve(problem, method=gs.PDS(R=R), stop=TARGETS)
    return solution.costs.operator_products, solution


@pytest.mark.first(3)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("spreads", "scaling"), [("rows", "rows"), ("columns", "columns"), ("rows, columns", "both")])
def test_a_badly_scaled_problem_takes_fewer_products_when_scaled(spreads, scaling, seed):
    given, x, z = linear_program(seed, spreads)
    plain, _ = products(given, x, z, None)
    fewer, scaled = products(given, x, z, scaling)
    assert scaled.status is gs.Status.CONVERGED
    assert fewer < 0.4 * plain
    optimum = float(given[0].value(x[None])[0])
    assert scaled.history[-1].objective == pytest.approx(optimum, abs=0.05 * (1 + abs(optimum)))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("spreads", "scaling"),
    [
        ("rows", "rows"),
        ("columns", "columns"),
        ("rows, columns", "both"),
    ],
)
def test_the_R_that_is_found_is_as_good_as_the_theorems_own(spreads, scaling, seed):
    given, x, z = linear_program(seed, spreads)
    best, _ = products(given, x, z, scaling)
    found = gs.solve(gs.LinearlyConstrained(*given, scaling=scaling), stop=TARGETS)
    assert found.costs.operator_products < 3 * best


REFUSED = {
    "an operator": (
        lambda: constrained(A=(lambda x: np.eye(4) @ x, lambda z: np.eye(4) @ z), scaling="rows"),
        ["entries of A", "operator"],
    ),
    "columns with mu": (lambda: constrained(mu=0.5, scaling="columns"), ["mu = 0", "mu=0.5", 'scaling="rows"']),
    "both with mu": (lambda: constrained(mu=0.5, scaling="both"), ["mu = 0", "mu=0.5"]),
    "columns of a ball": (lambda: constrained(L2Ball(1.0), scaling="columns"), ["Free, Box and", "L2Ball"]),
    "columns of an l1 ball": (lambda: constrained(L1Ball(1.0), scaling="both"), ["Free, Box and", "L1Ball"]),
    "columns of a simplex": (lambda: constrained(Simplex(1.0), scaling="both"), ["Free, Box and", "Simplex"]),
    "columns of balls": (
        lambda: constrained(GroupBall(1.0, [0, 0, 1, 1]), scaling="both"),
        ["Free, Box and", "GroupBall"],
    ),
    "columns of groups": (
        lambda: constrained(Free(penalty=gs.GroupL1(1.0, [0, 0, 1, 1])), scaling="both"),
        ["without GroupL1", "Free"],
    ),
    "columns with entropy": (lambda: constrained(EntropySimplex(), scaling="columns"), ["domain", "EntropySimplex"]),
    "columns of mixed sets": (
        lambda: gs.LinearlyConstrained(
            gs.losses.Linear(np.ones((2, 2))), np.eye(4), 0.0, PerAgent([Free(), L2Ball(1.0)]), scaling="columns"
        ),
        ["domain", "PerAgent"],
    ),
    "rows with entropy": (lambda: saddle(EntropySimplex(), "rows"), ["dual_domain", "EntropySimplex"]),
    "rows of a ball": (lambda: saddle(L2Ball(1.0), "rows"), ["Free, Box and", "L2Ball"]),
    "a misspelt kind": (lambda: constrained(scaling="row"), ["scaling", "'row'", "did you mean 'rows'?"]),
    "a truth": (lambda: constrained(scaling=True), ["scaling", "True", "both, columns, rows"]),
    "own prox": (
        lambda: gs.Saddle(gs.losses.Linear(np.ones(4)), np.eye(4), gs.terms.Prox(lambda v, _: v), scaling="rows"),
        ["weighted alike", "Free"],
    ),
}


def constrained(domain=None, A=None, **options):
    return gs.LinearlyConstrained(gs.losses.Linear(np.ones(4)), np.eye(4) if A is None else A, 0.0, domain, **options)


def saddle(dual_domain, scaling):
    return gs.Saddle(gs.losses.Linear(np.ones(4)), np.eye(4), dual_domain=dual_domain, scaling=scaling)


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_scaled_is_refused_in_one_line(case):
    check_message(*REFUSED[case])


def test_the_same_calls_without_the_mistake_are_taken():
    constrained(mu=0.5, scaling="rows")
    constrained(L2Ball(1.0), scaling="rows")
    constrained(EntropySimplex(), scaling="rows")
    saddle(L2Ball(1.0), "columns")
    saddle(Box(0.0, 1.0), "both")
    constrained(sp_box := Box(0.0, 1.0, penalty=gs.L1(0.1)), A=sp.eye_array(4), scaling="both")
    assert sp_box.weights is None
