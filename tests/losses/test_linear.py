"""Linear losses: their value and gradient, their parts, and runs with L = 0 on a network."""

import numpy as np
import pytest
from error_messages import check_message
from scipy.optimize import linprog

import gradslide as gs
from gradslide.losses import Linear, Quadratic, stack

M, D = 4, 3
C = np.random.default_rng(0).normal(size=(M, D))


def test_value_and_gradient():
    loss, x = Linear(C), np.random.default_rng(1).normal(size=(M, D))
    np.testing.assert_allclose(loss.value(x), [C[i] @ x[i] for i in range(M)])
    np.testing.assert_array_equal(loss.gradient(x), C)
    value, gradient = loss.value_and_gradient(x)
    np.testing.assert_array_equal(value, loss.value(x))
    np.testing.assert_array_equal(gradient, C)
    assert loss.has_value
    assert loss.rows_per_agent is None


def test_one_agent_may_leave_its_axis_out():
    assert (Linear(C[0]).m, Linear(C[0]).d) == (1, D)
    np.testing.assert_array_equal(Linear(C[0]).gradient(np.zeros((1, D))), C[:1])


def test_the_gradient_is_the_callers_own():
    loss = Linear(C.copy())
    loss.gradient(np.zeros((M, D)))[:] = 9.0
    np.testing.assert_array_equal(loss.gradient(np.zeros((M, D))), C)


@pytest.mark.parametrize("norm", [1, 2])
def test_it_is_smooth_with_constant_zero(norm):
    np.testing.assert_array_equal(Linear(C).smoothness(norm), np.zeros(M))


def test_it_equals_a_quadratic_with_no_square():
    x = np.random.default_rng(2).normal(size=(M, D))
    twin = Quadratic(np.zeros((M, D, D)), C)
    np.testing.assert_allclose(Linear(C).value(x), twin.value(x))
    np.testing.assert_allclose(Linear(C).gradient(x), twin.gradient(x))


def test_float32_stays_float32():
    loss = Linear(C.astype(np.float32))
    x = np.ones((M, D), np.float32)
    assert loss.dtype == loss.gradient(x).dtype == np.float32
    assert loss.value(x).dtype == np.float64
    assert Linear([1, 2]).dtype == np.float64


def test_taking_and_stacking_agents():
    loss, x = Linear(C), np.random.default_rng(3).normal(size=(M, D))
    part = loss.take([2, 0])
    np.testing.assert_array_equal(part.gradient(x[[2, 0]]), C[[2, 0]])
    np.testing.assert_array_equal(part.smoothness(), np.zeros(2))
    merged = stack([Linear(c) for c in C])
    assert type(merged) is Linear
    np.testing.assert_array_equal(merged.gradient(x), C)
    mixed = stack([loss.take([0, 1]), Quadratic(np.eye(D), C[2]), loss.take([3])])
    np.testing.assert_allclose(mixed.gradient(x), [C[0], C[1], x[2] + C[2], C[3]])
    np.testing.assert_allclose(mixed.smoothness(), [0, 0, 1, 0])
    single = stack([Linear(C[:2]), Linear(C[2:].astype(np.float32))])
    assert single.dtype == np.float64
    np.testing.assert_allclose(single.gradient(x), C, rtol=1e-6)


@pytest.mark.covering
@pytest.mark.parametrize(
    "method",
    [gs.PDS(), gs.PDS(R=1.0, coupling="laplacian"), pytest.param(gs.CondatVu(), marks=pytest.mark.slow)],
    ids=["PDS", "Laplacian", "CondatVu"],
)
@pytest.mark.parametrize("domain", [gs.domains.L2Ball(1.0), gs.domains.Simplex(), gs.domains.EntropySimplex()])
def test_agents_minimise_the_sum_of_their_linear_losses(domain, method):
    problem = gs.Problem(Linear(C), domain)
    total = C.sum(axis=0)
    optimum = -np.linalg.norm(total) if isinstance(domain, gs.domains.L2Ball) else total.min()
    stop = gs.Stop(objective=gs.Relative(5e-3, to=optimum), disagreement=1e-2, iterations=20_000)
    solution = gs.solve(problem, gs.Graph.ring(M), method, stop=stop, record_every=20)
    assert solution.status is gs.Status.CONVERGED
    if isinstance(method, gs.PDS):
        # One gradient is enough: it is the same everywhere.
        assert solution.costs.gradients < solution.costs.rounds


def test_a_linear_program_over_blocks():
    """min sum_i <c_i, x_i> with 0 <= x_i <= 1 and A (x_1, ..., x_m) <= b."""
    rng = np.random.default_rng(4)
    A, b = rng.random(size=(3, M * D)), np.array([1.0, 0.5, 2.0])
    exact = linprog(C.reshape(-1), A_ub=A, b_ub=b, bounds=(0, 1))
    problem = gs.LinearlyConstrained(Linear(C), A, b, gs.domains.Box(0.0, 1.0), sense="<=")
    solution = gs.solve(problem, stop=gs.Stop(gap=3e-3, residual=3e-3, operator_products=20_000))
    assert solution.status is gs.Status.CONVERGED
    assert solution.history[-1].objective == pytest.approx(exact.fun, abs=5e-3)
    assert solution.certificate.lower <= exact.fun + 1e-9
    assert np.max(A @ solution.x.reshape(-1) - b) <= 3e-3


REFUSED = {
    "NaN": (lambda: Linear([1.0, np.nan]), ["c must be finite", "1 NaN"]),
    "a number": (lambda: Linear(3.0), ["(d,) or (m, d)", "shape ()"]),
    "three dimensions": (lambda: Linear(np.ones((1, 2, 3))), ["(d,) or (m, d)", "(1, 2, 3)"]),
    "nothing": (lambda: Linear([]), ["(d,) or (m, d)", "(0,)"]),
    "words": (lambda: Linear(["a"]), ["real numbers", "<U1"]),
    "complex": (lambda: Linear([1j]), ["real numbers", "complex128"]),
    "x of another shape": (lambda: Linear(C).value(np.zeros((M, D + 1))), ["(4, 3)", "(4, 4)"]),
    "a gradient at another shape": (lambda: Linear(C).gradient(np.zeros(D)), ["(4, 3)", "(3,)"]),
    "agents that are not there": (lambda: Linear(C).take([4]), ["0..3", "[4]"]),
    "samples": (lambda: Linear(C).sample_gradient(np.zeros((M, D)), 1, []), ["rows", "Linear"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_mistakes_are_refused_in_one_line(case):
    check_message(*REFUSED[case])
