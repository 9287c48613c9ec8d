"""A network around another one."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, cast

from gradslide._support.errors import InputError, kind_of
from gradslide._support.keywords import CheckedArguments
from gradslide._support.types import Array, Sparse, Storable
from gradslide.graphs.graph import Graph, as_graph
from gradslide.network.compressors import Compressor
from gradslide.network.local import Local
from gradslide.network.protocol import Answer, Compute, Done, Network, Reduction, Session
from gradslide.network.renamed import RenamedMembers


class Wrapper(CheckedArguments, RenamedMembers):
    """Forwards all operations to the network within; subclasses override those that they change.

    An exchange of a wrapper is one of the network within, which moves the piggybacked reductions
    on.

    Parameters
    ----------
    network : Network or Graph
        A graph stands for `Local(graph)`.
    """

    # A wrapper that does something with every exchange cannot do several at once.
    is_local: bool = False

    def __init__(self, network: Network | Graph) -> None:
        graph = as_graph(network)
        if graph is None and not hasattr(network, "combine"):
            rule = f"{type(self).__name__} needs a network"
            raise InputError(rule, kind_of(network), "for example gs.network.Local(graph)")
        self._network = cast(Network, network) if graph is None else Local(graph)
        self.graph, self.m, self.agents = self._network.graph, self._network.m, self._network.agents
        self.laplacian = self._network.laplacian
        self.costs = self._network.costs
        self.is_reliable = self._network.is_reliable

    @property
    def session(self) -> Session:
        return self._network.session

    def __repr__(self) -> str:
        """As the network within: a wrapper that changes what arrives says so."""
        return repr(self._network)

    def combine(self, v: Array, weights: Sparse, encoding: Compressor | None = None) -> Array:
        return self._network.combine(v, weights, encoding)

    def batch(self, exchanges: int, v: Array, compute: Callable[[], Done]) -> Done:
        return self._network.batch(exchanges, v, compute)

    def agree(self, values: Array, reduction: Reduction) -> Array:
        return self._network.agree(values, reduction)

    def total(self, values: Array) -> Array:
        return self._network.total(values)

    def relay(self, values: Array, solve: Answer, size: int) -> Array:
        return self._network.relay(values, solve, size)

    def start_reduce(self, values: Array, reduction: Reduction, channel: str = "") -> None:
        self._network.start_reduce(values, reduction, channel)

    def completed(self, reduction: Reduction | None = None, channel: str = "") -> list[Array]:
        return self._network.completed(reduction, channel)

    def survey(self, values: Array, compute: Compute) -> Array:
        return self._network.survey(values, compute)

    def norm_bound(self) -> float:
        return self._network.norm_bound()


class StatefulWrapper(Wrapper, ABC):
    """A wrapper with state of its own, which is saved with that of the network within."""

    @property
    def session(self) -> Session:
        return cast(Session, _StatefulSession(self, self._network.session))

    @abstractmethod
    def _begin(self) -> None:
        """Forget earlier runs."""

    @abstractmethod
    def _checkpoint(self) -> tuple[Storable, ...]:
        """The state: arrays, numbers, strings, tuples and lists."""

    @abstractmethod
    def _resume(self, *state: Storable) -> None:
        """Go on from what `_checkpoint` returned."""


class _StatefulSession:
    """The session of the network within, but for the wrapper's state."""

    def __init__(self, wrapper: StatefulWrapper, session: Session) -> None:
        self._wrapper, self._session = wrapper, session

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # not there yet when copy makes a session
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._session, name)

    def begin(self) -> None:
        self._session.begin()
        self._wrapper._begin()

    def checkpoint(self) -> Storable:
        return *self._wrapper._checkpoint(), self._session.checkpoint()

    def resume(self, state: Storable) -> None:
        *own, within = cast(tuple[Storable, ...], state)
        self._wrapper._resume(*own)
        self._session.resume(within)


def wrappers(network: Network) -> Iterator[Wrapper]:
    """From the outermost to the innermost."""
    while isinstance(network, Wrapper):
        yield network
        network = network._network
