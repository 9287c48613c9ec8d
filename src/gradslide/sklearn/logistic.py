"""Logistic regression, binary and multinomial."""

import math
from typing import Any, Self

import numpy as np
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from gradslide._support.errors import InputError, require, require_number, unknown_name
from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.network import Network
from gradslide.sklearn.base import DecentralizedLinearModel, checked_weight
from gradslide.sklearn.fitting import Task, fit
from gradslide.sklearn.standardised import AgreedSums, Columns


class DecentralizedLogisticRegression(ClassifierMixin, DecentralizedLinearModel):  # type: ignore[misc]
    """min over W, b of C sum over rows of s loss(W x + b, y) + penalty(W), as scikit-learn's LogisticRegression.

    The loss is log(1 + exp(-y (w x + b))), y in {-1, 1}, for two classes, and the cross-entropy of the softmax for
    more. The sites keep their rows, and solve it over their network. penalty: "l2", |W|^2/2; "l1", |W|_1; "elasticnet",
    l1_ratio |W|_1 + (1 - l1_ratio)/2 |W|^2; None, without C. C > 0; infinity is no penalty either. l1_ratio: for
    "elasticnet" alone. fit_intercept: whether there is a b, which is not penalised. class_weight: s is multiplied by
    the weight of the row's class: {class: weight}, 1 for those left out; "balanced": inverse to how much of each class
    there is at all sites. max_iter: outer iterations of `gs.AutoPDS`. tol: the gradient at the end against its size at
    W = 0, about, in variables of which each has curvature 1. graph: a `gs.Graph` or network with as many agents as
    there are sites; None: complete up to 4 sites, beyond random with at most 4 neighbours each. n_sites: how many
    blocks of rows there are where neither `sites` nor `graph` says so.

    After fit: classes_, coef_ (1 or classes, d), intercept_, n_iter_, n_features_in_, feature_names_in_; sites_ (labels
    in the order of the agents), graph_; solution_, the run in the scaled variables, whose objective is the one above;
    setup_costs_, what agreeing on means and sizes of the columns took, which solution_.costs does not hold.
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
        """X: (n, d), dense or sparse. y: (n,), labels of any kind. sample_weight: s of each row. sites: the label of
        each row's owner; None: blocks of rows in their order. A site need not have rows of every class."""
        C, l1, l2 = self._strengths()
        X, y = self._read(X, y)
        check_classification_targets(y)
        classes, numbers = np.unique(y, return_inverse=True)
        enough, weight = self._enough(), checked_weight(sample_weight, len(y))
        present = np.unique(numbers[weight > 0])
        rule = "a classifier needs rows of at least 2 classes, of a weight that is not 0"
        require(len(present) > 1, rule, f"one class, {classes[present[0]]!r}", "look at y and sample_weight")
        self.classes_ = classes
        located, sums = self._opened(len(y), sites)
        weight = C * weight * self._class_weights(numbers, weight, sums)[numbers]
        is_binary = len(classes) == 2
        columns = Columns.agreed(sums, X, numbers, weight, bool(self.fit_intercept))
        task = Task(
            classes=len(classes),
            curvature=(len(classes) - 1) / len(classes) ** 2,
            l1=l1,
            l2=l2,
            free_intercept=bool(self.fit_intercept),
            size=math.sqrt(columns.weight),
        )
        found = fit(task, columns, X, numbers, weight, located, enough)
        self.coef_, self.intercept_ = found.coef, found.intercept
        if not self.fit_intercept:
            self.intercept_ = np.zeros(task.outputs)
        elif not is_binary:
            # Adding one number to all of them changes nothing.
            self.intercept_ = self.intercept_ - self.intercept_.mean()
        if not is_binary and l1 == 0:
            self.coef_ = self.coef_ - self.coef_.mean(axis=0)
        self._keep(found, located, sums)
        return self

    def decision_function(self, X: Any) -> Array:
        """X coef_^t + intercept_: (n,) for two classes, positive for the second; else (n, classes)."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        """The most probable class of each row."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, (n, classes)."""
        scores = self.decision_function(X)
        return np.stack([expit(-scores), expit(scores)], axis=1) if scores.ndim == 1 else softmax(scores, axis=1)

    def predict_log_proba(self, X: Any) -> Array:
        """The logarithm of each class's probability, (n, classes)."""
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

    def _class_weights(self, numbers: Array, weight: Array, sums: AgreedSums) -> Array:
        """Of each class."""
        count = len(self.classes_)
        if self.class_weight is None:
            return np.ones(count)
        if self.class_weight != "balanced":
            return np.asarray(compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_))
        (totals,) = sums(lambda rows: (np.bincount(numbers[rows], weights=weight[rows], minlength=count),))
        return np.sum(totals) / (count * np.where(totals > 0, totals, 1.0))
