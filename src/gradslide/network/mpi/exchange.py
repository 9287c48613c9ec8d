"""Rows that travel between processes: only those that a neighbour elsewhere needs."""

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gradslide._support.arrays import dtype_of, is_numpy
from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.network.mpi.communicator import Borders, SharedCommunicator
from gradslide.network.mpi.devices import DeviceTraffic, Staging

# From this share of all rows on they are sent to everybody.
_NEARLY_ALL = 0.75


@dataclass(frozen=True)
class Layout:
    """Where the rows of a process are.

    Attributes
    ----------
    agents : array of int
        The agents here, those without a neighbour elsewhere first.
    interior : int
        Number of agents without a neighbour elsewhere.
    near : array of int
        Rows of the agents that the others need: themselves and their neighbours.
    outgoing, incoming : dict of int to array
        By process, the agents whose rows are sent to it and come from it.
    borders : Borders
        Of all processes.
    """

    agents: Array
    interior: int
    near: Array
    outgoing: dict[int, Array]
    incoming: dict[int, Array]
    borders: Borders

    @property
    def ghosts(self) -> Array:
        """The agents elsewhere whose rows come, in the order in which they do."""
        return np.concatenate([np.empty(0, dtype=np.int64), *self.incoming.values()])


def layout_of(graph: Graph, owner: Array, rank: int) -> Layout:
    """Lay out the rows of one process. owner: the process of every agent."""
    pairs = np.concatenate([graph.edges, graph.edges[:, ::-1]])
    owners = owner[pairs]
    borders = np.unique(owners[owners[:, 0] != owners[:, 1]], axis=0)
    here = pairs[(owner[pairs[:, 0]] == rank) & (owner[pairs[:, 1]] != rank)]
    others = np.unique(owner[here[:, 1]]).tolist()
    boundary = np.unique(here[:, 0])
    interior = np.setdiff1d(np.flatnonzero(owner == rank), boundary)
    agents = np.concatenate([interior, boundary])
    beside = np.union1d(boundary, graph.adjacency[boundary].indices)
    return Layout(
        agents=agents,
        interior=len(interior),
        near=np.flatnonzero(np.isin(agents, beside)),
        outgoing={other: np.unique(here[owner[here[:, 1]] == other, 0]) for other in others},
        incoming={other: np.unique(here[owner[here[:, 1]] == other, 1]) for other in others},
        borders=tuple(map(tuple, borders.tolist())),
    )


