"""What second-order methods share: agents hold one point, and the root of the tree knows exact sums there.

In one evaluation every agent computes its part at the point of all, partial sums go up the tree, the
root decides and computes the next point, and its answer goes down. Bounds and residuals are known
at the root and travel with the answer.

The root keeps the best point and a quadratic model there. A step that lowers the objective by less
than the model predicts is rejected, and the model is damped.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast

import array_api_compat as compat
import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import copied, dot, doubles, dtype_of, is_numpy, like, to_numpy
from gradslide._support.errors import InputError, require
from gradslide._support.types import Array
from gradslide.domains.euclidean import Euclidean
from gradslide.graphs.graph import Graph
from gradslide.methods.base import Context, Method
from gradslide.methods.damping import (
    FLAT,
    NOISE,
    after_acceptance,
    after_rejection,
    doubt,
    is_good_step,
    negative_curvature,
    violation_of_convexity,
)
from gradslide.methods.steps import require_common_domain
from gradslide.problems.model import Matrix, minimize_model
from gradslide.results.certificate import KKT
from gradslide.theory.certificates import (
    ErrorTerms,
    Evaluation,
    Piece,
    error_terms,
    lower_bound_at,
    rounding_operations,
    stationarity_part,
)

# A model that predicts a decrease beyond all measure has no minimum.
_FAR = 1e30

# What a method remembers of the curvature.
CurvatureT = TypeVar("CurvatureT")


class Totals(NamedTuple):
    """Totals over all agents at one point.

    Attributes
    ----------
    value : float
        Of the ft_i.
    conjugate : float
        Of the <x, y_i> - ft_i(x), with gradients y_i.
    errors : ErrorTerms
        What rounding errors are proportional to.
    ratios : Ratios
        What was measured, summed over the agents.
    gradient : ndarray, shape (d,)
        Of the y_i.
    rest : ndarray
        What a method adds.
    """

    value: float
    conjugate: float
    errors: ErrorTerms
    ratios: "Ratios"
    gradient: Array
    rest: Array

    @classmethod
    def read(cls, numbers: Array, d: int) -> "Totals":
        """Read what `contribution` returned, summed over all agents."""
        value, conjugate, *rest = numbers[:_HEAD].tolist()
        errors, ratios = ErrorTerms(*rest[: len(ErrorTerms._fields)]), Ratios(*rest[len(ErrorTerms._fields) :])
        return cls(value, conjugate, errors, ratios, numbers[_HEAD : _HEAD + d], numbers[_HEAD + d :])


class Ratios(NamedTuple):
    """Ratios of measured times, by which `Auto` revises its choice.

    Attributes
    ----------
    hessian : float
        Of a Hessian, in gradients; 0 as long as it is not known.
    gradient : float
        Of a gradient, in rounds.
    """

    hessian: float
    gradient: float


# Numbers in front of the gradient, in sums.
_HEAD = 2 + len(ErrorTerms._fields) + len(Ratios._fields)


def contribution(context: Context, x: Array, values: Array, gradients: Array, rest: Array) -> Array:
    """Return what the agents here add to the sums at x: a row of each, or one of all.

    Parameters
    ----------
    context : Context
        The run.
    x : ndarray, shape (agents, d)
        The point, once for each agent.
    values, gradients : ndarray
        Of the ft_i there.
    rest : ndarray, shape (agents, k) or (1, k)
        What a method adds: a row of each agent, or one of all.

    Returns
    -------
    ndarray, shape (agents, n) or (1, n)
        What `Totals.read` takes, once it is summed.
    """
    given = x, values, gradients, rest, cast(CommonProblem, context.prepared).operations
    # Libraries other than PyTorch may lack double precision.
    x, values, gradients, rest, operations = map(doubles, given if compat.is_torch_array(x) else map(to_numpy, given))
    xp = array_namespace(x)
    conjugates = dot(x, gradients) - values
    errors = error_terms(operations, x, gradients, conjugates)
    # Who sends under masks must send the same again after a restart: nothing that was measured.
    is_masked = context.network.costs.sum_width > 1
    measured = (0.0, 1.0) if is_masked else (context.pace.hessian_ratio(), context.pace.ratio())
    ratios = [xp.full_like(x[:, :1], each) for each in measured]
    head = xp.concat([values[:, None], conjugates[:, None], errors, *ratios, gradients], axis=1)
    if is_numpy(x) and len(rest) == len(head):
        return np.concatenate([head, rest], axis=1)
    # One transfer from the device.
    return to_numpy(xp.concat([xp.sum(each, axis=0, keepdims=True) for each in (head, rest)], axis=1))


@dataclass(frozen=True)
class CommonProblem:
    """What a run prepares once: the problem that all agents have in common.

    Attributes
    ----------
    domain : Euclidean
        X, nu and r of one agent, in double precision.
    mu : float
        Strong convexity.
    m, d : int
        Number of agents, dimension.
    dtype : numpy.dtype
        The precision of the data.
    x0 : ndarray, shape (d,)
        Where the run starts.
    is_provable : bool
        Whether lower bounds are finite.
    has_hessians : bool
        Whether the losses of all agents have Hessians.
    operations : array, shape (agents,)
        How many rounding errors the gradients of the agents here add up.
    """

    domain: Euclidean
    mu: float
    m: int
    d: int
    dtype: np.dtype
    x0: Array
    is_provable: bool
    has_hessians: bool
    operations: Array

    def objective(self, x: Array, value: float) -> float:
        """Return the sum of all f_i, given that of the ft_i."""
        domain, at = self.domain, x[None]
        ridge = self.mu * float(domain.nu(at)[0]) if self.mu > 0 else 0.0
        return value + self.m * (ridge + float(domain.r(at)[0]))

    def rounded(self, x: Array) -> Array:
        """Return the nearest point of X with the precision of the data."""
        return np.asarray(self.domain.project(x[None])[0].astype(self.dtype), dtype=np.float64)

    @property
    def eps(self) -> float:
        """The precision of the data."""
        return float(np.finfo(self.dtype).eps)

    def noise(self, sums: Totals) -> float:
        """Return by how much rounding may change the objective."""
        return NOISE * self.eps * abs(sums.value)

    def assess(self, x: Array, sums: Totals) -> "Assessment":
        """Return what the sums at x say about it."""
        objective, lower = self.objective(x, sums.value), -math.inf
        # Values of data in single precision may be rounded to less than they are.
        upper = objective + (self.eps * sums.errors.values if self.dtype == np.float32 else 0.0)
        if self.is_provable:
            given = sums.gradient, sums.conjugate, sums.errors
            lower = lower_bound_at(self.domain, self.mu, self.m, x, *given, self.eps)
        one = Piece(self.domain, self.mu, self.d, self.dtype, None)
        squared = float(stationarity_part(one, x[None], sums.gradient[None] / self.m)[0])
        ratios = (each / self.m for each in sums.ratios)
        return Assessment(objective, upper, lower, math.sqrt(self.m * squared), math.nan, math.nan, math.nan, *ratios)


class Assessment(NamedTuple):
    """What all agents know about the best point so far.

    Attributes
    ----------
    objective : float
        The sum of all f_i.
    upper, lower : float
        Bounds on the optimum; `lower` is -inf if there is none.
    stationarity : float
        Norm of a prox-gradient step, as in `KKT`.
    scale : float
        The stationarity at the start.
    error : float
        Estimated error of the objective; NaN if it is not known.
    first : float
        The objective at the start.
    hessian_ratio, gradient_ratio : float
        As in `Ratios`, averaged over the agents.
    contradiction : float
        By how much values and gradients at two points violated convexity, if more than roughly.
    concave : float
        How far the least eigenvalue of the Hessian lies below zero, likewise.
    """

    objective: float
    upper: float
    lower: float
    stationarity: float
    scale: float
    error: float
    first: float
    hessian_ratio: float
    gradient_ratio: float
    contradiction: float = 0.0
    concave: float = 0.0

    def evaluation(self, x: Array) -> Evaluation:
        """Return it in the form in which targets are checked."""
        error, objective = (None, None) if math.isnan(self.error) else (self.error, self.objective)
        kkt = KKT(self.stationarity, 0.0, self.scale, error=error, objective=objective)
        return Evaluation(
            mean=x, point=x, lower=self.lower, upper=self.upper, disagreement=0.0, kkt=kkt, first=self.first
        )


class Model(NamedTuple, Generic[CurvatureT]):
    """The quadratic model at the best point, which the root of the tree keeps.

    Attributes
    ----------
    assessment : Assessment
        The point's objective, bounds and residuals.
    gradient : ndarray, shape (d,)
        Sum of the gradients.
    curvature : object
        What the method knows about second derivatives.
    damping : float
        This share of `ExactSums.scales` is added to the diagonal.
    predicted : float
        By how much the objective falls at the next trial point, if the model holds.
    length : float
        How far away the trial point is, in the metric of these scales.
    noise : float
        By how much rounding may change the objective.
    rejections : int
        How many steps were rejected in a row.
    """

    assessment: Assessment
    gradient: Array
    curvature: CurvatureT
    damping: float
    predicted: float
    length: float
    noise: float
    rejections: int = 0


@dataclass(frozen=True)
class State(Generic[CurvatureT]):
    """The best point so far, and the next to be evaluated.

    Attributes
    ----------
    x, trial : ndarray, shape (d,)
        The same for all agents.
    assessment : Assessment or None
        What is known about x; None before the first evaluation.
    model : Model or None
        At the root of the tree only.
    evaluations, rejected : int
        How many trial points there were, and how many of them were rejected.
    agents : int
        Number of agents here.
    home : array, shape (0,)
        Precision and device of the answer.
    """

    x: Array
    trial: Array
    assessment: Assessment | None
    model: Model[CurvatureT] | None
    evaluations: int
    rejected: int
    agents: int
    home: Array

    def rows(self, x: Array) -> Array:
        """Return a point once for each agent, where the problem is."""
        row = like(x.astype(dtype_of(self.home)), self.home)
        return array_namespace(self.home).broadcast_to(row, (self.agents, len(x)))


class ExactSums(Method[State[CurvatureT]], Generic[CurvatureT]):
    """Base class of methods whose agents share one point and know exact sums there.

    A subclass says what agents evaluate, and what the root makes of it.

    Attributes
    ----------
    needs_hessian : bool
        Whether losses must have Hessians. The minimum of the model then estimates the error of the
        objective.
    patience : int
        Rejected steps in a row without damping: a method that learns from them may not need it.
    """

    stops_itself: ClassVar[bool] = True
    has_common_state: ClassVar[bool] = True
    needs_hessian: ClassVar[bool] = False
    patience: ClassVar[int] = 0

    @abstractmethod
    def evaluate(self, context: Context, x: Array, is_first: bool) -> tuple[Array, Array, Array]:
        """Return values, gradients and what else is summed: a row of each agent here, or one of all.

        Parameters
        ----------
        context : Context
            The run.
        x : ndarray, shape (agents, d)
            The point, once for each agent.
        is_first : bool
            Whether this is the first evaluation.

        Returns
        -------
        values, gradients, rest : ndarray
            As `contribution` takes them.
        """

    @abstractmethod
    def start(self, common: CommonProblem, sums: Totals, objective: float) -> CurvatureT:
        """Return what is known about curvature at the first point.

        Parameters
        ----------
        common : CommonProblem
            The problem.
        sums : Totals
            At that point.
        objective : float
            The sum of all f_i there.

        Returns
        -------
        object
            Arrays and numbers.
        """

    @abstractmethod
    def learn(
        self, common: CommonProblem, model: Model[CurvatureT], step: Array, sums: Totals, is_accepted: bool
    ) -> CurvatureT:
        """Return what is known about curvature after a trial.

        Parameters
        ----------
        common : CommonProblem
            The problem.
        model : Model
            The model before.
        step : ndarray, shape (d,)
            From the best point to the trial point.
        sums : Totals
            At the trial point, all finite.
        is_accepted : bool
            Whether the trial point is the best one now.

        Returns
        -------
        object
            As `start` returns it.
        """

    @abstractmethod
    def matrix(self, curvature: CurvatureT) -> Matrix:
        """Return the second derivatives of the model."""

    @abstractmethod
    def scales(self, curvature: CurvatureT) -> Array:
        """Return the diagonal by which damping is scaled, shape (d,)."""

    @abstractmethod
    def adopt(self, common: CommonProblem, matrix: Matrix, scales: Array) -> CurvatureT:
        """Return what is known about curvature from the model of another method.

        Parameters
        ----------
        common : CommonProblem
            The problem.
        matrix, scales : Matrix, ndarray
            What `matrix` and `scales` of the other method returned.

        Returns
        -------
        object
            As `start` returns it.
        """

    def prepare(self, context: Context) -> CommonProblem:
        """Find out whether all agents have the same set, and what the method needs."""
        require_common_domain(context, self)
        abilities = survey_agents(context)
        lacks = abilities.lack_values or (self.needs_hessian and abilities.lack_hessians)
        what = "values and Hessians" if self.needs_hessian else "values"
        other = "AutoPDS" if abilities.lack_values else "LBFGS"
        require(not lacks, f"{self.name} needs losses with {what}", repr(context.problem.loss), f"use gs.{other}()")
        return common_problem(context, abilities)

    def init(self, context: Context) -> State[CurvatureT]:
        common = cast(CommonProblem, context.prepared)
        x0 = common.x0
        return State(x0, x0, None, None, 0, 0, len(context.network.agents), context.problem.placed(np.zeros(0)))

    def step(self, context: Context, state: State[CurvatureT]) -> State[CurvatureT]:
        common, d = cast(CommonProblem, context.prepared), context.problem.d
        at = state.rows(state.trial)
        rows = contribution(context, at, *self.evaluate(context, at, state.evaluations == 0))
        model = state.model

        def decide(totals: Array) -> Array:
            nonlocal model
            model, trial, is_accepted = next_trial(self, common, state, Totals.read(totals, d))
            return np.concatenate([[float(is_accepted)], model.assessment, trial])

        answer = context.network.relay(rows, decide, 1 + len(Assessment._fields) + d)
        is_accepted, *numbers = answer[:-d].tolist()
        assessment = Assessment(*numbers)
        if state.evaluations == 0 and not math.isfinite(assessment.scale):
            rule = "value and gradient at the start must be finite, and their squares, too"
            raise InputError(rule, f"an objective of {assessment.objective:.3g}", "give another x0")
        return replace(
            state,
            x=state.trial if is_accepted else state.x,
            trial=answer[-d:],
            assessment=assessment,
            model=model,
            evaluations=state.evaluations + 1,
            rejected=state.rejected + (not is_accepted),
        )

    def restored(self, state: State[CurvatureT], fresh: State[CurvatureT]) -> State[CurvatureT]:
        """Make named tuples of what a checkpoint holds as plain ones."""
        assessment, model = state.assessment, state.model
        if assessment is not None:
            assessment = Assessment(*assessment)
        if model is not None:
            # The root computes with NumPy, also for a problem on a device.
            model = Model(*map(_on_host, model))
            curvature = self.restored_curvature(tuple(map(_on_host, cast(Any, model.curvature))))
            model = model._replace(assessment=Assessment(*model.assessment), curvature=curvature)
        return replace(state, assessment=assessment, model=model, agents=fresh.agents, home=fresh.home)

    def restored_curvature(self, saved: Any) -> CurvatureT:
        """Return what `start` and `learn` returned, from a checkpoint."""
        return cast(CurvatureT, saved)

    def take_over(self, common: CommonProblem, other: "ExactSums[Any]", state: State[Any]) -> State[CurvatureT]:
        """Return the state of another method of this kind as one of this method.

        Parameters
        ----------
        common : CommonProblem
            The problem.
        other : ExactSums
            The method that the state is of.
        state : State
            After an evaluation.

        Returns
        -------
        State
            With the same points. The root keeps the gradient, and translates the curvature.
        """
        if state.model is None:
            return state
        known = state.model.curvature
        curvature = self.adopt(common, other.matrix(known), other.scales(known))
        return replace(state, model=state.model._replace(curvature=curvature, rejections=0))

    def output(self, state: State[CurvatureT]) -> dict[str, Array]:
        """Return the best point so far."""
        x = state.rows(state.x)
        return {"best": x if is_numpy(x) else copied(x)}

    def known(self, state: State[CurvatureT]) -> Evaluation | None:
        """Return bounds and residuals at x, which came with the answer of the root."""
        return None if state.assessment is None else state.assessment.evaluation(state.x)

    def contradiction(self, state: State[CurvatureT]) -> str:
        """Say that values and gradients at two trial points violated convexity, or second derivatives at one."""
        known = state.assessment
        return "" if known is None else doubt(known.contradiction, known.concave, state.evaluations)

    def parameters(self, state: State[CurvatureT]) -> dict[str, float]:
        return {"rejected": state.rejected}


def _on_host(saved: Any) -> Any:
    """Numbers and tuples as they are, arrays as NumPy's."""
    return saved if is_numpy(saved) else to_numpy(saved)


