"""A ball for each group of coordinates: projection, linear minimum and distances against a generic solver."""

import warnings

import cvxpy as cp
import numpy as np
import pytest
from error_messages import check_message

import gradslide as gs
from gradslide.domains import Box, GroupBall, L2Ball, PerAgent

M, D = 3, 5
# Each: the groups, the radii, the members of each group, and the coordinates in none.
CASES = {
    "labels": ([7, 2, 7, 2, 2], [0.5, 2.0], [[1, 3, 4], [0, 2]], []),
    "index lists": ([[1, 3, 4], [0, 2]], [0.5, 2.0], [[1, 3, 4], [0, 2]], []),
    "arrays of indices": ((np.array([4]), np.array([2, 0])), [0.5, 2.0], [[4], [2, 0]], [1, 3]),
    "one radius": ([[1, 3, 4], [0, 2]], 0.8, [[1, 3, 4], [0, 2]], []),
    "one group": (np.zeros(D, dtype=int), 1.5, [range(D)], []),
    "a group each": (np.arange(D), 0.5, [[j] for j in range(D)], []),
    "radius zero": ([0, 0, 1, 1, 1], [0.0, 1.0], [[0, 1], [2, 3, 4]], []),
}
CENTER = np.linspace(-1, 2, D)


def ball(case, m=M, dtype=np.float64, **options):
    groups, radius, *_ = CASES[case]
    return GroupBall(radius, groups, **options).bind(m, D, dtype)


def parts(case):
    """(members, radius) of every group."""
    _, radius, members, _ = CASES[case]
    return list(zip(map(list, members), np.broadcast_to(radius, len(members)), strict=True))


def constraints(case, x):
    inside = [cp.sum_squares(x[members]) <= r**2 if r > 0 else x[members] == 0 for members, r in parts(case)]
    return inside + [x[j] == 0 for j in CASES[case][3]]


def by_groups(case, v):
    """The projection, one group and one row at a time."""
    x = np.zeros_like(v)
    for members, radius in parts(case):
        for i in range(len(v)):
            size = np.linalg.norm(v[i, members])
            x[i, members] = v[i, members] * (1.0 if size <= radius else radius / size)
    return x


def minimum(case, objective, x):
    problem = cp.Problem(cp.Minimize(objective), constraints(case, x))
    with warnings.catch_warnings():
        # Rounding may stop it short of these tolerances; the comparison decides whether that matters.
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")
        return problem.solve(
            solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10, max_step_fraction=0.9
        )


@pytest.mark.parametrize("case", CASES)
def test_the_projection_matches_a_generic_solver_and_a_loop(case):
    domain, rng = ball(case), np.random.default_rng(1)
    for size in (0.1, 1.0, 10.0):
        v = size * rng.normal(size=(M, D))
        found = domain.project(v)
        np.testing.assert_allclose(found, by_groups(case, v), rtol=1e-12, atol=1e-13)
        x = cp.Variable(D)
        minimum(case, cp.sum_squares(x - v[0]), x)
        np.testing.assert_allclose(found[0], x.value, atol=2e-5 * max(1.0, size))
        np.testing.assert_allclose(domain.project(found), found, rtol=1e-12, atol=1e-14)
        assert np.all(domain.contains(found, 1e-12))
    assert not np.any(domain.contains(np.full((M, D), 3.0), 1e-6))


@pytest.mark.parametrize("case", CASES)
def test_the_prox_is_the_projection_of_the_step_from_the_center(case):
    domain, rng = ball(case, center=CENTER), np.random.default_rng(2)
    theta, scale = rng.normal(size=(M, D)), np.array([[0.3], [1.0], [4.0]])
    np.testing.assert_allclose(domain.prox(theta, scale), by_groups(case, CENTER + theta / scale), atol=1e-12)
    np.testing.assert_allclose(domain.start(), by_groups(case, np.tile(CENTER, (M, 1))), atol=1e-12)


