"""One agent per process, with encrypted and authenticated connections to its neighbours.

From the top down: `network` is what methods see (`Peers`); `topology`, `collectives` and
`piggyback` are sums, maxima and all-gathers over the graph, step by step; `rounds` adds a position
in the algorithm to every message; `links` exchanges arrays in rounds that survive cuts and
restarts; `io_thread`, `peer`, `handshake`, `wire`, `sockets` and `connection` carry them; `tls`,
`keys` and `rejection_log` keep others out. Nothing here knows about problems or methods.
"""

from gradslide._support.errors import MissingPackageError

try:
    import cryptography as _installed  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingPackageError(
        "gs.network.Peers needs cryptography", "none installed", "install gradslide[peers]"
    ) from error
