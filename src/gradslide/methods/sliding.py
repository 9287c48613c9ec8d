"""Primal-dual sliding that finds all its parameters: saddle points, linear constraints, coupled agents.

The iterations are those of Algorithm 5 of

G. Lan, Y. Ouyang, Y. Zhou, "Graph topology invariant gradient and sampling complexity for
decentralized and stochastic optimization",

in epochs. L follows the curvature that is seen; the weights of the primal and the dual steps, and
when an epoch ends, follow rules of the kind of PDLP (Applegate et al., "Practical large-scale linear
programming using primal-dual hybrid gradient", 2021).
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, cast

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import doubles, length, total, vdot
from gradslide._support.errors import require_number
from gradslide._support.types import Array
from gradslide.domains import Domain, Euclidean, PerAgent
from gradslide.domains.padded import Padded
from gradslide.losses import Linear
from gradslide.methods.base import Context, Copied, Method, NoSolution, as_floats
from gradslide.methods.geometry import CoupledGeometry, Geometry, Gradient, Point, PooledGeometry
from gradslide.network.coupled_rows import SharedRows
from gradslide.network.coupling import Dual
from gradslide.results.certificate import SaddleKKT
from gradslide.results.status import Status
from gradslide.theory.certificates import DualEvidence, Evaluation
from gradslide.theory.optimality import unit_of

# L stays this factor above the curvature that was seen, and rises by at least this factor and at most _STEEPEST.
_MARGIN, _STEEPEST = 1.2, 4.0
# How fast L falls otherwise.
_FALL = 0.9
# An outer iteration is accepted as it is after L has risen this often.
_ATTEMPTS = 30
# A value is known to this many roundings of its size; curvature counts unless rounding may be more than a share of it.
_ROUNDINGS, _VISIBLE = 450.0, 0.05
# The length of the step with which the first L is found, relative to x.
_PROBE = 1e-3

# T inner iterations of an outer one need not be more than this, or these shares of those of the epoch and the run.
_SHORT, _OF_EPOCH, _OF_RUN = 8, 0.3, 0.1
# Pi / P is at most this: more hardly saves products, and costs gradients.
_MOST_PI = 4.0
# These shares are of no more inner iterations than so many times those after which residuals last fell, or so many
# times as many as the second number: without progress, T would grow with every outer iteration.
_PATIENCE, _EARLY = 10.0, 100
# Outer iterations of a typical epoch add up to this S: it says what gradients cost in products.
_TYPICAL_S = 25.0
# omega ||A|| is at least this share of L: long dual steps are free where L alone keeps primal steps short.
_LEAST_SLOPE = 0.2

# An epoch ends when the residuals have fallen to this share, or to that one and rise again, or when it is this share
# of all inner iterations.
_SUFFICIENT, _NECESSARY, _LONGEST = 0.4, 0.8, 0.25
# The last iterate is looked at whenever the inner iterations of the epoch grew by this share.
_LOOK_GROWTH = 0.2
# Linear f: inner iterations between two looks at the residuals, as a share of those of the epoch, with that limit.
_CHUNK_SHARE = 0.1
# omega moves by this power of the ratio of both movements over omega, and at most by that factor.
_SMOOTHING, _MOST_CHANGE = 0.5, 4.0
# Movements below this are none.
_NOTHING = 1e-14

# There is no solution if one, or its multipliers, had to be this many times as long as the iterates.
_FAR = 1e8
# Points of X this far away show in which directions it goes on for ever.
_ENDLESS = 1e25
# A problem without feasible points is not called unbounded: the violation must have fallen to this share of the first.
_NEARLY_FEASIBLE = 1e-6
# The objective falls along a ray by at least this share of what its gradient could make it fall.
_FALLS = 1e-6


class Curvature(NamedTuple):
    """L and its slack test.

    Attributes
    ----------
    L : float
        The current L; 0 for a linear f.
    slack : float
        The sum of S_k times the violations so far, at most 0.
    """

    L: float
    slack: float = 0.0


class Weights(NamedTuple):
    """beta_k and T_k of an outer iteration; T is 0 for the one before the first."""

    beta: float
    T: int


class Lowest(NamedTuple):
    """The lowest residual of the run, noted whenever it has fallen to a share of the one before.

    Attributes
    ----------
    residual : float
        The largest residual then.
    inner : int
        Inner iterations of the run then.
    """

    residual: float
    inner: int = 0

    @property
    def allowed(self) -> float:
        """The inner iterations of which later outer iterations may take shares."""
        return _PATIENCE * max(self.inner, _EARLY)

    def next(self, residual: float, inner: int) -> "Lowest":
        """Return what is the lowest after a new residual.

        Parameters
        ----------
        residual : float
            The largest one.
        inner : int
            Inner iterations of the run so far.

        Returns
        -------
        Lowest
        """
        return Lowest(residual, inner) if residual <= _NECESSARY * self.residual else self


class Epoch(NamedTuple):
    """What an epoch knows of itself.

    Attributes
    ----------
    k : int
        Outer iterations.
    inner : int
        Inner iterations.
    P, Pi : float
        The weights of the smooth part and of A in the primal steps.
    S : float
        The sum of the beta_k.
    weights : Weights
        Those of the last outer iteration.
    look : int
        Inner iterations after which the last iterate is looked at.
    first, latest : float
        The largest residual at the start, and the latest one that was compared.
    """

    k: int
    inner: int
    P: float
    Pi: float
    S: float
    weights: Weights
    look: int
    first: float
    latest: float


@dataclass(frozen=True)
class State(Copied):
    """The state after an outer iteration, or at the start of an epoch.

    Attributes
    ----------
    epoch : Epoch
        The current epoch.
    restarts, inner : int
        Epochs that have ended, and inner iterations of the run.
    curvature : Curvature
        L.
    omega : float
        The ratio of dual and primal steps: they are omega/||A|| and 1/(omega ||A||).
    start, last, before, bar : Point
        The first point of the epoch, the last inner iterate and the one before, and the average.
    weights : Weights
        Those of the next outer iteration.
    under : Point
        Its x_under, where its gradient was taken, with the average of z.
    gradient : Gradient
        The gradient there.
    answer : Point
        x_under or the last iterate, whichever is better.
    kkt : SaddleKKT
        The residuals at the answer.
    proof : tuple of str and Array, or None
        The fields of a `NoSolution`, the status by its name: checkpoints can store that.
    unit : float
        Gradients and objectives of this size are small.
    lowest : Lowest
        The lowest residual so far.
    knows_z : bool
        Whether the z of `under` and `answer` are multipliers that all processes know; if not, they do when the
        run ends.
    lower : float
        The best lower bound on the optimum, where observers cannot find it since z is spread over agents.
    """

    epoch: Epoch
    restarts: int
    inner: int
    curvature: Curvature
    omega: float
    start: Point
    last: Point
    before: Point
    bar: Point
    weights: Weights
    under: Point
    gradient: Gradient
    answer: Point
    kkt: SaddleKKT
    unit: float
    lowest: Lowest
    proof: tuple[str, Array] | None = None
    knows_z: bool = True
    lower: float = -math.inf


@dataclass(frozen=True, kw_only=True)
class AdaptiveSliding(Method[State]):
    r"""Primal-dual sliding without parameters, for linear constraints, saddle points and coupled agents.

    It solves min over X, max over Z of f(x) + <A x, z> - h(z), where only f and its gradient, A, and
    the prox steps of X and h are needed. One gradient, one value and T_k times two products with A
    per outer iteration.

    Parameters
    ----------
    balance : float
        The cost of a gradient in products with A, in rounds for coupled agents. From about 10 on,
        gradients are saved at the expense of products.
    L : float, optional
        The smoothness of ft. Default: found from the values, or from the gradients of a loss without
        values.
    omega : float, optional
        The first ratio of dual and primal steps: about \|\|z*\|\|/\|\|x* - x_0\|\|. Default:
        estimated.

    Notes
    -----
    An epoch starts at x_0 = x_bar_0, z_0 with S_0 = 0 and P = L. Outer iteration k is

        beta_k    = the positive root of L beta^2 = P (S_{k-1} + beta),  S_k = S_{k-1} + beta_k
        T_k       = beta_k omega ||A|| / Pi, rounded up;  p_k = P / beta_k,  q_k = Pi T_k / (beta_k omega^2)
        x_under_k = (S_{k-1} x_bar_{k-1} + beta_k x_{k-1}) / S_k,  y_k = the gradient there
        T_k inner iterations of Algorithm 5 with eta_k^t = Pi T_k / beta_k + (t - 1) p_k
        x_bar_k   = (S_{k-1} x_bar_{k-1} + beta_k x_hat_k) / S_k,  z_bar_k likewise

    The schedule of Theorem 3 has Pi = P. Then beta_k (eta_k^1 + p_k T_k) / T_k = Pi + P, and the bound of
    the theorem is ((P + Pi) V + Pi U / omega^2) / S_N: with larger Pi, up to 4 P here, T_k is smaller.
    omega ||A|| is at least L / 5: dual steps can be long where L keeps primal steps short anyway. Between
    Euclidean geometries ||A|| is taken 12 % smaller than it is: PDHG converges with up to 13 % (Li and
    Yan 2022), this scheme did so in all measurements, but the bound is not proved then.

    L is accepted if the sum of S_k times the violations of the descent inequality is not positive;
    otherwise k is repeated with a larger one. An epoch ends when the residuals of the optimality
    conditions have fallen, or as PDLP's; the next one starts at x_under or the last iterate,
    whichever is better. The gradient at x_under serves both. omega moves towards the ratio of the
    movements of z and x in the epoch. Rows of A are scaled where its entries are known, the dual set
    is simple and has no weights yet; columns, too, if f is linear.

    If constraints contradict each other, steps of z approach a combination that proves it; if the
    objective falls for ever, steps of x approach the direction. Both are looked for when an epoch ends
    without progress; coupled agents need a maximum and a sum for contradictions, and a few sums more where
    their sets are unbounded and the constraints hold.

    Coupled agents exchange A_i x_i with their neighbours, once in an inner iteration, where every
    constraint concerns agents that are neighbours of each other; z is then known to these agents only,
    until the run ends. Elsewhere a product is a sum over the tree. An outer iteration costs the control
    rounds of a sum for the slack test. Two maxima and a sum tell the residuals; they are taken when inner
    iterations have cost as many rounds.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> from gradslide.methods.sliding import AdaptiveSliding
    >>> loss = gs.losses.LeastSquares(np.eye(2), [1.0, 3.0])
    >>> problem = gs.LinearlyConstrained(loss, [[1.0, 1.0]], [2.0])
    >>> solution = gs.solve(problem, method=AdaptiveSliding(), stop=gs.Stop(iterations=50))
    >>> bool(abs(solution.mean - [0.0, 2.0]).max() < 1e-6)
    True
    """

    stops_itself: ClassVar[bool] = True
    serves_rows: ClassVar[bool] = True

    balance: float = 1.0
    L: float | None = None
    omega: float | None = None

    def __post_init__(self) -> None:
        require_number("balance", self.balance, "leave it out for 1", above=0)
        if self.L is not None:
            require_number("L", self.L, "leave it out to have it found", least=0)
        if self.omega is not None:
            require_number("omega", self.omega, "leave it out to have it estimated", above=0)
        as_floats(self, "balance", "L", "omega")

    @property
    def name(self) -> str:
        return "AutoPDS"

    def prepare(self, context: Context) -> Geometry:
        """Return the sets with their weights, and ||A||."""
        if isinstance(context.coupling, SharedRows):
            return CoupledGeometry.of(context, context.coupling, is_linear=self.L == 0)
        return PooledGeometry.of(context, is_linear=self.L == 0 or isinstance(context.problem.loss, Linear))

    def init(self, context: Context) -> State:
        geometry = cast(Geometry, context.prepared)
        point = geometry.start(context)
        gradient = _evaluated(context, geometry, point.x)
        y = gradient.y
        L = 0.0 if geometry.is_linear else self.L or _first_L(context, geometry, point.x, y)
        unit = unit_of(float(geometry.largest(np.array([array_namespace(y).max(abs(y))], dtype=np.float64))[0]))
        ((kkt, lower),) = geometry.residuals(unit, (point, gradient))
        omega = self.omega or _first_omega(geometry, point, y, L)
        state = State(
            epoch=Epoch(0, 0, L, L, 0.0, Weights(0.0, 0), 0, 0.0, 0.0),
            restarts=0,
            inner=0,
            curvature=Curvature(L),
            omega=omega,
            start=point,
            last=point,
            before=point,
            bar=point,
            weights=Weights(0.0, 0),
            under=point,
            gradient=gradient,
            answer=point,
            kkt=kkt,
            unit=unit,
            lowest=Lowest(kkt.largest),
            knows_z=geometry.knows_z,
            lower=lower,
        )
        return self._at_epoch(geometry, state)

    def step(self, context: Context, state: State) -> State:
        """One outer iteration; then the gradient of the next one, the residuals, and a restart if it is time."""
        geometry = cast(Geometry, context.prepared)
        new = _outer_iteration(geometry, state)
        if not self._finds_L(geometry):
            return self._looked(context, geometry, new)
        if not geometry.has_values:
            old, new = state, _ahead(context, geometry, new)
            return self._judged(context, geometry, replace(new, curvature=_by_gradients(geometry, old, new)))
        for attempt in range(_ATTEMPTS):
            curvature, is_accepted = _tested(context, geometry, state, new)
            if is_accepted or attempt == _ATTEMPTS - 1:
                break
            state = replace(state, curvature=curvature)
            # x_under depends on L, but for the first one.
            state = self._at_epoch(geometry, state) if state.epoch.k == 0 else _ahead(context, geometry, state)
            new = _outer_iteration(geometry, state)
        return self._looked(context, geometry, replace(new, curvature=curvature))

    def _finds_L(self, geometry: Geometry) -> bool:
        return self.L is None and not geometry.is_linear

    def _at_epoch(self, geometry: Geometry, state: State) -> State:
        """The start of an epoch at the answer, whose gradient is known."""
        L, norm, omega, point = state.curvature.L, geometry.norm, state.omega, state.answer
        if geometry.is_linear:
            P, Pi = 0.0, omega * norm
        else:
            omega = max(omega, _LEAST_SLOPE * L / norm)
            slope = omega * norm / L
            # Gradients at that price times 2 sqrt(S), and 2 S slope / kappa products, with S = (1 + kappa) _TYPICAL_S,
            # cost least at about this kappa = Pi / P.
            price = (self.balance + geometry.test_rounds) / geometry.rounds
            kappa = (2 * slope * math.sqrt(_TYPICAL_S) / price) ** (2 / 3)
            P, Pi = L, L * max(1.0, min(kappa, slope, _MOST_PI))
        epoch = Epoch(0, 0, P, Pi, 0.0, Weights(0.0, 0), geometry.least_look, state.kkt.largest, math.inf)
        state = replace(state, epoch=epoch, curvature=Curvature(L), omega=omega)
        state = replace(state, start=point, last=point, before=point, bar=point, under=point)
        return replace(state, weights=_next_weights(geometry, state))

    def _looked(self, context: Context, geometry: Geometry, state: State) -> State:
        return self._judged(context, geometry, _ahead(context, geometry, state))

    def _judged(self, context: Context, geometry: Geometry, state: State) -> State:
        """Find the residuals and the answer, and restart there if it is time."""
        epoch, ends = state.epoch, False
        looks_twice = geometry.is_linear or epoch.inner >= epoch.look
        if geometry.look_rounds > 0 and not looks_twice:
            return state
        answer, here = state.under, state.gradient
        if not looks_twice:
            ((kkt, lower),) = geometry.residuals(state.unit, (answer, here))
        else:
            there = _evaluated(context, geometry, state.last.x, here.y if geometry.is_linear else None)
            (kkt, lower), (kkt_there, lower_there) = geometry.residuals(state.unit, (answer, here), (state.last, there))
            lower = max(lower, lower_there)
            if kkt_there.largest < kkt.largest:
                answer, here, kkt = state.last, there, kkt_there
            ends = kkt.largest <= _NECESSARY * epoch.first and kkt.largest > epoch.latest
            ends = ends or epoch.inner >= _LONGEST * state.inner
            look = epoch.inner + max(geometry.least_look, math.ceil(_LOOK_GROWTH * epoch.inner))
            epoch = epoch._replace(latest=kkt.largest, look=look)
        lowest = state.lowest.next(kkt.largest, state.inner)
        state = replace(state, epoch=epoch, answer=answer, kkt=kkt, lower=max(state.lower, lower), lowest=lowest)
        if not ends and kkt.largest > _SUFFICIENT * epoch.first:
            return state
        # Where there is no solution, residuals stay what they are.
        proof = _no_solution(context, geometry, state) if kkt.largest > _NECESSARY * epoch.first else None
        state = replace(state, gradient=here, proof=None if proof is None else (proof.status.name, proof.ray))
        return self._at_epoch(geometry, replace(state, omega=_rebalanced(geometry, state), restarts=state.restarts + 1))

    def output(self, state: State) -> Array:
        return state.answer.x

    def dual(self, state: State) -> Array | None:
        """Return the multipliers of the answer; None while they are spread over agents."""
        return state.answer.z if state.knows_z else None

    def residuals(self, state: State) -> SaddleKKT:
        """Return the residuals at the answer."""
        return state.kkt

    def known(self, state: State) -> Evaluation | None:
        """Return the lower bound that agents agreed on with the residuals, if there is one."""
        return Evaluation(state.answer.x, lower=state.lower) if math.isfinite(state.lower) else None

    def no_solution(self, state: State) -> NoSolution | None:
        """Return the proof that was found at a restart."""
        return None if state.proof is None else NoSolution(Status[state.proof[0]], state.proof[1])

    def dual_evidence(self, state: State) -> tuple[DualEvidence, ...]:
        """Return the gradient at x_under with the average of z, unless that is spread over agents."""
        if not state.knows_z:
            return ()
        return (
            DualEvidence(state.gradient.y, state.gradient.conjugate, Dual(state.under.z, state.under.pull), averaged=0),
        )

    def finish(self, context: Context, state: State, factor: float) -> State:
        """Let all agents know the multipliers: two sums over the tree where they are spread over agents."""
        if state.knows_z:
            return state
        geometry = cast(Geometry, context.prepared)
        under, answer = (each._replace(z=geometry.multipliers(each.z)) for each in (state.under, state.answer))
        # No step follows.
        return replace(state, under=under, answer=answer, knows_z=True)

    def parameters(self, state: State) -> dict[str, float]:
        return {
            "L": state.curvature.L,
            "omega": state.omega,
            "restarts": state.restarts,
            "inner_iterations": state.inner,
            "balance": self.balance,
        }


def _evaluated(context: Context, geometry: Geometry, x: Array, y: Array | None = None) -> Gradient:
    """Return gradients and values at x; y: the gradients of linear losses."""
    xp = array_namespace(x)
    if y is not None:
        values = xp.vecdot(doubles(x), doubles(y))
    elif geometry.has_values:
        values, y = context.oracle.value_and_gradient(x)
        values = doubles(values)
    else:
        y = context.oracle.gradient(x)
        return Gradient(y, None, xp.full_like(y[:, 0], math.nan))
    if context.problem.has_lower_bound:
        context.oracle.extend_reach(xp.linalg.vector_norm(doubles(x), axis=1))
    return Gradient(y, values, xp.vecdot(doubles(x), doubles(y)) - values)


def _dual_square(domain: Domain, gradient: Array) -> float:
    """The square of the norm of a gradient that is dual to nu's, of the blocks here."""
    if domain.norm == 1:
        return length(array_namespace(gradient).max(abs(gradient), axis=1)) ** 2
    scales = domain.weights
    return length(gradient if scales is None else gradient / array_namespace(gradient).sqrt(scales)) ** 2


