"""Quadratic functions."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NoReturn, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from array_api_compat import array_namespace

from gradslide._support.arrays import as_dtype, copied, dot, doubles, dtype_of, lengths, to_numpy
from gradslide._support.errors import InputError, require
from gradslide._support.types import Array, Sparse, SparseInput
from gradslide.losses.base import Evaluation, Loss
from gradslide.losses.devices import Features, has_doubles, home_of, moved, rows_at
from gradslide.losses.inputs import float_array, is_sparse, stack_rows, working_dtype
from gradslide.losses.rows import chunks
from gradslide.losses.stacked import Stacked

_MOST_DENSE = 1000  # up to this order, a sparse Q has a dense Hessian and all its eigenvalues are computed
_LANCZOS_STEPS, _LANCZOS_TOLERANCE = 300, 1e-7


class Quadratic(Loss):
    """Quadratic functions ft_i(x) = 1/2 x^T Q_i x + c_i^T x.

    Parameters
    ----------
    Q : array_like, shape (d, d) or (m, d, d), or scipy.sparse matrix, shape (d, d)
        Symmetric positive semidefinite matrix of one agent, or of each; a sparse one of one agent.
    c : array_like, shape (d,) or (m, d)
        Linear coefficients.

    Notes
    -----
    A sparse Q stays sparse, on the host. Beyond d = 1000 it has no dense Hessian, and Lanczos
    iterations bound its largest eigenvalue from above. A Q with a negative eigenvalue is refused if
    they find it; one of less than about 1e-3 of the largest eigenvalue may pass unnoticed.

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

    _Q: Features  # (m, d, d), or CSR of shape (d, d)

    def __init__(self, Q: npt.ArrayLike | SparseInput, c: npt.ArrayLike) -> None:
        if is_sparse(Q):
            self._start_sparse(Q, c)
            return
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

    def _start_sparse(self, Q: Sparse, c: npt.ArrayLike) -> None:
        """Take a sparse Q of one agent and its c."""
        vectors = float_array("c", c)
        square = len(Q.shape) == 2 and Q.shape[0] == Q.shape[1] > 0
        require(square, "a sparse Q must have shape (d, d)", f"shape {Q.shape}", "give one square matrix")
        require(Q.dtype.kind in "biuf", "Q must hold real numbers", Q.dtype, "convert it to float")
        d = Q.shape[0]
        require(
            vectors.shape in ((d,), (1, d)),
            f"c must have shape ({d},) to fit the sparse Q of one agent",
            f"shape {tuple(vectors.shape)}",
            "reshape it, or give each agent its own loss: gs.losses.stack",
        )
        super().__init__(1, d, working_dtype(Q.dtype))
        self._Q = sp.csr_array(Q).astype(self.dtype, copy=False)
        if not self._Q.has_canonical_format:
            self._Q = self._Q.copy()
            self._Q.sum_duplicates()
        finite = np.isfinite(self._Q.data)
        require(bool(finite.all()), "Q must be finite", f"{int((~finite).sum())} NaN or infinite entries", "correct it")
        self._c = vectors.reshape(1, d).astype(self.dtype)
        self._largest = np.array([_largest_of_sparse(self._Q)])

    @property
    def _is_sparse(self) -> bool:
        return is_sparse(self._Q)

    def quadratic_part(self) -> list[Array | Sparse]:
        return [self._Q] if self._is_sparse else list(self._Q)

    def value(self, x: Array) -> Array:
        return self.value_and_gradient(x)[0]

    def value_in_doubles(self, x: Array) -> Array | None:
        if self.dtype == np.float64 or self._home is not None:
            return super().value_in_doubles(x)
        x, values = np.asarray(x, dtype=np.float64), np.empty(self.m)
        if self._is_sparse:
            return np.vecdot(x, (self._Q.astype(np.float64) @ x[0]) / 2 + self._c)
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
        return has_doubles(self._home) and not (self._is_sparse and self.d > _MOST_DENSE)

    def hessian(self, x: Array) -> Array:
        if self._is_sparse and self.has_hessian:
            return self._Q.toarray().astype(np.float64, copy=False)[None]
        return copied(doubles(self._Q)) if self.has_hessian else super().hessian(x)

    def sample_gradient(self, x: Array, batch: int, streams: Sequence[np.random.Generator]) -> NoReturn:
        raise InputError(
            "a sampled gradient needs a loss with rows",
            "Quadratic",
            "use its exact gradient, LeastSquares, or Custom with sample_gradient",
        )

    def merge_key(self) -> Hashable | None:
        return None if self._is_sparse else (type(self), self.d, self.dtype, str(self.device))

    def merged(self, others: Sequence[Self]) -> Self:
        parts = [self, *others]
        fields = ([part._Q for part in parts], [part._c for part in parts], [part._largest for part in parts])
        return self._of(*(stack_rows(field) for field in fields))

    def _product(self, x: Array) -> Array:
        if self._is_sparse:
            return (self._Q @ x[0])[None]
        return array_namespace(x).matmul(self._Q, x[:, :, None])[:, :, 0]

    def compute_smoothness(self, norm: int) -> Array:
        if norm == 2:
            return self._largest.copy()
        if self._is_sparse:
            return np.array([_size(self._Q)])
        return np.abs(to_numpy(self._Q)).max(axis=(1, 2))

    def take_agents(self, agents: Array) -> Loss:
        if self._is_sparse:
            return Stacked([self] * len(agents))
        return self._of(rows_at(self._Q, agents), rows_at(self._c, agents), self._largest[agents])

    def _moved(self, home: Array) -> Self:
        if self._is_sparse:
            remedy = "leave the loss on the host, or give Q as a dense array"
            raise InputError("Q must be dense on a device", f"a sparse Q of order {self.d}", remedy)
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


