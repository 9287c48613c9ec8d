"""Counts what passes over a network."""

from collections.abc import Callable

import numpy as np

from gradslide._support.arrays import to_numpy
from gradslide._support.types import Array
from gradslide.network.base import Done, Network, Reduction, WorkOut
from gradslide.network.compressors import Compressor
from gradslide.network.timeline import Timeline
from gradslide.network.wrapper import Wrapper
from gradslide.results.costs import Costs

_DOUBLE = np.dtype(np.float64).itemsize


class Counted(Wrapper):
    """The same network, with every exchange entered into `costs` and on the timeline. Observations stay free.

    What rides on exchanges is counted in floats when it is posted; on the timeline its few bytes are neglected.
    """

    def __init__(self, network: Network, costs: Costs, timeline: Timeline | None = None) -> None:
        super().__init__(network)
        self._costs = costs
        self._timeline = timeline

    def combine(self, v: Array, weights: Array, encoding: Compressor | None = None) -> Array:
        return self._exchanged(1, v, encoding, lambda: self._network.combine(v, weights, encoding))

    @property
    def is_together(self) -> bool:
        return self._network.is_together

    def at_once(self, exchanges: int, v: Array, work: Callable[[], Done]) -> Done:
        return self._exchanged(exchanges, v, None, lambda: self._network.at_once(exchanges, v, work))

    def _exchanged(self, exchanges: int, v: Array, encoding: Compressor | None, work: Callable[[], Done]) -> Done:
        # A lone agent has nobody to talk to.
        if self.m == 1:
            return work()
        costs = self._costs
        started = costs.now()
        costs.rounds += exchanges
        floats = self._network.exchange_size(v, encoding)
        costs.floats_sent += exchanges * floats
        if self._timeline is not None:
            self._timeline.exchange(floats / self._messages * v.dtype.itemsize, exchanges)
        result = work()
        costs.pace.add_exchanges(exchanges, costs.now() - started)
        return result

    def agree(self, values: Array, reduction: Reduction) -> Array:
        values = to_numpy(values)
        self._control(self._network.control_rounds(reduction), values.nbytes / len(values))
        return super().agree(values, reduction)

    def post(self, values: Array, reduction: Reduction) -> None:
        self._costs.floats_sent += self._network.post_size(values, reduction)
        super().post(values, reduction)

    def survey(self, values: Array, work_out: WorkOut) -> Array:
        answer = super().survey(values, work_out)
        rounds, floats = self._network.survey_rounds, self._network.survey_size(values, answer)
        self._costs.floats_sent += floats
        # Spread evenly over the rounds.
        self._control(rounds, floats / max(1, self._messages * rounds) * _DOUBLE)
        return answer

    def norm_bound(self) -> float:
        self._control(self._network.norm_rounds, _DOUBLE)
        return super().norm_bound()

    @property
    def _messages(self) -> int:
        """Of one exchange."""
        return 2 * len(self.graph.edges)

    def _control(self, rounds: int, size: float) -> None:
        """Rounds in which every agent sends so many bytes."""
        self._costs.control_rounds += rounds
        if self._timeline is not None:
            self._timeline.exchange(size, rounds)
