"""Linear functions."""

from collections.abc import Hashable, Sequence
from typing import Any, NoReturn, Self

import numpy as np

from gradslide._types import Array
from gradslide.errors import InputError, require
from gradslide.losses.base import Loss
from gradslide.losses.inputs import float_array


class Linear(Loss):
    """ft_i(x) = c_i^T x: L = 0, and one gradient is enough.

    c: (d,) for one agent; or (m, d).
    """

    def __init__(self, c: Any) -> None:
        c = float_array("c", c)
        require(c.ndim in (1, 2) and c.size > 0, "c must have shape (d,) or (m, d)", f"shape {c.shape}", "reshape it")
        self._c = np.atleast_2d(c)
        m, d = self._c.shape
        super().__init__(m, d, c.dtype)

    def value(self, x: Array) -> Array:
        return np.vecdot(self._c, self._checked(x))

    def gradient(self, x: Array) -> Array:
        self._checked(x)
        return self._c.copy()

    def sample_gradient(self, x: Array, batch: int, streams: Sequence[np.random.Generator]) -> NoReturn:
        raise InputError("a sampled gradient needs a loss with rows", "Linear", "use its exact gradient")

    def merge_key(self) -> Hashable:
        return type(self), self.d, self.dtype

    def merged(self, others: Sequence[Self]) -> Self:
        return type(self)(np.concatenate([self._c, *(other._c for other in others)]))

    def _smoothness(self, norm: int) -> Array:
        return np.zeros(self.m)

    def _take(self, agents: Array) -> Self:
        return type(self)(self._c[agents])
