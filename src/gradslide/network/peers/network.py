"""One agent in a process of its own, that knows its neighbours and what they tell it."""

import json
import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple, NoReturn, Self, cast

import numpy as np
import scipy.sparse as sp

from gradslide._support.errors import InputError, require, require_number
from gradslide._support.keywords import CheckedArguments
from gradslide._support.types import Array, DType, Sparse, Storable
from gradslide.graphs.graph import Graph
from gradslide.network.compressors import Compressor
from gradslide.network.costs import CostModel, NormSource
from gradslide.network.peers.collectives import NOTHING, Collective, Tree, is_done
from gradslide.network.peers.errors import Explain, PeerError
from gradslide.network.peers.keys import KeyPair
from gradslide.network.peers.links import Links
from gradslide.network.peers.neighbour import Neighbour
from gradslide.network.peers.piggyback import PendingReduction, Piggyback, PiggybackState
from gradslide.network.peers.rounds import (
    Owner,
    Position,
    Purpose,
    Rounds,
    RoundsState,
    finite,
    journal_path,
    unlimited,
)
from gradslide.network.peers.secure_sums import (
    LIMBS,
    MOST_AGENTS,
    SEED_WORDS,
    Journal,
    Masks,
    derived_secret,
    require_encodable,
    unmasked,
)
from gradslide.network.peers.topology import Topology, cut_off, discover
from gradslide.network.protocol import Answer, Compute, Done, Reduction
from gradslide.network.renamed import RenamedMembers

_log = logging.getLogger("gradslide.peers")

# A rule that names a file of this machine, or quotes the name of a column, which is nobody else's business.
_ENDINGS = "npz|py|toml|csv|tsv|txt|parquet|pq|arrow|feather|ipc|json|secret|public"
_OWN = re.compile(rf"^checkpoint |[/\\]|(?<!\w)['\"]|\w\.({_ENDINGS})\b")


# What is sent, in words.
_KINDS = {
    Purpose.DISCOVERY: "links of the network",
    Purpose.SEEDS: "seeds of masks",
    Purpose.COMBINATION: "points",
    Purpose.MAXIMUM: "control values",
    Purpose.SUM: "control sums",
    Purpose.SURVEY: "abilities",
    Purpose.NORM: "norm of the graph",
    Purpose.TOTAL: "sums",
    Purpose.RELAY: "sums and answers",
}


class Traffic(NamedTuple):
    """Messages that were not empty, and the numbers in them."""

    messages: int
    numbers: int

    @property
    def bytes(self) -> int:
        """Of the numbers, as doubles."""
        return 8 * self.numbers


class _Saved(RoundsState):
    """What a session saves."""

    piggybacked: PiggybackState
    norm: float | None
    sums: int
    traffic: dict[int, tuple[int, int]]


class Diverged(ArithmeticError):
    """The method of this agent left the finite numbers. Nothing of that is sent."""


def public_reason(error: BaseException) -> str:
    """What neighbours may know of an error: more might say something about data that must stay here."""
    if isinstance(error, PeerError):
        return error.public_reason
    if isinstance(error, Diverged):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if not isinstance(error, InputError):
        return type(error).__name__
    if not _OWN.search(error.rule):
        return error.rule
    return "its checkpoint does not fit this run" if "checkpoint" in error.rule else "its input needs a correction"


def _refuse_with_secure_sums(what: str) -> NoReturn:
    rule = "with secure_sums agents exchange masked sums only"
    raise InputError(rule, what, 'use a method over exact sums: name = "newton" or "lbfgs" under [method]')