class Exchange:
    """The exchanges of one process, with buffers and persistent requests for every shape that was
    asked for.

    known: the agents elsewhere whose rows come. staging: what rows on a device cost the host.
    """

    def __init__(
        self, shared: SharedCommunicator, layout: Layout, counts: list[int], wait: "Wait", is_direct: bool = False
    ) -> None:
        """counts: how many agents live in each process. is_direct: whether MPI is given the memory
        of devices, in all processes; collectives that do not block may not take it, messages do.
        """
        from mpi4py import MPI

        comm = shared.comm
        self._shared, self._comm, self._layout, self._counts, self._wait = shared, comm, layout, counts, wait
        elsewhere = sum(counts) - len(layout.agents)
        crowded = elsewhere == 0 or len(layout.ghosts) >= _NEARLY_ALL * elsewhere
        self._is_direct = is_direct
        self.sends_all = not is_direct and comm.size > 2 and bool(comm.allreduce(int(crowded), MPI.MIN))
        self._links: Any = None
        if not (self.sends_all or is_direct):
            self._links = shared.neighbourhood(layout.borders)
        self.staging = Staging()
        self._traffic: dict[tuple[int, str, str], Traffic | DeviceTraffic] = {}
        # MPI wants requests back before the end; communicators too, but that would wait for others.
        weakref.finalize(self, _free, self._traffic)
        self.known = self.everybody if self.sends_all else layout.ghosts

    @cached_property
    def everybody(self) -> Array:
        """All agents, in the order of their processes. All of these must ask for it."""
        self._shared.note_exchange()
        agents = np.empty(sum(self._counts), dtype=np.int64)
        self._comm.Allgatherv(self._layout.agents.astype(np.int64), (agents, self._counts))
        return agents

    def traffic(self, v: Array) -> "Traffic | DeviceTraffic":
        """For rows like these."""
        key = (v.shape[1], v.dtype.str, "") if is_numpy(v) else (v.shape[1], dtype_of(v).str, str(v.device))
        if key not in self._traffic:
            self._traffic[key] = self._make(v)
        return self._traffic[key]

    def _make(self, v: Array) -> "Traffic | DeviceTraffic":
        near, index = self._layout.near, self._outgoing
        if not is_numpy(v):
            staging = None if self._is_direct else self.staging
            return DeviceTraffic(v, index, near, len(self.known), self._wait, self._requests, staging)
        around = np.empty((len(near) + len(self.known), v.shape[1]), dtype=v.dtype)
        packed = np.empty((len(v) if index is None else len(index), v.shape[1]), dtype=v.dtype)
        return Traffic(packed, index, around, near, self._wait, self._requests(packed, around[len(near) :]))

    @cached_property
    def _outgoing(self) -> Array | None:
        """The rows here to send, one process after the other; None for all of them to everybody."""
        if self.sends_all:
            return None
        place = {agent: row for row, agent in enumerate(self._layout.agents.tolist())}
        chosen = [place[agent] for agents in self._layout.outgoing.values() for agent in agents.tolist()]
        return np.array(chosen, dtype=np.intp)

    def _requests(self, packed: Array, rows: Array) -> list[Any]:
        """To send what was packed, and to receive rows. Both are buffers of NumPy's, or of a device."""
        width = packed.shape[1]
        if self.sends_all:
            return [self._to_everybody(packed, (rows, [width * count for count in self._counts]))]
        out = [width * len(agents) for agents in self._layout.outgoing.values()]
        into = [width * len(agents) for agents in self._layout.incoming.values()]
        if self._is_direct:
            return self._one_by_one(packed, out, rows, into)
        try:
            return self._at_once(packed, out, rows, into)
        except NotImplementedError:
            return self._one_by_one(packed, out, rows, into)

    def _at_once(self, packed: Array, out: list[int], rows: Array, into: list[int]) -> list[Any]:
        return [self._links.Neighbor_alltoallv_init((packed, out), (rows, into))]

    def _to_everybody(self, own: Array, place: tuple[Array, list[int]]) -> Any:
        try:
            return self._comm.Allgatherv_init(own, place)
        except NotImplementedError:
            return _Anew(lambda: self._comm.Iallgatherv(own, place))

    def _one_by_one(self, packed: Array, out: list[int], rows: Array, into: list[int]) -> list[Any]:
        """For an MPI without persistent neighbourhood collectives, or for the memory of devices."""
        comm, requests = self._comm, []
        for buffer, sizes, make in ((rows, into, comm.Recv_init), (packed, out, comm.Send_init)):
            flat, starts = buffer.reshape(-1), np.cumsum([0, *sizes])
            requests += [
                make(flat[start : start + size], other)
                for other, start, size in zip(self._layout.outgoing, starts, sizes, strict=False)
            ]
        return requests


def _free(traffic: dict[tuple[int, str, str], "Traffic | DeviceTraffic"]) -> None:
    for each in traffic.values():
        each.free()


class Traffic:
    """Rows of one shape on their way, over and over from and into the same buffers.

    `around`: the rows here that are near the border, once `fill` is over, then those that came,
    once `finish` is.
    """

    def __init__(
        self, packed: Array, index: Array | None, around: Array, near: Array, wait: "Wait", requests: list[Any]
    ) -> None:
        """index: the rows to pack, all where there is none."""
        self.around = around
        self._packed, self._index, self._wait, self._requests = packed, index, wait, requests
        self._near, self._beside = near, around[: len(near)]

    def start(self, v: Array) -> None:
        # "clip" spares a copy; no index is out of bounds.
        if self._index is None:
            self._packed[...] = v
        else:
            v.take(self._index, axis=0, out=self._packed, mode="clip")
        for request in self._requests:
            request.Start()

    def fill(self, v: Array) -> None:
        v.take(self._near, axis=0, out=self._beside, mode="clip")

    def finish(self) -> None:
        for request in self._requests:
            self._wait(request)

    def free(self) -> None:
        for request in self._requests:
            request.Free()


class _Anew:
    """Stands for a persistent request where MPI has none: a new one each time."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def Start(self) -> None:
        self._request = self._make()

    def Wait(self) -> None:
        self._request.Wait()

    def Test(self) -> bool:
        return bool(self._request.Test())

    def Free(self) -> None:
        return


class Wait:
    """Waits for a request.

    Where processes share cores it lets others run meanwhile: MPI itself would not.
    """

    def __init__(self, crowded: bool) -> None:
        self._crowded = crowded and hasattr(os, "sched_yield")

    def __call__(self, request: Any) -> None:
        if not self._crowded:
            request.Wait()
            return
        while not request.Test():
            os.sched_yield()
