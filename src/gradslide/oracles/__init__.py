"""Oracles: exact and sampled gradients of the agents that this process holds, counted.

Here belong the ways of drawing samples (rows, live streams, noise) and the `Oracle` that methods
call. The gradients themselves belong in `losses`.
"""

from typing import TYPE_CHECKING

from gradslide._support.lazy import lazy_names

if TYPE_CHECKING:
    from gradslide.oracles.base import Sampler as Sampler
    from gradslide.oracles.base import Sampling as Sampling
    from gradslide.oracles.noise import Noise as Noise
    from gradslide.oracles.oracle import Oracle as Oracle
    from gradslide.oracles.rows import WithoutReplacement as WithoutReplacement
    from gradslide.oracles.rows import WithReplacement as WithReplacement
    from gradslide.oracles.stream import Stream as Stream
    from gradslide.oracles.variance import estimate_sigma as estimate_sigma
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "base": "Sampler Sampling",
            "noise": "Noise",
            "oracle": "Oracle",
            "rows": "WithoutReplacement WithReplacement",
            "stream": "Stream",
            "variance": "estimate_sigma",
        },
    )
