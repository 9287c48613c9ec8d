"""The only code that communicates."""

from gradslide.network.base import Network
from gradslide.network.conditions import Bursty, Compressed, Lossy, Noisy, Sleeping, Stragglers, Varying
from gradslide.network.counted import Counted
from gradslide.network.delayed import Delayed
from gradslide.network.local import Local
from gradslide.network.mpi.network import MPI

__all__ = [
    "MPI",
    "Bursty",
    "Compressed",
    "Counted",
    "Delayed",
    "Local",
    "Lossy",
    "Network",
    "Noisy",
    "Sleeping",
    "Stragglers",
    "Varying",
]
