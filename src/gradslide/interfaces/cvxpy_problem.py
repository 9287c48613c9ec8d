"""Problems of CVXPY: affine constraints, and an objective that is quadratic, piecewise linear or smooth.

CVXPY itself turns what it can into a quadratic program, as it does for its own solvers. What is left
of the objective must be smooth, and keeps CVXPY's values and gradients.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from gradslide._support.errors import InputError, MissingPackageError, kind_of, require
from gradslide._support.keywords import checked_arguments
from gradslide._support.types import Array, Sparse
from gradslide.interfaces.arrays import box, quadratic_loss, rows
from gradslide.losses import Custom
from gradslide.problems.saddle import LinearlyConstrained
from gradslide.results.solution import Solution
from gradslide.results.status import ENDS, Status

if TYPE_CHECKING:
    import cvxpy as cp

# Atoms whose gradients are continuous where they are defined. Affine atoms are, too.
_SMOOTH = {
    *("entr", "exp", "huber", "inv_pos", "kl_div", "log", "log1p", "log_sum_exp", "logistic"),
    *("power", "Power", "PowerApprox", "quad_form", "QuadForm", "quad_over_lin", "rel_entr", "xexp"),
}
_STATUS = {
    Status.CONVERGED: "optimal",
    Status.STATIONARY: "optimal",
    Status.INFEASIBLE: "infeasible",
    Status.UNBOUNDED: "unbounded",
}


class CvxpyProblem(LinearlyConstrained):
    """A problem of CVXPY as a linearly constrained one, which `gs.from_cvxpy` returns.

    It minimizes f(x) = sign * (objective of the CVXPY problem - offset). x holds the variables, and
    more where CVXPY rewrites a part of the problem.

    Parameters
    ----------
    problem : cvxpy.Problem
        The problem, with values for all its parameters.

    Attributes
    ----------
    original : cvxpy.Problem
        The problem itself.
    offset : float
        The constant in the CVXPY problem's objective that f leaves out.
    sign : int
        -1 if CVXPY maximizes, else 1.
    """

    def __init__(self, problem: "cp.Problem") -> None:
        self.original = problem
        self.sign, program, smooth, implied = _canonicalized(problem)
        possible = bool(np.all(program.lower < np.inf) and np.all(program.upper > -np.inf))
        rule = "constraints must leave room: x >= inf, x <= -inf and x == inf do not"
        require(possible, rule, "one of them", "check the constants and parameters of the constraints")
        self._program, self.offset = program, self.sign * program.offset
        self._bounds, self._kept = _fold_bounds(program)
        loss = _custom(program, smooth) if smooth else quadratic_loss(program.P, program.q)
        domain = box(self._bounds.lower, self._bounds.upper, _inside(program, implied))
        A, lower, upper = rows(program.A[self._kept], program.lower[self._kept], program.upper[self._kept])
        super().__init__(loss, A, domain=domain, lower=lower, upper=upper)

    def assign(self, solution: Solution) -> float:
        """Write a solution into the CVXPY problem: values, dual values, status and optimal value.

        Parameters
        ----------
        solution : Solution
            What `gs.solve` returned for this problem.

        Returns
        -------
        float
            The value of the CVXPY problem's objective; infinite if there is no solution.

        Raises
        ------
        InputError
            If the run diverged or was interrupted, or solved another problem.
        """
        from cvxpy import settings
        from cvxpy.reductions.solution import Solution as CvxpySolution

        known = _STATUS.get(solution.status) or (settings.USER_LIMIT if solution.status in ENDS else None)
        if known is None:
            raise InputError("the solution must be an answer", solution.status.name, "solve the problem again")
        if known in settings.SOLUTION_PRESENT:
            require(
                solution.mean.shape == (self.d,) and solution.dual is not None,
                f"the solution must hold {self.d} values and multipliers",
                f"{solution.mean.size} values" + ", no multipliers" * (solution.dual is None),
                "give what gs.solve returned for this problem",
            )
            x = np.asarray(solution.mean, dtype=np.float64)
            found = self._program.read(x, self._all_multipliers(x, np.asarray(solution.dual, dtype=np.float64)))
            answer = CvxpySolution(known, None, found.values, found.duals, {})
        else:
            infinite = np.inf if known == "infeasible" else -np.inf
            answer = CvxpySolution(known, self.sign * infinite, {}, {}, {})
        self.original.unpack(answer)
        return float(self.original.value)

    def _all_multipliers(self, x: Array, z: Array) -> Array:
        """Multipliers of all rows of the program, from those that are constraints here and the bounds."""
        multipliers = np.zeros(len(self._program.lower))
        multipliers[self._kept] = z[: np.count_nonzero(self._kept)]
        slope = self.loss.gradient(self.placed(x[None]))[0] + self._program.A.T @ multipliers
        return multipliers + self._bounds.multipliers(slope, len(multipliers))


@checked_arguments
def from_cvxpy(problem: "cp.Problem") -> CvxpyProblem:
    """Turn a CVXPY problem with affine constraints into a linearly constrained one.

    Parameters
    ----------
    problem : cvxpy.Problem
        Constraints must be affine or piecewise linear. The objective is a sum of terms: quadratic or
        piecewise linear ones, which become a quadratic program; and smooth ones made of ``entr``,
        ``exp``, ``huber``, ``inv_pos``, ``kl_div``, ``log``, ``log1p``, ``log_sum_exp``, ``logistic``,
        ``power``, ``quad_over_lin``, ``rel_entr``, ``xexp`` and affine functions. Variables are real,
        parameters have values.

    Returns
    -------
    CvxpyProblem
        For `gs.solve`; its `assign` writes the solution into the variables and constraints.

    Raises
    ------
    InputError
        If the problem is not convex by CVXPY's rules, or has cones, integer variables, or terms that
        are neither smooth nor piecewise linear.
    MissingPackageError
        If CVXPY is not installed.

    Notes
    -----
    Bounds on single variables become a `Box`, all else rows of A. Where smooth terms are defined on a
    part of the space only, that part is added to the constraints. Parameters keep the values that they
    have now.

    Examples
    --------
    >>> import cvxpy as cp
    >>> import gradslide as gs
    >>> x = cp.Variable(2)
    >>> budget = cp.sum(x) == 1
    >>> problem = gs.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x) + x[0]), [budget, x >= 0]))
    >>> value = problem.assign(gs.solve(problem))
    >>> x.value.round(2).tolist(), round(value, 2), round(float(budget.dual_value), 2)
    ([0.25, 0.75], 0.88, -1.5)
    """
    return CvxpyProblem(problem)


class _Reading(NamedTuple):
    """An answer as CVXPY's variables and constraints have it, by their ids."""

    values: dict[int, Array]
    duals: dict[int, Array]


