"""The schedules against the conditions of the theorem, without any solver."""

import dataclasses
import itertools
import math
from itertools import islice

import numpy as np
import pytest

from gradslide import guarantees, schedules


def parameter_sets(count: int) -> list[dict[str, float]]:
    rng = np.random.default_rng(0)
    sets = []
    for index in range(count):
        L = 0.0 if index % 10 == 0 else 10 ** rng.uniform(-3, 4)
        mu = 0.0 if index % 3 == 0 else 10 ** rng.uniform(-4, 3)
        sets.append({"L": L, "mu": mu, "R": 10 ** rng.uniform(-3, 2), "A_norm": 10 ** rng.uniform(-1, 2)})
    return sets


def one_stage(schedule: schedules.Schedule, most: int = 300) -> list[schedules.Row]:
    length = schedule.stage_length if isinstance(schedule, schedules.StronglyConvex) else most
    return list(islice(schedule.rows(), min(length, most)))


def test_conditions_hold_for_1000_random_parameter_sets():
    for parameters in parameter_sets(1000):
        rows = one_stage(schedules.theorem_1(**parameters), most=120)
        L, mu, A_norm = parameters["L"], parameters["mu"], parameters["A_norm"]
        assert schedules.violations(rows, L=L, mu=mu, A_norm=A_norm) == [], parameters


@pytest.mark.parametrize("field", ["tau", "lam", "beta", "p", "q", "alpha_1", "eta_1", "eta_slope"])
def test_the_checker_notices_a_wrong_parameter(field):
    L, mu, A_norm = 10.0, 0.1, 3.0
    rows = one_stage(schedules.theorem_1(L=L, mu=mu, A_norm=A_norm, R=5.0))
    for factor in (0.5, 2.0):
        wrong = [
            dataclasses.replace(row, **{field: factor * getattr(row, field)}) if row.k == 7 else row for row in rows
        ]
        if schedules.violations(wrong, L=L, mu=mu, A_norm=A_norm):
            return
    pytest.fail(f"neither halving nor doubling {field} was noticed")


def test_the_checker_notices_too_small_an_L_and_too_small_a_norm():
    rows = one_stage(schedules.theorem_1(L=1.0, mu=0.0, A_norm=1.0, R=20.0))
    assert schedules.violations(rows, L=3.0, mu=0.0, A_norm=1.0)
    assert schedules.violations(rows, L=1.0, mu=0.0, A_norm=1.2)


def test_sums_of_beta_are_exact():
    for parameters in parameter_sets(100):
        S = 0.0
        for row in one_stage(schedules.theorem_1(**parameters)):
            S += row.beta
            assert row.S == pytest.approx(S, rel=1e-9)
            assert row.weight == pytest.approx(row.beta / S, rel=1e-9)


def test_rows_stay_finite_up_to_10_000_and_T_is_capped():
    for parameters in parameter_sets(200):
        schedule = schedules.theorem_1(**parameters)
        for n in (1, 2, 3, 10, 100, 1000, 10_000):
            row = schedule.row(n)
            assert all(math.isfinite(value) for value in dataclasses.astuple(row))
            assert row.q > 0
            if isinstance(schedule, schedules.StronglyConvex):
                assert row.T <= schedule.growth * schedule.row(schedule.Delta + 1).T


def test_a_stage_restarts_with_the_first_row():
    schedule = schedules.theorem_1(L=10.0, mu=0.5, A_norm=2.0, R=1.0)
    assert isinstance(schedule, schedules.StronglyConvex)
    again = schedule.row(schedule.stage_length + 1)
    assert again == dataclasses.replace(schedule.row(1), stage=1)


def test_tau_is_rounded_so_that_x_under_is_a_convex_combination():
    """x_under_k = (S_{k-1} xbar_{k-1} + beta_k x_{k-1}) / S_k: the weights of the recursion are those of the
    average."""
    schedule = schedules.theorem_1(L=7.3, mu=0.4, A_norm=1.0, R=1.0)
    rng = np.random.default_rng(1)
    x_hat, x_prev, x, x_under, x_bar, S = 0.3, 0.3, 0.3, 0.3, 0.3, 0.0
    for row in one_stage(schedule):
        x_tilde = x + row.lam * (x_hat - x_prev)
        x_under = (x_tilde + row.tau * x_under) / (1 + row.tau)
        assert x_under == pytest.approx((S * x_bar + row.beta * x) / (S + row.beta), rel=1e-9)
        x_prev, x, x_hat = x, rng.normal(), rng.normal()
        x_bar += row.weight * (x_hat - x_bar)
        S += row.beta


