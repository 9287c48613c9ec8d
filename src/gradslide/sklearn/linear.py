"""Ridge, lasso and elastic net."""

import math
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from gradslide._support.errors import require_number
from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.network import Network
from gradslide.sklearn.base import DecentralizedLinearModel, checked_weight
from gradslide.sklearn.fitting import Task, fit
from gradslide.sklearn.standardised import Columns


class _LeastSquaresModel(RegressorMixin, DecentralizedLinearModel):  # type: ignore[misc]
    def predict(self, X: Any) -> Array:
        """X coef_ + intercept_."""
        return self._scores(X)

    def _fit(self, X: Any, y: Any, sample_weight: Any, sites: Any, l1: float, l2: float, factor: float | None) -> Self:
        """factor/2 sum of squares + l1 |w|_1 + l2/2 |w|^2; None: the mean in the place of the sum."""
        X, y = self._read(X, y, y_numeric=True)
        y = np.asarray(y, dtype=np.float64)
        enough, weight = self._enough(), checked_weight(sample_weight, len(y))
        located, sums = self._opened(len(y), sites)
        columns = Columns.agreed(sums, X, y, weight, bool(self.fit_intercept))
        factor = 1 / columns.weight if factor is None else factor
        task = Task(
            classes=None,
            curvature=factor,
            l1=l1,
            l2=l2,
            free_intercept=False,
            size=math.sqrt(factor * columns.target_squares),
        )
        found = fit(task, columns, X, y - columns.target_mean, factor * weight, located, enough)
        self.coef_ = found.coef[0]
        self.intercept_ = columns.target_mean + float(found.intercept[0]) if self.fit_intercept else 0.0
        self._keep(found, located, sums)
        return self


class DecentralizedRidge(_LeastSquaresModel):
    """min over w, b of sum over rows of s (y - x w - b)^2 + alpha |w|^2, as scikit-learn's Ridge.

    The sites keep their rows, and solve it over their network. alpha >= 0. fit_intercept: whether there is a b, which
    is not penalised. max_iter: outer iterations of `gs.AutoPDS`. tol: the gradient at the end against its size at
    w = 0, about, in variables of which each has curvature 1. graph: a `gs.Graph` or network with as many agents as
    there are sites; None: complete up to 4 sites, beyond random with at most 4 neighbours each. n_sites: how many
    blocks of rows there are where neither `sites` nor `graph` says so.

    After fit: coef_ (d,), intercept_, n_iter_, n_features_in_, feature_names_in_; sites_ (labels in the order of the
    agents), graph_; solution_, the run in the scaled variables, whose objective is the one above; setup_costs_, what
    agreeing on means and sizes of the columns took, which solution_.costs does not hold.
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
        """X: (n, d), dense or sparse. y: (n,). sample_weight: s of each row. sites: the label of each row's owner;
        None: blocks of rows in their order."""
        require_number("alpha", self.alpha, "0 for plain least squares", least=0)
        return self._fit(X, y, sample_weight, sites, l1=0.0, l2=2.0 * self.alpha, factor=2.0)


class DecentralizedLasso(_LeastSquaresModel):
    """min over w, b of 1/(2 S) sum over rows of s (y - x w - b)^2 + alpha (l1_ratio |w|_1 + (1 - l1_ratio)/2 |w|^2).

    S is the sum of the weights s, n without weights. With l1_ratio = 1 this is scikit-learn's Lasso, with less its
    ElasticNet. The other parameters, and what there is after fit, are those of `DecentralizedRidge`.
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
        """X: (n, d), dense or sparse. y: (n,). sample_weight: s of each row. sites: the label of each row's owner;
        None: blocks of rows in their order."""
        require_number("alpha", self.alpha, "0 for plain least squares", least=0)
        require_number("l1_ratio", self.l1_ratio, "1 for the lasso", least=0, most=1)
        l1, l2 = self.alpha * self.l1_ratio, self.alpha * (1 - self.l1_ratio)
        return self._fit(X, y, sample_weight, sites, l1=l1, l2=l2, factor=None)
