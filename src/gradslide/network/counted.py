"""Counts what passes over a network."""

from collections.abc import Callable

import numpy as np

from gradslide._support.arrays import to_numpy
from gradslide._support.types import Array
from gradslide.network.clock import Timeline
from gradslide.network.compressors import Compressor
from gradslide.network.protocol import Compute, Done, Network, Reduction
from gradslide.network.wrapper import Wrapper
from gradslide.results.costs import Costs

_DOUBLE = np.dtype(np.float64).itemsize


class Counted(Wrapper):
    """The same network, with every exchange entered into `costs` and on the timeline. Observations stay free.

    Piggybacked reductions are counted in floats when they start; on the timeline their few bytes are neglected.
    """

    def __init__(self, network: Network, costs: Costs, timeline: Timeline | None = None) -> None:
        super().__init__(network)
        self.is_local = self._network.is_local
        self._spent = costs
        self._timeline = timeline

    def combine(self, v: Array, weights: Array, encoding: Compressor | None = None) -> Array:
        return self._exchanged(1, v, encoding, lambda: self._network.combine(v, weights, encoding))

    def batch(self, exchanges: int, v: Array, compute: Callable[[], Done]) -> Done:
        return self._exchanged(exchanges, v, None, lambda: self._network.batch(exchanges, v, compute))

    def _exchanged(self, exchanges: int, v: Array, encoding: Compressor | None, compute: Callable[[], Done]) -> Done:
        # A lone agent has no neighbours.
        if self.m == 1:
            return compute()
        spent, costs = self._spent, self.costs
        started = spent.now()
        spent.rounds += exchanges
        floats = costs.exchange_floats(v, encoding)
        spent.floats_sent += exchanges * floats
        if self._timeline is not None:
            self._timeline.exchange(floats / self._messages * v.dtype.itemsize, exchanges)
        result = compute()
        spent.pace.add_exchanges(exchanges, spent.now() - started)
        return result

    def agree(self, values: Array, reduction: Reduction) -> Array:
        values = to_numpy(values)
        self._control(self.costs.control_rounds(reduction), values.nbytes / len(values))
        return self._network.agree(values, reduction)

    def start_reduce(self, values: Array, reduction: Reduction) -> None:
        self._spent.floats_sent += self.costs.reduce_floats(values, reduction)
        self._network.start_reduce(values, reduction)

    def survey(self, values: Array, compute: Compute) -> Array:
        answer = self._network.survey(values, compute)
        rounds, floats = self.costs.survey_rounds, self.costs.survey_floats(values, answer)
        self._spent.floats_sent += floats
        # Spread evenly over the rounds.
        self._control(rounds, floats / max(1, self._messages * rounds) * _DOUBLE)
        return answer

    def norm_bound(self) -> float:
        self._control(self.costs.norm_rounds, _DOUBLE)
        return self._network.norm_bound()

    @property
    def _messages(self) -> int:
        """Of one exchange, of all agents."""
        return 2 * len(self.graph.edges)

    def _control(self, rounds: int, size: float) -> None:
        """Rounds in which every agent sends so many bytes."""
        self._spent.control_rounds += rounds
        if self._timeline is not None:
            self._timeline.exchange(size, rounds)
