"""Problems of CVXPY: values, variables and dual values are those of Clarabel, whatever the problem is made of."""

import sys
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import gradslide as gs

TIGHT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


def regression(rng):
    """Vectors, a parameter that enters linearly and one that does not, a constant, a piecewise linear term."""
    x, features = cp.Variable(5), cp.Parameter((8, 5), value=rng.normal(size=(8, 5)))
    weight = cp.Parameter(nonneg=True, value=0.7)
    fit = cp.sum_squares(features @ x - rng.normal(size=8))
    return cp.Minimize(fit + weight * weight * cp.norm1(x) + 3), [cp.sum(x) == 1, x >= -0.3, x[:2] <= 0.2]


def matrices(rng):
    """A matrix variable, bounds on its transpose, a bound on its largest entry, and Huber's function."""
    Y = cp.Variable((2, 3))
    away = cp.sum_squares(Y - rng.normal(size=(2, 3))) + cp.sum(cp.huber(Y))
    return cp.Minimize(away), [Y @ np.ones(3) == rng.normal(size=2), Y.T >= -1.1, cp.norm_inf(Y) <= 1.5]


def maximum(rng):
    """Two variables, one of them with an attribute, and a maximum."""
    x, z = cp.Variable(5), cp.Variable(2, nonneg=True)
    gain = rng.normal(size=5) @ x + cp.sum(z) - 5
    loss = cp.quad_form(x, np.eye(5) + np.ones((5, 5))) + cp.sum_squares(z)
    return cp.Maximize(gain - loss), [x[0] + z[0] <= 1, z[1] >= x[1], 3 * x >= -0.6]


def attributes(rng):
    """Symmetric, diagonal, sparse and bounded variables."""
    S, D, b = cp.Variable((2, 2), symmetric=True), cp.Variable((2, 2), diag=True), cp.Variable(3, bounds=[-1, 2])
    c, w = cp.Variable(2, nonpos=True), cp.Variable()
    away = cp.sum_squares(S - rng.normal(size=(2, 2))) + cp.sum_squares(D - rng.normal(size=(2, 2)))
    away += cp.sum_squares(b - 3) + cp.sum_squares(c + 1) + w**2 - w
    return cp.Minimize(away), [S[0, 0] + D[0, 0] == 1, b[0] + w <= 1, cp.trace(S) >= 0.5]


def linear(rng):
    x = cp.Variable(6)
    return cp.Minimize(rng.uniform(1, 2, size=6) @ x), [x >= 0, x <= 1, cp.sum(x) >= 2, x[0] == 0.25]


def piecewise(rng):
    x, w = cp.Variable(4), cp.Variable()
    pieces = cp.max(x) + cp.sum(cp.abs(x - rng.normal(size=4))) + cp.sum_largest(x, 2) + cp.maximum(x[0], w)
    return cp.Minimize(pieces + w**2 + 0.1 * cp.sum_squares(x)), [cp.sum(x) == 1, cp.abs(w) <= 3]


def portfolio(rng):
    w, factors = cp.Variable(12), rng.normal(size=(12, 3))
    risk = cp.sum_squares(factors.T @ w) + cp.sum_squares(cp.multiply(rng.uniform(0.2, 1, size=12), w))
    return cp.Maximize(rng.normal(size=12) @ w - 2 * risk), [cp.sum(w) == 1, w >= -0.1, cp.max(w) <= 0.4]


def only_bounds(rng):
    x = cp.Variable(4)
    return cp.Minimize(cp.sum_squares(rng.normal(size=(6, 4)) @ x - 3)), [x <= 0.5, -2 * x <= 1]


def unconstrained(rng):
    x = cp.Variable(4)
    return cp.Minimize(cp.quad_over_lin(rng.normal(size=(6, 4)) @ x - 1, 2.0)), []


PROGRAMS = [regression, matrices, maximum, attributes, linear, piecewise, portfolio, only_bounds, unconstrained]


def dense(value):
    return value.toarray() if sp.issparse(value) else np.array(value)


