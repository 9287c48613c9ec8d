"""The protocol that methods are written against."""

from typing import Literal, Protocol

from gradslide._types import Array
from gradslide.compressors import Compressor
from gradslide.graph import Graph

Reduction = Literal["max", "or", "sum"]


class Network(Protocol):
    """Agents that may talk to their neighbours only.

    `agents` are the agents that live here; arrays hold one row for each of them. `laplacian` is the rows of the
    Laplacian that belong to them, in the form that `combine` takes.
    """

    @property
    def graph(self) -> Graph: ...

    @property
    def m(self) -> int:
        """How many agents there are, here and elsewhere."""
        ...

    @property
    def agents(self) -> range: ...

    @property
    def laplacian(self) -> Array: ...

    def combine(self, v: Array, weights: Array, encoding: Compressor | None = None) -> Array:
        """sum_j weights_ij v_j over neighbours j and i itself: one exchange. encoding: what made v small enough to be
        sent in fewer floats than it has entries."""
        ...

    def agree(self, values: Array, reduction: Reduction) -> Array:
        """What all agents must know alike: values has one row per agent here. Costs control rounds."""
        ...

    def norm_bound(self) -> float:
        """A bound on the largest eigenvalue of the Laplacian that the agents can find."""
        ...

    @property
    def norm_rounds(self) -> int:
        """Exchanges that `norm_bound` takes."""
        ...

    def exchange_size(self, v: Array, encoding: Compressor | None = None) -> int:
        """Floats that leave the agents here in one exchange of v, which was encoded so."""
        ...

    def control_rounds(self, reduction: Reduction) -> int:
        """Exchanges that `agree` takes: flooding for max and or, up and down a spanning tree for sums."""
        ...

    def observe(self, values: Array, reduction: Reduction) -> Array:
        """The same as `agree`, for tables and plots: never counted, never steers a method."""
        ...
