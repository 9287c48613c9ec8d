"""What adaptive sliding needs of X, Z and A, in one place or on a network: points, products, distances and sums."""

import copy
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, Self, cast

import numpy as np

from gradslide._support.arrays import total
from gradslide._support.errors import InputError
from gradslide._support.types import Array
from gradslide.domains import Domain, Euclidean
from gradslide.domains.penalties import GroupL1
from gradslide.losses import Linear
from gradslide.methods.base import Context
from gradslide.network.coupled_rows import NeighbourRows, SharedRows, fitting_rows
from gradslide.network.coupling import Dual, Operator
from gradslide.network.protocol import Network
from gradslide.problems import scaling as scalings
from gradslide.problems.linear_map import LinearMap
from gradslide.problems.operator_norm import operator_norm
from gradslide.problems.problem import Objective, Problem
from gradslide.problems.saddle import DualSpace, Saddle
from gradslide.problems.terms import Interval, Quadratic
from gradslide.problems.terms import Linear as LinearTerm
from gradslide.theory.optimality import Found, Here, Known, residuals_of

# ||A|| is divided by this. PDHG converges up to sqrt(4/3) (Li and Yan 2022); the bound of an epoch needs 1.
_STRETCH = 1 / 0.88
# The last iterate of an epoch is first looked at after so many inner iterations.
_FIRST_LOOK = 4
# Where looks cost rounds: those of the inner iterations between two looks are at least so many times as many.
_LOOK_SHARE = 1.0
# What stands for infinity in messages.
_INFINITE = 1e300


class Point(NamedTuple):
    """x and z with their products.

    Attributes
    ----------
    x : Array
        The primal point, shape (m, d).
    product : Array
        A x, in the form of z.
    z : Array
        The dual point, shape (1, k); or as `NeighbourRows` stores it.
    pull : Array
        A^T z, shape (m, d).
    """

    x: Array
    product: Array
    z: Array
    pull: Array


class Gradient(NamedTuple):
    """A gradient with its value.

    Attributes
    ----------
    y : Array
        The gradients of the ft_i.
    values : Array or None
        The ft_i; None for losses without values.
    conjugate : Array
        <x, y> - ft_i(x), or NaN.
    """

    y: Array
    values: Array | None
    conjugate: Array


