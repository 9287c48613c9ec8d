"""Losses that depend on x_i only through the rows of agent i's features."""

import abc
import copy
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import array_api_compat as compat
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from array_api_compat import array_namespace

from gradslide._support.arrays import as_dtype, doubles, dtype_of, lengths, to_numpy
from gradslide._support.errors import InputError, kind_of, require, unknown_name
from gradslide._support.types import Array, DType, SparseInput
from gradslide.losses.base import Evaluation, Extrapolation, Loss, checked_sampling
from gradslide.losses.compiled import RowsPass, can_be_compiled, pays
from gradslide.losses.devices import Features, has_doubles, home_of, moved, rows_at
from gradslide.losses.inputs import feature_rows, is_sparse, per_row, stack_rows
from gradslide.losses.partition import flattened, numbers_of_rows, partition, with_replacement
from gradslide.losses.rows import RowBlocks, chunks

Reduction = Literal["sum", "mean"]
# Rows of features by agent, their targets and their weights.
Rows = tuple[RowBlocks, Array, Array | None]
# Rounding in single precision changes a sum of terms by at most this many eps times the root of the sum of their
# squares: their errors do not all have the same sign.
_ROUNDINGS = 8
# Entries of all Hessians together up to which each agent's is computed.
_MOST_HESSIANS = 2**24


