"""The protocol that methods are written against, in three layers.

`Network` is what a method uses, `Network.costs` says what each of its operations costs, and
`Network.session` is what the engine uses around a method: connecting, checkpoints, observations.
"""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeVar

from gradslide._support.types import Array, Sparse, Storable
from gradslide.graphs.graph import Graph
from gradslide.network.compressors import Compressor
from gradslide.network.costs import CostModel

Reduction = Literal["max", "or", "sum"]
# From the graph and the values of all agents, one row each, to numbers that all must know.
Compute = Callable[[Graph, Array], Array]
Done = TypeVar("Done")
# From the sum over all agents to the answer that all must know.
Answer = Callable[[Array], Array]


class Network(Protocol):
    """Agents that exchange messages with their neighbours only.

    Arrays hold one row for each agent that lives in this process, in the order of `agents`. Sums
    over all agents go up a breadth-first tree, rooted at the centre of the graph, and down again;
    maxima are flooded.

    Attributes
    ----------
    graph : Graph
        Which agents are linked.
    m : int
        Number of agents, here and elsewhere.
    agents : sequence of int
        The agents that live in this process.
    laplacian : sparse matrix of shape (m, m)
        The Laplacian of the graph, in the form that `combine` takes.
    is_local : bool
        Whether all agents live in this process and hear exactly what their neighbours sent. Several
        exchanges may then be done as one compiled computation, with `batch`.
    is_reliable : bool
        Whether every message arrives as it was sent, which `total` and `relay` need.
    costs : CostModel
        Rounds and floats that each operation costs.
    session : Session
        What the engine needs around a run.
    """

    @property
    def graph(self) -> Graph:
        """Which agents are linked."""
        ...

    @property
    def m(self) -> int:
        """Number of agents, here and elsewhere."""
        ...

    @property
    def agents(self) -> Sequence[int]:
        """The agents that live in this process."""
        ...

    @property
    def laplacian(self) -> Sparse:
        """The Laplacian of the graph, in the form that `combine` takes."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether all agents live in this process and hear exactly what their neighbours sent."""
        ...

    @property
    def is_reliable(self) -> bool:
        """Whether every message arrives as it was sent, which `total` and `relay` need."""
        ...

    @property
    def costs(self) -> CostModel:
        """Rounds and floats that each operation costs."""
        ...

    @property
    def session(self) -> "Session":
        """What the engine needs around a run."""
        ...

    def combine(self, v: Array, weights: Sparse, encoding: Compressor | None = None) -> Array:
        """Exchange rows with neighbours once, and return sum_j weights_ij v_j.

        The sum is over the neighbours j of i, and i itself.

        Parameters
        ----------
        v : array of shape (agents here, d)
            One row for each agent.
        weights : sparse matrix of shape (m, m)
            In CSR form; only the rows of the agents here count. It must not change while it is in
            use.
        encoding : Compressor, optional
            The compressor that v was encoded with, if it can be sent in fewer floats than it has
            entries.

        Returns
        -------
        array of shape (agents here, d)
            One row for each agent.
        """
        ...

    def batch(self, exchanges: int, v: Array, compute: Callable[[], Done]) -> Done:
        """Do several exchanges of arrays like v at once, in `compute`; only where `is_local`.

        Parameters
        ----------
        exchanges : int
            How many exchanges `compute` replaces; they are counted.
        v : array of shape (m, d)
            An array of the shape and precision that each exchange sends.
        compute : callable
            Takes no arguments and computes what the exchanges would.

        Returns
        -------
        object
            The result of `compute`.
        """
        ...

    def agree(self, values: Array, reduction: Reduction) -> Array:
        """Reduce the rows of all agents to one that all of them know. Costs control rounds.

        Parameters
        ----------
        values : array of shape (agents here, ...)
            One row for each agent.
        reduction : {"max", "or", "sum"}
            Entrywise maximum, logical or, or sum.

        Returns
        -------
        array of the shape of one row
            A NumPy array, the same bits for all agents.
        """
        ...

    def total(self, values: Array) -> Array:
        """Return the exact sum over all agents, the same bits for all of them. Costs rounds.

        It goes up the tree and down again: `costs.sum_rounds` exchanges of vectors.

        Parameters
        ----------
        values : array of shape (rows, ...)
            One row for each agent here, or fewer that are sums over several of them already.

        Returns
        -------
        array of the shape of one row
            A NumPy array in double precision.

        Raises
        ------
        InputError
            If messages may be lost or changed on this network.
        """
        ...

    def relay(self, values: Array, solve: Answer, size: int) -> Array:
        """Sum up the tree, let its root compute an answer, and send that down. Costs rounds.

        Parameters
        ----------
        values : array of shape (rows, ...)
            As for `total`.
        solve : callable
            From the sum to the answer. It is called where the root lives, and nowhere else.
        size : int
            How many numbers the answer has.

        Returns
        -------
        array of shape (size,)
            The answer in double precision, the same bits for all agents.

        Raises
        ------
        InputError
            If messages may be lost or changed on this network.
        """
        ...

    def start_reduce(self, values: Array, reduction: Reduction, channel: str = "") -> None:
        """Start a reduction without control rounds: it is piggybacked on the exchanges to come.

        All agents know its result `costs.control_rounds(reduction)` exchanges later. Any number may
        be under way. Sums are in float64.

        Parameters
        ----------
        values : array of shape (agents here, ...)
            One row for each agent.
        reduction : {"max", "or", "sum"}
            As for `agree`.
        channel : str
            Who asks for the result: empty for methods. The engine's checks have channels of their
            own.
        """
        ...

    def completed(self, reduction: Reduction | None = None, channel: str = "") -> list[Array]:
        """Return the results of a channel that all agents know by now, each of them once.

        They come in the order in which they were started. A reduction that takes fewer exchanges
        may overtake another.

        Parameters
        ----------
        reduction : {"max", "or", "sum"}, optional
            Return results of this kind only, and keep the others for later calls.
        channel : str
            The channel that the reductions were started on.

        Returns
        -------
        list of array
            One array of the shape of one row for each completed reduction.
        """
        ...

    def survey(self, values: Array, compute: Compute) -> Array:
        """Compute numbers from the graph and the rows of all agents, the same bits for all.

        Costs control rounds: every agent floods its edges and its row; the centre of the graph
        computes, and its answer goes down the tree.

        Parameters
        ----------
        values : array of shape (agents here, ...)
            One row for each agent.
        compute : callable
            (graph, values) -> array, where values has one row for each of the m agents.

        Returns
        -------
        array
            The result of `compute`.
        """
        ...

    def norm_bound(self) -> float:
        """Return a bound on the largest eigenvalue of the Laplacian that the agents can find.

        May cost control rounds, see `CostModel.norm_rounds`.

        Returns
        -------
        float
            The eigenvalue or an upper bound.
        """
        ...


