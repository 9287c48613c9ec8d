"""What the estimators share: input, sites, and how a fit ends."""

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from gradslide._support.errors import require, require_number
from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.network import Network
from gradslide.results.status import Status
from gradslide.sklearn.fitting import Fit
from gradslide.sklearn.polished import Enough
from gradslide.sklearn.sites import Sites, sites_of
from gradslide.sklearn.standardised import AgreedSums

try:
    from sklearn.utils.validation import validate_data
except ImportError:  # before 1.6

    def validate_data(estimator: Any, *args: Any, **options: Any) -> Any:
        return estimator._validate_data(*args, **options)


class DecentralizedLinearModel(BaseEstimator):  # type: ignore[misc]
    """Rows at sites, one linear model for all."""

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

    def _opened(self, n: int, sites: Any) -> tuple[Sites, AgreedSums]:
        located = sites_of(n, sites, self.n_sites, self.graph)
        return located, AgreedSums(located.network, located.rows)

    def _enough(self) -> Enough:
        require_number("max_iter", self.max_iter, "for example max_iter=10000", least=1, whole=True)
        require_number("tol", self.tol, "for example tol=1e-9", above=0)
        return Enough(self.tol, self.max_iter)

    def _keep(self, fit: Fit, sites: Sites, sums: AgreedSums) -> None:
        solution = fit.solution
        self.solution_ = solution
        self.sites_ = sites.labels
        self.graph_ = sites.network.graph
        self.setup_costs_ = sums.costs
        self.n_iter_ = solution.history[-1].iteration
        if solution.status is not Status.CONVERGED:
            warnings.warn(
                f"the sites stopped before they had the optimum: {solution.status.value}; raise max_iter or tol, or "
                "penalise more",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _scores(self, X: Any) -> Array:
        """X coef^t + intercept."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return np.asarray(X @ self.coef_.T) + self.intercept_


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
