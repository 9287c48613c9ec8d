"""What each operation of a network costs, in rounds and floats."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.network.compressors import Compressor

NormSource = Literal["known", "flooded", "broadcast"]


@dataclass
class CostModel:
    """Rounds and floats that the operations of a network cost.

    Agents talk to their neighbours only. Floats are those that leave the counted agents: all of
    them, or the one that a process knows about.

    Parameters
    ----------
    graph : Graph
        Which agents are linked.
    messages : int
        Messages that the counted agents send in one exchange.
    sum_messages : int
        Messages that they send for a sum, up the tree and down.
    broadcast_messages : int
        Messages that they send when an answer of the root goes down the tree.
    norm : {"known", "flooded", "broadcast"}
        How agents find the norm bound: they know it; or one exchange and a flooded maximum; or the
        root tells it.
    encoding : Compressor, optional
        What messages of exchanges are compressed with, unless the method itself compressed them.
    sum_width : int
        Floats that each number of a partial sum is sent as; more than 1 in fixed point.
    """

    graph: Graph
    messages: int
    sum_messages: int
    broadcast_messages: int
    norm: NormSource = "known"
    encoding: Compressor | None = None
    sum_width: int = 1

    def control_rounds(self, reduction: str) -> int:
        """Return the exchanges of a reduction: up and down the tree for sums, else flooding.

        Parameters
        ----------
        reduction : {"max", "or", "sum"}
            Maxima and logical ors are flooded.

        Returns
        -------
        int
            Control rounds of `Network.agree`; exchanges until a piggybacked reduction completes.
        """
        return self.sum_rounds if reduction == "sum" else self.graph.diameter_bound

    def exchange_floats(self, v: Array, encoding: Compressor | None = None) -> int:
        """Return the floats of one exchange of v.

        Parameters
        ----------
        v : array of shape (agents here, d)
            What is sent.
        encoding : Compressor, optional
            What the method compressed v with. Default: that of the network.

        Returns
        -------
        int
            Floats that the counted agents send.
        """
        encoding = self.encoding if encoding is None else encoding
        return self.messages * (math.prod(v.shape[1:]) if encoding is None else encoding.floats(v))

    def reduce_floats(self, values: Array, reduction: str) -> int:
        """Return the floats of a piggybacked reduction, over all exchanges that carry it.

        Parameters
        ----------
        values : array of shape (agents here, ...)
            What is reduced.
        reduction : {"max", "or", "sum"}
            As for `control_rounds`.

        Returns
        -------
        int
            Floats that the counted agents send.
        """
        messages = self.sum_messages if reduction == "sum" else self.control_rounds(reduction) * self.messages
        return messages * math.prod(np.shape(values)[1:])

    @property
    def sum_rounds(self) -> int:
        """Exchanges of an exact sum: up the tree, and down.

        Returns
        -------
        int
            Rounds of `Network.total` and `Network.relay`.
        """
        return 2 * self.graph.radius

    def relay_floats(self, up: int, down: int) -> int:
        """Return the floats of an exact sum, of which every agent but the root sends one up.

        Parameters
        ----------
        up : int
            Numbers in a partial sum.
        down : int
            Numbers in the answer.

        Returns
        -------
        int
            Floats that the counted agents send.
        """
        return (self.sum_messages - self.broadcast_messages) * up * self.sum_width + self.broadcast_messages * down

    @property
    def survey_rounds(self) -> int:
        """Exchanges of a survey: a flood, and down the tree.

        Returns
        -------
        int
            Control rounds of `Network.survey`.
        """
        return self.graph.diameter_bound + self.graph.radius

    def survey_floats(self, values: Array, answer: Array) -> int:
        """Return the floats of a survey.

        Edges, weights unless all are 1, and values are flooded; the answer goes down the tree.

        Parameters
        ----------
        values : array of shape (agents here, ...)
            What every agent floods.
        answer : array
            What the root computed.

        Returns
        -------
        int
            Floats that the counted agents send.
        """
        per_edge = 2 if np.all(self.graph.weights == 1) else 3
        flooded = len(self.graph.edges) * per_edge + self.graph.m * math.prod(np.shape(values)[1:])
        return int(self.messages * flooded + self.broadcast_messages * answer.size)

    @property
    def norm_rounds(self) -> int:
        """Exchanges of `Network.norm_bound`.

        Returns
        -------
        int
            Control rounds; 0 where the norm is known.
        """
        if self.norm == "flooded":
            return 1 + self.control_rounds("max")
        return self.graph.radius if self.norm == "broadcast" else 0
