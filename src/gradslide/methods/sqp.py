"""Newton and LBFGS under linear constraints: sequential quadratic programming.

J. Nocedal, S. J. Wright, "Numerical Optimization", 2006, chapter 18, for constraints that are linear, so that
every point but the first fulfils them and no merit function is needed.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import scipy.sparse as sp

from gradslide._support.arrays import is_numpy, to_numpy
from gradslide._support.errors import InputError, require
from gradslide._support.types import Array, Sparse
from gradslide.domains import Domain
from gradslide.methods.base import Context, Method, NoSolution
from gradslide.methods.bfgs import Memory, least_curvature
from gradslide.methods.coupled_kkt import AgentProgram, CoupledResult, minimize_coupled
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
from gradslide.network.coupled_rows import SharedRows
from gradslide.network.coupling import Dual, Operator
from gradslide.network.protocol import Network
from gradslide.problems.model import without_zeros
from gradslide.problems.polyhedral import Polyhedral, ProgramMinimum, polyhedral, polyhedral_set
from gradslide.problems.problem import Objective, Problem
from gradslide.problems.saddle import DualSpace, Saddle
from gradslide.programs.interior_point import Outcome
from gradslide.programs.low_rank import LowRank
from gradslide.results.certificate import SaddleKKT
from gradslide.results.status import Status
from gradslide.theory.certificates import DualEvidence
from gradslide.theory.optimality import Here, saddle_residuals, unit_of

# A start that violates constraints by more, relative to their size, is moved to the nearest point that does not.
_VIOLATED = 1e-9
# A step that shrinks the violation to this share is accepted whatever the objective; one that lets it grow beyond the
# accuracy of the interior point method, or room for rounding, is not.
_LESS, _ALLOWED = 0.5, 1e-7
# Ends of constraints are known to so many rounding errors of data in single precision.
_ROUNDINGS = 4.0
# Residuals with which a point is accepted, whatever rounding does to the objective.
_SOLVED = 1e-8
# Rejected steps in a row after which no other will be accepted.
_MOST_REJECTIONS = 60
# The share of a step that is taken where the whole step led to values or gradients that are not finite; so does one
# after which the objective has risen by this many times what the model predicted that it falls.
_SHARE, _WALL = 0.99, 1e3
# After so many steps in a row that gain nothing but rounding errors, none will.
_PATIENCE = 6
# Hessians of more columns are not formed.
MOST_COLUMNS = 1000
# Rejected steps in a row without damping: L-BFGS learns from them.
_LEARNING = 2

Matrix = Array | Sparse | LowRank


class Program(Here, ABC):
    """What a run prepares once: constraints, penalties and dual terms, under which models are minimized.

    Attributes
    ----------
    problem : Objective
        Losses, sets and penalties of the blocks of x here.
    duals : DualSpace
        The dual term.
    matrices : list of ndarray or sparse matrix, or None
        Second derivatives of quadratic losses, one for each block; None for others.
    metric : ndarray, shape (n,)
        The diagonal with which L-BFGS starts, and in which the first point is the nearest.
    groups : sequence of slice
        Coordinates that have an L-BFGS matrix in common.
    """

    def __init__(self, problem: Objective, duals: DualSpace, matrices: list[Array | Sparse] | None) -> None:
        self.problem, self.duals, self.matrices = problem, duals, matrices
        self.metric = _metric(problem)
        self.groups: Sequence[slice] = [slice(0, problem.m * problem.d)]

    @abstractmethod
    def product(self, x: Array) -> Array:
        """Return A x, shape (1, k)."""

    @abstractmethod
    def pulled(self, z: Array) -> Array:
        """Return A^T z, shape (m, d)."""

    @abstractmethod
    def minimize(self, gradient: Array, matrices: Sequence[Matrix], damping: Array | float, x: Array) -> ProgramMinimum:
        """Minimize <g, u - x> + (u - x)'(B + diag(damping))(u - x)/2 in place of the losses.

        Parameters
        ----------
        gradient : ndarray, shape (n,)
            g.
        matrices : sequence
            B, of all blocks or of groups of coordinates.
        damping : ndarray, shape (n,), or float
            Added to the diagonal.
        x : ndarray, shape (n,)
            Where the model is.

        Returns
        -------
        ProgramMinimum
        """


class PooledProgram(Program):
    """All blocks in one place: a linear operator with known entries, polyhedral sets and terms.

    Parameters
    ----------
    problem : Saddle
        The problem.
    coupling : Operator
        Counts products.
    sets : Polyhedral
        Constraints, penalties and dual terms.
    matrices : list or None
        As for `Program`.
    """

    def __init__(
        self, problem: Saddle, coupling: Operator, sets: Polyhedral, matrices: list[Array | Sparse] | None
    ) -> None:
        super().__init__(problem, problem.duals, matrices)
        self._coupling, self._sets = coupling, sets

    def product(self, x: Array) -> Array:
        return np.asarray(self._coupling.product(x.astype(self.problem.dtype)), dtype=np.float64)

    def pulled(self, z: Array) -> Array:
        return np.asarray(self._coupling.pulled(z.astype(self.problem.dtype)), dtype=np.float64)

    def minimize(self, gradient: Array, matrices: Sequence[Matrix], damping: Array | float, x: Array) -> ProgramMinimum:
        found = self._sets.minimize(gradient, _joined(matrices), damping, x)
        self._coupling.count(found.products)
        return found


class CoupledProgram(Program):
    """Blocks of x at agents on a network: every process calls each method.

    Parameters
    ----------
    problem : Problem
        The coupled problem of the agents here.
    coupling : SharedRows
        Products and multipliers.
    network : Network
        Sums over all agents.
    sets : sequence of Polyhedral
        Set, ridge and penalty of each agent here, in its own dimension.
    matrices : list or None
        As for `Program`.
    has_far_bounds : bool
        Whether any agent has bounds that are very far away: programs are solved without them first.
    """

    def __init__(
        self,
        problem: Problem,
        coupling: SharedRows,
        network: Network,
        sets: Sequence[Polyhedral],
        matrices: list[Array | Sparse] | None,
        has_far_bounds: bool,
    ) -> None:
        super().__init__(problem, coupling.duals, matrices)
        self._coupling, self._network, self._sets, self._has_far_bounds = coupling, network, sets, has_far_bounds
        self.groups = [slice(i * problem.d, (i + 1) * problem.d) for i in range(problem.m)]

    def total(self, numbers: Array) -> Array:
        return self._network.total(numbers[None])

    def largest(self, numbers: Array) -> Array:
        return self._network.agree(numbers[None], "max")

    def product(self, x: Array) -> Array:
        return np.asarray(self._coupling.product(x), dtype=np.float64)

    def pulled(self, z: Array) -> Array:
        return np.asarray(self._coupling.pulled(z), dtype=np.float64)

    def minimize(self, gradient: Array, matrices: Sequence[Matrix], damping: Array | float, x: Array) -> ProgramMinimum:
        coupled, shape = self._coupling.coupled, (self.problem.m, self.problem.d)
        x, gradient = x.reshape(shape), gradient.reshape(shape)
        damping = np.broadcast_to(damping, x.size).reshape(shape)
        programs = []
        for i, (matrix, X, A) in enumerate(zip(matrices, self._sets, coupled.blocks, strict=True)):
            d = X.n
            P = matrix.dense() if isinstance(matrix, LowRank) else matrix
            P = P[:d, :d] + (sp.diags_array(damping[i, :d]) if sp.issparse(P) else np.diag(damping[i, :d]))
            programs.append(AgentProgram(P, gradient[i, :d], X.around(x[i, :d]), A))
        already = self.product(x)[0]
        ends = coupled.lower - already, coupled.upper - already
        near = [each._replace(X=each.X.near) for each in programs] if self._has_far_bounds else programs
        found = minimize_coupled(self._network, near, *ends)
        if self._has_far_bounds and self._needs_far_bounds(programs, found):
            again = minimize_coupled(self._network, programs, *ends)
            found = again._replace(iterations=found.iterations + again.iterations)
        steps = np.zeros(shape)
        for i, step in enumerate(found.x):
            steps[i, : len(step)] = step
        u = steps if found.outcome is Outcome.UNBOUNDED else x + steps
        return ProgramMinimum(found.outcome, u.reshape(-1), found.z, found.residual, found.iterations, 0)

    def _needs_far_bounds(self, programs: Sequence[AgentProgram], found: CoupledResult) -> bool:
        """Whether the minimum without them is none: the same in all processes."""
        pairs = zip(programs, found.x, strict=True)
        is_outside = any(each.X.violates_far_bounds(step) for each, step in pairs)
        return found.outcome is Outcome.UNBOUNDED or bool(self.largest(np.array([float(is_outside)]))[0])


class Point(NamedTuple):
    """A primal and dual point, and what is known there. Numbers are sums over all agents.

    Attributes
    ----------
    x, z : ndarray, shapes (m, d) and (1, k)
        The point.
    gradient, pull : ndarray, shape (m, d)
        Of the ft_i, and A^T z.
    values : ndarray, shape (m,)
        Of the ft_i.
    objective, rest : float
        f(x) + max over z, and that without the ft_i.
    size, terms : float
        Of the values, and of the products of x and gradient: rounding errors are relative to them.
    held : float
        What the constraints' violation is worth by their multipliers.
    lower : float
        A lower bound on the optimum.
    residuals : tuple
        What `SaddleKKT` holds.
    """

    x: Array
    z: Array
    gradient: Array
    pull: Array
    values: Array
    objective: float
    rest: float
    size: float
    terms: float
    held: float
    lower: float
    residuals: tuple[float, float, float | None]

    @property
    def kkt(self) -> SaddleKKT:
        """The residuals."""
        return SaddleKKT(*self.residuals)


class _AtPoint(NamedTuple):
    """Sums over the blocks of x, or over all agents.

    Attributes
    ----------
    value, rest : float
        The losses; ridge and penalty.
    size, terms : float
        As for `Point`.
    lower : float
        The part of a lower bound that follows from the gradients.
    squares : float
        Of gradients and second derivatives: finite only if they are.
    """

    value: float
    rest: float
    size: float
    terms: float
    lower: float
    squares: float


class _OfStep(NamedTuple):
    """Sums over the blocks of a step s, or over all agents.

    Attributes
    ----------
    slope, slope_after, bend : float
        <g, s> for the gradients at both ends, and s'Bs.
    square, steepness : float
        Squared norms of the step and of the gradient at the best point, in the metric by which damping is scaled.
    cancelling : float
        At least of this size are the terms of a quadratic at both ends, which may cancel far away.
    concave : float
        How far the least eigenvalues of Hessians lie below zero.
    """

    slope: float = 0.0
    slope_after: float = 0.0
    bend: float = 0.0
    square: float = 0.0
    steepness: float = 0.0
    cancelling: float = 0.0
    concave: float = 0.0


class Trial(NamedTuple):
    """An evaluated step from the best point.

    Attributes
    ----------
    point : Point
        Its end.
    step : ndarray, shape (n,)
        The step.
    curvature : object
        Second derivatives there.
    is_finite : bool
        Whether everything is.
    unit : float
        What counts as a small gradient or objective.
    sums : _OfStep
        What is known of the step, over all agents.
    """

    point: Point
    step: Array
    curvature: Any
    is_finite: bool
    unit: float
    sums: _OfStep


@dataclass(frozen=True)
class State:
    """The best point so far, and the quadratic model there.

    Attributes
    ----------
    start : ndarray, shape (m, d)
        Where the first evaluation is.
    best : Point or None
        None before the first evaluation.
    curvature : ndarray, tuple of Memory, or None
        The Hessians of all blocks, or the pairs of L-BFGS; None if the matrix of a quadratic loss is all.
    scales : ndarray, shape (n,)
        The largest second derivatives so far, by which damping is scaled.
    first : float
        The objective at the start.
    damping, flat : float
        This share of `scales` is added to the model; the least share, if the model has no minimum.
    rejections, idle, rejected, evaluations, factorizations : int
        Rejected steps in a row; steps in a row that gained nothing; rejected steps and evaluations so far;
        factorizations of KKT matrices.
    residual_then : float
        The largest residual before the steps that gained nothing.
    unit : float
        Gradients and objectives of this size are small.
    stays_inside : bool
        Whether steps end a little before the minimum of the model: losses may not be finite at the ends of
        constraints, where it often is.
    contradiction : float
        By how much values and gradients violated convexity.
    concave : float
        How far the least eigenvalues of Hessians lie below zero.
    proof : tuple of str and ndarray, or None
        Why there is no solution: the name of a status, and a ray.
    """

    start: Array
    best: Point | None = None
    curvature: Any = None
    scales: Array | None = None
    first: float = 0.0
    damping: float = 0.0
    flat: float = FLAT
    rejections: int = 0
    idle: int = 0
    rejected: int = 0
    evaluations: int = 0
    factorizations: int = 0
    residual_then: float = math.inf
    unit: float = 1.0
    stays_inside: bool = False
    contradiction: float = 0.0
    concave: float = 0.0
    proof: tuple[str, Array] | None = None


@dataclass(frozen=True, kw_only=True)
class SQP(Method[State]):
    """Sequential quadratic programming, for linear constraints and saddle points with polyhedral sets and terms.

    Every outer iteration minimizes a quadratic model of f under all constraints and terms, by an interior point
    method that takes no gradients, and evaluates f where that minimum is. With the gradient g and the second
    derivatives B at x,

        u = argmin over X of <g, u - x> + (u - x)'(B + lam D)(u - x)/2 + mu nu(u) + r(u) + max_z <A u, z> - h(z)

    is accepted if the objective falls by 1e-4 of what the model predicts. lam is 0 as long as the model
    predicts well. For a quadratic f the first model is exact.

    Parameters
    ----------
    memory : int or None
        B is the L-BFGS matrix of that many pairs; None: the Hessian.

    Notes
    -----
    `Newton` and `LBFGS` become this method where linear constraints take the place of consensus.
    """

    stops_itself: ClassVar[bool] = True
    default_accuracy: ClassVar[float] = 1e-6
    lasting_outputs: ClassVar[tuple[str, ...]] = ("best",)

    memory: int | None = None

    @property
    def name(self) -> str:
        return "Newton" if self.memory is None else "LBFGS"

    def is_unit_free(self, domain: Domain) -> bool:
        return self.memory is None

    def prepare(self, context: Context) -> Program:
        """Write constraints and terms as a quadratic program."""
        if isinstance(context.coupling, SharedRows):
            return self._prepare_coupled(context, context.coupling)
        problem = cast(Saddle, context.problem)
        require(is_numpy(context.x0), f"{self.name} needs arrays of NumPy's here", repr(problem), "use gs.AutoPDS()")
        loss = problem.loss
        require(loss.has_value, f"{self.name} needs a loss with values", repr(loss), "give value=, or use gs.AutoPDS()")
        sets = polyhedral(problem)
        if sets is None:
            rule = f"{self.name} needs the entries of A, and sets and terms that are polyhedral"
            raise InputError(rule, repr(problem), "use gs.AutoPDS()")
        matrices = None
        if self.memory is None:
            matrices = context.oracle.quadratic_part()
            has_any = matrices is not None or loss.has_hessian
            require(has_any, f"{self.name} needs a loss with Hessians", repr(loss), "use gs.LBFGS()")
        return PooledProgram(problem, cast(Operator, context.coupling), sets.widened(_rounding(problem)), matrices)

    def _prepare_coupled(self, context: Context, coupling: SharedRows) -> CoupledProgram:
        problem, network, is_newton = cast(Problem, context.problem), context.network, self.memory is None
        lacks = lacks_of_coupled(context)
        rule = f"{self.name} needs losses with values"
        require(not lacks.values, rule, "an agent whose loss has none", "give value=")
        rule = f"{self.name} needs sets and penalties that are polyhedral"
        require(not lacks.polyhedra, rule, "an agent with another set", "use boxes, simplices, half-spaces")
        rule = f"{self.name} needs losses with Hessians"
        require(not (is_newton and lacks.hessians), rule, "an agent whose loss has none", "use gs.LBFGS()")
        matrices = context.oracle.quadratic_part() if is_newton and not lacks.matrices else None
        sets = [cast(Polyhedral, polyhedral_set(part.domain.to(None), problem.mu)) for part in problem.parts()]
        sets = [each.widened(_rounding(problem)) for each in sets]
        return CoupledProgram(problem, coupling, network, sets, matrices, lacks.near_bounds)

    def init(self, context: Context) -> State:
        program = cast(Program, context.prepared)
        x = np.asarray(context.x0, dtype=np.float64)
        state = State(start=x)
        violation = program.duals.violation(program.product(x))
        if program.matrices is not None or violation is None:
            return state
        size = 1 + float(program.largest(np.array([np.max(np.abs(x))]))[0])
        if float(np.max(np.abs(violation))) <= _VIOLATED * size:
            return state
        found = _nearest(program, x)
        state = replace(state, factorizations=found.factorizations)
        if found.outcome is Outcome.INFEASIBLE:
            return replace(state, proof=(Status.INFEASIBLE.name, _scaled(found.z)))
        return replace(state, start=_within(program, found.x))

    def step(self, context: Context, state: State) -> State:
        program, best = cast(Program, context.prepared), state.best
        if best is None:
            return self._first(context, state)
        scales = cast(Array, state.scales)
        gradient, matrices, x = best.gradient.reshape(-1), self._matrices(program, state), best.x.reshape(-1)
        found = program.minimize(gradient, matrices, state.damping * scales, x)
        state = replace(state, factorizations=state.factorizations + found.factorizations)
        if found.outcome is Outcome.UNBOUNDED and program.matrices is None:
            damping = max(state.flat, state.damping)
            found = program.minimize(gradient, matrices, damping * scales, x)
            state = replace(state, damping=damping, factorizations=state.factorizations + found.factorizations)
        if found.outcome is Outcome.INFEASIBLE:
            return replace(state, proof=(Status.INFEASIBLE.name, _scaled(found.z)))
        if found.outcome is Outcome.UNBOUNDED:
            return self._without_minimum(program, state, found)
        u = _within(program, found.x)
        if state.stays_inside:
            u = best.x + _SHARE * (u - best.x)
        trial = self._evaluated(context, u, found.z[None], state, matrices)
        return self._judged(program, state, trial, found.residual)

    def _without_minimum(self, program: Program, state: State, found: ProgramMinimum) -> State:
        """The model falls for ever: so does a quadratic f; others need more damping."""
        best = cast(Point, state.best)
        if program.matrices is None:
            return replace(state, damping=4 * state.damping, idle=state.idle + 1)
        # A ray proves nothing where there is no point to start from.
        nearest = _nearest(program, best.x)
        state = replace(state, factorizations=state.factorizations + nearest.factorizations)
        if nearest.outcome is Outcome.INFEASIBLE:
            return replace(state, proof=(Status.INFEASIBLE.name, _scaled(nearest.z)))
        if nearest.outcome is not Outcome.SOLVED:
            return replace(state, idle=state.idle + 1)
        return replace(state, proof=(Status.UNBOUNDED.name, _scaled(found.x).reshape(best.x.shape)))

    def _first(self, context: Context, state: State) -> State:
        program = cast(Program, context.prepared)
        z = program.duals.start() if context.s0 is None else context.s0
        trial = self._evaluated(context, state.start, np.asarray(z, dtype=np.float64), state, ())
        point, curvature = trial.point, trial.curvature
        if not trial.is_finite and not state.stays_inside:
            # The interior point method ends amid the points that fulfil the constraints if nothing draws it away.
            nothing = [sp.csr_array((own.stop - own.start,) * 2) for own in program.groups]
            found = program.minimize(np.zeros(state.start.size), nothing, 0.0, state.start.reshape(-1))
            used = state.factorizations + found.factorizations
            if found.outcome is Outcome.INFEASIBLE:
                proof = Status.INFEASIBLE.name, _scaled(found.z)
                return replace(state, best=point, proof=proof, factorizations=used)
            start = _within(program, found.x)
            return self._first(context, replace(state, start=start, stays_inside=True, factorizations=used))
        if not trial.is_finite:
            rule = "value and gradient at the start must be finite, and their squares, too"
            raise InputError(rule, f"an objective of {point.objective:.3g}", "give another x0")
        gradient, objective = point.gradient.reshape(-1), point.objective
        if self.memory is not None:
            curvature = tuple(Memory.first(program.metric[own], gradient[own], objective) for own in program.groups)
        scales = np.maximum(self._scales(program, curvature), least_curvature(gradient, objective))
        state = replace(state, best=point, curvature=curvature, scales=scales, unit=trial.unit)
        return replace(state, first=objective, evaluations=1)

    def _judged(self, program: Program, state: State, trial: Trial, residual: float) -> State:
        """Accept or reject an evaluated step; residual: relative, of the quadratic program that it solves."""
        best, point, is_finite = cast(Point, state.best), trial.point, trial.is_finite
        eps = float(np.finfo(program.problem.dtype).eps)
        size = max(abs(each.objective - each.rest) + abs(each.rest) for each in (best, point))
        noise = (NOISE * eps + residual) * size + NOISE * eps * (best.terms + point.terms) + best.held + point.held
        decrease = best.objective - point.objective
        sums = trial.sums
        predicted = best.rest - point.rest - sums.slope - sums.bend / 2
        is_lost = predicted <= noise
        # Without constraints the primal residual is about z.
        is_constrained = program.duals.is_constrained
        violation, before = (point.kkt.primal, best.kkt.primal) if is_constrained else (0.0, 0.0)
        allowed = _ALLOWED + 2 * _rounding(program.problem)
        is_nearer = violation <= _LESS * before and before > _VIOLATED
        by_slopes = best.rest - point.rest - (sums.slope + sums.slope_after) / 2
        is_better = not is_lost or point.kkt.largest < best.kkt.largest or by_slopes > 0
        is_good = is_better and is_good_step(decrease, predicted, noise)
        is_solved = point.kkt.largest <= min(_SOLVED, best.kkt.largest)
        is_accepted = is_finite and (is_solved or is_nearer or (is_good and violation <= max(before, allowed)))
        residual_then = state.residual_then if state.idle else best.kkt.largest
        is_idle = is_lost and not (is_accepted and point.kkt.largest <= _LESS * residual_then)
        # As at the ends of constraints: nothing there says what the loss is like inside.
        is_inside = is_finite and (is_accepted or -decrease <= _WALL * max(predicted, noise))
        # L-BFGS learns from a few rejected steps in place of damping, as long as most steps are accepted.
        is_patient = self.memory is not None and 3 * state.rejected <= state.evaluations + _LEARNING
        rejections, patience = state.rejections + 1, _LEARNING if is_patient else 0
        learns = is_accepted or (is_inside and rejections <= patience)
        curvature = self._learned(program, state, trial, eps, is_accepted) if learns else state.curvature
        state = replace(
            state,
            curvature=curvature,
            evaluations=state.evaluations + 1,
            rejected=state.rejected + (not is_accepted),
            idle=state.idle + 1 if is_idle else 0,
            residual_then=residual_then,
            contradiction=state.contradiction or _contradiction(program, state, trial, eps),
            concave=sums.concave,
        )
        # L-BFGS scales damping by its first matrix, Newton by the largest second derivatives so far.
        scales = self._scales(program, curvature)
        if self.memory is None:
            scales = np.maximum(scales, cast(Array, state.scales))
        if is_accepted:
            damping, flat = after_acceptance(state.damping, decrease, predicted, noise)
            return replace(state, best=point, scales=scales, damping=damping, flat=flat, rejections=0)
        damping = state.damping
        if not is_inside and not state.stays_inside:
            return replace(state, stays_inside=True)
        if program.matrices is None and (not is_inside or rejections > patience):
            damping = after_rejection(
                damping,
                rejections - patience if is_inside else rejections,
                slope=sums.slope + point.rest - best.rest if is_finite else None,
                decrease=decrease,
                steepness=math.sqrt(sums.steepness),
                length=math.sqrt(max(0.0, sums.square)),
            )
        return replace(state, scales=scales, damping=damping, rejections=rejections)

    def _learned(self, program: Program, state: State, trial: Trial, eps: float, is_accepted: bool) -> Any:
        """Return what is known about curvature after a trial."""
        if self.memory is None:
            return trial.curvature if is_accepted else state.curvature
        best = cast(Point, state.best)
        before, after = best.gradient.reshape(-1), trial.point.gradient.reshape(-1)
        return tuple(
            memory.learned(
                trial.step[own],
                before[own],
                after[own],
                size=self.memory,
                eps=eps,
                objective=best.objective,
                first=state.first,
                is_accepted=is_accepted,
            )
            for memory, own in zip(state.curvature, program.groups, strict=True)
        )

    def _evaluated(self, context: Context, x: Array, z: Array, state: State, matrices: Sequence[Matrix]) -> Trial:
        """Evaluate f and its derivatives at x, and the residuals with z."""
        program, best = cast(Program, context.prepared), state.best
        problem, duals = program.problem, program.duals
        values, gradient, hessians = self._derivatives(context, problem.placed(x))
        product, pull = program.product(x), program.pulled(z)
        step = np.zeros(x.size) if best is None else (x - best.x).reshape(-1)
        of_point = _sums_at(problem, x, values, gradient, pull, hessians)
        of_step = self._sums_of_step(problem, x, step, gradient, hessians, state, matrices)
        found = program.total(np.array([*of_point, *of_step])).tolist()
        of_point, of_step = _AtPoint(*found[: len(of_point)]), _OfStep(*found[len(of_point) :])
        unit, rest = state.unit, of_point.rest + duals.conjugate(product)
        if best is None:
            unit = unit_of(float(program.largest(np.array([np.max(np.abs(gradient))]))[0]))
        objective, curved = of_point.value + rest, self._curved(program, hessians, x)
        kkt = saddle_residuals(problem, duals, x, z, gradient, product, pull, objective, program, unit, curved)
        residuals = kkt.primal, kkt.dual, kkt.complementarity
        lower = of_point.lower - duals.h(z)
        lower = lower if math.isfinite(lower) else -math.inf
        violation = duals.violation(product)
        held = 0.0 if violation is None else float(np.sum(np.abs(z) * np.abs(violation)))
        sizes = of_point.size, of_point.terms, held
        point = Point(x, z, gradient, pull, values, objective, rest, *sizes, lower, residuals)
        is_finite = math.isfinite(objective) and math.isfinite(of_point.squares)
        return Trial(point, step, hessians, is_finite, unit, of_step)

    def _derivatives(self, context: Context, x: Array) -> tuple[Array, Array, Array | None]:
        """Values and gradients, and Hessians where they are needed."""
        program, oracle, hessians = cast(Program, context.prepared), context.oracle, None
        if self.memory is not None or program.matrices is not None:
            values, gradient = oracle.value_and_gradient(x)
        elif len(x) == 1:
            values, gradient, hessians = oracle.derivatives(x)
        else:
            # Together they might come summed up.
            values, gradient = oracle.value_and_gradient(x)
            hessians = oracle.hessian(x)
        values, gradient = (np.asarray(to_numpy(each), dtype=np.float64) for each in (values, gradient))
        return values, gradient, None if hessians is None else to_numpy(hessians)

    def _sums_of_step(
        self,
        problem: Objective,
        x: Array,
        step: Array,
        gradient: Array,
        hessians: Array | None,
        state: State,
        matrices: Sequence[Matrix],
    ) -> "_OfStep":
        if state.best is None:
            return _OfStep()
        best, scales = state.best, cast(Array, state.scales)
        before, concave, steepest = best.gradient.reshape(-1), 0.0, scales
        if self.memory is not None:
            # theta may have fallen to the curvature of flat directions.
            steepest = np.maximum(scales, max(memory.steepest for memory in state.curvature))
        if hessians is not None and np.isfinite(hessians).all():
            is_single = problem.dtype == np.float32
            pairs = zip(hessians, scales.reshape(len(hessians), -1), strict=True)
            concave = sum(negative_curvature(each, largest, is_single=is_single) for each, largest in pairs)
        return _OfStep(
            slope=float(before @ step),
            slope_after=float(gradient.reshape(-1) @ step),
            bend=float(step @ _times(matrices, step)),
            square=float(scales @ step**2),
            steepness=float(np.sum(before**2 / np.where(scales > 0, scales, np.inf))),
            cancelling=max(float(np.sqrt(steepest) @ np.abs(each).reshape(-1)) ** 2 for each in (x, best.x)),
            concave=concave,
        )

    def _curved(self, program: Program, hessians: Any, x: Array) -> Array | None:
        """H x with the second derivatives at x; None for L-BFGS, whose matrix may be far too large."""
        if self.memory is not None:
            return None
        matrices = program.matrices if hessians is None else list(hessians)
        return None if matrices is None else _times(matrices, x.reshape(-1))

    def _matrices(self, program: Program, state: State) -> list[Matrix]:
        if program.matrices is not None:
            return list(program.matrices)
        return [memory.matrix() for memory in state.curvature] if self.memory is not None else list(state.curvature)

    def _scales(self, program: Program, curvature: Any) -> Array:
        """The diagonal of the second derivatives, or of the first matrix of L-BFGS."""
        if self.memory is not None:
            return np.concatenate([memory.scales for memory in curvature])
        if program.matrices is None:
            return np.einsum("ijj->ij", curvature).reshape(-1)
        return np.concatenate([cast(Any, matrix).diagonal() for matrix in program.matrices])

    def restored(self, state: State, fresh: State) -> State:
        """Make named tuples of what a checkpoint holds as plain ones."""
        best, curvature = state.best, state.curvature
        if best is not None:
            best = Point(*best)
        if self.memory is not None and curvature is not None:
            curvature = tuple(Memory(*each) for each in curvature)
        return replace(state, best=best, curvature=curvature)

    def output(self, state: State) -> dict[str, Array]:
        """Return the best point so far."""
        return {"best": state.start if state.best is None else state.best.x}

    def dual(self, state: State) -> Array | None:
        return None if state.best is None else state.best.z

    def residuals(self, state: State) -> SaddleKKT | None:
        # At the start they may be small only because the objective is: a program is solved in any case.
        return None if state.best is None or state.evaluations < 2 else state.best.kkt

    def no_solution(self, state: State) -> NoSolution | None:
        return None if state.proof is None else NoSolution(Status[state.proof[0]], state.proof[1])

    def contradiction(self, state: State) -> str:
        return doubt(state.contradiction, state.concave, state.evaluations)

    def is_stalled(self, state: State) -> bool:
        return state.idle >= _PATIENCE or state.rejections >= _MOST_REJECTIONS

    def dual_evidence(self, state: State) -> tuple[DualEvidence, ...]:
        best = state.best
        if best is None:
            return ()
        conjugates = np.sum(best.x * best.gradient, axis=1) - best.values
        return (DualEvidence(best.gradient, conjugates, Dual(best.z, best.pull), averaged=0),)

    def parameters(self, state: State) -> dict[str, float]:
        return {"rejected": state.rejected, "factorizations": state.factorizations}


class Lacks(NamedTuple):
    """What any of the coupled agents lacks: the same for all agents."""

    values: bool
    polyhedra: bool
    hessians: bool
    matrices: bool
    near_bounds: bool


def lacks_of_coupled(context: Context) -> Lacks:
    """Let coupled agents find out what all of them can do: one flooded maximum.

    Parameters
    ----------
    context : Context
        The run.

    Returns
    -------
    Lacks
    """
    problem = cast(Problem, context.problem)
    loss = problem.loss
    is_quadratic = loss.quadratic_part() is not None
    sets = [polyhedral_set(part.domain.to(None), problem.mu) for part in problem.parts()]
    has_hessian = is_quadratic or (loss.has_hessian and problem.d <= MOST_COLUMNS)
    is_far = any(each is not None and each.near is not each for each in sets)
    lacks = [not loss.has_value, any(each is None for each in sets), not has_hessian, not is_quadratic, is_far]
    return Lacks(*(bool(each) for each in context.network.agree(np.array([lacks], dtype=np.float64), "max")))


def _nearest(program: Program, x: Array) -> ProgramMinimum:
    """The nearest point that fulfils the constraints, in a metric that does not depend on units if possible."""
    metric = sp.diags_array(program.metric, format="csr")
    return program.minimize(np.zeros(x.size), [metric[own, own] for own in program.groups], 0.0, x.reshape(-1))


def _rounding(problem: Objective) -> float:
    """By which share ends of constraints are wrong: data in single precision is rounded."""
    return _ROUNDINGS * float(np.finfo(problem.dtype).eps) if problem.dtype == np.float32 else 0.0


def _scaled(ray: Array) -> Array:
    """The ray with a largest entry of 1."""
    return ray / max(float(np.max(np.abs(ray))), 1e-300)


def _sums_at(
    problem: Objective, x: Array, values: Array, gradient: Array, pull: Array, hessians: Array | None
) -> _AtPoint:
    conjugates = np.sum(x * gradient, axis=1) - values
    least = to_numpy(problem.domain.linear_minimum(gradient + pull, problem.mu))
    return _AtPoint(
        value=float(np.sum(values)),
        rest=float(np.sum(problem.objective(x, np.zeros(len(x))))),
        size=float(np.sum(np.abs(values))),
        terms=float(np.sum(np.abs(x * gradient))),
        lower=float(np.sum(least - conjugates)),
        squares=float(np.vdot(gradient, gradient)) + (0.0 if hessians is None else float(np.vdot(hessians, hessians))),
    )


def _contradiction(program: Program, state: State, trial: Trial, eps: float) -> float:
    """By how much values and gradients at two points violate convexity."""
    if not trial.is_finite:
        return 0.0
    before, after = cast(Point, state.best), trial.point
    sizes = before.size, after.size
    terms = sum(sizes) + before.terms + after.terms + trial.sums.cancelling
    return violation_of_convexity(
        trial.sums.slope,
        trial.sums.slope_after,
        (after.objective - after.rest) - (before.objective - before.rest),
        values=max(*sizes, abs(state.first)),
        rounding=eps * terms * math.sqrt(trial.step.size),
        is_single=program.problem.dtype == np.float32,
    )


def _within(program: Program, x: Array) -> Array:
    """The nearest point of X: rounding may have left it."""
    problem = program.problem
    return np.asarray(problem.domain.project(x.reshape(problem.m, problem.d)), dtype=np.float64)


def _joined(matrices: Sequence[Matrix]) -> Matrix:
    """The matrices of all blocks of x as one."""
    if len(matrices) == 1:
        return matrices[0]
    return sp.block_diag([cast(Array, matrix) for matrix in matrices], format="csr", dtype=np.float64)


def _times(matrices: Sequence[Matrix], v: Array) -> Array:
    """The product with a vector, block by block."""
    if len(matrices) == 1:
        return cast(Array, matrices[0] @ v)
    parts = v.reshape(len(matrices), -1)
    return np.concatenate([matrix @ part for matrix, part in zip(matrices, parts, strict=True)])


def _metric(problem: Objective) -> Array:
    """The sums of squares of the columns of the features, where they are known; else ones."""
    squares = problem.loss.column_squares()
    n = problem.m * problem.d
    if squares is None or problem.d % squares.shape[1]:
        return np.ones(n)
    metric = np.tile(to_numpy(squares), (1, problem.d // squares.shape[1])).reshape(-1)
    return without_zeros(metric) if np.isfinite(metric).all() and np.any(metric > 0) else np.ones(n)