def next_trial(
    method: ExactSums[CurvatureT], common: CommonProblem, state: State[CurvatureT], sums: Totals
) -> tuple[Model[CurvatureT], Array, bool]:
    """Judge a trial point, and find the next one.

    Parameters
    ----------
    method : ExactSums
        It knows curvature.
    common : CommonProblem
        The problem.
    state : State
        Before the evaluation.
    sums : Totals
        At the trial point.

    Returns
    -------
    model : Model
        At the best point.
    trial : ndarray, shape (d,)
        The next trial point.
    is_accepted : bool
        Whether the last one is the best point now.
    """
    trial, model = state.trial, state.model
    assessment, noise = common.assess(trial, sums), common.noise(sums)
    arrays = (sums.gradient, sums.rest) if method.needs_hessian else (sums.gradient,)
    is_finite = math.isfinite(sums.value) and all(bool(np.isfinite(each).all()) for each in arrays)
    if model is None:
        scale = assessment.stationarity if is_finite else math.inf
        assessment = assessment._replace(scale=scale, first=assessment.objective)
        if not math.isfinite(scale):
            return Model(assessment, sums.gradient, cast(CurvatureT, None), 0.0, 0.0, 0.0, noise), trial, True
        curvature = method.start(common, sums, assessment.objective)
        found = Model(assessment, sums.gradient, curvature, 0.0, 0.0, 0.0, noise)
        return _with_step(method, common, found, trial, True)
    known, step = model.assessment, trial - state.x
    own, noise = noise, max(model.noise, noise) if is_finite else model.noise
    decrease = known.objective - assessment.objective
    is_accepted = is_finite and is_good_step(decrease, model.predicted, noise)
    if is_finite and known.contradiction == 0:
        known = known._replace(
            contradiction=_contradiction(common, model, method.scales(model.curvature), state.x, step, sums, noise)
        )
        model = model._replace(assessment=known)
    curvature = method.learn(common, model, step, sums, is_accepted) if is_finite else model.curvature
    if is_accepted:
        damping, flat = after_acceptance(model.damping, decrease, model.predicted, noise)
        lower = max(assessment.lower, known.lower)
        assessment = assessment._replace(
            scale=known.scale, first=known.first, lower=lower, contradiction=known.contradiction
        )
        found = Model(assessment, sums.gradient, curvature, damping, 0.0, 0.0, own)
        return _with_step(method, common, found, trial, True, flat)
    rejections, damping = model.rejections + 1, model.damping
    if not is_finite or rejections > method.patience:
        scales = method.scales(curvature)
        damping = after_rejection(
            model.damping,
            rejections - method.patience if is_finite else rejections,
            slope=float(model.gradient @ step) if is_finite else None,
            decrease=decrease,
            steepness=math.sqrt(float(np.sum(model.gradient**2 / np.where(scales > 0, scales, np.inf)))),
            length=model.length,
        )
    found = model._replace(curvature=curvature, damping=damping, rejections=rejections)
    return _with_step(method, common, found, state.x, False)