class LinearModel(Loss):
    """Losses ft_i(x) = sum over agent i's rows a of w phi(a x, target), with phi convex and smooth.

    Base class of `Logistic`, `LeastSquares`, `Huber`, `SmoothedHinge`, `Softmax` and `Poisson`. A
    subclass implements `read_targets`, `curvature`, `row_values` and `row_slopes`, and returns the
    parameters of phi in `settings`.

    Parameters
    ----------
    features : array_like or scipy.sparse matrix, shape (n, p)
        Rows a. Not copied where the rows are in order already, so do not change them afterwards. An
        array of PyTorch, CuPy or JAX stays on its device, where everything is computed then.
    targets : array_like, shape (n,)
        Labels or targets of the rows.
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
    factors : ndarray, shape (n,), optional
        Further factors of the rows, which do not count in the denominator of a mean.
    """

    outputs = 1  # K: scores per row
    kernel: ClassVar[int | None] = None  # phi's number in compiled code
    _compiled = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if {"row_values", "row_slopes"} & vars(cls).keys():
            # Neither compiled code nor inherited curvatures know another phi.
            cls.kernel = vars(cls).get("kernel")
            if "row_values_and_slopes" not in vars(cls):
                cls.row_values_and_slopes = LinearModel.row_values_and_slopes  # type: ignore[method-assign]
            if "row_curvatures" not in vars(cls):
                cls.row_curvatures = LinearModel.row_curvatures  # type: ignore[method-assign]

    def __init__(
        self,
        features: npt.ArrayLike | SparseInput,
        targets: npt.ArrayLike,
        *,
        agents: int | None,
        splits: Sequence[npt.ArrayLike] | None,
        sample_weight: npt.ArrayLike | None,
        reduction: Reduction,
        allow_overlap: bool = False,
        factors: Array | None = None,
    ) -> None:
        if reduction not in ("sum", "mean"):
            raise unknown_name("reduction", str(reduction), ("sum", "mean"))
        columns = getattr(features, "columns", None)
        self.feature_names = None if columns is None else [str(name) for name in columns]
        features = feature_rows(features)
        n, p = features.shape
        dtype = dtype_of(features)
        targets = self.read_targets(targets, n, dtype)
        selected, sizes = partition(n, agents, splits, allow_overlap)
        super().__init__(len(sizes), self.outputs * p, dtype, home_of(features))
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
        if reduction == "mean":
            weights = _mean_weights(sizes, weights, self.dtype)
        if factors is not None:
            own = factors[selected].astype(self.dtype)
            weights = own if weights is None else weights * own
        weights = None if weights is None else moved(weights, self._home)
        self._set_rows(RowBlocks(rows_at(features, selected), sizes), moved(targets[selected], self._home), weights)
        self._compiled = self._can_be_compiled and pays(self._blocks.entries)

    @property
    def rows_per_agent(self) -> Array:
        """Number of rows n_i of each agent, shape (m,)."""
        return self._blocks.sizes

    @property
    def compiled(self) -> bool:
        """Whether compiled code computes values and gradients: in one pass over the data,
        multithreaded.

        True by default for features with 2^24 stored numbers or more; `take` keeps the choice. Both
        ways agree to rounding. Set it where parts that are built separately must give the same bits
        as the whole.
        """
        return self._compiled

    @compiled.setter
    def compiled(self, choice: bool) -> None:
        require(
            not choice or self._can_be_compiled,
            "compiled code is for losses with one score per row, and data of NumPy, scipy, or dense on a GPU",
            f"{type(self).__name__} on {self.device or 'NumPy'}",
            "leave it out",
        )
        self._compiled = bool(choice)

    @property
    def _can_be_compiled(self) -> bool:
        return self.kernel is not None and can_be_compiled(self._blocks.features)

    @abc.abstractmethod
    def read_targets(self, targets: npt.ArrayLike, n: int, dtype: DType) -> Array:
        """Check the labels or targets of n rows, and convert them for phi."""

    @abc.abstractmethod
    def curvature(self, norm: int) -> float:
        """Return a bound on the entries (norm 1) or the spectral norm (norm 2) of phi's Hessian."""

    @abc.abstractmethod
    def row_values(self, scores: Array, targets: Array) -> Array:
        """Return phi of each row, shape (n,); scores have shape (n,), or (n, K) where outputs = K >
        1.
        """

    @abc.abstractmethod
    def row_slopes(self, scores: Array, targets: Array) -> Array:
        """Return the derivative of phi with respect to the scores, of their shape."""

    def row_values_and_slopes(self, scores: Array, targets: Array) -> tuple[Array, Array]:
        """Return `row_values` and `row_slopes`; a subclass may save what both have in common."""
        return self.row_values(scores, targets), self.row_slopes(scores, targets)

    def row_curvatures(self, scores: Array, targets: Array) -> Array:
        """Return the second derivative of phi with respect to the scores: (n,), or (n, K, K) where
        outputs = K > 1.
        """
        raise NotImplementedError

    def value(self, x: Array) -> Array:
        return self._evaluate(x, value=True)[0]

    def value_in_doubles(self, x: Array) -> Array | None:
        if self.dtype == np.float64 or self._home is not None:
            return super().value_in_doubles(x)
        blocks, K = self._blocks, self.outputs
        coefficients = np.asarray(x, dtype=np.float64).reshape(self.m, K, blocks.p)
        owners = np.repeat(np.arange(self.m), blocks.sizes)
        values = np.zeros(self.m)
        for rows in chunks(blocks.n, blocks.p * (K + 1)):
            features, own = blocks.features[rows].astype(np.float64), coefficients[owners[rows]]
            if is_sparse(features):
                columns = [np.asarray(features.multiply(own[:, k]).sum(axis=1)).ravel() for k in range(K)]
                scores = np.stack(columns, axis=1)
            else:
                scores = np.einsum("rp,rkp->rk", features, own)
            targets = self._targets[rows]
            targets = targets.astype(np.float64) if targets.dtype.kind == "f" else targets
            of_rows = self.row_values(scores[:, 0] if K == 1 else scores, targets)
            of_rows = of_rows if self._weights is None else of_rows * self._weights[rows].astype(np.float64)
            values += np.bincount(owners[rows], weights=of_rows, minlength=self.m)
        return values

    def gradient(self, x: Array) -> Array:
        return self._evaluate(x, gradient=True)[1]

    def value_and_gradient(self, x: Array) -> tuple[Array, Array]:
        return self._evaluate(x, value=True, gradient=True)

    @property
    def has_evaluation(self) -> bool:
        return self.dtype == np.float32

    def evaluation(self, x: Array) -> Evaluation:
        x = self._checked(x)
        if self._compiled:
            return _CompiledEvaluation(x, *self.value_and_gradient(x), self)
        scores = self._scores(x, self._blocks)
        slopes, scores = self._row_slopes(scores), doubles(scores)
        of_rows = self._row_values(scores)
        value, gradient = self._blocks.operator.sums(of_rows), self._pulled(slopes, self._blocks)
        return _RowEvaluation(x, value, gradient, self, scores, of_rows, slopes)

    @property
    def has_scores(self) -> bool:
        return self.dtype == np.float64 or self._compiled

    def scores(self, x: Array) -> Array:
        x = self._checked(x)
        return self._in_compiled_pass(x, keep=True).scores if self._compiled else self._scores(x, self._blocks)

    def value_of_scores(self, scores: Array) -> Array:
        if self._compiled:
            return self._in_compiled_pass(None, value=True, scores=scores).values
        return self._blocks.operator.sums(self._row_values(scores))

    def value_and_gradient_of_scores(self, scores: Array) -> tuple[Array, Array]:
        if self._compiled:
            found = self._in_compiled_pass(None, value=True, gradient=True, scores=scores)
            return found.values, found.gradients
        of_rows, slopes = self._row_values_and_slopes(scores)
        return self._blocks.operator.sums(of_rows), self._pulled(slopes, self._blocks)

    def extrapolation(self, x: Array, before: Array | None, theta: float) -> Extrapolation:
        if not self._compiled:
            return super().extrapolation(self._checked(x), before, theta)
        found = self._in_compiled_pass(
            self._checked(x), value=True, gradient=True, keep=True, before=before if theta else None, theta=theta
        )
        ahead = found.values if found.values_ahead is None else found.values_ahead
        return Extrapolation(found.scores, found.values, ahead, found.gradients)

    def column_squares(self) -> Array | None:
        return self._blocks.column_squares() if has_doubles(self._home) else None

    @property
    def has_hessian(self) -> bool:
        return has_doubles(self._home) and type(self).row_curvatures is not LinearModel.row_curvatures

    def hessian(self, x: Array) -> Array:
        if not self.has_hessian:
            return super().hessian(x)
        blocks = self._blocks
        return self._hessians(self._scores(self._checked(x), blocks), blocks.gram)

    def derivatives(self, x: Array) -> tuple[Array, Array, Array]:
        if not self.has_hessian:
            return super().derivatives(x)
        x, blocks = self._checked(x), self._blocks
        if self._compiled:
            found = self._in_compiled_pass(x, value=True, gradient=True, keep=True)
            values, gradients, scores = found.values, found.gradients, found.scores
        else:
            scores = self._scores(x, blocks)
            values = blocks.operator.sums(self._row_values(scores))
            gradients = self._pulled(self._row_slopes(scores), blocks)
        # On a device the sum is one product.
        is_summed = self._home is not None or self.m * self.d**2 > _MOST_HESSIANS
        return values, gradients, self._hessians(scores, blocks.total_gram if is_summed else blocks.gram)

    def _hessians(self, scores: Array, gram: Callable[[Array], Array]) -> Array:
        """Hessians from weighted Gram matrices, of which there may be one for each agent or one for all."""
        K, p = self.outputs, self._blocks.p
        curvatures = self.row_curvatures(doubles(scores), self._targets)
        if self._weights is not None:
            curvatures = curvatures * doubles(self._weights).reshape(-1, *(1,) * (curvatures.ndim - 1))
        if K == 1:
            return gram(curvatures)
        blocks = {(k, other): gram(curvatures[:, k, other]) for k in range(K) for other in range(k + 1)}
        shape, first = (len(blocks[0, 0]), K, p, K, p), blocks[0, 0]
        found = array_namespace(first).empty(shape, dtype=first.dtype, device=compat.device(first))
        for (k, other), each in blocks.items():
            found[:, k, :, other], found[:, other, :, k] = each, each.swapaxes(1, 2)
        return found.reshape(len(found), K * p, K * p)

    def gradient_of_rows(self, x: Array, rows: Sequence[Array], counts: Sequence[Array] | None = None) -> Array:
        chosen, sizes = numbers_of_rows(rows, self._blocks.starts, self.rows_per_agent)
        weights = np.ones(sizes.sum()) if counts is None else flattened(counts)
        scales = self.rows_per_agent / np.add.reduceat(weights, np.cumsum(sizes) - sizes)
        weights = moved((weights * np.repeat(scales, sizes)).astype(self.dtype), self._home)
        if self._weights is not None:
            weights = weights * rows_at(self._weights, chosen)
        blocks = RowBlocks(rows_at(self._blocks.features, chosen), sizes)
        return self._evaluate(x, (blocks, rows_at(self._targets, chosen), weights), gradient=True)[1]

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
        if _ndim(features) == 1 and _ndim(targets) == 0:
            features, targets = to_numpy(features)[None, :], [to_numpy(targets)]
        rows: Features = feature_rows(features)
        rows = rows.astype(self.dtype, copy=False) if is_sparse(rows) else as_dtype(rows, self.dtype)
        n, p = rows.shape
        require(
            p == self._blocks.p,
            f"the features of a batch must have {self._blocks.p} columns, as the loss has",
            p,
            "yield one row per sample",
        )
        if is_sparse(rows) != is_sparse(self._blocks.features):
            rows = rows.toarray() if is_sparse(rows) else sp.csr_array(to_numpy(rows))
        return moved(rows, self._home), moved(self.read_targets(targets, n, self.dtype), self._home)

    def gradient_of_samples(self, x: Array, batches: Sequence[tuple[Array, Array]]) -> Array:
        features, targets = ([batch[part] for batch in batches] for part in (0, 1))
        sizes = np.array([len(own) for own in targets])
        # On the scale of ft_i: as if the samples were drawn from rows with the agent's total weight.
        weights = moved(np.repeat(self._totals / sizes, sizes).astype(self.dtype), self._home)
        blocks = RowBlocks(stack_rows(features), sizes)
        return self._evaluate(x, (blocks, stack_rows(targets), weights), gradient=True)[1]

    def merge_key(self) -> Hashable:
        kind = "sparse" if is_sparse(self._blocks.features) else "dense"
        return type(self), self.settings(), self.d, self.dtype, kind, str(self.device)

    def merged(self, others: Sequence[Self]) -> Self:
        parts = [self, *others]
        stacked = stack_rows([part._blocks.features for part in parts])
        weights = None
        if any(part._weights is not None for part in parts):
            weights = stack_rows([part._weights_or_ones() for part in parts])
        blocks = RowBlocks(stacked, np.concatenate([part.rows_per_agent for part in parts]))
        whole = self._with_rows(blocks, stack_rows([part._targets for part in parts]), weights)
        whole._compiled = whole._can_be_compiled and (any(part.compiled for part in parts) or pays(blocks.entries))
        return whole

    def settings(self) -> Hashable:
        """Return the parameters of phi; two losses of one class can be merged if these are equal."""
        return ()

    def compute_smoothness(self, norm: int) -> Array:
        weights, blocks = self._weights_or_ones(), self._blocks
        if not has_doubles(self._home):
            weights, blocks = to_numpy(weights), blocks.on_host()
        weights = doubles(weights)
        norms = blocks.column_norms(weights) if norm == 1 else blocks.spectral_norms(weights)
        return self.curvature(norm) * to_numpy(norms)

    def take_agents(self, agents: Array) -> Self:
        rows = self._blocks.rows_of(agents)
        blocks = RowBlocks(rows_at(self._blocks.features, rows), self.rows_per_agent[agents])
        weights = None if self._weights is None else rows_at(self._weights, rows)
        return self._with_rows(blocks, rows_at(self._targets, rows), weights)

    def _moved(self, home: Array) -> Self:
        weights = None if self._weights is None else moved(self._weights, home)
        blocks = RowBlocks(moved(self._blocks.features, home), self.rows_per_agent)
        other = self._with_rows(blocks, moved(self._targets, home), weights)
        other._home = home
        other._compiled = other._can_be_compiled and pays(blocks.entries)
        return other

    def _set_rows(self, blocks: RowBlocks, targets: Array, weights: Array | None) -> None:
        self.m = blocks.m
        self._blocks = blocks
        self._targets = targets
        self._weights = weights
        self._constants = {}
        self.__dict__.pop("_totals", None)

    def _with_rows(self, blocks: RowBlocks, targets: Array, weights: Array | None) -> Self:
        other = copy.copy(self)
        other._set_rows(blocks, targets, weights)
        return other

    def _weights_or_ones(self) -> Array:
        if self._weights is not None:
            return self._weights
        return moved(np.ones(self._blocks.n, dtype=self.dtype), self._home)

    @cached_property
    def _totals(self) -> Array:
        """Total weight of each agent's rows, a NumPy array."""
        return np.add.reduceat(to_numpy(self._weights_or_ones()).astype(np.float64), self._blocks.starts)

    def _evaluate(
        self, x: Array, rows: Rows | None = None, *, value: bool = False, gradient: bool = False
    ) -> tuple[Array, Array]:
        """Values (m,) and gradients (m, d) over the rows, by default all; x itself for what is not asked for."""
        x = self._checked(x)
        if rows is None and self._compiled:
            found = self._in_compiled_pass(x, value=value, gradient=gradient)
            return found.values, found.gradients
        blocks, *own = rows or (self._blocks, self._targets, self._weights)
        scores = self._scores(x, blocks)
        values = gradients = x
        if value:
            values = blocks.operator.sums(self._row_values(scores, *own))
        if gradient:
            gradients = self._pulled(self._row_slopes(scores, *own), blocks)
        return values, gradients

    def _in_compiled_pass(self, x: Array | None, **wanted: Any) -> RowsPass:
        """What compiled code computes in one pass over all rows."""
        settings = self.settings()
        width = settings if isinstance(settings, float) else math.inf
        return self._blocks.compiled.evaluate(self.kernel, width, self._targets, self._weights, x, **wanted)

    def _scores(self, x: Array, blocks: RowBlocks) -> Array:
        """The scores of all rows, (n,), or (n, K) where outputs = K > 1."""
        scores = blocks.operator.apply(x.reshape(self.m, self.outputs, blocks.p).swapaxes(1, 2))
        return scores[:, 0] if self.outputs == 1 else scores

    def _row_values(self, scores: Array, targets: Array | None = None, weights: Array | None = None) -> Array:
        """w phi of each row, (n,), in double precision; by default of all rows."""
        if targets is None:
            targets, weights = self._targets, self._weights
        of_rows = self.row_values(doubles(scores), targets)
        return of_rows if weights is None else of_rows * weights

    def _row_values_and_slopes(self, scores: Array) -> tuple[Array, Array]:
        """The same of all rows, and the derivatives, (n, K)."""
        of_rows, slopes = self.row_values_and_slopes(scores, self._targets)
        slopes = slopes.reshape(len(scores), self.outputs)
        if self._weights is None:
            return of_rows, slopes
        return of_rows * self._weights, slopes * self._weights[:, None]

    def _row_slopes(self, scores: Array, targets: Array | None = None, weights: Array | None = None) -> Array:
        """The derivatives of w phi, (n, K); by default of all rows."""
        if targets is None:
            targets, weights = self._targets, self._weights
        slopes = self.row_slopes(scores, targets).reshape(len(scores), self.outputs)
        if weights is not None:
            slopes *= weights[:, None]
        return slopes

    def _pulled(self, slopes: Array, blocks: RowBlocks) -> Array:
        """The gradients, (m, d)."""
        return blocks.operator.pull(slopes).swapaxes(1, 2).reshape(self.m, self.d)


