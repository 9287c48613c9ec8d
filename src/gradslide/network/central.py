"""No network at all: everything is in one place."""

from typing import NoReturn

from gradslide._support.errors import InputError
from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.network.base import Reduction, WorkOut
from gradslide.network.compressors import Compressor
from gradslide.network.local import reduced
from gradslide.network.riding import Riding


class Central(Riding):
    """The blocks of one problem, on one machine: sums are free, and there is nobody to talk to."""

    def __init__(self, m: int) -> None:
        super().__init__()
        self.m = m
        self.agents = range(m)

    @property
    def graph(self) -> Graph:
        return self._none()

    @property
    def laplacian(self) -> Array:
        return self._none()

    @property
    def norm_rounds(self) -> int:
        return self._none()

    @property
    def survey_rounds(self) -> int:
        return self._none()

    def survey(self, values: Array, work_out: WorkOut) -> Array:
        return self._none()

    def survey_size(self, values: Array, answer: Array) -> int:
        return self._none()

    def combine(self, v: Array, weights: Array, encoding: Compressor | None = None) -> Array:
        return self._none()

    def norm_bound(self) -> float:
        return self._none()

    def exchange_size(self, v: Array, encoding: Compressor | None = None) -> int:
        return self._none()

    def control_rounds(self, reduction: Reduction) -> int:
        return 0

    def post_size(self, values: Array, reduction: Reduction) -> int:
        return 0

    def agree(self, values: Array, reduction: Reduction) -> Array:
        return reduced(values, reduction)

    def observe(self, values: Array, reduction: Reduction) -> Array:
        return reduced(values, reduction)

    def _none(self) -> NoReturn:
        raise InputError(
            "this method needs a network", "a saddle point problem, which has none", "use gs.PDS() or gs.CondatVu()"
        )
