"""Dual terms h: prox, value, conjugate and violation against a generic solver, on every kind of dual domain."""

import math
import warnings
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pyproximal
import pytest
from error_messages import check_message
from paper_twins import iterates

import gradslide as gs
from gradslide.domains import Box, EntropySimplex, Free, GroupBall, Halfspace, L1Ball, L2Ball, NonNegative, Simplex
from gradslide.problems.saddle import DualSpace
from gradslide.problems.terms import Interval, Linear, Prox, Quadratic

K = 4
CENTER = np.linspace(-1, 2, K)
UNEVEN = np.arange(1.0, K + 1) / 10
LABELS = np.array([0, 0, 1, 1])
RNG = np.random.default_rng(0)
B = RNG.normal(size=K)


def set_(domain, constraints=lambda z: [], penalty=lambda z: 0.0):
    return SimpleNamespace(domain=domain, constraints=constraints, penalty=penalty)


def group_norm(z):
    return 0.4 * (cp.norm2(z[LABELS == 0]) + cp.norm2(z[LABELS == 1]))


def in_group_ball(z):
    return [cp.sum_squares(z[LABELS == 0]) <= 0.25, cp.sum_squares(z[LABELS == 1]) <= 4]


SETS = {
    "free": set_(Free()),
    "free, center elsewhere": set_(Free(center=CENTER)),
    "free, l1": set_(Free(penalty=gs.L1(0.3), center=CENTER), penalty=lambda z: 0.3 * cp.norm1(z)),
    "free, groups": set_(Free(penalty=gs.GroupL1(0.4, LABELS)), penalty=group_norm),
    "free, elastic net": set_(
        Free(penalty=gs.ElasticNet(0.2, 0.8), center=CENTER),
        penalty=lambda z: 0.2 * cp.norm1(z) + 0.4 * cp.sum_squares(z),
    ),
    "box": set_(Box(-0.5, 0.7, center=CENTER), lambda z: [z >= -0.5, z <= 0.7]),
    "box, l1": set_(Box(-0.5, 0.7, penalty=gs.L1(0.3)), lambda z: [z >= -0.5, z <= 0.7], lambda z: 0.3 * cp.norm1(z)),
    "non-negative": set_(NonNegative(), lambda z: [z >= 0]),
    "halfspace": set_(Halfspace(UNEVEN, 0.2), lambda z: [UNEVEN @ z <= 0.2]),
    "l2 ball": set_(L2Ball(1.2, center=CENTER), lambda z: [cp.sum_squares(z) <= 1.44]),
    "l2 ball, groups": set_(
        L2Ball(1.2, penalty=gs.GroupL1(0.4, LABELS)), lambda z: [cp.sum_squares(z) <= 1.44], group_norm
    ),
    "l1 ball": set_(L1Ball(1.2, center=CENTER), lambda z: [cp.norm1(z) <= 1.2]),
    "group ball": set_(GroupBall([0.5, 2.0], LABELS, center=CENTER), in_group_ball),
    "simplex": set_(Simplex(1.5, center=CENTER), lambda z: [z >= 0, cp.sum(z) == 1.5]),
    "entropy": set_(EntropySimplex(), lambda z: [z >= 0, cp.sum(z) == 1]),
    "entropy, center elsewhere": set_(EntropySimplex(center=UNEVEN), lambda z: [z >= 0, cp.sum(z) == 1]),
}
EUCLIDEAN = [name for name in SETS if "entropy" not in name]
BOUNDED = [name for name in SETS if SETS[name].domain.bind(1, K, float).bounded]
LOWER, UPPER = np.array([-np.inf, -0.5, 0.2, -1.0]), np.array([0.3, np.inf, 0.2, 0.4])
TERMS = {
    "zero": (Linear(), lambda z: 0.0),
    "linear": (Linear(B), lambda z: B @ z),
    "quadratic": (Quadratic(0.7, B), lambda z: B @ z + 0.35 * cp.sum_squares(z)),
}
CASES = [(name, term) for name in SETS for term in TERMS if name in EUCLIDEAN or term != "quadratic"]


