"""The processes that work together: what they share as long as their communicator lives."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gradslide.errors import InputError

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

    def linked(self, borders: Borders) -> Any:
        """A communicator in which these pairs of processes are neighbours."""
        if borders not in self.links:
            others = [v for u, v in borders if u == self.comm.rank]
            self.links[borders] = self.comm.Create_dist_graph_adjacent(others, others, reorder=False)
        return self.links[borders]


_attribute: list[int] = []


def company_of(comm: Any, timeout: float) -> Company:
    """That of a communicator, as patient as the first who asked for it. All its processes must ask for it."""
    from mpi4py import MPI

    if not _attribute:
        _attribute.append(MPI.Comm.Create_keyval())
    found: Company | None = comm.Get_attr(_attribute[0])
    if found is None:
        found = Company(comm.Dup(), _watchdog(comm, timeout))
        comm.Set_attr(_attribute[0], found)
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
