"""Robust regression."""

from collections.abc import Sequence

from gradslide._support.arrays import doubles
from gradslide._support.types import Array, ArrayLike, DType, SparseInput
from gradslide.losses.compiled import RESIDUAL
from gradslide.losses.inputs import per_row, positive
from gradslide.losses.linear_model import LinearModel, Reduction


class Huber(LinearModel):
    """Huber's loss: ft_i(x) = sum over rows of w h(a x - b).

    h(r) = r^2/2 for |r| <= delta, and delta (|r| - delta/2) beyond.

    Parameters
    ----------
    features : array_like or scipy.sparse matrix, shape (n, p)
        Rows a; see `LinearModel`.
    targets : array_like, shape (n,)
        Targets b.
    delta : float
        Residual where h becomes linear.
    agents : int, optional
        Number of contiguous blocks of rows, as equal as possible; 1 by default.
    splits : sequence, optional
        Instead of `agents`: the row numbers, or a mask, of each agent.
    sample_weight : array_like, shape (n,), optional
        Nonnegative weights w of the rows, 1 by default.
    reduction : {"sum", "mean"}
        "mean" for the weighted mean over each agent's rows.
    allow_overlap : bool
        Whether `splits` may give a row to several agents, or twice to one; it counts each time.
    """

    kernel = RESIDUAL

    def __init__(
        self,
        features: ArrayLike | SparseInput,
        targets: ArrayLike,
        delta: float = 1.0,
        *,
        agents: int | None = None,
        splits: Sequence[ArrayLike] | None = None,
        sample_weight: ArrayLike | None = None,
        reduction: Reduction = "sum",
        allow_overlap: bool = False,
    ) -> None:
        self.delta = positive("delta", delta)
        super().__init__(
            features,
            targets,
            agents=agents,
            splits=splits,
            sample_weight=sample_weight,
            reduction=reduction,
            allow_overlap=allow_overlap,
        )

    def read_targets(self, targets: ArrayLike, n: int, dtype: DType) -> Array:
        return per_row("targets", targets, n).astype(dtype)

    def curvature(self, norm: int) -> float:
        return 1.0

    def row_values(self, scores: Array, targets: Array) -> Array:
        residuals = abs(scores - targets)
        clipped = residuals.clip(None, self.delta)  # one formula for both pieces, which cannot overflow
        return clipped * (residuals - 0.5 * clipped)

    def row_slopes(self, scores: Array, targets: Array) -> Array:
        return (scores - targets).clip(-self.delta, self.delta)

    def row_curvatures(self, scores: Array, targets: Array) -> Array:
        return doubles(abs(scores - targets) <= self.delta)

    def settings(self) -> float:
        return self.delta
