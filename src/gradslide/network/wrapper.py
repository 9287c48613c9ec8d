"""A network around another one."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gradslide._support.errors import InputError, kind_of
from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.network.base import Done, Network, Reduction, WorkOut
from gradslide.network.compressors import Compressor
from gradslide.network.local import Local


class Wrapper:
    """Passes everything on; subclasses change what they are about. An exchange must be one of the network within: what
    rides along moves there."""

    def __init__(self, network: Network | Graph) -> None:
        if not (isinstance(network, Graph) or hasattr(network, "combine")):
            rule = f"{type(self).__name__} needs a network"
            raise InputError(rule, kind_of(network), "for example gs.network.Local(graph)")
        self._network: Network = Local(network) if isinstance(network, Graph) else network

    def begin(self) -> None:
        self._network.begin()

    def memory(self) -> Any:
        return self._network.memory()

    def recall(self, memory: Any) -> None:
        self._network.recall(memory)

    def saved(self) -> None:
        self._network.saved()

    def __repr__(self) -> str:
        """As the network within: a wrapper that changes what arrives says so."""
        return repr(self._network)

    @property
    def graph(self) -> Graph:
        return self._network.graph

    @property
    def m(self) -> int:
        return self._network.m

    @property
    def agents(self) -> Sequence[int]:
        return self._network.agents

    @property
    def laplacian(self) -> Array:
        return self._network.laplacian

    def combine(self, v: Array, weights: Array, encoding: Compressor | None = None) -> Array:
        return self._network.combine(v, weights, encoding)

    @property
    def is_together(self) -> bool:
        """Not where a wrapper has something to do with every exchange."""
        return False

    def at_once(self, exchanges: int, v: Array, work: Callable[[], Done]) -> Done:
        return self._network.at_once(exchanges, v, work)

    def agree(self, values: Array, reduction: Reduction) -> Array:
        return self._network.agree(values, reduction)

    def post(self, values: Array, reduction: Reduction) -> None:
        self._network.post(values, reduction)

    def arrived(self, reduction: Reduction | None = None) -> list[Array]:
        return self._network.arrived(reduction)

    def post_size(self, values: Array, reduction: Reduction) -> int:
        return self._network.post_size(values, reduction)

    def survey(self, values: Array, work_out: WorkOut) -> Array:
        return self._network.survey(values, work_out)

    @property
    def survey_rounds(self) -> int:
        return self._network.survey_rounds

    def survey_size(self, values: Array, answer: Array) -> int:
        return self._network.survey_size(values, answer)

    def norm_bound(self) -> float:
        return self._network.norm_bound()

    @property
    def norm_rounds(self) -> int:
        return self._network.norm_rounds

    def exchange_size(self, v: Array, encoding: Compressor | None = None) -> int:
        return self._network.exchange_size(v, encoding)

    def control_rounds(self, reduction: Reduction) -> int:
        return self._network.control_rounds(reduction)

    def observe(self, values: Array, reduction: Reduction) -> Array:
        return self._network.observe(values, reduction)

    def settle(self, wish: int) -> int:
        return self._network.settle(wish)

    @property
    def sees_all(self) -> bool:
        return self._network.sees_all

    @property
    def place(self) -> tuple[int, int]:
        return self._network.place

    def gather(self, rows: Array) -> Array:
        return self._network.gather(rows)

    def aside(self) -> Network:
        return self._network.aside()


def wrappers(network: Network) -> Iterator[Wrapper]:
    """From the outermost to the innermost."""
    while isinstance(network, Wrapper):
        yield network
        network = network._network
