"""Losses of fewer variables than others have, seen in the dimension of all."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import array_api_compat as compat
import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace

from gradslide._support.arrays import is_numpy
from gradslide._support.errors import require
from gradslide._support.types import Array, Sparse
from gradslide.losses.base import Evaluation, Loss, Support
from gradslide.losses.stacked import Stacked


class Padded(Loss):
    """A loss that does not depend on the last coordinates of x.

    Agents with variables of their own may have different numbers of them; arrays then have as many
    columns as the largest number, and `Padded` losses disregard those that are not theirs.

    Parameters
    ----------
    loss : Loss
        The loss in its own dimension.
    d : int
        The dimension to see it in, at least its own.

    Attributes
    ----------
    inner : Loss
        The loss in its own dimension.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> from gradslide.losses.padded import Padded
    >>> Padded(gs.losses.Linear([1.0, 2.0]), 3).gradient(np.zeros((1, 3))).tolist()
    [[1.0, 2.0, 0.0]]
    """

    def __init__(self, loss: Loss, d: int) -> None:
        require(d >= loss.d, f"d must be at least {loss.d}, that of the loss", d, "give a larger d")
        super().__init__(loss.m, d, loss.dtype, loss._home)
        self.inner = loss
        self.has_value = loss.has_value
        self.is_user_supplied = loss.is_user_supplied

    def value(self, x: Array) -> Array:
        return self.inner.value(self._cut(x))

    def value_in_doubles(self, x: Array) -> Array | None:
        return self.inner.value_in_doubles(x[:, : self.inner.d])

    def gradient(self, x: Array) -> Array:
        return _padded(self.inner.gradient(self._cut(x)), self.d)

    def value_and_gradient(self, x: Array) -> tuple[Array, Array]:
        values, gradients = self.inner.value_and_gradient(self._cut(x))
        return values, _padded(gradients, self.d)

    @property
    def has_evaluation(self) -> bool:
        return self.inner.has_evaluation

    def evaluation(self, x: Array) -> Evaluation:
        x = self._checked(x)
        inner = self.inner.evaluation(self._cut(x))
        return _PaddedEvaluation(x, inner.value, _padded(inner.gradient, self.d), inner)

    @property
    def has_hessian(self) -> bool:
        return self.inner.has_hessian

    def quadratic_part(self) -> list[Array | Sparse] | None:
        parts = self.inner.quadratic_part()
        if parts is None:
            return None
        more = sp.csr_array((self.d - self.inner.d,) * 2)
        return [
            sp.block_diag([part, more], format="csr") if sp.issparse(part) else self._square(part) for part in parts
        ]

    def hessian(self, x: Array) -> Array:
        return self._square(self.inner.hessian(self._cut(x)))

    def derivatives(self, x: Array) -> tuple[Array, Array, Array]:
        values, gradients, hessians = self.inner.derivatives(self._cut(x))
        return values, _padded(gradients, self.d), self._square(hessians)

    def sample_gradient(self, x: Array, batch: int, streams: Sequence[np.random.Generator]) -> Array:
        return _padded(self.inner.sample_gradient(self._cut(x), batch, streams), self.d)

    @property
    def rows_per_agent(self) -> Array | None:
        return self.inner.rows_per_agent

    def gradient_of_rows(self, x: Array, rows: Sequence[Array], counts: Sequence[Array] | None = None) -> Array:
        return _padded(self.inner.gradient_of_rows(self._cut(x), rows, counts), self.d)

    def read_samples(self, agent: int, batch: Any) -> Any:
        return self.inner.read_samples(agent, batch)

    def gradient_of_samples(self, x: Array, batches: Sequence[Any]) -> Array:
        return _padded(self.inner.gradient_of_samples(self._cut(x), batches), self.d)

    def compute_smoothness(self, norm: int) -> Array:
        return self.inner.smoothness(norm)

    def smoothness_over(self, support: Support, norm: int = 2) -> Array:
        return self.inner.smoothness_over(lambda agents, c: support(agents, _padded(c, self.d)), norm)

    def take_agents(self, agents: Array) -> Loss:
        return Padded(self.inner.take(agents), self.d)

    def merge_key(self) -> Hashable | None:
        key = self.inner.merge_key()
        return None if key is None else (Padded, self.d, self.inner.d, key)

    def merged(self, others: Sequence[Self]) -> "Padded":
        return Padded(self.inner.merged([other.inner for other in others]), self.d)

    def _moved(self, home: Array) -> Loss:
        return Padded(self.inner._moved(home), self.d)

    def _cut(self, x: Array) -> Array:
        return self._checked(x)[:, : self.inner.d]

    def _square(self, matrices: Array) -> Array:
        """Square matrices with further rows and columns of zeros."""
        return _padded(_padded(matrices, self.d).swapaxes(-1, -2), self.d).swapaxes(-1, -2)


@dataclass(frozen=True, eq=False)
class _PaddedEvaluation(Evaluation):
    inner: Evaluation

    def rounding(self) -> Array:
        return self.inner.rounding()

    def change(self, x: Array) -> tuple[Array, Array]:
        return self.inner.change(x[:, : self.inner.x.shape[1]])


def padded(loss: Loss, d: int) -> Loss:
    """Return the loss in a larger dimension; the loss itself in its own.

    Parameters
    ----------
    loss : Loss
        Of any number of agents.
    d : int
        The dimension.

    Returns
    -------
    Loss
    """
    if loss.d == d:
        return loss
    if isinstance(loss, Stacked):
        return Stacked([padded(part, d) for part in loss.parts])
    return padded(loss.inner, d) if isinstance(loss, Padded) else Padded(loss, d)


def without_padding(loss: Loss) -> Loss:
    """Return the loss of one agent in its own dimension.

    Parameters
    ----------
    loss : Loss
        Of one agent.

    Returns
    -------
    Loss
    """
    return loss.inner if isinstance(loss, Padded) else loss


def _padded(v: Array, d: int) -> Array:
    """Rows with further zeros."""
    more = d - v.shape[-1]
    if is_numpy(v):
        return np.concatenate([v, np.zeros((*v.shape[:-1], more), dtype=v.dtype)], axis=-1)
    xp = array_namespace(v)
    return xp.concat([v, xp.zeros((*v.shape[:-1], more), dtype=v.dtype, device=compat.device(v))], axis=-1)
