"""Support vector machines with a smooth loss."""

from collections.abc import Sequence
from typing import Any

from gradslide._support.types import Array
from gradslide.losses.compiled import HINGE
from gradslide.losses.inputs import positive, signs
from gradslide.losses.linear_model import LinearModel, Reduction


class SmoothedHinge(LinearModel):
    """ft_i(x) = sum over rows of w h(z), z = y a x, y in {-1, 1}.

    h(z) = 0 for z >= 1, (1 - z)^2 / (2 gamma) for 1 - gamma < z < 1, 1 - z - gamma/2 below.
    labels: n labels in {-1, 1} or {0, 1}, 0 meaning -1. gamma: width of the smooth piece. The other
    parameters are those of LinearModel: features (n, p), agents or splits, sample_weight, reduction.
    """

    kernel = HINGE

    def __init__(
        self,
        features: Any,
        labels: Any,
        gamma: float = 1.0,
        *,
        agents: int | None = None,
        splits: Sequence[Any] | None = None,
        sample_weight: Any = None,
        reduction: Reduction = "sum",
    ) -> None:
        self.gamma = positive("gamma", gamma)
        super().__init__(
            features, labels, agents=agents, splits=splits, sample_weight=sample_weight, reduction=reduction
        )

    def read_targets(self, targets: Any, n: int, dtype: Any) -> Array:
        return signs(targets, n).astype(dtype)

    def curvature(self, norm: int) -> float:
        return 1 / self.gamma

    def row_values(self, scores: Array, targets: Array) -> Array:
        shortfall = (1 - targets * scores).clip(0, None)
        clipped = shortfall.clip(None, self.gamma)
        return clipped * (shortfall - 0.5 * clipped) / self.gamma

    def row_slopes(self, scores: Array, targets: Array) -> Array:
        return -targets * (1 - targets * scores).clip(0, self.gamma) / self.gamma

    def settings(self) -> float:
        return self.gamma
