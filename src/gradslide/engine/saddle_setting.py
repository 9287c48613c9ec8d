"""A saddle point problem on one machine, as a run sees it."""

from typing import Any, ClassVar

from gradslide._support.errors import require
from gradslide._support.types import Array
from gradslide.engine.saddle_observer import SaddleObserver
from gradslide.engine.stop import Relative, Stop
from gradslide.network.base import Network
from gradslide.network.central import Central
from gradslide.network.operator import Operator
from gradslide.problems.saddle import Saddle
from gradslide.results.certificate import Certificate
from gradslide.results.costs import Costs
from gradslide.theory.proof import Values

_TOLERANCE = Relative(1e-4)
_DEFAULT_GRADIENTS, _DEFAULT_PRODUCTS = 10_000, 100_000


class OnOneMachine:
    """All of x and z in one place, coupled by an operator."""

    compares_outputs: ClassVar[bool] = True
    timeline: ClassVar[None] = None
    quiet: ClassVar[None] = None

    def __init__(self, problem: Saddle, costs: Costs) -> None:
        self.network: Network = Central(problem.m)
        self.coupling = Operator(problem, costs)
        self.observer = SaddleObserver(problem, self.coupling.A)
        self.names = {"coupling": self.coupling.name}
        self._problem = problem

    @property
    def fingerprint(self) -> str:
        return f"{self._problem.A.fingerprint()} {self._problem.duals.fingerprint()}"

    def memory(self) -> None:
        return None

    def recall(self, memory: Any) -> None:
        return None

    def watch(self, rows: Array) -> None:
        """Multipliers of one machine need not add up to anything."""

    def doubts(self, start: Array, x: Array, method: str, certificate: Certificate | None) -> tuple[str, ...]:
        return ()

    def default_stop(self, iterations: int | None, stops_itself: bool = False) -> Stop:
        gap = _TOLERANCE if self._problem.has_gap else None
        residual = _TOLERANCE if gap is not None and self._problem.duals.is_constrained else None
        limits = {"gradients": _DEFAULT_GRADIENTS, "operator_products": _DEFAULT_PRODUCTS}
        return Stop(gap=gap, residual=residual, iterations=iterations, **limits)

    def checks(self, stop: Stop, values: Values, start: Array) -> None:
        """All is in one place: observations are free."""

    def largest(self, costs: Costs) -> Costs:
        return costs

    def everybody(self, x: Array) -> dict[str, Any]:
        return {}

    def dual_start(self, dual: Array) -> Array:
        shape = self._problem.A.shape[:1]
        rule = f"warm_start must have multipliers of shape {shape}"
        require(dual.shape == shape, rule, dual.shape, "give its x as x0")
        return dual[None]

    def multipliers(self, dual: Array) -> Array:
        return dual[0]
