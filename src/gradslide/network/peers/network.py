"""One agent in a process of its own, that knows its neighbours and what they tell it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
import scipy.sparse as sp

from gradslide._support.errors import InputError, require, require_number
from gradslide._support.types import Array, Sparse
from gradslide.graphs.graph import Graph
from gradslide.network.compressors import Compressor
from gradslide.network.costs import CostModel, NormSource
from gradslide.network.peers.discovery import discover
from gradslide.network.peers.errors import PeerError
from gradslide.network.peers.keys import KeyPair
from gradslide.network.peers.links import Links
from gradslide.network.peers.message import Place, Purpose, finite, unlimited
from gradslide.network.peers.neighbour import Neighbour
from gradslide.network.peers.passages import NOTHING, Passage, is_over
from gradslide.network.peers.riders import Rider, Riders
from gradslide.network.peers.rounds import Rounds
from gradslide.network.peers.surroundings import Surroundings
from gradslide.network.peers.tree import Tree
from gradslide.network.protocol import Compute, Done, Reduction


class Diverged(ArithmeticError):
    """The method of this agent left the finite numbers. Nothing of that is sent."""


class Peers:
    """The network as one agent sees it, over encrypted links to its neighbours. Use it as a context manager: neighbours
    then learn that this agent is done, or what went wrong.

    own: its keys. listen: where neighbours dial in, tcp://host:port; None if it only dials. run_id, settings: what all
    agents must have alike. diameter: a bound on the number of hops between any two agents, the same for all; with it
    the agents find out the graph, and number themselves in the order of their public keys. deadline: seconds that a
    neighbour may take for one round; meet: to appear, which may hang on somebody who starts it. checkpoint: the path
    that `solve` is given, too; an agent that was killed and is started again goes on from it, while the others wait.
    exact_norm: use the largest eigenvalue of the Laplacian, which the centre of the graph works out and tells all
    others; otherwise the largest sum of degrees over a link.

    Nobody sees all agents: their points and losses stay with them, and only what was agreed on is known to all. Every
    message is one array of float64, which holds float32 exactly: where the agent is in the algorithm, its vector, and
    what rides along. An exchange involves all neighbours, also those that there is nothing to say to.
    """

    is_local: ClassVar[bool] = False

    def __init__(
        self,
        own: KeyPair,
        listen: str | None,
        neighbours: Sequence[Neighbour],
        *,
        run_id: str,
        diameter: int,
        settings: Mapping[str, str] | None = None,
        deadline: float = 60.0,
        meet: float = 600.0,
        checkpoint: str | Path | None = None,
        exact_norm: bool = True,
    ) -> None:
        require_number("diameter", diameter, "the number of agents less 1 is always enough", least=1, whole=True)
        require_number("meet", meet, "600 waits ten minutes for neighbours to appear", above=0)
        common = {**(settings or {}), "diameter": str(int(diameter)), "exact_norm": str(bool(exact_norm))}
        path = None if checkpoint is None else Path(checkpoint)
        links = Links(
            own,
            listen,
            neighbours,
            run_id=run_id,
            settings=common,
            deadline=deadline,
            checkpoints=path is not None,
        )
        self._own = own.public
        self._neighbours = {neighbour.public_key: neighbour.name for neighbour in neighbours}
        self._diameter, self._exact_norm = int(diameter), bool(exact_norm)
        self._rounds = Rounds(links, path, meet)
        self._found: Surroundings | None = None
        self._riders = Riders()
        self._norm: float | None = None
        self._costs: CostModel | None = None
        self._row: tuple[Array, Array, list[int]] | None = None

    def __repr__(self) -> str:
        return f"Peers(neighbours: {', '.join(self._neighbours.values())})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        # What other errors say may be about data that must stay here.
        told = isinstance(error, PeerError | Diverged)
        self.close("" if error is None else str(error) if told else type(error).__name__)

    def close(self, reason: str = "") -> None:
        """Leave, without a reason if all went well. Neighbours that need more from this agent learn the reason."""
        self._rounds.close(reason)

    # The graph

    @property
    def session(self) -> "PeersSession":
        return PeersSession(self)

    @property
    def _around(self) -> Surroundings:
        if self._found is None:
            remedy = "call network.session.connect() first; solve does so itself"
            raise InputError("an agent knows the network once it is connected", "no connection yet", remedy)
        return self._found

    def _connect(self) -> None:
        # No cached_property: before Python 3.12 its lock would keep agents in other threads from answering.
        if self._found is not None:
            return
        self._found = self._discovered()
        self._rounds.is_common_so_far()
        graph, tree, own = self._found.graph, self._found.tree, self._found.own
        norm: NormSource = "broadcast" if self._exact_norm else "known"
        self._costs = CostModel(graph, self._found.degree, tree.links(own), tree.children(own), norm)

    @property
    def costs(self) -> CostModel:
        """What operations cost this agent."""
        _ = self._around
        assert self._costs is not None
        return self._costs

    def _discovered(self) -> Surroundings:
        place = Place(0, Purpose.DISCOVERY, 0)

        def exchange(links: Array) -> dict[str, Array]:
            return self._rounds.exchange(place, dict.fromkeys(self._neighbours.values(), links))

        graph, keys = discover(self._own, self._neighbours, self._diameter, exchange)
        names = {number: self._neighbours[key] for number, key in enumerate(keys) if key in self._neighbours}
        return Surroundings(graph, Tree(graph), keys.index(self._own), names, keys)

    @property
    def graph(self) -> Graph:
        return self._around.graph

    @property
    def m(self) -> int:
        return self.graph.m

    @property
    def agents(self) -> tuple[int, ...]:
        return (self._around.own,)

    @property
    def public_keys(self) -> tuple[str, ...]:
        """Of all agents, in their order."""
        return self._around.keys

    @property
    def laplacian(self) -> Array:
        return self.graph.laplacian

    # Exchanges

    def batch(self, exchanges: int, v: Array, compute: Callable[[], Done]) -> Done:
        raise NotImplementedError("exchanges are done one by one here")

    def combine(self, v: Array, weights: Array, encoding: Compressor | None = None) -> Array:
        v = np.asarray(v)
        if not np.isfinite(v).all():
            raise Diverged("the method of this agent diverged: its numbers are no longer finite")
        row, columns = self._own_row(weights, v.dtype)
        arrived = self._carry(Purpose.COMBINATION, v.ravel().astype(np.float64), self._riders.aboard())
        arrived[self._around.own] = v.ravel()
        rows = np.array([arrived[j] for j in columns], dtype=v.dtype).reshape(len(columns), v.size)
        # The same product as over all agents, to the bit.
        return (row @ rows).reshape(v.shape)

    def _own_row(self, weights: Sparse, dtype: Any) -> tuple[Sparse, list[int]]:
        """This agent's row of the weights in v's precision, without the columns of others, and whose are left."""
        if self._row is None or self._row[0] is not weights or self._row[1].dtype != dtype:
            around, given = self._around, weights
            # The whole matrix: its entries may change places.
            weights = given if given.dtype == dtype else given.astype(dtype)
            here = slice(*weights.indptr[around.own : around.own + 2].tolist())
            columns: list[int] = weights.indices[here].tolist()
            far = set(columns) - {around.own, *around.names}
            rule, remedy = "weights must join neighbours only", "use one built on network.graph"
            require(not far, rule, f"a weight between agents {around.own} and {min(far, default=0)}", remedy)
            row = sp.csr_array((weights.data[here], range(len(columns)), [0, len(columns)]), shape=(1, len(columns)))
            self._row = given, row, columns
        return self._row[1:]

    def _carry(self, purpose: Purpose, content: Array, passages: Sequence[Passage]) -> dict[int, Array]:
        """One exchange: the content that neighbours sent; the passages are one step further."""
        names, own = self._around.names, content.size
        outgoing = {name: np.concatenate([content, _riding(passages, j)]) for j, name in names.items()}
        sizes = {j: [each.size(j) for each in passages] for j in names}
        place = Place(self._riders.iteration, purpose, len(passages))
        arrived = self._rounds.exchange(place, outgoing, {name: own + sum(sizes[j]) for j, name in names.items()})
        parts = {j: np.split(unlimited(arrived[name][own:]), np.cumsum(sizes[j])[:-1]) for j, name in names.items()}
        for number, passage in enumerate(passages):
            passage.take({j: part[number] for j, part in parts.items()})
        return {j: arrived[name][:own] for j, name in names.items()}

    def _travel(self, purpose: Purpose, passage: Passage) -> None:
        """Control rounds, until the passage is over."""
        while not is_over(passage):
            self._carry(purpose, NOTHING, [passage])

    # What all agents must know alike

    def agree(self, values: Array, reduction: Reduction) -> Array:
        rider = Rider.of(values, reduction, self._around)
        self._travel(Purpose.SUM if reduction == "sum" else Purpose.MAXIMUM, rider.passage)
        return rider.result

    def start_reduce(self, values: Array, reduction: Reduction) -> None:
        values = np.asarray(values, dtype=np.float64) if reduction == "sum" else values
        self._riders.start(Rider.of(values, reduction, self._around))

    def completed(self, reduction: Reduction | None = None) -> list[Array]:
        return self._riders.completed(reduction)

    def survey(self, values: Array, compute: Compute) -> Array:
        around, values = self._around, np.asarray(values)
        spreading = around.spreading(values.ravel().astype(np.float64))
        self._travel(Purpose.SURVEY, spreading)
        rows = spreading.rows().astype(values.dtype).reshape(around.graph.m, *values.shape[1:])
        # All work it out, to know how long it is; all take what the centre found.
        answer = np.asarray(compute(around.graph, rows), dtype=np.float64)
        announcing = around.announcing(answer.ravel())
        self._travel(Purpose.SURVEY, announcing)
        return announcing.values.reshape(answer.shape)

    def norm_bound(self) -> float:
        if not self._exact_norm:
            # A sum of two degrees: all agents know it alike.
            return self.graph.norm_bound
        if self._norm is None:
            around = self._around
            is_root = around.own == around.tree.root
            announcing = around.announcing(np.array([around.graph.laplacian_norm if is_root else 0.0]))
            self._travel(Purpose.NORM, announcing)
            self._set_norm(float(announcing.values[0]))
        assert self._norm is not None
        return self._norm

    def _set_norm(self, norm: float | None) -> None:
        self._norm = norm
        self.costs.norm = "broadcast" if self._exact_norm and norm is None else "known"


class PeersSession:
    """The session of one agent among peers: it sees no data but its own."""

    rank: ClassVar[int] = 0
    size: ClassVar[int] = 1
    sees_all: ClassVar[bool] = False

    def __init__(self, network: Peers) -> None:
        self._network = network

    def connect(self) -> None:
        """Open the links to all neighbours, and find out the graph with them.

        An agent that resumes from a checkpoint knows the graph from there, and opens its links in `resume`.
        """
        self._network._connect()

    def begin(self) -> None:
        self._network._riders = Riders()
        self._network._rounds.begin()

    def checkpoint(self) -> Any:
        network = self._network
        return {**network._rounds.memory(), "riders": network._riders.memory(), "norm": network._norm}

    def resume(self, state: Any) -> None:
        network = self._network
        network._riders = Riders.from_memory(state["riders"], network._around)
        network._set_norm(state["norm"])
        network._rounds.recall(state)

    def checkpointed(self) -> None:
        self._network._rounds.saved()

    def close(self, reason: str = "") -> None:
        self._network.close(reason)

    def all_reduce_signal(self, signal: int) -> int:
        self._network._rounds.end_opening()
        return self._network._riders.settle(signal, self._network._around)

    def observe(self, values: Array, reduction: Reduction) -> Array:
        self._refuse("observations")

    def gather(self, rows: Array) -> Array:
        self._refuse("the rows of all agents")

    def uncounted(self) -> NoReturn:
        self._refuse("a view of the whole network")

    def _refuse(self, what: str) -> NoReturn:
        remedy = "use agree for what all agents are to know"
        raise InputError("an agent among peers sees nobody's data but its own", f"a wish for {what}", remedy)


def _riding(passages: Sequence[Passage], receiver: int) -> Array:
    """What goes to a neighbour besides the content."""
    return finite(np.concatenate([NOTHING, *(each.sent(receiver) for each in passages)]))
