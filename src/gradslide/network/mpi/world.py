"""The processes of one run: how many there are, whether they found each other, and what the first one says."""

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from gradslide._support.errors import InputError, require
from gradslide._support.interrupts import ASKED
from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.network.mpi.company import company_of, mpi_library
from gradslide.network.mpi.network import MPI

# What launchers tell their processes: how many there are.
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS")


def declared_size(environment: Mapping[str, str] = os.environ) -> int:
    """How many processes a launcher says that there are; 0 where nobody launched this one."""
    asked, *numbers = [_number(environment.get(name, "")) for name in (ASKED, *_SIZES)]
    # An interactive shell of Slurm is a job of one.
    return asked or next((number for number in numbers if number > 1), 0)


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


class World:
    """All processes of MPI. timeout: as that of `MPI`."""

    def __init__(self, timeout: float) -> None:
        self._library = mpi_library()
        self._comm = self._library.COMM_WORLD
        self._timeout = timeout
        asked, size = declared_size(), self._comm.size
        require(
            asked in (0, size) or size > 1,
            f"the {asked} processes must find each other",
            f"{asked} runs of one process each: mpiexec belongs to another MPI than mpi4py",
            "use the mpiexec of mpi4py's MPI (`gradslide run -n` takes the one beside Python)",
        )
        rule, remedy = "there must be as many processes as were asked for", "start them anew"
        require(not os.environ.get(ASKED) or asked == size, rule, f"{size} of {asked}", remedy)
        self._company = company_of(self._comm, timeout)

    @property
    def is_first(self) -> bool:
        return bool(self._comm.rank == 0)

    @property
    def size(self) -> int:
        return int(self._comm.size)

    def network(self, graph: Graph) -> MPI:
        return MPI(graph, timeout=self._timeout)

    def told(self, numbers: Callable[[], Array]) -> Array:
        """What the first process works out, for all: numbers, as many as it likes."""
        return self._company.told(np.asarray(numbers(), dtype=np.float64) if self.is_first else np.empty(0))

    def end(self) -> None:
        """All is done, everywhere: nobody has to be watched any more."""
        self._company.enter()
        self._comm.Barrier()
        if self._company.watchdog is not None:
            self._company.watchdog.stop()

    @contextmanager
    def guarded(self, mistake: Callable[[], None]) -> Iterator[None]:
        """What goes wrong in here, in whichever process, ends all of them. mistake: called where it is the user's."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, InputError):
                mistake()
            if self._company.watchdog is not None:
                self._show(error)
                self._company.watchdog.failed(error)
            raise

    def _show(self, error: BaseException) -> None:
        if not isinstance(error, InputError | KeyboardInterrupt):
            traceback.print_exception(error)
        elif isinstance(error, InputError) and self.is_first:
            # What others find is said when the watchdog names them.
            print(f"error: {error}", file=sys.stderr)


def this_world(timeout: float) -> World | None:
    """The processes that a launcher started, if one did."""
    return World(timeout) if declared_size() > 0 else None
