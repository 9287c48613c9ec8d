"""The quadratic model of an objective: where it is smallest over the set, and by how much.

    minimize over u in X:   <g, u - x> + (u - x)' H (u - x) / 2 + m (mu nu(u) + r(u))

g and H are gradient and Hessian at x of the sum of the ft_i, or H is an approximation of low rank.
With the Hessian, the decrease of the model estimates how far the objective at x is above the optimum;
it is half the squared Newton decrement where X = R^d. It does not depend on the units of the
coordinates.
"""

import math
from dataclasses import dataclass
from typing import cast

import array_api_compat as compat
import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import is_numpy
from gradslide._support.types import Array
from gradslide.domains import Affine, Domain, Free, Halfspace, L2Ball, Polyhedron
from gradslide.domains.euclidean import Euclidean
from gradslide.domains.penalties import L1, ElasticNet, GroupL1, Penalty
from gradslide.programs.interior_point import Outcome
from gradslide.programs.low_rank import LowRank
from gradslide.programs.quadratic_program import minimize_qp

# Eigenvalues of the Hessian, scaled to a diagonal of ones, below d times this are rounding.
_SINGULAR = 1e-13
# Accelerated prox steps, and how many come between two tries to solve for the free coordinates.
_STEPS, _POLISH_EVERY = 1000, 20
# A prox step that is expected to gain less than this share of the decrease so far is the last.
_EXACT = 1e-8
# The minimum over other sets than intervals is taken as exact if it is missed by at most this share of the decrease.
_NEARLY = 1e-2
# A step longer than this goes along a direction without any curvature: the model has no minimum.
_ENDLESS = 1e60
# The least curvature of prox steps, relative to the slope.
_FLATTEST = 1e-40


Matrix = Array | LowRank


@dataclass(frozen=True)
class ModelMinimum:
    """The minimum of the model.

    Attributes
    ----------
    x : ndarray, shape (d,)
        Where it is.
    decrease : float
        The objective at the start less the model there, at least 0.
    missed : float
        How much larger the decrease may be, since iterations end. A bound where X is bounded, else
        an estimate.
    """

    x: Array
    decrease: float
    missed: float = 0.0


def can_model(domain: Domain) -> bool:
    """Return whether `minimize_model` can handle the set and its penalty: one for all agents, with Euclidean nu."""
    return domain.common and isinstance(domain, Euclidean)


def has_intervals(domain: Euclidean) -> bool:
    """Return whether the set is a product of intervals, and the penalty a sum over coordinates."""
    return domain.separable and not isinstance(domain.penalty, GroupL1)


def without_zeros(scales: Array) -> Array:
    """Return scales of which some are positive; the smallest of these stands for others, which say nothing."""
    return np.where(scales > 0, scales, scales[scales > 0].min())


def upper(matrices: Array) -> Array:
    """Return the entries on and above the diagonal of each matrix, row by row.

    Parameters
    ----------
    matrices : array, shape (k, d, d)
        On any device.

    Returns
    -------
    array, shape (k, d (d + 1)/2)
    """
    d = matrices.shape[1]
    if is_numpy(matrices):
        return matrices[:, *np.triu_indices(d)]
    rows, columns = array_namespace(matrices).triu_indices(d, d, device=compat.device(matrices))
    return matrices[:, rows, columns]


def from_upper(entries: Array, d: int) -> Array:
    """Return the symmetric matrix with these entries on and above its diagonal, row by row.

    Parameters
    ----------
    entries : ndarray, shape (d (d + 1)/2,)
        As `upper` gives them.
    d : int
        Number of rows.

    Returns
    -------
    ndarray, shape (d, d)
    """
    matrix = np.zeros((d, d))
    matrix[np.triu_indices(d)] = entries
    return matrix + np.triu(matrix, 1).T