def space(name, term):
    return DualSpace(SETS[name].domain.bind(1, K, np.float64), TERMS[term][0])


def zeta(name, z):
    center = np.asarray(SETS[name].domain.bind(1, K, np.float64).center)[0]
    return cp.sum(cp.rel_entr(z, center)) if "entropy" in name else cp.sum_squares(z - center) / 2


def generic_minimum(name, term, theta, scale):
    """min over Z of scale zeta(z) + h(z) + r(z) - <theta, z> by an interior point method."""
    z = cp.Variable(K)
    objective = TERMS[term][1](z) + SETS[name].penalty(z) - theta @ z
    if scale:
        objective += scale * zeta(name, z)
    problem = cp.Problem(cp.Minimize(objective), SETS[name].constraints(z))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")
        least = problem.solve(
            solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12, max_step_fraction=0.9
        )
    return z.value, least


@pytest.mark.parametrize(("name", "term"), CASES)
def test_the_prox_matches_a_generic_solver(name, term):
    rng, duals = np.random.default_rng(1), space(name, term)
    for size, scale in ((0.2, 1.3), (1.0, 0.4), (4.0, 1.3)):
        theta = size * rng.normal(size=K)
        expected, _ = generic_minimum(name, term, theta, scale)
        found = duals.term.prox(duals.domain, theta[None], scale)
        assert found.shape == (1, K)
        np.testing.assert_allclose(found[0], expected, atol=2e-6)


@pytest.mark.parametrize(("name", "term"), CASES)
def test_the_dual_step_is_the_prox_of_the_bregman_distance(name, term):
    """argmin over Z of h + r - <slope, .> + q U(z_0, .): no point of Z near or far is better."""
    rng, duals = np.random.default_rng(2), space(name, term)
    z0 = duals.domain.project(rng.normal(size=(1, K)))
    slope, q = rng.normal(size=(1, K)), 0.8

    def objective(z):
        return duals.h(z) - float(np.vdot(slope, z)) + q * duals.U(z0, z)

    z = duals.ascend(z0, slope, q)
    least = objective(z)
    for distance in (1e-3, 0.1, 1.0, 5.0):
        for _ in range(20):
            other = duals.domain.project(z + distance * rng.normal(size=(1, K)))
            assert objective(other) >= least + q * duals.U(z, other) - 1e-9 * (1 + abs(least))


@pytest.mark.parametrize(("name", "term"), CASES)
def test_the_conjugate_matches_a_generic_solver(name, term):
    rng, duals = np.random.default_rng(3), space(name, term)
    for size in (0.0, 0.2, 1.0, 4.0):
        v = size * rng.normal(size=K)
        _, least = generic_minimum(name, term, v, 0.0)
        assert duals.term.conjugate(duals.domain, v[None]) == pytest.approx(-least, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("name", "term"), CASES)
def test_the_value_is_that_of_the_formula(name, term):
    rng, duals = np.random.default_rng(4), space(name, term)
    for _ in range(5):
        z = rng.normal(size=K)
        h, r = (0.0 + part(cp.Constant(z)) for part in (TERMS[term][1], SETS[name].penalty))
        h, r = (float(getattr(part, "value", part)) for part in (h, r))
        assert duals.term.value(z[None]) == pytest.approx(h, abs=1e-12)
        assert duals.h(z[None]) == pytest.approx(h + r, abs=1e-12)