def read(problem):
    """Optimal value, variables and dual values."""
    duals = [dense(dual.value) for constraint in problem.constraints for dual in constraint.dual_variables]
    return problem.value, [dense(variable.value) for variable in problem.variables()], duals


def assert_like_clarabel(problem, value_tolerance=1e-7, tolerance=1e-4):
    converted = gs.from_cvxpy(problem)
    solution = gs.solve(converted)
    assert solution.status in (gs.Status.CONVERGED, gs.Status.STATIONARY)
    value = converted.assign(solution)
    assert problem.status == cp.OPTIMAL
    assert value == problem.value
    ours = read(problem)
    problem.solve(solver=cp.CLARABEL, ignore_dpp=True, **TIGHT)
    theirs = read(problem)
    assert ours[0] == pytest.approx(theirs[0], rel=value_tolerance, abs=value_tolerance)
    for own, other in zip([*ours[1], *ours[2]], [*theirs[1], *theirs[2]], strict=True):
        np.testing.assert_allclose(own, other, atol=tolerance, rtol=tolerance)
    return converted


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_programs_have_clarabels_answers(program, seed):
    problem = cp.Problem(*program(np.random.default_rng(seed)))
    converted = assert_like_clarabel(problem)
    assert isinstance(converted.loss, gs.losses.Linear if program is linear else gs.losses.Quadratic)


@pytest.mark.parametrize("maximize", [False, True])
def test_the_objective_is_that_of_cvxpy_up_to_sign_and_offset(maximize):
    rng = np.random.default_rng(0)
    x = cp.Variable(3)
    sum_of_squares = cp.sum_squares(x) + rng.normal(size=3) @ x + 7
    problem = cp.Problem(cp.Maximize(-sum_of_squares) if maximize else cp.Minimize(sum_of_squares), [x >= 1])
    converted = gs.from_cvxpy(problem)
    assert converted.sign == (-1 if maximize else 1)
    assert converted.offset == (-7 if maximize else 7)
    # Here x consists of an auxiliary variable and of the user's.
    solution = gs.solve(converted)
    value = converted.assign(solution)
    assert converted.objective(solution.x)[0] == pytest.approx(converted.sign * (value - converted.offset))


def test_bounds_become_a_box_and_the_tightest_one_has_the_multiplier():
    x = cp.Variable(3)
    wide, tight, row = x <= 5, -2 * x >= -2, cp.sum(x) >= -100
    problem = cp.Problem(cp.Minimize(cp.sum((x - 3) ** 2)), [wide, tight, row, x[0] >= 0])
    converted = gs.from_cvxpy(problem)
    own = converted.domain.hi[0] == 1
    assert own.sum() == 3
    assert converted.domain.lo[0][own].tolist() == [0, -np.inf, -np.inf]
    assert np.sum(converted.A.shape[0]) == 1 + 3, "the row, and what CVXPY makes of the squares"
    converted.assign(gs.solve(converted))
    np.testing.assert_allclose(x.value, 1, atol=1e-8)
    np.testing.assert_allclose(tight.dual_value, 2, atol=1e-6)
    np.testing.assert_allclose(wide.dual_value, 0, atol=1e-8)


def test_the_users_bound_has_the_multiplier_where_the_domain_says_the_same():
    """x^1.5 is defined for x >= 0, which is a constraint of the user, too."""
    x = cp.Variable(2)
    positive = x >= 0
    converted = gs.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(cp.power(x, 1.5)) + x[0] - x[1]), [positive]))
    converted.assign(gs.solve(converted))
    np.testing.assert_allclose(x.value, [0, 4 / 9], atol=1e-4)
    np.testing.assert_allclose(positive.dual_value, [1, 0], atol=1e-4)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize(
    ("constraints", "status"),
    [
        (lambda x: [x >= 2, x <= 1], "infeasible"),
        (lambda x: [cp.sum(x) >= 2, cp.sum(x) <= 1], "infeasible"),
        (lambda x: [0 * x >= 1], "infeasible"),
        (lambda x: [], "unbounded"),
        (lambda x: [x[0] == x[1]], "unbounded"),
    ],
)
def test_problems_without_a_solution(constraints, status, maximize):
    x = cp.Variable(2)
    problem = cp.Problem(cp.Maximize(cp.sum(x)) if maximize else cp.Minimize(cp.sum(x)), constraints(x))
    converted = gs.from_cvxpy(problem)
    value = converted.assign(gs.solve(converted))
    assert problem.status == status
    assert value == (np.inf if (status == "infeasible") != maximize else -np.inf)
    assert x.value is None
    problem.solve(solver=cp.CLARABEL)
    assert problem.status == status
    assert problem.value == value


