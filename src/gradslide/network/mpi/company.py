"""The processes that work together: what they share as long as their communicator lives."""

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
class Company:
    """comm: a communicator of our own. links: those of neighbours, by all pairs of them; there are only so many
    communicators, and to give one back takes everybody."""

    comm: Any
    watchdog: "Watchdog | None"
    links: dict[Borders, Any] = field(default_factory=dict)

    def enter(self, is_round: bool = False) -> None:
        """All processes are about to exchange something, in a round of the run or beside it."""
        if self.watchdog is None:
            return
        if is_round:
            self.watchdog.round += 1
        else:
            self.watchdog.calls += 1

    def told(self, values: Array) -> Array:
        """What the first process says: a list of numbers, of which the others need know the type only."""
        self.enter()
        size = np.array([values.size])
        self.comm.Bcast(size, root=0)
        values = np.ascontiguousarray(values) if self.comm.rank == 0 else np.empty(int(size[0]), dtype=values.dtype)
        self.comm.Bcast(values, root=0)
        return values

    def linked(self, borders: Borders) -> Any:
        """A communicator in which these pairs of processes are neighbours."""
        if borders not in self.links:
            others = [v for u, v in borders if u == self.comm.rank]
            self.links[borders] = self.comm.Create_dist_graph_adjacent(others, others, reorder=False)
        return self.links[borders]


@cache
def _attribute() -> int:
    """Where a communicator keeps its company."""
    from mpi4py import MPI

    return MPI.Comm.Create_keyval()


def company_of(comm: Any, timeout: float) -> Company:
    """That of a communicator, as patient as the first who asked for it. All its processes must ask for it."""
    found: Company | None = comm.Get_attr(_attribute())
    if found is None:
        found = Company(comm.Dup(), _watchdog(comm, timeout))
        comm.Set_attr(_attribute(), found)
    return found


def _watchdog(comm: Any, timeout: float) -> "Watchdog | None":
    """Nobody watches a lone process."""
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
