"""The operator A: whatever form it is given in, the products, the run and the refusals are the same."""

import warnings

import numpy as np
import pylops
import pytest
import scipy.sparse as sp
from error_messages import check_message
from paper_twins import iterates
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import gradslide as gs
from gradslide.problems.linear_map import linear_map
from gradslide.results.costs import Costs

K, N = 5, 6


def entries(seed=0, shape=(K, N)):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(shape) < 0.6, rng.normal(size=shape), 0.0)


class Duck:
    """Nothing but a shape and two products."""

    def __init__(self, A):
        self.A, self.shape, self.dtype = A, A.shape, None

    def matvec(self, x):
        return self.A @ x

    def rmatvec(self, z):
        return self.A.T @ z


FORMS = {
    "array": np.asarray,
    "array in columns": np.asfortranarray,
    "list": lambda A: A.tolist(),
    "csr matrix": sp.csr_matrix,
    "csc matrix": sp.csc_matrix,
    "coo matrix": sp.coo_matrix,
    "csr array": sp.csr_array,
    "csc array": sp.csc_array,
    "coo array": sp.coo_array,
    "dia array": sp.dia_array,
    "LinearOperator": aslinearoperator,
    "PyLops": pylops.MatrixMult,
    "PyLops sum": lambda A: pylops.MatrixMult(A / 4) + 0.75 * pylops.MatrixMult(A),
    "shape and products": Duck,
    "functions": lambda A: (lambda x: A @ x, lambda z: A.T @ z),
    "list of functions": lambda A: [lambda x: A @ x, lambda z: A.T @ z],
    "functions giving columns": lambda A: (lambda x: (A @ x)[:, None], lambda z: (A.T @ z)[:, None]),
}
MATRICES = [name for name in FORMS if any(kind in name for kind in ("array", "matrix", "list"))]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_products_of_the_matrix(form):
    A, rng = entries(), np.random.default_rng(1)
    given = linear_map(FORMS[form](A), N, np.float64)
    assert given.shape == (K, N)
    for _ in range(5):
        x, z = rng.normal(size=N), rng.normal(size=K)
        np.testing.assert_allclose(given.apply(x), A @ x, rtol=1e-13, atol=1e-14)
        np.testing.assert_allclose(given.apply_adjoint(z), A.T @ z, rtol=1e-13, atol=1e-14)
        assert given.apply(x).shape == (K,)
        assert given.apply_adjoint(z).shape == (N,)
    assert given.fingerprint() == linear_map(A, N, np.float64).fingerprint()


def test_fingerprints_tell_maps_apart():
    A = entries()
    nudged = A.copy()
    nudged[2, 3] += 1e-3
    maps = [A, nudged, -A, A[:, ::-1], A[::-1], np.vstack([A, np.zeros(N)])]
    assert len({linear_map(each, N, np.float64).fingerprint() for each in maps}) == len(maps)


@pytest.mark.parametrize("form", FORMS)
def test_every_product_is_counted(form):
    costs = Costs()
    counted = linear_map(FORMS[form](entries()), N, np.float64).counted(costs)
    assert costs.operator_products == 0
    counted.apply(np.ones(N))
    counted.apply_adjoint(np.ones(K))
    counted.apply(np.ones(N))
    assert costs.operator_products == 3