def _first_L(context: Context, geometry: Geometry, x: Array, y: Array) -> float:
    """The curvature between x and a point of X near it, at the cost of a gradient."""
    xp, domain = array_namespace(x), geometry.problem.domain
    size, largest = geometry.largest(np.array([float(xp.max(abs(y))), float(xp.max(abs(x)))])).tolist()
    largest, ones = max(1.0, largest), xp.ones_like(x)
    for direction in (-y / (size or 1.0), y / (size or 1.0), ones, -ones):
        near = domain.project(x + _PROBE * largest * direction)
        (squares,) = geometry.totals(2 * total(geometry.domain.V(x, near)))
        if squares > 0:
            change = context.oracle.gradient(near) - y
            rise, changed = geometry.totals(float(vdot(change, near - x)), _dual_square(geometry.domain, change))
            found = max(rise / squares, math.sqrt(changed / squares))
            if found > 0:
                return found
            break
    # Where f is flat any L will do: one with which x moves by about its size.
    (square,) = geometry.totals(_dual_square(geometry.domain, y))
    return math.sqrt(square) / largest or 1.0


def _first_omega(geometry: Geometry, point: Point, y: Array, L: float) -> float:
    """The ratio of the ways that z and x may have to go; 1 if nothing is known."""
    domain, duals, norm = geometry.domain, geometry.duals, geometry.norm
    violation, square = duals.violation(point.product.reshape(1, -1)), 0.0
    if violation is not None:
        square = _dual_square(duals.domain, geometry.own(violation.reshape(point.z.shape)))
    square_of_y, square, reach = geometry.totals(
        _dual_square(domain, y), square, 2 * total(domain.distance_bound(point.x))
    )
    size, way = math.sqrt(square_of_y), math.inf
    if violation is not None:
        way = math.sqrt(square) / norm or math.inf
    if not math.isfinite(way) and L > 0 and size > 0:
        way = size / L
    way = min(way, math.sqrt(reach))
    dual_way = min(size / norm or math.inf, math.sqrt(2 * duals.U_bound(duals.start())))
    ratio = dual_way / way if way > 0 else math.inf
    return ratio if 0 < ratio < math.inf else 1.0