class Peers(CheckedArguments, RenamedMembers):
    """The network as one agent sees it, over encrypted links to its neighbours.

    Use it as a context manager: neighbours then learn that this agent is done, or what went wrong.
    Connections are opened by `network.session.connect()`, which `solve` calls.

    Parameters
    ----------
    own : KeyPair
        The keys of this agent, for example from `gradslide.network.peers.keys.read_secret`.
    listen : str or None
        Where neighbours connect to, tcp://host:port; None for an agent that only connects to
        others.
    neighbours : sequence of Neighbour
        At least one.
    run_id : str
        The name of the run, the same for all agents.
    diameter : int
        A bound on the number of hops between any two agents, the same for all. With it the agents
        discover the graph; they number themselves in the order of their public keys.
    settings : mapping of str to str, optional
        What all agents must have in common; neighbours that differ refuse each other.
    deadline : float
        Seconds that a neighbour may take for one round.
    meet : float
        Seconds that neighbours may take to appear, which may depend on people who start them.
    checkpoint : path, optional
        The path that `solve` is given, too. An agent that was killed and is started again goes on
        from it, while the others wait. A checkpoint of another `run_id`, or of other keys, is
        renamed (`run.npz` to `run.1.npz`) by `connect`, and the run starts anew.
    exact_norm : bool
        Use the largest eigenvalue of the Laplacian, which the centre of the graph computes and
        broadcasts; otherwise the largest sum of degrees over a link.
    explain : mapping of str to callable, optional
        For settings whose differences need words: from a neighbour's value to sentences.
    secure_sums : bool
        Mask what is summed, so that no neighbour sees the part of another; alike for all. Methods that
        exchange iterates are refused then.

    Notes
    -----
    No process sees all agents: their points and losses stay with them, and only what was agreed on
    is known to all. Every message is one array of float64, which holds float32 exactly: the agent's
    position in the algorithm, its vector, and the piggybacked reductions. An exchange involves all
    neighbours, also those that nothing is sent to.

    Until it is connected, `graph`, `m`, `agents`, `laplacian`, `costs` and `public_keys` raise
    InputError.
    """

    is_local: ClassVar[bool] = False
    is_reliable: ClassVar[bool] = True

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
        explain: Mapping[str, Explain] | None = None,
        secure_sums: bool = False,
    ) -> None:
        require_number("diameter", diameter, "the number of agents less 1 is always enough", least=1, whole=True)
        require_number("meet", meet, "600 waits ten minutes for neighbours to appear", above=0)
        common = {**(settings or {}), "diameter": str(int(diameter)), "exact_norm": str(bool(exact_norm))}
        common |= {"secure_sums": "True"} if secure_sums else {}
        path = None if checkpoint is None else Path(checkpoint)
        links = Links(
            own,
            listen,
            neighbours,
            run_id=run_id,
            settings=common,
            deadline=deadline,
            checkpoints=path is not None,
            explain=explain,
        )
        self._own, self._is_secure = own.public, bool(secure_sums)
        self._neighbours = {neighbour.public_key: neighbour.name for neighbour in neighbours}
        self._diameter, self._exact_norm = int(diameter), bool(exact_norm)
        self._rounds = Rounds(links, path, meet, Owner(run_id, own.public, tuple(sorted(self._neighbours))))
        self._journal: Journal | None = None
        if secure_sums and path is not None:
            run = json.dumps([run_id, own.public, sorted(self._neighbours), common], sort_keys=True)
            start, is_resumed = self._rounds.start, self._rounds.is_resumed
            self._journal = Journal(journal_path(path), run, start, is_resumed=is_resumed)
            self._rounds.start = self._journal.start
        secret = derived_secret(own.secret, self._rounds.start)
        self._masks = Masks(secret, own.public, self._journal) if secure_sums else None
        self._connected: tuple[Topology, CostModel] | None = None
        self._piggyback = Piggyback()
        self._norm: float | None = None
        self._row: tuple[Sparse, Sparse, list[int]] | None = None
        self._traffic: dict[Purpose, Traffic] = {}

    def __repr__(self) -> str:
        return f"Peers(neighbours: {', '.join(self._neighbours.values())})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyboardInterrupt):
            # It may be started again, also before the first outer iteration.
            self._rounds.close("it was interrupted from the keyboard", may_return=True)
        else:
            self.close("" if error is None else public_reason(error))

    def finish(self, seconds: float) -> list[str]:
        """Tell neighbours that this agent has finished, and wait until they have.

        A neighbour that was killed before it had finished may need messages of this agent again.
        What this agent needs to finish once more, should it be killed itself, is on disk before.

        Parameters
        ----------
        seconds : float
            How long to wait while no neighbour gets any further.

        Returns
        -------
        list of str
            The neighbours that have not finished.
        """
        return self._rounds.finish(seconds)

    def close(self, reason: str = "") -> None:
        """Leave, without a reason if all went well.

        Neighbours that need more from this agent learn the reason. Without one, the agent first
        waits until they have finished, see `finish`, at most `meet` seconds.
        """
        if reason and self._journal is not None and self._journal.is_new and not self._rounds.has_begun:
            # All agents leave. Who goes on with an earlier start may have neighbours that wait for it.
            self._journal.forget()
        self._rounds.close(reason)

    @property
    def session(self) -> "PeersSession":
        return PeersSession(self)

    # The graph

    def _connect(self) -> None:
        if self._connected is not None:
            return
        self._rounds.connect()
        position = Position(0, Purpose.DISCOVERY, 0)

        def exchange(links: Array) -> dict[str, Array]:
            outgoing = dict.fromkeys(self._neighbours.values(), links)
            self._note_traffic(Purpose.DISCOVERY, outgoing)
            return self._rounds.exchange(position, outgoing)

        graph, keys = discover(self._own, self._neighbours, self._diameter, exchange)
        names = {number: self._neighbours[key] for number, key in enumerate(keys) if key in self._neighbours}
        tree, own = Tree(graph), keys.index(self._own)
        norm: NormSource = "broadcast" if self._exact_norm else "known"
        costs = CostModel(graph, len(names), tree.links(own), tree.children(own), norm)
        self._connected = Topology(graph, tree, own, names, keys), costs
        if self._masks is not None:
            self._share_masks(self._masks)
        self._rounds.mark_common()

    def _share_masks(self, masks: Masks) -> None:
        """Exchange seeds with all neighbours, from which both ends of a link derive their key."""
        topology, costs = self._known()
        rule, remedy = f"secure sums take up to {MOST_AGENTS} agents", "leave secure_sums out"
        require(topology.graph.m <= MOST_AGENTS, rule, f"{topology.graph.m}", remedy)
        costs.sum_width = LIMBS
        position = Position(0, Purpose.SEEDS, 0)
        outgoing = {name: masks.seed_for(key) for key, name in self._neighbours.items()}
        self._note_traffic(Purpose.SEEDS, outgoing)
        seeds = self._rounds.exchange(position, outgoing, dict.fromkeys(outgoing, SEED_WORDS))
        masks.share({key: seeds[name] for key, name in self._neighbours.items()})
        text = "secure sums hide from %s no more than the sum of the %d agents that reach the others through it"
        for number, name in topology.names.items():
            if (cut := cut_off(topology.graph, topology.own, number)) < topology.graph.m - 1:
                _log.warning(text, name, cut)

    def _known(self) -> tuple[Topology, CostModel]:
        if self._connected is None:
            remedy = "call network.session.connect() first; solve does so itself"
            raise InputError("an agent knows the network when it is connected", "no connection yet", remedy)
        return self._connected

    @property
    def _topology(self) -> Topology:
        return self._known()[0]

    @property
    def costs(self) -> CostModel:
        """What operations cost this agent."""
        return self._known()[1]

    @property
    def graph(self) -> Graph:
        return self._topology.graph

    @property
    def m(self) -> int:
        return self.graph.m

    @property
    def agents(self) -> tuple[int, ...]:
        return (self._topology.own,)

    @property
    def public_keys(self) -> tuple[str, ...]:
        """Of all agents, in their order."""
        return self._topology.keys

    @property
    def names(self) -> dict[int, str]:
        """What this agent calls its neighbours, by their numbers."""
        return dict(self._topology.names)

    @property
    def laplacian(self) -> Sparse:
        return self.graph.laplacian

    # Exchanges

    def combine(self, v: Array, weights: Sparse, encoding: Compressor | None = None) -> Array:
        if self._is_secure:
            _refuse_with_secure_sums("an exchange of points between neighbours")
        v = np.asarray(v)
        if not np.isfinite(v).all():
            raise Diverged("the method of this agent diverged: its numbers are no longer finite")
        row, columns = self._own_row(weights, v.dtype)
        received = self._exchange(Purpose.COMBINATION, v.ravel().astype(np.float64), self._piggyback.pending())
        received[self._topology.own] = v.ravel()
        rows = np.array([received[j] for j in columns], dtype=v.dtype).reshape(len(columns), v.size)
        # The same product as over all agents, to the bit.
        return (row @ rows).reshape(v.shape)

    def batch(self, exchanges: int, v: Array, compute: Callable[[], Done]) -> Done:
        raise NotImplementedError("exchanges are done one by one here")

    def _own_row(self, weights: Sparse, dtype: DType) -> tuple[Sparse, list[int]]:
        """This agent's row of the weights in v's precision, without the columns of others, and
        whose are left.
        """
        if self._row is None or self._row[0] is not weights or self._row[1].dtype != dtype:
            topology, given = self._topology, weights
            # The whole matrix: its entries may change places.
            weights = given if given.dtype == dtype else given.astype(dtype)
            here = slice(*weights.indptr[topology.own : topology.own + 2].tolist())
            columns: list[int] = weights.indices[here].tolist()
            far = set(columns) - {topology.own, *topology.names}
            rule, remedy = "weights must join neighbours only", "use one built on network.graph"
            require(not far, rule, f"a weight between agents {topology.own} and {min(far, default=0)}", remedy)
            row = sp.csr_array((weights.data[here], range(len(columns)), [0, len(columns)]), shape=(1, len(columns)))
            self._row = given, row, columns
        return self._row[1:]

    def _exchange(self, purpose: Purpose, content: Array, collectives: Sequence[Collective]) -> dict[int, Array]:
        """One exchange, which moves the collectives one step on.

        Returns the content that neighbours sent.
        """
        names, own = self._topology.names, content.size
        outgoing = {name: np.concatenate([content, _sent(collectives, j)]) for j, name in names.items()}
        sizes = {j: [each.size(j) for each in collectives] for j in names}
        position = Position(self._piggyback.iteration, purpose, len(collectives))
        self._note_traffic(purpose, outgoing)
        received = self._rounds.exchange(position, outgoing, {name: own + sum(sizes[j]) for j, name in names.items()})
        parts = {j: np.split(unlimited(received[name][own:]), np.cumsum(sizes[j])[:-1]) for j, name in names.items()}
        for number, each in enumerate(collectives):
            each.advance({j: part[number] for j, part in parts.items()})
        return {j: received[name][:own] for j, name in names.items()}

    def _note_traffic(self, purpose: Purpose, outgoing: Mapping[str, Array]) -> None:
        sent = [each.size for each in outgoing.values() if each.size]
        if sent and not self._rounds.is_replaying:
            known = self._traffic.get(purpose, Traffic(0, 0))
            self._traffic[purpose] = Traffic(known.messages + len(sent), known.numbers + sum(sent))

    @property
    def traffic(self) -> dict[str, "Traffic"]:
        """What was sent to all neighbours, by kind: since the agent was started, and before its checkpoint."""
        return {_KINDS[purpose]: each for purpose, each in self._traffic.items()}

    def _complete(self, purpose: Purpose, collective: Collective) -> None:
        """Control rounds until the collective is done."""
        while not is_done(collective):
            self._exchange(purpose, NOTHING, [collective])

    # Collectives

    def agree(self, values: Array, reduction: Reduction) -> Array:
        if self._is_secure and reduction == "sum":
            values, size = np.asarray(values), math.prod(np.shape(values)[1:])
            found = self._answered(Purpose.SUM, values, np.ravel, size, self._complete)
            return found.reshape(values.shape[1:]).astype(values.dtype)
        pending = PendingReduction.of(values, reduction, self._topology)
        self._complete(Purpose.SUM if reduction == "sum" else Purpose.MAXIMUM, pending.collective)
        return pending.result

    def total(self, values: Array) -> Array:
        shape = np.shape(values)[1:]
        if self._masks is not None:
            # Where a method tries points out, in relay, it takes infinity for what is too large.
            require_encodable(self._own_sum(values))
            return self.relay(values, np.ravel, math.prod(shape)).reshape(shape)
        summed = self._topology.reduction(self._own_sum(values), "sum")
        self._carry(Purpose.TOTAL, summed)
        return summed.values.reshape(shape)

    def relay(self, values: Array, solve: Answer, size: int) -> Array:
        return self._answered(Purpose.RELAY, values, solve, size, self._carry)

    def _answered(
        self, purpose: Purpose, values: Array, solve: Answer, size: int, carry: Callable[[Purpose, Collective], None]
    ) -> Array:
        """What the root computes from the sum, which others see in parts, or masked."""
        topology, own = self._topology, self._own_sum(values)
        summed = topology.partial_sum(own if self._masks is None else self._masks.masked(own))
        carry(purpose, summed)
        answer = np.zeros(size)
        if topology.own == topology.tree.root:
            found = summed.values if self._masks is None else unmasked(summed.values, self.m)
            answer = np.asarray(solve(found.reshape(np.shape(values)[1:])), dtype=np.float64)
        broadcast = topology.broadcast(answer)
        carry(purpose, broadcast)
        return broadcast.values

    def _own_sum(self, values: Array) -> Array:
        return np.sum(np.asarray(values, dtype=np.float64), axis=0).ravel()

    def _carry(self, purpose: Purpose, collective: Collective) -> None:
        """Rounds until the collective is done, on which piggybacked reductions travel, too."""
        while not is_done(collective):
            self._exchange(purpose, NOTHING, [collective, *self._piggyback.pending()])

    def start_reduce(self, values: Array, reduction: Reduction, channel: str = "") -> None:
        if self._is_secure and reduction == "sum":
            _refuse_with_secure_sums("a piggybacked sum")
        values = np.asarray(values, dtype=np.float64) if reduction == "sum" else values
        self._piggyback.start(PendingReduction.of(values, reduction, self._topology, channel))

    def completed(self, reduction: Reduction | None = None, channel: str = "") -> list[Array]:
        return self._piggyback.completed(reduction, channel)

    def survey(self, values: Array, compute: Compute) -> Array:
        topology, values = self._topology, np.asarray(values)
        gathered = topology.all_gather(values.ravel().astype(np.float64))
        self._complete(Purpose.SURVEY, gathered)
        rows = gathered.rows().astype(values.dtype).reshape(topology.graph.m, *values.shape[1:])
        # All compute it, to know how long it is; all take what the centre found.
        answer = np.asarray(compute(topology.graph, rows), dtype=np.float64)
        broadcast = topology.broadcast(answer.ravel())
        self._complete(Purpose.SURVEY, broadcast)
        return broadcast.values.reshape(answer.shape)

    def norm_bound(self) -> float:
        if not self._exact_norm:
            # A sum of two degrees: all agents know the same.
            return self.graph.norm_bound
        if self._norm is None:
            topology = self._topology
            is_root = topology.own == topology.tree.root
            broadcast = topology.broadcast(np.array([topology.graph.laplacian_norm if is_root else 0.0]))
            self._complete(Purpose.NORM, broadcast)
            self._set_norm(float(broadcast.values[0]))
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
        """Open the links to all neighbours, and discover the graph with them.

        Does nothing the second time.

        An agent that resumes from a checkpoint knows the graph from there, and opens its links in
        `resume`.
        """
        self._network._connect()

    def begin(self) -> None:
        self._network._piggyback = Piggyback()
        self._network._rounds.begin()

    def prepared(self) -> None:
        self._network._rounds.mark_common()

    def checkpoint(self) -> Storable:
        network = self._network
        counter = 0 if network._masks is None else network._masks.counter
        state = network._rounds.checkpoint()
        traffic = {int(purpose): tuple(each) for purpose, each in network._traffic.items()}
        piggybacked, norm = network._piggyback.checkpoint(), network._norm
        return {**state, "piggybacked": piggybacked, "norm": norm, "sums": counter, "traffic": traffic}

    def resume(self, state: Storable) -> None:
        network, saved = self._network, cast(_Saved, state)
        network._piggyback = Piggyback.resumed(saved["piggybacked"], network._topology)
        network._set_norm(saved["norm"])
        if network._masks is not None:
            network._masks.counter = saved["sums"]
        network._traffic = {Purpose(each): Traffic(*sent) for each, sent in saved.get("traffic", {}).items()}
        network._rounds.resume(saved)

    def checkpointed(self, is_last: bool = False) -> None:
        self._network._rounds.checkpointed(is_last)

    def close(self, reason: str = "") -> None:
        self._network.close(reason)

    def all_reduce_signal(self, signal: int) -> int:
        self._network._rounds.begin_iterations()
        return self._network._piggyback.all_reduce_signal(signal, self._network._topology)

    def observe(self, values: Array, reduction: Reduction) -> Array:
        self._refuse("observations")

    def gather(self, rows: Array) -> Array:
        self._refuse("the rows of all agents")

    def uncounted(self) -> NoReturn:
        self._refuse("a view of the whole network")

    def _refuse(self, what: str) -> NoReturn:
        remedy = "use agree for what all agents are to know"
        raise InputError("an agent among peers sees no data but its own", f"a request for {what}", remedy)


def _sent(collectives: Sequence[Collective], receiver: int) -> Array:
    """What collectives send to a neighbour, after the content."""
    return finite(np.concatenate([NOTHING, *(each.sent(receiver) for each in collectives)]))
