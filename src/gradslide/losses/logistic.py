"""Logistic regression."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradslide._types import Array
from gradslide.losses.inputs import signs
from gradslide.losses.linear_model import LinearModel, Reduction


class Logistic(LinearModel):
    """ft_i(x) = sum over rows of w log(1 + exp(-y a x)), y in {-1, 1}.

    labels: n labels in {-1, 1} or {0, 1}, 0 meaning -1. The other parameters are those of LinearModel:
    features (n, p), agents or splits, sample_weight, reduction.
    """

    def __init__(
        self,
        features: Any,
        labels: Any,
        *,
        agents: int | None = None,
        splits: Sequence[Any] | None = None,
        sample_weight: Any = None,
        reduction: Reduction = "sum",
    ) -> None:
        super().__init__(
            features, labels, agents=agents, splits=splits, sample_weight=sample_weight, reduction=reduction
        )

    def read_targets(self, targets: Any, n: int, dtype: Any) -> Array:
        return signs(targets, n).astype(dtype)

    def curvature(self, norm: int) -> float:
        return 0.25

    def row_values(self, scores: Array, targets: Array) -> Array:
        margins = targets * scores
        return np.log1p(np.exp(-np.abs(margins))) + np.maximum(-margins, 0)

    def row_slopes(self, scores: Array, targets: Array) -> Array:
        margins = targets * scores
        small = np.exp(-np.abs(margins))  # at most 1, so nothing overflows
        return -targets * np.where(margins > 0, small, 1) / (1 + small)
