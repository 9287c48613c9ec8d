"""The conventions of SciPy: the same arguments give the minimum and the multipliers that SciPy finds."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import Bounds, LinearConstraint, linprog, minimize

import gradslide as gs


def random_program(seed):
    rng = np.random.default_rng(seed)
    c, inside = rng.uniform(0.5, 1, size=9), rng.uniform(size=9)
    A, E = rng.normal(size=(4, 9)), rng.normal(size=(2, 9))
    return c, A, A @ inside + 0.1, E, E @ inside


BOUNDS = {
    "default": {},
    "all alike": {"bounds": (-1, 2)},
    "a list of two": {"bounds": [0, 3]},
    "no lower ones": {"bounds": [(None, 2)] * 9},
    "each": {"bounds": [(0, None)] * 4 + [(-1, 2)] * 5},
    "an array": {"bounds": np.column_stack([np.full(9, -1.0), np.r_[np.full(8, 2.0), np.inf]])},
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_linear_programs_have_linprogs_answers(seed, bounds, form):
    c, A, b, E, e = random_program(seed)
    if bounds == "no lower ones":
        c = -c
    expected = linprog(c, A, b, E, e, **BOUNDS[bounds])
    assert expected.status == 0
    problem = gs.from_linprog(c, form(A), b, form(E), e, **BOUNDS[bounds])
    solution = gs.solve(problem)
    assert problem.objective(solution.x)[0] == pytest.approx(expected.fun, abs=1e-6)
    np.testing.assert_allclose(solution.mean, expected.x, atol=1e-6)
    np.testing.assert_allclose(-solution.dual[:4], expected.ineqlin.marginals, atol=1e-6)
    np.testing.assert_allclose(-solution.dual[4:], expected.eqlin.marginals, atol=1e-6)
    reduced = c + problem.A.apply_adjoint(solution.dual)
    np.testing.assert_allclose(reduced, expected.lower.marginals + expected.upper.marginals, atol=1e-6)
    assert abs(reduced).max() > 1e-3, "a wrong sign would be seen"


def test_parts_of_a_linear_program_may_be_left_out():
    c, A, b, E, e = random_program(0)
    assert gs.from_linprog(c).duals.term.upper.tolist() == [[np.inf]], "one row that says nothing"
    np.testing.assert_allclose(gs.solve(gs.from_linprog(c)).mean, 0, atol=1e-6)
    assert gs.from_linprog(c, A, b).A.shape == (4, 9)
    assert gs.from_linprog(c, A_eq=E, b_eq=e).A.shape == (2, 9)
    assert gs.from_linprog([1.0], [[2.0]], 4).duals.term.upper.tolist() == [[4]]
    assert isinstance(gs.from_linprog(c).domain, gs.domains.NonNegative)
    for bounds in (None, (None, None), (-np.inf, np.inf)):
        # None means the default: linprog(bounds=None) has x >= 0.
        expected = gs.domains.NonNegative if bounds is None else gs.domains.Free
        assert type(gs.from_linprog(c, bounds=bounds).domain) is expected


@pytest.mark.parametrize("empty", [[], (), np.empty(0), np.empty((0, 2)), sp.csr_array((0, 2))], ids=repr)
def test_there_may_be_no_rows(empty):
    """As in code that collects rows in lists; the multiplier is that of a row that says nothing."""
    arguments = {"A_ub": empty, "b_ub": [], "A_eq": empty, "b_eq": [], "bounds": [(1, None), (2, 3)]}
    solution = gs.solve(gs.from_linprog([1, 2], **arguments))
    np.testing.assert_allclose(solution.mean, [1, 2], atol=1e-6)
    assert solution.dual.tolist() == [0]
    assert gs.from_linprog([1, 2], [[1, 1]], 5, A_eq=empty, b_eq=()).A.shape == (1, 2)
    assert gs.from_linprog([1, 2], b_ub=[]).A.shape == (1, 2)


def test_forms_of_right_hand_sides_and_bounds():
    c, A, b, _, _ = random_program(0)
    expected = gs.solve(gs.from_linprog(c, A, b)).mean
    for right in (b.tolist(), b[:, None]):
        np.testing.assert_array_equal(gs.solve(gs.from_linprog(c, A, right)).mean, expected)
    for bounds in ([], [[]], np.empty((0, 2))):
        assert isinstance(gs.from_linprog(c, A, b, bounds=bounds).domain, gs.domains.NonNegative)
    assert isinstance(gs.from_linprog(c, A, b, bounds=[None, None]).domain, gs.domains.Free)
    assert gs.from_linprog([1, 2], [[1, 1]], [np.inf]).duals.term.upper.tolist() == [[np.inf]]


@pytest.mark.parametrize("status", [2, 3])
def test_linear_programs_without_a_solution(status):
    arguments = ([1.0, 1.0], [[1.0, 1.0]], [-1.0]) if status == 2 else ([-1.0, 0.0], [[-1.0, 1.0]], [1.0])
    assert linprog(*arguments).status == status
    found = gs.solve(gs.from_linprog(*arguments)).status
    assert found is (gs.Status.INFEASIBLE if status == 2 else gs.Status.UNBOUNDED)


def test_what_minimize_solves():
    """With functions, their gradients, and a Hessian or none."""
    rng = np.random.default_rng(0)
    features, target, inside = rng.normal(size=(12, 5)), rng.normal(size=12), rng.uniform(size=5)

    def value(x):
        return float(np.sum(np.logaddexp(0, features @ x)) - target @ features @ x / 10 + x @ x / 2)

    def gradient(x):
        return features.T @ (1 / (1 + np.exp(-features @ x)) - target / 10) + x

    def hessian(x):
        p = 1 / (1 + np.exp(-features @ x))
        return features.T @ ((p * (1 - p))[:, None] * features) + np.eye(5)

    A, E = rng.normal(size=(2, 5)), rng.normal(size=(1, 5))
    constraints = [
        LinearConstraint(A, A @ inside - 0.1, A @ inside + 0.1),
        LinearConstraint(sp.csr_array(E), E @ inside),
    ]
    bounds = Bounds(-0.1, [0.5, 1, 1, 1, np.inf])
    plain = [LinearConstraint(A, constraints[0].lb, constraints[0].ub), LinearConstraint(E, E @ inside)]
    expected = minimize(value, inside, jac=gradient, method="SLSQP", constraints=plain, bounds=bounds, tol=1e-12)
    assert expected.success
    forms = [
        gs.from_scipy(value, constraints, bounds, jac=gradient),
        gs.from_scipy(value, constraints, bounds, jac=gradient, hess=hessian),
        gs.from_scipy(lambda x: (value(x), gradient(x)), tuple(constraints), bounds, jac=True),
        gs.from_scipy(
            value, constraints, [(-0.1, 0.5), (-0.1, 1), (-0.1, 1), (-0.1, 1), (-0.1, None)], jac=gradient, hess=hessian
        ),
    ]
    for problem in forms:
        assert problem.A.shape == (3, 5)
        assert problem.duals.term.upper[0, 2] == np.inf, "SciPy's default"
        solution = gs.solve(problem)
        assert problem.objective(solution.x)[0] == pytest.approx(expected.fun, abs=1e-6)
        np.testing.assert_allclose(solution.mean, expected.x, atol=1e-4)
    assert [problem.loss.has_hessian for problem in forms] == [False, True, False, True]


def test_a_loss_with_the_constraints_of_scipy():
    loss = gs.losses.Quadratic(2 * np.eye(2), np.zeros(2))
    problem = gs.from_scipy(loss, LinearConstraint([1.0, 2.0], 5.0, 5.0))
    assert problem.loss is loss
    assert isinstance(problem.domain, gs.domains.Free)
    solution = gs.solve(problem)
    np.testing.assert_allclose(solution.mean, [1, 2], atol=1e-6)
    # One more on the right side costs 2 * 5 / (1^2 + 2^2).
    np.testing.assert_allclose(-solution.dual, 2, atol=1e-6)


def test_forms_of_bounds_and_constraints():
    """Integers, arrays of pairs, `keep_feasible`, and one row as a flat array."""
    row = LinearConstraint([1, 1], 5, keep_feasible=True)
    pairs = [(1, 7), (2, 7)]
    for bounds in (Bounds([1, 2], 7, keep_feasible=True), Bounds([1, 2], [7]), np.array(pairs), pairs):
        alone, both = (gs.solve(gs.from_scipy(F, constraints, bounds, jac=G)) for constraints in (None, row))
        np.testing.assert_allclose(alone.mean, [1, 2], atol=1e-6)
        np.testing.assert_allclose(both.mean, [2.5, 2.5], atol=1e-6)
        assert alone.dual.tolist() == [0], "that of the row that says nothing"
    assert gs.from_scipy(F, None, [(1, 2)], jac=G).d == 1
    assert gs.from_scipy(F, row, (0, None), jac=G).domain.lo.tolist() == [[0, 0]]


F, G = (lambda x: x @ x), (lambda x: 2 * x)
REFUSED = {
    "columns": (lambda: gs.from_linprog([1, 2], [[1, 1, 1]], [1]), r"A_ub must have 2 columns; got shape \(1, 3\)"),
    "no right side": (lambda: gs.from_linprog([1, 2], A_eq=[[1, 1]]), "A_eq and b_eq go together"),
    "right side": (lambda: gs.from_linprog([1, 2], [[1, 1]], [1, 2]), "b_ub must have 1 entries"),
    "too many bounds": (lambda: gs.from_linprog([1, 2], bounds=[(0, 1)] * 3), "bounds must be a pair"),
    "crossed": (lambda: gs.from_linprog([1, 2], bounds=(1, 0)), "must not exceed"),
    "infinite lower bound": (
        lambda: gs.from_linprog([1, 1], [[1, 1]], [5], bounds=[(np.inf, None)] * 2),
        r"lower bounds must be < inf; got inf and inf for x\[0\]; correct them",
    ),
    "infinite upper bound": (
        lambda: gs.from_linprog([1, 1], bounds=[(0, 1), (None, -np.inf)]),
        r"upper bounds must be > -inf; got -inf and -inf for x\[1\]",
    ),
    "infinite Bounds": (lambda: gs.from_scipy(F, bounds=Bounds([-np.inf] * 2, -np.inf), jac=G), "must be > -inf"),
    "infinite lower Bounds": (lambda: gs.from_scipy(F, bounds=Bounds([np.inf] * 2), jac=G), "must be < inf"),
    "bounds that are no pairs": (lambda: gs.from_linprog([1, 1], bounds=3), "pair .*; got int 3; write None"),
    "Bounds for linprog": (lambda: gs.from_linprog([1, 1], bounds=Bounds(0, 1)), "pair .*; got Bounds"),
    "pairs that end": (lambda: gs.from_linprog([1, 1], bounds=zip([0, 0], [1, 1], strict=True)), "pair .*; got zip"),
    "None for a pair": (lambda: gs.from_linprog([1, 1], bounds=[None, (0, 1)]), r"pair .*; got shape \(2,\)"),
    "b_ub": (lambda: gs.from_linprog([1, 1], [[1, 1]], [-np.inf]), r"b_ub must be > -inf; got \[-inf\]"),
    "b_eq": (lambda: gs.from_linprog([1, 1], A_eq=[[1, 1]], b_eq=[np.inf]), r"b_eq must be finite; got \[inf\]"),
    "rows without right sides": (lambda: gs.from_linprog([1, 1], [[1, 1]], []), "A_ub and b_ub go together"),
    "three dimensions": (lambda: gs.from_linprog([1, 1], np.ones((1, 1, 2)), [1]), r"got shape \(1, 1, 2\)"),
    "matrix as c": (lambda: gs.from_linprog([[1, 2], [3, 4]]), r"c must have shape \(n,\)"),
    "text": (lambda: gs.from_linprog(["a", 1]), "c must be a number"),
    "dict": (lambda: gs.from_scipy(F, [{"type": "eq", "fun": F}], jac=G), "linear; got dict"),
    "no size": (lambda: gs.from_scipy(F, jac=G), "number of variables"),
    "no size in bounds": (lambda: gs.from_scipy(F, bounds=Bounds(0.0, 1.0), jac=G), "number of variables"),
    "one pair for any size": (lambda: gs.from_scipy(F, bounds=(0, 1), jac=G), "number of variables"),
    "size of Bounds": (
        lambda: gs.from_scipy(F, LinearConstraint([1, 1], 1), Bounds([0, 0, 0], 1), jac=G),
        r"lb of the bounds must be a number or have 2 entries; got shape \(3,\)",
    ),
    "Bounds of nothing": (lambda: gs.from_scipy(F, bounds=Bounds([0, 0], None), jac=G), "ub of the bounds .* NaN"),
    "crossed Bounds": (lambda: gs.from_scipy(F, bounds=Bounds([0, 3], 2), jac=G), r"exceed .*; got 3 and 2 for x\[1\]"),
    "crossed row": (lambda: gs.from_scipy(F, LinearConstraint([1, 1], 2, 1), jac=G), "lb <= ub.*; got lb=2 and ub=1"),
    "infinite row": (lambda: gs.from_scipy(F, LinearConstraint([1, 1], np.inf), jac=G), "lb < inf .*; got lb=inf"),
    "a constraint as bounds": (
        lambda: gs.from_scipy(F, LinearConstraint([1, 1], 1), "ab", jac=G),
        "bounds must be a pair .*; got str 'ab'",
    ),
    "no gradient": (lambda: gs.from_scipy(F, bounds=Bounds([0, 0], 1)), "jac must be given; got None"),
    "no function": (lambda: gs.from_scipy(3, bounds=Bounds([0, 0], 1), jac=G), "loss or a function; got int 3"),
    "jac of a loss": (
        lambda: gs.from_scipy(gs.losses.Linear([1.0, 2.0]), bounds=Bounds([0, 0], 1), jac=G),
        "jac and hess go with a function",
    ),
    "agents": (lambda: gs.from_scipy(gs.losses.Linear(np.ones((2, 2)))), "one of one agent; got 2 agents"),
    "columns of a constraint": (
        lambda: gs.from_scipy(F, [LinearConstraint([1, 2], 3), LinearConstraint([1], 3)], jac=G),
        "A of a constraint must have 2 columns",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    call, message = REFUSED[case]
    with pytest.raises(gs.InputError, match=message):
        call()
