"""scikit-learn's own checks of an estimator, with the defaults."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from gradslide.sklearn import DecentralizedLasso, DecentralizedLogisticRegression, DecentralizedRidge


@parametrize_with_checks([DecentralizedRidge(), DecentralizedLogisticRegression()])
def test_it_is_an_estimator(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([DecentralizedLasso()])
def test_the_lasso_is_one_too(estimator, check):
    """Its code is that of the ridge, but for the penalty."""
    check(estimator)
