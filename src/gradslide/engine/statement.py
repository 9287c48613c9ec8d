"""What a method says of its state, in one form whatever it leaves out."""

from collections.abc import Mapping, Sequence
from typing import Any

from gradslide._support.arrays import to_numpy
from gradslide._support.types import Array
from gradslide.methods.base import Method
from gradslide.theory.proof import Evidence


class Statement:
    """Reads a method's states."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self.name = type(method).__name__

    @property
    def is_sampled(self) -> bool:
        """Whether gradients are: nothing follows from those."""
        return getattr(self._method, "oracle", None) is not None

    @property
    def stops_itself(self) -> bool:
        return getattr(self._method, "stops_itself", False)

    def keeps(self, output: str) -> bool:
        """Whether later steps leave the array of that output as it is."""
        return output in getattr(self._method, "keeps", ())

    def outputs(self, state: Any) -> Mapping[str, Array]:
        """By name, the recommended one first."""
        outputs = self._method.output(state)
        return outputs if isinstance(outputs, Mapping) else {"last": outputs}

    def dual(self, state: Any, output: str) -> Array | None:
        """The multipliers that go with an output, if there are any."""
        if not hasattr(self._method, "dual"):
            return None
        found = self._method.dual(state)
        return to_numpy(found[output] if isinstance(found, Mapping) else found)

    def evidence(self, state: Any, iteration: int) -> Sequence[Evidence]:
        given: Sequence[Evidence] = self._method.evidence(state) if hasattr(self._method, "evidence") else ()
        return [each._replace(averaged=iteration) if each.averaged is None else each for each in given]

    def invariant(self, state: Any) -> Array | None:
        return self._method.invariant(state) if hasattr(self._method, "invariant") else None

    def parameters(self, state: Any) -> dict[str, float]:
        return self._method.parameters(state) if hasattr(self._method, "parameters") else {}

    def iterations(self, state: Any) -> int | None:
        """Outer iterations after which the schedule ends, if it does."""
        return self._method.iterations(state) if hasattr(self._method, "iterations") else None