@dataclass(frozen=True)
class Geometry(ABC):
    """X and Z with the weights of the run, the products with A, and sums over all blocks of x.

    All processes take the same decisions: these follow from `totals` and `largest` only, and from what they knew
    alike before.

    Attributes
    ----------
    problem : Objective
        The problem, with its own weights.
    domain : Domain
        X.
    duals : DualSpace
        Z and h. Points are rows there.
    unweighted : DualSpace
        The same with the weights of the problem, for residuals.
    norm : float
        The ||A|| of the step sizes.
    is_linear : bool
        Whether f is linear but for mu nu + r.
    has_values : bool
        Whether all losses have values.
    rounds : float
        What a product costs: products, or rounds on a network.
    knows_z : bool
        Whether points have a z that all processes know.
    look_rounds : float
        Rounds that a look at the residuals costs.
    test_rounds : float
        Rounds that a slack test costs, beside the gradient of an outer iteration.
    """

    problem: Objective
    domain: Domain
    duals: DualSpace
    unweighted: DualSpace
    norm: float
    is_linear: bool
    has_values: bool
    rounds: float
    knows_z: bool
    look_rounds: float
    test_rounds: float

    @property
    def least_look(self) -> int:
        """The least number of inner iterations between two looks."""
        return max(_FIRST_LOOK, math.ceil(_LOOK_SHARE * self.look_rounds / self.rounds))

    @abstractmethod
    def start(self, context: Context) -> Point:
        """Return the first point."""

    @abstractmethod
    def product(self, x: Array) -> Array:
        """Return A x in the form of z."""

    @abstractmethod
    def pull(self, z: Array) -> Array:
        """Return A^T z in the shape of x."""

    @abstractmethod
    def total(self, numbers: Array) -> Array:
        """Return sums over all processes."""

    @abstractmethod
    def largest(self, numbers: Array) -> Array:
        """Return the largest numbers of all processes."""

    def totals(self, *numbers: float) -> list[float]:
        """Return sums over all processes."""
        return cast("list[float]", self.total(np.array(numbers)).tolist())

    def counted(self) -> Array | None:
        """Return 1 for the entries of z that this process counts in sums, 0 for others; None: all of them."""
        return None

    def own(self, z: Array) -> Array:
        """Return z as a row, with 0 for the entries that other processes count."""
        counted = self.counted()
        return (z if counted is None else counted * z).reshape(1, -1)

    def multipliers(self, z: Array) -> Array:
        """Return the multipliers, (1, k), in all processes."""
        return z

    def ascend(self, z: Array, slope: Array, q: float) -> Array:
        """Return argmin over Z of h - <slope, .> + q U(z, .)."""
        return self.duals.ascend(z.reshape(1, -1), slope.reshape(1, -1), q).reshape(z.shape)

    def moved(self, a: Point, b: Point) -> tuple[float, float]:
        """Return the distances of x and of z between two points."""
        x, z = self.totals(total(self.domain.V(a.x, b.x)), self.duals.U(self.own(a.z), self.own(b.z)))
        return math.sqrt(2 * x), math.sqrt(2 * z)

    def residuals(self, unit: float, *places: tuple[Point, Gradient]) -> list[Found]:
        """Return the residuals at points with their gradients, and lower bounds where observers cannot find them.

        unit: gradients and objectives of this size are small.
        """
        domain, mu, counted, known = self.problem.domain, self.problem.mu, self.counted(), []
        for point, gradient in places:
            value = None
            if gradient.values is not None:
                value = total(gradient.values) + total(domain.r(point.x))
                value += mu * total(domain.nu(point.x)) if mu > 0 else 0.0
            z, product = point.z.reshape(1, -1), point.product.reshape(1, -1)
            lower = -math.inf if self.knows_z else self._lower(point, gradient)
            known.append(Known(point.x, z, gradient.y, product, point.pull, value, lower))
        counted = None if counted is None else counted.reshape(1, -1)
        return residuals_of(self.problem, self.unweighted, known, self, counted, unit)

    def _lower(self, point: Point, gradient: Gradient) -> float:
        """The part of a lower bound on the optimum, by weak duality, of the blocks here."""
        parts = self.problem.domain.linear_minimum(gradient.y + point.pull, self.problem.mu) - gradient.conjugate
        return total(parts) - self.unweighted.h(self.own(point.z))


@dataclass(frozen=True)
class PooledGeometry(Here, Geometry):
    """All of x and z in one process.

    Attributes
    ----------
    problem : Saddle
        The problem.
    A : LinearMap
        Its operator; products are counted.
    """

    problem: Saddle
    A: LinearMap

    @classmethod
    def of(cls, context: Context, *, is_linear: bool) -> Self:
        """Scale rows, and columns where f is linear; then find ||A||."""
        problem, coupling = context.problem, context.coupling
        if not (isinstance(problem, Saddle) and isinstance(coupling, Operator)):
            rule, remedy = "this method needs linear constraints in place of consensus", "use gs.AutoPDS()"
            raise InputError(rule, type(problem).__name__, remedy)
        domain, duals = problem.domain, problem.duals
        scales_x, scales_z = is_linear and problem.mu == 0 and _can_be_weighted(domain), _can_weight_rows(duals)
        kind = {(True, True): "both", (True, False): "columns", (False, True): "rows"}.get((scales_x, scales_z))
        if coupling.A.matrix is None or kind is None:
            norm = coupling.norm()
        else:
            weights = scalings.weights(coupling.A, kind)
            if scales_x:
                domain = _weighted(domain, weights.x.reshape(problem.m, problem.d))
            if scales_z:
                duals = copy.copy(duals)
                duals.domain = _weighted(duals.domain, weights.z)
            norm = operator_norm(coupling.A, domain, duals.domain)
        if domain.euclidean and duals.domain.euclidean:
            norm /= _STRETCH
        return cls(
            problem=problem,
            domain=domain,
            duals=duals,
            unweighted=problem.duals,
            norm=norm or 1.0,
            is_linear=is_linear,
            has_values=problem.loss.has_value,
            rounds=1.0,
            knows_z=True,
            look_rounds=0.0,
            test_rounds=0.0,
            A=coupling.A,
        )

    def start(self, context: Context) -> Point:
        dual = context.coupling.start(context.x0, context.s0)
        return Point(context.x0, self.product(context.x0), dual.s, dual.w)

    def product(self, x: Array) -> Array:
        """Return A x as a row."""
        return self.A.apply(x.reshape(-1))[None]

    def pull(self, z: Array) -> Array:
        """Return A^T z in the shape of x."""
        return self.A.apply_adjoint(z[0]).reshape(self.problem.m, self.problem.d)


