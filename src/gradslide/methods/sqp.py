"""Newton and LBFGS under linear constraints: sequential quadratic programming.

J. Nocedal, S. J. Wright, "Numerical Optimization", 2006, chapter 18, for constraints that are linear, so that
every point but the first fulfils them and no merit function is needed.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import scipy.sparse as sp

from gradslide._support.arrays import is_numpy, to_numpy
from gradslide._support.errors import InputError, require
from gradslide._support.types import Array, Sparse
from gradslide.methods.base import Context, Method, NoSolution
from gradslide.methods.bfgs import Memory, least_curvature
from gradslide.methods.damping import (
    FLAT,
    NOISE,
    after_acceptance,
    after_rejection,
    is_good_step,
    violation_of_convexity,
)
from gradslide.network.coupling import Dual, Operator
from gradslide.problems.interior_point import Outcome
from gradslide.problems.model import LowRank, without_zeros
from gradslide.problems.polyhedral import Polyhedral, ProgramMinimum, polyhedral
from gradslide.problems.saddle import Saddle
from gradslide.results.certificate import SaddleKKT
from gradslide.results.status import Status
from gradslide.theory.certificates import DualEvidence
from gradslide.theory.optimality import saddle_residuals

# A start that violates constraints by more, relative to their size, is moved to the nearest point that does not.
_VIOLATED = 1e-9
# A step that shrinks the violation to this share is accepted whatever the objective; one that lets it grow beyond this
# multiple is not.
_LESS, _MORE = 0.5, 10.0
# After so many steps in a row that gain nothing but rounding errors, none will.
_PATIENCE = 6
# Rejected steps in a row without damping: L-BFGS learns from them.
_LEARNING = 2

Matrix = Array | Sparse | LowRank


class Program(NamedTuple):
    """What a run prepares once.

    Attributes
    ----------
    problem : Saddle
        The problem.
    sets : Polyhedral
        Its constraints, penalties and dual terms.
    matrix : ndarray, sparse matrix or None
        The second derivatives of a quadratic loss; None for others.
    metric : ndarray, shape (n,)
        The diagonal with which L-BFGS starts.
    """

    problem: Saddle
    sets: Polyhedral
    matrix: Array | Sparse | None
    metric: Array


class Point(NamedTuple):
    """A primal and dual point, and what is known there.

    Attributes
    ----------
    x, z : ndarray, shapes (m, d) and (1, k)
        The point.
    objective : float
        f(x) + max over z.
    rest : float
        The objective without the values of the ft_i.
    values, gradient : ndarray, shapes (m,) and (m, d)
        Of the ft_i.
    pull : ndarray, shape (m, d)
        A^T z.
    residuals : tuple
        What `SaddleKKT` holds.
    """

    x: Array
    z: Array
    objective: float
    rest: float
    values: Array
    gradient: Array
    pull: Array
    residuals: tuple[float, float, float | None]

    @property
    def kkt(self) -> SaddleKKT:
        """The residuals."""
        return SaddleKKT(*self.residuals)


@dataclass(frozen=True)
class State:
    """The best point so far, and the quadratic model there.

    Attributes
    ----------
    start : ndarray, shape (m, d)
        Where the first evaluation is.
    best : Point or None
        None before the first evaluation.
    curvature : ndarray, Memory or None
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
    contradiction : float
        By how much values and gradients violated convexity.
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
    contradiction: float = 0.0
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
    `Newton` and `LBFGS` become this method on problems without a network.
    """

    stops_itself: ClassVar[bool] = True
    lasting_outputs: ClassVar[tuple[str, ...]] = ("best",)

    memory: int | None = None

    @property
    def name(self) -> str:
        return "Newton" if self.memory is None else "LBFGS"

    def is_unit_free(self, domain: Any) -> bool:
        return self.memory is None

    def prepare(self, context: Context) -> Program:
        """Write constraints and terms as a quadratic program."""
        problem = cast(Saddle, context.problem)
        require(is_numpy(context.x0), f"{self.name} needs arrays of NumPy's here", repr(problem), "use gs.AutoPDS()")
        loss = problem.loss
        require(loss.has_value, f"{self.name} needs a loss with values", repr(loss), "give value=, or use gs.AutoPDS()")
        sets = polyhedral(problem)
        if sets is None:
            rule = f"{self.name} needs the entries of A, and sets and terms that are polyhedral"
            raise InputError(rule, repr(problem), "use gs.AutoPDS()")
        matrix = None
        if self.memory is None:
            blocks = context.oracle.quadratic_part()
            has_any = blocks is not None or loss.has_hessian
            require(has_any, f"{self.name} needs a loss with Hessians", repr(loss), "use gs.LBFGS()")
            matrix = None if blocks is None else _joined(blocks)
        return Program(problem, sets, matrix, _metric(problem))

    def init(self, context: Context) -> State:
        program = cast(Program, context.prepared)
        x = np.asarray(context.x0, dtype=np.float64)
        state = State(start=x)
        violation = program.problem.duals.violation(_product(context, x))
        if program.matrix is not None or violation is None:
            return state
        size = 1 + float(np.max(np.abs(x)))
        if float(np.max(np.abs(violation))) <= _VIOLATED * size:
            return state
        found = self._nearest(context, x)
        state = replace(state, factorizations=found.factorizations)
        if found.outcome is Outcome.INFEASIBLE:
            return replace(state, proof=(Status.INFEASIBLE.name, _scaled(found.z)))
        return replace(state, start=_within(program, found.x))

    def step(self, context: Context, state: State) -> State:
        if state.best is None:
            return self._first(context, state)
        program, best = cast(Program, context.prepared), state.best
        scales = cast(Array, state.scales)
        gradient, matrix = best.gradient.reshape(-1), self._matrix(program, state)
        found = self._minimize(context, gradient, matrix, state.damping * scales, best.x)
        factorizations, damping = state.factorizations + found.factorizations, state.damping
        if found.outcome is Outcome.UNBOUNDED and program.matrix is None:
            damping = max(state.flat, damping)
            found = self._minimize(context, gradient, matrix, damping * scales, best.x)
            factorizations += found.factorizations
        state = replace(state, factorizations=factorizations, damping=damping)
        if found.outcome is Outcome.INFEASIBLE:
            return replace(state, proof=(Status.INFEASIBLE.name, _scaled(found.z)))
        if found.outcome is Outcome.UNBOUNDED:
            if program.matrix is None:
                return replace(state, damping=4 * damping, idle=state.idle + 1)
            # A ray proves nothing where there is no point to start from.
            nearest = self._nearest(context, best.x)
            state = replace(state, factorizations=factorizations + nearest.factorizations)
            if nearest.outcome is Outcome.INFEASIBLE:
                return replace(state, proof=(Status.INFEASIBLE.name, _scaled(nearest.z)))
            return replace(state, proof=(Status.UNBOUNDED.name, _scaled(found.x).reshape(best.x.shape)))
        x = _within(program, found.x)
        step = (x - best.x).reshape(-1)
        point, curvature = self._evaluated(context, x, found.z[None])
        predicted = best.rest - point.rest - float(gradient @ step + step @ (matrix @ step) / 2)
        return self._judged(program, state, point, curvature, step, predicted, damping)

    def _first(self, context: Context, state: State) -> State:
        program = cast(Program, context.prepared)
        z = program.problem.duals.start() if context.s0 is None else context.s0
        point, curvature = self._evaluated(context, state.start, np.asarray(z, dtype=np.float64))
        if not _is_finite(point, curvature):
            rule = "value and gradient at the start must be finite, and their squares, too"
            raise InputError(rule, f"an objective of {point.objective:.3g}", "give another x0")
        if self.memory is not None:
            curvature = Memory.first(program.metric, point.gradient.reshape(-1), point.objective)
        scales = _diagonal(program, curvature)
        scales = np.maximum(scales, least_curvature(point.gradient.reshape(-1), point.objective))
        return replace(state, best=point, curvature=curvature, scales=scales, first=point.objective, evaluations=1)

    def _judged(
        self,
        program: Program,
        state: State,
        point: Point,
        curvature: Any,
        step: Array,
        predicted: float,
        damping: float,
    ) -> State:
        """Accept or reject an evaluated point."""
        best, is_finite = cast(Point, state.best), _is_finite(point, curvature)
        eps = float(np.finfo(program.problem.dtype).eps)
        noise = NOISE * eps * max(abs(float(np.sum(each.values))) + abs(each.rest) for each in (best, point))
        decrease = best.objective - point.objective
        violation, before = point.kkt.primal, best.kkt.primal
        is_lost = predicted <= noise
        is_accepted = is_finite and (
            (violation <= _LESS * before and before > _VIOLATED)
            or (
                violation <= max(_MORE * before, _VIOLATED)
                and is_good_step(decrease, predicted, noise)
                and (not is_lost or point.kkt.largest < best.kkt.largest)
            )
        )
        is_idle = not is_accepted or (is_lost and point.kkt.largest > _LESS * best.kkt.largest)
        if is_finite and state.contradiction == 0:
            state = replace(state, contradiction=_contradiction(program, best, point, state.first))
        state = replace(
            state,
            evaluations=state.evaluations + 1,
            rejected=state.rejected + (not is_accepted),
            idle=state.idle + 1 if is_idle and is_lost else 0,
        )
        if self.memory is not None:
            memory = cast(Memory, state.curvature)
            curvature = memory
            if is_finite:
                curvature = memory.learned(
                    step,
                    best.gradient.reshape(-1),
                    point.gradient.reshape(-1),
                    size=self.memory,
                    eps=eps,
                    objective=best.objective,
                    first=state.first,
                    is_accepted=is_accepted,
                )
        if is_accepted:
            known = np.zeros_like(state.scales) if self.memory is not None else cast(Array, state.scales)
            damping, flat = after_acceptance(damping, decrease, predicted, noise)
            scales = np.maximum(known, _diagonal(program, curvature))
            return replace(
                state, best=point, curvature=curvature, scales=scales, damping=damping, flat=flat, rejections=0
            )
        rejections = state.rejections + 1
        patience = 0 if self.memory is None else _LEARNING
        if program.matrix is None and (not is_finite or rejections > patience):
            scales, gradient = cast(Array, state.scales), best.gradient.reshape(-1)
            damping = after_rejection(
                damping,
                rejections - patience if is_finite else rejections,
                slope=float(gradient @ step) + point.rest - best.rest if is_finite else None,
                decrease=decrease,
                steepness=math.sqrt(float(np.sum(gradient**2 / np.where(scales > 0, scales, np.inf)))),
                length=math.sqrt(float(scales @ step**2)),
            )
        kept = curvature if self.memory is not None else state.curvature
        scales = _diagonal(program, kept) if self.memory is not None else state.scales
        return replace(state, curvature=kept, scales=scales, damping=damping, rejections=rejections)

    def _evaluated(self, context: Context, x: Array, z: Array) -> tuple[Point, Any]:
        """Evaluate f, its derivatives, and the residuals with z."""
        program, oracle = cast(Program, context.prepared), context.oracle
        problem, at = program.problem, program.problem.placed(x)
        hessian = None
        if self.memory is None and program.matrix is None:
            if len(at) == 1:
                values, gradient, hessians = oracle.derivatives(at)
            else:
                # Together they might come summed up.
                values, gradient = oracle.value_and_gradient(at)
                hessians = oracle.hessian(at)
            hessian = hessians
        else:
            values, gradient = oracle.value_and_gradient(at)
        values, gradient = (np.asarray(to_numpy(each), dtype=np.float64) for each in (values, gradient))
        product = _product(context, x)
        coupling = cast(Operator, context.coupling)
        pull = np.asarray(coupling.A.apply_adjoint(z[0].astype(problem.dtype)), dtype=np.float64).reshape(x.shape)
        rest = float(np.sum(problem.objective(x, np.zeros(len(x))))) + problem.duals.conjugate(product)
        value = float(np.sum(values))
        kkt = saddle_residuals(problem, x, z, gradient, product, pull, value + rest)
        residuals = kkt.primal, kkt.dual, kkt.complementarity
        return Point(x, z, value + rest, rest, values, gradient, pull, residuals), hessian

    def _matrix(self, program: Program, state: State) -> Matrix:
        if program.matrix is not None:
            return program.matrix
        return cast(Memory, state.curvature).matrix() if self.memory is not None else _joined(list(state.curvature))

    def _nearest(self, context: Context, x: Array) -> ProgramMinimum:
        """The nearest point that fulfils the constraints, in a metric that does not depend on units if possible."""
        metric = cast(Program, context.prepared).metric
        return self._minimize(context, np.zeros(x.size), sp.diags_array(metric, format="csr"), 0.0, x)

    def _minimize(self, context: Context, gradient: Array, matrix: Matrix, damping: Any, x: Array) -> ProgramMinimum:
        program = cast(Program, context.prepared)
        found = program.sets.minimize(gradient, matrix, damping, x.reshape(-1))
        cast(Operator, context.coupling).count(found.products)
        return found

    def restored(self, state: State, fresh: State) -> State:
        """Make named tuples of what a checkpoint holds as plain ones."""
        best, curvature = state.best, state.curvature
        if best is not None:
            best = Point(*best)
        if self.memory is not None and curvature is not None:
            curvature = Memory(*curvature)
        return replace(state, best=best, curvature=curvature)

    def output(self, state: State) -> dict[str, Array]:
        """Return the best point so far."""
        return {"best": state.start if state.best is None else state.best.x}

    def dual(self, state: State) -> Array | None:
        return None if state.best is None else state.best.z

    def residuals(self, state: State) -> SaddleKKT | None:
        return None if state.best is None else state.best.kkt

    def no_solution(self, state: State) -> NoSolution | None:
        return None if state.proof is None else NoSolution(Status[state.proof[0]], state.proof[1])

    def contradiction(self, state: State) -> str:
        if state.contradiction == 0:
            return ""
        return (
            f"values and gradients contradict each other by {state.contradiction:.3g} at outer iteration "
            f"{state.evaluations}: the gradient is not that of the value, or the loss is not convex. "
            "gs.check_loss(loss) says more"
        )

    def is_stalled(self, state: State) -> bool:
        return state.idle >= _PATIENCE

    def dual_evidence(self, state: State) -> tuple[DualEvidence, ...]:
        best = state.best
        if best is None:
            return ()
        conjugates = np.sum(best.x * best.gradient, axis=1) - best.values
        return (DualEvidence(best.gradient, conjugates, Dual(best.z, best.pull), averaged=0),)

    def parameters(self, state: State) -> dict[str, float]:
        return {"rejected": state.rejected, "factorizations": state.factorizations}


def _scaled(ray: Array) -> Array:
    """The ray with a largest entry of 1."""
    return ray / max(float(np.max(np.abs(ray))), 1e-300)


def _contradiction(program: Program, before: Point, after: Point, first: float) -> float:
    """By how much values and gradients at two points violate convexity."""
    step = after.x - before.x
    rise = float(np.sum(after.values) - np.sum(before.values))
    sizes = [float(np.sum(np.abs(point.values))) for point in (before, after)]
    dtype = program.problem.dtype
    # At least of this size are the terms of a quadratic, which may cancel.
    terms = sum(float(np.sum(np.abs(point.x * point.gradient))) for point in (before, after))
    return violation_of_convexity(
        float(np.sum(before.gradient * step)),
        float(np.sum(after.gradient * step)),
        rise,
        values=max(*sizes, abs(first)),
        rounding=float(np.finfo(dtype).eps) * (sum(sizes) + terms) * math.sqrt(step.size),
        is_single=dtype == np.float32,
    )


def _product(context: Context, x: Array) -> Array:
    """A x, counted."""
    coupling, dtype = cast(Operator, context.coupling), context.problem.dtype
    return np.asarray(coupling.A.apply(x.reshape(-1).astype(dtype)), dtype=np.float64)[None]


def _within(program: Program, x: Array) -> Array:
    """The nearest point of X: rounding may have left it."""
    problem = program.problem
    return np.asarray(problem.domain.project(x.reshape(problem.m, problem.d)), dtype=np.float64)


def _is_finite(point: Point, curvature: Any) -> bool:
    arrays = [point.gradient] if curvature is None else [point.gradient, curvature]
    return math.isfinite(point.objective) and all(bool(np.isfinite(np.vdot(each, each))) for each in arrays)


def _diagonal(program: Program, curvature: Any) -> Array:
    if isinstance(curvature, Memory):
        return curvature.scales
    if curvature is None:
        return np.asarray(cast(Any, program.matrix).diagonal(), dtype=np.float64)
    return np.einsum("ijj->ij", curvature).reshape(-1)


def _joined(blocks: list[Array | Sparse]) -> Array | Sparse:
    """The matrices of all blocks of x as one."""
    if len(blocks) > 1:
        return sp.block_diag(blocks, format="csr", dtype=np.float64)
    return cast(Array, blocks[0].astype(np.float64))


def _metric(problem: Saddle) -> Array:
    """The sums of squares of the columns of the features, where they are known; else ones."""
    squares = problem.loss.column_squares()
    n = problem.m * problem.d
    if squares is None or problem.d % squares.shape[1]:
        return np.ones(n)
    metric = np.tile(to_numpy(squares), (1, problem.d // squares.shape[1])).reshape(-1)
    return without_zeros(metric) if np.isfinite(metric).all() and np.any(metric > 0) else np.ones(n)