def _contradiction(
    common: CommonProblem, model: Model[Any], scales: Array, x: Array, step: Array, sums: Totals, noise: float
) -> float:
    """By how much the change of the value lies outside its slopes at both ends, between which convexity has it."""
    rest = common.objective(x, 0.0)
    rise = sums.value - (model.assessment.objective - rest)
    low, high = float(model.gradient @ step), float(sums.gradient @ step)
    errors, length = sums.errors, float(np.linalg.norm(step))
    rounding = common.eps * (errors.values + errors.operations / common.m * errors.gradients * length)
    # At least of this size are the terms of a quadratic, which may cancel: far away in flat directions.
    terms = max(float(np.sqrt(scales) @ np.abs(each)) ** 2 for each in (x, x + step))
    rounding += float(np.finfo(np.float64).eps) * (abs(rest) + terms)
    # Values that are small beside that at the start may have absolute rounding errors.
    values = max(abs(sums.value), abs(sums.value - rise), abs(model.assessment.first))
    is_single = common.dtype == np.float32
    return violation_of_convexity(low, high, rise, values=values, rounding=rounding + noise, is_single=is_single)


def _with_step(
    method: ExactSums[CurvatureT],
    common: CommonProblem,
    model: Model[CurvatureT],
    x: Array,
    is_accepted: bool,
    flat: float = FLAT,
) -> tuple[Model[CurvatureT], Array, bool]:
    """Minimize the model at x; flat: the least damping of a model without a minimum."""
    given = x, model.gradient, method.matrix(model.curvature), common.domain, common.mu, common.m
    scales = method.scales(model.curvature)
    minimum = minimize_model(*given, model.damping * scales)
    if is_accepted and method.needs_hessian:
        exact = minimum if model.damping == 0 else minimize_model(*given)
        hessian = cast(Array, method.matrix(model.curvature))
        concave = negative_curvature(hessian, scales, is_single=common.dtype == np.float32)
        found = model.assessment._replace(error=exact.decrease + exact.missed, concave=concave)
        model = model._replace(assessment=found)
    if not minimum.decrease < _FAR * (1 + abs(model.assessment.objective)):
        model = model._replace(damping=max(flat, model.damping))
        minimum = minimize_model(*given, model.damping * scales)
    length = math.sqrt(float(scales @ (minimum.x - x) ** 2))
    return model._replace(predicted=minimum.decrease, length=length), common.rounded(minimum.x), is_accepted


