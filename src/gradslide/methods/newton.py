"""Newton: proximal Newton steps over exact sums.

J. D. Lee, Y. Sun, M. A. Saunders, "Proximal Newton-type methods for minimizing composite functions",
SIAM J. Optim. 24 (2014); damped as in J. J. More, "The Levenberg-Marquardt algorithm" (1978).
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, cast

import numpy as np

from gradslide._support.types import Array
from gradslide.methods.base import Context, Method
from gradslide.methods.exact_sums import Assessment, CommonProblem, Totals, common_problem, contribution
from gradslide.problems.model import from_upper, minimize_model
from gradslide.theory.certificates import Evaluation

# A step is accepted if the objective falls by this share of what the model predicts.
_ACCEPT = 1e-4
# Above this share the model is good, and damping falls; below, it is poor, and damping rises.
_GOOD, _POOR = 0.5, 0.1
_FALL, _RISE = 1 / 16, 4.0
# Damping below this is none.
_NO_DAMPING = 1e-6
# The next step after a rejected one is at most this share as long, and less after several in a row.
_SHORTER = 0.25
# Damping of a model that has no minimum, or one that is beyond all measure.
_FLAT, _ENDLESS = 1.0, 1e30


class Model(NamedTuple):
    """The quadratic model at the best point, which the root of the tree keeps.

    Attributes
    ----------
    assessment : Assessment
        The point's objective, bounds and residuals.
    gradient : ndarray, shape (d,)
        Sum of the gradients.
    hessian : ndarray, shape (d, d)
        Sum of the Hessians.
    curvature : ndarray, shape (d,)
        The largest second derivatives at accepted points, by which damping is scaled.
    damping : float
        This share of `curvature` is added to the diagonal.
    predicted : float
        By how much the objective falls at the next trial point, if the model holds.
    length : float
        How far away the trial point is, in the metric of `curvature`.
    noise : float
        By how much rounding may change the objective.
    rejections : int
        How many steps were rejected in a row.
    """

    assessment: Assessment
    gradient: Array
    hessian: Array
    curvature: Array
    damping: float
    predicted: float
    length: float
    noise: float
    rejections: int = 0


@dataclass(frozen=True)
class State:
    """The best point so far, and the next to be evaluated.

    Attributes
    ----------
    x, trial : ndarray, shape (d,)
        The same for all agents.
    assessment : Assessment or None
        What is known about x; None before the first evaluation.
    model : Model or None
        At the root of the tree only.
    agents : int
        Number of agents here.
    dtype : str
        Precision of the answer.
    """

    x: Array
    trial: Array
    assessment: Assessment | None
    model: Model | None
    rejected: int
    agents: int
    dtype: str


@dataclass(frozen=True, kw_only=True)
class Newton(Method[State]):
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
    d (d + 1)/2 + d + 5 numbers up and d + 8 down.

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

    stops_itself: ClassVar[bool] = True
    is_unit_free: ClassVar[bool] = True

    def prepare(self, context: Context) -> CommonProblem:
        """Find out whether all agents have the same set, and Hessians."""
        return common_problem(context, self, needs_hessian=True)

    def init(self, context: Context) -> State:
        common = cast(CommonProblem, context.prepared)
        x0 = common.x0
        return State(x0, x0, None, None, 0, len(context.network.agents), context.problem.dtype.str)

    def step(self, context: Context, state: State) -> State:
        common, d = cast(CommonProblem, context.prepared), context.problem.d
        at = np.broadcast_to(state.trial.astype(context.problem.dtype), (state.agents, d))
        values, gradients, hessians = context.oracle.derivatives(at)
        rows = contribution(context, at, values, gradients, hessians[:, *np.triu_indices(d)])
        model = state.model

        def decide(totals: Array) -> Array:
            nonlocal model
            model, trial, is_accepted = next_trial(common, state, Totals.read(totals, d))
            return np.concatenate([[float(is_accepted)], model.assessment, trial])

        answer = context.network.relay(rows, decide, 1 + len(Assessment._fields) + d)
        is_accepted, *numbers = answer[:-d].tolist()
        x = state.trial if is_accepted else state.x
        rejected = state.rejected + (not is_accepted)
        return State(x, answer[-d:], Assessment(*numbers), model, rejected, state.agents, state.dtype)

    def restored(self, state: State) -> State:
        """Make named tuples of what a checkpoint holds as plain ones."""
        assessment, model = state.assessment, state.model
        if assessment is not None:
            assessment = Assessment(*assessment)
        if model is not None:
            model = Model(*model)
            model = model._replace(assessment=Assessment(*model.assessment))
        return replace(state, assessment=assessment, model=model)

    def output(self, state: State) -> Array:
        return np.broadcast_to(state.x.astype(state.dtype), (state.agents, len(state.x)))

    def known(self, state: State) -> Evaluation | None:
        """Return bounds and residuals at x, which came with the answer of the root."""
        return None if state.assessment is None else state.assessment.evaluation(state.x)

    def parameters(self, state: State) -> dict[str, float]:
        return {"rejected": state.rejected}


def next_trial(common: CommonProblem, state: State, sums: Totals) -> tuple[Model, Array, bool]:
    """Return the model at the best point, the next trial point, and whether the last one was accepted."""
    trial, model, d = state.trial, state.model, common.d
    hessian = from_upper(sums.rest, d)
    assessment, noise = common.assess(trial, sums), common.noise(sums)
    is_finite = bool(math.isfinite(sums.value) and np.isfinite(sums.gradient).all() and np.isfinite(hessian).all())
    if model is None:
        assessment = assessment._replace(scale=assessment.stationarity, first=assessment.objective)
        curvature = np.maximum(np.diag(hessian), _least_curvature(sums.gradient, assessment.objective))
        return _with_step(
            common, Model(assessment, sums.gradient, hessian, curvature, 0.0, 0.0, 0.0, noise), trial, True
        )
    known, curvature = model.assessment, model.curvature
    noise = max(model.noise, noise) if is_finite else model.noise
    decrease = known.objective - assessment.objective
    if is_finite and decrease >= _ACCEPT * model.predicted - noise:
        expected, damping = model.predicted + noise, model.damping
        share = (decrease + noise) / expected if expected > 0 else 1.0
        damping *= _FALL if share > _GOOD else _RISE if share < _POOR else 1.0
        damping = 0.0 if damping < _NO_DAMPING else damping
        curvature = np.maximum(curvature, np.diag(hessian))
        lower = max(assessment.lower, known.lower)
        assessment = assessment._replace(scale=known.scale, first=known.first, lower=lower)
        found = Model(assessment, sums.gradient, hessian, curvature, damping, 0.0, 0.0, noise)
        return _with_step(common, found, trial, True)
    rejections = model.rejections + 1
    step = trial - state.x
    slope = float(model.gradient @ step)
    share = _SHORTER**rejections
    if is_finite and slope < 0:
        # The minimum of the parabola through both values with the slope at x.
        share = min(share, max(-slope / (2 * max(-decrease - slope, 1e-300)), share**2))
    size = math.sqrt(float(np.sum(model.gradient**2 / np.where(curvature > 0, curvature, np.inf))))
    damping = max(_RISE * model.damping, size / max(share * model.length, 1e-300))
    found = model._replace(damping=damping, rejections=rejections)
    return _with_step(common, found, state.x, False)


def _least_curvature(gradient: Array, objective: float) -> Array:
    """Second derivatives with which no coordinate alone could lower the objective by more than its size."""
    return gradient**2 / (2 * abs(objective)) if objective else np.abs(gradient)


def _with_step(common: CommonProblem, model: Model, x: Array, is_accepted: bool) -> tuple[Model, Array, bool]:
    """Minimize the model at x."""
    given = x, model.gradient, model.hessian, common.domain, common.mu, common.m
    minimum = minimize_model(*given, model.damping * model.curvature)
    if is_accepted:
        exact = minimum if model.damping == 0 else minimize_model(*given)
        model = model._replace(assessment=model.assessment._replace(error=exact.decrease + exact.missed))
    if not minimum.decrease < _ENDLESS * (1 + abs(model.assessment.objective)):
        model = model._replace(damping=max(_FLAT, model.damping))
        minimum = minimize_model(*given, model.damping * model.curvature)
    length = math.sqrt(float(model.curvature @ (minimum.x - x) ** 2))
    return model._replace(predicted=minimum.decrease, length=length), common.rounded(minimum.x), is_accepted
