"""Agents on the processes of MPI, each of which owns a block of them."""

import os
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace

from gradslide._support.arrays import doubles, dtype_of, is_numpy, sparse_like, to_numpy
from gradslide._support.cores import usable_cores
from gradslide._support.errors import InputError, require, require_number
from gradslide._support.types import Array, Device, DType, Sparse
from gradslide.graphs.graph import GraphLike
from gradslide.network.collectives import exact_sum, reduced, require_reduction
from gradslide.network.local import OnGraph
from gradslide.network.mpi.communicator import mpi_library, shared_communicator
from gradslide.network.mpi.devices import is_cuda_aware, own_device
from gradslide.network.mpi.exchange import Exchange, Wait, layout_of
from gradslide.network.mpi.partition import partition
from gradslide.network.piggyback import LocalSession
from gradslide.network.protocol import Answer, Compute, Network, Reduction

if TYPE_CHECKING:
    from mpi4py import MPI as Library

# Matrices whose parts are kept.
_MOST_WEIGHTS = 16


class MPI(OnGraph):
    """Agents on the processes of MPI, each of which owns a block of them.

    All processes must make it, with the same graph, and call `solve` in the same way. Making it is
    collective: it connects the processes with each other's watchdog.

    Parameters
    ----------
    graph : Graph or networkx.Graph
        Which agents are linked.
    comm : mpi4py.MPI.Intracomm, optional
        The communicator, the world by default.
    exact_norm : bool
        Use the exact largest eigenvalue of the Laplacian; otherwise the bound that agents find with
        one exchange and a flooded maximum.
    timeout : float
        Where a process dies, hangs or raises, all others end after so many seconds with an error
        that names it.
    device : str or torch.device, optional
        Where `solve` moves the agents of this process first (PyTorch). "cuda" without an index
        shares the devices of a host among its processes, in turn. By default arrays stay where they
        are. What is agreed on, observed and returned are NumPy arrays.
    cuda_aware : bool, optional
        Whether MPI is given the memory of the device. Otherwise rows that are sent pass through
        pinned memory of the host. By default the environment variable ``GRADSLIDE_CUDA_AWARE`` (0
        or 1) says so, and without it MPI is asked (see Notes).

    Attributes
    ----------
    agents : tuple of int
        The agents of this process, chosen so that few edges are cut. Only rows that another process
        needs are sent.
    device : torch.device or None
        That of this process.
    cuda_aware : bool
        Whether MPI is given the memory of the device: in all processes, or in none.

    Notes
    -----
    Iterates are those of `Local`, for any number of processes: sums over all agents are exact, so
    that their order does not matter. On a device they are the same to rounding. Costs are those of
    all agents, as on `Local`.

    MPI is taken to be CUDA-aware if its function ``MPIX_Query_cuda_support`` returns 1 (Open MPI,
    MPICH, MVAPICH), or if it is Cray's and ``MPICH_GPU_SUPPORT_ENABLED`` is 1. All processes must
    find so.

    Examples
    --------
    Run with ``mpiexec -n 4 python program.py``:

    >>> import gradslide as gs
    >>> network = gs.network.MPI(gs.Graph.ring(40))         # doctest: +SKIP
    >>> solution = gs.solve(problem.take(network.agents), network)  # doctest: +SKIP

    Each process on a GPU:

    >>> network = gs.network.MPI(gs.Graph.ring(40), device="cuda")  # doctest: +SKIP
    """

    def __init__(
        self,
        graph: GraphLike,
        *,
        comm: "Library.Intracomm | None" = None,
        exact_norm: bool = True,
        timeout: float = 30.0,
        device: Device = None,
        cuda_aware: bool | None = None,
    ) -> None:
        super().__init__(graph, exact_norm=exact_norm)
        graph = self.graph
        rule, remedy = "cuda_aware needs a device", 'give one too, for example device="cuda"'
        require(cuda_aware is None or device is not None, rule, f"cuda_aware={cuda_aware}", remedy)
        require_number("timeout", timeout, "seconds without a sign of life", above=0)
        self._library = mpi_library()
        comm = self._library.COMM_WORLD if comm is None else comm
        rule = "MPI needs at least one agent for each process"
        require(comm.size <= graph.m, rule, f"{graph.m} agents, {comm.size} processes", "start fewer processes")
        self._shared = shared_communicator(comm, timeout)
        self._comm = self._shared.comm
        self._is_observing = False
        host_rank, is_crowded = self._place_on_host()
        self._wait = Wait(is_crowded)
        self._require_same_graph()
        self.device, self.cuda_aware = self._agreed_device(device, host_rank, cuda_aware)
        owner = self._shared.broadcast(partition(graph, comm.size) if comm.rank == 0 else np.empty(0, dtype=np.int64))
        self._layout = layout_of(graph, owner, comm.rank)
        self.agents = tuple(self._layout.agents.tolist())
        self._counts = np.bincount(owner, minlength=comm.size).tolist()
        self._exchange = Exchange(self._shared, self._layout, self._counts, self._wait, self.cuda_aware)
        self._weights: dict[tuple[int, str, str], Any] = {}

    @property
    def session(self) -> "MPISession":
        return MPISession(self)

    def _combine(self, v: Array, weights: Sparse) -> Array:
        self._shared.note_exchange(is_round=not self._is_observing)
        inside, border = self._parts(weights, v)
        if self._comm.size == 1:
            return inside @ v
        traffic, interior, result = self._exchange.traffic(v), self._layout.interior, _empty_like(v)
        traffic.start(v)
        # What needs no other process is done while rows travel.
        if interior > 0:
            result[:interior] = inside @ v
        traffic.fill(v)
        traffic.finish()
        result[interior:] = border @ traffic.around
        return result

    def agree(self, values: Array, reduction: Reduction) -> Array:
        require_reduction(reduction)
        if reduction != "sum" and not is_numpy(values):
            # One row leaves the device.
            values = reduced(values, reduction)[None]
        values = to_numpy(values)
        if reduction == "or":
            return self._reduced(np.any(values, axis=0).astype(np.uint8), self._library.MAX) > 0
        if reduction == "max":
            return self._largest(np.max(values, axis=0))
        if values.dtype.kind != "f":
            return self._reduced(np.sum(values, axis=0), self._library.SUM)
        return exact_sum(values, self.m, self._largest, lambda sums: self._reduced(sums, self._library.SUM))

    def relay(self, values: Array, solve: Answer, size: int) -> Array:
        total = self.total(values)
        return self._shared.broadcast(solve(total) if self._comm.rank == 0 else np.empty(0))

    def survey(self, values: Array, compute: Compute) -> Array:
        rows = self.session.gather(to_numpy(values).astype(np.float64, copy=False))
        answer = np.asarray(compute(self.graph, rows), dtype=np.float64) if self._comm.rank == 0 else np.empty(0)
        return self._shared.broadcast(answer)

    def norm_bound(self) -> float:
        """That of the first process: machines may differ in the last digit."""
        return float(self._shared.broadcast(np.array([super().norm_bound()] if self._comm.rank == 0 else []))[0])

    def _parts(self, weights: Sparse, v: Array) -> tuple[Array, Array]:
        """Split the weights into rows of agents without neighbours elsewhere, and other rows.

        The former apply to the rows here, the latter to what is around the border. Columns keep
        their order, and so do sums; on a device, whose library wants them ascending, they do not.
        """
        key = (id(weights), str(v.dtype), "" if is_numpy(v) else str(v.device))
        if key not in self._weights:
            if len(self._weights) >= _MOST_WEIGHTS:
                self._weights.pop(next(iter(self._weights)))
            # The original is kept beside its parts: its id stays taken as long as the entry lives.
            split = self._split(sp.csr_array(weights), dtype_of(v))
            if not is_numpy(v):
                split = tuple(sparse_like(part.sorted_indices(), v) for part in split)
            self._weights[key] = (weights, split)
        parts: tuple[Array, Array] = self._weights[key][1]
        return parts

    def _split(self, weights: Sparse, dtype: DType) -> tuple[Sparse, ...]:
        layout = self._layout
        require(weights.shape == (self.m, self.m), "weights must be (m, m)", weights.shape, "one row for each agent")
        rows = weights[layout.agents].astype(dtype)
        inside, border = rows[: layout.interior], rows[layout.interior :]
        around = np.concatenate([layout.agents[layout.near], self._exchange.known])
        return _renumbered(inside, layout.agents, self.m), _renumbered(border, around, self.m)

    def _reduced(self, values: Array, operation: Any) -> Array:
        self._shared.note_exchange()
        result = np.empty_like(values)
        self._wait(self._comm.Iallreduce(np.ascontiguousarray(values), result, operation))
        return result

    def _largest(self, values: Array) -> Array:
        """The entrywise maximum; not a number where one of them is not."""
        values = np.asarray(values)
        if values.dtype.kind == "b":
            return self._reduced(values.astype(np.uint8), self._library.MAX) > 0
        if values.dtype.kind != "f":
            return self._reduced(values, self._library.MAX)
        unknown = np.isnan(values)
        both = np.stack([np.where(unknown, -np.inf, values), unknown])
        largest, was_unknown = self._reduced(both.astype(np.float64), self._library.MAX)
        return np.where(was_unknown > 0, np.nan, largest).astype(values.dtype)

    def _require_same_graph(self) -> None:
        mark = np.frombuffer(bytes.fromhex(self.graph.fingerprint), dtype=np.uint8)
        differs = not np.array_equal(mark, self._shared.broadcast(mark))
        rule = "all processes must have the same graph"
        # All refuse, or none: the others would wait for those that do.
        require(self.session.all_reduce_signal(differs) == 0, rule, repr(self.graph), "give random ones the same seed")

    def _place_on_host(self) -> tuple[int, bool]:
        """The number of this process among those of this machine, and whether those are more than
        can run at a time.
        """
        host = self._comm.Split_type(self._library.COMM_TYPE_SHARED)
        rank = int(host.rank)
        crowded = host.size > usable_cores() if hasattr(os, "sched_getaffinity") else True
        host.Free()
        return rank, crowded

    def _agreed_device(self, device: Device, host_rank: int, cuda_aware: bool | None) -> tuple[Device, bool]:
        """The device of this process, and whether MPI is given its memory, everywhere."""
        found, wanted, error = None, False, None
        if device is not None:
            try:
                found = own_device(device, host_rank)
                wanted = is_cuda_aware(self._library, found, cuda_aware)
            except InputError as refusal:
                error = refusal
        # All refuse, or none: the others would wait for those that do.
        refused = self.session.all_reduce_signal(error is not None)
        if error is not None:
            raise error
        require(refused == 0, "every process needs its device", "one without", "its own error says why")
        return found, self.session.all_reduce_signal(not wanted) == 0


