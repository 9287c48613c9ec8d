"""Newton: proximal Newton steps over exact sums.

J. D. Lee, Y. Sun, M. A. Saunders, "Proximal Newton-type methods for minimizing composite functions",
SIAM J. Optim. 24 (2014); damped as in J. J. More, "The Levenberg-Marquardt algorithm" (1978).
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gradslide._support.types import Array
from gradslide.domains import Domain
from gradslide.methods.base import Choice, Context
from gradslide.methods.bfgs import least_curvature
from gradslide.methods.exact_sums import CommonProblem, ExactSums, Model, State, Totals
from gradslide.methods.sqp import SQP
from gradslide.problems.model import Matrix, from_upper, upper
from gradslide.programs.low_rank import LowRank


class Curvature(NamedTuple):
    """Second derivatives at the best point.

    Attributes
    ----------
    hessian : ndarray, shape (d, d)
        Sum of the Hessians.
    scales : ndarray, shape (d,)
        The largest second derivatives at accepted points, by which damping is scaled.
    """

    hessian: Array
    scales: Array


@dataclass(frozen=True, kw_only=True)
class Newton(ExactSums[Curvature]):
    """Proximal Newton method over exact sums, for one Euclidean X and penalty of all agents.

    Every outer iteration evaluates values, gradients and Hessians at one point x that all agents
    share. Their sums go up a spanning tree, the root computes the next point, which goes down. So
    agents never disagree, and counts of evaluations do not depend on the network.

    Notes
    -----
    With F = sum_i ft_i + m mu nu, gradient g and Hessian H at x, and D = diag(H),

        u = argmin over X of <g, u - x> + (u - x)'(H + lam D)(u - x)/2 + m r(u)

    is the next trial point. It is accepted if the objective falls by 1e-4 of what the model
    predicts. lam is 0 as long as the model predicts well; it rises when steps are rejected, which
    cost one evaluation. The method does not depend on the units of the coordinates.

    Rounds: twice the radius of the graph per evaluation. Floats: a link of the tree carries
    d (d + 1)/2 + d + 7 numbers up and d + 10 down.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares(np.ones((4, 1)), [1.0, 2.0, 3.0, 4.0], agents=4)
    >>> problem = gs.Problem(loss, domain=gs.domains.Box(0.0, 5.0))
    >>> solution = gs.solve(problem, gs.Graph.ring(4), gs.Newton())
    >>> solution.status.name, solution.costs.gradients, float(solution.mean[0])
    ('CONVERGED', 2, 2.5)
    """

    needs_hessian: ClassVar[bool] = True
    serves_rows: ClassVar[bool] = True

    def choose(self, context: Context) -> Choice:
        """Return this method, or its form for linear constraints and saddle points."""
        return Choice(SQP()) if context.has_rows else Choice(self)

    def is_unit_free(self, domain: Domain) -> bool:
        return True

    def evaluate(self, context: Context, x: Array, is_first: bool) -> tuple[Array, Array, Array]:
        values, gradients, hessians = context.oracle.derivatives(x)
        return values, gradients, upper(hessians)

    def start(self, common: CommonProblem, sums: Totals, objective: float) -> Curvature:
        hessian = from_upper(sums.rest, common.d)
        return Curvature(hessian, np.maximum(np.diag(hessian), least_curvature(sums.gradient, objective)))

    def learn(
        self, common: CommonProblem, model: Model[Curvature], step: Array, sums: Totals, is_accepted: bool
    ) -> Curvature:
        if not is_accepted:
            return model.curvature
        hessian = from_upper(sums.rest, common.d)
        return Curvature(hessian, np.maximum(model.curvature.scales, np.diag(hessian)))

    def hessian(self, state: State[Curvature]) -> Array | None:
        """Return the sum of the Hessians at x, which the root knows."""
        model = state.model
        # A model that another method has made has no estimate of the error.
        return None if model is None or math.isnan(model.assessment.error) else model.curvature.hessian

    def adopt(self, common: CommonProblem, matrix: Matrix, scales: Array) -> Curvature:
        return Curvature(matrix.dense() if isinstance(matrix, LowRank) else matrix, scales)

    def matrix(self, curvature: Curvature) -> Array:
        return curvature.hessian

    def scales(self, curvature: Curvature) -> Array:
        return curvature.scales

    def restored_curvature(self, saved: Any) -> Curvature:
        return Curvature(*saved)
