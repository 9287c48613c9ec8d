"""The schedules against the conditions of the theorem, without any solver."""

import dataclasses
import itertools
import math
from itertools import islice

import numpy as np
import pytest
from paper_twins import theorem_2_rows

from gradslide._support.errors import InputError
from gradslide.theory import guarantees, schedules


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


# ---- Theorem 2: batches


def sampled_sets(count: int) -> list[dict[str, float]]:
    """Parameters of `theorem_2`, mu = 0 and tau < 1 among them; N stays where T_k and c_k can be held."""
    rng = np.random.default_rng(2)
    sets = []
    for index in range(count):
        L = 10 ** rng.uniform(-2, 3)
        mu = (0.0, 10 ** rng.uniform(-3, 0) * L, 10 ** rng.uniform(0.6, 3) * L)[index % 3]
        sets.append(
            {
                "N": int(10 ** rng.uniform(0, 1.9 if mu < L else 1.2)),
                "L": L,
                "mu": mu,
                "A_norm": 10 ** rng.uniform(-1, 1.5),
                "R": 10 ** rng.uniform(-2, 1),
                "c": 0.0 if index % 20 == 19 else 10 ** rng.uniform(-3, 3) * L**2,
            }
        )
    return sets


def sampled_rows(schedule: schedules.Sampled) -> list[schedules.Row]:
    return list(islice(schedule.rows(), schedule.N))


def test_theorem_2_against_the_paper_for_1000_random_parameter_sets():
    seen = set()
    for given in sampled_sets(1000):
        schedule = schedules.theorem_2(**given)
        rows = sampled_rows(schedule)
        # Below mu/16 tau does not change any more: the theorem is read with L raised to it.
        printed = theorem_2_rows(**{**given, "L": max(given["L"], given["mu"] / 16)})
        seen |= {(given["mu"] > 0, row.k > schedule.Delta, schedule.Delta == 2) for row in rows}
        for row, paper in zip(rows, printed, strict=True):
            assert (row.k, row.stage) == (paper.k, 0)
            # c = 0 stands for batches of one sample. Whole numbers below 1e9 must be equal.
            assert row.c == pytest.approx(max(1, paper.c), rel=1e-9), given
            for name in ("T", "tau", "lam", "beta", "p", "q"):
                assert getattr(row, name) == pytest.approx(getattr(paper, name), rel=1e-9), (name, given)
            for t in {1, 2, row.T}:
                assert row.eta(t) == pytest.approx(paper.eta(t), rel=1e-9), given
                assert row.alpha(t) == pytest.approx(paper.alpha(t), rel=1e-9), given
    # Convex; strongly convex before and past Delta; tau < 1, where Delta = 2.
    assert seen == {(False, False, False), *itertools.product([True], [False, True], [False, True])}


def test_the_conditions_of_theorem_2_hold_for_1000_random_parameter_sets():
    for given in sampled_sets(1000):
        rows = sampled_rows(schedules.theorem_2(**given))
        L, mu, A_norm = given["L"], given["mu"], given["A_norm"]
        assert schedules.violations(rows, L=2 * L, mu=mu, A_norm=A_norm) == [], given


def test_the_schedule_of_theorem_1_breaks_the_conditions_of_theorem_2():
    rows = one_stage(schedules.theorem_1(L=1.0, mu=0.0, A_norm=1.0, R=2.0), most=10)
    assert schedules.violations(rows, L=1.0, mu=0.0, A_norm=1.0) == []
    assert schedules.violations(rows, L=2.0, mu=0.0, A_norm=1.0)


def test_batches_of_the_strongly_convex_schedule_never_shrink():
    for given in sampled_sets(300):
        sizes = [row.c for row in sampled_rows(schedules.theorem_2(**given))]
        assert sizes == sorted(sizes), given


def test_with_samples_spends_them_all_but_no_more():
    rng = np.random.default_rng(3)
    for given in sampled_sets(300):
        samples = given["N"] + int(10 ** rng.uniform(0, 6))
        schedule = schedules.theorem_2(**{**given, "c": 0.0}).with_samples(samples)
        assert (schedule.N, schedule.L, schedule.R) == (given["N"], max(given["L"], given["mu"] / 16), given["R"])
        spent = sum(row.c for row in sampled_rows(schedule))
        assert spent <= samples, given
        more = dataclasses.replace(schedule, c=schedule.c * (1 + 1e-9))
        assert sum(row.c for row in sampled_rows(more)) > samples, given


def test_as_many_samples_as_outer_iterations_are_one_each():
    schedule = schedules.theorem_2(N=12, L=2.0, mu=0.3, A_norm=1.0, R=1.0, c=5.0).with_samples(12)
    assert [row.c for row in sampled_rows(schedule)] == 12 * [1]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"N": 0}, ["N must be a whole number >= 1", "0"]),
        ({"N": 2.5}, ["N must be a whole number", "2.5"]),
        ({"L": 0.0}, ["L must be > 0", "0.0", "every constant larger"]),
        ({"c": -1.0}, ["c must be >= 0", "-1.0", "2 m sigma^2"]),
        ({"c": math.inf}, ["c must be >= 0", "inf"]),
        ({"R": 0.0}, ["R must be > 0", "0.0"]),
        ({"mu": -0.1}, ["mu must be >= 0", "-0.1"]),
        ({"A_norm": math.nan}, ["||A|| must be >= 0", "nan"]),
        ({"mu": 4.0, "N": 200}, ["N must be at most 58 for L = 1 and mu = 4", "200", "lower N"]),
        ({"N": 1000, "c": 1e9}, ["a batch can hold 1e+15 samples", "2.5e+17 in outer iteration 1000", "lower N or c"]),
    ],
)
def test_theorem_2_refuses_what_it_cannot_do(wrong, words):
    with pytest.raises(InputError) as error:
        schedules.theorem_2(**{"N": 10, "L": 1.0, "mu": 0.0, "A_norm": 1.0, "R": 1.0, "c": 1.0, **wrong})
    assert all(word in str(error.value) for word in words), str(error.value)


def test_the_longest_N_of_theorem_2_is_allowed_and_the_next_is_not():
    given = {"L": 1.0, "mu": 4.0, "A_norm": 1.0, "R": 1.0, "c": 0.0}
    longest = schedules.theorem_2(N=1, **given).stage_length
    rows = sampled_rows(schedules.theorem_2(N=longest, **given))
    assert all(math.isfinite(value) for row in rows for value in dataclasses.astuple(row))
    assert {row.stage for row in rows} == {0}
    with pytest.raises(InputError, match="N must be at most"):
        schedules.theorem_2(N=longest + 1, **given)


def test_a_batch_size_that_is_a_whole_number_is_not_rounded_up():
    # N k^2 c / (4 L^2) = 24 * 225 * 2 / 400 = 27
    assert schedules.theorem_2(N=24, L=10.0, mu=0.0, A_norm=1.0, R=1.0, c=2.0).row(15).c == 27


def test_the_old_name_of_a_schedule_warns():
    with pytest.warns(DeprecationWarning, match=r"schedules\.Linear is now schedules\.LinearObjective"):
        assert schedules.Linear is schedules.LinearObjective
    with pytest.raises(AttributeError, match="no attribute 'Quadratic'"):
        schedules.Quadratic  # noqa: B018
