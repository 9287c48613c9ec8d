"""Where a run takes place: what couples the x_i, who counts it, who looks at it."""

from typing import ClassVar, Protocol

import numpy as np

from gradslide import coupling as couplings
from gradslide._types import Array
from gradslide.costs import Costs
from gradslide.coupling import Coupling
from gradslide.errors import require
from gradslide.metrics import NetworkObserver, Observer
from gradslide.network import Counted, Network
from gradslide.network.wrapper import beneath
from gradslide.problem import Problem
from gradslide.stop import Stop

_DEFAULT_ITERATIONS = 1000


class Setting(Protocol):
    """`network` and `coupling` count what is asked of them; `observer` looks beneath them.

    names: for the solution's settings. fingerprint: what a checkpoint must have in common with this.
    """

    @property
    def network(self) -> Network: ...

    @property
    def coupling(self) -> Coupling: ...

    @property
    def observer(self) -> Observer: ...

    @property
    def names(self) -> dict[str, str]: ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def compares_outputs(self) -> bool:
        """Whether any output that reaches the targets will do, where none was asked for."""
        ...

    def default_stop(self, iterations: int | None) -> Stop:
        """When a run ends that was not told when to end. iterations: of the method's schedule, if it ends."""
        ...

    def dual_start(self, dual: Array) -> Array:
        """Multipliers of an earlier solution, as the coupling starts from them."""
        ...

    def multipliers(self, dual: Array) -> Array:
        """What a method gives as its dual, as a solution shows it."""
        ...


class Networked:
    """Agents on a network: A x = 0 where they agree."""

    compares_outputs: ClassVar[bool] = False

    def __init__(self, problem: Problem, network: Network, coupling: str, costs: Costs) -> None:
        self._problem = problem
        self.network: Network = Counted(network, costs)
        self.coupling = couplings.make(coupling, self.network)
        observed = beneath(network)
        self.observer = NetworkObserver(problem, observed, couplings.make(coupling, observed))
        self.names = {"coupling": coupling, "network": repr(network.graph)}

    @property
    def fingerprint(self) -> str:
        return self.network.graph.fingerprint

    def default_stop(self, iterations: int | None) -> Stop:
        return Stop(iterations=iterations or _DEFAULT_ITERATIONS)

    def dual_start(self, dual: Array) -> Array:
        shape = (self._problem.m, self._problem.d)
        rule = f"warm_start must have multipliers of shape {shape}"
        require(dual.shape == shape, rule, dual.shape, "give its x as x0")
        return dual

    def multipliers(self, dual: Array) -> Array:
        """In node form; a part common to all agents says nothing and is taken off."""
        return np.asarray(dual - self.observer.mean(dual))
