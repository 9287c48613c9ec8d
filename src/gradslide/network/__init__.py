"""Networks: the only code that communicates.

`protocol` says what a network is, in three layers: `Network` for methods, `CostModel` (in `costs`)
for what operations cost, `Session` for the engine. `local` simulates all agents in one process,
`mpi` and `peers` run them on several; `faults` and `delayed` wrap a network to make it unreliable
or slow, `counted` counts what passes over it, `clock` simulates the time it takes. `collectives`
and `piggyback` are shared by them, `compressors` make messages smaller, and `coupling` is the
linear map A of the algorithms, written with a network. No method and no solver belongs here.
"""

from typing import TYPE_CHECKING

from gradslide._support.lazy import lazy_names

if TYPE_CHECKING:
    from gradslide.network.costs import CostModel as CostModel
    from gradslide.network.counted import Counted as Counted
    from gradslide.network.delayed import Delayed as Delayed
    from gradslide.network.faults import Bursty as Bursty
    from gradslide.network.faults import Compressed as Compressed
    from gradslide.network.faults import Lossy as Lossy
    from gradslide.network.faults import Noisy as Noisy
    from gradslide.network.faults import Sleeping as Sleeping
    from gradslide.network.faults import Stragglers as Stragglers
    from gradslide.network.faults import Varying as Varying
    from gradslide.network.local import Local as Local
    from gradslide.network.mpi.network import MPI as MPI
    from gradslide.network.peers.network import Peers as Peers
    from gradslide.network.protocol import Network as Network
    from gradslide.network.protocol import Session as Session
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "costs": "CostModel",
            "counted": "Counted",
            "delayed": "Delayed",
            "faults": "Bursty Compressed Lossy Noisy Sleeping Stragglers Varying",
            "local": "Local",
            "mpi.network": "MPI",
            "peers.network": "Peers",
            "protocol": "Network Session",
        },
        needs={"Peers": "cryptography"},
    )
