"""What a user knows of all agents before a run starts."""

from gradslide._support.types import Array
from gradslide.network.protocol import Network, Reduction


def presumed(network: Network, values: Array, reduction: Reduction) -> Array:
    """One value from the rows of all agents, for what does not change along a run (their sets, for example): free where
    one user sees all agents, agreed on where they live with other people."""
    return network.session.observe(values, reduction) if network.session.sees_all else network.agree(values, reduction)
