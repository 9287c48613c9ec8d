"""Quadratic functions."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NoReturn, Self

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from gradslide._support.arrays import as_dtype, copied, dot, doubles, dtype_of, lengths, to_numpy
from gradslide._support.errors import InputError, require
from gradslide._support.types import Array
from gradslide.losses.base import Evaluation, Loss
from gradslide.losses.devices import has_doubles, home_of, moved, rows_at
from gradslide.losses.inputs import float_array, stack_rows
from gradslide.losses.rows import chunks


class Quadratic(Loss):
    """Quadratic functions ft_i(x) = 1/2 x^T Q_i x + c_i^T x.

    Parameters
    ----------
    Q : array_like, shape (d, d) or (m, d, d)
        Symmetric positive semidefinite matrix of one agent, or of each.
    c : array_like, shape (d,) or (m, d)
        Linear coefficients.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.Quadratic(np.diag([2.0, 4.0]), [1.0, 0.0])
    >>> loss.gradient(np.ones((1, 2))).tolist()
    [[3.0, 4.0]]
    >>> loss.smoothness().tolist()
    [4.0]
    """

    def __init__(self, Q: npt.ArrayLike, c: npt.ArrayLike) -> None:
        matrices = float_array("Q", Q)
        home = home_of(matrices)
        vectors: Array = moved(float_array("c", c), home)
        require(
            matrices.ndim in (2, 3) and matrices.shape[-1] == matrices.shape[-2] and matrices.size > 0,
            "Q must have shape (d, d) or (m, d, d)",
            f"shape {tuple(matrices.shape)}",
            "give one square matrix per agent",
        )
        require(
            vectors.shape == matrices.shape[:-1],
            f"c must have shape {tuple(matrices.shape[:-1])} to fit Q",
            f"shape {tuple(vectors.shape)}",
            "reshape it",
        )
        m, d = (1, *vectors.shape)[-2:]
        super().__init__(m, d, dtype_of(matrices), home)
        self._Q = matrices.reshape(m, d, d)
        self._c = as_dtype(vectors.reshape(m, d), self.dtype)
        self._largest = _largest_eigenvalues(to_numpy(self._Q))

    def value(self, x: Array) -> Array:
        return self.value_and_gradient(x)[0]

    def value_in_doubles(self, x: Array) -> Array | None:
        if self.dtype == np.float64 or self._home is not None:
            return super().value_in_doubles(x)
        x, values = np.asarray(x, dtype=np.float64), np.empty(self.m)
        for chunk in chunks(self.m, self.d * self.d):
            slopes = np.einsum("mij,mj->mi", self._Q[chunk].astype(np.float64), x[chunk]) / 2 + self._c[chunk]
            values[chunk] = np.einsum("mi,mi->m", slopes, x[chunk])
        return values

    def gradient(self, x: Array) -> Array:
        return self._product(self._checked(x)) + self._c

    def value_and_gradient(self, x: Array) -> tuple[Array, Array]:
        x = self._checked(x)
        product = self._product(x)
        return dot(x, 0.5 * doubles(product) + self._c), product + self._c

    @property
    def has_evaluation(self) -> bool:
        return self.dtype == np.float32

    def evaluation(self, x: Array) -> Evaluation:
        x = self._checked(x)
        return _QuadraticEvaluation(x, *self.value_and_gradient(x), self)

    @property
    def has_hessian(self) -> bool:
        return has_doubles(self._home)

    def hessian(self, x: Array) -> Array:
        return copied(doubles(self._Q)) if self.has_hessian else super().hessian(x)

    def sample_gradient(self, x: Array, batch: int, streams: Sequence[np.random.Generator]) -> NoReturn:
        raise InputError(
            "a sampled gradient needs a loss with rows",
            "Quadratic",
            "use its exact gradient, LeastSquares, or Custom with sample_gradient",
        )

    def merge_key(self) -> Hashable:
        return type(self), self.d, self.dtype, str(self.device)

    def merged(self, others: Sequence[Self]) -> Self:
        parts = [self, *others]
        fields = ([part._Q for part in parts], [part._c for part in parts], [part._largest for part in parts])
        return self._of(*(stack_rows(field) for field in fields))

    def _product(self, x: Array) -> Array:
        return array_namespace(x).matmul(self._Q, x[:, :, None])[:, :, 0]

    def compute_smoothness(self, norm: int) -> Array:
        return np.abs(to_numpy(self._Q)).max(axis=(1, 2)) if norm == 1 else self._largest.copy()

    def take_agents(self, agents: Array) -> Self:
        return self._of(rows_at(self._Q, agents), rows_at(self._c, agents), self._largest[agents])

    def _moved(self, home: Array) -> Self:
        return self._of(moved(self._Q, home), moved(self._c, home), self._largest)

    def _of(self, Q: Array, c: Array, largest: Array) -> Self:
        """From matrices that were checked before."""
        other = object.__new__(type(self))
        Loss.__init__(other, len(Q), self.d, self.dtype, home_of(Q))
        other._Q, other._c, other._largest = Q, c, largest
        return other


@dataclass(frozen=True, eq=False)
class _QuadraticEvaluation(Evaluation):
    """The change is <gradient, d> + 1/2 d^T Q d."""

    loss: Quadratic

    def rounding(self) -> Array:
        half_eps = float(np.finfo(self.loss.dtype).eps) / 2
        return half_eps * lengths(self.x) * lengths(self.gradient - self.loss._c)

    def change(self, x: Array) -> tuple[Array, Array]:
        d = self.loss._checked(x) - self.x
        curved = dot(d, self.loss._product(d)) / 2
        return dot(self.gradient, d) + curved, float(np.finfo(self.loss.dtype).eps) * abs(curved)


def _largest_eigenvalues(Q: Array) -> Array:
    """Largest eigenvalue of each matrix (m, d, d); refuses matrices that are not symmetric PSD."""
    m, d, _ = Q.shape
    tolerance = 10 * d * np.finfo(Q.dtype).eps
    largest = np.empty(m)
    for chunk in chunks(m, d * d):
        part = Q[chunk].astype(np.float64)
        asymmetry = np.abs(part - part.swapaxes(1, 2)).max(axis=(1, 2))
        skewed = asymmetry > tolerance * np.abs(part).max(axis=(1, 2))
        if skewed.any():
            i = int(skewed.argmax())
            raise InputError(
                "Q must be symmetric",
                f"a difference of {asymmetry[i]:.3g} from its transpose at agent {chunk.start + i}",
                "pass (Q + Q.T) / 2",
            )
        eigenvalues = np.linalg.eigvalsh(part)
        largest[chunk] = eigenvalues[:, -1]
        indefinite = eigenvalues[:, 0] < -tolerance * np.abs(eigenvalues).max(axis=1)
        if indefinite.any():
            i = int(indefinite.argmax())
            raise InputError(
                "Q must be positive semidefinite",
                f"an eigenvalue of {eigenvalues[i, 0]:.3g} at agent {chunk.start + i}",
                "the methods need convex losses; check the sign of Q or add a multiple of the identity",
            )
    return np.maximum(largest, 0.0)
