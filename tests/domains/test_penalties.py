"""Penalties: values, prox against a generic solver, groups, bad input."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradslide._support.errors import InputError
from gradslide.domains.parameters import Fit
from gradslide.domains.penalties import L1, ElasticNet, GroupL1

D = 5
GROUPS = [np.array([3, 0]), np.array([1, 4])]

PENALTIES = {
    "l1": (L1(0.4), lambda x: 0.4 * cp.norm1(x)),
    "l1 weighted": (L1(np.arange(D) / 4), lambda x: cp.sum(cp.multiply(np.arange(D) / 4, cp.abs(x)))),
    "elastic net": (ElasticNet(0.3, 0.7), lambda x: 0.3 * cp.norm1(x) + 0.35 * cp.sum_squares(x)),
    "groups": (GroupL1(0.5, GROUPS), lambda x: 0.5 * (cp.norm2(x[[3, 0]]) + cp.norm2(x[[1, 4]]))),
    "groups weighted": (
        GroupL1([0.2, 0.9], GROUPS),
        lambda x: 0.2 * cp.norm2(x[[3, 0]]) + 0.9 * cp.norm2(x[[1, 4]]),
    ),
    "labels": (
        GroupL1([0.2, 0.9], np.array([7, 3, 7, 3, 3])),
        lambda x: 0.2 * cp.norm2(x[[1, 3, 4]]) + 0.9 * cp.norm2(x[[0, 2]]),
    ),
}


def minimise(v, step, r):
    x = cp.Variable(D)
    problem = cp.Problem(cp.Minimize(step * r(x) + cp.sum_squares(x - v) / 2))
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    return x.value


@pytest.mark.parametrize("name", PENALTIES)
def test_value_and_shrink_match_a_generic_solver(name):
    penalty, r = PENALTIES[name]
    bound = penalty.bind(Fit(3, D, np.float64))
    rng = np.random.default_rng(0)
    v = rng.normal(size=(3, D)) * np.array([[0.3], [1.0], [4.0]])
    step = 0.8
    # shrink treats the positively homogeneous part; the quadratic one is folded into the scale by the domain.
    x = bound.shrink(v / (1 + step * bound.l2), step / (1 + step * bound.l2))
    for i in range(3):
        np.testing.assert_allclose(bound.value(v)[i], r(v[i]).value, rtol=1e-12)
        np.testing.assert_allclose(x[i], minimise(v[i], step, r), atol=1e-6)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.integers(1, 6), st.integers(0, 10_000), st.sampled_from([np.float32, np.float64]))
def test_group_shrink_is_the_dual_ball_projection(d, seed, dtype):
    """Moreau: v - shrink(v) is the projection of v on the balls |u_g| <= weight, group by group."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, size=d)
    weight = rng.uniform(0, 2, size=len(np.unique(labels)))
    v = rng.normal(size=(4, d)).astype(dtype)
    v[0] = 0
    bound = GroupL1(weight, labels).bind(Fit(4, d, dtype))
    x = bound.shrink(v, 1.0)
    assert x.dtype == dtype
    assert bound.value(v).dtype == np.float64
    for g, w in zip(np.unique(labels), weight, strict=True):
        inside = labels == g
        size = np.linalg.norm(v[:, inside], axis=1, keepdims=True)
        projected = v[:, inside] * np.minimum(1, w / np.maximum(size, 1e-30))
        np.testing.assert_allclose(v[:, inside] - x[:, inside], projected, atol=20 * np.finfo(dtype).eps)


def test_coordinates_outside_all_groups_are_free():
    bound = GroupL1(100.0, [[0, 1]]).bind(Fit(1, 3, np.float64))
    np.testing.assert_array_equal(bound.shrink(np.array([[1.0, 2.0, 3.0]]), 1.0), [[0, 0, 3]])
    assert bound.value(np.array([[0.0, 0.0, 5.0]])) == 0


def test_binding_twice_changes_nothing():
    v = np.random.default_rng(1).normal(size=(2, D))
    for penalty, _ in PENALTIES.values():
        once = penalty.bind(Fit(2, D, np.float64))
        np.testing.assert_array_equal(once.bind(Fit(2, D, np.float64)).shrink(v, 0.7), once.shrink(v, 0.7))


def test_weights_may_differ_between_agents():
    weight = np.array([[0.0, 1.0], [2.0, 3.0]])
    v = np.full((2, 2), 2.5)
    bound = L1(weight).bind(Fit(2, 2, np.float64))
    np.testing.assert_array_equal(bound.shrink(v, 1.0), np.maximum(v - weight, 0))
    assert not bound.common
    assert L1(np.ones((2, 2))).bind(Fit(2, 2, np.float64)).common


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: L1(-0.1), "must not be negative"),
        (lambda: L1(np.nan), "must not be NaN"),
        (lambda: L1(np.inf), "must be finite"),
        (lambda: L1("much"), "must be a number"),
        (lambda: ElasticNet(-1, 0), "l1 must not be negative"),
        (lambda: ElasticNet(0, -1), "l2 must not be negative"),
        (lambda: ElasticNet(0, [1, 2]), "l2 must be one number"),
        (lambda: GroupL1(-1, [0, 0]), "must not be negative"),
        (lambda: GroupL1(1, []), "needs a group"),
        (lambda: GroupL1(1, [[0], []]), "must not be empty"),
        (lambda: GroupL1(1, [0.5, 1.5]), "must hold integers"),
        (lambda: GroupL1([1, 2, 3], [[0], [1]]), "one for each of the 2 groups"),
    ],
)
def test_bad_parameters(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    ("penalty", "message"),
    [
        (L1(np.ones(3)), "L1's weight must have the shape"),
        (ElasticNet(np.ones(3), 1.0), "l1 must have the shape"),
        (GroupL1(1, [0, 1, 1]), "one per coordinate"),
        (GroupL1(1, [[0, 1], [4]]), "indices must lie in"),
        (GroupL1(1, [[-1]]), "indices must lie in"),
        (GroupL1(1, [[0, 1], [1, 2]]), "must be disjoint"),
    ],
)
def test_parameters_that_do_not_fit(penalty, message):
    with pytest.raises(InputError, match=message):
        penalty.bind(Fit(2, 4, np.float64))
