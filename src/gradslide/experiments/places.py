"""One process or several, and what the first one knows for all."""

from collections.abc import Callable
from typing import ClassVar, Protocol

import numpy as np

from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.network import Local, Network
from gradslide.problems.problem import Problem
from gradslide.theory.reference import Reference, reference


class Places(Protocol):
    """The processes that share an experiment."""

    @property
    def is_first(self) -> bool: ...

    @property
    def size(self) -> int: ...

    def network(self, graph: Graph) -> Network: ...

    def told(self, numbers: Callable[[], Array]) -> Array:
        """What the first process works out."""
        ...


class OnePlace:
    """This process alone."""

    is_first: ClassVar[bool] = True
    size: ClassVar[int] = 1

    def network(self, graph: Graph) -> Network:
        return Local(graph)

    def told(self, numbers: Callable[[], Array]) -> Array:
        return numbers()


class Optimum:
    """The reference optimum. whole: the problem with all data, and its optimum, where they are known: in the first
    process."""

    def __init__(self, places: Places, build: Callable[[], Problem]) -> None:
        self._places = places
        self.whole: tuple[Problem, Reference] | None = None
        if places.is_first:
            problem = build()
            self.whole = problem, reference(problem)
        self.objective = self.told(lambda problem, optimum: optimum.objective)

    def told(self, work_out: Callable[[Problem, Reference], float]) -> float:
        """A number that follows from it, for all processes."""

        def numbers() -> Array:
            assert self.whole is not None
            return np.array([work_out(*self.whole)])

        return float(self._places.told(numbers)[0])
