"""Losses of rows as phi(s + t) - phi(s) - phi'(s) t, where the scores s of an earlier point are kept.

The value of a loss is rounded to some 1e-16 of itself, so that differences say nothing about points closer than some
1e-8 to the optimum. Here nothing cancels: every row has a part that is not negative, and has all its digits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit, softmax

from gradslide._support.types import Array
from gradslide.losses.least_squares import LeastSquares
from gradslide.losses.linear_model import LinearModel
from gradslide.losses.logistic import Logistic
from gradslide.losses.softmax import Softmax

# Where five terms of the series are better than the difference.
_SMALL = 1e-2


@dataclass(frozen=True)
class Rows:
    """features: (n, p). targets: (n,). weight: (n,). splits: the row numbers of each site."""

    features: Any
    targets: Array
    weight: Array
    splits: Sequence[Array]

    def loss(self, classes: int | None) -> LinearModel:
        """Of so many classes, whose numbers the targets are; None: least squares."""
        given: dict[str, Any] = {"splits": self.splits, "sample_weight": self.weight}
        if classes is None:
            return LeastSquares(self.features, self.targets, **given)
        if classes == 2:
            return Logistic(self.features, self.targets, **given)
        return Softmax(self.features, self.targets, classes, **given)

    def bend(self, classes: int | None, scores: Array) -> LinearModel:
        """How far the loss bends away from its tangent at the scores, (n, 1) or (n, classes), of what is added to
        them."""
        if classes is None:
            return _Squares(self, scores)
        return _Entropy(self, scores) if classes == 2 else _Entropies(self, scores)


class _Bend(LinearModel):
    """In the place of targets it keeps scores: what the targets were does not matter any more."""

    bound: ClassVar[float]

    def __init__(self, rows: Rows, scores: Array) -> None:
        self.outputs = scores.shape[1]
        super().__init__(
            rows.features, scores, agents=None, splits=rows.splits, sample_weight=rows.weight, reduction="sum"
        )

    def read_targets(self, targets: Any, n: int, dtype: Any) -> Array:
        return np.asarray(targets, dtype=dtype).reshape(n, self.outputs)

    def curvature(self, norm: int) -> float:
        return self.bound


class _Squares(_Bend):
    bound = 1.0

    def row_values(self, scores: Array, targets: Array) -> Array:
        return 0.5 * scores**2

    def row_slopes(self, scores: Array, targets: Array) -> Array:
        return scores


class _Entropy(_Bend):
    """log(p + q e^t) less its tangent q t, with q the probability of the second class at the scores, p that of the
    first: with t' = t - q t and -q t, whose mean is 0, it is log(1 + q h(t') + p h(-q t)), h(t) = e^t - 1 - t."""

    bound = 0.25

    def row_values(self, scores: Array, targets: Array) -> Array:
        q, p = expit(targets[:, 0]), expit(-targets[:, 0])
        return np.log1p(q * _bend_of_exp(p * scores) + p * _bend_of_exp(-q * scores))

    def row_slopes(self, scores: Array, targets: Array) -> Array:
        return expit(targets[:, 0] + scores) - expit(targets[:, 0])


class _Entropies(_Bend):
    """The same of more classes: log sum_k p_k e^(t_k) less sum_k p_k t_k."""

    bound = 0.5

    def row_values(self, scores: Array, targets: Array) -> Array:
        p = softmax(targets, axis=1)
        centred = scores - np.sum(p * scores, axis=1, keepdims=True)
        return np.log1p(np.sum(p * _bend_of_exp(centred), axis=1))

    def row_slopes(self, scores: Array, targets: Array) -> Array:
        return softmax(targets + scores, axis=1) - softmax(targets, axis=1)


def _bend_of_exp(t: Array) -> Array:
    """e^t - 1 - t to all digits, and inf for steps that were far too long."""
    series = t**2 / 2 * (1 + t / 3 * (1 + t / 4 * (1 + t / 5 * (1 + t / 6))))
    with np.errstate(over="ignore"):
        return np.where(np.abs(t) < _SMALL, series, np.expm1(t) - t)