@dataclass(frozen=True)
class _Program:
    """minimize u'Pu/2 + q'u + offset subject to lower <= A u <= upper, by CVXPY.

    Attributes
    ----------
    stuffed : object
        CVXPY's parametrized program, which knows the places of variables and constraints.
    steps : sequence of pairs
        CVXPY's reductions before it, each with what it needs to be undone.
    """

    P: Sparse
    q: Array
    offset: float
    A: Sparse
    lower: Array
    upper: Array
    stuffed: Any
    steps: Sequence[tuple[Any, Any]]

    def read(self, u: Array, multipliers: Array) -> _Reading:
        """Return values of variables and dual values of constraints."""
        from cvxpy.reductions.solution import Solution as CvxpySolution

        duals, place = {}, 0
        for constraint in self.stuffed.constraints:
            part = multipliers[place : place + constraint.size]
            duals[constraint.id] = part.reshape(constraint.args[0].shape, order="F")
            place += constraint.size
        values = {
            id_: u[first : first + variable.size].reshape(variable.shape, order="F")
            for id_, first in self.stuffed.var_id_to_col.items()
            for variable in [self.stuffed.id_to_var[id_]]
        }
        solution = CvxpySolution("optimal", None, values, duals, {})
        for reduction, memory in reversed(self.steps):
            solution = reduction.invert(solution, memory)
        return _Reading(solution.primal_vars, solution.dual_vars)

    def rows_of(self, constraint: "cp.Constraint") -> Array:
        """Return the rows that state an inequality: those that its dual values come from."""
        duals = self.read(np.zeros(len(self.q)), 1.0 + np.arange(len(self.lower))).duals
        return np.ravel(duals[constraint.id]).astype(np.intp) - 1

    def are_stated(self) -> Array:
        """Return for each row whether a constraint states it: its dual values depend on the row."""
        numbers = 1.0 + np.arange(len(self.lower))
        stated = np.zeros(len(self.lower), dtype=bool)
        for dual in self.read(np.zeros(len(self.q)), numbers).duals.values():
            seen = np.abs(np.ravel(_dense(dual)))
            stated[seen[seen > 0].astype(np.intp) - 1] = True
        return stated

    def places(self, variable: "cp.Variable") -> tuple[Array, Array]:
        """Return the entries of a variable, by columns, that are not always 0, and their places in u."""
        own = self._own(variable)
        first = self.stuffed.var_id_to_col.get(own.id)
        if first is not None and own.shape == variable.shape:
            return np.arange(variable.size), np.arange(first, first + variable.size)
        # A symmetric, diagonal or sparse matrix, which has fewer entries in u: each shows where it comes from.
        numbers = 1.0 + np.arange(len(self.q))
        value = self.read(numbers, np.zeros(len(self.lower))).values[variable.id]
        seen = _dense(value).reshape(-1, order="F")
        return np.flatnonzero(seen), seen[seen != 0].astype(np.intp) - 1

    def _own(self, variable: "cp.Variable") -> "cp.Variable":
        """The variable that the program has in place of one with attributes."""
        from cvxpy.reductions.cvx_attr2constr import CvxAttr2Constr

        for reduction, memory in self.steps:
            if isinstance(reduction, CvxAttr2Constr) and memory:
                variable = memory[0].get(variable.id, variable)
        return variable


