"""Results of reductions that ride on exchanges, which all agents know only later; where all agents are in one run."""

import copy
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from gradslide._support.arrays import to_numpy
from gradslide._support.types import Array
from gradslide.network.base import OneByOne, Reduction


class _Rider(NamedTuple):
    """A result, and the exchange after which all agents know it."""

    due: int
    reduction: Reduction
    result: Array


class Riding(OneByOne, ABC):
    """A network all of whose agents can be seen: results are computed when they are posted, and given out when
    neighbours alone would have carried them everywhere. Whoever exchanges calls `_move`."""

    sees_all: ClassVar[bool] = True

    def __init__(self) -> None:
        self._exchanges = 0
        self._aboard: list[_Rider] = []

    @abstractmethod
    def control_rounds(self, reduction: Reduction) -> int: ...

    @abstractmethod
    def agree(self, values: Array, reduction: Reduction) -> Array: ...

    def post(self, values: Array, reduction: Reduction) -> None:
        values = to_numpy(values)
        values = values.astype(np.float64, copy=False) if reduction == "sum" else values
        result = np.asarray(self.agree(values, reduction))
        # All agents know it alike: nobody changes it.
        result.flags.writeable = False
        self._aboard.append(_Rider(self._exchanges + self.control_rounds(reduction), reduction, result))

    def arrived(self, reduction: Reduction | None = None) -> list[Array]:
        def is_known(rider: _Rider) -> bool:
            return rider.due <= self._exchanges and reduction in (None, rider.reduction)

        known = [rider.result for rider in self._aboard if is_known(rider)]
        self._aboard = [rider for rider in self._aboard if not is_known(rider)]
        return known

    @property
    def place(self) -> tuple[int, int]:
        return 0, 1

    def settle(self, wish: int) -> int:
        return wish

    def gather(self, rows: Array) -> Array:
        return rows

    def aside(self) -> Self:
        other = copy.copy(self)
        other.begin()
        return other

    def begin(self) -> None:
        self._exchanges, self._aboard = 0, []

    def memory(self) -> Any:
        return self._exchanges, list(self._aboard)

    def recall(self, memory: Any) -> None:
        self._exchanges, aboard = memory
        self._aboard = [_Rider(*rider) for rider in aboard]

    def saved(self) -> None:
        return

    def _move(self, exchanges: int = 1) -> None:
        """So many exchanges were made."""
        self._exchanges += exchanges
