"""The coupling of a saddle point problem: any operator A, with z in a dual space of its own."""

from typing import ClassVar

import numpy as np

from gradslide._support.types import Array
from gradslide.network.coupling import Dual
from gradslide.problems.saddle import Saddle
from gradslide.results.costs import Costs


class Operator:
    """z is kept as it is: s = z as a row (1, k), and w = A^T z in the shape of x. Every product is counted."""

    name: ClassVar[str] = "operator"
    exchanges: ClassVar[int] = 0

    def __init__(self, problem: Saddle, costs: Costs) -> None:
        self.duals = problem.duals
        self.A = problem.A.counted(costs)
        self._problem = problem

    def norm(self) -> float:
        return self._problem.operator_norm(self.A)

    def start(self, x: Array, s: Array | None = None) -> Dual:
        z = self.duals.start() if s is None else s
        return Dual(z, self._adjoint(z) if np.any(z) else np.zeros_like(x))

    def ascend(self, dual: Dual, u: Array, q: float) -> Dual:
        z = self.duals.ascend(dual.s, self.A.apply(u.reshape(-1))[None], q)
        return Dual(z, self._adjoint(z))

    def pull(self, dual: Dual) -> Array:
        return dual.w

    def _adjoint(self, z: Array) -> Array:
        return self.A.apply_adjoint(z[0]).reshape(self._problem.m, self._problem.d)
