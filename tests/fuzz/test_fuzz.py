"""The fuzzer finds nothing, and would: what it checks can fail. `make fuzz` runs thousands of problems."""

import time
from dataclasses import replace

import fuzz_cases
import fuzz_check
import numpy as np
import pytest
from fuzz_cases import make_case
from fuzz_check import Truth, check, solve_independently, stop_for
from fuzz_solver import LONG, Convex, Domain, Quadratic, Rows, minimize
from scipy.optimize import Bounds
from scipy.optimize import minimize as scipy_minimize

import gradslide as gs

# Differences of rounding errors of double precision take numbers with more digits.
pytestmark = pytest.mark.skipif(np.finfo(LONG).eps > 1e-18, reason="needs extended precision")


def examine(seeds):
    outcomes = [fuzz_check.run(seed) for seed in seeds]
    assert [(outcome.seed, outcome.label, outcome.findings) for outcome in outcomes if outcome.findings] == []
    # Where the optimum is 0 or infinitely far away no relative error is small.
    assert sum(not outcome.is_decided for outcome in outcomes) <= max(3, 0.2 * len(outcomes))


def test_a_few_problems():
    examine(range(101, 113))


# What it found once: a false alarm at kinks, a broken invariant that was rounding, an answer of the other solver at
# 1e20, an estimate on a plane that depended on units, a negative width, an upper bound of user code.
@pytest.mark.parametrize("seed", [71920, 93222, 91277, 94469, 100206, 101212])
def test_problems_that_were_found(seed):
    assert fuzz_check.run(seed).findings == []


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(10))
def test_some_hundred_problems(chunk):
    examine(range(1000 + 30 * chunk, 1030 + 30 * chunk))


@pytest.mark.parametrize("seed", [200044, 300932, 301907, 302441, 401626, 402455, 702911])
def test_rounding_is_no_contradiction(seed):
    """These were called CONTRADICTORY: sums cancel, are of single precision, or of points far away."""
    examine([seed])


@pytest.mark.parametrize("seed", [400382, 400977])
def test_models_without_any_curvature(seed):
    """Group penalties where the Hessian is 0: one was called solved far from the optimum, the other never ended."""
    examine([seed])


def test_steps_that_are_lost_in_rounding_end_at_a_limit():
    """Damping grew until it was infinite: Newton ended with an error of NumPy's."""
    assert fuzz_check.run(600443).status == "iteration limit"


# ---- the generator


def test_all_kinds_of_problems_are_made():
    cases = [make_case(seed) for seed in range(600)]
    labels = [case.label for case in cases]
    wanted = [
        *fuzz_cases.LOSSES,
        *fuzz_cases.DOMAINS,
        *fuzz_cases.BASELINES,
        "PDS",
        "SPDS",
        "AutoPDS",
        "Newton",
        "LBFGS",
        "default",
    ]
    wanted += ["float32", "far start", "m=1,", "weighted edges", "duplicated column", "constant column", "separable"]
    wanted += ["zero column", "wild columns", "sparse", "feasible", "infeasible", "unbounded"]
    assert [name for name in wanted if not any(name in label for label in labels)] == []


def test_a_seed_is_a_problem():
    one, other, another = make_case(5), make_case(5), make_case(6)
    assert one.label == other.label != another.label
    at = np.ones((one.problem.m, one.problem.d))
    np.testing.assert_array_equal(one.problem.objective(at), other.problem.objective(at))


@pytest.mark.parametrize("seed", range(40, 60))
def test_both_solvers_are_given_the_same_problem(seed):
    case = make_case(seed)
    if case.convex is None:
        pytest.skip("linear constraints have no agents")
    x = case.convex.domain.project(np.random.default_rng(0).normal(size=case.problem.d))
    rows = np.broadcast_to(x.astype(case.dtype), (case.problem.m, case.problem.d))
    found = float(np.sum(case.problem.objective(rows), dtype=np.float64))
    expected = float(case.convex.value(rows[0].astype(LONG)))
    assert found == pytest.approx(expected, abs=1e3 * float(np.finfo(case.dtype).eps) * case.convex.size(x))


# ---- the independent solver


def test_it_solves_ridge_regression():
    rng = np.random.default_rng(0)
    units = 10.0 ** rng.uniform(-5, 5, size=6)
    A, b = rng.normal(size=(40, 6)) * units, rng.normal(size=40)
    rows = Rows("least squares", A.astype(LONG), b.astype(LONG), np.ones(40, LONG))
    answer = minimize(Convex(rows, Domain()))
    x = np.linalg.lstsq(A / units, b, rcond=None)[0] / units
    assert answer.value == pytest.approx(0.5 * np.sum((A @ x - b) ** 2), rel=1e-12)
    assert answer.error <= 1e-12 * answer.value