class _Canonical(NamedTuple):
    """The parts of a problem.

    Attributes
    ----------
    sign : int
        -1 for a maximum.
    program : _Program
        Constraints, and what is quadratic in the objective.
    smooth : list of cvxpy.Expression
        The other terms of the objective.
    implied : list of cvxpy.Constraint
        Where these terms are defined.
    """

    sign: int
    program: _Program
    smooth: "list[cp.Expression]"
    implied: "list[cp.Constraint]"


def _canonicalized(problem: Any) -> _Canonical:
    try:
        import cvxpy as cp
    except ModuleNotFoundError as error:
        remedy = "in a checkout of gradslide: pip install '.[cvxpy]'"
        raise MissingPackageError("gs.from_cvxpy needs CVXPY", "none installed", remedy) from error
    require(isinstance(problem, cp.Problem), "problem must be a cvxpy.Problem", kind_of(problem), "give the problem")
    _check(problem)
    sign = -1 if isinstance(problem.objective, cp.Maximize) else 1
    objective = sign * problem.objective.expr
    program = _quadratic_program([objective], problem.constraints, problem.variables())
    if program is not None:
        return _Canonical(sign, program, [], [])
    smooth, others = [], []
    for term in _terms(objective):
        if not term.variables() or _quadratic_program([term], []) is not None:
            others.append(term)
        elif (rough := _not_smooth(term)) is None:
            smooth.append(term)
        else:
            rule = "terms of the objective must be smooth, or quadratic or piecewise linear ones alone"
            remedy = "write it by smooth atoms (for example sum_squares for norm2), or as a sum of such terms"
            raise InputError(rule, f"{rough} in {term}", remedy)
    implied = [constraint for term in smooth for constraint in term.domain if constraint.variables()]
    program = _quadratic_program(others, [*problem.constraints, *implied], problem.variables())
    if program is None:
        raise _not_polyhedral(problem, implied)
    return _Canonical(sign, program, smooth, implied)


