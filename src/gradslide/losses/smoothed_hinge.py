"""Support vector machines with a smooth loss."""

from collections.abc import Sequence

from gradslide._support.arrays import doubles
from gradslide._support.types import Array, ArrayLike, DType, SparseInput
from gradslide.losses.compiled import HINGE
from gradslide.losses.inputs import positive, signs
from gradslide.losses.linear_model import LinearModel, Reduction


class SmoothedHinge(LinearModel):
    """Smoothed hinge loss: ft_i(x) = sum over rows of w h(y a x), y in {-1, 1}.

    h(z) = 0 for z >= 1, (1 - z)^2 / (2 gamma) for 1 - gamma < z < 1, and 1 - z - gamma/2 below.

    Parameters
    ----------
    features : array_like or scipy.sparse matrix, shape (n, p)
        Rows a; see `LinearModel`.
    labels : array_like, shape (n,)
        Labels y in {-1, 1} or {0, 1}, 0 meaning -1.
    gamma : float
        Width of the quadratic piece.
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

    kernel = HINGE

    def __init__(
        self,
        features: ArrayLike | SparseInput,
        labels: ArrayLike,
        gamma: float = 1.0,
        *,
        agents: int | None = None,
        splits: Sequence[ArrayLike] | None = None,
        sample_weight: ArrayLike | None = None,
        reduction: Reduction = "sum",
        allow_overlap: bool = False,
    ) -> None:
        self.gamma = positive("gamma", gamma)
        super().__init__(
            features,
            labels,
            agents=agents,
            splits=splits,
            sample_weight=sample_weight,
            reduction=reduction,
            allow_overlap=allow_overlap,
        )

    def read_targets(self, targets: ArrayLike, n: int, dtype: DType) -> Array:
        return signs(targets, n).astype(dtype)

    def curvature(self, norm: int) -> float:
        return 1 / self.gamma

    def row_values(self, scores: Array, targets: Array) -> Array:
        shortfall = (1 - targets * scores).clip(0, None)
        clipped = shortfall.clip(None, self.gamma)
        return clipped * (shortfall - 0.5 * clipped) / self.gamma

    def row_slopes(self, scores: Array, targets: Array) -> Array:
        return -targets * (1 - targets * scores).clip(0, self.gamma) / self.gamma

    def row_curvatures(self, scores: Array, targets: Array) -> Array:
        shortfall = 1 - targets * scores
        return doubles((shortfall >= 0) & (shortfall <= self.gamma)) / self.gamma

    def settings(self) -> float:
        return self.gamma