def _size(Q: Sparse) -> float:
    """The largest absolute value of an entry."""
    return float(np.abs(Q.data).max(initial=0.0))


def _largest_of_sparse(Q: Sparse) -> float:
    """The largest eigenvalue of a sparse matrix, or a little more; refuses one that is not symmetric PSD."""
    d = Q.shape[0]
    if d <= _MOST_DENSE:
        return float(_largest_eigenvalues(Q.toarray()[None])[0])
    tolerance = 10 * d * np.finfo(Q.dtype).eps
    Q = Q.astype(np.float64, copy=False)
    asymmetry = _size((Q - Q.T).tocsr())
    if asymmetry > tolerance * _size(Q):
        got = f"a difference of {asymmetry:.3g} from its transpose"
        raise InputError("Q must be symmetric", got, "pass (Q + Q.T) / 2")
    row_sums = np.asarray(abs(Q).sum(axis=1))
    smallest, largest = _extreme_eigenvalues(Q)
    # Gershgorin's discs show positive semidefiniteness at once, where there is enough on the diagonal.
    dominated = np.all(2 * Q.diagonal() >= row_sums)
    if not dominated and smallest < -max(tolerance, _LANCZOS_TOLERANCE) * abs(largest):
        raise _indefinite(f"an eigenvalue of at most {smallest:.3g}")
    return min(largest, float(row_sums.max()))


def _extreme_eigenvalues(Q: Sparse) -> tuple[float, float]:
    """Upper bounds of the smallest and the largest eigenvalue of a symmetric matrix, by Lanczos iterations."""
    from scipy.linalg import eigh_tridiagonal

    d = Q.shape[0]
    v = np.random.default_rng(0).standard_normal(d)
    v /= np.linalg.norm(v)
    before, diagonal, beside = np.zeros(d), np.empty(0), np.empty(0)
    smallest = largest = 0.0
    for step in range(1, _LANCZOS_STEPS + 1):
        w = Q @ v
        diagonal = np.append(diagonal, w @ v)
        w -= diagonal[-1] * v + (beside[-1] if step > 1 else 0.0) * before
        length = float(np.linalg.norm(w))
        if step % 10 == 0 or length == 0:
            values, vectors = eigh_tridiagonal(diagonal, beside)
            residuals = length * np.abs(vectors[-1, [0, -1]])
            smallest, largest = float(values[0]), float(values[-1] + residuals[1])
            if residuals.max() <= _LANCZOS_TOLERANCE * abs(largest):
                break
        before, v, beside = v, w / length, np.append(beside, length)
    return smallest, largest


def _indefinite(got: str) -> InputError:
    remedy = "the methods need convex losses; check the sign of Q or add a multiple of the identity"
    return InputError("Q must be positive semidefinite", got, remedy)


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
            raise _indefinite(f"an eigenvalue of {eigenvalues[i, 0]:.3g} at agent {chunk.start + i}")
    return np.maximum(largest, 0.0)
