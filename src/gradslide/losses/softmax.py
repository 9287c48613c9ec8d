"""Multinomial logistic regression."""

from collections.abc import Sequence

import array_api_compat as compat
from array_api_compat import array_namespace

from gradslide._support.types import Array, ArrayLike, DType, SparseInput
from gradslide.losses.inputs import class_numbers, feature_rows
from gradslide.losses.linear_model import LinearModel, Reduction


class Softmax(LinearModel):
    """Cross-entropy of K classes: ft_i(x) = sum over rows of w (log sum_k exp(X_k a) - X_label a).

    x_i is the coefficient matrix X of shape (K, p), flattened by rows, so d = K p; recover it by
    `x[i].reshape(K, p)`.

    Parameters
    ----------
    features : array_like or scipy.sparse matrix, shape (n, p)
        Rows a; see `LinearModel`.
    labels : array_like of int, shape (n,)
        Class of each row, 0, ..., K-1.
    classes : int, optional
        K; by default the largest label + 1. Give it where the data may lack the last class.
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

    def __init__(
        self,
        features: ArrayLike | SparseInput,
        labels: ArrayLike,
        classes: int | None = None,
        *,
        agents: int | None = None,
        splits: Sequence[ArrayLike] | None = None,
        sample_weight: ArrayLike | None = None,
        reduction: Reduction = "sum",
        allow_overlap: bool = False,
    ) -> None:
        rows = feature_rows(features)
        self.outputs = class_numbers(labels, rows.shape[0], classes)[1]
        super().__init__(
            rows,
            labels,
            agents=agents,
            splits=splits,
            sample_weight=sample_weight,
            reduction=reduction,
            allow_overlap=allow_overlap,
        )

    def read_targets(self, targets: ArrayLike, n: int, dtype: DType) -> Array:
        return class_numbers(targets, n, self.outputs)[0]

    @property
    def classes(self) -> int:
        """Number of classes K."""
        return self.outputs

    def curvature(self, norm: int) -> float:
        return 0.25 if norm == 1 else 0.5  # diag(q) - q q^T, over all probability vectors q

    def row_values(self, scores: Array, targets: Array) -> Array:
        xp = array_namespace(scores)
        shifted = scores - xp.max(scores, axis=1, keepdims=True)
        own = xp.where(self._is_class(targets), shifted, 0)
        return xp.log(xp.sum(xp.exp(shifted), axis=1)) - xp.sum(own, axis=1)

    def row_slopes(self, scores: Array, targets: Array) -> Array:
        xp = array_namespace(scores)
        slopes = xp.exp(scores - xp.max(scores, axis=1, keepdims=True))
        slopes = slopes / xp.sum(slopes, axis=1, keepdims=True)
        return xp.where(self._is_class(targets), slopes - 1, slopes)

    def row_curvatures(self, scores: Array, targets: Array) -> Array:
        xp = array_namespace(scores)
        q = xp.exp(scores - xp.max(scores, axis=1, keepdims=True))
        q /= xp.sum(q, axis=1, keepdims=True)
        unit = xp.eye(self.outputs, dtype=q.dtype, device=compat.device(q))
        return q[:, :, None] * (unit - q[:, None, :])

    def _is_class(self, targets: Array) -> Array:
        """Whether each row belongs to each class, (n, K)."""
        classes = array_namespace(targets).arange(self.outputs, device=compat.device(targets))
        return targets[:, None] == classes

    def settings(self) -> int:
        return self.outputs