def minimize_model(
    x: Array, gradient: Array, hessian: Matrix, domain: Domain, mu: float, m: int, damping: Array | float = 0.0
) -> ModelMinimum:
    """Minimize the quadratic model at x over the set.

    Parameters
    ----------
    x : ndarray, shape (d,)
        A point of X.
    gradient : ndarray, shape (d,)
        Of the sum of the ft_i.
    hessian : ndarray, shape (d, d), or LowRank
        Of the sum of the ft_i, or an approximation.
    domain : Domain
        The set and the penalty of all agents; see `can_model`.
    mu : float
        Strong convexity.
    m : int
        Number of agents.
    damping : ndarray, shape (d,), or float
        It is added to the Hessian's diagonal.

    Returns
    -------
    ModelMinimum
    """
    x = np.asarray(x, dtype=np.float64)
    one = cast(Euclidean, domain.take([0]))
    one = one if one.dtype == np.float64 else cast(Euclidean, one.bind(1, len(x), np.float64))
    weights = np.ones(len(x)) if one.weights is None else np.asarray(one.weights, dtype=np.float64)[0]
    if isinstance(hessian, LowRank):
        H: Matrix = hessian.plus(m * mu * weights + damping)
    else:
        H = np.array(hessian, dtype=np.float64)
        H[np.diag_indices(len(x))] += m * mu * weights + damping
    g = np.asarray(gradient, dtype=np.float64) + m * mu * np.asarray(one.grad_nu(x[None]), dtype=np.float64)[0]
    # A model that is nearly flat somewhere has its minimum very far away.
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(one, Free) and one.penalty is None:
            return _after(x, _newton_step(g, H), g, H)
        if isinstance(one, Affine | Halfspace):
            return _on_plane(x, g, H, one)
        if isinstance(one, Polyhedron):
            return _in_polyhedron(x, g, H, one)
        is_scaled = isinstance(H, LowRank) and np.ptp(H.diagonal) > 0
        if isinstance(one, L2Ball) and one.penalty is None and not is_scaled:
            return _in_ball(x, g, H, one)
        return _prox_steps(x, g, H, one, m)


def _newton_step(g: Array, H: Matrix) -> Array:
    """argmin of <g, s> + s'Hs/2, in coordinates with a diagonal of ones; a singular direction counts as nearly flat."""
    if not len(g):
        return g
    if isinstance(H, LowRank):
        return -H.solve(g)
    root = np.sqrt(np.maximum(np.diag(H), 0.0))
    scale = np.where(root > 0, root, 1.0)
    values, vectors = np.linalg.eigh(H / np.outer(scale, scale))
    flat = max(_SINGULAR * len(g) * float(values[-1]), 1e-100)
    along = vectors.T @ (g / scale)
    return cast(Array, -(vectors @ (along / np.maximum(values, flat))) / scale)


def _after(x: Array, step: Array, g: Array, H: Matrix) -> ModelMinimum:
    """The minimum at the end of a step; the decrease is infinite if there is none."""
    decrease = -float(g @ step + step @ (H @ step) / 2)
    is_endless = math.isnan(decrease) or not np.max(np.abs(step), initial=0.0) < _ENDLESS
    return ModelMinimum(x + step, math.inf if is_endless else max(0.0, decrease))


def _gain(g: Array, H: Matrix, reach: Array) -> float:
    """At least max of -<g, s> - s'Hs/2, where s is at most ten times `reach` in flat directions."""
    if isinstance(H, LowRank):
        return float(g @ H.solve(g)) / 2
    root = np.sqrt(np.maximum(np.diag(H), 0.0))
    scale = np.where(root > 0, root, 1.0)
    values, vectors = np.linalg.eigh(H / np.outer(scale, scale))
    along, far = abs(vectors.T @ (g / scale)), 10 * float(np.linalg.norm(scale * reach))
    return float(np.sum(np.minimum(along**2 / (2 * np.maximum(values, 1e-100)), along * far)))


def _on_plane(x: Array, g: Array, H: Matrix, domain: Affine | Halfspace) -> ModelMinimum:
    """Over {A u = b}, or {<a, u> <= b}, which binds or not."""
    if isinstance(domain, Halfspace):
        normals = np.asarray(domain.a, dtype=np.float64).reshape(1, -1)
        step = _newton_step(g, H)
        short = float(np.ravel(domain.b)[0]) - float(normals[0] @ x)
        if float(normals[0] @ step) <= short:
            return _after(x, step, g, H)
        first = normals[0] * (short / float(normals[0] @ normals[0]))
    else:
        normals = np.asarray(domain.A, dtype=np.float64)[0]
        normals = normals[normals.any(axis=1)]  # redundant rows are 0
        first, short = np.zeros(len(x)), 0.0
    if isinstance(H, LowRank):
        # The step without constraints, and what brings it back to the plane.
        step, pulls = -H.solve(g), H.solve(normals.T)
        multipliers = np.linalg.solve(normals @ pulls, short - normals @ step)
        return _after(x, step + pulls @ multipliers, g, H)
    # In coordinates in which H has a diagonal of ones: others would lose small curvatures beside large ones.
    root = np.sqrt(np.maximum(np.diag(H), 0.0))
    scale = np.where(root > 0, root, 1.0)
    scaled = normals / scale
    scaled /= np.linalg.norm(scaled, axis=1, keepdims=True)
    basis = np.linalg.qr(scaled.T, mode="complete")[0][:, len(normals) :]
    slope, curvature = basis.T @ ((g + H @ first) / scale), basis.T @ (H / np.outer(scale, scale)) @ basis
    return _after(x, first + basis @ _newton_step(slope, curvature) / scale, g, H)