def constrained(A, m=1, dtype=np.float64):
    rng = np.random.default_rng(2)
    roots = rng.normal(size=(m, N // m, N // m))
    loss = gs.losses.Quadratic((roots @ roots.swapaxes(1, 2)).astype(dtype), rng.normal(size=(m, N // m)).astype(dtype))
    return gs.LinearlyConstrained(loss, A, entries() @ rng.normal(size=N), domain=gs.domains.L2Ball(10.0))


@pytest.mark.covering
@pytest.mark.parametrize("method", [gs.PDS(R=1.0), gs.CondatVu(ratio=1.0)], ids=["PDS", "CondatVu"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_run(form, method):
    def run(A):
        return gs.solve(constrained(A), method=method, stop=gs.Stop(iterations=15))

    one, other = run(entries()), run(FORMS[form](entries()))
    np.testing.assert_allclose(other.x, one.x, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(other.dual, one.dual, rtol=1e-9, atol=1e-12)
    assert other.history[-1].gap == pytest.approx(one.history[-1].gap, rel=1e-9)
    # The norm of an operator is found by products, that of a matrix from its entries.
    found_by_products = 0 if form in MATRICES and "functions" not in form else min(K, N)
    assert other.costs.operator_products == one.costs.operator_products + found_by_products


@pytest.mark.parametrize("form", ["csr array", "LinearOperator", "PyLops", "functions"])
def test_every_form_gives_the_same_iterates(form):
    runs = [
        iterates(constrained(A), None, gs.PDS(R=1.0), gs.Stop(iterations=8))
        for A in (entries(), FORMS[form](entries()))
    ]
    for one, other in zip(*runs, strict=True):
        for name in ("x", "x_hat", "x_under", "x_bar", "y"):
            np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(other.dual.s, one.dual.s, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(other.dual.w, one.dual.w, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_float32_stays_float32(form):
    seen = set()
    if form == "functions":

        def forward(x):
            seen.add(x.dtype)
            return entries() @ x

        def adjoint(z):
            seen.add(z.dtype)
            return entries().T @ z

        A = (forward, adjoint)
    else:
        A = FORMS[form](entries())
    problem = constrained(A, dtype=np.float32)
    assert problem.A.dtype == np.float32
    assert problem.A.apply(np.ones(N, np.float32)).dtype == np.float32
    assert problem.A.apply_adjoint(np.ones(K, np.float32)).dtype == np.float32
    if problem.A.matrix is not None:
        assert problem.A.matrix.dtype == np.float32
    solution = gs.solve(problem, method=gs.PDS(R=1.0), stop=gs.Stop(iterations=5))
    assert solution.x.dtype == solution.dual.dtype == np.float32
    double = gs.solve(constrained(entries()), method=gs.PDS(R=1.0), stop=gs.Stop(iterations=5))
    np.testing.assert_allclose(solution.x, double.x, rtol=1e-3, atol=1e-4)
    if form == "functions":
        assert seen == {np.dtype(np.float32)}


@pytest.mark.parametrize("method", [gs.PDS(R=1.0, L=9.0), gs.CondatVu(ratio=1.0, L=9.0)], ids=["PDS", "CondatVu"])
@pytest.mark.parametrize("m", [2, 3])
def test_A_sees_the_blocks_of_x_one_after_the_other(m, method):
    d = N // m
    rng = np.random.default_rng(3)
    roots, c = rng.normal(size=(m, d, d)), rng.normal(size=(m, d))
    Q = roots @ roots.swapaxes(1, 2)
    whole = np.zeros((N, N))
    for i in range(m):
        whole[i * d : (i + 1) * d, i * d : (i + 1) * d] = Q[i]

    def run(loss, A):
        problem = gs.LinearlyConstrained(loss, A, entries() @ np.ones(N))
        return gs.solve(problem, method=method, stop=gs.Stop(iterations=15))

    blocks = run(gs.losses.Quadratic(Q, c), entries())
    one = run(gs.losses.Quadratic(whole, c.reshape(-1)), entries())
    assert blocks.x.shape == (m, d)
    np.testing.assert_allclose(blocks.x.reshape(-1), one.x[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(blocks.dual, one.dual, rtol=1e-9, atol=1e-12)
    parts = np.split(entries(), m, axis=1)
    by_blocks = run(
        gs.losses.Quadratic(Q, c),
        (
            lambda x: sum(part @ block for part, block in zip(parts, x.reshape(m, d), strict=True)),
            lambda z: np.concatenate([part.T @ z for part in parts]),
        ),
    )
    np.testing.assert_allclose(by_blocks.x, blocks.x, rtol=1e-9, atol=1e-12)
    other_order = run(gs.losses.Quadratic(Q, c), np.hstack(parts[::-1]))
    assert np.max(np.abs(other_order.x - blocks.x)) > 1e-2


def test_a_warm_start_of_several_blocks_can_have_a_checkpoint(tmp_path):
    problem, stop = constrained(entries(), m=3), gs.Stop(iterations=3)
    earlier = gs.solve(problem, stop=stop)
    gs.solve(problem, stop=stop, warm_start=earlier, checkpoint=tmp_path / "run.npz")


def test_functions_may_return_the_same_array_every_time():
    A, forward, backward = entries(), np.zeros(K), np.zeros(N)
    reusing = (lambda x: np.matmul(A, x, out=forward), lambda z: np.matmul(A.T, z, out=backward))
    one, other = (
        gs.solve(constrained(each), method=gs.CondatVu(), stop=gs.Stop(iterations=40)) for each in (A, reusing)
    )
    assert other.parameters["A_norm"] == pytest.approx(one.parameters["A_norm"], rel=1e-9)
    np.testing.assert_allclose(other.x, one.x, rtol=1e-9, atol=1e-12)


def test_matrices_that_hold_whole_numbers_or_truths_are_taken():
    A = np.array([[1, 0, 2], [0, 3, 1]])
    for given in (A, sp.csr_array(A), A > 0, A.astype(np.uint8)):
        found = linear_map(given, 3, np.float64)
        dense = given.toarray() if sp.issparse(given) else given
        np.testing.assert_array_equal(found.apply(np.ones(3)), dense.sum(axis=1))
        np.testing.assert_array_equal(found.apply_adjoint(np.ones(2)), dense.sum(axis=0))


def failing(_):
    raise RuntimeError("no such shape")


def real(A):
    return lambda x: A @ x


GOOD = entries()
SQUARE = entries(4, (N, N))
ADJOINTS = {
    "of the other sign": (GOOD, lambda z: -GOOD.T @ z),
    "too long by a thousandth": (GOOD, lambda z: 1.001 * GOOD.T @ z),
    "zero": (GOOD, lambda z: np.zeros(N)),
    "shifted": (GOOD, lambda z: np.roll(GOOD.T @ z, 1)),
    "not transposed": (SQUARE, lambda z: SQUARE @ z),
    "one entry off": (GOOD, lambda z: GOOD.T @ z + 0.01 * z[0] * np.eye(N)[2]),
}


@pytest.mark.parametrize("kind", ADJOINTS)
def test_a_wrong_adjoint_is_refused(kind):
    A, adjoint = ADJOINTS[kind]
    operator = LinearOperator(A.shape, matvec=lambda x: A @ x, rmatvec=adjoint, dtype=float)
    for wrong in ((lambda x: A @ x, adjoint), operator):
        with pytest.raises(gs.InputError, match=r"adjoint of the first.*; got .+ and .+; correct the adjoint"):
            linear_map(wrong, N, np.float64)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_a_right_adjoint_is_never_refused_for_rounding(size, dtype):
    rng = np.random.default_rng(5)
    for _ in range(20):
        A = (size * rng.normal(size=rng.integers(1, 300, size=2))).astype(dtype)
        linear_map(aslinearoperator(A), A.shape[1], dtype)


def test_a_flat_array_is_one_row():
    A = linear_map(np.arange(6.0), 6, np.dtype(float))
    assert A.shape == (1, 6)
    np.testing.assert_array_equal(A.apply(np.ones(6)), [15.0])


# Each: what is given for A, and words that the message must hold.
REFUSED = {
    "a row with too few entries": (lambda: np.ones(N - 1), ["one column for each of the 6", "(1, 5)"]),
    "array in three dimensions": (lambda: np.ones((2, K, N)), ["matrix", "(2, 5, 6)"]),
    "a number": (lambda: 3.0, ["matrix", "shape ()"]),
    "nothing": (lambda: None, ["matrix", "None"]),
    "a word": (lambda: "A", ["matrix", "<U1"]),
    "words": (lambda: [["a"] * N], ["matrix", "<U1"]),
    "objects": (lambda: GOOD.astype(object), ["matrix", "ndarray"]),
    "ragged lists": (lambda: [[1.0, 2.0], [3.0]], ["matrix", "list"]),
    "complex array": (lambda: GOOD * 1j, ["real", "complex128"]),
    "complex sparse matrix": (lambda: sp.csr_array(GOOD * 1j), ["real", "complex128"]),
    "complex operator": (lambda: aslinearoperator(GOOD * 1j), ["real", "complex128"]),
    "complex PyLops operator": (lambda: pylops.MatrixMult(GOOD * 1j, dtype=complex), ["real", "complex128"]),
    "NaN": (lambda: GOOD * np.nan, ["finite", "NaN"]),
    "NaN in a sparse matrix": (lambda: sp.csr_array(GOOD * np.nan), ["finite", "NaN"]),
    "NaN in an operator": (lambda: aslinearoperator(np.full((K, N), np.nan)), ["finite", "NaN"]),
    "NaN from a function": (lambda: (lambda x: GOOD @ x * np.nan, real(GOOD.T)), ["finite", "NaN"]),
    "columns too few": (lambda: GOOD[:, :4], ["column for each of the 6", "(5, 4)"]),
    "columns too few, sparse": (lambda: sp.csr_array(GOOD[:, :4]), ["column for each of the 6", "(5, 4)"]),
    "operator transposed": (lambda: aslinearoperator(GOOD.T), ["column for each of the 6", "(6, 5)"]),
    "no rows": (lambda: np.zeros((0, N)), ["and a row", "(0, 6)"]),
    "one function": (lambda: real(GOOD), ["pair of functions", "function"]),
    "three functions": (lambda: (abs, abs, abs), ["pair of functions", "tuple"]),
    "a function and nothing": (lambda: (real(GOOD), None), ["pair of functions", "tuple"]),
    "forward that raises": (lambda: (failing, real(GOOD.T)), ["flat array of 6", "RuntimeError: no such shape"]),
    "forward of another size": (lambda: (real(GOOD[:, :4]), real(GOOD.T)), ["flat array of 6", "ValueError"]),
    "adjoint of another size": (lambda: (real(GOOD), lambda z: np.ones(4)), ["must have 6 entries", "4"]),
    "forward that adds": (lambda: (lambda x: GOOD @ x + 1, real(GOOD.T)), ["adjoint of the first", "random x"]),
    "forward that is not linear": (lambda: (lambda x: np.abs(GOOD @ x), real(GOOD.T)), ["adjoint of the first"]),
}


def check_refusal(given, words=()):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_message(lambda: gs.Saddle(gs.losses.Linear(np.ones(N)), given()), words)


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_operator_is_refused_in_one_line(case):
    check_refusal(*REFUSED[case])


class WithoutDtype:
    shape = (K, N)

    def matvec(self, x):
        return GOOD @ x

    def rmatvec(self, z):
        return GOOD.T @ z


class Flat(WithoutDtype):
    shape = (N,)
    dtype = np.dtype(float)


LATE = {
    "adjoint that raises": lambda: (real(GOOD), failing),
    "forward that raises except at 0": lambda: (lambda x: failing(x) if x.any() else GOOD @ x, real(GOOD.T)),
    "operator without an adjoint": lambda: LinearOperator(GOOD.shape, matvec=real(GOOD), dtype=float),
    "operator that raises": lambda: LinearOperator(GOOD.shape, matvec=failing, rmatvec=failing, dtype=float),
    "operator of one dimension": Flat,
    "sparse array in one dimension": lambda: sp.coo_array(np.ones(N)),
    "a class of operators": lambda: Duck,
    "functions with complex values": lambda: (lambda x: 1j * (GOOD @ x), lambda z: -1j * (GOOD.T @ z)),
    "functions without a row": lambda: (lambda x: np.zeros(0), lambda z: np.zeros(N)),
    "forward that gives nothing": lambda: (lambda x: None, real(GOOD.T)),
    "forward that gives words": lambda: (lambda x: np.array(["a"] * K), real(GOOD.T)),
}


@pytest.mark.parametrize("case", LATE)
def test_what_only_fails_in_a_product_is_refused_in_one_line(case):
    check_refusal(LATE[case])


def test_shape_matvec_and_rmatvec_are_enough():
    found = linear_map(WithoutDtype(), N, np.float64)
    np.testing.assert_array_equal(found.apply(np.ones(N)), GOOD @ np.ones(N))


def test_a_wrong_adjoint_of_a_large_float32_operator_is_refused():
    A = np.random.default_rng(6).normal(size=(2000, 1500)).astype(np.float32)
    linear_map((lambda x: A @ x, lambda z: A.T @ z), 1500, np.float32)
    for wrong in (lambda z: -A.T @ z, lambda z: np.zeros(1500, np.float32), lambda z: np.roll(A.T @ z, 1)):
        with pytest.raises(gs.InputError, match="adjoint"):
            linear_map((lambda x: A @ x, wrong), 1500, np.float32)
