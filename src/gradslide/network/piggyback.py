"""Reductions that are piggybacked on exchanges, where all agents belong to one run."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias, cast

import numpy as np

from gradslide._support.arrays import doubles, is_cuda, to_numpy
from gradslide._support.keywords import CheckedArguments
from gradslide._support.types import Array, Sparse, Storable, Tensor
from gradslide.network.collectives import reduced
from gradslide.network.compressors import Compressor
from gradslide.network.costs import CostModel
from gradslide.network.protocol import Answer, Done, Network, Reduction
from gradslide.network.renamed import RenamedMembers

_FINAL = ("combine", "batch", "total", "start_reduce", "completed")


class CopyToHost:
    """A result on its way from a device to the host."""

    def __init__(self, values: Tensor) -> None:
        import torch

        self._host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        self._host.copy_(values, non_blocking=True)
        self._event = torch.cuda.Event()
        # The copy is on the stream of the values' own device, which need not be the current one.
        self._event.record(torch.cuda.current_stream(values.device))

    def wait(self) -> Array:
        """Return it, as soon as it is here."""
        self._event.synchronize()
        result: Array = self._host.numpy()
        result.flags.writeable = False
        return result


def on_host(result: "Array | CopyToHost") -> Array:
    """Return a result once it is on the host."""
    return result.wait() if isinstance(result, CopyToHost) else result


class _Pending(NamedTuple):
    """A result, and the exchange after which all agents know it."""

    due: int
    reduction: Reduction
    result: "Array | CopyToHost"
    channel: str = ""


# What a session saves: the exchanges so far, and what is pending.
_Saved: TypeAlias = tuple[int, list[tuple[int, Reduction, Array, str]]]


class Piggybacking(CheckedArguments, RenamedMembers, ABC):
    """A network on which every exchange moves the piggybacked reductions on.

    Results are computed when a reduction starts, and given out when neighbours alone would have
    carried them to all agents. Subclasses implement `_combine`; they cannot override `combine` or
    `batch`, so that no exchange is left out.
    """

    is_local: ClassVar[bool] = False
    is_reliable: ClassVar[bool] = True
    costs: CostModel

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if overridden := [name for name in _FINAL if name in vars(cls)]:
            raise TypeError(f"{cls.__name__} overrides {overridden[0]}; implement _combine, which combine calls")

    _exchanges: int = 0
    _pending: tuple[_Pending, ...] = ()

    @property
    def session(self) -> "LocalSession":
        return LocalSession(self)

    def combine(self, v: Array, weights: Sparse, encoding: Compressor | None = None) -> Array:
        self._exchanges += 1
        return self._combine(v, weights)

    def batch(self, exchanges: int, v: Array, compute: Callable[[], Done]) -> Done:
        if not self.is_local:
            raise NotImplementedError("exchanges are done one by one here")
        self._exchanges += exchanges
        return compute()

    def total(self, values: Array) -> Array:
        self._exchanges += self.costs.sum_rounds
        return self.agree(to_numpy(values).astype(np.float64, copy=False), "sum")

    def relay(self, values: Array, solve: Answer, size: int) -> Array:
        return solve(self.total(values))

    def start_reduce(self, values: Array, reduction: Reduction, channel: str = "") -> None:
        result: Array | CopyToHost
        if reduction == "sum" and self.is_local and is_cuda(values):
            # No decision waits for it yet, and neither does the host.
            result = CopyToHost(cast(Any, doubles(values)).sum(dim=0))
        else:
            values = to_numpy(values)
            values = values.astype(np.float64, copy=False) if reduction == "sum" else values
            result = np.asarray(self.agree(values, reduction))
            # All agents know the same: nobody changes it.
            result.flags.writeable = False
        due = self._exchanges + self.costs.control_rounds(reduction)
        self._pending = *self._pending, _Pending(due, reduction, result, channel)

    def completed(self, reduction: Reduction | None = None, channel: str = "") -> list[Array]:
        results: list[Array] = []
        pending: list[_Pending] = []
        for each in self._pending:
            if each.due <= self._exchanges and reduction in (None, each.reduction) and channel == each.channel:
                results.append(on_host(each.result))
            else:
                pending.append(each)
        self._pending = tuple(pending)
        return results

    @abstractmethod
    def _combine(self, v: Array, weights: Sparse) -> Array:
        """One exchange."""

    @abstractmethod
    def agree(self, values: Array, reduction: Reduction) -> Array: ...


@dataclass
class LocalSession:
    """The session of a network in one process that sees all agents."""

    _network: Piggybacking
    rank: int = 0
    size: int = 1
    sees_all: ClassVar[bool] = True

    def connect(self) -> None:
        return

    def begin(self) -> None:
        self._network._exchanges, self._network._pending = 0, ()

    def prepared(self) -> None:
        return

    def checkpoint(self) -> Storable:
        pending = [each._replace(result=on_host(each.result)) for each in self._network._pending]
        return self._network._exchanges, pending

    def resume(self, state: Storable) -> None:
        self._network._exchanges, pending = cast(_Saved, state)
        self._network._pending = tuple(_Pending(*each) for each in pending)

    def checkpointed(self, is_last: bool = False) -> None:
        return

    def close(self, reason: str = "") -> None:
        return

    def observe(self, values: Array, reduction: Reduction) -> Array:
        return reduced(values, reduction)

    def gather(self, rows: Array) -> Array:
        return rows

    def all_reduce_signal(self, signal: int) -> int:
        return signal

    def uncounted(self) -> Network:
        other = object.__new__(type(self._network))
        other.__dict__ = {**self._network.__dict__, "_exchanges": 0, "_pending": ()}
        return cast(Network, other)
