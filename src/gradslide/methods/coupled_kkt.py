"""Quadratic programs of several agents whose variables are coupled by linear constraints.

    minimize  sum_i x_i'P_i x_i/2 + q_i'x_i   over x_i in X_i   subject to  lower <= sum_i A_i x_i <= upper

with polyhedral X_i. The interior point method runs on exact sums: every agent factors the KKT matrix
M_i of its own program, the sum of the A_i M_i^-1 A_i' goes up the tree, its root solves for the
multipliers of the coupling constraints, which go down. Each agent learns sums over all agents and
multipliers, nothing else of other agents. P_i, q_i, x_i and the rows of X_i stay where they are, but
each agent sees sums over the branch of the tree below it, which may be a single agent: its
A_i M_i^-1 A_i' and A_i x_i.

An iteration takes three sums and two maxima: the residuals at a point; the predictor, with the Schur
complement; how far it gets; the corrector; how far that gets. Solutions that are not accurate enough
take one more sum for each correction.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy import linalg

from gradslide._support.types import Array, Sparse
from gradslide.network.protocol import Network
from gradslide.problems.model import from_upper
from gradslide.problems.model import upper as upper_part
from gradslide.problems.polyhedral import Polyhedral, polyhedral_set
from gradslide.problems.problem import Problem
from gradslide.programs.direct import DirectKKT, dense_solver
from gradslide.programs.interior_point import KKTSystem, Measure, Outcome, Solved, interior_point, size_of
from gradslide.programs.presolve import Equilibrated, Reduced, scaled

# The residual at which iterations end: they cost rounds.
_SHARP = 1e-10
# What the last solution missed, relative to what it may miss, up to which the next one is not measured.
_TRUSTED = 0.1
# Corrections of a solution, each of which costs a sum.
_CORRECTIONS = 5
# Refinements of a solution with the Schur complement, at the root.
_REFINEMENTS = 1
# What rounding leaves of a sum, by its largest term.
_ROUNDING = 1e-15
# Added to the diagonal of the Schur complement, relative to its largest entry.
_REGULARIZATION = 1e-14


class AgentProgram(NamedTuple):
    """What one agent adds to a coupled program.

    Attributes
    ----------
    P : ndarray or sparse matrix, shape (n, n)
        Positive semidefinite.
    q : ndarray, shape (n,)
        Linear term.
    X : Polyhedral
        The set, the ridge and the penalty, see `polyhedral_set`.
    A : ndarray or sparse matrix, shape (k, n)
        Block of the coupling constraints.
    """

    P: "Array | Sparse"
    q: Array
    X: Polyhedral
    A: "Array | Sparse"


def agent_programs(problem: Problem) -> list[AgentProgram] | None:
    """Return the programs of the agents here; None if a loss is not quadratic or a set not polyhedral.

    Parameters
    ----------
    problem : Problem
        A coupled problem on the host.

    Returns
    -------
    list of AgentProgram or None
    """
    programs = []
    for loss, domain, block in problem.parts():
        quadratic, X = loss.quadratic_part(), polyhedral_set(domain, problem.mu)
        if quadratic is None or X is None:
            return None
        q = np.asarray(loss.gradient(np.zeros((1, loss.d), dtype=loss.dtype))[0], dtype=np.float64)
        programs.append(AgentProgram(quadratic[0], q, X, block))
    return programs


class CoupledResult(NamedTuple):
    """What `minimize_coupled` returns.

    Attributes
    ----------
    outcome : Outcome
        How the search ended, the same in all processes.
    x : list of ndarray, shape (n,)
        Of each agent here: the minimizer; the direction, if the program is unbounded.
    z : ndarray, shape (k,)
        The multipliers of the coupling constraints, positive at upper ends; the combination that
        proves it, if the program is infeasible.
    own : list of ndarray
        Of each agent here, multipliers of its own rows and bounds.
    residual : float
        The largest relative residual of the program.
    iterations : int
        Factorizations.
    """

    outcome: Outcome
    x: list[Array]
    z: Array
    own: list[Array]
    residual: float
    iterations: int


def minimize_coupled(network: Network, programs: Sequence[AgentProgram], lower: Array, upper: Array) -> CoupledResult:
    """Minimize the sum of the agents' objectives under coupling constraints. All processes must call it.

    Parameters
    ----------
    network : Network
        Sums over all agents.
    programs : sequence of AgentProgram
        One per agent here.
    lower, upper : ndarray, shape (k,)
        Bounds on the sum of the A_i x_i, the same in all processes.

    Returns
    -------
    CoupledResult
    """
    sums = _Sums(network)
    rows = np.flatnonzero(np.isfinite(lower) | np.isfinite(upper))
    reduced = [_reduced(program) for program in programs]
    coupling = [_widened(program)[rows] for program in programs]
    blocks = [A[:, each.moving] for A, each in zip(coupling, reduced, strict=True)]
    # Coupling rows have entries of at most 1 before the agents scale their variables, and after.
    sums.start_largest(_row_sizes(blocks))
    shift = sums.total(np.sum([A @ each.fixed for A, each in zip(coupling, reduced, strict=True)], axis=0))
    first = _inverses(sums.largest())
    blocks = [scaled(A, first, np.ones(A.shape[1])) for A in blocks]
    units = [Equilibrated.of(each.P, each.q, each.K, A) for each, A in zip(reduced, blocks, strict=True)]
    blocks = [scaled(A, np.ones(len(rows)), unit.columns) for A, unit in zip(blocks, units, strict=True)]
    sums.start_largest(np.append(_row_sizes(blocks), max(size_of(unit.q) for unit in units)))
    sizes, number = sums.total(np.sum([[unit.sizes.sum(), len(unit.sizes)] for unit in units], axis=0)).tolist()
    *row_sizes, q_size = sums.largest().tolist()
    second = _inverses(np.array(row_sizes))
    blocks = [scaled(A, second, np.ones(A.shape[1])) for A in blocks]
    units = [unit.with_cost(sizes / max(1.0, number), q_size) for unit in units]
    of_rows, cost = first * second, units[0].cost

    system = SchurKKT(sums, [DirectKKT(unit.P, unit.K) for unit in units], blocks)

    def joined(shared: Array, own: Sequence[Array]) -> Array:
        ends = [each / unit.of_constraints for each, unit in zip(own, units, strict=True)]
        return system.joined((shared[rows] - shift) * of_rows, ends)

    low, high = joined(lower, [each.lower for each in reduced]), joined(upper, [each.upper for each in reduced])
    found = interior_point(system, np.concatenate([unit.q for unit in units]), low, high, sharp=_SHARP)

    z_of_rows, *multipliers = system.split(found.multipliers)
    z = np.zeros(len(lower))
    z[rows] = z_of_rows * of_rows / cost
    restored = [
        each.restored(
            unit.columns * x, own / (cost * unit.of_constraints), found.outcome, A.T @ (z_of_rows * of_rows / cost)
        )
        for each, unit, x, own, A in zip(
            reduced, units, system.split_variables(found.x), multipliers, coupling, strict=True
        )
    ]
    return CoupledResult(
        found.outcome,
        [x[: program.X.n] for (x, _), program in zip(restored, programs, strict=True)],
        z,
        [own for _, own in restored],
        found.residual,
        found.iterations,
    )


class SchurKKT(KKTSystem):
    """Blocks of variables with rows of their own, and rows that are sums over all blocks.

    With M_i, the KKT matrix of block i, the multipliers y of the shared rows solve

        (sum_i A_i M_i^-1 A_i' + 1/D) y = sum_i A_i M_i^-1 a_i - b

    at the root of the tree.

    Parameters
    ----------
    sums : _Sums
        Over all processes.
    blocks : sequence of DirectKKT
        P_i and K_i of the blocks here.
    coupling : sequence of ndarray or sparse matrix, shape (k, n_i)
        Their A_i.
    """

    def __init__(self, sums: "_Sums", blocks: Sequence[DirectKKT], coupling: Sequence[Any]) -> None:
        self._sums, self._blocks, self._coupling = sums, blocks, coupling
        self.shared = coupling[0].shape[0]
        self._rows = np.cumsum([0, *(block.shape[0] for block in blocks)])
        self._columns = np.cumsum([0, *(block.shape[1] for block in blocks)])
        # Residuals of the last solution without corrections: here, and the largest of all as far as it is known.
        self._missed_here = self._known_missed = math.inf
        # Other rows do not concern a block.
        self._concerning = [np.flatnonzero(_row_sizes([A])) for A in coupling]

    def joined(self, shared: Array, own: Sequence[Array]) -> Array:
        """Return a vector of constraints from its shared part, and [K_i x_i, x_i] of each block."""
        rows = [each[: block.shape[0]] for each, block in zip(own, self._blocks, strict=True)]
        variables = [each[block.shape[0] :] for each, block in zip(own, self._blocks, strict=True)]
        return np.concatenate([shared, *rows, *variables])

    def split(self, v: Array) -> list[Array]:
        """Return the shared part of a vector of constraints, then [K_i x_i, x_i] of each block."""
        k, r = self.shared, self.shared + self._rows[-1]
        pairs = zip(self._split_rows(v[k:r]), self.split_variables(v[r:]), strict=True)
        return [v[:k], *(np.concatenate(pair) for pair in pairs)]

    def split_variables(self, x: Array) -> list[Array]:
        """Return the x_i of each block."""
        return np.split(x, self._columns[1:-1])

    def _split_rows(self, v: Array) -> list[Array]:
        return np.split(v, self._rows[1:-1])

    def hessian(self, x: Array) -> Array:
        parts = zip(self._blocks, self.split_variables(x), strict=True)
        return np.concatenate([block.hessian(part) for block, part in parts])

    def values(self, x: Array) -> Array:
        parts = zip(self._blocks, self.split_variables(x), strict=True)
        return self.joined(self._coupled(x), [block.values(part) for block, part in parts])

    def _coupled(self, x: Array) -> Array:
        """The sum of A_i x_i over the blocks here."""
        parts = zip(self._coupling, self.split_variables(x), strict=True)
        return np.sum([A @ part for A, part in parts], axis=0)

    def adjoint(self, multipliers: Array) -> Array:
        shared, *own = self.split(multipliers)
        parts = zip(self._blocks, self._coupling, own, strict=True)
        return np.concatenate([block.adjoint(each) + A.T @ shared for block, A, each in parts])

    def completed(self, v: Array, numbers: Sequence[float]) -> tuple[Array, list[float]]:
        shared = min(self.shared, len(v))
        found = self._sums.total(np.concatenate([v[:shared], numbers]))
        return np.concatenate([found[:shared], v[shared:]]), found[shared:].tolist()

    def start_largest(self, numbers: Sequence[float]) -> None:
        self._sums.start_largest(np.array(numbers))

    def largest(self) -> list[float]:
        return self._sums.largest().tolist()

    def largest_now(self, numbers: Sequence[float]) -> list[float]:
        *found, self._known_missed = self._sums.largest_now(np.append(numbers, self._missed_here)).tolist()
        return found

    def factor(self, weights: Array, is_equation: Array) -> None:
        k = self.shared
        self._inverses = np.where(is_equation[:k], 0.0, 1 / np.maximum(weights[:k], 1e-200))
        complement, self._is_singular, self._asymmetry = np.zeros((k, k)), False, 0.0
        # What the multipliers of the rows that concern a block take off its variables and multipliers.
        self._pulls: list[tuple[Array, Array]] = []
        own = zip(self.split(weights)[1:], self.split(is_equation)[1:], strict=True)
        parts = zip(self._blocks, self._coupling, self._concerning, own, strict=True)
        for block, A, rows, (of_block, equations) in parts:
            pulls = np.zeros((block.shape[1], len(rows))), np.zeros((block.shape[0], len(rows)))
            here = A[rows]
            try:
                block.factor(of_block, equations)
                pulls = block.solve_once(here.toarray().T if sp.issparse(here) else here.T, pulls[1])
                part = here @ pulls[0]
                complement[np.ix_(rows, rows)] += part
                self._asymmetry += float(np.max(np.sum(np.abs(part - part.T), axis=1), initial=0.0))
            except (RuntimeError, linalg.LinAlgError):
                # All processes learn it from the sum.
                complement[:], self._is_singular = np.nan, True
            self._pulls.append(pulls)
        self._largest_pull = max(float(np.max(np.sum(np.abs(of_x), axis=1), initial=0.0)) for of_x, _ in self._pulls)
        self._news: Array = upper_part(complement[None])[0]

    def solve(
        self, rights: Sequence[tuple[Array, Array]], measure: Measure, tolerances: Sequence[tuple[float, float]]
    ) -> list[Solved]:
        k, p = self.shared, len(rights)
        a, b = (np.column_stack(each) for each in zip(*rights, strict=True))
        right = _Columns(a, b[:k], b[k:])
        dx, y_own, pushed = self._solved_here(right.x, right.own)
        news = np.concatenate([self._news, self._change(measure)]) if len(self._news) else self._news
        numbers = self._measured(measure, _Columns(dx, np.zeros((k, p)), y_own))
        answer = self._sums.relay(
            np.concatenate([news, pushed.ravel(), numbers]), partial(self._first_at_root, b=right.shared), 2 * k * p + p
        )
        self._news = np.zeros(0)
        allowed = np.array(tolerances).T
        if not np.isfinite(answer).all():
            raise linalg.LinAlgError("a KKT matrix is singular")
        y, coupled, measured = self._cut(answer, p)
        found = self._pulled(_Columns(dx, np.zeros((k, p)), y_own), y)
        # Where a block is nearly singular, what it adds to the shared rows is the difference of large numbers, of which
        # the Schur complement holds one, but for its lower triangle.
        pull = self._asymmetry + _ROUNDING * self._largest_pull
        rounding = _ROUNDING * _column_sizes(dx) + pull * _column_sizes(y)
        missed = [*map(_column_sizes, self._missed(right, found)), rounding]
        self._missed_here = float(np.max(np.array(missed) / allowed[[0, 1, 1]]))
        if self._known_missed <= _TRUSTED:
            return self._solutions(found, coupled, measured)
        return self._corrected(right, found, allowed, measure)

    def _corrected(self, right: "_Columns", found: "_Columns", allowed: Array, measure: Measure) -> list[Solved]:
        """Measure what is missed over all processes, and correct the solutions as long as that helps."""
        p, least = allowed.shape[1], math.inf
        best: list[Solved] = []
        for _ in range(1 + _CORRECTIONS):
            left = self._missed(right, found)
            more_x, more_own, pushed = self._solved_here(*left)
            numbers = self._measured(measure, found)
            self._sums.start_largest(
                np.max([_column_sizes(each) / most for each, most in zip(left, allowed, strict=True)], axis=0)
            )
            answer = self._sums.relay(
                np.concatenate([pushed.ravel(), self._coupled(found.x).ravel(), numbers]),
                partial(self._correction_at_root, b=right.shared, y=found.shared),
                2 * self.shared * p + p,
            )
            dy, coupled, measured = self._cut(answer, p)
            missed = _column_sizes(self._left(right.shared, coupled, found.shared)) / allowed[1]
            before, now = least, float(np.max([self._sums.largest(), missed]))
            if not best:
                self._missed_here = self._known_missed = now
            if best and not now < before:
                break
            best, least = self._solutions(found, coupled, measured), now
            if now <= 1 or now > before / 2 or not np.isfinite(dy).all():
                break
            found = self._pulled(_Columns(found.x + more_x, found.shared, found.own + more_own), dy)
        return best

    def _solutions(self, found: "_Columns", coupled: Array, measured: Array) -> list[Solved]:
        """The columns apart, with sums over all processes in shared rows."""
        multipliers, solutions = found.multipliers, []
        for j, number in enumerate(measured.tolist()):
            values = self.values(found.x[:, j])
            values[: self.shared] = coupled[:, j]
            solutions.append(Solved(found.x[:, j], multipliers[:, j], values, number))
        return solutions

    def _measured(self, measure: Measure, found: "_Columns") -> list[float]:
        """The measure of what the blocks here have, for each column."""
        x, multipliers = found.x, found.multipliers
        return [measure.value(j, x[:, j], multipliers[:, j], self.values(x[:, j])) for j in range(x.shape[1])]

    def _change(self, measure: Measure) -> Array:
        """By how much the measure falls with each multiplier of the shared rows."""
        change = np.zeros(self.shared)
        own = self.split(np.concatenate([measure.of_rows, measure.of_variables]))[1:]
        for (of_x, of_own), rows, block, part in zip(self._pulls, self._concerning, self._blocks, own, strict=True):
            of_rows, of_variables = np.split(part, [block.shape[0]])
            change[rows] += of_x.T @ of_variables + of_own.T @ of_rows
        return change

    def _solved_here(self, a: Array, b: Array) -> tuple[Array, Array, Array]:
        """M_i^-1 (a_i, b_i) of each block for several right-hand sides, and the sum of A_i times its first part."""
        if self._is_singular:
            dx, y = np.full(a.shape, np.nan), np.full(b.shape, np.nan)
        else:
            parts = zip(self._blocks, self.split_variables(a), self._split_rows(b), strict=True)
            found = [block.solve_once(of_block, rows) for block, of_block, rows in parts]
            dx, y = (np.concatenate(each) for each in zip(*found, strict=True))
        return dx, y, self._coupled(dx)

    def _pulled(self, found: "_Columns", dy: Array) -> "_Columns":
        """Change the multipliers of the shared rows, and what follows from them."""
        x, own = found.x.copy(), found.own.copy()
        parts = zip(self._pulls, self._concerning, self.split_variables(x), self._split_rows(own), strict=True)
        for (of_x, of_own), rows, x_here, own_here in parts:
            x_here -= of_x @ dy[rows]
            own_here -= of_own @ dy[rows]
        return _Columns(x, found.shared + dy, own)

    def _missed(self, right: "_Columns", found: "_Columns") -> tuple[Array, Array]:
        """What is left of the right-hand sides of the blocks' variables and rows."""
        split = [(self.split_variables(each.x), self._split_rows(each.own)) for each in (right, found)]
        (a, b), (x, own) = split
        parts = zip(self._blocks, self._coupling, a, b, x, own, strict=True)
        left = [block.missed(of_a - A.T @ found.shared, of_b, of_x, of_y) for block, A, of_a, of_b, of_x, of_y in parts]
        left_a, left_b = (np.concatenate(each) for each in zip(*left, strict=True))
        return left_a, left_b

    def _left(self, b: Array, coupled: Array, y: Array) -> Array:
        """What is left of the right-hand sides of the shared rows."""
        return b - (coupled - self._inverses[:, None] * y)

    def _first_at_root(self, total: Array, b: Array) -> Array:
        """Solve with the Schur complement, which is factored if it came with the right-hand sides."""
        k, p = b.shape
        triangle = len(total) - k * p - p - k
        if triangle >= k:
            complement = from_upper(total[:triangle], k)
            self._at_root = _root_solver(complement + np.diag(self._inverses))
            self._complement, self._change_at_root = complement, total[triangle : triangle + k]
        pushed, numbers = total[-k * p - p : -p].reshape(k, p), total[-p:]
        right = pushed - b
        y = self._at_root(right)
        for _ in range(_REFINEMENTS):
            y = y + self._at_root(right - self._complement @ y - self._inverses[:, None] * y)
        return np.concatenate([y.ravel(), (pushed - self._complement @ y).ravel(), numbers - self._change_at_root @ y])

    def _correction_at_root(self, total: Array, b: Array, y: Array) -> Array:
        pushed, coupled, numbers = self._cut(total, b.shape[1])
        dy = self._at_root(pushed - self._left(b, coupled, y))
        return np.concatenate([dy.ravel(), coupled.ravel(), numbers])

    def _cut(self, numbers: Array, p: int) -> tuple[Array, Array, Array]:
        """Two arrays of p columns over the shared rows, and p numbers."""
        size = self.shared * p
        shape = self.shared, p
        return numbers[:size].reshape(shape), numbers[size : 2 * size].reshape(shape), numbers[2 * size :]


class _Columns(NamedTuple):
    """Vectors of variables, shared rows and own rows, side by side."""

    x: Array
    shared: Array
    own: Array

    @property
    def multipliers(self) -> Array:
        """Of all rows."""
        return np.concatenate([self.shared, self.own])


class _Sums:
    """Sums and maxima over all processes, of which maxima are piggybacked on sums."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def total(self, numbers: Array) -> Array:
        return self._network.total(numbers[None])

    def relay(self, numbers: Array, solve: Callable[[Array], Array], size: int) -> Array:
        return self._network.relay(numbers[None], solve, size)

    def start_largest(self, numbers: Array) -> None:
        self._network.start_reduce(numbers[None], "max")

    def largest(self) -> Array:
        # A sum takes twice the radius, a maximum no more than the diameter.
        (found,) = self._network.completed("max")
        return found

    def largest_now(self, numbers: Array) -> Array:
        return self._network.agree(numbers[None], "max")


def _root_solver(matrix: Array) -> Callable[[Array], Array]:
    """Solve with a Schur complement, in units in which its diagonal is 1; not a number where it is singular."""
    diagonal = np.diag(matrix)
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    scaled_matrix = scale[:, None] * matrix * scale
    scaled_matrix[np.diag_indices(len(matrix))] += _REGULARIZATION
    if not np.isfinite(scaled_matrix).all():
        return lambda right: np.full(right.shape, np.nan)
    inner = dense_solver(scaled_matrix, is_definite=True)
    return lambda right: (scale * inner((scale * right.T).T).T).T


def _reduced(program: AgentProgram) -> Reduced:
    """The program of one agent with the variables that its set adds, without those that are fixed."""
    X = program.X
    more = len(X.diagonal) - X.n
    P: Any = program.P
    if sp.issparse(P) or more:
        P = sp.block_diag([P, sp.csr_array((more, more))], format="csr") + sp.diags_array(X.diagonal)
    else:
        P = P + np.diag(X.diagonal)
    q = X.linear.copy()
    q[: X.n] += program.q
    return Reduced.of(P, q, X.K, X.lower, X.upper)


def _widened(program: AgentProgram) -> Any:
    """A with columns for the variables that the set adds."""
    more = len(program.X.diagonal) - program.X.n
    if sp.issparse(program.A):
        return sp.hstack([program.A, sp.csr_array((program.A.shape[0], more))], format="csr")
    return np.hstack([program.A, np.zeros((len(program.A), more))])


def _row_sizes(blocks: Sequence[Any]) -> Array:
    """The largest entry of each row of several matrices side by side."""
    sizes = np.zeros(blocks[0].shape[0])
    for block in blocks:
        if 0 not in block.shape:
            largest = abs(block).max(axis=1)
            sizes = np.maximum(sizes, largest.toarray().ravel() if sp.issparse(largest) else largest)
    return sizes


def _column_sizes(*parts: Array) -> Array:
    """The largest entry of each column of several arrays below each other."""
    return np.max([np.max(np.abs(part), axis=0, initial=0.0) for part in parts], axis=0)


def _inverses(sizes: Array) -> Array:
    return 1 / np.where(sizes > 0, sizes, 1.0)