def test_theorem_1_as_printed():
    """The bound with the exact sum of beta is at most the one printed in the paper."""
    for L, mu, N in [(3.0, 0.0, 17), (3.0, 0.0, 1), (5.0, 0.2, 60), (5.0, 0.2, 9)]:
        bound = guarantees.pds(N, L=L, mu=mu, R=0.7, V=2.0, z_star=3.0, A_norm=1.5)
        factor = 2 / N**2
        if mu > 0:
            schedule = schedules.StronglyConvex(L=L, mu=mu, A_norm=1.5, R=0.7)
            lam = schedule.tau / (1 + schedule.tau)
            factor = min(factor, lam ** (N - schedule.Delta)) if N > schedule.Delta else factor
        # p_1 T_1 / T_1 + p_1 = 4 L and q_1 / (2 T_1) = L / (4 R^2)
        assert bound.objective <= factor * 4 * L * 2.0 * (1 + 1e-12)
        assert bound.residual <= factor * (L / (4 * 0.7**2) * 4.0**2 + 4 * L * 2.0) * (1 + 1e-12)


def test_iterations_is_the_first_N_that_suffices():
    parameters = {"L": 4.0, "R": 1.0, "A_norm": 2.0, "mu": 0.0}
    N = guarantees.iterations(1e-2, schedules.theorem_1(**parameters), V=3.0, z_star=2.0)
    enough = guarantees.pds(N, **parameters, V=3.0, z_star=2.0)
    short = guarantees.pds(N - 1, **parameters, V=3.0, z_star=2.0)
    assert max(enough.objective, enough.residual) <= 1e-2 < max(short.objective, short.residual)


def test_rounds_of_theorem_1_a():
    """2 sum T_k <= 2N + 24 (||z*|| + 1) sqrt(V) ||A|| / eps with R from theory."""
    L, V, z_star, A_norm, eps = 5.0, 2.0, 6.0, 3.0, 1e-3
    R = guarantees.theory_R(V=V, z_star=z_star)
    N = math.ceil(4 * math.sqrt(L * V / eps))
    rounds = 2 * sum(row.T for row in islice(schedules.theorem_1(L=L, mu=0.0, A_norm=A_norm, R=R).rows(), N))
    assert rounds <= 2 * N + 24 * (z_star + 1) * math.sqrt(V) * A_norm / eps


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"L": -1.0}, "L must be"),
        ({"R": 0.0}, "R must be"),
        ({"mu": -0.1}, "mu must be"),
        ({"A_norm": math.nan}, "must be"),
    ],
)
def test_bad_parameters(wrong, rule):
    with pytest.raises(ValueError, match=rule):
        schedules.theorem_1(**{"L": 1.0, "mu": 0.0, "A_norm": 1.0, "R": 1.0, **wrong})


def test_a_tiny_mu_and_a_tiny_L_are_no_trouble():
    far = schedules.theorem_1(L=38.0, mu=1e-14, A_norm=2.0, R=1.0)
    assert far.row(far.stage_length + 1).stage == 1
    # Below mu/8 the theorem's tau does not change any more: L is raised to it, and T_k stays small.
    flat = schedules.theorem_1(L=1e-9, mu=1.0, A_norm=1.0, R=1.0)
    assert flat.L == 1 / 8
    assert schedules.violations(one_stage(flat), L=1e-9, mu=1.0, A_norm=1.0) == []


def test_the_bound_of_one_stage_never_rises():
    bounds = [guarantees.pds(N, L=1.0, mu=1.0, R=1.0, V=1.0, z_star=1.0, A_norm=1.0).objective for N in range(1, 200)]
    assert all(later <= earlier for earlier, later in itertools.pairwise(bounds))