def _next_weights(geometry: Geometry, state: State) -> Weights:
    """beta and T of the next outer iteration."""
    epoch, L = state.epoch, state.curvature.L
    if geometry.is_linear:
        # Outer iterations only say when to look.
        T = max(geometry.least_look, int(_CHUNK_SHARE * min(epoch.inner, state.lowest.allowed)))
        return Weights(float(T), T)
    beta = (epoch.P + math.sqrt(epoch.P**2 + 4 * L * epoch.P * epoch.S)) / (2 * L)
    slope = state.omega * geometry.norm / epoch.Pi
    known = state.lowest.allowed
    most = max(_SHORT, int(_OF_EPOCH * min(epoch.inner, known)), int(_OF_RUN * min(state.inner, known)))
    if beta * slope > most:
        # A smaller beta is as valid as a larger L.
        return Weights(most / slope, most)
    return Weights(beta, max(1, math.ceil(beta * slope - 1e-9)))


def _outer_iteration(geometry: Geometry, state: State) -> State:
    """The inner iterations, and the averages; x_under stays what it was."""
    domain, mu = geometry.domain, geometry.problem.mu
    epoch, (beta, T), old = state.epoch, state.weights, state.epoch.weights
    p, q, eta_1 = epoch.P / beta, epoch.Pi * T / (beta * state.omega**2), epoch.Pi * T / beta
    alpha = old.beta * T / (beta * old.T) if old.T else 1.0
    anchor = p * domain.grad_nu(state.last.x) - state.gradient.y
    point, before, sums = state.last, state.before, None
    for t in range(T):
        # A u follows from A x: one product with A, one with A^T.
        u = point.product + alpha * (point.product - before.product)
        z = geometry.ascend(point.z, u, q)
        pull, eta, alpha = geometry.pull(z), eta_1 + t * p, 1.0
        x = domain.prox(eta * domain.grad_nu(point.x) + anchor - pull, mu + eta + p)
        point, before = Point(x, geometry.product(x), z, pull), point
        sums = point if sums is None else Point(*(a + b for a, b in zip(sums, point, strict=True)))
    assert sums is not None
    S = epoch.S + beta
    share = beta / S
    bar = Point(*(a + share * (b / T - a) for a, b in zip(state.bar, sums, strict=True)))
    epoch = epoch._replace(k=epoch.k + 1, inner=epoch.inner + T, S=S, weights=state.weights)
    return replace(state, epoch=epoch, inner=state.inner + T, last=point, before=before, bar=bar)