@pytest.mark.parametrize("mu", [0.0, 0.7])
@pytest.mark.parametrize("case", CASES)
def test_the_linear_minimum_matches_a_generic_solver(case, mu):
    domain, c = ball(case, center=CENTER), np.random.default_rng(3).normal(size=(M, D))
    found = domain.linear_minimum(c, mu)
    for i in range(M):
        x = cp.Variable(D)
        expected = minimum(case, c[i] @ x + mu / 2 * cp.sum_squares(x - CENTER), x)
        assert found[i] == pytest.approx(expected, rel=1e-6, abs=1e-6)
    if mu == 0:
        lengths = [-sum(r * np.linalg.norm(row[members]) for members, r in parts(case)) for row in c]
        np.testing.assert_allclose(found, lengths, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("case", CASES)
def test_no_point_is_further_away_than_the_bound_and_one_is_as_far(case):
    domain, rng = ball(case), np.random.default_rng(4)
    x0 = domain.project(rng.normal(size=(M, D)))
    bound = domain.distance_bound(x0)
    for _ in range(100):
        assert np.all(domain.V(x0, domain.project(5 * rng.normal(size=(M, D)))) <= bound * (1 + 1e-12))
    opposite = np.zeros((M, D))
    for members, radius in parts(case):
        sizes = np.linalg.norm(x0[:, members], axis=1, keepdims=True)
        opposite[:, members] = -radius * x0[:, members] / np.where(sizes > 0, sizes, 1)
    np.testing.assert_allclose(domain.V(x0, opposite), bound, rtol=1e-12)
    assert domain.bounded


def test_labels_and_index_lists_say_the_same():
    v = np.random.default_rng(5).normal(size=(M, D))
    np.testing.assert_array_equal(ball("labels").project(v), ball("index lists").project(v))


def test_special_cases_are_the_ball_and_the_box():
    v = 2 * np.random.default_rng(6).normal(size=(M, D))
    np.testing.assert_allclose(ball("one group").project(v), L2Ball(1.5).bind(M, D, float).project(v), atol=1e-14)
    np.testing.assert_allclose(ball("a group each").project(v), Box(-0.5, 0.5).bind(M, D, float).project(v), atol=1e-14)


def test_it_is_the_dual_ball_of_the_group_norm():
    """The largest <x, z> over the ball is the group norm with the radii as weights."""
    groups, radius, *_ = CASES["labels"]
    penalised = gs.domains.Free(penalty=gs.GroupL1(radius, groups)).bind(M, D, float)
    x = np.random.default_rng(7).normal(size=(M, D))
    np.testing.assert_allclose(-ball("labels").linear_minimum(-x), penalised.r(x), rtol=1e-12)


def test_balls_of_agents_with_the_same_groups_are_stacked():
    radii = np.array([[0.5, 2.0], [1.0, 1.0], [3.0, 0.1]])
    groups = CASES["labels"][0]
    stacked = PerAgent([GroupBall(row, groups) for row in radii]).bind(M, D, float)
    assert type(stacked) is GroupBall
    singles = [GroupBall(row, groups).bind(1, D, float) for row in radii]
    v = 4 * np.random.default_rng(8).normal(size=(M, D))

    def one_by_one(operation):
        return np.concatenate([operation(single, v[i : i + 1]) for i, single in enumerate(singles)])

    for operation in (
        lambda domain, v: domain.project(v),
        lambda domain, v: domain.linear_minimum(v),
        lambda domain, v: domain.distance_bound(domain.project(v)),
    ):
        np.testing.assert_allclose(operation(stacked, v), one_by_one(operation), rtol=1e-13)
    np.testing.assert_allclose(stacked.take([2, 0]).project(v[[2, 0]]), stacked.project(v)[[2, 0]])
    assert not stacked.common
    assert ball("labels").common
    each = [GroupBall(1.0, groups), GroupBall(1.0, [0, 1, 1, 1, 1]), L2Ball(1.0)]
    mixed = PerAgent(each).bind(M, D, float)
    assert type(mixed) is PerAgent
    for i, domain in enumerate(each):
        np.testing.assert_allclose(mixed.project(v)[i], domain.bind(1, D, float).project(v[i : i + 1])[0])


def test_float32_stays_float32():
    v = np.ones((M, D), np.float32)
    assert ball("labels", dtype=np.float32).project(v).dtype == np.float32
    assert ball("labels", dtype=np.float32).prox(v, 0.5).dtype == np.float32


@pytest.mark.parametrize(("dtype", "size", "digits"), [(np.float64, 1e10, 1e-12), (np.float32, 1e4, 1e-5)])
def test_far_points_are_projected_to_all_digits(dtype, size, digits):
    v = (size * np.random.default_rng(9).normal(size=(M, D))).astype(dtype)
    found = ball("labels", dtype=dtype).project(v)
    np.testing.assert_allclose(found, by_groups("labels", v.astype(np.float64)), rtol=digits)


def test_a_part_of_a_problem_keeps_the_radii_of_its_agents():
    loss = gs.losses.Linear(np.ones((M, 2)))
    problem = gs.Problem(loss, PerAgent([GroupBall(radius, [0, 0]) for radius in (1.0, 2.0, 3.0)]))
    part = problem.take([1, 2])
    lengths = np.linalg.norm(part.domain.project(np.full((2, 2), 9.0)), axis=1)
    np.testing.assert_allclose(lengths, [2.0, 3.0])


REFUSED = {
    "negative radius": (lambda: GroupBall(-1.0, [0, 0]), ["negative", "-1.0"]),
    "NaN as radius": (lambda: GroupBall(np.nan, [0, 0]), ["NaN", "nan"]),
    "radii too many": (lambda: GroupBall([1.0, 2.0, 3.0], [0, 0, 1]), ["2 groups", "(3,)"]),
    "no groups": (lambda: GroupBall(1.0, []), ["group", "[]"]),
    "an empty group": (lambda: GroupBall(1.0, [[0], []]), ["empty", "[[0], []]"]),
    "groups of words": (lambda: GroupBall(1.0, ["a", "b"]), ["integers", "['a', 'b']"]),
    "labels too few": (lambda: GroupBall(1.0, [0, 0]).bind(1, 3, float), ["one per coordinate of 3", "2"]),
    "index too large": (lambda: GroupBall(1.0, [[0, 3]]).bind(1, 3, float), ["0..2", "3"]),
    "groups that overlap": (lambda: GroupBall(1.0, [[0, 1], [1, 2]]).bind(1, 3, float), ["disjoint", "[1, 2]"]),
    "a penalty": (lambda: GroupBall(1.0, [0], penalty=gs.L1(1.0)), ["GroupBall", "L1(weight=1.0)"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_ball_is_refused_in_one_line(case):
    check_message(*REFUSED[case])