@pytest.mark.parametrize(("name", "term"), CASES)
def test_fenchel_and_young(name, term):
    """h(z) + h*(v) >= <v, z> on Z, with equality where z is the best answer to v."""
    rng, duals = np.random.default_rng(5), space(name, term)
    for _ in range(30):
        v, z = rng.normal(size=(2, 1, K)) * rng.choice([0.1, 1, 5])
        z = duals.domain.project(z)
        slack = duals.h(z) + duals.term.conjugate(duals.domain, v) - float(np.vdot(v, z))
        assert slack >= -1e-9
    if name in BOUNDED or term == "quadratic" or "elastic" in name:
        little = 1e-7
        v = rng.normal(size=(1, K))
        z = duals.term.prox(duals.domain, v, little)
        slack = duals.h(z) + duals.term.conjugate(duals.domain, v) - float(np.vdot(v, z))
        assert -1e-9 <= slack <= 100 * little
        # The conjugate of another v is no answer to this one.
        assert abs(duals.h(z) + duals.term.conjugate(duals.domain, -3 * v) - float(np.vdot(v, z))) > 1e-3


def test_conjugates_are_infinite_where_nothing_holds_z_back():
    b = B[None]
    free, l1, cone = (space(name, "linear") for name in ("free", "free, l1", "non-negative"))
    assert free.term.conjugate(free.domain, b) == 0
    assert free.term.conjugate(free.domain, b + 1e-6) == math.inf
    assert l1.term.conjugate(l1.domain, b + 0.29) == 0
    assert l1.term.conjugate(l1.domain, b - 0.31) == math.inf
    assert cone.term.conjugate(cone.domain, b - 1.0) == 0
    assert cone.term.conjugate(cone.domain, b - np.array([[1, 1, 1, -1e-6]])) == math.inf


def test_only_what_keeps_A_x_in_a_set_has_a_violation():
    v = np.random.default_rng(6).normal(size=(1, K))
    np.testing.assert_allclose(space("free", "linear").violation(v), v - B)
    assert space("free", "linear").conjugate(v) == 0.0
    for name, term in CASES:
        constrained = name in ("free", "free, center elsewhere") and term != "quadratic"
        duals = space(name, term)
        assert (duals.violation(v) is not None) == constrained
        if not constrained:
            assert duals.conjugate(v) == duals.term.conjugate(duals.domain, v)


def interval(center=0.0, weights=None, dtype=np.float64):
    domain = Free(center=center).bind(1, K, dtype)
    return DualSpace(domain if weights is None else domain.weighted(weights), Interval(LOWER, UPPER))


def support(z):
    """max of <v, z> over lower <= v <= upper, for the solver."""
    lower, upper = np.where(np.isinf(LOWER), UPPER, LOWER), np.where(np.isinf(UPPER), LOWER, UPPER)
    return cp.sum(cp.maximum(cp.multiply(lower, z), cp.multiply(upper, z)))


@pytest.mark.parametrize("weights", [None, np.array([1.0, 3.0, 0.5, 10.0])], ids=["", "weighted"])
@pytest.mark.parametrize("center", [0.0, CENTER], ids=["", "center elsewhere"])
def test_the_prox_of_an_interval_matches_a_generic_solver(center, weights):
    rng, duals = np.random.default_rng(7), interval(center, weights)
    w = np.ones(K) if weights is None else weights
    for size, scale in ((0.2, 1.3), (1.0, 0.4), (4.0, 1.3)):
        theta = size * rng.normal(size=K)
        z = cp.Variable(K)
        zeta = cp.sum(cp.multiply(w, cp.square(z - center))) / 2
        only_finite = [z[np.isinf(UPPER)] <= 0, z[np.isinf(LOWER)] >= 0]
        cp.Problem(cp.Minimize(scale * zeta + support(z) - theta @ z), only_finite).solve(
            solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12
        )
        np.testing.assert_allclose(duals.term.prox(duals.domain, theta[None], scale)[0], z.value, atol=2e-6)


