"""Linear functions."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NoReturn, Self

import array_api_compat as compat
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from array_api_compat import array_namespace

from gradslide._support.arrays import dot, doubles, dtype_of
from gradslide._support.errors import InputError, require
from gradslide._support.types import Array, Sparse
from gradslide.losses.base import Evaluation, Loss
from gradslide.losses.devices import has_doubles, home_of, moved, rows_at
from gradslide.losses.inputs import float_array, stack_rows


class Linear(Loss):
    """Linear functions ft_i(x) = c_i^T x.

    L = 0, so one gradient is enough.

    Parameters
    ----------
    c : array_like, shape (d,) or (m, d)
        Coefficients of one agent, or of each.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.Linear([[1.0, 2.0], [0.0, -1.0]])
    >>> loss.value(np.ones((2, 2))).tolist()
    [3.0, -1.0]
    """

    def __init__(self, c: npt.ArrayLike) -> None:
        c = float_array("c", c)
        full = c.ndim in (1, 2) and 0 not in c.shape
        require(full, "c must have shape (d,) or (m, d)", f"shape {tuple(c.shape)}", "reshape it")
        self._c = c.reshape((1, *c.shape)[-2:])
        m, d = self._c.shape
        super().__init__(m, d, dtype_of(c), home_of(c))

    def quadratic_part(self) -> list[Array | Sparse]:
        return [sp.csr_array((self.d, self.d), dtype=self.dtype)] * self.m

    def value(self, x: Array) -> Array:
        return array_namespace(self._c).vecdot(doubles(self._c), doubles(self._checked(x)))

    def value_in_doubles(self, x: Array) -> Array:
        return array_namespace(self._c).vecdot(doubles(self._c), doubles(x))

    def gradient(self, x: Array) -> Array:
        self._checked(x)
        return array_namespace(self._c).asarray(self._c, copy=True)

    @property
    def has_evaluation(self) -> bool:
        return self.dtype == np.float32

    def evaluation(self, x: Array) -> Evaluation:
        x = self._checked(x)
        return _LinearEvaluation(x, self.value(x), self.gradient(x))

    @property
    def has_hessian(self) -> bool:
        return has_doubles(self._home)

    def hessian(self, x: Array) -> Array:
        if not self.has_hessian:
            return super().hessian(x)
        return doubles(array_namespace(self._c).zeros((self.m, self.d, self.d), device=compat.device(self._c)))

    def sample_gradient(self, x: Array, batch: int, streams: Sequence[np.random.Generator]) -> NoReturn:
        raise InputError("a sampled gradient needs a loss with rows", "Linear", "use its exact gradient")

    def merge_key(self) -> Hashable:
        return type(self), self.d, self.dtype, str(self.device)

    def merged(self, others: Sequence[Self]) -> Self:
        return type(self)(stack_rows([self._c, *(other._c for other in others)]))

    def compute_smoothness(self, norm: int) -> Array:
        return np.zeros(self.m)

    def take_agents(self, agents: Array) -> Self:
        return type(self)(rows_at(self._c, agents))

    def _moved(self, home: Array) -> Self:
        return type(self)(moved(self._c, home))


@dataclass(frozen=True, eq=False)
class _LinearEvaluation(Evaluation):
    def change(self, x: Array) -> tuple[Array, Array]:
        change = dot(self.gradient, x - self.x)
        return change, 0 * change