def test_variables_that_occur_nowhere_have_values_too():
    x, unused, other = cp.Variable(2), cp.Variable(3, name="unused"), cp.Variable(2)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(x - 1) + 0 * cp.sum(unused)), [other >= 1])
    converted = gs.from_cvxpy(problem)
    assert converted.assign(gs.solve(converted)) == pytest.approx(0, abs=1e-9)
    assert unused.value.shape == (3,)
    assert np.all(other.value >= 1 - 1e-8)


def test_parameters_keep_the_values_they_had():
    rng = np.random.default_rng(0)
    x, target = cp.Variable(3), cp.Parameter(3, value=np.ones(3))
    for objective in (cp.sum_squares(x - target), cp.sum(cp.exp(x) - cp.multiply(target, x))):
        target.value = np.ones(3)
        converted = gs.from_cvxpy(cp.Problem(cp.Minimize(objective), [x <= 5]))
        u = rng.normal(size=(1, converted.d))
        before = converted.loss.gradient(u)
        target.value = np.full(3, 2.0)
        np.testing.assert_array_equal(converted.loss.gradient(u), before)


# ---- kinks, with scaled arguments

FEATURES = np.array([[1.0, -2.0], [3.0, 1.0], [-1.0, 1.0]])
LABELS = np.array([1.0, -1.0, 1.0])
TARGET = np.array([1.0, 2.0, 3.0])
KINKS = {
    "hinge": lambda x: cp.sum(cp.pos(1 - cp.multiply(LABELS, FEATURES @ x))),
    "scaled hinge": lambda x: cp.sum(cp.pos(1 - 2 * (FEATURES @ x))),
    "quantiles": lambda x: cp.sum(cp.maximum(0.3 * (FEATURES @ x - TARGET), -0.7 * (FEATURES @ x - TARGET))),
    "negative parts": lambda x: cp.sum(cp.neg(3 * (FEATURES @ x) - 1)),
    "minimum": lambda x: -cp.sum(cp.minimum(FEATURES @ x, 0.5, 2 * (FEATURES @ x) + 1)),
    "absolute values": lambda x: cp.sum(cp.abs(-2 * (FEATURES @ x - TARGET))),
    "norm1": lambda x: 0.5 * cp.norm1(1 - 3 * (FEATURES @ x)),
    "norm_inf": lambda x: cp.norm_inf(2 * (FEATURES @ x) - TARGET),
    "largest": lambda x: cp.max(1 - 4 * (FEATURES @ x)),
    "largest absolute value": lambda x: cp.max(cp.abs(TARGET - 2 * (FEATURES @ x))),
    "sum_largest": lambda x: cp.sum_largest(2 * (FEATURES @ x) - TARGET, 2),
    "huber": lambda x: cp.sum(cp.huber(3 * (FEATURES @ x) - TARGET, 0.5)),
    "insensitive": lambda x: cp.sum(cp.pos(cp.abs(2 * (FEATURES @ x) - TARGET) - 0.3)),
    "squared hinge": lambda x: cp.sum(cp.square(cp.pos(1 - 2 * (FEATURES @ x)))),
    "total variation": lambda x: cp.tv(-2 * (FEATURES @ x)),
    "several": lambda x: cp.sum(cp.pos(1 - 2 * x)) + 2 * cp.norm_inf(3 * x - 1) + cp.norm1(-0.5 * x),
}


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("valued", [False, True])
@pytest.mark.parametrize("kink", KINKS)
def test_kinks_have_clarabels_answers(kink, valued, maximize):
    """Also of variables that have values already, as after another solve."""
    x = cp.Variable(2)
    if valued:
        x.value = np.array([7.0, -7.0])
    loss = KINKS[kink](x) + 0.1 * cp.sum_squares(x)
    limits = [x[0] <= 5, cp.sum(x) >= 0.2, cp.norm1(-2 * x) <= 3, cp.pos(1 - 3 * x[1]) <= 2.5]
    assert_like_clarabel(cp.Problem(cp.Maximize(-loss) if maximize else cp.Minimize(loss), limits))