def _ahead(context: Context, geometry: Geometry, state: State) -> State:
    """The state with x_under of the next outer iteration and its gradient."""
    weights = _next_weights(geometry, state)
    share = weights.beta / (state.epoch.S + weights.beta)
    bar, last = state.bar, state.last
    x, product = bar.x + share * (last.x - bar.x), bar.product + share * (last.product - bar.product)
    gradient = _evaluated(context, geometry, x, state.gradient.y if geometry.is_linear else None)
    under = Point(x, product, bar.z, bar.pull)
    return replace(state, weights=weights, under=under, gradient=gradient)


def _tested(context: Context, geometry: Geometry, old: State, new: State) -> tuple[Curvature, bool]:
    """The slack test: L and the slack, and whether the outer iteration is accepted."""
    (L, slack), (beta, _), S = old.curvature, old.weights, new.epoch.S
    at, move = old.gradient, new.bar.x - old.under.x
    assert at.values is not None
    value, value_before, rise, squares = geometry.totals(
        total(context.oracle.value(new.bar.x)),
        total(at.values),
        total(array_namespace(move).vecdot(doubles(at.y), doubles(move))),
        2 * total(geometry.domain.V(old.under.x, new.bar.x)),
    )
    if not squares > 0:
        return Curvature(L, slack), True
    rounding = _ROUNDINGS * float(np.finfo(context.problem.dtype).eps) * abs(value_before)
    seen = 2 * (value - value_before - rise) / squares
    # What L stands for where beta was limited: P S / beta^2.
    violation = S * ((seen - old.epoch.P * S / beta**2) * squares / 2 - rounding)
    needed = _MARGIN * seen
    if slack + violation > 0:
        return Curvature(max(_MARGIN * L, min(needed, _STEEPEST * L)), slack), False
    if rounding < _VISIBLE * L * squares:
        L = min(max(_FALL * L, needed), max(L, needed))
    return Curvature(L, slack + violation), True