def _in_ball(x: Array, g: Array, H: Matrix, domain: L2Ball) -> ModelMinimum:
    """Over {|u - origin| <= radius}: H + shift I with the shift that brings the minimum to the sphere."""
    origin = np.broadcast_to(np.asarray(domain.origin, dtype=np.float64), (1, len(x)))[0]
    radius = float(np.ravel(domain.radius)[0])
    # Around the origin the model is <b, v> + v'Hv/2.
    b = g - H @ (x - origin)
    if isinstance(H, LowRank):
        _, ratios, vectors = H.spectrum()
        rest = b - vectors @ (vectors.T @ b)
        rest -= vectors @ (vectors.T @ rest)  # what is left of rounding
        if (size := float(np.linalg.norm(rest))) > _SINGULAR * float(np.linalg.norm(b)):
            # Beyond the factors all directions have one curvature, and b one of these directions.
            vectors, ratios = np.column_stack([vectors, rest / size]), np.append(ratios, 1.0)
        values = H.diagonal[0] * ratios
    else:
        values, vectors = np.linalg.eigh(H)
    along = vectors.T @ b
    step = _newton_step(g, H)
    u = x + step
    if radius == 0:
        u, step = origin, origin - x
    elif not float(np.linalg.norm(u - origin)) <= radius:
        low, high = 0.0, float(np.linalg.norm(along)) / radius + 1e-300
        for _ in range(200):
            shift = (low + high) / 2 if low > 0 and high < 2 * low else math.sqrt(max(low, 1e-30 * high) * high)
            v = along / np.maximum(values + shift, 1e-300)
            low, high = (shift, high) if float(np.linalg.norm(v)) > radius else (low, shift)
        v = -vectors @ (along / np.maximum(values + high, 1e-300))
        u = origin + v * min(1.0, radius / max(float(np.linalg.norm(v)), 1e-300))
        step = u - x
    return _after(x, step, g, H)


def _in_polyhedron(x: Array, g: Array, H: Matrix, domain: Polyhedron) -> ModelMinimum:
    """Over {lower <= [A u, u] <= upper}: a quadratic program."""
    A, lower, upper = domain.of_agent(0)
    values = np.concatenate([A @ x, x])
    found = minimize_qp(H, g, A, lower - values, upper - values)
    if found.outcome is Outcome.UNBOUNDED:
        return ModelMinimum(x, math.inf)
    minimum = _after(x, found.x, g, H)
    return ModelMinimum(minimum.x, minimum.decrease, found.residual * minimum.decrease)


