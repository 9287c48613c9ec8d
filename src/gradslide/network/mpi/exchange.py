"""Rows that travel between processes: only those that a neighbour elsewhere needs."""

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.network.mpi.communicator import Borders, SharedCommunicator

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

    known: the agents elsewhere whose rows come.
    """

    def __init__(self, shared: SharedCommunicator, layout: Layout, counts: list[int], wait: "Wait") -> None:
        """counts: how many agents live in each process."""
        from mpi4py import MPI

        comm = shared.comm
        self._shared, self._comm, self._layout, self._counts, self._wait = shared, comm, layout, counts, wait
        elsewhere = sum(counts) - len(layout.agents)
        crowded = elsewhere == 0 or len(layout.ghosts) >= _NEARLY_ALL * elsewhere
        self.sends_all = comm.size > 2 and bool(comm.allreduce(int(crowded), MPI.MIN))
        self._links: Any = None
        if not self.sends_all:
            self._links = shared.neighbourhood(layout.borders)
        self._traffic: dict[tuple[int, str], Traffic] = {}
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

    def traffic(self, width: int, dtype: Any) -> "Traffic":
        """For rows of so many numbers."""
        key = (width, np.dtype(dtype).str)
        if key not in self._traffic:
            self._traffic[key] = self._make(width, np.dtype(dtype))
        return self._traffic[key]

    def _make(self, width: int, dtype: Any) -> "Traffic":
        layout = self._layout
        around = np.empty((len(layout.near) + len(self.known), width), dtype=dtype)
        rows = around[len(layout.near) :]
        if self.sends_all:
            own = np.empty((len(layout.agents), width), dtype=dtype)
            counts = [width * count for count in self._counts]
            requests = [self._to_everybody(own, (rows, counts))]
            return Traffic(own, None, around, layout.near, self._wait, requests)
        place = {agent: row for row, agent in enumerate(layout.agents.tolist())}
        chosen = [[place[agent] for agent in agents.tolist()] for agents in layout.outgoing.values()]
        index = np.array([row for rows_to in chosen for row in rows_to], dtype=np.intp)
        packed = np.empty((len(index), width), dtype=dtype)
        out = [width * len(rows_to) for rows_to in chosen]
        into = [width * len(agents) for agents in layout.incoming.values()]
        try:
            requests = self._at_once(packed, out, rows, into)
        except NotImplementedError:
            requests = self._one_by_one(packed, out, rows, into)
        return Traffic(packed, index, around, layout.near, self._wait, requests)

    def _at_once(self, packed: Array, out: list[int], rows: Array, into: list[int]) -> list[Any]:
        return [self._links.Neighbor_alltoallv_init((packed, out), (rows, into))]

    def _to_everybody(self, own: Array, place: tuple[Array, list[int]]) -> Any:
        try:
            return self._comm.Allgatherv_init(own, place)
        except NotImplementedError:
            return _Anew(lambda: self._comm.Iallgatherv(own, place))

    def _one_by_one(self, packed: Array, out: list[int], rows: Array, into: list[int]) -> list[Any]:
        """For an MPI without persistent neighbourhood collectives."""
        comm, requests = self._comm, []
        for buffer, sizes, make in ((rows, into, comm.Recv_init), (packed, out, comm.Send_init)):
            flat, starts = buffer.reshape(-1), np.cumsum([0, *sizes])
            requests += [
                make(flat[start : start + size], other)
                for other, start, size in zip(self._layout.outgoing, starts, sizes, strict=False)
            ]
        return requests


def _free(traffic: dict[tuple[int, str], "Traffic"]) -> None:
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
