"""Losses that see x_i only through the rows of agent i's features."""

import abc
import copy
from collections.abc import Hashable, Sequence
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp

from gradslide._types import Array
from gradslide.errors import InputError, kind_of, require, unknown_name
from gradslide.losses.base import Loss, checked_sampling
from gradslide.losses.draws import with_replacement
from gradslide.losses.inputs import feature_rows, is_sparse, per_row, stack_rows
from gradslide.losses.partition import partition
from gradslide.losses.rows import RowBlocks

Reduction = Literal["sum", "mean"]


class LinearModel(Loss):
    """ft_i(x) = sum over agent i's rows a of w_row phi(a x, target), with phi convex and smooth.

    features: (n, p), dense or scipy sparse; kept without a copy where their rows are in order, so do not change
    them afterwards. agents: number of contiguous blocks of rows, as equal as
    possible. splits: instead of agents, each agent's row numbers or mask. sample_weight: w >= 0 per row, 1 by
    default. reduction: "sum", or "mean" for the weighted mean over each agent's rows.
    """

    outputs = 1  # K: scores per row

    def __init__(
        self,
        features: Any,
        targets: Any,
        *,
        agents: int | None,
        splits: Sequence[Any] | None,
        sample_weight: Any,
        reduction: Reduction,
    ) -> None:
        if reduction not in ("sum", "mean"):
            raise unknown_name("reduction", str(reduction), ("sum", "mean"))
        features = feature_rows(features)
        n, p = features.shape
        targets = self.read_targets(targets, n, features.dtype)
        selected, sizes = partition(n, agents, splits)
        super().__init__(len(sizes), self.outputs * p, features.dtype)
        weights = None
        if sample_weight is not None:
            weights = per_row("sample_weight", sample_weight, n)
            require(
                not (weights < 0).any(),
                "sample_weight must not be negative",
                weights.min(),
                "drop rows by weight 0",
            )
            weights = weights[selected].astype(self.dtype)
        blocks = RowBlocks(features[selected], sizes)
        if reduction == "mean":
            weights = _mean_weights(blocks, weights, self.dtype)
        self._set_rows(blocks, targets[selected], weights)

    @property
    def rows_per_agent(self) -> Array:
        """Number of rows n_i of each agent, shape (m,)."""
        return self._blocks.sizes

    @abc.abstractmethod
    def read_targets(self, targets: Any, n: int, dtype: Any) -> Array:
        """What belongs to n rows of features (labels, numbers), checked, in the form that phi takes."""

    @abc.abstractmethod
    def curvature(self, norm: int) -> float:
        """Bound on the entries (norm 1) or the spectral norm (norm 2) of phi's Hessian in the scores."""

    @abc.abstractmethod
    def row_values(self, scores: Array, targets: Array) -> Array:
        """phi of each row, shape (n,); scores have shape (n,), or (n, K) where outputs = K > 1."""

    @abc.abstractmethod
    def row_slopes(self, scores: Array, targets: Array) -> Array:
        """Derivative of phi in the scores, of their shape."""

    def value(self, x: Array) -> Array:
        return self._sums(self._scores(self._blocks, self._checked(x)))

    def gradient(self, x: Array) -> Array:
        scores = self._scores(self._blocks, self._checked(x))
        return self._pulled(self._blocks, scores, self._targets, self._weights)

    def value_and_gradient(self, x: Array) -> tuple[Array, Array]:
        scores = self._scores(self._blocks, self._checked(x))
        return self._sums(scores), self._pulled(self._blocks, scores, self._targets, self._weights)

    def gradient_of_rows(self, x: Array, rows: Sequence[Array], counts: Sequence[Array] | None = None) -> Array:
        x = self._checked(x)
        chosen, sizes = self._blocks.row_numbers(rows)
        weights = np.ones(sizes.sum()) if counts is None else np.concatenate(counts)
        scales = self.rows_per_agent / np.add.reduceat(weights, np.cumsum(sizes) - sizes)
        weights = (weights * np.repeat(scales, sizes)).astype(self.dtype)
        if self._weights is not None:
            weights *= self._weights[chosen]
        return self._gradient_on(RowBlocks(self._blocks.features[chosen], sizes), self._targets[chosen], weights, x)

    def sample_gradient(self, x: Array, batch: int, streams: Sequence[np.random.Generator]) -> Array:
        checked_sampling(self.m, batch, streams)
        sizes = self.rows_per_agent.tolist()
        draws = [with_replacement(rng, n_i, batch) for rng, n_i in zip(streams, sizes, strict=True)]
        return self.gradient_of_rows(x, [draw.rows for draw in draws], [draw.counts for draw in draws])

    def read_samples(self, agent: int, batch: Any) -> tuple[Array, Array]:
        if not (isinstance(batch, tuple | list) and len(batch) == 2):
            raise InputError(
                "a batch must be a pair of features and labels (or targets)",
                kind_of(batch),
                "yield for example (features, labels), of shapes (b, p) and (b,)",
            )
        features, targets = batch
        if np.ndim(features) == 1 and np.ndim(targets) == 0:
            features, targets = np.asarray(features)[None, :], [targets]
        features = feature_rows(features).astype(self.dtype, copy=False)
        n, p = features.shape
        require(
            p == self._blocks.p,
            f"the features of a batch must have {self._blocks.p} columns, as the loss has",
            p,
            "yield one row per sample",
        )
        if is_sparse(features) != is_sparse(self._blocks.features):
            features = features.toarray() if is_sparse(features) else sp.csr_array(features)
        return features, self.read_targets(targets, n, self.dtype)

    def gradient_of_samples(self, x: Array, batches: Sequence[tuple[Array, Array]]) -> Array:
        x = self._checked(x)
        features, targets = ([batch[part] for batch in batches] for part in (0, 1))
        sizes = np.array([len(own) for own in targets])
        # On the scale of ft_i: as if the samples were drawn from rows with the agent's total weight.
        scales = self._blocks.sums(self._weights_or_ones().astype(np.float64)) / sizes
        weights = np.repeat(scales, sizes).astype(self.dtype)
        return self._gradient_on(RowBlocks(stack_rows(features), sizes), np.concatenate(targets), weights, x)

    def merge_key(self) -> Hashable:
        kind = "sparse" if is_sparse(self._blocks.features) else "dense"
        return type(self), self._settings(), self.d, self.dtype, kind

    def merged(self, others: Sequence[Self]) -> Self:
        parts = [self, *others]
        stacked = stack_rows([part._blocks.features for part in parts])
        weights = None
        if any(part._weights is not None for part in parts):
            weights = np.concatenate([part._weights_or_ones() for part in parts])
        blocks = RowBlocks(stacked, np.concatenate([part.rows_per_agent for part in parts]))
        return self._with_rows(blocks, np.concatenate([part._targets for part in parts]), weights)

    def _settings(self) -> Hashable:
        """The parameters of phi; two losses of a class are alike if these are equal."""
        return ()

    def _smoothness(self, norm: int) -> Array:
        weights = self._weights_or_ones().astype(np.float64)
        norms = self._blocks.column_norms(weights) if norm == 1 else self._blocks.spectral_norms(weights)
        return self.curvature(norm) * norms

    def _take(self, agents: Array) -> Self:
        rows = self._blocks.rows_of(agents)
        blocks = RowBlocks(self._blocks.features[rows], self.rows_per_agent[agents])
        return self._with_rows(blocks, self._targets[rows], None if self._weights is None else self._weights[rows])

    def _set_rows(self, blocks: RowBlocks, targets: Array, weights: Array | None) -> None:
        self.m = blocks.m
        self._blocks = blocks
        self._targets = targets
        self._weights = weights
        self._constants = {}

    def _with_rows(self, blocks: RowBlocks, targets: Array, weights: Array | None) -> Self:
        other = copy.copy(self)
        other._set_rows(blocks, targets, weights)
        return other

    def _weights_or_ones(self) -> Array:
        return np.ones(self._blocks.n, dtype=self.dtype) if self._weights is None else self._weights

    def _scores(self, blocks: RowBlocks, x: Array) -> Array:
        scores = blocks.apply(x.reshape(self.m, self.outputs, blocks.p).swapaxes(1, 2))
        return scores[:, 0] if self.outputs == 1 else scores

    def _sums(self, scores: Array) -> Array:
        values = self.row_values(scores, self._targets)
        return self._blocks.sums(values if self._weights is None else values * self._weights)

    def _gradient_on(self, blocks: RowBlocks, targets: Array, weights: Array, x: Array) -> Array:
        return self._pulled(blocks, self._scores(blocks, x), targets, weights)

    def _pulled(self, blocks: RowBlocks, scores: Array, targets: Array, weights: Array | None) -> Array:
        slopes = self.row_slopes(scores, targets).reshape(blocks.n, self.outputs)
        if weights is not None:
            slopes *= weights[:, None]
        return blocks.pull(slopes).swapaxes(1, 2).reshape(self.m, self.d)


def _mean_weights(blocks: RowBlocks, weights: Array | None, dtype: Any) -> Array:
    if weights is None:
        return np.repeat(1 / blocks.sizes, blocks.sizes).astype(dtype)
    totals = blocks.sums(weights)
    require(
        bool((totals > 0).all()),
        'reduction="mean" needs rows of positive weight at every agent',
        f"total weight 0 at agent {int(totals.argmin())}",
        'give that agent weight or use reduction="sum"',
    )
    return weights / np.repeat(totals, blocks.sizes)