def _check(problem: "cp.Problem") -> None:
    """Refuse what is no convex problem in real variables."""
    variables = problem.variables()
    require(
        bool(variables), "the problem must have variables", "none", "evaluate its objective: problem.objective.value"
    )
    unset = [parameter.name() for parameter in problem.parameters() if parameter.value is None]
    require(not unset, "parameters must have values", f"none for {', '.join(unset)}", "assign parameter.value first")
    for variable in variables:
        kinds = [kind for kind in ("boolean", "integer") if variable.attributes[kind]]
        if kinds:
            remedy = "use a mixed integer solver, or drop the attribute to solve the relaxation"
            raise InputError("variables must be continuous", f"{kinds[0]} {variable.name()}", remedy)
        semidefinite = variable.attributes["PSD"] or variable.attributes["NSD"]
        require(not semidefinite, "variables must not be semidefinite", variable.name(), "use a conic solver")
        require(not variable.is_complex(), "variables must be real", variable.name(), "split real and imaginary parts")
    rule = "the problem must be convex by CVXPY's rules (problem.is_dcp())"
    require(
        problem.is_dcp(), rule, _first_not_convex(problem), "write it with convex atoms, see CVXPY's tutorial on DCP"
    )


def _first_not_convex(problem: "cp.Problem") -> str:
    """The part of the problem that breaks CVXPY's rules."""
    parts = [problem.objective, *problem.constraints]
    return next((str(part) for part in parts if not part.is_dcp()), "all parts convex, but not together")


def _quadratic_program(
    objective: "Sequence[cp.Expression]", constraints: "Sequence[cp.Constraint]", variables: "Sequence[Any]" = ()
) -> _Program | None:
    """The program with the sum of these terms and all these variables; None if it is not a quadratic one."""
    import cvxpy as cp
    from cvxpy import settings

    from gradslide.interfaces.cvxpy_solver import Polyhedral

    # Variables that occur in no term and no constraint have columns, too.
    missing = {v.id: v for v in variables}
    for part in (*objective, *constraints):
        for variable in part.variables():
            missing.pop(variable.id, None)
    terms = [*objective, *(0 * cp.sum(variable) for variable in missing.values())]
    problem = cp.Problem(cp.Minimize(reduce(add, terms, 0)), list(constraints))
    try:
        # Parameters as constants: without this, CVXPY warns where they do not enter linearly.
        data, chain, memory = problem.get_problem_data(Polyhedral(), ignore_dpp=True)
    except (cp.SolverError, cp.DCPError):
        return None
    A = sp.vstack([data[settings.A], data[settings.F]], format="csr")
    b, g = data[settings.B], data[settings.G]
    return _Program(
        P=sp.csr_array(data[settings.P]),
        q=np.asarray(data[settings.Q], dtype=np.float64),
        offset=float(memory[-1][settings.OFFSET]),
        A=sp.csr_array(A),
        lower=np.concatenate([b, np.full(len(g), -np.inf)]),
        upper=np.concatenate([b, g]),
        stuffed=data[settings.PARAM_PROB],
        # The last two are the stuffing of matrices, which `_Program.read` undoes, and the solver.
        steps=list(zip(chain.reductions[:-2], memory[:-2], strict=True)),
    )


def _terms(expression: "cp.Expression", factor: float = 1.0) -> "Iterator[cp.Expression]":
    """The terms of a sum."""
    kind, args = type(expression).__name__, expression.args
    if kind == "AddExpression" and all(arg.is_scalar() for arg in args):
        for arg in args:
            yield from _terms(arg, factor)
    elif kind == "NegExpression":
        yield from _terms(args[0], -factor)
    elif kind in ("MulExpression", "multiply") and args[0].is_constant() and args[1].is_scalar():
        yield from _terms(args[1], factor * _dense(args[0].value).item())
    elif kind == "DivExpression" and args[1].is_constant() and args[0].is_scalar():
        yield from _terms(args[0], factor / _dense(args[1].value).item())
    else:
        yield expression if factor == 1 else factor * expression


