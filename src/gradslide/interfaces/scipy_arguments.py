"""Problems by the conventions of `scipy.optimize`."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from gradslide._support.errors import InputError, kind_of, require
from gradslide._support.keywords import checked_arguments
from gradslide._support.types import Array, ArrayLike, Sparse, SparseInput
from gradslide.domains import Domain
from gradslide.domains.parameters import checked
from gradslide.interfaces.arrays import box, rows
from gradslide.losses import Custom, Linear, Loss
from gradslide.problems.saddle import LinearlyConstrained

if TYPE_CHECKING:
    from scipy.optimize import Bounds, LinearConstraint

# A pair (least, most) for all variables, or one for each; None for no bound.
BoundPairs = ArrayLike | Sequence[Any]


@checked_arguments
def from_linprog(
    c: ArrayLike,
    A_ub: ArrayLike | SparseInput | None = None,
    b_ub: ArrayLike | None = None,
    A_eq: ArrayLike | SparseInput | None = None,
    b_eq: ArrayLike | None = None,
    bounds: BoundPairs | None = (0, None),
) -> LinearlyConstrained:
    """Return the linear program that `scipy.optimize.linprog` solves for the same arguments.

        minimize  c'x   subject to  A_ub x <= b_ub,  A_eq x = b_eq,  bounds on x

    Parameters
    ----------
    c : array_like, shape (n,)
        Coefficients of the objective.
    A_ub, A_eq : array_like or sparse matrix, shapes (k_ub, n) and (k_eq, n), optional
        Rows of the inequalities and the equations; None or an empty array for none.
    b_ub, b_eq : array_like, shapes (k_ub,) and (k_eq,), optional
        Right-hand sides; an inequality with inf says nothing.
    bounds : pair or sequence of pairs, optional
        (least, most) for all variables or for each; None for no bound. By default, x >= 0.

    Returns
    -------
    LinearlyConstrained
        Its rows are those of A_ub, then those of A_eq.

    Raises
    ------
    InputError
        If shapes do not fit, or values are not finite where they must be.

    Notes
    -----
    SciPy's marginals are the negatives of our multipliers: ``ineqlin.marginals`` is
    ``-solution.dual[:k_ub]``, ``eqlin.marginals`` is ``-solution.dual[k_ub : k_ub + k_eq]``, and the
    marginals of the bounds are the parts of ``c + A.T @ solution.dual`` (positive ones at lower bounds).
    With bounds alone, the problem has one row that says nothing, and ``solution.dual`` is ``[0.]``.

    Examples
    --------
    >>> import gradslide as gs
    >>> problem = gs.from_linprog([-1.0, -2.0], A_ub=[[1.0, 1.0]], b_ub=[4.0], bounds=[(0, None), (0, 3)])
    >>> gs.solve(problem).mean.round(2).tolist()
    [1.0, 3.0]
    """
    loss = Linear(np.atleast_1d(checked("c", c)))
    n = loss.d
    require(loss.m == 1, "c must have shape (n,)", f"shape {np.shape(c)}", "flatten it")
    matrices, ends = [], []
    for name, A, b in (("ub", A_ub, b_ub), ("eq", A_eq, b_eq)):
        A, b = (None if _is_empty(part) else part for part in (A, b))
        require((A is None) == (b is None), f"A_{name} and b_{name} go together", "one of them", "give both or none")
        matrix = sp.csr_array((0, n)) if A is None else _matrix(f"A_{name}", A, n)
        matrices.append(matrix)
        ends.append(_right_hand_side(f"b_{name}", np.empty(0) if b is None else b, matrix.shape[0]))
    most, exact = ends
    remedy = "give finite numbers, or leave out rows that cannot hold"
    require(bool(np.all(most > -np.inf)), "b_ub must be > -inf", b_ub, remedy)
    require(bool(np.all(np.isfinite(exact))), "b_eq must be finite", b_eq, remedy)
    A, lower, upper = rows(
        sp.vstack(matrices, format="csr"),
        np.concatenate([np.full(len(most), -np.inf), exact]),
        np.concatenate([most, exact]),
    )
    return LinearlyConstrained(loss, A, domain=_box_of_pairs(bounds, n, (0.0, np.inf)), lower=lower, upper=upper)


@checked_arguments
def from_scipy(
    loss: Loss | Callable[[Array], Any],
    constraints: "LinearConstraint | Sequence[LinearConstraint] | None" = None,
    bounds: "Bounds | Sequence[Any] | None" = None,
    *,
    jac: Callable[[Array], ArrayLike] | bool | None = None,
    hess: Callable[[Array], ArrayLike] | None = None,
) -> LinearlyConstrained:
    """Return the problem that `scipy.optimize.minimize` solves for the same arguments.

    Parameters
    ----------
    loss : Loss or callable
        A loss of one agent, or a smooth convex function f(x) -> float of flat arrays.
    constraints : scipy.optimize.LinearConstraint or sequence of them, optional
        Linear constraints ``lb <= A x <= ub``.
    bounds : scipy.optimize.Bounds or sequence of pairs, optional
        Bounds on x: a pair (least, most) for each variable, None for no bound. By default, none.
    jac : callable or True, optional
        The gradient x -> (n,) of a function; True if it returns its value and its gradient.
    hess : callable, optional
        The Hessian x -> (n, n) of a function. With it, methods of second order can be used.

    Returns
    -------
    LinearlyConstrained
        Its rows are those of the constraints, in their order.

    Raises
    ------
    InputError
        If a constraint is not linear, the gradient is missing, shapes do not fit, or bounds leave no room.

    Notes
    -----
    Multipliers are those of f(x) + <z, A x - b>: ``solution.dual`` is positive where an upper end is
    active and negative at lower ends. The optimum changes by -z times the change of the end. With bounds
    alone, the problem has one row that says nothing, and ``solution.dual`` is ``[0.]``. SciPy's
    ``keep_feasible`` changes nothing: on the way to the minimum, linear constraints may be broken.

    Examples
    --------
    >>> import gradslide as gs
    >>> from scipy.optimize import Bounds, LinearConstraint
    >>> budget = LinearConstraint([[1.0, 1.0]], 1.0, 1.0)
    >>> problem = gs.from_scipy(lambda x: x @ x + x[0], budget, Bounds(0.0), jac=lambda x: 2 * x + [1.0, 0.0])
    >>> gs.solve(problem).mean.round(2).tolist()
    [0.25, 0.75]
    """
    from scipy.optimize import Bounds, LinearConstraint

    constraints = () if constraints is None else constraints
    given: list[Any] = list(constraints) if isinstance(constraints, list | tuple) else [constraints]
    for each in given:
        remedy = "give scipy.optimize.LinearConstraint, or a list of them"
        require(isinstance(each, LinearConstraint), "constraints must be linear", kind_of(each), remedy)
    n = _dimension(loss, given, bounds)
    matrices = [sp.csr_array((0, n)), *(_matrix("A of a constraint", each.A, n) for each in given)]
    ends = [_ends(each, matrix.shape[0]) for each, matrix in zip(given, matrices[1:], strict=True)]
    A, lower, upper = rows(
        sp.vstack(matrices, format="csr"),
        np.concatenate([np.empty(0), *(lower for lower, _ in ends)]),
        np.concatenate([np.empty(0), *(upper for _, upper in ends)]),
    )
    if isinstance(bounds, Bounds):
        domain = box(_spread("lb of the bounds", bounds.lb, n), _spread("ub of the bounds", bounds.ub, n))
    else:
        domain = _box_of_pairs(bounds, n, (-np.inf, np.inf))
    return LinearlyConstrained(_as_loss(loss, n, jac, hess), A, domain=domain, lower=lower, upper=upper)


def _dimension(loss: Any, constraints: Sequence[Any], bounds: Any) -> int:
    """The number of variables, which a function does not say."""
    if isinstance(loss, Loss):
        require(loss.m == 1, "the loss must be one of one agent", f"{loss.m} agents", "use gs.LinearlyConstrained")
        return loss.d
    if constraints:
        return int(np.shape(constraints[0].A)[-1])
    # One pair, or Bounds of one entry, may stand for any number of variables.
    if hasattr(bounds, "lb"):
        n = max(np.size(bounds.lb), np.size(bounds.ub))
        known = n > 1
    else:
        pairs = np.array(() if bounds is None else bounds, dtype=object)
        n = len(pairs) if pairs.ndim else 0
        known = n > 0 and np.ndim(pairs[0]) > 0
    rule = "constraints or bounds must show the number of variables"
    require(known, rule, "neither of them", "give Bounds with an entry for each variable, infinite for no bound")
    return n


def _ends(constraint: Any, k: int) -> tuple[Array, Array]:
    """The two ends of the k rows of a constraint."""
    lower, upper = (_spread(f"{end} of a constraint", getattr(constraint, end), k) for end in ("lb", "ub"))
    possible = (lower <= upper) & (lower < np.inf) & (upper > -np.inf)
    if not possible.all():
        i = int(np.argmin(possible))
        got = f"lb={lower[i]:g} and ub={upper[i]:g} in row {i}"
        raise InputError("a constraint must have lb <= ub, lb < inf and ub > -inf", got, "correct them")
    return lower, upper


def _spread(name: str, values: Any, count: int) -> Array:
    """One number for each of `count` entries, from one for all or one for each."""
    numbers = np.atleast_1d(checked(name, values, infinite=True))
    rule = f"{name} must be a number or have {count} entries"
    require(numbers.shape in ((1,), (count,)), rule, f"shape {numbers.shape}", "give one number, or one for each")
    return np.broadcast_to(numbers, count).copy()


def _as_loss(loss: Any, n: int, jac: Any, hess: Any) -> Loss:
    if isinstance(loss, Loss):
        require(jac is None and hess is None, "jac and hess go with a function", "a loss", "leave them out")
        return loss
    require(callable(loss), "loss must be a gradslide loss or a function", kind_of(loss), "give f(x) and jac=")
    remedy = "give the gradient as a function, or True if the function returns its value and its gradient"
    require(callable(jac) or jac is True, "jac must be given", repr(jac), remedy)
    hessian = None if hess is None else [hess]
    if jac is True:
        return Custom(value_and_gradient=[loss], hessian=hessian, agents=1, dimension=n)
    return Custom(value=[loss], gradient=[jac], hessian=hessian, agents=1, dimension=n)


def _is_empty(part: Any) -> bool:
    """Whether there are no rows, or no right-hand sides."""
    if hasattr(part, "shape"):
        return tuple(part.shape[:1]) == (0,)
    return part is None or (isinstance(part, list | tuple) and not part)


def _matrix(name: str, A: Any, n: int) -> Sparse:
    """Rows as a sparse matrix with n columns."""
    values = A if sp.issparse(A) else np.atleast_2d(checked(name, A))
    fits = values.ndim == 2 and values.shape[1] == n
    require(fits, f"{name} must have {n} columns", f"shape {values.shape}", "one for each variable")
    return sp.csr_array(values, dtype=np.float64)


def _right_hand_side(name: str, b: Any, k: int) -> Array:
    values = checked(name, b, infinite=True)
    # SciPy takes a column, too.
    values = values.reshape(-1) if values.shape in ((), (k, 1)) else values
    require(values.shape == (k,), f"{name} must have {k} entries", f"shape {values.shape}", "one for each row")
    return values


def _box_of_pairs(bounds: Any, n: int, default: tuple[float, float]) -> Domain:
    """The box of (least, most) for all variables or for each; None means no bound."""
    given = np.array(() if bounds is None else bounds, dtype=object)
    if given.size == 0:
        return box(np.full(n, default[0]), np.full(n, default[1]))
    pairs = given[None] if given.shape == (2,) and not any(map(np.ndim, given)) else given
    rule, remedy = f"bounds must be a pair (least, most), or {n} of them", "write None for no bound"
    got = f"shape {pairs.shape}" if given.ndim else kind_of(bounds)
    require(pairs.shape in ((1, 2), (n, 2)), rule, got, remedy)
    pairs = np.broadcast_to(pairs, (n, 2))
    lower = checked("bounds", [-np.inf if end is None else end for end in pairs[:, 0]], infinite=True)
    upper = checked("bounds", [np.inf if end is None else end for end in pairs[:, 1]], infinite=True)
    return box(lower, upper)
