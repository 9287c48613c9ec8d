"""The protocol that methods are written against."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.network.compressors import Compressor

Reduction = Literal["max", "or", "sum"]
# From the graph and the values of all agents, one row each, to numbers that all must know.
WorkOut = Callable[[Graph, Array], Array]
Done = TypeVar("Done")


class Network(Protocol):
    """Agents that may talk to their neighbours only.

    `agents` are the agents that live here, by number; arrays hold one row for each of them, in that order. `laplacian`
    is that of the graph, in the form that `combine` takes. Sums over all agents go up a breadth-first tree, rooted at
    the centre of the graph, and down again; maxima are flooded.
    """

    @property
    def graph(self) -> Graph: ...

    @property
    def m(self) -> int:
        """How many agents there are, here and elsewhere."""
        ...

    @property
    def agents(self) -> Sequence[int]: ...

    @property
    def laplacian(self) -> Array: ...

    def combine(self, v: Array, weights: Array, encoding: Compressor | None = None) -> Array:
        """sum_j weights_ij v_j over neighbours j and i itself: one exchange. weights: a CSR matrix (m, m), of which the
        rows of the agents here count; it must not change as long as it is in use. encoding: what made v small enough to
        be sent in fewer floats than it has entries."""
        ...

    @property
    def is_together(self) -> bool:
        """Whether all agents live here, and hear what their neighbours said: then several exchanges may be one piece of
        compiled work."""
        ...

    def at_once(self, exchanges: int, v: Array, work: Callable[[], Done]) -> Done:
        """So many exchanges of arrays like v, which `work` does in one go; only where `is_together`."""
        ...

    def agree(self, values: Array, reduction: Reduction) -> Array:
        """What all agents must know alike: values has one row per agent here. Costs control rounds."""
        ...

    def post(self, values: Array, reduction: Reduction) -> None:
        """Start what `agree` does, without control rounds: its parts ride on the exchanges to come, and all agents know
        the result `control_rounds(reduction)` of them later. Any number may be on their way. Sums are in float64."""
        ...

    def arrived(self, reduction: Reduction | None = None) -> list[Array]:
        """The results that all agents know by now and that were not given out yet, in the order in which they were
        posted; of that reduction alone where one is named. One that takes fewer exchanges may overtake another."""
        ...

    def post_size(self, values: Array, reduction: Reduction) -> int:
        """Floats that leave the agents here for a post, over all exchanges that it rides on."""
        ...

    def survey(self, values: Array, work_out: WorkOut) -> Array:
        """Every agent floods its edges and its row of values; what the centre of the graph works out from all of them
        comes down the tree, so that all have the same bits. Costs control rounds."""
        ...

    @property
    def survey_rounds(self) -> int:
        """Exchanges that `survey` takes: a flood, and down the tree."""
        ...

    def survey_size(self, values: Array, answer: Array) -> int:
        """Floats that leave the agents here for `survey`: edges, their weights if they have any, and all values over
        every link of theirs, the answer over every link of the tree."""
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

    def settle(self, wish: int) -> int:
        """The largest of what all processes wish (0 for nothing), as far as it is known here: for the end of a run,
        which all must reach after the same outer iteration. Called once or more in each; never counted. Where processes
        only know their neighbours it comes later, but to all at the same time."""
        ...

    @property
    def sees_all(self) -> bool:
        """Whether `observe` is to be had: not where other agents live with other people."""
        ...

    @property
    def place(self) -> tuple[int, int]:
        """Which process of the run this is, and of how many; the first one shows progress and writes results."""
        ...

    def gather(self, rows: Array) -> Array:
        """The rows of all agents, in their order, (m, ...): for results. All processes must call it."""
        ...

    def aside(self) -> "Network":
        """The network as observations see it: beneath what disturbs or counts, and nothing rides on their exchanges."""
        ...

    def begin(self) -> None:
        """A new run starts: nothing is left of earlier ones."""
        ...

    def memory(self) -> Any:
        """What a run that goes on later has to be given back: arrays, numbers, strings, tuples and lists."""
        ...

    def recall(self, memory: Any) -> None:
        """Go on from what `memory` gave."""
        ...

    def saved(self) -> None:
        """What `memory` gave last is on disk."""
        ...


class OneByOne:
    """A network on which every exchange is a piece of work of its own."""

    is_together: ClassVar[bool] = False

    def at_once(self, exchanges: int, v: Array, work: Callable[[], Done]) -> Done:
        raise NotImplementedError("here exchanges are done one by one")
