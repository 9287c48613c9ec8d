"""Linear least squares."""

from collections.abc import Sequence

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.types import Array, ArrayLike, DType, Sparse, SparseInput
from gradslide.losses.compiled import RESIDUAL
from gradslide.losses.inputs import per_row
from gradslide.losses.linear_model import LinearModel, Reduction


class LeastSquares(LinearModel):
    """Least squares: ft_i(x) = 1/2 sum over rows of w (a x - b)^2.

    Parameters
    ----------
    features : array_like or scipy.sparse matrix, shape (n, p)
        Rows a; see `LinearModel`.
    targets : array_like, shape (n,)
        Targets b.
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

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares(np.eye(4), [1.0, 2.0, 3.0, 4.0], agents=2)
    >>> loss.value(np.zeros((2, 4))).tolist()
    [2.5, 12.5]
    """

    kernel = RESIDUAL

    def __init__(
        self,
        features: ArrayLike | SparseInput,
        targets: ArrayLike,
        *,
        agents: int | None = None,
        splits: Sequence[ArrayLike] | None = None,
        sample_weight: ArrayLike | None = None,
        reduction: Reduction = "sum",
        allow_overlap: bool = False,
    ) -> None:
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
        return 0.5 * (scores - targets) ** 2

    def row_slopes(self, scores: Array, targets: Array) -> Array:
        return scores - targets

    def quadratic_part(self) -> list[Array | Sparse] | None:
        return list(self.hessian(np.zeros((self.m, self.d), dtype=self.dtype))) if self._home is None else None

    def row_curvatures(self, scores: Array, targets: Array) -> Array:
        return array_namespace(scores).ones_like(scores)