@pytest.mark.parametrize("kind", ["logistic", "huber", "hinge", "softmax"])
def test_it_agrees_with_another_solver_over_a_box(kind):
    rng = np.random.default_rng(1)
    K = 3 if kind == "softmax" else 1
    targets = {"huber": 3 * rng.normal(size=50), "softmax": rng.integers(3, size=50)}
    y = targets.get(kind, rng.choice([-1, 1], size=50)).astype(LONG)
    rows = Rows(kind, rng.normal(size=(50, 3)).astype(LONG), y, np.ones(50, LONG), 0.5, K)
    box = Domain(lo=np.full(3 * K, -0.2), hi=np.full(3 * K, 0.3))
    answer = minimize(Convex(rows, box))
    other = scipy_minimize(
        lambda x: float(rows.value(x.astype(LONG))),
        np.zeros(3 * K),
        jac=lambda x: rows.gradient(x.astype(LONG)).astype(float),
        bounds=Bounds(box.lo, box.hi),
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 1000},
    )
    assert answer.value <= other.fun + 1e-13
    assert answer.value == pytest.approx(other.fun, rel=1e-9)
    assert answer.error <= 1e-10 * answer.value


def test_it_knows_its_own_error():
    """At a point that is not optimal the bound is at least the true error."""
    rng = np.random.default_rng(2)
    root = rng.normal(size=(4, 4))
    problem = Convex(Quadratic((root @ root.T).astype(LONG), np.ones(4, LONG)), Domain(l1_weight=np.full(4, 0.1, LONG)))
    answer = minimize(problem)
    away = answer.x + LONG(1e-3)
    from fuzz_solver import _error

    assert _error(problem, away, np.ones(4)) >= float(problem.value(away)) - answer.value > 0


# ---- the checker


def solved(seed, wanted="default"):
    """The first healthy case from this seed on that is certified, its solution, and the truth."""
    while True:
        case = make_case(seed)
        if case.convex is not None and case.options["stop"]["target"] == "gap" and case.dtype == np.float64:
            truth = solve_independently(case)
            solution = gs.solve(case.problem, case.graph, **{**case.options, "stop": stop_for(case, truth)})
            if solution.status is gs.Status.CONVERGED and truth.is_decided and case.is_relative:
                return case, solution, truth
        seed += 1


@pytest.fixture(scope="module")
def healthy():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return solved(200)


def kinds(found):
    return [kind for kind, _ in found]


def test_what_is_right_is_not_flagged(healthy):
    assert check(*healthy) == []


def test_wrong_bounds_are_flagged(healthy):
    case, solution, truth = healthy
    step = 1e-8 * abs(truth.high)
    above = replace(solution, certificate=gs.Certificate(truth.high + step, truth.high + 2 * step))
    assert kinds(check(case, above, truth)) == ["false lower bound"]
    below = replace(solution, certificate=gs.Certificate(truth.low - 2 * step, truth.low - step))
    assert kinds(check(case, below, truth)) == ["false upper bound"]


def test_wrong_statuses_are_flagged(healthy):
    case, solution, truth = healthy
    for status in (gs.Status.DIVERGED, gs.Status.UNBOUNDED, gs.Status.INFEASIBLE, gs.Status.CONTRADICTORY):
        assert "wrong status" in kinds(check(case, replace(solution, status=status), truth))
    assert kinds(check(case, solution, replace(truth, status="unbounded"))) == ["wrong status"]
    for status in (gs.Status.ITERATION_LIMIT, gs.Status.STATIONARY, gs.Status.FEASIBLE):
        assert check(case, replace(solution, status=status), truth) == []


def test_convergence_to_another_point_is_flagged(healthy):
    case, solution, truth = healthy
    lower = Truth(truth.high - 20 * case.tolerance * abs(truth.high), truth.low, truth.x, truth.size, truth.scale)
    assert "false convergence" in kinds(check(case, solution, lower))
    apart = solution.x.copy()
    apart[0] += 10 * np.linalg.norm(solution.mean)
    case = replace(case, options={**case.options, "stop": {**case.options["stop"], "disagreement": gs.Relative(1e-2)}})
    assert "false agreement" in kinds(check(case, replace(solution, x=apart), truth))


def test_warnings_without_cause_are_flagged(healthy):
    case, solution, truth = healthy
    assert kinds(check(case, replace(solution, warnings=("messages were lost",)), truth)) == ["false warning"]


def test_programs_without_a_solution_are_not_solved():
    for kind in ("infeasible", "unbounded", "feasible"):
        case = next(case for seed in range(300) if (case := make_case(seed)).kind == kind)
        truth = solve_independently(case)
        assert truth.status == {"feasible": "solved"}.get(kind, kind)
        solution = gs.solve(case.problem, stop=stop_for(case, truth))
        assert check(case, solution, truth) == []
        wrong = gs.Status.UNBOUNDED if kind == "feasible" else gs.Status.CONVERGED
        far = replace(solution, x=np.zeros_like(solution.x), status=wrong)
        assert "wrong status" in kinds(check(case, far, truth))


def test_a_hang_a_traceback_and_a_refusal_are_found(monkeypatch):
    seed = next(seed for seed in range(100) if not make_case(seed).may_refuse)

    def solve(error):
        def failing(*_, **__):
            if error is None:
                time.sleep(5)
            raise error

        return failing

    refusal = gs.InputError("a rule", "a value", "a remedy")
    for error, kind in ((ValueError("no"), "traceback"), (refusal, "refused"), (None, "hang")):
        monkeypatch.setattr(gs, "solve", solve(error))
        assert kinds(fuzz_check.run(seed, alarm=1).findings) == [kind]
