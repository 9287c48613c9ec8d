"""LSQR: the iterates and the end of SciPy's, whose reference implementation it follows."""

import numpy as np
import pytest
from scipy.sparse import linalg

from gradslide.problems.lsqr import lsqr


def problems():
    rng = np.random.default_rng(0)
    square, low_rank = rng.normal(size=(6, 6)), rng.normal(size=(9, 2)) @ rng.normal(size=(2, 7))
    graded = rng.normal(size=(20, 12)) * 2.0 ** -np.arange(12)
    cases = {"tall": rng.normal(size=(9, 5)), "wide": rng.normal(size=(5, 9)), "square": square}
    return cases | {"low rank": low_rank, "graded": graded, "unit": np.eye(4), "zero": np.zeros((3, 4))}


@pytest.mark.parametrize("iterations", [1, 3, 30])
@pytest.mark.parametrize("name", problems())
def test_it_does_what_scipy_does(name, iterations):
    A = problems()[name]
    for seed in range(5):
        for target in (np.random.default_rng(seed).normal(size=len(A)), A @ np.ones(A.shape[1])):
            products = 0

            def forward(v):
                nonlocal products
                products += 1
                return A @ v

            found = lsqr(forward, lambda u: A.T @ u, target, iterations=iterations, tolerance=1e-12)
            expected = linalg.lsqr(A, target, atol=1e-12, btol=1e-12, iter_lim=iterations)
            np.testing.assert_allclose(found, expected[0], rtol=1e-6, atol=1e-8)
            assert abs(products - expected[2]) <= 1


def test_it_solves_least_squares():
    A = problems()["low rank"]
    target = np.random.default_rng(1).normal(size=len(A))
    found = lsqr(lambda v: A @ v, lambda u: A.T @ u, target, iterations=30, tolerance=1e-12)
    np.testing.assert_allclose(found, np.linalg.lstsq(A, target)[0], atol=1e-10)
    assert not lsqr(lambda v: A @ v, lambda u: A.T @ u, 0 * target, iterations=30, tolerance=1e-12).any()
