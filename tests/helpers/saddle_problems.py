"""Random saddle point and linearly constrained problems, seeded, each with its solution by another solver."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np

import gradslide as gs


class Smooth(NamedTuple):
    """A loss, and the same for cvxpy: a function of a list of rows of x."""

    loss: gs.losses.Loss
    value: Callable[[list[Any]], Any]


def quadratic(rng, m, d):
    roots, c = rng.normal(size=(m, d, d)), rng.normal(size=(m, d))

    def value(rows):
        return sum(0.5 * cp.sum_squares(roots[i].T @ x) + c[i] @ x for i, x in enumerate(rows))

    return Smooth(gs.losses.Quadratic(roots @ roots.swapaxes(1, 2), c), value)


def least_squares(rng, m, d):
    features, targets = rng.normal(size=(3 * m, d)), rng.normal(size=3 * m)

    def value(rows):
        return sum(
            0.5 * cp.sum_squares(features[3 * i : 3 * i + 3] @ x - targets[3 * i : 3 * i + 3])
            for i, x in enumerate(rows)
        )

    return Smooth(gs.losses.LeastSquares(features, targets, agents=m), value)


def logistic(rng, m, d):
    features, labels = rng.normal(size=(8 * m, d)), rng.choice([-1.0, 1.0], size=8 * m)
    signed = labels[:, None] * features

    def value(rows):
        return sum(cp.sum(cp.logistic(-signed[8 * i : 8 * i + 8] @ x)) for i, x in enumerate(rows))

    return Smooth(gs.losses.Logistic(features, labels, agents=m), value)


def linear(rng, m, d):
    c = rng.normal(size=(m, d))
    return Smooth(gs.losses.Linear(c), lambda rows: sum(c[i] @ x for i, x in enumerate(rows)))


LOSSES = [quadratic, least_squares, logistic, linear]


class Side(NamedTuple):
    """A set with its geometry and penalty, and the same for cvxpy, of one row.

    support: of the set. conjugate: of the penalty, as a function of a new variable, with its constraints.
    """

    domain: gs.domains.Domain
    holds: Callable[[Any], list[Any]]
    support: Callable[[Any], Any]
    penalty: Callable[[Any], Any] = lambda x: 0.0
    l1: float = 0.0
    l2: float = 0.0

    @property
    def entropy(self) -> bool:
        return isinstance(self.domain, gs.domains.EntropySimplex)

    def nu(self, x: Any, d: int) -> Any:
        """nu with the centre that it has by default."""
        return cp.sum(-cp.entr(x)) + np.log(d) * cp.sum(x) if self.entropy else cp.sum_squares(x) / 2


def box(rng, d):
    lo, hi = -rng.uniform(0.2, 1, size=d), rng.uniform(0.2, 1, size=d)
    return Side(
        gs.domains.Box(lo, hi),
        lambda x: [x >= lo, x <= hi],
        lambda v: cp.sum(cp.maximum(cp.multiply(lo, v), cp.multiply(hi, v))),
    )


def l2_ball(rng, d):
    radius, origin = rng.uniform(0.3, 1.5), 0.3 * rng.normal(size=d)
    return Side(
        gs.domains.L2Ball(radius, origin=origin),
        lambda x: [cp.norm(x - origin) <= radius],
        lambda v: radius * cp.norm(v) + origin @ v,
    )


def l1_ball(rng, d):
    radius = rng.uniform(0.3, 1.5)
    return Side(gs.domains.L1Ball(radius), lambda x: [cp.norm1(x) <= radius], lambda v: radius * cp.norm_inf(v))


def simplex(rng, d):
    total = rng.uniform(0.5, 2)
    return Side(gs.domains.Simplex(total), lambda x: [x >= 0, cp.sum(x) == total], lambda v: total * cp.max(v))


def entropy(rng, d):
    return Side(gs.domains.EntropySimplex(), lambda x: [x >= 0, cp.sum(x) == 1], lambda v: cp.max(v))


def group_ball(rng, d):
    groups, radii = [np.arange(0, d, 2), np.arange(1, d, 2)], rng.uniform(0.3, 1.2, size=2)
    pairs = list(zip(groups, radii, strict=True))
    return Side(
        gs.domains.GroupBall(radii, groups),
        lambda x: [cp.norm(x[g]) <= radius for g, radius in pairs],
        lambda v: sum(radius * cp.norm(v[g]) for g, radius in pairs),
    )


def l1_penalty_in_a_ball(rng, d):
    radius, weight = rng.uniform(0.5, 1.5), rng.uniform(0.1, 0.5)
    return Side(
        gs.domains.L2Ball(radius, penalty=gs.L1(weight)),
        lambda x: [cp.norm(x) <= radius],
        lambda v: radius * cp.norm(v),
        penalty=lambda x: weight * cp.norm1(x),
        l1=weight,
    )


def elastic_net_in_a_box(rng, d):
    l1, l2 = rng.uniform(0.1, 0.5), rng.uniform(0.1, 1)
    return Side(
        gs.domains.Box(-0.7, 0.9, penalty=gs.ElasticNet(l1, l2)),
        lambda x: [x >= -0.7, x <= 0.9],
        lambda v: cp.sum(cp.maximum(-0.7 * v, 0.9 * v)),
        penalty=lambda x: l1 * cp.norm1(x) + l2 / 2 * cp.sum_squares(x),
        l1=l1,
        l2=l2,
    )


SIDES = [box, l2_ball, l1_ball, simplex, entropy, group_ball, l1_penalty_in_a_ball, elastic_net_in_a_box]


@dataclass(frozen=True)
class SaddleCase:
    """A saddle point problem on compact sets; optimum: its value, once asked for."""

    problem: gs.Saddle
    label: str
    optimum: Callable[[], float]

    @property
    def L(self) -> float:
        return float(np.max(self.problem.smoothness()))

    @property
    def V(self) -> float:
        return float(np.sum(self.problem.domain.distance_bound(self.problem.start())))

    @property
    def U(self) -> float:
        return self.problem.duals.U_bound(self.problem.duals.start())

    @property
    def R(self) -> float:
        return gs.guarantees.saddle_R(V=self.V, U=self.U)


def saddle_case(seed: int, mu: float = 0.0) -> SaddleCase:
    """Case number `seed`: losses, sets and terms in turn, so that all are met."""
    rng = np.random.default_rng(seed)
    m, d, k = int(rng.integers(1, 4)), int(rng.integers(2, 6)), int(rng.integers(2, 7))
    smooth = LOSSES[seed % len(LOSSES)](rng, m, d)
    make_x, make_z = SIDES[(seed // 4 + seed) % len(SIDES)], SIDES[seed // 2 % len(SIDES)]
    x_side, z_side = make_x(rng, d), make_z(rng, k)
    A, b = rng.normal(size=(k, m * d)), rng.normal(size=k)
    kinds = ("zero", "linear") if z_side.entropy else ("zero", "linear", "quadratic")
    kind = kinds[seed % 5 % len(kinds)]
    weight = rng.uniform(0.2, 2) if kind == "quadratic" else 0.0
    h = {"zero": None, "linear": gs.terms.Linear(b), "quadratic": gs.terms.Quadratic(weight or 1.0, b)}[kind]
    problem = gs.Saddle(smooth.loss, A, h, x_side.domain, z_side.domain, mu)
    offset = 0 * b if kind == "zero" else b
    names = f"{smooth.loss!r}, X: {make_x.__name__}, Z: {make_z.__name__}, h: {kind}, mu={mu}, k={k}"

    def optimum() -> float:
        rows = [cp.Variable(d) for _ in range(m)]
        v = A @ cp.hstack(rows) - offset
        smallest, limits = _conjugate(z_side, v, k, weight)
        total = smooth.value(rows) + sum(x_side.penalty(x) for x in rows) + smallest
        if mu > 0:
            total = total + mu * sum(x_side.nu(x, d) for x in rows)
        return _solved(total, limits + [limit for x in rows for limit in x_side.holds(x)])

    return SaddleCase(problem, names, optimum)


def _conjugate(side: Side, v: Any, k: int, weight: float) -> tuple[Any, list[Any]]:
    """max over the set of <v, z> - weight/2 |z|^2 - penalty: the least of the parts' conjugates at v's parts."""
    limits, squares = [], weight + side.l2
    total = 0.0
    if side.l1 > 0:
        part = cp.Variable(k)
        limits.append(cp.norm_inf(part) <= side.l1)
        v = v - part
    if squares > 0:
        part = cp.Variable(k)
        total = cp.sum_squares(part) / (2 * squares)
        v = v - part
    return total + side.support(v), limits


def _solved(objective: Any, limits: list[Any]) -> float:
    program = cp.Problem(cp.Minimize(objective), limits)
    names = ("tol_gap_abs", "tol_gap_rel", "tol_feas")
    wanted = dict.fromkeys(names, 1e-9) | dict.fromkeys((f"reduced_{name}" for name in names), 1e-7)
    with warnings.catch_warnings():
        # What it calls inaccurate has the reduced tolerances.
        warnings.simplefilter("ignore")
        value = program.solve(solver=cp.CLARABEL, **wanted)
    assert program.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE), program.status
    return float(value)


@dataclass(frozen=True)
class ConstrainedCase:
    """min f(x), lower <= A x <= upper, with a solution x (m, d) and multipliers z (k,)."""

    problem: gs.LinearlyConstrained
    label: str
    x: np.ndarray
    z: np.ndarray
    optimum: float

    @property
    def L(self) -> float:
        return float(np.max(self.problem.smoothness()))

    @property
    def V(self) -> float:
        """V(x_0, x*); it may be taken too large, and where x_0 is nearly optimal R would be absurd otherwise."""
        return max(float(np.sum(self.problem.domain.V(self.problem.start(), self.x))), 1e-2)

    @property
    def z_star(self) -> float:
        return float(np.linalg.norm(self.z))

    @property
    def R(self) -> float:
        return gs.guarantees.theory_R(V=self.V, z_star=self.z_star)


def free(rng, d):
    return Side(gs.domains.Free(), lambda x: [], lambda v: 0.0)


def nonnegative(rng, d):
    return Side(gs.domains.NonNegative(), lambda x: [x >= 0], lambda v: 0.0)


SENSES = ("==", "<=", ">=", "interval")


def constrained_case(
    seed: int, mu: float = 0.0, *, make_loss=None, make_x=None, sense: str | None = None, m: int | None = None
) -> ConstrainedCase:
    """Case number `seed`: losses, sets and senses in turn. A point inside X is feasible."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 3)) if m is None else m
    d = int(rng.integers(3, 7))
    k = int(rng.integers(1, m * (d - 1)))
    make_loss = make_loss or LOSSES[seed % len(LOSSES)]
    make_x = make_x or [free, nonnegative, *SIDES][(seed // 4 + seed) % (2 + len(SIDES))]
    if make_loss in (linear, logistic, least_squares) and make_x in (free, nonnegative) and mu == 0:
        make_x = box
    sense = sense or SENSES[seed // 3 % len(SENSES)]
    smooth, x_side = make_loss(rng, m, d), make_x(rng, d)
    A = rng.normal(size=(k, m * d))
    domain = x_side.domain.bind(m, d, np.float64)
    b = A @ (0.5 * domain.start() + 0.5 * domain.project(rng.normal(size=(m, d)))).reshape(-1)
    lower, upper = _bounds(rng, b, sense)
    if sense == "interval":
        problem = gs.LinearlyConstrained(smooth.loss, A, domain=x_side.domain, mu=mu, lower=lower, upper=upper)
    else:
        problem = gs.LinearlyConstrained(smooth.loss, A, b, x_side.domain, mu, sense=sense)
    rows = [cp.Variable(d) for _ in range(m)]
    objective = smooth.value(rows) + sum(x_side.penalty(x) for x in rows)
    if mu > 0:
        objective = objective + mu * sum(x_side.nu(x, d) for x in rows)
    optimum, z = solved_with_bounds(
        objective, A @ cp.hstack(rows), lower, upper, [limit for x in rows for limit in x_side.holds(x)]
    )
    label = f"{smooth.loss!r}, X: {make_x.__name__}, {sense}, mu={mu}, k={k}"
    return ConstrainedCase(problem, label, np.stack([x.value for x in rows]), z, optimum)


def _bounds(rng, b, sense):
    """Bounds on A x that b keeps; intervals have ends that are infinite, equal or apart."""
    if sense != "interval":
        return np.where(sense == "<=", -np.inf, b), np.where(sense == ">=", np.inf, b)
    kinds = rng.integers(4, size=len(b))
    width = rng.uniform(0.01, 0.3, size=len(b))
    lower = np.where(kinds == 0, -np.inf, np.where(kinds == 1, b, b - width))
    return lower, np.where(kinds == 2, np.inf, np.where(kinds == 1, b, b + width))


def solved_with_bounds(objective: Any, v: Any, lower, upper, limits: list[Any]) -> tuple[float, np.ndarray]:
    """The minimum with lower <= v <= upper, and multipliers z of f + <z, v - bound>."""
    equal = np.flatnonzero(lower == upper)
    above = np.flatnonzero((upper < np.inf) & (lower < upper))
    below = np.flatnonzero((lower > -np.inf) & (lower < upper))
    parts = [
        (equal, 1.0, v[equal] == lower[equal]) if equal.size else None,
        (above, 1.0, v[above] <= upper[above]) if above.size else None,
        (below, -1.0, v[below] >= lower[below]) if below.size else None,
    ]
    given = [part for part in parts if part is not None]
    optimum = _solved(objective, [limit for _, _, limit in given] + limits)
    z = np.zeros(len(lower))
    for rows, sign, limit in given:
        z[rows] += sign * np.asarray(limit.dual_value)
    return optimum, z
