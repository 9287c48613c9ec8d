"""No network at all: everything is in one place."""

from typing import NoReturn

from gradslide._support.errors import InputError
from gradslide._support.types import Array, Sparse
from gradslide.graphs.graph import Graph
from gradslide.network.collectives import reduced
from gradslide.network.compressors import Compressor
from gradslide.network.costs import CostModel
from gradslide.network.piggyback import Piggybacking
from gradslide.network.protocol import Compute, Reduction


class Central(Piggybacking):
    """The blocks of one problem on one machine: reductions are free, and nobody has neighbours."""

    def __init__(self, m: int) -> None:
        self.m = m
        self.agents = range(m)
        self.costs = _Free()

    @property
    def graph(self) -> Graph:
        return _refuse()

    @property
    def laplacian(self) -> Array:
        return _refuse()

    def _combine(self, v: Array, weights: Sparse) -> Array:
        return _refuse()

    def survey(self, values: Array, compute: Compute) -> Array:
        return _refuse()

    def norm_bound(self) -> float:
        return _refuse()

    def agree(self, values: Array, reduction: Reduction) -> Array:
        return reduced(values, reduction)


class _Free(CostModel):
    """Reductions cost nothing; there is nothing else."""

    def __init__(self) -> None:
        return

    @property
    def sum_rounds(self) -> int:
        return 0

    def relay_floats(self, up: int, down: int) -> int:
        return 0

    def control_rounds(self, reduction: str) -> int:
        return 0

    def reduce_floats(self, values: Array, reduction: str) -> int:
        return 0

    def exchange_floats(self, v: Array, encoding: Compressor | None = None) -> int:
        return _refuse()

    @property
    def survey_rounds(self) -> int:
        return _refuse()

    def survey_floats(self, values: Array, answer: Array) -> int:
        return _refuse()

    @property
    def norm_rounds(self) -> int:
        return _refuse()


def _refuse() -> NoReturn:
    raise InputError(
        "this method needs a network",
        "a saddle point problem, which has none",
        "leave method out, or use gs.PDS() or gs.CondatVu()",
    )
