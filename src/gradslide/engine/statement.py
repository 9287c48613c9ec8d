"""What a method says of its state, in one form whatever it leaves out."""

from collections.abc import Mapping, Sequence
from typing import Any

from gradslide._support.arrays import to_numpy
from gradslide._support.types import Array
from gradslide.methods.base import Method
from gradslide.theory.certificates import DualEvidence


class Statement:
    """Reads a method's states."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self.name = method.name
        self.is_sampled = method.oracle is not None
        self.stops_itself = method.stops_itself

    def keeps(self, output: str) -> bool:
        """Whether later steps leave the array of that output as it is."""
        return output in self._method.keeps

    def outputs(self, state: Any) -> Mapping[str, Array]:
        """By name, the recommended one first."""
        outputs = self._method.output(state)
        return outputs if isinstance(outputs, Mapping) else {"last": outputs}

    def dual(self, state: Any, output: str) -> Array | None:
        """The multipliers that go with an output, if there are any."""
        found = self._method.dual(state)
        if found is None:
            return None
        return to_numpy(found[output] if isinstance(found, Mapping) else found)

    def evidence(self, state: Any, iteration: int) -> Sequence[DualEvidence]:
        given = self._method.dual_evidence(state)
        return [each._replace(averaged=iteration) if each.averaged is None else each for each in given]

    def invariant(self, state: Any) -> Array | None:
        return self._method.invariant(state)

    def parameters(self, state: Any) -> dict[str, float]:
        return self._method.parameters(state)

    def iterations(self, state: Any) -> int | None:
        """Outer iterations after which the schedule ends, if it does."""
        return self._method.iterations(state)
