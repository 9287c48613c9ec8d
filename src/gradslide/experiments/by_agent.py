"""What each agent of a run has spent."""

from collections.abc import Sequence

import numpy as np

from gradslide.graphs.graph import Graph
from gradslide.results.costs import Costs, work
from gradslide.results.history import Record

_COUNTS = ("rounds", "control_rounds")


def shared_out(costs: Costs | Record, graph: Graph) -> dict[str, list[int]]:
    """Of a run in one place. All agents do the same at the same time: they differ in what they send, a vector over each
    link in every round. Sums that ride along go over some links only, but are shared out like the rest."""
    links = np.cumsum(graph.degrees)
    # Rounded together, so that they add up to what was counted.
    sent = np.diff(np.rint(costs.floats_sent * (links / max(1, links[-1]))), prepend=0).astype(int).tolist()
    alike = {name: [getattr(costs, name)] * graph.m for name in (*work([costs]), *_COUNTS)}
    return {**alike, "floats_sent": sent}


def counted_apart(spent: Sequence[Costs]) -> dict[str, list[int]]:
    """Of agents that counted for themselves."""
    return {name: [getattr(each, name) for each in spent] for name in (*work(spent), *_COUNTS, "floats_sent")}