def test_an_interval_keeps_A_x_between_its_ends():
    duals = interval()
    inside, outside = np.array([[-9.0, 9.0, 0.2, 0.0]]), np.array([[0.5, -2.5, 0.0, 3.4]])
    np.testing.assert_allclose(duals.violation(inside), np.zeros((1, K)))
    np.testing.assert_allclose(duals.violation(outside), [[0.2, -2.0, -0.2, 3.0]])
    assert duals.term.conjugate(duals.domain, inside) == 0.0
    assert duals.term.conjugate(duals.domain, outside) == math.inf
    assert duals.conjugate(outside) == 0.0
    z = np.array([[2.0, -1.0, -3.0, -0.5]])
    assert duals.h(z) == pytest.approx(2 * 0.3 + 0.5 - 3 * 0.2 + 0.5)
    assert duals.h(np.zeros((1, K))) == 0.0
    assert duals.h(np.array([[-1.0, 0, 0, 0]])) == duals.h(np.array([[0, 1.0, 0, 0]])) == math.inf
    rng = np.random.default_rng(8)
    for _ in range(50):
        v = np.clip(rng.normal(size=(1, K)), LOWER, UPPER)
        z = rng.normal(size=(1, K))
        assert duals.h(z) >= float(np.vdot(v, z)) - 1e-12


def test_only_finite_ends_hold_a_direction_back():
    """Where going on in a direction for ever stays inside, nothing of it leads out."""
    escape = interval().term.escape(np.array([[1.0, 1.0, 1.0, -1.0]]))
    np.testing.assert_array_equal(escape, [[1, 0, 1, -1]])
    np.testing.assert_array_equal(interval().term.escape(np.array([[-1.0, -2.0, -1.0, 1.0]])), [[0, -2, -1, 1]])
    np.testing.assert_array_equal(space("free", "linear").term.escape(np.ones((1, K))), np.ones((1, K)))
    for v in np.random.default_rng(9).normal(size=(20, 1, K)):
        far = interval().violation(1e9 * v)
        np.testing.assert_array_equal(np.abs(far) > 1e3, interval().term.escape(v) != 0)


@pytest.mark.parametrize("bounds", [{"lower": 0.5}, {"upper": 0.5}, {"lower": -0.5, "upper": 0.5}])
def test_one_number_bounds_all_rows(bounds):
    loss = gs.losses.Quadratic(np.eye(K), np.zeros(K))
    duals = gs.LinearlyConstrained(loss, np.eye(K), **bounds).duals
    v = np.array([[-2.0, -0.1, 0.1, 2.0]])
    nearest = np.clip(v, bounds.get("lower", -np.inf), bounds.get("upper", np.inf))
    np.testing.assert_allclose(duals.violation(v), v - nearest)


@pytest.mark.parametrize("term", [Linear(B), Quadratic(0.7, B), Interval(LOWER, UPPER)])
def test_float32_stays_float32(term):
    duals = DualSpace(Free().bind(1, K, np.float32), term)
    z = duals.start()
    assert z.dtype == duals.ascend(z, np.ones((1, K), np.float32), 0.5).dtype == np.float32


@pytest.mark.parametrize("name", SETS)
def test_U_and_its_bound(name):
    rng, duals = np.random.default_rng(10), space(name, "zero")
    z0 = duals.domain.project(rng.normal(size=(1, K)))
    bound = duals.U_bound(z0)
    assert math.isfinite(bound) == (name in BOUNDED)
    distances = [duals.U(z0, duals.domain.project(10 * rng.normal(size=(1, K)))) for _ in range(200)]
    assert max(distances) <= bound * (1 + 1e-12)
    assert duals.U(z0, z0) == pytest.approx(0, abs=1e-12)
    assert max(distances) > 0.3 * bound or name not in BOUNDED