def _by_gradients(geometry: Geometry, old: State, new: State) -> Curvature:
    """L from the gradients at two x_under, for a loss without values; nothing is repeated."""
    L, move, change = old.curvature.L, new.under.x - old.under.x, new.gradient.y - old.gradient.y
    squares, rise, *lengths = geometry.totals(
        2 * total(geometry.domain.V(old.under.x, new.under.x)),
        float(vdot(change, move)),
        length(old.gradient.y) ** 2,
        length(move) ** 2,
    )
    rounding = _ROUNDINGS * float(np.finfo(geometry.problem.dtype).eps) * math.sqrt(math.prod(lengths))
    if not rounding < _VISIBLE * L * squares:
        return old.curvature
    needed = _MARGIN * max(0.0, rise) / squares
    return Curvature(min(needed, _STEEPEST * L) if needed > L else max(_FALL * L, needed))


def _rebalanced(geometry: Geometry, state: State) -> float:
    """omega, moved towards the ratio of the movements of z and x in the epoch."""
    x, z = geometry.moved(state.start, state.answer)
    if x <= _NOTHING and z <= _NOTHING:
        return state.omega
    ratio = z / max(x, _NOTHING * z) / state.omega
    return state.omega * min(max(ratio**_SMOOTHING, 1 / _MOST_CHANGE), _MOST_CHANGE)


