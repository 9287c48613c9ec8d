"""Logistic regression."""

from collections.abc import Sequence

from gradslide._support.arrays import at_least, namespace
from gradslide._support.types import Array, ArrayLike, DType, SparseInput
from gradslide.losses.compiled import LOGISTIC
from gradslide.losses.inputs import is_sparse, signs
from gradslide.losses.linear_model import LinearModel, Reduction
from gradslide.losses.rows import RowBlocks


class Logistic(LinearModel):
    """Logistic regression: ft_i(x) = sum over rows of w log(1 + exp(-y a x)), y in {-1, 1}.

    Parameters
    ----------
    features : array_like or scipy.sparse matrix, shape (n, p)
        Rows a; see `LinearModel`.
    labels : array_like, shape (n,)
        Labels y in {-1, 1} or {0, 1}, 0 meaning -1.
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
    >>> features = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-1.0, 0.0]])
    >>> loss = gs.losses.Logistic(features, [1, 1, -1, -1], agents=2)
    >>> loss
    Logistic(m=2, d=2, float64)
    >>> loss.value(np.zeros((2, 2))).round(4).tolist()
    [1.3863, 1.3863]
    """

    kernel = LOGISTIC
    _signed: Array | None  # a copy of the rows that `steps` makes

    def __init__(
        self,
        features: ArrayLike | SparseInput,
        labels: ArrayLike,
        *,
        agents: int | None = None,
        splits: Sequence[ArrayLike] | None = None,
        sample_weight: ArrayLike | None = None,
        reduction: Reduction = "sum",
        allow_overlap: bool = False,
    ) -> None:
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
        return 0.25

    def row_values(self, scores: Array, targets: Array) -> Array:
        margins = targets * scores
        return _values(margins, namespace(scores).exp(-abs(margins)))

    def row_slopes(self, scores: Array, targets: Array) -> Array:
        margins = targets * scores
        return _slopes(margins, namespace(scores).exp(-abs(margins)), targets)

    def row_values_and_slopes(self, scores: Array, targets: Array) -> tuple[Array, Array]:
        margins = targets * scores
        small = namespace(scores).exp(-abs(margins))
        return _values(margins, small), _slopes(margins, small, targets)

    def row_curvatures(self, scores: Array, targets: Array) -> Array:
        small = namespace(scores).exp(-abs(scores))  # at most 1, so nothing overflows
        return small / (1 + small) ** 2

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


def _values(margins: Array, small: Array) -> Array:
    """log(1 + exp(-margin)); small: exp(-|margin|), at most 1, so nothing overflows."""
    return namespace(margins).log1p(small) + at_least(-margins, 0.0)


def _slopes(margins: Array, small: Array, targets: Array) -> Array:
    return -targets * namespace(margins).where(margins > 0, small, 1) / (1 + small)
