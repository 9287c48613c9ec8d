"""Reference optima, computed with all data in one place.

They serve to measure errors and to compute the R of the theory. Methods never use them.
"""

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradslide._support.errors import InputError
from gradslide._support.keywords import checked_arguments
from gradslide._support.types import Array
from gradslide.domains import Box, EntropySimplex, Free, L2Ball, NonNegative, Simplex
from gradslide.graphs.graph import Graph
from gradslide.problems.model import ModelMinimum, can_model, minimize_model
from gradslide.problems.problem import Problem

# The number of agents up to which the shares of a multiplier are optimized, with dense matrices.
_DENSE = 2_000
# Columns up to which Newton's method is used, its steps, and the shares of the objective at which it stops, and that
# its model may still gain.
_NEWTON, _NEWTON_STEPS, _NEGLIGIBLE, _TRUSTED = 1000, 100, 1e-14, 1e-7
# Columns up to which a loss without Hessians gets them from differences of gradients.
_DIFFERENCES = 200
# The share of the objective by which it may be above a lower bound.
_PROVED = 1e-6
# Prox-gradient steps before Newton's method is tried.
_WARM_UP = 100
# Iterates of this size are diverging.
_ENDLESS = 1e10


@dataclass(frozen=True)
class Reference:
    """A reference optimum.

    Attributes
    ----------
    x : Array
        x*, shape (d,).
    objective : float
        f*, the sum of all f_i(x*).
    stationarity : float
        The length of a prox-gradient step at x*.
    error : float or None
        An estimate of objective - f*, which does not depend on the units of the columns: what the
        quadratic model at x still gains, or the distance from a lower bound. None if neither is
        known: X is unbounded, mu = 0, and there are more than 200 columns (1,000 for losses with
        Hessians). Badly scaled columns may then lead to a wrong optimum.
    """

    x: Array
    objective: float
    stationarity: float
    error: float | None = None

    def V(self, problem: Problem, x0: Array) -> float:
        """Return V(x_0, x*), summed over the agents.

        Parameters
        ----------
        problem : Problem
            The problem of this optimum.
        x0 : Array
            The starting points, shape (m, d).

        Returns
        -------
        float
            The distance.
        """
        return float(np.sum(problem.domain.V(x0, _stacked(problem, self.x)), dtype=np.float64))

    def multiplier(self, problem: Problem, graph: Graph, coupling: str) -> float:
        """Return ||z*|| of a multiplier of A x = 0.

        Parameters
        ----------
        problem : Problem
            The problem of this optimum.
        graph : Graph
            The network.
        coupling : {"incidence", "laplacian"}
            The matrix A.

        Returns
        -------
        float
            The norm of a valid multiplier, not always the smallest.

        Notes
        -----
        A^T z = -(g_i + n_i) with n_i in the normal cone of X (and the subdifferential of r) at x*.
        The n_i sum to -sum g_i. For a ball, a box or the orthant their shares are chosen to
        minimize ||z||, else each agent takes an equal share.
        """
        x = _stacked(problem, self.x)
        g = np.asarray(problem.loss.gradient(x) + problem.mu * problem.domain.grad_nu(x), dtype=np.float64)
        w = g.mean(axis=0) - g
        normals = _active_normals(problem, self.x) if graph.m <= _DENSE else []
        root = _inverse_root(graph, coupling) if normals else np.empty(0)
        for normal in normals:
            pull = -g @ normal
            if pull.sum() > 0:
                w += np.outer(_pull_left(pull, root) - w @ normal, normal)
        return _smallest_multiplier(graph, coupling, w)


@checked_arguments
def multiplier_at(problem: Problem, graph: Graph, coupling: str, x: Array) -> float:
    """Return the smallest ||z|| with A^T z = mean(g) - g_i, where g_i is the gradient of f_i at x.

    Parameters
    ----------
    problem : Problem
        The problem, with one domain for all agents.
    graph : Graph
        The network.
    coupling : {"incidence", "laplacian"}
        The matrix A.
    x : Array
        One point, shape (d,).

    Returns
    -------
    float
        The norm, for example for `gradslide.theory.guarantees.objective_at_mean`.
    """
    _require_common(problem)
    # mu nu and r are the same for all agents: their gradients cancel.
    g = np.asarray(problem.loss.gradient(_stacked(problem, x)), dtype=np.float64)
    return _smallest_multiplier(graph, coupling, g.mean(axis=0) - g)


