"""LBFGS: proximal L-BFGS steps over exact sums.

D. C. Liu, J. Nocedal, "On the limited memory BFGS method for large scale optimization", Math. Program.
45 (1989); for sets and penalties J. D. Lee, Y. Sun, M. A. Saunders, "Proximal Newton-type methods for
minimizing composite functions", SIAM J. Optim. 24 (2014).
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.errors import require_number
from gradslide._support.types import Array
from gradslide.domains import Domain
from gradslide.domains.euclidean import Euclidean
from gradslide.methods.base import Choice, Context
from gradslide.methods.bfgs import Memory
from gradslide.methods.exact_sums import CommonProblem, ExactSums, Model, Totals
from gradslide.methods.sqp import SQP
from gradslide.problems.model import Matrix, has_intervals, without_zeros
from gradslide.programs.low_rank import LowRank


@dataclass(frozen=True, kw_only=True)
class LBFGS(ExactSums[Memory]):
    """Proximal L-BFGS method over exact sums, for one Euclidean X and penalty of all agents.

    Every outer iteration evaluates values and gradients at one point x that all agents share. Their
    sums go up a spanning tree, the root computes the next point, which goes down. So agents never
    disagree, and counts of evaluations do not depend on the network. For losses without Hessians,
    and for dimensions in which Hessians are too large.

    Parameters
    ----------
    memory : int
        How many pairs of steps and changes of the gradient the root keeps.

    Notes
    -----
    With F = sum_i ft_i, its gradient g at x, and B the BFGS matrix of the last pairs (s, y), starting
    from theta D with theta = |y|/|s| of the last pair in the norms of D^-1 and D,

        u = argmin over X of <g, u - x> + (u - x)'(B + lam theta D)(u - x)/2 + m (mu nu(u) + r(u))

    is the next trial point. It is accepted if the objective falls by 1e-4 of what the model
    predicts. A rejected one costs an evaluation, and its pair enters B; lam rises if that does not
    help. D holds the sums of squares of the columns of the features where losses have them and X is
    a product of intervals, so that the method does not depend on units there; else D = I.

    Rounds: twice the radius of the graph per evaluation. Floats: a link of the tree carries d + 7
    numbers up (2 d + 7 the first time) and d + 10 down.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares(np.ones((4, 1)), [1.0, 2.0, 3.0, 4.0], agents=4)
    >>> problem = gs.Problem(loss, domain=gs.domains.Box(0.0, 5.0))
    >>> solution = gs.solve(problem, gs.Graph.ring(4), gs.LBFGS())
    >>> solution.status.name, solution.costs.hessians, round(float(solution.mean[0]), 6)
    ('CONVERGED', 0, 2.5)
    """

    patience: ClassVar[int] = 2
    serves_rows: ClassVar[bool] = True

    memory: int = 20

    def __post_init__(self) -> None:
        require_number("memory", self.memory, "for example 10 or 20", least=1, whole=True)
        object.__setattr__(self, "memory", int(self.memory))

    def choose(self, context: Context) -> Choice:
        """Return this method, or its form for linear constraints and saddle points."""
        return Choice(SQP(memory=self.memory)) if context.has_rows else Choice(self)

    def is_unit_free(self, domain: Domain) -> bool:
        return isinstance(domain, Euclidean) and has_intervals(domain)

    def evaluate(self, context: Context, x: Array, is_first: bool) -> tuple[Array, Array, Array]:
        values, gradients = context.oracle.value_and_gradient(x)
        if not is_first:
            return values, gradients, gradients[:, :0]
        squares = context.problem.loss.column_squares()
        if squares is None or context.problem.d % squares.shape[1]:
            return values, gradients, math.nan * gradients
        return values, gradients, array_namespace(squares).tile(squares, (1, context.problem.d // squares.shape[1]))

    def start(self, common: CommonProblem, sums: Totals, objective: float) -> Memory:
        metric = np.ones(common.d)
        if has_intervals(common.domain) and np.isfinite(sums.rest).all() and np.any(sums.rest > 0):
            metric = without_zeros(sums.rest)
        return Memory.first(metric, sums.gradient, objective)

    def learn(
        self, common: CommonProblem, model: Model[Memory], step: Array, sums: Totals, is_accepted: bool
    ) -> Memory:
        seen = model.assessment
        return model.curvature.learned(
            step,
            model.gradient,
            sums.gradient,
            size=self.memory,
            eps=common.eps,
            objective=seen.objective,
            first=seen.first,
            is_accepted=is_accepted,
        )

    def adopt(self, common: CommonProblem, matrix: Matrix, scales: Array) -> Memory:
        metric, none = np.ones(common.d), np.zeros((0, common.d))
        if not np.any(scales > 0):
            return Memory(metric, 1.0, none, none)
        if has_intervals(common.domain):
            return Memory(without_zeros(scales), 1.0, none, none)
        return Memory(metric, float(np.mean(scales)), none, none)

    def matrix(self, curvature: Memory) -> LowRank:
        return curvature.matrix()

    def scales(self, curvature: Memory) -> Array:
        return curvature.scales

    def restored_curvature(self, saved: Any) -> Memory:
        return Memory(*saved)