def _not_smooth(expression: "cp.Expression") -> str | None:
    """The name of an atom that may have kinks; None if there is none."""
    from cvxpy.atoms.affine.affine_atom import AffAtom

    if expression.is_affine():
        return None
    kind = type(expression).__name__
    if kind not in _SMOOTH and not isinstance(expression, AffAtom):
        return kind
    return next((rough for arg in expression.args if (rough := _not_smooth(arg)) is not None), None)


def _not_polyhedral(problem: "cp.Problem", implied: "Sequence[cp.Constraint]") -> InputError:
    """Why the constraints are not those of a quadratic program."""
    rule = "constraints must be affine or piecewise linear"
    for constraint in problem.constraints:
        if constraint.variables() and _quadratic_program([], [constraint]) is None:
            remedy = "state it by affine functions, or use a conic solver"
            return InputError(rule, str(constraint), remedy)
    for constraint in implied:
        if _quadratic_program([], [constraint]) is None:
            remedy = "restrict the objective to affine arguments of functions with a domain"
            return InputError("domains of the objective's terms must be polyhedral", str(constraint), remedy)
    return InputError(rule, "cones", "use a conic solver")


# ---- bounds


@dataclass(frozen=True)
class _Bounds:
    """Bounds on single variables, and the rows of the program that state them.

    Attributes
    ----------
    lower, upper : ndarray, shape (n,)
        The bounds.
    lower_row, upper_row : ndarray, shape (n,)
        The rows; -1 where there is no bound.
    lower_entry, upper_entry : ndarray, shape (n,)
        The entries of these rows.
    """

    lower: Array
    upper: Array
    lower_row: Array
    upper_row: Array
    lower_entry: Array
    upper_entry: Array

    def multipliers(self, slope: Array, k: int) -> Array:
        """Return multipliers of all k rows: those of bounds make up for the slope of the Lagrangian."""
        multipliers = np.zeros(k)
        sides = (
            (self.upper_row, self.upper_entry, np.maximum(-slope, 0)),
            (self.lower_row, self.lower_entry, np.minimum(-slope, 0)),
        )
        for row, entry, pull in sides:
            given = row >= 0
            np.add.at(multipliers, row[given], pull[given] / entry[given])
        return multipliers


def _fold_bounds(program: _Program) -> tuple[_Bounds, Array]:
    """Bounds from rows with one entry, and which rows are left."""
    n = len(program.q)
    A = program.A.copy()
    A.eliminate_zeros()
    counts = np.diff(A.indptr)
    single = np.flatnonzero(counts == 1)
    columns, entries = A.indices[A.indptr[single]], A.data[A.indptr[single]]
    ends = program.lower[single] / entries, program.upper[single] / entries
    low, high = np.where(entries > 0, ends[0], ends[1]), np.where(entries > 0, ends[1], ends[0])
    lower, upper = np.full(n, -np.inf), np.full(n, np.inf)
    np.maximum.at(lower, columns, low + 0.0)  # no -0
    np.minimum.at(upper, columns, high + 0.0)
    # Bounds that contradict each other stay rows, for the solver to find out.
    consistent = lower <= upper
    lower, upper = np.where(consistent, lower, -np.inf), np.where(consistent, upper, np.inf)
    folded = consistent[columns]
    row_of = np.full((2, n), -1)
    entry_of = np.ones((2, n))
    # Where several rows state a bound, the last one here has the multiplier: the first of the user's.
    order = np.lexsort((-single, program.are_stated()[single]))
    for side, (own, bound) in enumerate(((low, lower), (high, upper))):
        tight = order[(folded & np.isfinite(own) & (own == bound[columns]))[order]]
        row_of[side, columns[tight]] = single[tight]
        entry_of[side, columns[tight]] = entries[tight]
    kept = np.ones(A.shape[0], dtype=bool)
    kept[single[folded]] = False
    # Rows without entries say nothing, unless they cannot hold.
    kept[(counts == 0) & (program.lower <= 0) & (program.upper >= 0)] = False
    return _Bounds(lower, upper, row_of[0], row_of[1], entry_of[0], entry_of[1]), kept