@checked_arguments
def reference(problem: Problem, *, tolerance: float = 1e-9, iterations: int = 20_000) -> Reference:
    """Minimize sum_i f_i over the common set, by Newton's method if possible.

    That is, if nu is Euclidean and there are at most 1,000 columns (200 for losses without Hessians,
    which get them from differences of gradients); columns of any scale are harmless then. Else by
    L-BFGS (X = R^d, no penalty) and restarted FISTA, and a lower bound proves the accuracy if there
    is one.

    Parameters
    ----------
    problem : Problem
        The problem, with one domain for all agents. A minimizer must exist: logistic regression on
        separable data has none without a set or mu > 0.
    tolerance : float
        The length of the last prox-gradient step, relative to 1 + |x|.
    iterations : int
        The largest number of iterations.

    Returns
    -------
    Reference
        x*, f* and the stationarity.

    Raises
    ------
    InputError
        If the agents have different domains, or no optimum was found.

    Warns
    -----
    RuntimeWarning
        If nothing is known about the accuracy (`Reference.error` is None).

    Examples
    --------
    >>> import gradslide as gs
    >>> problem = gs.Problem(gs.losses.LeastSquares([[1.0], [1.0]], [1.0, 3.0], agents=2))
    >>> gs.reference.reference(problem).x
    array([2.])
    """
    domain = problem.domain
    _require_common(problem)
    if isinstance(domain, EntropySimplex) and problem.mu == 0:
        # The same set and objective; projections reach the boundary, entropy only approaches it.
        return reference(Problem(problem.loss, Simplex()), tolerance=tolerance, iterations=iterations)
    pooled = _Pooled(problem)
    x = pooled.start()
    columns = _NEWTON if problem.loss.has_hessian else _DIFFERENCES
    has_newton = problem.d <= columns and can_model(domain)
    if has_newton:
        x, _ = _fista(pooled, x, tolerance, min(_WARM_UP, iterations), momentum=True)
        found = _by_newton(pooled, x)
        if found is not None:
            return found
    if isinstance(domain, Free) and domain.penalty is None:
        from scipy.optimize import minimize

        options = {
            "maxiter": iterations,
            "maxfun": 2 * iterations,
            "ftol": 1e-16,
            "gtol": 1e-10,
            "maxcor": 30,
        }
        x = minimize(pooled.smooth_value_and_gradient, x, jac=True, method="L-BFGS-B", options=options).x
    x, stationarity = _fista(pooled, x, tolerance, iterations, momentum=domain.euclidean)
    far = float(np.linalg.norm(x))
    found = _by_newton(pooled, x) if has_newton else None
    if found is not None:
        return found
    if has_newton or not (stationarity <= 1e-4 * (1 + far) and far < _ENDLESS):
        raise InputError(
            f"a reference optimum must be found within {iterations:,} iterations",
            f"a point {far:.2g} away whose last step was {stationarity:.2g} long",
            "check that a minimizer exists, for example give a set or mu > 0",
        )
    objective = pooled.objective(x)
    gap = objective - pooled.lower_bound(x) if problem.has_lower_bound else None
    if gap is not None and gap > max(_PROVED, 1e2 * float(np.finfo(problem.dtype).eps)) * abs(objective):
        raise InputError(
            f"a reference optimum must be found within {iterations:,} iterations",
            f"an objective of {objective:.6g}, and a lower bound {gap:.2g} below it",
            "scale the columns, or raise iterations",
        )
    if gap is None:
        text = "the accuracy of this reference optimum is not known: X is unbounded, mu = 0, and Newton's method needs "
        warnings.warn(text + f"at most {columns} columns; got {problem.d}", RuntimeWarning, stacklevel=2)
    return Reference(x=x, objective=objective, stationarity=stationarity, error=gap)


def _require_common(problem: Problem) -> None:
    if not problem.domain.common:
        raise InputError(
            "a reference optimum needs one domain common to all agents",
            "a domain per agent",
            "leave the reference out",
        )


def _stacked(problem: Problem, x: Array) -> Array:
    """Return one point for all agents, shape (m, d)."""
    return np.broadcast_to(np.asarray(x, dtype=problem.dtype), (problem.m, problem.d))


