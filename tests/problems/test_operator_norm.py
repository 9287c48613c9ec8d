"""||A|| in the norms of nu and zeta, against its definition."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator

import gradslide as gs
from gradslide.domains import Box, EntropySimplex, Free, L2Ball
from gradslide.problems.linear_map import linear_map
from gradslide.problems.operator_norm import operator_norm
from gradslide.results.costs import Costs

FORMS = {
    "array": np.asarray,
    "sparse": sp.csr_array,
    "operator": lambda A: (lambda x: A @ x, lambda z: A.T @ z),
}


def found(A, x_domain, z_domain, *, m=1, form="array", dtype=np.float64, x_weights=None, z_weights=None, costs=None):
    """What the library finds, for x in m blocks."""
    k, n = A.shape
    domain, dual_domain = x_domain.bind(m, n // m, dtype), z_domain.bind(1, k, dtype)
    domain = domain if x_weights is None else domain.weighted(x_weights.reshape(m, n // m))
    dual_domain = dual_domain if z_weights is None else dual_domain.weighted(z_weights)
    given = linear_map(FORMS[form](A), n, dtype)
    return operator_norm(given if costs is None else given.counted(costs), domain, dual_domain)


def unit_points(size):
    """The extreme points of the l1 ball."""
    return np.vstack([np.eye(size), -np.eye(size)])


def by_definition(A, x_norm, z_norm, x_weights=1.0, z_weights=1.0):
    """The largest <A x, z>: over the extreme points of an l1 ball; the best answer to each in a Euclidean one."""
    k, n = A.shape
    if x_norm == z_norm == 2:
        scaled = A / np.sqrt(np.broadcast_to(x_weights, n)) / np.sqrt(np.broadcast_to(z_weights, k))[:, None]
        return float(np.linalg.svd(scaled, compute_uv=False)[0])
    values = []
    if x_norm == 1:
        for x in unit_points(n):
            answers = unit_points(k) if z_norm == 1 else [best_answer(A @ x, z_weights)]
            values += [z @ A @ x for z in answers]
    else:
        values += [z @ A @ best_answer(A.T @ z, x_weights) for z in unit_points(k)]
    return float(max(values))


def best_answer(slope, weights):
    """The x with sum_j weights_j x_j^2 <= 1 and the largest <slope, x>."""
    direction = slope / weights
    length = math.sqrt(float(np.sum(weights * direction**2)))
    return direction / length if length > 0 else direction


def blocks_by_definition(A, m, z_norm):
    """x of m blocks, |x|^2 the sum of their squared l1 norms: over one vertex of each block, and their shares."""
    columns = np.split(np.arange(A.shape[1]), m)
    sizes = []
    for chosen in itertools.product(*columns):
        B = A[:, list(chosen)]
        sizes.append(np.linalg.norm(B, 2) if z_norm == 2 else np.max(np.linalg.norm(B, axis=1)))
    return float(max(sizes))


GEOMETRIES = {2: Free(), 1: EntropySimplex()}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("z_norm", [2, 1])
@pytest.mark.parametrize("x_norm", [2, 1])
def test_the_norm_is_the_largest_product(x_norm, z_norm, form):
    rng = np.random.default_rng(0)
    for _ in range(30):
        k, n = rng.integers(1, 9, size=2)
        A = rng.normal(size=(k, n)) * rng.choice([1e-3, 1, 1e3])
        A[rng.random((k, n)) < 0.3] = 0
        expected = by_definition(A, x_norm, z_norm)
        value = found(A, GEOMETRIES[x_norm], GEOMETRIES[z_norm], form=form)
        assert value == pytest.approx(expected, rel=1e-11)
        assert value >= expected * (1 - 1e-14)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("x_norm", "z_norm"), [(2, 2), (2, 1), (1, 2)])
def test_weights_of_coordinates_count(x_norm, z_norm, form):
    rng = np.random.default_rng(1)
    for _ in range(20):
        k, n = rng.integers(1, 9, size=2)
        A = rng.normal(size=(k, n))
        weights = {
            "x_weights": 10 ** rng.uniform(0, 3, size=n) if x_norm == 2 else None,
            "z_weights": 10 ** rng.uniform(0, 3, size=k) if z_norm == 2 else None,
        }
        expected = by_definition(A, x_norm, z_norm, **{name: w for name, w in weights.items() if w is not None})
        value = found(A, GEOMETRIES[x_norm], GEOMETRIES[z_norm], form=form, **weights)
        assert value == pytest.approx(expected, rel=1e-11)
        assert value != pytest.approx(by_definition(A, x_norm, z_norm), rel=1e-3) or k * n == 1


def test_weights_count_in_the_power_iteration():
    rng = np.random.default_rng(2)
    for form in FORMS:
        A = rng.normal(size=(60, 80))
        weights = {"x_weights": 10 ** rng.uniform(0, 3, size=80), "z_weights": 10 ** rng.uniform(0, 3, size=60)}
        expected = by_definition(A, 2, 2, **weights)
        assert expected <= found(A, Free(), Free(), form=form, **weights) <= 1.06 * expected


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("z_norm", [2, 1])
@pytest.mark.parametrize("m", [2, 3])
def test_entropy_blocks_add_up_in_squares_which_is_never_too_little(m, z_norm, form):
    rng = np.random.default_rng(3)
    for _ in range(10):
        A = rng.normal(size=(rng.integers(1, 6), 3 * m))
        value = found(A, EntropySimplex(), GEOMETRIES[z_norm], m=m, form=form)
        exact = blocks_by_definition(A, m, z_norm)
        assert exact * (1 - 1e-12) <= value <= math.sqrt(m) * exact * (1 + 1e-12)
        singles = [by_definition(part, 1, z_norm) for part in np.split(A, m, axis=1)]
        assert value == pytest.approx(math.sqrt(sum(single**2 for single in singles)))
        # Blocks that A treats alike pull together: there the bound is the norm.
        alike = np.hstack([A[:, :3]] * m)
        value = found(alike, EntropySimplex(), GEOMETRIES[z_norm], m=m, form=form)
        assert value == pytest.approx(blocks_by_definition(alike, m, z_norm))


def test_euclidean_blocks_are_one_long_vector():
    rng = np.random.default_rng(4)
    A = rng.normal(size=(4, 6))
    assert found(A, L2Ball(1.0), Box(0.0, 1.0), m=3) == pytest.approx(np.linalg.norm(A, 2))
    assert found(A, L2Ball(1.0), EntropySimplex(), m=3) == pytest.approx(np.max(np.linalg.norm(A, axis=1)))


def with_spectrum(rng, k, n, values):
    values = np.asarray(values, dtype=float)
    left = np.linalg.qr(rng.normal(size=(k, len(values))))[0]
    right = np.linalg.qr(rng.normal(size=(n, len(values))))[0]
    return (left * values) @ right.T


SPECTRA = {
    "gaussian": lambda rng, r: None,
    "clustered at the top": lambda rng, r: np.concatenate([1 - 1e-3 * rng.random(r // 3), rng.random(r - r // 3)]),
    "dense up to the top": lambda rng, r: np.linspace(1, 0, r),
    "crowded below the top": lambda rng, r: np.concatenate([[1.0], np.linspace(0.98, 0.9, r - 1)]),
    "all alike": lambda rng, r: np.ones(r),
    "of rank 1": lambda rng, r: [3.0],
    "of rank 4": lambda rng, r: [1.0, 0.99, 0.5, 1e-3],
    "one huge": lambda rng, r: np.concatenate([[1e6], rng.random(r - 1)]),
    "falling fast": lambda rng, r: 0.7 ** np.arange(r),
    "two levels": lambda rng, r: np.where(np.arange(r) < 2, 1.0, 0.94),
}
TRIALS = 24


def hard_matrix(kind, trial):
    rng = np.random.default_rng([list(SPECTRA).index(kind), trial])
    k, n = rng.integers(40, 260, size=2)
    values = SPECTRA[kind](rng, min(k, n))
    A = rng.normal(size=(k, n)) if values is None else with_spectrum(rng, k, n, values)
    return A * rng.choice([1e-4, 1.0, 1e4])


@pytest.mark.covering
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", SPECTRA)
def test_the_power_iteration_is_never_below_the_norm_and_at_most_6_percent_above(kind, dtype):
    for trial in range(TRIALS):
        A = hard_matrix(kind, trial).astype(dtype)
        exact = float(np.linalg.norm(A.astype(np.float64), 2))
        ratio = found(A, Free(), Free(), dtype=dtype) / exact
        # In float32 the products themselves are known to so many digits only.
        assert 1 - 4 * np.finfo(dtype).eps <= ratio <= 1.06, (kind, trial, A.shape)


def test_without_its_margin_the_power_iteration_would_fall_below_the_norm():
    hard = [hard_matrix(kind, trial) for kind in ("clustered at the top", "gaussian") for trial in range(4)]
    without = [found(A, Free(), Free()) * math.sqrt(0.9) / np.linalg.norm(A, 2) for A in hard]
    assert sum(ratio < 1 - 1e-6 for ratio in without) >= 4


def test_the_power_iteration_is_seeded_and_the_same_for_every_form():
    A = np.random.default_rng(5).normal(size=(120, 90))
    values = [found(A, Free(), Free()) for _ in range(2)]
    assert values[0] == values[1]
    for form in FORMS:
        assert found(A, Free(), Free(), form=form) == pytest.approx(values[0], rel=1e-9)


def test_the_power_iteration_takes_few_products_and_counts_them():
    A = np.random.default_rng(6).normal(size=(200, 300))
    costs = Costs()
    found(A, Free(), Free(), form="operator", costs=costs)
    assert 2 <= costs.operator_products <= 60
    assert costs.operator_products % 2 == 0
    costs = Costs()
    found(np.outer(A[:, 0], A[0]), Free(), Free(), form="operator", costs=costs)
    assert costs.operator_products <= 6


@pytest.mark.parametrize(
    ("x_norm", "z_norm", "shape", "products"),
    [(1, 2, (7, 4), 4), (1, 2, (4, 7), 7), (2, 1, (7, 4), 7), (1, 1, (7, 4), 4), (1, 1, (4, 7), 4), (2, 2, (7, 4), 4)],
)
def test_the_entries_of_an_operator_take_one_product_per_line(x_norm, z_norm, shape, products):
    A = np.random.default_rng(7).normal(size=shape)
    for form, expected in (("array", 0), ("sparse", 0), ("operator", products)):
        costs = Costs()
        found(A, GEOMETRIES[x_norm], GEOMETRIES[z_norm], form=form, costs=costs)
        assert costs.operator_products == expected


def test_finding_the_norm_is_part_of_what_a_run_costs():
    rng = np.random.default_rng(8)
    A = rng.normal(size=(60, 70))
    operator, loss = FORMS["operator"](A), gs.losses.Quadratic(np.eye(70), rng.normal(size=70))
    method, stop = gs.PDS(L=1.0, R=1.0), gs.Stop(iterations=3)
    searched = gs.LinearlyConstrained(loss, operator, np.zeros(60))
    costs = Costs()
    norm = searched.operator_norm(searched.A.counted(costs))
    given = gs.LinearlyConstrained(loss, operator, np.zeros(60), norm=norm)
    one, other = (gs.solve(problem, method=method, stop=stop) for problem in (searched, given))
    np.testing.assert_array_equal(one.x, other.x)
    assert costs.operator_products > 0
    assert one.costs.operator_products == other.costs.operator_products + costs.operator_products
    assert one.parameters["A_norm"] == other.parameters["A_norm"] == norm


@pytest.mark.parametrize("norm", [0.5, 1e4, 3, np.float32(2.0)])
def test_a_norm_that_is_given_is_used_as_it_is(norm):
    A = np.eye(4)
    loss = gs.losses.Quadratic(np.eye(4), np.ones(4))
    problem = gs.Saddle(loss, A, dual_domain=EntropySimplex(), norm=norm)
    assert problem.operator_norm() == float(norm)
    for method in (gs.PDS(R=1.0), gs.CondatVu(ratio=1.0)):
        assert gs.solve(problem, method=method, stop=gs.Stop(iterations=1)).parameters["A_norm"] == float(norm)
    # A method's own comes first.
    solution = gs.solve(problem, method=gs.PDS(R=1.0, norm=7.0), stop=gs.Stop(iterations=1))
    assert solution.parameters["A_norm"] == 7.0


def diagonal_operator(k, n):
    """Ones on the diagonal, by functions only."""
    r = min(k, n)

    def product(size):
        return lambda v: np.concatenate([v[:r], np.zeros(size - r)])

    return LinearOperator((k, n), matvec=product(k), rmatvec=product(n), dtype=float)


@pytest.mark.parametrize(("x_norm", "z_norm", "shape"), [(1, 1, (5001, 5002)), (1, 2, (3, 5001)), (2, 1, (5001, 3))])
def test_an_operator_with_too_many_lines_is_refused_before_any_product(x_norm, z_norm, shape):
    k, n = shape
    costs = Costs()
    A = linear_map(diagonal_operator(k, n), n, np.float64).counted(costs)
    domain, dual_domain = GEOMETRIES[x_norm].bind(1, n, np.float64), GEOMETRIES[z_norm].bind(1, k, np.float64)
    with pytest.raises(gs.InputError, match=r"entries of A.*5,000 lines; got 5,001; give norm="):
        operator_norm(A, domain, dual_domain)
    assert costs.operator_products == 0
    # The norm that is asked for helps.
    loss = gs.losses.Linear(np.arange(float(n)))
    problem = gs.Saddle(loss, diagonal_operator(k, n), None, GEOMETRIES[x_norm], GEOMETRIES[z_norm], norm=1.0)
    assert problem.operator_norm() == 1.0


def test_many_lines_are_no_matter_in_the_euclidean_norm_or_for_a_matrix():
    n = 6000
    assert 1 <= found(sp.eye_array(n, format="csr"), Free(), Free(), form="sparse") <= 1.06
    assert found(sp.eye_array(n, format="csr"), EntropySimplex(), EntropySimplex(), form="sparse") == 1.0
    operator = linear_map(diagonal_operator(n, n), n, np.float64)
    assert 1 <= operator_norm(operator, Free().bind(1, n, np.float64), Free().bind(1, n, np.float64)) <= 1.06


@pytest.mark.parametrize("z_norm", [2, 1])
@pytest.mark.parametrize("x_norm", [2, 1])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (60, 50)])
def test_the_norm_of_zero_is_zero(shape, x_norm, z_norm):
    for form in FORMS:
        assert found(np.zeros(shape), GEOMETRIES[x_norm], GEOMETRIES[z_norm], form=form) == 0.0


def tiny_or_huge(size, shape, dtype):
    A = (size * np.random.default_rng(9).normal(size=shape)).astype(dtype)
    exact = float(np.linalg.norm(A.astype(np.float64), 2))
    assert exact * (1 - 1e-6) <= found(A, Free(), Free(), dtype=dtype) <= 1.06 * exact
    longest = float(np.max(np.linalg.norm(A.astype(np.float64), axis=1)))
    assert found(A, Free(), EntropySimplex(), dtype=dtype) == pytest.approx(longest, rel=1e-5, abs=0)


@pytest.mark.parametrize("shape", [(5, 8), (50, 80)])
@pytest.mark.parametrize("size", [1e-60, 1e60])
def test_the_norm_of_tiny_and_huge_matrices(size, shape):
    tiny_or_huge(size, shape, np.float64)


@pytest.mark.parametrize("shape", [(5, 8), (50, 80)])
@pytest.mark.parametrize("size", [1e-25, 1e25])
def test_the_norm_of_tiny_and_huge_matrices_in_float32(size, shape):
    tiny_or_huge(size, shape, np.float32)
