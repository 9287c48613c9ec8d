"""Networks: the only code that communicates.

`protocol` says what a network is, in three layers: `Network` for methods, `CostModel` (in `costs`)
for what operations cost, `Session` for the engine. `local` simulates all agents in one process,
`mpi` and `peers` run them on several; `faults` and `delayed` wrap a network to make it unreliable
or slow, `counted` counts what passes over it, `clock` simulates the time it takes. `collectives`
and `piggyback` are shared by them, `compressors` make messages smaller, and `coupling` is the
linear map A of the algorithms, written with a network. No method and no solver belongs here.
"""

from typing import TYPE_CHECKING, Any

from gradslide._support.errors import InputError
from gradslide.network.costs import CostModel
from gradslide.network.counted import Counted
from gradslide.network.delayed import Delayed
from gradslide.network.faults import Bursty, Compressed, Lossy, Noisy, Sleeping, Stragglers, Varying
from gradslide.network.local import Local
from gradslide.network.mpi.network import MPI
from gradslide.network.protocol import Network, Session

if TYPE_CHECKING:
    from gradslide.network.peers.network import Peers

__all__ = [
    "MPI",
    "Bursty",
    "Compressed",
    "CostModel",
    "Counted",
    "Delayed",
    "Local",
    "Lossy",
    "Network",
    "Noisy",
    "Peers",
    "Session",
    "Sleeping",
    "Stragglers",
    "Varying",
]


def __getattr__(name: str) -> Any:
    """Import Peers, which needs an extra, when it is first used."""
    if name != "Peers":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from gradslide.network.peers.network import Peers
    except ModuleNotFoundError as error:
        raise InputError("gs.network.Peers needs cryptography", str(error), "install gradslide[peers]") from None
    return Peers
