"""Quadratic losses with a sparse matrix: they equal their dense twins, and check what they are given."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from error_messages import check_message

import gradslide as gs
from gradslide.losses import Linear, Quadratic, stack

D = 7
RNG = np.random.default_rng(0)
LARGE = 1100


def positive(d, seed=0, zeros=0.5):
    """A sparse positive semidefinite matrix that is not diagonally dominant."""
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(d, d)) * (rng.random((d, d)) > zeros)
    return sp.csr_array(half.T @ half)


def second_differences(d):
    ones = np.ones(d)
    return sp.diags_array([ones[1:], -2 * ones, ones[1:]], offsets=[-1, 0, 1]).tocsr()


Q, C = positive(D), RNG.normal(size=D)


@pytest.mark.parametrize("convert", [sp.csr_array, sp.csc_matrix, sp.coo_array], ids=lambda each: each.__name__)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_it_equals_its_dense_twin(convert, dtype):
    loss, twin = Quadratic(convert(Q.astype(dtype)), C), Quadratic(Q.toarray().astype(dtype), C)
    x = RNG.normal(size=(1, D)).astype(dtype)
    close = {"rtol": 1e-5 if dtype == np.float32 else 1e-12, "atol": 1e-5 if dtype == np.float32 else 1e-12}
    assert (loss.m, loss.d, loss.dtype, loss.device) == (1, D, dtype, None)
    assert loss.gradient(x).dtype == dtype
    assert loss.value(x).dtype == np.float64
    np.testing.assert_allclose(loss.value(x), twin.value(x), **close)
    np.testing.assert_allclose(loss.gradient(x), twin.gradient(x), **close)
    np.testing.assert_allclose(loss.value_in_doubles(x), twin.value_in_doubles(x), rtol=1e-12)
    np.testing.assert_allclose(loss.hessian(x), twin.hessian(x))
    assert loss.hessian(x).dtype == np.float64
    for norm in (1, 2):
        np.testing.assert_allclose(loss.smoothness(norm), twin.smoothness(norm), rtol=1e-6)
    assert loss.has_evaluation == twin.has_evaluation
    if dtype == np.float32:
        found, expected = (each.evaluation(x).change(x + 0.1) for each in (loss, twin))
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)


def test_the_linear_part_follows_the_precision_of_the_matrix():
    assert Quadratic(Q.astype(np.float32), C).gradient(np.zeros((1, D))).dtype == np.float32
    assert Quadratic(sp.csr_array(2 * np.eye(D, dtype=int)), C).dtype == np.float64
    np.testing.assert_allclose(Quadratic(Q, C[None]).gradient(np.zeros((1, D))), C[None])


def test_entries_that_are_stored_twice_are_added_up():
    twice = sp.csr_array((np.array([3.0, -1.0, 1.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 2))
    loss = Quadratic(twice, np.zeros(2))
    assert loss.smoothness(1)[0] == 2.0
    assert twice.nnz == 3  # the caller's own


def test_a_large_matrix_stays_sparse():
    Q = (second_differences(LARGE).T @ second_differences(LARGE)).tocsr()
    loss = Quadratic(Q, np.ones(LARGE))
    assert not loss.has_hessian
    with pytest.raises(gs.InputError, match="Hessian"):
        loss.hessian(np.zeros((1, LARGE)))
    true = float(np.linalg.eigvalsh(Q.toarray())[-1])
    assert true * (1 - 1e-12) <= loss.smoothness()[0] <= true * (1 + 1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_the_largest_eigenvalue_of_a_large_matrix_is_bounded_from_above(seed):
    Q = positive(LARGE, seed, zeros=0.995)
    true = float(np.linalg.eigvalsh(Q.toarray())[-1])
    assert true * (1 - 1e-12) <= Quadratic(Q, np.zeros(LARGE)).smoothness()[0] <= true * (1 + 1e-3)


@pytest.mark.parametrize("d", [D, LARGE])
def test_matrices_of_zeros_and_of_low_rank_are_positive_semidefinite(d):
    assert Quadratic(sp.csr_array((d, d)), np.ones(d)).smoothness()[0] == 0
    row = sp.csr_array(np.random.default_rng(1).normal(size=(1, d)))
    assert Quadratic(row.T @ row, np.ones(d)).smoothness()[0] == pytest.approx((row @ row.T).toarray().item(), rel=1e-6)


@pytest.mark.parametrize("d", [D, LARGE])
@pytest.mark.parametrize("below", [1e-2, 1.0, 1e3])
def test_indefinite_matrices_are_refused(d, below):
    Q = positive(d, zeros=0.99 if d > D else 0.5)
    shifted = Q - (np.linalg.eigvalsh(Q.toarray())[0] + below) * sp.eye_array(d)
    check_message(lambda: Quadratic(shifted, np.zeros(d)), ["Q must be positive semidefinite", "eigenvalue", "sign"])


def test_one_negative_entry_on_a_large_diagonal_is_found():
    diagonal = np.ones(LARGE)
    diagonal[700] = -0.01
    check_message(lambda: Quadratic(sp.diags_array(diagonal), np.zeros(LARGE)), ["positive semidefinite"])


def test_the_quadratic_part_is_what_was_given():
    ((sparse,), c) = Quadratic(Q, C).quadratic_part(), Quadratic(Q, C).gradient(np.zeros((1, D)))
    assert sp.issparse(sparse)
    np.testing.assert_array_equal(sparse.toarray(), Q.toarray())
    np.testing.assert_array_equal(c[0], C)
    dense = np.stack([np.eye(2), 2 * np.eye(2)])
    np.testing.assert_array_equal(np.stack(Quadratic(dense, np.zeros((2, 2))).quadratic_part()), dense)
    zeros = Linear(np.ones((3, 2), np.float32)).quadratic_part()
    assert [(each.shape, each.nnz, each.dtype) for each in zeros] == [((2, 2), 0, np.float32)] * 3


def test_copies_agents_and_stacks():
    loss, x = Quadratic(Q, C), RNG.normal(size=(1, D))
    for twin in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss)), loss.take([0])):
        np.testing.assert_array_equal(twin.gradient(x), loss.gradient(x))
        np.testing.assert_array_equal(twin.smoothness(), loss.smoothness())
    assert repr(loss) == "Quadratic(m=1, d=7, float64)"
    both = np.repeat(x, 2, axis=0)
    np.testing.assert_array_equal(loss.take([0, 0]).gradient(both), np.repeat(loss.gradient(x), 2, axis=0))
    joined = stack([loss, Quadratic(np.eye(D), C), Quadratic(2 * Q, C)])
    x = RNG.normal(size=(3, D))
    np.testing.assert_allclose(joined.gradient(x), [Q @ x[0] + C, x[1] + C, 2 * (Q @ x[2]) + C])


def test_a_problem_with_a_sparse_matrix_is_solved():
    problem = gs.LinearlyConstrained(Quadratic(sp.eye_array(D), np.zeros(D)), np.ones((1, D)), b=7.0)
    solution = gs.solve(problem, method=gs.PDS(), stop=gs.Stop(residual=1e-6, operator_products=5000))
    np.testing.assert_allclose(solution.mean, np.ones(D), atol=1e-4)


UNSYMMETRIC = sp.csr_array(np.array([[1.0, 0.5], [0.0, 1.0]]))
REFUSED = {
    "not square": (lambda: Quadratic(sp.csr_array((2, 3)), np.zeros(2)), ["shape (d, d)", "(2, 3)"]),
    "empty": (lambda: Quadratic(sp.csr_array((0, 0)), np.zeros(0)), ["shape (d, d)", "(0, 0)"]),
    "one axis": (lambda: Quadratic(sp.coo_array(np.ones(2)), np.zeros(2)), ["shape (d, d)", "(2,)"]),
    "complex": (lambda: Quadratic(sp.csr_array(1j * np.eye(2)), np.zeros(2)), ["real numbers", "complex128"]),
    "NaN": (lambda: Quadratic(sp.csr_array(np.nan * np.eye(2)), np.zeros(2)), ["Q must be finite", "NaN"]),
    "another c": (lambda: Quadratic(Q, np.zeros(3)), ["shape (7,)", "(3,)", "stack"]),
    "c of many agents": (lambda: Quadratic(Q, np.zeros((2, D))), ["one agent", "(2, 7)"]),
    "unsymmetric": (lambda: Quadratic(UNSYMMETRIC, np.zeros(2)), ["symmetric", "0.5", "(Q + Q.T) / 2"]),
    "unsymmetric and large": (
        lambda: Quadratic(sp.block_diag([UNSYMMETRIC, sp.eye_array(LARGE)]), np.zeros(LARGE + 2)),
        ["symmetric", "0.5", "(Q + Q.T) / 2"],
    ),
    "on a device": (lambda: Quadratic(Q, C).to("cpu"), ["dense on a device", "order 7", "host"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_mistakes_are_refused_in_one_line(case):
    mistake, words = REFUSED[case]
    if case == "on a device":
        pytest.importorskip("torch")
    check_message(mistake, words)