class Abilities(NamedTuple):
    """What a survey says about the agents, and what the centre of the graph computed besides.

    Attributes
    ----------
    lack_values, lack_hessians, lack_bounds : bool
        Whether the loss of any agent has no value, no Hessian, no lower bound.
    starts_differ : bool
        Whether agents start at different points.
    computed : ndarray
        What `compute` returned.
    """

    lack_values: bool
    lack_hessians: bool
    lack_bounds: bool
    starts_differ: bool
    computed: Array


def survey_agents(context: Context, compute: Callable[[Graph, Array], Array] | None = None) -> Abilities:
    """Let the agents find out what all of them can do; they also learn the tree. It takes a survey.

    Parameters
    ----------
    context : Context
        The run.
    compute : callable, optional
        From the graph, and whether any agent lacks values, Hessians and bounds (1 or 0 each), to
        numbers that all must know. Default: none.

    Returns
    -------
    Abilities
        The same for all agents.
    """
    problem, x0 = context.problem, doubles(to_numpy(context.x0))
    lacks = [not problem.loss.has_value, not problem.loss.has_hessian, not problem.has_lower_bound]
    # A few digits of each start tell whether all are the same.
    marks = x0 @ np.random.default_rng(0).normal(size=problem.d)
    rows = np.column_stack([np.broadcast_to(np.array(lacks, dtype=float), (len(x0), 3)), marks])

    def compare(graph: Graph, rows: Array) -> Array:
        found = rows[:, :3].max(axis=0)
        more = np.zeros(0) if compute is None else compute(graph, found)
        return np.concatenate([found, [float(np.any(rows[:, 3] != rows[0, 3]))], more])

    found = context.network.survey(rows, compare)
    values, hessians, bounds, differ = (bool(each) for each in found[:4])
    return Abilities(values, hessians, bounds, differ, found[4:])


def common_problem(context: Context, abilities: Abilities) -> CommonProblem:
    """Return the problem of all agents, who have the same set; where starts differ it takes a sum.

    Parameters
    ----------
    context : Context
        The run.
    abilities : Abilities
        What `survey_agents` returned.

    Returns
    -------
    CommonProblem
        The same for all agents.
    """
    problem, network = context.problem, context.network
    x0 = doubles(to_numpy(context.x0))
    start = network.total(x0) / network.m if abilities.starts_differ else x0[0]
    domain = problem.domain.take([0]).to(None)
    domain = domain if domain.dtype == np.float64 else domain.bind(1, problem.d, np.float64)
    common = CommonProblem(
        cast(Euclidean, domain),
        problem.mu,
        network.m,
        problem.d,
        problem.dtype,
        start,
        not abilities.lack_bounds,
        not abilities.lack_hessians,
        rounding_operations(problem),
    )
    return replace(common, x0=common.rounded(start)) if abilities.starts_differ else common
