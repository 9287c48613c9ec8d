"""Logistic regression."""

from collections.abc import Sequence
from typing import Any

from array_api_compat import array_namespace

from gradslide._support.types import Array
from gradslide.losses.compiled import LOGISTIC
from gradslide.losses.inputs import is_sparse, signs
from gradslide.losses.linear_model import LinearModel, Reduction
from gradslide.losses.rows import RowBlocks


class Logistic(LinearModel):
    """ft_i(x) = sum over rows of w log(1 + exp(-y a x)), y in {-1, 1}.

    labels: n labels in {-1, 1} or {0, 1}, 0 meaning -1. The other parameters are those of LinearModel:
    features (n, p), agents or splits, sample_weight, reduction.
    """

    kernel = LOGISTIC
    _signed: Array | None  # a copy of the rows that `steps` makes

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
        xp = array_namespace(scores)
        margins = targets * scores
        return xp.log1p(xp.exp(-abs(margins))) + (-margins).clip(0, None)

    def row_slopes(self, scores: Array, targets: Array) -> Array:
        xp = array_namespace(scores)
        margins = targets * scores
        small = xp.exp(-abs(margins))  # at most 1, so nothing overflows
        return -targets * xp.where(margins > 0, small, 1) / (1 + small)

    @property
    def has_steps(self) -> bool:
        return self._home is None and not is_sparse(self._blocks.features)

    def steps(self, start: Array, anchor: Array, pulls: Array, scales: Array, shares: Array) -> tuple[Array, Array]:
        from gradslide.kernels.logistic_steps import logistic_steps

        if self._signed is None:
            self._signed = self._blocks.feature_major(self._targets)
        start, anchor = self._checked(start), self._checked(anchor)
        weights = self._weights_or_ones()
        return logistic_steps(self._signed, self._blocks.ends, weights, start, anchor, pulls, scales, shares)

    def _set_rows(self, blocks: RowBlocks, targets: Array, weights: Array | None) -> None:
        super()._set_rows(blocks, targets, weights)
        self._signed = None
