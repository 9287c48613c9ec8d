"""scikit-learn's own checks of an estimator, with the defaults."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from gradslide.sklearn import DecentralizedLasso, DecentralizedLogisticRegression, DecentralizedRidge


@parametrize_with_checks([DecentralizedRidge(), DecentralizedLasso(), DecentralizedLogisticRegression()])
def test_it_is_an_estimator(estimator, check):
    check(estimator)
