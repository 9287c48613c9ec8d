"""Problems by the conventions of `scipy.optimize`."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from gradslide._support.errors import kind_of, require
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
        Rows of the inequalities and the equations.
    b_ub, b_eq : array_like, shapes (k_ub,) and (k_eq,), optional
        Right-hand sides.
    bounds : pair or sequence of pairs, optional
        (least, most) for all variables or for each; None for no bound. By default, x >= 0.

    Returns
    -------
    LinearlyConstrained
        Its rows are those of A_ub, then those of A_eq.

    Raises
    ------
    InputError
        If shapes do not fit.

    Notes
    -----
    SciPy's marginals are the negatives of our multipliers: ``ineqlin.marginals`` is
    ``-solution.dual[:k_ub]``, ``eqlin.marginals`` is ``-solution.dual[k_ub:]``, and the marginals of the
    bounds are the parts of ``c + A.T @ solution.dual`` (positive ones at lower bounds).

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
        require((A is None) == (b is None), f"A_{name} and b_{name} go together", "one of them", "give both or none")
        matrix = sp.csr_array((0, n)) if A is None else _matrix(f"A_{name}", A, n)
        matrices.append(matrix)
        ends.append(_right_hand_side(f"b_{name}", np.empty(0) if b is None else b, matrix.shape[0]))
    most, exact = ends
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
        If a constraint is not linear, the gradient is missing, or shapes do not fit.

    Notes
    -----
    Multipliers are those of f(x) + <z, A x - b>: ``solution.dual`` is positive where an upper end is
    active and negative at lower ends. The optimum changes by -z times the change of the end.

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
    ends = [
        (np.broadcast_to(each.lb, matrix.shape[0]), np.broadcast_to(each.ub, matrix.shape[0]))
        for each, matrix in zip(given, matrices[1:], strict=True)
    ]
    A, lower, upper = rows(
        sp.vstack(matrices, format="csr"),
        np.concatenate([np.empty(0), *(lower for lower, _ in ends)]),
        np.concatenate([np.empty(0), *(upper for _, upper in ends)]),
    )
    if isinstance(bounds, Bounds):
        domain = box(*(np.broadcast_to(np.asarray(end, dtype=np.float64), n).copy() for end in (bounds.lb, bounds.ub)))
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
    n = max(np.size(bounds.lb), np.size(bounds.ub)) if hasattr(bounds, "lb") else len(bounds or ())
    rule = "constraints or bounds must show the number of variables"
    # Bounds of one entry may stand for any number.
    known = n > 1 or (n == 1 and not hasattr(bounds, "lb"))
    require(known, rule, "neither of them", "give Bounds with an entry for each variable, infinite for no bound")
    return n


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


def _matrix(name: str, A: Any, n: int) -> Sparse:
    """Rows as a sparse matrix with n columns."""
    matrix = sp.csr_array(A if sp.issparse(A) else np.atleast_2d(checked(name, A)), dtype=np.float64)
    require(matrix.shape[1] == n, f"{name} must have {n} columns", f"shape {matrix.shape}", "one for each variable")
    return matrix


def _right_hand_side(name: str, b: Any, k: int) -> Array:
    values = np.atleast_1d(checked(name, b, infinite=True))
    require(values.shape == (k,), f"{name} must have {k} entries", f"shape {values.shape}", "one for each row")
    return values


def _box_of_pairs(bounds: Any, n: int, default: tuple[float, float]) -> Domain:
    """The box of (least, most) for all variables or for each; None means no bound."""
    if bounds is None or len(bounds) == 0:
        return box(*(np.full(n, end) for end in default))
    rule, remedy = f"bounds must be a pair (least, most), or {n} of them", "write None for no bound"
    pairs = np.array([bounds] if np.ndim(bounds[0]) == 0 else bounds, dtype=object)
    require(pairs.shape in ((1, 2), (n, 2)), rule, f"shape {pairs.shape}", remedy)
    pairs = np.broadcast_to(pairs, (n, 2))
    lower = checked("bounds", [-np.inf if end is None else end for end in pairs[:, 0]], infinite=True)
    upper = checked("bounds", [np.inf if end is None else end for end in pairs[:, 1]], infinite=True)
    return box(lower, upper)
