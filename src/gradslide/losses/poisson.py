"""Poisson regression."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from gradslide._support.arrays import doubles, to_numpy
from gradslide._support.errors import InputError, require
from gradslide._support.types import Array, DType, SparseInput
from gradslide.losses.base import Evaluation, Support
from gradslide.losses.inputs import feature_rows, is_sparse, numeric_array, per_row
from gradslide.losses.linear_model import LinearModel, Reduction, Rows
from gradslide.losses.rows import chunks


class Poisson(LinearModel):
    """Poisson regression: ft_i(x) = sum over rows of w (e exp(a x) - y a x + c), y counts.

    Counts y have the mean e exp(a x), e being the exposure: the time, the area or the number of
    people that a count is for. The constant c = y log(y/e) - y makes the smallest value of a row 0:
    ft_i is half the deviance.

    Parameters
    ----------
    features : array_like or scipy.sparse matrix, shape (n, p)
        Rows a; see `LinearModel`. A column of ones gives an intercept.
    counts : array_like, shape (n,)
        Counts y >= 0; they need not be integers.
    exposure : float or array_like, shape (n,), optional
        Positive exposures e: one for all rows, or one each; 1 by default.
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

    Notes
    -----
    The gradient is Lipschitz on bounded sets only. `gs.Newton()` needs no constant. Methods that
    need one get that of the domain, where the largest score of each row is finite; see
    `smoothness_over`. It grows like the exponential of that score, so keep the domain small.

    Where exponentials overflow, values are infinite.

    A row with exposure e is one with count y/e, exposure 1 and weight w e. The samples of a stream
    have exposure 1.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.Poisson(np.ones((4, 1)), [3, 0, 2, 1], exposure=[1.0, 1.0, 2.0, 2.0], agents=2)
    >>> loss.gradient(np.zeros((2, 1))).tolist()
    [[-1.0], [1.0]]
    >>> solution = gs.solve(gs.Problem(loss), gs.Graph.path(2), gs.Newton())
    >>> float(np.exp(solution.mean[0]).round(6))  # 6 events in 6 units of exposure
    1.0
    """

    def __init__(
        self,
        features: npt.ArrayLike | SparseInput,
        counts: npt.ArrayLike,
        exposure: npt.ArrayLike | None = None,
        *,
        agents: int | None = None,
        splits: Sequence[npt.ArrayLike] | None = None,
        sample_weight: npt.ArrayLike | None = None,
        reduction: Reduction = "sum",
        allow_overlap: bool = False,
    ) -> None:
        factors = None
        if exposure is not None:
            n = feature_rows(features).shape[0]
            factors = _exposures(exposure, n)
            counts = _counts(counts, n) / factors
        super().__init__(
            features,
            counts,
            agents=agents,
            splits=splits,
            sample_weight=sample_weight,
            reduction=reduction,
            allow_overlap=allow_overlap,
            factors=factors,
        )

    def read_targets(self, targets: npt.ArrayLike, n: int, dtype: DType) -> Array:
        return _counts(targets, n).astype(dtype)

    def curvature(self, norm: int) -> float:
        raise _no_constant("all of R^d")

    def smoothness_over(self, support: Support, norm: int = 2) -> Array:
        """Return the Lipschitz constant of each agent's gradient over a set X_i.

        It is the norm of sum over rows of w e exp(s) a^T a, with s the largest score a x over X_i.

        Parameters
        ----------
        support : callable
            Support function of the sets, as for `Loss.smoothness_over`.
        norm : {2, 1}
            As for `smoothness`.

        Returns
        -------
        ndarray, shape (m,)
            One upper bound per agent, in float64.

        Raises
        ------
        InputError
            If scores are not bounded above, or so large that exponentials overflow.
        """
        blocks = self._blocks.on_host()
        owners = np.repeat(np.arange(self.m), blocks.sizes)
        largest = np.empty(blocks.n)
        for rows in chunks(blocks.n, blocks.p):
            own = blocks.features[rows]
            dense = own.toarray() if is_sparse(own) else own
            largest[rows] = support(owners[rows], dense.astype(np.float64))
        most = float(largest.max())
        if most == np.inf:
            raise _no_constant("a set X on which scores a x are not bounded")
        weights = to_numpy(self._weights_or_ones()).astype(np.float64) * np.exp(largest - most)
        norms = blocks.column_norms(weights) if norm == 1 else blocks.spectral_norms(weights)
        with _overflow_allowed():
            constants = norms * np.exp(most)
        if not np.isfinite(constants).all():
            raise _no_constant(f"scores a x up to {most:.3g}, whose exponential overflows")
        return constants

    def row_values(self, scores: Array, targets: Array) -> Array:
        xp, rates = array_namespace(scores), doubles(targets)
        positive = rates > 0
        # Half the deviance from the logarithm of mean/rate: it loses no digits where both are close.
        gaps = scores - xp.log(xp.where(positive, rates, 1.0))
        return xp.where(positive, rates * (xp.expm1(gaps) - gaps), xp.exp(scores))

    def row_slopes(self, scores: Array, targets: Array) -> Array:
        return array_namespace(scores).exp(scores) - targets

    def row_curvatures(self, scores: Array, targets: Array) -> Array:
        return array_namespace(scores).exp(scores)

    def value_in_doubles(self, x: Array) -> Array | None:
        with _overflow_allowed():
            return super().value_in_doubles(x)

    def evaluation(self, x: Array) -> Evaluation:
        with _overflow_allowed():
            return super().evaluation(x)

    def hessian(self, x: Array) -> Array:
        with _overflow_allowed():
            return super().hessian(x)

    def derivatives(self, x: Array) -> tuple[Array, Array, Array]:
        with _overflow_allowed():
            return super().derivatives(x)

    def _evaluate(
        self, x: Array, rows: Rows | None = None, *, value: bool = False, gradient: bool = False
    ) -> tuple[Array, Array]:
        with _overflow_allowed():
            return super()._evaluate(x, rows, value=value, gradient=gradient)

    def _row_values(self, scores: Array, targets: Array | None = None, weights: Array | None = None) -> Array:
        with _overflow_allowed():
            return super()._row_values(scores, targets, weights)

    def _row_values_and_slopes(self, scores: Array) -> tuple[Array, Array]:
        with _overflow_allowed():
            return super()._row_values_and_slopes(scores)


def _overflow_allowed() -> np.errstate:
    """Far from the optimum exponentials overflow: values are infinite there, other derivatives infinite or NaN."""
    return np.errstate(over="ignore", invalid="ignore")


def _counts(counts: npt.ArrayLike, n: int) -> Array:
    found = per_row("counts", counts, n)
    rule, remedy = "counts must not be negative", "remove those rows, or use LeastSquares for targets of any sign"
    require(not (found < 0).any(), rule, found.min(initial=0), remedy)
    return found


def _exposures(exposure: npt.ArrayLike, n: int) -> Array:
    found = numeric_array("exposure", exposure)
    found = np.full(n, found[()]) if found.ndim == 0 else per_row("exposure", exposure, n)
    rule, remedy = "exposure must be positive", "remove rows without exposure: they say nothing"
    require(bool((found > 0).all()), rule, found.min(initial=0), remedy)
    return found.astype(np.float64)


def _no_constant(where: str) -> InputError:
    return InputError(
        "this needs a Lipschitz constant of the gradient, which Poisson has on bounded sets only",
        where,
        "use gs.Newton(), or a small bounded domain such as gs.domains.L2Ball(5.0)",
    )