A = np.random.default_rng(11).normal(size=(K, 5))
LOSS = gs.losses.Quadratic(np.diag(np.arange(1.0, 6)), np.random.default_rng(12).normal(size=5))
# Each: what h and dual_domain say, and the same by a prox of one's own, and by PyProximal.
TWINS = {
    "linear": ({"h": Linear(B)}, Prox(lambda v, step: v - step * B), None),
    "quadratic": (
        {"h": Quadratic(0.7, B)},
        Prox(lambda v, step: (v - step * B) / (1 + 0.7 * step)),
        pyproximal.L2(sigma=0.7, b=-B / 0.7),
    ),
    "interval": (
        {"h": Interval(LOWER, UPPER)},
        Prox(lambda v, step: v - step * np.clip(v / step, LOWER, UPPER)),
        None,
    ),
    "l1": (
        {"dual_domain": Free(penalty=gs.L1(0.3))},
        Prox(lambda v, step: np.sign(v) * np.maximum(np.abs(v) - 0.3 * step, 0)),
        pyproximal.L1(sigma=0.3),
    ),
    "box": ({"dual_domain": Box(-0.5, 0.7)}, Prox(lambda v, step: np.clip(v, -0.5, 0.7)), pyproximal.Box(-0.5, 0.7)),
    "l2 ball": (
        {"dual_domain": L2Ball(1.2)},
        Prox(lambda v, step: v / max(1.0, np.linalg.norm(v) / 1.2)),
        pyproximal.EuclideanBall(np.zeros(K), 1.2),
    ),
}


