"""The only code that communicates."""

from gradslide.network.base import Network
from gradslide.network.conditions import Bursty, Compressed, Lossy, Noisy, Sleeping, Stragglers, Varying
from gradslide.network.counted import Counted
from gradslide.network.delayed import Delayed
from gradslide.network.local import Local

__all__ = [
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
