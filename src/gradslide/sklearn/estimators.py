"""Ridge, lasso, elastic net and logistic regression: scikit-learn's interface, one linear model for
all sites.
"""

import math
import warnings
from dataclasses import replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from gradslide._support.errors import InputError, require, require_number, unknown_name
from gradslide._support.types import Array
from gradslide.fitting.columns import SiteSums
from gradslide.fitting.fit import RegressionFit, fit_rows
from gradslide.fitting.objective import Objective
from gradslide.graphs.graph import Graph
from gradslide.network import Network
from gradslide.regression.design import Rows
from gradslide.regression.families import FAMILIES
from gradslide.results.status import REACHED
from gradslide.sklearn.sites import Sites, sites_of

try:
    from sklearn.utils.validation import validate_data
except ImportError:  # before 1.6

    def validate_data(estimator: Any, *args: Any, **options: Any) -> Any:
        return estimator._validate_data(*args, **options)


class DecentralizedLinearModel(BaseEstimator):  # type: ignore[misc]
    """What the estimators share: input, sites, and how a fit ends."""

    def __init__(
        self, *, fit_intercept: bool, max_iter: int, tol: float, graph: Graph | Network | None, n_sites: int
    ) -> None:
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.graph = graph
        self.n_sites = n_sites

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _read(self, X: Any, y: Any, **options: Any) -> tuple[Any, Array]:
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, **options)
        return (sp.csr_array(X) if sp.issparse(X) else X), y

    def _check_limits(self) -> None:
        require_number("max_iter", self.max_iter, "for example max_iter=10000", least=1, whole=True)
        require_number("tol", self.tol, "for example tol=1e-9", above=0)

    def _located(self, n: int, sites: Any) -> tuple[Sites, SiteSums]:
        located = sites_of(n, sites, self.n_sites, self.graph)
        return located, SiteSums(located.network)

    def _fitted(
        self,
        family: str,
        X: Any,
        targets: Array,
        weight: Array,
        sites: Sites,
        sums: SiteSums,
        *,
        classes: int = 0,
        lasso: float,
        ridge: float,
    ) -> RegressionFit:
        """Fit the model, set the attributes that all estimators have, and warn where the optimum was not reached.

        sums: what the sites agreed on before.
        """
        d = X.shape[1]
        objective = Objective(
            family=FAMILIES[family],
            classes=classes,
            ridge=np.full(d, ridge),
            lasso=np.full(d, lasso),
            standardize=False,
            has_intercept=bool(self.fit_intercept),
            covariance="none",
            columns=[str(name) for name in getattr(self, "feature_names_in_", np.arange(d))],
        )
        rows = [Rows.plain(X[own], targets[own], weight[own]) for own in sites.rows]
        fit = fit_rows(objective, rows, sites.network, tolerance=self.tol, iterations=self.max_iter)
        solution = replace(fit.solution, costs=fit.solution.costs.plus(sums.costs))
        self.solution_ = solution
        self.sites_ = sites.labels
        self.graph_ = sites.network.graph
        self.n_iter_ = solution.history[-1].iteration
        if solution.status not in REACHED:
            warnings.warn(
                f"the sites stopped before they had the optimum: {solution.status.value}; raise max_iter or tol, or "
                "penalise more",
                ConvergenceWarning,
                stacklevel=3,
            )
        return fit

    def _scores(self, X: Any) -> Array:
        """X coef^t + intercept."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return np.asarray(X @ self.coef_.T) + self.intercept_


class _LeastSquaresModel(RegressorMixin, DecentralizedLinearModel):  # type: ignore[misc]
    def predict(self, X: Any) -> Array:
        """Predict targets, X coef_ + intercept_.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d)
            The rows.

        Returns
        -------
        ndarray of shape (n,)
            The predictions.
        """
        return self._scores(X)

    def _fit(self, X: Any, y: Any, sample_weight: Any, sites: Any, l1: float, l2: float, factor: float | None) -> Self:
        """factor/2 sum of squares + l1 |w|_1 + l2/2 |w|^2; None: the mean in the place of the sum."""
        X, y = self._read(X, y, y_numeric=True)
        self._check_limits()
        weight = checked_weight(sample_weight, len(y))
        located, sums = self._located(len(y), sites)
        if factor is None:
            factor = 1 / float(sums([{"weight": weight[own].sum()} for own in located.rows])["weight"])
        y = np.asarray(y, dtype=np.float64)
        fit = self._fitted("linear", X, y, weight, located, sums, lasso=l1 / factor, ridge=l2 / factor)
        self.coef_, self.intercept_ = fit.coefficients[0, 1:], float(fit.coefficients[0, 0])
        return self


class DecentralizedRidge(_LeastSquaresModel):
    """Ridge regression over sites that keep their rows.

    The sites minimize, over their network,

        sum_i s_i (y_i - x_i w - b)^2 + alpha |w|^2

    over w and the intercept b, with the sum over the rows of all sites. The coefficients are those
    of scikit-learn's `Ridge` on the pooled rows.

    Parameters
    ----------
    alpha : float, default=1.0
        The weight of the penalty, at least 0.
    fit_intercept : bool, default=True
        Whether there is an intercept b. It is not penalized.
    max_iter : int, default=10000
        The most steps of `gs.Newton`, or of `gs.LBFGS` for more than 1,000 coefficients.
    tol : float, default=1e-9
        The norm of the gradient at the end, relative to that at the start, in columns of standard
        deviation 1.
    graph : gs.Graph or network, optional
        The network of the sites, one agent for each. By default it is complete for up to 4 sites,
        and random with at most 4 neighbours each for more.
    n_sites : int, default=4
        The number of blocks of rows where neither `sites` nor `graph` determines it.

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
        The coefficients w.
    intercept_ : float
        The intercept b; 0 without one.
    n_iter_ : int
        The steps that were taken.
    sites_ : ndarray
        The labels of the sites, in the order of the agents.
    graph_ : gs.Graph
        The network of the sites.
    solution_ : gs.Solution
        The run, with all costs, history and residuals. Its x has the intercept, if there is one, and
        the coefficients.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : ndarray
        The names of the columns, where X has string column names.

    See Also
    --------
    DecentralizedLasso : With an l1 penalty.
    DecentralizedLogisticRegression : For classes.

    Examples
    --------
    >>> import numpy as np
    >>> from gradslide.sklearn import DecentralizedRidge
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 3))
    >>> y = X @ [1.0, -2.0, 0.5] + 3.0
    >>> sites = np.repeat(["Bonn", "Jena", "Ulm"], 20)
    >>> model = DecentralizedRidge(alpha=1e-6).fit(X, y, sites=sites)
    >>> model.coef_.round(4)
    array([ 1. , -2. ,  0.5])
    >>> round(model.intercept_, 4)
    3.0
    >>> model.sites_.tolist()
    ['Bonn', 'Jena', 'Ulm']
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        max_iter: int = 10_000,
        tol: float = 1e-9,
        graph: Graph | Network | None = None,
        n_sites: int = 4,
    ) -> None:
        super().__init__(fit_intercept=fit_intercept, max_iter=max_iter, tol=tol, graph=graph, n_sites=n_sites)
        self.alpha = alpha

    def fit(self, X: Any, y: Any, sample_weight: Any = None, sites: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d)
            The rows of all sites. Sparse rows stay sparse.
        y : array-like of shape (n,)
            The targets.
        sample_weight : array-like of shape (n,), optional
            The weights s of the rows; 1 by default.
        sites : array-like of shape (n,), optional
            The label of the site that owns each row. By default the rows are split into blocks, in
            their order.

        Returns
        -------
        self
            The fitted model.
        """
        require_number("alpha", self.alpha, "0 for plain least squares", least=0)
        return self._fit(X, y, sample_weight, sites, l1=0.0, l2=2.0 * self.alpha, factor=2.0)


class DecentralizedLasso(_LeastSquaresModel):
    """Lasso and elastic net over sites that keep their rows.

    The sites minimize, over their network,

        1/(2 S) sum_i s_i (y_i - x_i w - b)^2 + alpha (l1_ratio |w|_1 + (1 - l1_ratio)/2 |w|^2)

    over w and the intercept b, with the sum over the rows of all sites and S the sum of their
    weights s (n without weights). With l1_ratio = 1 the coefficients are those of scikit-learn's
    `Lasso` on the pooled rows, otherwise those of `ElasticNet`.

    Parameters
    ----------
    alpha : float, default=1.0
        The weight of the penalty, at least 0.
    l1_ratio : float, default=1.0
        The share of the l1 norm in the penalty, between 0 and 1.
    fit_intercept : bool, default=True
        Whether there is an intercept b. It is not penalized.
    max_iter : int, default=10000
        The most steps of `gs.Newton`, or of `gs.LBFGS` for more than 1,000 coefficients.
    tol : float, default=1e-9
        The norm of the gradient at the end, relative to that at the start, in columns of standard
        deviation 1.
    graph : gs.Graph or network, optional
        The network of the sites, one agent for each. By default it is complete for up to 4 sites,
        and random with at most 4 neighbours each for more.
    n_sites : int, default=4
        The number of blocks of rows where neither `sites` nor `graph` determines it.

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
        The coefficients w.
    intercept_ : float
        The intercept b; 0 without one.
    n_iter_ : int
        The steps that were taken.
    sites_ : ndarray
        The labels of the sites, in the order of the agents.
    graph_ : gs.Graph
        The network of the sites.
    solution_ : gs.Solution
        The run, with all costs, history and residuals. Its x has the intercept, if there is one, and
        the coefficients.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : ndarray
        The names of the columns, where X has string column names.

    See Also
    --------
    DecentralizedRidge : With a squared l2 penalty.
    DecentralizedLogisticRegression : For classes.

    Examples
    --------
    >>> import numpy as np
    >>> from gradslide.sklearn import DecentralizedLasso
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 4))
    >>> y = X @ [1.0, 0.0, -2.0, 0.0] + 0.01 * rng.normal(size=60)
    >>> model = DecentralizedLasso(alpha=0.1, n_sites=3).fit(X, y)
    >>> np.flatnonzero(model.coef_).tolist()
    [0, 2]
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        l1_ratio: float = 1.0,
        fit_intercept: bool = True,
        max_iter: int = 10_000,
        tol: float = 1e-9,
        graph: Graph | Network | None = None,
        n_sites: int = 4,
    ) -> None:
        super().__init__(fit_intercept=fit_intercept, max_iter=max_iter, tol=tol, graph=graph, n_sites=n_sites)
        self.alpha = alpha
        self.l1_ratio = l1_ratio

    def fit(self, X: Any, y: Any, sample_weight: Any = None, sites: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d)
            The rows of all sites. Sparse rows stay sparse.
        y : array-like of shape (n,)
            The targets.
        sample_weight : array-like of shape (n,), optional
            The weights s of the rows; 1 by default.
        sites : array-like of shape (n,), optional
            The label of the site that owns each row. By default the rows are split into blocks, in
            their order.

        Returns
        -------
        self
            The fitted model.
        """
        require_number("alpha", self.alpha, "0 for plain least squares", least=0)
        require_number("l1_ratio", self.l1_ratio, "1 for the lasso", least=0, most=1)
        l1, l2 = self.alpha * self.l1_ratio, self.alpha * (1 - self.l1_ratio)
        return self._fit(X, y, sample_weight, sites, l1=l1, l2=l2, factor=None)


class DecentralizedLogisticRegression(ClassifierMixin, DecentralizedLinearModel):  # type: ignore[misc]
    """Logistic regression, binary or multinomial, over sites that keep their rows.

    The sites minimize, over their network,

        C sum_i s_i loss(W x_i + b, y_i) + penalty(W)

    over W and the intercept b, with the sum over the rows of all sites. The loss is
    log(1 + exp(-y (w x + b))), y in {-1, 1}, for two classes, and the cross-entropy of the softmax
    for more. The coefficients are those of scikit-learn's `LogisticRegression` on the pooled rows.

    Parameters
    ----------
    penalty : {"l2", "l1", "elasticnet", None}, default="l2"
        |W|^2/2; |W|_1; l1_ratio |W|_1 + (1 - l1_ratio)/2 |W|^2; or nothing, then C does not matter.
    C : float, default=1.0
        The weight of the loss, above 0. Infinity means no penalty.
    l1_ratio : float, optional
        The share of the l1 norm, between 0 and 1, for `penalty="elasticnet"` alone.
    fit_intercept : bool, default=True
        Whether there is an intercept b. It is not penalized.
    class_weight : dict or "balanced", optional
        Weights of classes, by which those of their rows are multiplied; 1 for classes that the dict
        does not have. "balanced": inversely proportional to the total weight of each class at all
        sites.
    max_iter : int, default=10000
        The most steps of `gs.Newton`, or of `gs.LBFGS` for more than 1,000 coefficients.
    tol : float, default=1e-9
        The norm of the gradient at the end, relative to that at the start, in columns of standard
        deviation 1.
    graph : gs.Graph or network, optional
        The network of the sites, one agent for each. By default it is complete for up to 4 sites,
        and random with at most 4 neighbours each for more.
    n_sites : int, default=4
        The number of blocks of rows where neither `sites` nor `graph` determines it.

    Attributes
    ----------
    classes_ : ndarray
        The labels of the classes, sorted.
    coef_ : ndarray of shape (1, d) or (classes, d)
        The coefficients W; one row for two classes.
    intercept_ : ndarray of shape (1,) or (classes,)
        The intercept b; zeros without one.
    n_iter_ : int
        The steps that were taken.
    sites_ : ndarray
        The labels of the sites, in the order of the agents.
    graph_ : gs.Graph
        The network of the sites.
    solution_ : gs.Solution
        The run, with all costs, history and residuals. Its x has the intercept, if there is one, and
        the coefficients.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : ndarray
        The names of the columns, where X has string column names.

    See Also
    --------
    DecentralizedRidge, DecentralizedLasso : For numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from gradslide.sklearn import DecentralizedLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 2))
    >>> y = np.where(X[:, 0] + 0.1 * rng.normal(size=60) > 0, "ill", "well")
    >>> sites = np.repeat(["Bonn", "Jena", "Ulm"], 20)
    >>> model = DecentralizedLogisticRegression().fit(X, y, sites=sites)
    >>> model.classes_.tolist(), model.score(X, y) > 0.9
    (['ill', 'well'], True)
    """

    def __init__(
        self,
        penalty: str | None = "l2",
        *,
        C: float = 1.0,
        l1_ratio: float | None = None,
        fit_intercept: bool = True,
        class_weight: Any = None,
        max_iter: int = 10_000,
        tol: float = 1e-9,
        graph: Graph | Network | None = None,
        n_sites: int = 4,
    ) -> None:
        super().__init__(fit_intercept=fit_intercept, max_iter=max_iter, tol=tol, graph=graph, n_sites=n_sites)
        self.penalty = penalty
        self.C = C
        self.l1_ratio = l1_ratio
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None, sites: Any = None) -> Self:
        """Fit the model. A site need not have rows of every class.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d)
            The rows of all sites. Sparse rows stay sparse.
        y : array-like of shape (n,)
            The labels, of any kind.
        sample_weight : array-like of shape (n,), optional
            The weights s of the rows; 1 by default.
        sites : array-like of shape (n,), optional
            The label of the site that owns each row. By default the rows are split into blocks, in
            their order.

        Returns
        -------
        self
            The fitted model.
        """
        C, l1, l2 = self._strengths()
        X, y = self._read(X, y)
        check_classification_targets(y)
        classes, numbers = np.unique(y, return_inverse=True)
        self._check_limits()
        weight = checked_weight(sample_weight, len(y))
        present = np.unique(numbers[weight > 0])
        rule = "a classifier needs rows of at least 2 classes, of a weight that is not 0"
        require(len(present) > 1, rule, f"one class, {classes[present[0]]!r}", "look at y and sample_weight")
        self.classes_ = classes
        located, sums = self._located(len(y), sites)
        weight = weight * self._class_weights(numbers, weight, located, sums)[numbers]
        given = X, numbers, weight, located, sums
        fit = self._fitted("logistic", *given, classes=len(classes), lasso=l1 / C, ridge=l2 / C)
        found = fit.coefficients
        if len(classes) > 2 and len(found) < len(classes):
            # Without a penalty the first class is the reference; adding one number to all of them changes nothing.
            found = np.vstack([np.zeros(found.shape[1]), found])
            found = found - found.mean(axis=0)
        self.coef_, self.intercept_ = found[:, 1:], found[:, 0]
        return self

    def decision_function(self, X: Any) -> Array:
        """Compute the scores X coef_^t + intercept_.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d)
            The rows.

        Returns
        -------
        ndarray of shape (n,) or (n, classes)
            One score per row for two classes, positive for the second; else one per class.
        """
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        """Predict the most probable class of each row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d)
            The rows.

        Returns
        -------
        ndarray of shape (n,)
            The labels.
        """
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    def predict_proba(self, X: Any) -> Array:
        """Compute the probability of each class.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d)
            The rows.

        Returns
        -------
        ndarray of shape (n, classes)
            The probabilities, in the order of `classes_`.
        """
        scores = self.decision_function(X)
        return np.stack([expit(-scores), expit(scores)], axis=1) if scores.ndim == 1 else softmax(scores, axis=1)

    def predict_log_proba(self, X: Any) -> Array:
        """Compute the logarithm of the probability of each class.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d)
            The rows.

        Returns
        -------
        ndarray of shape (n, classes)
            The logarithms, in the order of `classes_`.
        """
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.stack([log_expit(-scores), log_expit(scores)], axis=1)
        return log_softmax(scores, axis=1)

    def _strengths(self) -> tuple[float, float, float]:
        """C, and the weights of |W|_1 and |W|^2/2."""
        if self.penalty not in ("l1", "l2", "elasticnet", None):
            raise unknown_name("penalty", self.penalty, ("l1", "l2", "elasticnet"))
        if self.C != math.inf:
            require_number("C", self.C, "the inverse of how much is penalised", above=0)
        if self.penalty == "elasticnet":
            require_number("l1_ratio", self.l1_ratio, 'penalty="elasticnet" needs one', least=0, most=1)
        elif self.l1_ratio is not None:
            rule = 'l1_ratio is for penalty="elasticnet"'
            raise InputError(
                rule, f"l1_ratio={self.l1_ratio!r} with {self.penalty!r}", "leave it out, or change penalty"
            )
        if self.penalty is None or self.C == math.inf:
            return 1.0, 0.0, 0.0
        share = {"l1": 1.0, "l2": 0.0}.get(self.penalty, self.l1_ratio)
        return float(self.C), float(share or 0.0), 1.0 - float(share or 0.0)

    def _class_weights(self, numbers: Array, weight: Array, sites: Sites, sums: SiteSums) -> Array:
        """Of each class."""
        count = len(self.classes_)
        if self.class_weight is None:
            return np.ones(count)
        if self.class_weight != "balanced":
            return np.asarray(compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_))
        own = [np.bincount(numbers[rows], weights=weight[rows], minlength=count) for rows in sites.rows]
        totals = sums([{"weights": each} for each in own])["weights"]
        return np.sum(totals) / (count * np.where(totals > 0, totals, 1.0))


def checked_weight(sample_weight: Any, n: int) -> Array:
    """One weight for each row, 1 by default."""
    if sample_weight is None:
        return np.ones(n)
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.ndim == 0:
        weight = np.full(n, float(weight))
    rule = f"sample_weight must be a number for each row, {n} in all"
    require(weight.shape == (n,), rule, f"shape {weight.shape}", "give one per row")
    is_fine = bool(np.all(np.isfinite(weight) & (weight >= 0)))
    require(is_fine, "sample_weight must be finite and not negative", "others", "drop rows by weight 0")
    require(bool(np.any(weight > 0)), "sample_weight must not be zero for all rows", "zeros", "give some rows weight")
    return weight
