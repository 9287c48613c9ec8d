"""Counts what passes over a network."""

import math
from collections.abc import Callable

import numpy as np

from gradslide._support.arrays import to_numpy
from gradslide._support.types import Array, Sparse
from gradslide.network.clock import Timeline
from gradslide.network.compressors import Compressor
from gradslide.network.protocol import Answer, Compute, Done, Network, Reduction
from gradslide.network.wrapper import Wrapper
from gradslide.results.costs import Costs

_DOUBLE = np.dtype(np.float64).itemsize


class Counted(Wrapper):
    """A network that enters every exchange into `costs`, and on a timeline. Observations stay free.

    Piggybacked reductions are counted in floats when they start. On the timeline the few bytes of
    those of methods are neglected; checks send vectors, whose transfer takes its time.

    Parameters
    ----------
    network : Network
    costs : Costs
        Counts rounds, control rounds and floats.
    timeline : Timeline, optional
        A simulated clock.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> from gradslide.results.costs import Costs
    >>> costs = Costs()
    >>> network = gs.network.Counted(gs.network.Local(gs.Graph.ring(4)), costs)
    >>> _ = network.combine(np.ones((4, 3)), network.laplacian)
    >>> costs.rounds, costs.floats_sent
    (1, 24)
    """

    def __init__(self, network: Network, costs: Costs, timeline: Timeline | None = None) -> None:
        super().__init__(network)
        self.is_local = self._network.is_local
        self._spent = costs
        self._timeline = timeline
        # Of one exchange, of all agents.
        self._messages = 2 * len(self.graph.edges)

    def combine(self, v: Array, weights: Sparse, encoding: Compressor | None = None) -> Array:
        started = self._count(1, v, encoding)
        result = self._network.combine(v, weights, encoding)
        if self.m > 1:
            self._spent.pace.exchanges += 1
            self._spent.pace.exchange_seconds += self._spent.now() - started
        return result

    def batch(self, exchanges: int, v: Array, compute: Callable[[], Done]) -> Done:
        started = self._count(exchanges, v, None)
        result = self._network.batch(exchanges, v, compute)
        if self.m > 1:
            self._spent.pace.exchanges += exchanges
            self._spent.pace.exchange_seconds += self._spent.now() - started
        return result

    def _count(self, exchanges: int, v: Array, encoding: Compressor | None) -> float:
        """Enter exchanges of v, and return the time.

        A lone agent has no neighbours: its exchanges are free.
        """
        if self.m == 1:
            return 0.0
        started = self._spent.now()
        self._spent.rounds += exchanges
        floats = self.costs.exchange_floats(v, encoding)
        self._spent.floats_sent += exchanges * floats
        if self._timeline is not None:
            self._timeline.exchange(floats / self._messages * v.dtype.itemsize, exchanges)
        return started

    def agree(self, values: Array, reduction: Reduction) -> Array:
        values = to_numpy(values)
        self._control(self.costs.control_rounds(reduction), values.nbytes / len(values))
        return self._network.agree(values, reduction)

    def total(self, values: Array) -> Array:
        numbers = math.prod(np.shape(values)[1:])
        started = self._count_sum(numbers, numbers)
        result = self._network.total(values)
        self._pace_of_sum(self._spent.now() - started)
        return result

    def relay(self, values: Array, solve: Answer, size: int) -> Array:
        started, solving = self._count_sum(math.prod(np.shape(values)[1:]), size), 0.0

        def timed(total: Array) -> Array:
            nonlocal solving
            since = self._spent.now()
            answer = solve(total)
            solving = self._spent.now() - since
            return answer

        result = self._network.relay(values, timed, size)
        self._pace_of_sum(self._spent.now() - started - solving)
        return result

    def _count_sum(self, up: int, down: int) -> float:
        """Enter an exact sum, and return the time before it."""
        started, rounds = self._spent.now(), self.costs.sum_rounds
        self._spent.rounds += rounds
        self._spent.floats_sent += self.costs.relay_floats(up, down)
        if self._timeline is not None:
            for numbers in (up, down):
                self._timeline.exchange(numbers * _DOUBLE, rounds // 2)
        return started

    def _pace_of_sum(self, seconds: float) -> None:
        self._spent.pace.exchanges += self.costs.sum_rounds
        self._spent.pace.exchange_seconds += seconds if self.m > 1 else 0.0

    def start_reduce(self, values: Array, reduction: Reduction, channel: str = "") -> None:
        self._spent.floats_sent += self.costs.reduce_floats(values, reduction)
        if self._timeline is not None and channel:
            size = math.prod(np.shape(values)[1:]) * _DOUBLE
            self._timeline.transfer(size, self.costs.control_rounds(reduction))
        self._network.start_reduce(values, reduction, channel)

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

    def _control(self, rounds: int, size: float) -> None:
        """Rounds in which every agent sends so many bytes."""
        self._spent.control_rounds += rounds
        if self._timeline is not None:
            self._timeline.exchange(size, rounds)
