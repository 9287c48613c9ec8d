"""Linear least squares."""

from collections.abc import Sequence
from typing import Any

from gradslide._support.types import Array
from gradslide.losses.compiled import RESIDUAL
from gradslide.losses.inputs import per_row
from gradslide.losses.linear_model import LinearModel, Reduction


class LeastSquares(LinearModel):
    """ft_i(x) = 1/2 sum over rows of w (a x - b)^2.

    targets: the n numbers b. The other parameters are those of LinearModel: features (n, p), agents or
    splits, sample_weight, reduction.
    """

    kernel = RESIDUAL

    def __init__(
        self,
        features: Any,
        targets: Any,
        *,
        agents: int | None = None,
        splits: Sequence[Any] | None = None,
        sample_weight: Any = None,
        reduction: Reduction = "sum",
    ) -> None:
        super().__init__(
            features, targets, agents=agents, splits=splits, sample_weight=sample_weight, reduction=reduction
        )

    def read_targets(self, targets: Any, n: int, dtype: Any) -> Array:
        return per_row("targets", targets, n).astype(dtype)

    def curvature(self, norm: int) -> float:
        return 1.0

    def row_values(self, scores: Array, targets: Array) -> Array:
        return 0.5 * (scores - targets) ** 2

    def row_slopes(self, scores: Array, targets: Array) -> Array:
        return scores - targets
