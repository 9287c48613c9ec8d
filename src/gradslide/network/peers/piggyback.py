"""Reductions and control signals that are piggybacked on the exchanges of a method."""

from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from gradslide._support.types import Array
from gradslide.network.collectives import require_reduction
from gradslide.network.peers.collectives import Collective, Flood, SignalFlood, SignalState, TreeSum, is_done
from gradslide.network.peers.topology import Topology
from gradslide.network.protocol import Reduction


@dataclass(frozen=True)
class PendingReduction:
    """One reduction under way, and the type and shape of its result."""

    reduction: Reduction
    dtype: str
    shape: tuple[int, ...]
    collective: Flood | TreeSum
    channel: str = ""

    @classmethod
    def of(cls, values: Array, reduction: Reduction, topology: Topology, channel: str = "") -> "PendingReduction":
        """Start with this agent's values, one row.

        Sums are added up in float64, and rounded to the type of values.
        """
        require_reduction(reduction)
        values = np.asarray(values)
        dtype = "bool" if reduction == "or" else values.dtype.str
        flat = values.astype(bool) if reduction == "or" else values
        collective = topology.reduction(flat.ravel().astype(np.float64), reduction)
        return cls(reduction, dtype, values.shape[1:], collective, channel)

    @property
    def result(self) -> Array:
        found = self.collective.values.astype(self.dtype).reshape(self.shape)
        # All agents know the same: nobody changes it.
        found.flags.writeable = False
        return found

    def checkpoint(self) -> "PendingState":
        return {
            "reduction": self.reduction,
            "dtype": self.dtype,
            "shape": self.shape,
            "step": self.collective.step,
            "values": self.collective.values,
            "channel": self.channel,
        }

    @classmethod
    def resumed(cls, state: "PendingState", topology: Topology) -> "PendingReduction":
        reduction = state["reduction"]
        collective = topology.reduction(state["values"], reduction, state["step"])
        return cls(reduction, state["dtype"], tuple(state["shape"]), collective, state.get("channel", ""))


class Piggyback:
    """All reductions and control signals under way.

    `iteration` is the agent's outer iteration: how often `all_reduce_signal` began a new flood.
    """

    def __init__(self) -> None:
        self._reductions: list[PendingReduction] = []
        self._signals: list[SignalFlood] = []
        self.iteration = 0

    def pending(self) -> list[Collective]:
        """What the next exchange carries, in the same order at all agents."""
        reductions: list[Collective] = [each.collective for each in self._reductions]
        return [each for each in (*reductions, *self._signals) if not is_done(each)]

    def start(self, reduction: PendingReduction) -> None:
        self._reductions.append(reduction)

    def completed(self, reduction: Reduction | None, channel: str) -> list[Array]:
        def is_known(each: PendingReduction) -> bool:
            return is_done(each.collective) and reduction in (None, each.reduction) and each.channel == channel

        results = [each.result for each in self._reductions if is_known(each)]
        self._reductions = [each for each in self._reductions if not is_known(each)]
        return results

    def all_reduce_signal(self, signal: int, topology: Topology) -> int:
        """Signals between two exchanges travel as one."""
        if not self._signals or self._signals[-1].step > 0:
            # One more exchange than a flood takes: each agent must hear its own signal, too.
            self._signals.append(SignalFlood(topology.graph.diameter_bound + 1))
            self.iteration += 1
        self._signals[-1].own = max(self._signals[-1].own, signal)
        decided = max((each.result for each in self._signals if is_done(each)), default=0)
        self._signals = [each for each in self._signals if not is_done(each)]
        for each in self._signals:
            each.answered = max(each.answered, decided)
        return decided

    def checkpoint(self) -> "PiggybackState":
        reductions = [each.checkpoint() for each in self._reductions]
        return {
            "iteration": self.iteration,
            "reductions": reductions,
            "signals": [each.checkpoint() for each in self._signals],
        }

    @classmethod
    def resumed(cls, state: "PiggybackState", topology: Topology) -> "Piggyback":
        piggyback = cls()
        piggyback.iteration = state["iteration"]
        piggyback._reductions = [PendingReduction.resumed(each, topology) for each in state["reductions"]]
        piggyback._signals = [SignalFlood(topology.graph.diameter_bound + 1, *each) for each in state["signals"]]
        return piggyback


class PendingState(TypedDict):
    """What a checkpoint holds of a pending reduction."""

    reduction: Reduction
    dtype: str
    shape: tuple[int, ...]
    step: int
    values: Array
    channel: str


class PiggybackState(TypedDict):
    """What a checkpoint holds of all reductions and control signals under way."""

    iteration: int
    reductions: list[PendingState]
    signals: list[SignalState]