@pytest.mark.parametrize("method", [gs.PDS(R=1.0, L=5.0), gs.CondatVu(ratio=1.0)], ids=["PDS", "CondatVu"])
@pytest.mark.parametrize("case", TWINS)
def test_a_prox_of_ones_own_or_of_pyproximal_gives_the_same_run(case, method):
    ours, own, theirs = TWINS[case]
    stop = gs.Stop(iterations=20)
    expected = gs.solve(gs.Saddle(LOSS, A, **ours), method=method, stop=stop)
    assert np.any(expected.dual)
    for h in (own, theirs):
        if h is None:
            continue
        solution = gs.solve(gs.Saddle(LOSS, A, h), method=method, stop=stop)
        np.testing.assert_allclose(solution.x, expected.x, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(solution.dual, expected.dual, rtol=1e-9, atol=1e-11)
        assert solution.certificate is None
        assert solution.history[-1].objective is None


def test_a_prox_of_ones_own_gives_the_same_iterates():
    ours, own, theirs = TWINS["quadratic"]
    runs = [
        iterates(problem, None, gs.PDS(R=1.0, L=5.0), gs.Stop(iterations=10))
        for problem in (gs.Saddle(LOSS, A, **ours), gs.Saddle(LOSS, A, own), gs.Saddle(LOSS, A, theirs))
    ]
    for expected, *others in zip(*runs, strict=True):
        for state in others:
            np.testing.assert_allclose(state.x, expected.x, rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(state.dual.s, expected.dual.s, rtol=1e-10, atol=1e-12)


def test_a_prox_of_ones_own_starts_from_the_center():
    problems = [gs.Saddle(LOSS, A, h, None, Free(center=CENTER)) for h in (*TWINS["quadratic"][1:], Quadratic(0.7, B))]
    runs = [gs.solve(problem, method=gs.PDS(), stop=gs.Stop(iterations=10)) for problem in problems]
    for run in runs[:2]:
        np.testing.assert_allclose(run.dual, runs[2].dual, rtol=1e-9)


def test_with_value_and_conjugate_a_prox_of_ones_own_has_the_same_certificate():
    prox = TWINS["quadratic"][1].prox_of
    value, conjugate = lambda z: B @ z + 0.35 * z @ z, lambda v: (v - B) @ (v - B) / 1.4
    stop = gs.Stop(gap=1e-2, iterations=300)
    hs = (Quadratic(0.7, B), Prox(prox, value, conjugate))
    # The default scales rows of terms that it knows.
    one, other = (gs.solve(gs.Saddle(LOSS, A, h, domain=L2Ball(2.0)), method=gs.PDS(), stop=stop) for h in hs)
    assert one.status is other.status is gs.Status.CONVERGED
    assert other.certificate.lower == pytest.approx(one.certificate.lower, rel=1e-9)
    assert other.certificate.upper == pytest.approx(one.certificate.upper, rel=1e-9)
    for half in (Prox(prox, value), Prox(prox, None, conjugate)):
        with pytest.raises(gs.InputError, match=r"Stop\(gap=\.\.\.\) needs"):
            gs.solve(gs.Saddle(LOSS, A, half, domain=L2Ball(2.0)), stop=stop)


REFUSED = {
    "a number": (lambda: saddle(3), ["prox in closed form", "int 3"]),
    "a function": (lambda: saddle(abs), ["prox in closed form", "abs"]),
    "a class": (lambda: saddle(Linear), ["prox in closed form", "the class Linear"]),
    "a class of PyProximal": (lambda: saddle(pyproximal.L1), ["prox in closed form", "the class L1"]),
    "a set twice": (lambda: saddle(L2Ball(1.0), L2Ball(1.0)), ["indicator", "both", "dual_domain"]),
    "a penalty": (lambda: saddle(gs.L1(1.0)), ["prox in closed form", "L1", "dual_domain= for a set or penalty"]),
    "an array": (lambda: saddle(B), ["prox in closed form", "array"]),
    "b too long": (lambda: saddle(Linear(np.ones(5))), ["b must", "4 rows", "(5,)"]),
    "b as a column": (lambda: saddle(Linear(np.ones((4, 1)))), ["b must", "4 rows", "(4, 1)"]),
    "lower too long": (lambda: saddle(Interval(np.zeros(5), 1.0)), ["lower must", "4 rows", "(5,)"]),
    "upper too long": (lambda: saddle(Interval(0.0, np.ones(5))), ["upper must", "4 rows", "(5,)"]),
    "b NaN": (lambda: Linear(np.nan), ["b must not be NaN"]),
    "b a word": (lambda: Linear("x"), ["b must be a number", "'x'"]),
    "weight zero": (lambda: Quadratic(0.0), ["weight must be a positive number", "0.0", "Linear"]),
    "weight negative": (lambda: Quadratic(-1.0), ["weight must be a positive number", "-1.0"]),
    "weights": (lambda: Quadratic(np.array([1.0, 2.0])), ["weight must be a positive number", "[1. 2.]"]),
    "lower above upper": (lambda: Interval(1.0, 0.5), ["lower <= upper", "lower=1.0, upper=0.5"]),
    "lower NaN": (lambda: Interval(np.nan, 1.0), ["lower must not be NaN"]),
    "shapes that differ": (lambda: Interval(np.zeros(2), np.ones(3)), ["fit together", "(2,) and (3,)"]),
    "Quadratic with entropy": (
        lambda: saddle(Quadratic(1.0), EntropySimplex()),
        ["Quadratic", "Euclidean", "EntropySimplex"],
    ),
    "Interval on a bounded set": (lambda: saddle(Interval(0, 1), Box(0, 1)), ["whole space", "Box"]),
    "Interval with a penalty": (lambda: saddle(Interval(0, 1), Free(penalty=gs.L1(1.0))), ["whole space", "Free"]),
    "own prox on a bounded set": (lambda: saddle(TWINS["l1"][1], L2Ball(1.0)), ["whole space", "L2Ball"]),
    "own prox that is none": (lambda: Prox(3), ["prox must be a function", "3"]),
    "conjugate that is none": (lambda: Prox(abs, conjugate="x"), ["conjugate must be a function", "'x'"]),
    "own prox of another shape": (
        lambda: gs.solve(saddle(Prox(lambda v, step: v[:2])), stop=gs.Stop(iterations=1)),
        ["prox must return an array of shape (4,)", "(2,)"],
    ),
}


def saddle(h, dual_domain=None):
    return gs.Saddle(LOSS, A, h, dual_domain=dual_domain)


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_term_is_refused_in_one_line(case):
    check_message(*REFUSED[case])