# ---- Problems without a solution


def _no_solution(context: Context, geometry: Geometry, state: State) -> NoSolution | None:
    """Look for a proof in the last steps, in the movement of the epoch, and in z itself."""
    term, domain, xp = geometry.duals.term, geometry.problem.domain, array_namespace(state.answer.x)
    if not geometry.duals.is_constrained:
        return None
    numbers = np.array([float(xp.max(abs(state.answer.x))), float(not domain.bounded)], dtype=np.float64)
    farthest, is_endless = geometry.largest(numbers).tolist()
    if state.kkt.primal > 0:
        zs = state.last.z - state.before.z, state.answer.z - state.start.z, state.answer.z
        ray = _contradiction(geometry, state, [term.escape(z.reshape(1, -1)).reshape(z.shape) for z in zs], farthest)
        if ray is not None:
            z = geometry.multipliers(ray)[0]
            return NoSolution(Status.INFEASIBLE, z / float(xp.max(abs(z))))
    if not is_endless or geometry.problem.mu > 0 or not _is_nearly_feasible(geometry, state.answer):
        return None
    for x in (state.last.x - state.before.x, state.answer.x - state.start.x):
        direction = _endless(geometry, state.answer.x, x)
        if direction is not None and _proves_unbounded(context, geometry, state, direction):
            return NoSolution(Status.UNBOUNDED, direction)
    return None


