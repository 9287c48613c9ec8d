"""The communicator that the networks of one group of processes share, with its watchdog."""

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gradslide._support.errors import InputError
from gradslide._support.types import Array

if TYPE_CHECKING:
    from gradslide.network.mpi.watchdog import Watchdog

# All pairs of processes that have neighbours in each other, both ways, ascending: the same everywhere.
Borders = tuple[tuple[int, int], ...]


@dataclass
class SharedCommunicator:
    """A communicator of our own, which lives as long as that of the user.

    Attributes
    ----------
    comm : mpi4py.MPI.Intracomm
    watchdog : Watchdog or None
        None for a lone process.
    links : dict
        Communicators of neighbours, by all pairs of them. MPI has only so many communicators, and
        freeing one is collective.
    """

    comm: Any
    watchdog: "Watchdog | None"
    links: dict[Borders, Any] = field(default_factory=dict)

    def note_exchange(self, is_round: bool = False) -> None:
        """Tell the watchdog that all processes are about to exchange something, in a round of the
        run or beside it.
        """
        if self.watchdog is None:
            return
        if is_round:
            self.watchdog.round += 1
        else:
            self.watchdog.calls += 1

    def broadcast(self, values: Array) -> Array:
        """Return the numbers of the first process; of the others only the type counts."""
        self.note_exchange()
        size = np.array([values.size])
        self.comm.Bcast(size, root=0)
        values = np.ascontiguousarray(values) if self.comm.rank == 0 else np.empty(int(size[0]), dtype=values.dtype)
        self.comm.Bcast(values, root=0)
        return values

    def neighbourhood(self, borders: Borders) -> Any:
        """A communicator in which these pairs of processes are neighbours."""
        if borders not in self.links:
            others = [v for u, v in borders if u == self.comm.rank]
            self.links[borders] = self.comm.Create_dist_graph_adjacent(others, others, reorder=False)
        return self.links[borders]


@cache
def _attribute() -> int:
    """The attribute of a communicator that holds ours."""
    from mpi4py import MPI

    return MPI.Comm.Create_keyval()


def shared_communicator(comm: Any, timeout: float) -> SharedCommunicator:
    """Return the one of a communicator, with the timeout of the first call. Collective."""
    found: SharedCommunicator | None = comm.Get_attr(_attribute())
    if found is None:
        found = SharedCommunicator(comm.Dup(), _watchdog(comm, timeout))
        comm.Set_attr(_attribute(), found)
    return found


def _watchdog(comm: Any, timeout: float) -> "Watchdog | None":
    """None for a lone process."""
    if comm.size == 1:
        return None
    from gradslide.network.mpi.watchdog import Watchdog

    watchdog = Watchdog(comm, timeout)
    watchdog.start()
    return watchdog


def mpi_library() -> Any:
    """mpi4py's MPI."""
    try:
        from mpi4py import MPI as library
    # mpi4py is there, but no library that it could load: a RuntimeError.
    except (ImportError, RuntimeError) as error:
        remedy = "install gradslide[mpi], or gradslide[mpi-local] where there is no MPI"
        got = " ".join(str(error).split())
        raise InputError("MPI needs mpi4py and an MPI library", got, remedy) from None
    return library