@pytest.mark.parametrize("attributes", [{"nonneg": True}, {"nonpos": True}, {"bounds": [-0.4, 0.3]}], ids=str)
@pytest.mark.parametrize("term", [cp.exp, cp.abs], ids=lambda term: term.__name__)
def test_bounds_of_variables_count(attributes, term):
    """In terms that keep CVXPY's values, and in those that it rewrites; with values beforehand."""
    x = cp.Variable(3, **attributes)
    x.value = x.project(np.full(3, 0.2))
    pull = np.array([-5.0, 9.0, -1.2])
    problem = cp.Problem(cp.Minimize(cp.sum(term(2 * x)) + pull @ x + cp.sum_squares(x)), [x[0] + x[1] >= -2])
    converted = assert_like_clarabel(problem, value_tolerance=1e-6, tolerance=1e-3)
    low, high = converted.domain.lo, converted.domain.hi
    bounds = attributes.get("bounds", [0, np.inf] if "nonneg" in attributes else [-np.inf, 0])
    assert np.count_nonzero((low == bounds[0]) & (high == bounds[1])) == 3, "a part of the box, no rows"


@pytest.mark.filterwarnings("ignore:Reading from a sparse CVXPY expression")
@pytest.mark.parametrize("sparsity", [((0, 0, 1, 1), (0, 1, 0, 1)), ((1, 0), (0, 1))], ids=str)
def test_entries_of_sparse_variables_keep_their_places(sparsity):
    S, weights = cp.Variable((2, 2), sparsity=sparsity), np.array([[1.0, 2.0], [3.0, 4.0]])
    converted = gs.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(cp.exp(S)) - cp.sum(cp.multiply(weights, S))), [S <= 3]))
    converted.assign(gs.solve(converted))
    found = S.value_sparse.toarray()[sparsity]
    np.testing.assert_allclose(found, np.log(weights[sparsity]), atol=1e-3)


def test_the_users_bound_has_the_multiplier_where_the_variable_has_the_same():
    x = cp.Variable(2, nonneg=True)
    positive, again = x >= 0, 2 * x >= 0
    problem = cp.Problem(cp.Minimize(cp.sum_squares(x + 1)), [positive, again])
    converted = gs.from_cvxpy(problem)
    converted.assign(gs.solve(converted))
    np.testing.assert_allclose(positive.dual_value, 2, atol=1e-6)
    np.testing.assert_allclose(again.dual_value, 0, atol=1e-6)


def test_bounds_of_variables_and_constraints_may_contradict_each_other():
    x = cp.Variable(2, nonneg=True)
    converted = gs.from_cvxpy(problem := cp.Problem(cp.Minimize(cp.sum(x)), [x <= -1]))
    assert converted.assign(gs.solve(converted)) == np.inf
    assert problem.status == "infeasible"


# ---- smooth objectives


def logistic(rng):
    x, features = cp.Variable(4), rng.normal(size=(30, 4))
    labels = np.sign(features @ rng.normal(size=4) + rng.normal(size=30))
    fit = cp.sum(cp.logistic(cp.multiply(-labels, features @ x))) / 30
    return cp.Minimize(fit + 0.1 * cp.norm1(x) + 2), [cp.sum(x) == 0.5, x >= -0.4]


