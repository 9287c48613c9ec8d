"""The error about a neighbour that kept this agent waiting for too long."""

import time
from collections.abc import Sequence

from gradslide.network.peers.errors import PeerError, short
from gradslide.network.peers.peer import Peer

_ALIVE = 4.0


def silence(late: Sequence[Peer], round: int, lack: str, seconds: float, checkpoints: bool) -> PeerError:
    """Names the neighbour that was not heard from for longest, and says what is known about it."""
    now = time.monotonic()
    peer = min(late, key=lambda peer: -1.0 if peer.heard is None else peer.heard)
    others = ", ".join(other.name for other in late if other is not peer)
    said = f"{lack} for round {round} within {seconds:g} s ({_known(peer, now)})"
    said += f"; last trouble: {peer.trouble}" if peer.trouble else ""
    said += f"; {others} too" if others else ""
    again = "start this agent again: it goes on from its checkpoint" if checkpoints else "start all agents again"
    return PeerError(peer.name, round, f"{said}; {_remedy(peer, now)}, then {again}")


def _known(peer: Peer, now: float) -> str:
    if peer.heard is None:
        return "never heard from"
    if peer.farewell is not None:
        return f"it left in round {peer.at}: {short(peer.farewell) or 'it was done'}"
    if now - peer.heard > _ALIVE:
        return f"not heard from for {now - peer.heard:.0f} s"
    return f"it is there, in round {peer.at}, and {'waits itself' if peer.waits else 'computes'}"


def _remedy(peer: Peer, now: float) -> str:
    if peer.heard is None:
        return "check that it runs, its address, its key, and that it has this agent's key"
    if peer.farewell is None and now - peer.heard <= _ALIVE:
        return "see what it does, or raise the deadline"
    return "check that it runs and can be reached"