# ---- smooth terms


def _inside(program: _Program, implied: "Sequence[cp.Constraint]") -> Array | float:
    """A feasible point inside of the domain of the objective, as far as possible from its ends.

    Only there are values and gradients finite. 0 if all points are inside, or there is no feasible one.
    """
    if not implied:
        return 0.0
    from scipy.optimize import linprog

    # Maximize the least distance t from the ends, up to 1.
    n = len(program.q)
    distance = np.zeros((len(program.lower), 1))
    for constraint in implied:
        distance[program.rows_of(constraint)] = 1.0
    A = sp.hstack([program.A, distance], format="csr")
    exact = program.lower == program.upper
    found = linprog(
        np.append(np.zeros(n), -1.0),
        A_ub=A[~exact],
        b_ub=program.upper[~exact],
        A_eq=A[exact],
        b_eq=program.upper[exact],
        bounds=[(None, None)] * n + [(0, 1)],
    )
    return np.asarray(found.x[:n]) if found.status == 0 else 0.0


class CvxpyLoss(Custom):
    """A quadratic function plus smooth terms with CVXPY's values and gradients."""

    # Value and gradient belong together, and need not be finite at a random point.
    is_user_supplied = False


def _custom(program: _Program, terms: "Sequence[cp.Expression]") -> CvxpyLoss:
    """The program's quadratic function plus smooth terms, with CVXPY's values and gradients."""
    smooth = _Smooth(program, terms)
    P, q = (program.P + program.P.T) / 2, program.q

    def value(u: Array) -> float:
        return float(u @ (0.5 * (P @ u) + q)) + smooth.value(u)

    def gradient(u: Array) -> Array:
        return P @ u + q + smooth.gradient(u)

    return CvxpyLoss(value=[value], gradient=[gradient], agents=1, dimension=len(q))


class _Smooth:
    """A sum of smooth expressions as a function of the program's variables.

    It has variables of its own, so that those of the user keep their values.
    """

    def __init__(self, program: _Program, terms: "Sequence[cp.Expression]") -> None:
        import cvxpy as cp

        total = reduce(add, terms)
        self._n = len(program.q)
        own: dict[int, Any] = {id(parameter): cp.Constant(parameter.value) for parameter in total.parameters()}
        self._variables = []
        for variable in total.variables():
            own[id(variable)] = copy = cp.Variable(variable.shape)
            self._variables.append((copy, *program.places(variable)))
        self._expression = total.tree_copy(own)

    def value(self, u: Array) -> float:
        self._place(u)
        with np.errstate(all="ignore"):
            value = float(_dense(self._expression.value).item())
        return np.inf if np.isnan(value) else value

    def gradient(self, u: Array) -> Array:
        self._place(u)
        with np.errstate(all="ignore"):
            slopes = self._expression.grad
        gradient = np.zeros(self._n)
        for variable, entries, places in self._variables:
            slope = slopes[variable]
            if slope is None:
                # Outside of the domain. Methods step back from points without a finite gradient.
                return np.full(self._n, np.nan)
            np.add.at(gradient, places, _dense(slope).reshape(-1)[entries])
        return gradient

    def _place(self, u: Array) -> None:
        for variable, entries, places in self._variables:
            values = np.zeros(variable.size)
            values[entries] = u[places]
            variable.save_value(values.reshape(variable.shape, order="F"))


def _dense(values: Any) -> Array:
    return values.toarray() if sp.issparse(values) else np.asarray(values)