class _Pooled:
    """sum_i f_i at one point for all agents, in double precision if the loss has it."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def start(self) -> Array:
        return np.array(self._problem.domain.start()[0], dtype=np.float64)

    @property
    def dtype(self) -> Any:
        return self._problem.dtype

    def rounded(self, x: Array) -> Array:
        """Return x rounded to the precision of the loss."""
        return np.asarray(np.asarray(x, dtype=self.dtype), dtype=np.float64)

    def objective(self, x: Array) -> float:
        return float(np.sum(self._problem.objective(self._all(x)), dtype=np.float64))

    def value(self, x: Array) -> float:
        """Return sum_i ft_i."""
        return float(np.sum(self._problem.loss.value(self._all(x)), dtype=np.float64))

    def value_and_gradient(self, x: Array) -> tuple[float, Array]:
        """Return value and gradient of sum_i ft_i."""
        values, gradients = self._problem.loss.value_and_gradient(self._all(x))
        return float(np.sum(values, dtype=np.float64)), np.asarray(np.sum(gradients, axis=0, dtype=np.float64))

    def smooth_value_and_gradient(self, x: Array) -> tuple[float, Array]:
        """Return value and gradient of sum_i ft_i + mu nu."""
        value, gradient = self.value_and_gradient(x)
        domain, mu = self._problem.domain, self._problem.mu
        at = self._all(x)
        return value + mu * float(np.sum(domain.nu(at))), gradient + mu * np.sum(domain.grad_nu(at), axis=0)

    def prox_step(self, x: Array, gradient: Array, L: float) -> Array:
        """Return argmin over X of <gradient, u> + m (mu nu(u) + r(u)) + L V(x, u)."""
        problem = self._problem
        share = L / problem.m
        theta = share * problem.domain.grad_nu(self._all(x)) - self._all(gradient / problem.m)
        return np.asarray(problem.domain.prox(theta, problem.mu + share)[0], dtype=np.float64)

    def model(self, x: Array, damping: float) -> ModelMinimum:
        """Return the minimum of the quadratic model at x."""
        problem = self._problem
        gradient, hessian = self.derivatives(x)
        shift = damping * np.diag(hessian)
        return minimize_model(x, gradient, hessian, problem.domain, problem.mu, problem.m, shift)

    def derivatives(self, x: Array) -> tuple[Array, Array]:
        """Return gradient and Hessian of sum_i ft_i; the latter by differences of gradients if the loss has none."""
        if self._problem.loss.has_hessian:
            _, gradients, hessians = self._problem.loss.derivatives(self._all(x))
            return np.asarray(np.sum(gradients, axis=0, dtype=np.float64)), np.sum(hessians, axis=0)
        found = np.empty((len(x), len(x)))
        for j, apart in enumerate(np.cbrt(float(np.finfo(self.dtype).eps)) * np.maximum(1.0, abs(x))):
            move = np.where(np.arange(len(x)) == j, apart, 0.0)
            found[j] = (self.value_and_gradient(x + move)[1] - self.value_and_gradient(x - move)[1]) / (2 * apart)
        return self.value_and_gradient(x)[1], (found + found.T) / 2

    def lower_bound(self, x: Array) -> float:
        """Return a lower bound on the optimum, from the gradient at x."""
        value, gradient = self.value_and_gradient(x)
        problem = self._problem
        least = float(problem.domain.linear_minimum(self._all(gradient / problem.m), problem.mu)[0])
        return value - float(gradient @ x) + problem.m * least

    def distance(self, x: Array, u: Array) -> float:
        return float(self._problem.domain.V(self._all(x), self._all(u))[0])

    def _all(self, x: Array) -> Array:
        return _stacked(self._problem, x)


def _fista(pooled: _Pooled, x: Array, tolerance: float, iterations: int, momentum: bool) -> tuple[Array, float]:
    """Accelerated proximal gradient with backtracking, restarted when momentum and step disagree.

    Without momentum every point stays in X, as entropy requires.
    """
    eps = float(np.finfo(pooled.dtype).eps)
    tolerance, slack = max(tolerance, 4 * eps), max(1e-13, 4 * eps)
    L, t, momentum_point = 1.0, 1.0, pooled.rounded(x)
    stationarity = math.inf
    for _ in range(iterations):
        value, gradient = pooled.value_and_gradient(momentum_point)
        L *= 0.9
        # Far more doublings than a smooth loss needs: after them only rounding is left.
        for _ in range(100):
            candidate = pooled.prox_step(momentum_point, gradient, L)
            moved = candidate - momentum_point
            expected = value + gradient @ moved + L * pooled.distance(momentum_point, candidate)
            if pooled.value(candidate) <= expected + slack * abs(value):
                break
            L *= 2
        else:
            return x, stationarity
        stationarity = float(np.linalg.norm(moved))
        if stationarity <= tolerance * (1 + float(np.linalg.norm(candidate))):
            return candidate, stationarity
        if not momentum or moved @ (candidate - x) < 0:
            t, momentum_point = 1.0, candidate
        else:
            t, t_before = (1 + math.sqrt(1 + 4 * t * t)) / 2, t
            momentum_point = pooled.rounded(candidate + (t_before - 1) / t * (candidate - x))
        x = candidate
    return x, stationarity


def _by_newton(pooled: "_Pooled", x: Array) -> Reference | None:
    """Return the optimum that Newton's method finds from x; None if it cannot be trusted."""
    first = pooled.objective(pooled.start())
    x, error = _newton(pooled, x)
    objective = pooled.objective(x)
    trusted = max(_TRUSTED, 1e2 * float(np.finfo(pooled.dtype).eps))
    if not (error <= trusted * max(abs(objective), abs(first)) and float(np.linalg.norm(x)) < _ENDLESS):
        return None
    gradient, hessian = pooled.derivatives(x)
    step = pooled.prox_step(x, gradient, float(np.linalg.eigvalsh(hessian)[-1]) or 1.0) - x
    return Reference(x=x, objective=objective, stationarity=float(np.linalg.norm(step)), error=error)