class MPISession(LocalSession):
    """The session of one process among those of MPI."""

    _network: MPI

    def __init__(self, network: MPI) -> None:
        super().__init__(network)
        self.rank, self.size = int(network._comm.rank), int(network._comm.size)

    def observe(self, values: Array, reduction: Reduction) -> Array:
        if reduction != "sum" or is_numpy(values) or dtype_of(values).kind != "f":
            return self._network.agree(values, reduction)
        # One row leaves the device. Observations may depend on the order of a sum.
        part = to_numpy(array_namespace(values).sum(doubles(values), axis=0))
        return self._network.agree(part[None], "sum").astype(dtype_of(values), copy=False)

    def all_reduce_signal(self, signal: int) -> int:
        return int(self._network._reduced(np.array([signal], dtype=np.int64), self._network._library.MAX)[0])

    def gather(self, rows: Array) -> Array:
        network = self._network
        network._shared.note_exchange()
        rows = np.ascontiguousarray(to_numpy(rows))
        width = rows[0].size
        everything = np.empty((network.m, *rows.shape[1:]), dtype=rows.dtype)
        network._comm.Allgatherv(rows, (everything, [width * count for count in network._counts]))
        ordered = np.empty_like(everything)
        ordered[network._exchange.everybody] = everything
        return ordered

    def uncounted(self) -> Network:
        other = super().uncounted()
        cast(MPI, other)._is_observing = True
        return other


def _empty_like(v: Array) -> Array:
    if is_numpy(v):
        return np.empty(v.shape, dtype=v.dtype)
    return array_namespace(v).empty(v.shape, dtype=v.dtype, device=v.device)


def _renumbered(rows: Sparse, agents: Array, m: int) -> Sparse:
    """The same rows on the rows of these agents, in the order in which they were."""
    column = np.full(m, -1)
    # Backwards, so that of an agent that is there twice the first place counts.
    column[agents[::-1]] = np.arange(len(agents))[::-1]
    indices = column[rows.indices]
    rule = "weights must join neighbours only"
    require(bool(np.all(indices >= 0)), rule, "a weight between agents without a link", "build them from the graph")
    return sp.csr_array((rows.data, indices, rows.indptr), shape=(rows.shape[0], len(agents)))