class _Least(NamedTuple):
    """The minimum of <slope, x> over blocks of X, and what rounding depends on.

    Attributes
    ----------
    value : float
        The minimum.
    size : float
        The sum of the sizes of the terms.
    square : float
        The square of the largest coordinate of x.
    """

    value: float
    size: float
    square: float


def _contradiction(geometry: Geometry, state: State, rays: list[Array], farthest: float) -> Array | None:
    """The first ray with <A x, ray> > h(ray) for all x in X up to _FAR times as far as the iterates: none is feasible.

    farthest: the largest coordinate of the iterates. A sum over all processes serves all rays.
    """
    problem, parts = geometry.problem, []
    domain, reach = problem.domain.without_penalty(), _FAR * (1 + farthest)
    rounding = _ROUNDINGS * float(np.finfo(problem.dtype).eps)
    for ray in rays:
        own = geometry.own(ray)
        least = _least(domain, geometry.pull(ray), state.answer.x, reach)
        parts += [geometry.duals.term.value(own), 2 * geometry.duals.U(0 * own, own), *least]
    found = np.reshape(geometry.totals(*parts), (len(rays), -1)).tolist()
    for ray, (most, ray_square, value, size, square) in zip(rays, found, strict=True):
        error = rounding * (abs(most) + size + geometry.norm * math.sqrt(ray_square * square))
        if value - most > error + (abs(most) + abs(value)) / _FAR:
            return ray
    return None


