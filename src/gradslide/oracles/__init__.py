"""Oracles: exact and sampled gradients of the agents that this process holds, counted.

Here belong the ways of drawing samples (rows, live streams, noise) and the `Oracle` that methods
call. The gradients themselves belong in `losses`.
"""

from gradslide.oracles.base import Sampler, Sampling
from gradslide.oracles.noise import Noise
from gradslide.oracles.oracle import Oracle
from gradslide.oracles.rows import WithoutReplacement, WithReplacement
from gradslide.oracles.stream import Stream
from gradslide.oracles.variance import estimate_sigma

__all__ = [
    "Noise",
    "Oracle",
    "Sampler",
    "Sampling",
    "Stream",
    "WithReplacement",
    "WithoutReplacement",
    "estimate_sigma",
]
