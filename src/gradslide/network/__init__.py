"""The only code that communicates."""

from gradslide.network.base import Network
from gradslide.network.counted import Counted
from gradslide.network.delayed import Delayed
from gradslide.network.local import Local

__all__ = ["Counted", "Delayed", "Local", "Network"]
