"""Covariances from a Hessian, what stands in their way, and tests of coefficients."""

import numpy as np
import pytest
from scipy import stats

from gradslide.regression import inference
from gradslide.regression.inference import Covariance, Curvature, likelihood_ratio, no_maximum

HESSIAN = np.array([[4.0, 1.0, 0.0], [1.0, 3.0, 0.5], [0.0, 0.5, 2.0]])
NAMES = ["a", "b", "c"]


def curvature(hessian=HESSIAN, gradient=(0.0, 0.0, 0.0), **more):
    given = {"n": 50, "sites": 20, "scale": 1.0, "has_scale": False, **more}
    return Curvature(np.array(gradient), np.asarray(hessian, dtype=float), **given)


def test_the_inverse_hessian_in_original_units():
    way_back = np.array([[2.0, 0.0, 1.0], [0.0, 0.1, 0.0], [0.0, 0.0, 3.0]])
    found = curvature(scale=1.7).covariance("model", way_back, NAMES)
    np.testing.assert_allclose(found.matrix, 1.7 * way_back @ np.linalg.inv(HESSIAN) @ way_back.T, rtol=1e-12)
    assert (found.kind, found.degrees, found.problem) == ("model", np.inf, "")
    assert curvature(has_scale=True).covariance("model", way_back, NAMES).degrees == 47


def test_units_do_not_matter():
    units = np.diag([1e-9, 1.0, 1e9])
    found = curvature(units @ HESSIAN @ units).covariance("model", units, NAMES)
    np.testing.assert_allclose(found.matrix, np.linalg.inv(HESSIAN), rtol=1e-9)


@pytest.mark.parametrize(("kind", "factor", "degrees"), [("rows", 50 / 47, np.inf), ("site", 20 / 19 * 49 / 47, 19)])
def test_sandwiches(kind, factor, degrees):
    meat = np.diag([1.0, 2.0, 3.0])
    found = curvature(meat=meat).covariance(kind, np.eye(3), NAMES)
    inverse = np.linalg.inv(HESSIAN)
    np.testing.assert_allclose(found.matrix, factor * inverse @ meat @ inverse, rtol=1e-12)
    assert found.degrees == degrees
    assert found.problem == ""


def test_null_directions_name_their_columns():
    for hessian, names in (
        ([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], "'a', 'b'"),
        ([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]], "'b'"),
        (np.ones((3, 3)), "'a', 'b', 'c'"),
    ):
        found = curvature(hessian).covariance("model", np.eye(3), NAMES)
        assert found.matrix is None
        assert found.standard_errors is None
        assert f"coefficients of {names}: the columns are collinear" in found.problem


def test_many_names_are_cut_and_repeated_ones_said_once():
    names = [f"x{j}" for j in range(10)]
    assert "'x0', 'x1', 'x2', 'x3', 'x4', 'x5', ... grow" in no_maximum(np.ones(10), names).problem
    found = no_maximum(np.array([1.0, 0.5, 1e-3]), ["a", "a", "b"])
    assert "coefficients of 'a' grow" in found.problem
    assert found.is_separated


def test_newton_steps_leave_null_directions_out():
    gradient = np.array([1.0, -2.0, 3.0])
    np.testing.assert_allclose(
        curvature(gradient=gradient).newton_step(), -np.linalg.solve(HESSIAN, gradient), rtol=1e-12
    )
    step = curvature([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 4.0]], [1.0, 1.0, 8.0]).newton_step()
    np.testing.assert_allclose(step, [-0.5, -0.5, -2.0], rtol=1e-12)


@pytest.mark.parametrize("degrees", [np.inf, 7.0])
def test_tests(degrees):
    law = stats.norm if degrees == np.inf else stats.t(7)
    covariance = Covariance(np.diag([4.0, 0.25]), "model", degrees)
    found = inference.Tests.of(np.array([3.0, -1.0]), covariance, 0.9)
    np.testing.assert_allclose(found.errors, [2.0, 0.5])
    np.testing.assert_allclose(found.statistics, [1.5, -2.0])
    np.testing.assert_allclose(found.p_values, 2 * law.sf([1.5, 2.0]))
    np.testing.assert_allclose(found.high, [3.0, -1.0] + law.ppf(0.95) * found.errors)
    np.testing.assert_allclose(found.low + found.high, [6.0, -2.0])
    assert found.letter == ("z" if degrees == np.inf else "t")
    assert inference.Tests.of(np.zeros(2), Covariance(None), 0.9) is None


def test_likelihood_ratios():
    assert likelihood_ratio(-10.0, -13.0, 2) == (6.0, pytest.approx(stats.chi2.sf(6.0, 2)))
    assert likelihood_ratio(-10.0, -10.0 + 1e-12, 2)[1] == 1.0
    assert np.isnan(likelihood_ratio(-1.0, -2.0, 0)[1])