@dataclass(frozen=True, eq=False)
class _RowEvaluation(Evaluation):
    """Changes of values row by row, from the scores of the difference of two points.

    scores, of_rows, slopes: of all rows, as `LinearModel` computes them; scores in double precision.
    """

    loss: LinearModel
    scores: Array
    of_rows: Array
    slopes: Array

    def rounding(self) -> Array:
        # Of the scores, by 1/2 eps |a| |x| each.
        return float(np.finfo(self.loss.dtype).eps) / 2 * lengths(self.x) * self._size

    def change(self, x: Array) -> tuple[Array, Array]:
        loss, d = self.loss, self.loss._checked(x) - self.x
        after = loss._row_values(self.scores + loss._scores(d, loss._blocks))
        # Rounding of the scores of d, and of the gradient.
        error = _ROUNDINGS * float(np.finfo(loss.dtype).eps) * lengths(d) * self._size
        return loss._blocks.operator.sums(after - self.of_rows), error

    @cached_property
    def _size(self) -> Array:
        """The root of the sum over rows of |slope|^2 |a|^2, (m,): what rounding errors are proportional to."""
        terms = abs(self.slopes).sum(axis=1) * self.loss._blocks.row_lengths
        return self.loss._blocks.operator.sums(doubles(terms) ** 2) ** 0.5


@dataclass(frozen=True, eq=False)
class _CompiledEvaluation(Evaluation):
    """Changes of values as differences: compiled code computes scores in double precision, too."""

    loss: LinearModel

    def change(self, x: Array) -> tuple[Array, Array]:
        eps = _ROUNDINGS * float(np.finfo(self.loss.dtype).eps)
        d = self.loss._checked(x) - self.x
        return self.loss.value(x) - self.value, eps * lengths(self.gradient) * lengths(d)


def _ndim(values: Any) -> int:
    return int(values.ndim) if hasattr(values, "ndim") else np.ndim(values)


def _mean_weights(sizes: Array, weights: Array | None, dtype: DType) -> Array:
    if weights is None:
        return np.repeat(1 / sizes, sizes).astype(dtype)
    totals = np.add.reduceat(weights, np.cumsum(sizes) - sizes)
    require(
        bool((totals > 0).all()),
        'reduction="mean" needs rows of positive weight at every agent',
        f"total weight 0 at agent {int(totals.argmin())}",
        'give that agent weight or use reduction="sum"',
    )
    return weights / np.repeat(totals, sizes)