def log_sum_exp(rng):
    x = cp.Variable(5)
    return cp.Minimize(2 * (cp.log_sum_exp(rng.normal(size=(9, 5)) @ x) + cp.sum_squares(x))), [x[0] + x[1] >= 1]


def exponential(rng):
    """With a symmetric variable, whose entries outside of the diagonal count twice."""
    x, S = cp.Variable(3), cp.Variable((2, 2), symmetric=True)
    costs = cp.sum(cp.exp(x)) - rng.uniform(1, 2, size=3) @ x
    costs += cp.exp(S[0, 1] + 0.5 * S[1, 0]) + cp.sum_squares(S)
    return cp.Minimize(costs), [cp.sum(x) >= 2, S[0, 0] >= 1]


def entropy(rng):
    y = cp.Variable(6, nonneg=True)
    mean = rng.normal(size=(2, 6))
    return cp.Maximize(cp.sum(cp.entr(y)) + y[0]), [cp.sum(y) == 1, mean @ y == mean @ rng.dirichlet(np.ones(6))]


def growth(rng):
    w = cp.Variable(4)
    return cp.Maximize(cp.sum(cp.log(rng.uniform(0.5, 2, size=(20, 4)) @ w)) / 20), [cp.sum(w) == 1, w >= 0, w <= 0.5]


def divergence(rng):
    y = cp.Variable(4)
    return cp.Minimize(cp.sum(cp.kl_div(y, rng.dirichlet(np.ones(4))))), [cp.sum(y) == 1, y[1] <= 0.1]


def roots(rng):
    y = cp.Variable(3)
    return cp.Maximize(rng.uniform(1, 2, size=3) @ cp.sqrt(y) - cp.sum(cp.power(y, 3))), [cp.sum(y) <= 1, y[0] <= 0.1]


SMOOTH = [logistic, log_sum_exp, exponential, entropy, growth, divergence, roots]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("objective", SMOOTH, ids=lambda objective: objective.__name__)
def test_smooth_objectives_have_clarabels_minima(objective, seed):
    problem = cp.Problem(*objective(np.random.default_rng(seed)))
    converted = assert_like_clarabel(problem, value_tolerance=1e-6, tolerance=2e-3)
    assert isinstance(converted.loss, gs.losses.Custom)


@pytest.mark.parametrize("objective", SMOOTH, ids=lambda objective: objective.__name__)
def test_gradients_are_those_of_the_values(objective):
    rng = np.random.default_rng(1)
    converted = gs.from_cvxpy(cp.Problem(*objective(rng)))
    start = converted.start()
    assert np.isfinite(converted.loss.value(start)).all(), "runs start inside of the domain"
    for _ in range(3):
        u = start + 0.01 * rng.uniform(size=start.shape)
        way = rng.normal(size=start.shape)
        ahead, behind = converted.loss.value(u + 1e-5 * way), converted.loss.value(u - 1e-5 * way)
        slope = float(np.vdot(converted.loss.gradient(u), way))
        assert (ahead - behind).item() / 2e-5 == pytest.approx(slope, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("objective", [*SMOOTH, regression, piecewise], ids=lambda objective: objective.__name__)
def test_nothing_is_written_into_the_problem_but_by_assign(objective):
    problem = cp.Problem(*objective(np.random.default_rng(0)))
    solution = gs.solve(converted := gs.from_cvxpy(problem))
    assert all(variable.value is None for variable in problem.variables())
    assert problem.status is None
    converted.assign(solution)
    assert all(variable.value is not None for variable in problem.variables())


def test_outside_of_its_domain_an_objective_is_infinite():
    y = cp.Variable(2)
    converted = gs.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(cp.log(y))), [cp.sum(y) <= 1]))
    assert converted.loss.value(np.array([[-1.0, 0.5]])).item() == np.inf
    assert np.isnan(converted.loss.gradient(np.array([[-1.0, 0.5]]))).all()
    assert converted.domain.lo.max() == 0, "the domain is a constraint"