def _prox_steps(x: Array, g: Array, H: Matrix, domain: Euclidean, m: int) -> ModelMinimum:
    """Accelerated prox steps with restarts, in the metric of H's diagonal where the set is a product of intervals."""
    diagonal = H.diagonal if isinstance(H, LowRank) else np.diag(H).copy()
    is_scaled = has_intervals(domain)
    metric = np.ones(len(x))
    if is_scaled and np.any(diagonal > 0):
        metric = without_zeros(diagonal)
    scaled = domain.replaced(center=np.zeros((1, len(x))), weights=metric[None] if is_scaled else None)
    # Without any curvature steps are very long, but finite.
    L = max(_largest(H, metric), _FLATTEST * float(np.max(np.abs(g) / metric, initial=0.0)), 1e-300) * (1 + 1e-9)

    at_start = float(domain.r(x[None])[0])

    def rise(u: Array) -> float:
        """How much the penalty is larger than at x; of sums over coordinates to all digits."""
        if domain.penalty is None or isinstance(domain.penalty, GroupL1):
            return m * (float(domain.r(u[None])[0]) - at_start)
        l1, l2 = _weights(domain.penalty, len(x))
        return m * float(l1 @ (np.abs(u) - np.abs(x)) + l2 @ ((u - x) * (u + x)) / 2)

    def model(u: Array) -> float:
        s = u - x
        return float(g @ s + s @ (H @ s) / 2) + rise(u)

    def prox(u: Array) -> Array:
        slope = g + H @ (u - x)
        theta = (L * metric * u - slope) / m
        return np.asarray(scaled.prox(theta[None], L / m)[0], dtype=np.float64)

    def excess(u: Array) -> float:
        """How far the model at u is above its minimum: a bound if X is bounded, but no product of intervals."""
        if domain.bounded and not is_scaled:
            slope = (g + H @ (u - x)) / m
            return m * (float(slope @ u + domain.r(u[None])[0]) - float(domain.linear_minimum(slope[None])[0]))
        # After the prox step, (H - L metric) step is a subgradient of the model; strong convexity bounds what it gains.
        new = prox(u)
        left = H @ (new - u) - L * metric * (new - u)
        return max(0.0, model(u) - model(new)) + _gain(left, H, np.maximum(abs(new), abs(new - x)))

    tolerance = _EXACT if is_scaled else _NEARLY
    best, least = x, 0.0
    u, ahead, t = x, x, 1.0
    for number in range(_STEPS):
        new = prox(ahead)
        if float((metric * (ahead - new)) @ (new - u)) > 0:
            t, ahead = 1.0, u
            new = prox(u)
        if not np.isfinite(new).all():
            return ModelMinimum(best, -least, math.inf)
        t_next = (1 + np.sqrt(1 + 4 * t * t)) / 2
        ahead, moved = new + (t - 1) / t_next * (new - u), new - u
        u, t = new, t_next
        if number % _POLISH_EVERY == 0 and is_scaled:
            polished = _polished(u, x, g, H, domain, m)
            if polished is not None and (value := model(polished)) < least:
                best, least, u, ahead, t = polished, value, polished, polished, 1.0
        if (value := model(u)) < least:
            best, least = u, value
        is_short = L * float(metric @ moved**2) <= _EXACT * -least
        if not moved.any() or (is_short and excess(best) <= tolerance * -least):
            break
    polished = _polished(best, x, g, H, domain, m) if is_scaled else None
    if polished is not None and (value := model(polished)) < least:
        best, least = polished, value
    return ModelMinimum(best, -least, max(0.0, excess(best)))


def _largest(H: Matrix, metric: Array) -> float:
    """The largest eigenvalue in a diagonal metric, or a bound."""
    if isinstance(H, LowRank):
        return float(np.max(H.diagonal / metric) * np.max(H.spectrum()[1], initial=1.0))
    root = np.sqrt(metric)
    return float(np.linalg.eigvalsh(H / np.outer(root, root))[-1])


def _weights(penalty: Penalty, d: int) -> tuple[Array, Array]:
    """The weights of |u_j| and of u_j^2/2."""
    l1 = penalty.weight if isinstance(penalty, L1) else cast(ElasticNet, penalty).l1
    found = (np.broadcast_to(np.asarray(each, dtype=np.float64), (1, d))[0] for each in (l1, penalty.l2))
    return next(found), next(found)


def _polished(u: Array, x: Array, g: Array, H: Matrix, domain: Euclidean, m: int) -> Array | None:
    """The minimum over the coordinates that no bound or kink holds, if that leaves the others where they are."""
    lo = np.broadcast_to(np.asarray(getattr(domain, "lo", -np.inf), dtype=np.float64), (1, len(u)))[0]
    hi = np.broadcast_to(np.asarray(getattr(domain, "hi", np.inf), dtype=np.float64), (1, len(u)))[0]
    free = (u > lo) & (u < hi)
    slope = np.zeros(len(u))
    curvature = np.zeros(len(u))
    if domain.penalty is not None:
        weight, l2 = _weights(domain.penalty, len(u))
        free &= (u != 0) | (weight == 0)
        slope = m * weight * np.sign(u)
        curvature += m * l2
    if not free.any():
        return None
    held = np.where(free, 0.0, u - x)
    # With penalty: l2 |u|^2 / 2 has slope l2 u, around x.
    pull = g + H @ held + slope + curvature * x
    if isinstance(H, LowRank):
        inner: Matrix = H.within(free).plus(curvature[free])
    else:
        inner = H[np.ix_(free, free)] + np.diag(curvature[free])
    new = u.copy()
    new[free] = x[free] + _newton_step(pull[free], inner)
    new = np.clip(new, lo, hi)
    if domain.penalty is not None:
        new = np.where(free & (slope != 0) & (np.sign(new) != np.sign(u)), 0.0, new)
    return new