@dataclass(frozen=True)
class CoupledGeometry(Geometry):
    """Blocks of x at agents on a network. A product is one exchange, or one sum over the tree.

    Sums of a few numbers and maxima are control rounds.

    Attributes
    ----------
    rows : NeighbourRows or SharedRows
        Products, and where z is.
    network : Network
        Sums and maxima over all agents.
    """

    rows: NeighbourRows | SharedRows
    network: Network

    @classmethod
    def of(cls, context: Context, shared: SharedRows, *, is_linear: bool) -> Self:
        """Choose the form of the products, scale rows, and find ||A||."""
        problem, network = cast(Problem, context.problem), context.network
        rows, domain = fitting_rows(problem, network, shared), problem.domain
        is_linear = is_linear or all(isinstance(part.loss, Linear) for part in problem.parts())
        lacks = np.array([[not is_linear, not problem.loss.has_value, not domain.euclidean]], dtype=np.float64)
        lacks = network.agree(np.tile(lacks, (len(network.agents), 1)), "max")
        squares = rows.row_squares()
        weights = np.where(squares > 0, squares, 1.0)
        norm = rows.norm(weights)
        duals = copy.copy(rows.duals)
        duals.domain = _weighted(duals.domain, weights.reshape(-1))
        if not lacks[2]:
            norm /= _STRETCH
        is_between_neighbours, costs = isinstance(rows, NeighbourRows), network.costs
        return cls(
            problem=problem,
            domain=domain,
            duals=duals,
            unweighted=rows.duals,
            norm=norm or 1.0,
            is_linear=not lacks[0],
            has_values=not lacks[1],
            rounds=1.0 if is_between_neighbours else float(max(1, costs.sum_rounds)),
            knows_z=not is_between_neighbours,
            look_rounds=2.0 * costs.control_rounds("max") + costs.control_rounds("sum"),
            test_rounds=float(costs.control_rounds("sum")),
            rows=rows,
            network=network,
        )

    def start(self, context: Context) -> Point:
        x = context.x0
        dual = self.rows.start(x, None if context.s0 is None else self.rows.placed(context.s0))
        return Point(x, self.product(x), dual.s, dual.w)

    def product(self, x: Array) -> Array:
        return self.rows.product(x)

    def pull(self, z: Array) -> Array:
        return self.rows.pulled(z)

    def counted(self) -> Array:
        return self.rows.counted()

    def multipliers(self, z: Array) -> Array:
        return self.rows.multipliers(Dual(z, z)).astype(z.dtype, copy=False)[None]

    def total(self, numbers: Array) -> Array:
        # The agents here are summed up already.
        rows = np.zeros((len(self.network.agents), len(numbers)))
        rows[0] = _sendable(numbers)
        return _received(self.network.agree(rows, "sum"))

    def largest(self, numbers: Array) -> Array:
        rows = np.tile(_sendable(numbers), (len(self.network.agents), 1))
        return _received(self.network.agree(rows, "max"))


def _sendable(numbers: Array) -> Array:
    """Large numbers in place of infinite ones and NaN, which peers do not send."""
    return np.nan_to_num(numbers, nan=_INFINITE, posinf=_INFINITE, neginf=-_INFINITE)


def _received(numbers: Array) -> Array:
    return np.where(abs(numbers) < _INFINITE / 2, numbers, np.copysign(math.inf, numbers))


def _can_be_weighted(domain: Domain) -> bool:
    is_simple = isinstance(domain, Euclidean) and domain.separable and not isinstance(domain.penalty, GroupL1)
    return is_simple and domain.weights is None


def _can_weight_rows(duals: DualSpace) -> bool:
    return _can_be_weighted(duals.domain) and isinstance(duals.term, LinearTerm | Quadratic | Interval)


def _weighted(domain: Domain, weights: Array) -> Domain:
    return cast(Euclidean, domain.to(None)).weighted(weights).to(domain.device)