def _newton(pooled: "_Pooled", x: Array) -> tuple[Array, float]:
    """Proximal Newton steps with a line search; returns where they end, and what the model still gains there."""
    objective, damping, gain = pooled.objective(x), 0.0, math.inf
    for _ in range(_NEWTON_STEPS):
        found = pooled.model(x, damping)
        gain = found.decrease + found.missed
        if gain <= _NEGLIGIBLE * abs(objective):
            break
        step = 1.0
        while step > 1e-10:
            new = x + step * (found.x - x)
            value = pooled.objective(new)
            if value <= objective - 1e-4 * step * found.decrease:
                break
            step /= 4
        else:
            # Only rounding is left, or the model is useless here.
            if damping >= 1e6 or gain <= 1e-9 * abs(objective):
                break
            damping = max(10 * damping, 1e-3)
            continue
        damping = damping / 10 if damping > 1e-6 else 0.0
        x, objective = new, value
    if damping:
        found = pooled.model(x, 0.0)
        gain = found.decrease + found.missed
    return x, gain


def _smallest_multiplier(graph: Graph, coupling: str, w: Array) -> float:
    """Return the smallest ||z|| with A^T z = w: Lap s = w, and z = B^T s or s."""
    from scipy.sparse.linalg import splu

    if graph.m == 1:
        return 0.0
    # With one agent grounded the Laplacian is definite.
    s = np.zeros_like(w)
    s[1:] = splu(graph.laplacian[1:, 1:].tocsc()).solve(w[1:])
    s -= s.mean(axis=0)
    return math.sqrt(max(0.0, float(np.sum(s * w)))) if coupling == "incidence" else float(np.linalg.norm(s))


def _active_normals(problem: Problem, x: Array) -> list[Array]:
    """Return orthonormal outward normals of the faces of X that contain x."""
    domain = problem.domain
    close = 1e-6 * (1 + float(np.linalg.norm(x)))
    if isinstance(domain, L2Ball) and domain.penalty is None:
        offset = x - np.ravel(domain.origin)
        distance = float(np.linalg.norm(offset))
        return [offset / distance] if distance > 0 and distance >= float(np.ravel(domain.radius)[0]) - close else []
    if isinstance(domain, Box | NonNegative) and domain.penalty is None:
        axes = np.eye(problem.d)
        lo, hi = np.broadcast_to(domain.lo, (1, problem.d))[0], np.broadcast_to(domain.hi, (1, problem.d))[0]
        return [-axes[j] for j in np.flatnonzero(x <= lo + close)] + [axes[j] for j in np.flatnonzero(x >= hi - close)]
    return []


def _inverse_root(graph: Graph, coupling: str) -> Array:
    """Return a matrix whose product with w has the norm of the smallest multiplier of w."""
    values, vectors = np.linalg.eigh(graph.laplacian.toarray())
    return (vectors[:, 1:] / values[1:] ** (0.5 if coupling == "incidence" else 1.0)).T


def _pull_left(pull: Array, root: Array) -> Array:
    """Return pull - shares, with shares >= 0 of the same sum: the smallest |root (.)|."""
    from scipy.optimize import nnls

    weight = 1e3 * float(np.linalg.norm(root, 2))
    system = np.vstack([root, np.full(len(pull), weight)])
    shares, _ = nnls(system, np.append(root @ pull, weight * pull.sum()))
    left = pull - shares
    return left - left.mean()