def _least(domain: Domain, slope: Array, x: Array, reach: float) -> _Least:
    """The minimum over X; where X is a product of intervals, over the x in it with coordinates up to `reach`."""
    xp = array_namespace(slope)
    if isinstance(domain, Padded):
        cut = domain.dimension
        return _least(domain.inner, slope[:, :cut], x[:, :cut], reach)
    if isinstance(domain, PerAgent):
        kinds = [
            _least(part, xp.take(slope, agents, axis=0), xp.take(x, agents, axis=0), reach)
            for part, agents in domain.parts
        ]
        return _Least(*(sum(each) for each in zip(*kinds, strict=True)))
    if isinstance(domain, Euclidean) and domain.separable:
        lowest = doubles(xp.clip(domain.project(-_ENDLESS * xp.sign(slope)), -reach, reach))
        value, scale = float(vdot(doubles(slope), lowest)), float(xp.max(abs(lowest)))
    else:
        value, scale = total(domain.linear_minimum(slope)), float(xp.max(abs(x)))
    return _Least(value, scale * total(abs(doubles(slope))), scale**2)


def _is_nearly_feasible(geometry: Geometry, point: Point) -> bool:
    """Whether the constraints hold, compared with the first violation: A x is no scale, as it grows along a ray."""

    def violation(product: Array) -> float:
        found = geometry.duals.violation(product.reshape(1, -1))
        assert found is not None
        (square,) = geometry.totals(length(geometry.own(found.reshape(product.shape))) ** 2)
        return math.sqrt(square)

    now = violation(point.product)
    return not now > 0 or now <= _NEARLY_FEASIBLE * violation(geometry.product(geometry.problem.domain.start()))


def _endless(geometry: Geometry, x: Array, direction: Array) -> Array | None:
    """The part of a direction along which X goes on for ever, of length 1; None if there is none."""
    size, way = (math.sqrt(square) for square in geometry.totals(length(direction) ** 2, length(x) ** 2))
    if not size > _NOTHING * (1 + way):
        return None
    far, start = _FAR**2, geometry.problem.domain.start()
    ray = (geometry.problem.domain.project(start + far / size * direction) - start) / far
    (square,) = geometry.totals(length(ray) ** 2)
    return ray / math.sqrt(square) if square > _FALLS**2 else None


def _proves_unbounded(context: Context, geometry: Geometry, state: State, ray: Array) -> bool:
    """Whether f falls along a ray in X and the constraints, up to _FAR times as far as the iterates."""
    domain, point, y = geometry.problem.domain, state.answer, state.gradient.y
    slope, *squares = geometry.totals(float(vdot(y, ray)), *(length(each) ** 2 for each in (y, point.x)))
    size, way = (math.sqrt(square) for square in squares)
    if not slope < -_FALLS * size:
        return False
    product = geometry.product(ray)
    out = geometry.duals.term.escape(product.reshape(1, -1)).reshape(product.shape)
    squares = geometry.totals(*(length(geometry.own(each)) ** 2 for each in (out, point.z)))
    held = math.sqrt(squares[0]) * _FAR * (math.sqrt(squares[1]) + size / geometry.norm)
    if held > size:
        return False
    steps = _FAR * (1 + way)
    far = point.x + steps * ray
    y = y if geometry.is_linear else context.oracle.gradient(far)
    leaves = not bool(domain.contains(far, 1e-9 * steps).all())
    rise, square, leaving = geometry.totals(
        float(vdot(y, ray)) + total(domain.r(far)) / steps, length(y) ** 2, float(leaves)
    )
    return not leaving and -rise > _FALLS * math.sqrt(square) + held
