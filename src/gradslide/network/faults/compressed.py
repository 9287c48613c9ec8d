"""Messages that are made smaller on the way."""

from dataclasses import replace

import numpy as np

from gradslide._support.errors import kind_of, require
from gradslide._support.types import Array, Sparse
from gradslide.graphs.graph import Graph
from gradslide.network.compressors import Compressor
from gradslide.network.faults.fault import Fault
from gradslide.network.protocol import Network


class Compressed(Fault):
    """Messages are compressed, without the method knowing.

    Agents compare compressed values, their own as well: (W v)_i becomes rowsum_i v_i + sum_j w_ij
    (C_j - C_i), so that symmetric weights preserve sums over the agents.

    Parameters
    ----------
    network : Network or Graph
        A network with all agents in one process, or one under other faults.
    compressor : Compressor
        For example `gs.compressors.TopK` or `gs.compressors.Quantization`.
    seed : int
        Of the random numbers.

    Notes
    -----
    Floats are counted after compression. Messages of a method that compresses itself (`ChocoSGD`)
    are not compressed again.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> network = gs.network.Compressed(gs.Graph.ring(4), gs.compressors.TopK(k=1))
    >>> network.costs.exchange_floats(np.ones((4, 10)))
    16
    """

    def __init__(self, network: Network | Graph, compressor: Compressor, *, seed: int = 0) -> None:
        made = not isinstance(compressor, type) and all(hasattr(compressor, name) for name in ("compress", "floats"))
        rule = "Compressed needs a compressor"
        require(made, rule, kind_of(compressor), "for example gs.compressors.TopK(share=0.1)")
        super().__init__(network, seed, compressor=compressor)
        self._compressor = compressor
        self.costs = replace(self.costs, encoding=compressor)

    def combine(self, v: Array, weights: Sparse, encoding: Compressor | None = None) -> Array:
        random = self._next()
        if encoding is not None:
            return super().combine(v, weights, encoding)
        compressed = self._compressor.compress(v, random)
        row_sums = (weights @ np.ones(weights.shape[1])).astype(v.dtype)
        return super().combine(compressed, weights, self._compressor) + row_sums[:, None] * (v - compressed)