# ---- what is refused

X, W, M = cp.Variable(3, name="x"), cp.Variable(name="w"), cp.Variable((2, 2), PSD=True, name="M")
K, Z = cp.Variable(2, integer=True, name="k"), cp.Variable(2, complex=True, name="z")
UNSET = cp.Parameter(name="rate")

REFUSED = {
    "cone": (cp.Minimize(cp.sum(X)), [cp.norm2(X) <= 1], r"affine or piecewise linear; got .*norm.*\(x, 2\) <= 1"),
    "quadratic constraint": (cp.Minimize(cp.sum(X)), [X >= 0, cp.sum_squares(X) <= 1], "quad_over_lin"),
    "exponential constraint": (cp.Minimize(cp.sum(cp.exp(X))), [cp.exp(X) <= 1], r"got exp\(x\) <= 1"),
    "norm": (cp.Minimize(cp.norm2(X)), [cp.sum(X) >= 1], r"smooth.*norm.* in .*sum_squares for norm2"),
    "norm beside": (cp.Minimize(cp.sum(cp.logistic(X)) + cp.norm2(X)), [], "norm"),
    "kink inside": (cp.Minimize(cp.exp(cp.abs(W))), [], "got abs in exp"),
    "determinant": (cp.Maximize(cp.log_det(cp.Variable((2, 2), symmetric=True))), [], "got log_det"),
    "curved domain": (cp.Maximize(cp.log(1 - cp.square(W))), [], "domains of the objective's terms"),
    "semidefinite": (cp.Minimize(cp.trace(M)), [], "semidefinite; got M; use a conic solver"),
    "integer": (cp.Minimize(cp.sum(K)), [K >= 0], "continuous; got integer k; use a mixed integer solver"),
    "complex": (cp.Minimize(cp.sum(cp.abs(Z))), [], "real; got z"),
    "concave": (cp.Minimize(cp.sqrt(W)), [], "convex by CVXPY's rules"),
    "concave constraint": (cp.Minimize(W), [X[0] >= W, cp.sqrt(W) <= 1], r"\(w, (0.5|1/2)\)\)? <= 1"),
    "infinite": (cp.Minimize(cp.sum(X)), [X >= np.inf], "constraints must leave room"),
    "infinite sum": (cp.Minimize(cp.sum(X)), [cp.sum(X) <= -np.inf], "constraints must leave room"),
    "infinite equation": (cp.Minimize(cp.sum(X)), [X[:2] == np.inf], "constraints must leave room"),
    "no variables": (cp.Minimize(3), [], "must have variables"),
    "no value": (cp.Minimize(UNSET * W), [], "got none for rate; assign parameter.value"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    objective, constraints, message = REFUSED[case]
    with pytest.raises(gs.InputError, match=message):
        gs.from_cvxpy(cp.Problem(objective, constraints))


def test_other_things_are_refused():
    with pytest.raises(gs.InputError, match=r"must be a cvxpy.Problem; got .*"):
        gs.from_cvxpy(cp.Minimize(X[0]))


def test_assign_refuses_what_is_no_answer():
    converted = gs.from_cvxpy(cp.Problem(cp.Minimize(cp.sum((X - 1) ** 2)), [cp.sum(X) >= 1]))
    solution = gs.solve(converted)
    with pytest.raises(gs.InputError, match="DIVERGED"):
        converted.assign(replace(solution, status=gs.Status.DIVERGED))
    with pytest.raises(gs.InputError, match=r"must hold 6 values and multipliers; got 2 values"):
        converted.assign(replace(solution, mean=np.zeros(2)))
    converted.assign(replace(solution, status=gs.Status.TIME_LIMIT))
    assert converted.original.status == cp.settings.USER_LIMIT


def test_cvxpy_may_be_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(ModuleNotFoundError, match=r"gs.from_cvxpy needs CVXPY; got none installed; .*\[cvxpy\]"):
        gs.from_cvxpy(None)