class Session(Protocol):
    """One process's part in a run: what the engine does around a method.

    None of it is counted, and none of it steers a method, except that `all_reduce_signal` ends runs.

    Attributes
    ----------
    rank, size : int
        Which process of the run this is, and of how many. The first one shows progress and writes
        results.
    sees_all : bool
        Whether `observe`, `gather` and `uncounted` are available: not where other agents belong to
        other people.
    """

    @property
    def rank(self) -> int:
        """Which process of the run this is, from 0 on."""
        ...

    @property
    def size(self) -> int:
        """The number of processes of the run."""
        ...

    @property
    def sees_all(self) -> bool:
        """Whether `observe`, `gather` and `uncounted` are available."""
        ...

    def connect(self) -> None:
        """Open connections, where there are any, and learn the graph.

        Does nothing the second time.
        """
        ...

    def begin(self) -> None:
        """Start a new run: nothing is left of earlier ones."""
        ...

    def prepared(self) -> None:
        """Note that what was exchanged until now precedes every run over this network.

        An agent that is started again goes through it once more, with what it received then.
        """
        ...

    def checkpoint(self) -> Storable:
        """Return the state that `resume` needs.

        Returns
        -------
        object
            Arrays, numbers, strings, and tuples and lists of these.
        """
        ...

    def resume(self, state: Storable) -> None:
        """Go on from what `checkpoint` returned.

        Parameters
        ----------
        state : object
            The state of this process.
        """
        ...

    def checkpointed(self, is_last: bool = False) -> None:
        """Note that what `checkpoint` returned last is on disk.

        Parameters
        ----------
        is_last : bool
            Whether the run ends there, but for its last exchanges, which a resumed run repeats.
        """
        ...

    def close(self, reason: str = "") -> None:
        """Leave the run.

        Parameters
        ----------
        reason : str
            Why the run failed, which other processes learn; empty if it did not.
        """
        ...

    def observe(self, values: Array, reduction: Reduction) -> Array:
        """Reduce the rows of all agents, as `Network.agree` does, for tables and plots.

        Parameters
        ----------
        values : array of shape (agents here, ...)
            One row for each agent.
        reduction : {"max", "or", "sum"}
            As for `Network.agree`.

        Returns
        -------
        array of the shape of one row
            The result, in all processes.
        """
        ...

    def gather(self, rows: Array) -> Array:
        """Return the rows of all agents. All processes must call it.

        Parameters
        ----------
        rows : array of shape (agents here, ...)
            One row for each agent.

        Returns
        -------
        array of shape (m, ...)
            The rows in the order of the agents.
        """
        ...

    def all_reduce_signal(self, signal: int) -> int:
        """Return the largest control signal of all processes, as far as it is known.

        It ends runs, which all processes must do after the same outer iteration. It is called once
        or more in each of them. Where processes only know their neighbours the result comes later,
        but to all at the same time.

        Parameters
        ----------
        signal : int
            The signal of this process, 0 for none.

        Returns
        -------
        int
            The largest signal, 0 for none.
        """
        ...

    def uncounted(self) -> Network:
        """Return the network as observations use it.

        It is beneath all wrappers, and has piggybacked reductions of its own.

        Returns
        -------
        Network
            A network whose operations are not counted.
        """
        ...
