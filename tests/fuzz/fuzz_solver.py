"""A solver of its own for the fuzzer: sequential quadratic programs by Clarabel, values in extended precision.

Nothing here uses gradslide. An answer is a point of the set, so its value is above the optimum; a linear program at
the answer bounds from convexity how far above it can be.
"""

from dataclasses import dataclass, field, replace

import clarabel
import numpy as np
import scipy.sparse as sp

LONG = np.longdouble
# Steps, and the decrease, relative to the terms of the objective, that is not worth another.
_STEPS, _NOTHING = 120, 1e-17
# The linear program that bounds the error looks this many times as far as the answer is from 0.
_NEIGHBOURHOOD = 4.0


@dataclass
class Rows:
    """Sum over rows of w phi(a x, target); K scores per row for softmax."""

    kind: str
    features: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    parameter: float = 1.0
    classes: int = 1

    @property
    def d(self):
        return self.features.shape[1] * self.classes

    def _scores(self, x):
        if self.classes == 1:
            return self.features @ x
        return self.features @ x.reshape(self.classes, -1).T

    def parts(self, x):
        """phi of each row."""
        scores, y, width = self._scores(x), self.targets, LONG(self.parameter)
        if self.kind == "least squares":
            return (scores - y) ** 2 / 2
        if self.kind == "huber":
            size = abs(scores - y)
            return np.where(size <= width, size**2 / 2, width * (size - width / 2))
        if self.kind == "logistic":
            return np.logaddexp(LONG(0), -y * scores)
        if self.kind == "hinge":
            short = 1 - y * scores
            return np.where(short <= 0, LONG(0), np.where(short < width, short**2 / (2 * width), short - width / 2))
        top = scores.max(axis=1, keepdims=True)
        total = np.log(np.exp(scores - top).sum(axis=1)) + top[:, 0]
        return total - scores[np.arange(len(y)), y.astype(int)]

    def value(self, x):
        return (self.weights * self.parts(x)).sum()

    def size(self, x):
        """The size of the numbers behind the value: rounding is relative to it."""
        slopes = abs(self._slopes(x))
        reach = abs(self.features) @ abs(x.reshape(self.classes, -1).T)
        if self.classes == 1:
            reach = reach[:, 0] + abs(self.targets if self.kind in ("least squares", "huber") else 0)
        across = slopes * reach
        across = across if self.classes == 1 else across.sum(axis=1)
        return (self.weights * (abs(self.parts(x)) + across)).sum()

    def _slopes(self, x):
        scores, y, width = self._scores(x), self.targets, LONG(self.parameter)
        if self.kind == "least squares":
            return scores - y
        if self.kind == "huber":
            return np.clip(scores - y, -width, width)
        if self.kind == "logistic":
            return -y * np.exp(-np.logaddexp(LONG(0), y * scores))
        if self.kind == "hinge":
            return -y * np.clip(1 - y * scores, 0, width) / width
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        shares[np.arange(len(y)), y.astype(int)] -= 1
        return shares

    def gradient(self, x):
        slopes = self._slopes(x)
        if self.classes == 1:
            return self.features.T @ (self.weights * slopes)
        return ((self.weights[:, None] * slopes).T @ self.features).reshape(-1)

    def hessian(self, x):
        A, y, scores = self.features.astype(float), self.targets, self._scores(x).astype(float)
        width, w = self.parameter, self.weights.astype(float)
        if self.classes > 1:
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            shares /= shares.sum(axis=1, keepdims=True)
            inner = shares[:, :, None] * np.eye(self.classes) - shares[:, :, None] * shares[:, None, :]
            return np.einsum("n,nkl,ni,nj->kilj", w, inner, A, A).reshape(self.d, self.d)
        if self.kind == "least squares":
            curvature = np.ones_like(scores)
        elif self.kind == "huber":
            curvature = (abs(scores - y) <= width).astype(float)
        elif self.kind == "logistic":
            curvature = np.exp(-abs(scores)) / (1 + np.exp(-abs(scores))) ** 2
        else:
            short = 1 - y * scores
            curvature = ((short >= 0) & (short <= width)) / width
        return A.T @ ((w * curvature.astype(float))[:, None] * A)

    def diagonal(self):
        """A bound on the Hessian's diagonal."""
        most = {"logistic": 0.25, "softmax": 0.25, "hinge": 1 / self.parameter}.get(self.kind, 1.0)
        return np.tile(most * (self.weights @ self.features**2), self.classes).astype(float)


@dataclass
class Quadratic:
    """x'Qx/2 + c'x."""

    Q: np.ndarray
    c: np.ndarray

    @property
    def d(self):
        return len(self.c)

    def value(self, x):
        return x @ self.Q @ x / 2 + self.c @ x

    def size(self, x):
        return abs(x) @ abs(self.Q) @ abs(x) + abs(self.c) @ abs(x)

    def gradient(self, x):
        return self.Q @ x + self.c

    def hessian(self, x):
        return self.Q.astype(float)

    def diagonal(self):
        return np.diag(self.Q).astype(float)


@dataclass
class Domain:
    """A set and a penalty; what is None is not there. All are sets of one point for all agents."""

    lo: np.ndarray | None = None
    hi: np.ndarray | None = None
    balls: list = field(default_factory=list)  # (coordinates, origin, radius)
    l1: tuple | None = None  # (origin, radius)
    total: float | None = None
    A: np.ndarray | None = None  # A x = b
    b: np.ndarray | None = None
    normal: np.ndarray | None = None  # <normal, x> <= height
    height: float = 0.0
    zero: np.ndarray | None = None  # coordinates that are 0
    l1_weight: np.ndarray | None = None  # penalties, those of all agents together
    l2_weight: float = 0.0
    groups: list = field(default_factory=list)  # (coordinates, weight)

    def penalty(self, x):
        found = LONG(0)
        if self.l1_weight is not None:
            found += self.l1_weight @ abs(x)
        for group, weight in self.groups:
            found += weight * np.sqrt((x[group] ** 2).sum())
        return found

    def project(self, x):
        """A point of the set, the nearest one if x is nearly in it already."""
        x = np.array(x, dtype=LONG)
        if self.zero is not None:
            x[self.zero] = 0
        if self.normal is not None:
            normal = self.normal.astype(LONG)
            x -= max(LONG(0), normal @ x - self.height) / (normal @ normal) * normal
        if self.A is not None:
            for _ in range(3):
                miss = (self.A.astype(LONG) @ x - self.b).astype(float)
                x -= np.linalg.lstsq(self.A, miss, rcond=None)[0]
        if self.lo is not None:
            x = np.maximum(x, self.lo)
        if self.hi is not None:
            x = np.minimum(x, self.hi)
        if self.total is not None:
            for _ in range(5):
                x = np.maximum(x + (self.total - x.sum()) / len(x), 0)
            x *= self.total / x.sum() if x.sum() > 0 else 1
        for members, origin, radius in self.balls:
            away = x[members] - origin
            length = np.sqrt((away**2).sum())
            if length > radius:
                x[members] = origin + away * (radius / length)
        if self.l1 is not None:
            origin, radius = self.l1
            length = abs(x - origin).sum()
            if length > radius:
                x = origin + (x - origin) * (radius / length)
        return x

    def distance(self, x):
        """How far x is outside, measured along this projection."""
        return float(np.max(abs(self.project(x) - np.asarray(x, dtype=LONG)), initial=0.0))

    def width(self):
        """The width of the set, or a little more; inf where it has none."""
        found = np.inf
        if self.lo is not None and self.hi is not None:
            found = self.hi - self.lo
        if self.total is not None:
            found = np.minimum(found, self.total)
        if self.l1 is not None:
            found = np.minimum(found, 2 * self.l1[1])
        if self.balls:
            found = np.minimum(found, 2 * max(radius for _, _, radius in self.balls))
        return found

    @property
    def bounded(self):
        is_box = (
            self.lo is not None and self.hi is not None and np.isfinite(self.lo).all() and np.isfinite(self.hi).all()
        )
        return is_box or bool(self.balls) or self.l1 is not None or self.total is not None


@dataclass
class Convex:
    """Minimize loss + ridge |x - center|^2/2 + entropy sum x log(x/center) + penalty over the set."""

    loss: Rows | Quadratic
    domain: Domain
    ridge: float = 0.0
    center: np.ndarray | None = None
    entropy: float = 0.0

    @property
    def d(self):
        return self.loss.d

    def value(self, x):
        x = np.asarray(x, dtype=LONG)
        found = self.loss.value(x) + self.domain.penalty(x)
        if self.domain.l2_weight:
            found += LONG(self.domain.l2_weight) / 2 * (x @ x)
        if self.ridge:
            found += LONG(self.ridge) / 2 * ((x - self.center) ** 2).sum()
        if self.entropy:
            found += LONG(self.entropy) * (x * np.log(np.maximum(x, np.finfo(LONG).tiny) / self.center)).sum()
        return found

    def size(self, x):
        x = np.asarray(x, dtype=LONG)
        found = self.loss.size(x) + self.domain.penalty(x) + self.domain.l2_weight * (x @ x)
        if self.ridge:
            found += self.ridge * (x @ x + self.center @ self.center)
        if self.entropy:
            found += abs(self.entropy * (x * np.log(np.maximum(x, np.finfo(LONG).tiny) / self.center))).sum()
        return float(found)

    def derivatives(self, x):
        """Gradient and Hessian of what is smooth everywhere."""
        g, H = self.loss.gradient(x), self.loss.hessian(x)
        diagonal = np.full(self.d, self.ridge + self.domain.l2_weight)
        if self.domain.l2_weight:
            g = g + self.domain.l2_weight * x
        if self.ridge:
            g = g + self.ridge * (x - self.center)
        if self.entropy:
            kept = np.maximum(x, LONG(1e-300))
            g = g + self.entropy * (np.log(kept / self.center) + 1)
            diagonal = diagonal + (self.entropy / kept).astype(float)
        return g.astype(float), H + np.diag(diagonal)


@dataclass
class Answer:
    """A point of the set; the optimum lies between its value and that less `error` (inf: unknown)."""

    x: np.ndarray
    value: float
    error: float
    steps: int


class _Program:
    """min q't + t'Pt/2 subject to rows in cones, built row by row."""

    def __init__(self, P, q):
        self.P, self.q = P, list(q)
        self.d = len(q)
        self.zero, self.positive, self.cones = [], [], []

    def variable(self, cost):
        self.q.append(cost)
        return len(self.q) - 1

    def equal(self, coefficients, right):
        self.zero.append((coefficients, right))

    def at_most(self, coefficients, right):
        self.positive.append((coefficients, right))

    def cone(self, rows):
        """rows: (coefficients, constant) of s_0 >= |s_1...|, each s = constant + coefficients."""
        self.cones.append([({k: -v for k, v in c.items()}, constant) for c, constant in rows])

    def solve(self):
        n = len(self.q)
        rows = self.zero + self.positive + [row for cone in self.cones for row in cone]
        data = [(r, k, v) for r, (c, _) in enumerate(rows) for k, v in c.items()]
        index = np.array(data).reshape(-1, 3)
        A = sp.csc_matrix((index[:, 2], (index[:, 0].astype(int), index[:, 1].astype(int))), shape=(len(rows), n))
        P = np.zeros((n, n))
        P[: self.d, : self.d] = self.P
        cones = []
        if self.zero:
            cones.append(clarabel.ZeroConeT(len(self.zero)))
        if self.positive:
            cones.append(clarabel.NonnegativeConeT(len(self.positive)))
        cones += [clarabel.SecondOrderConeT(len(cone)) for cone in self.cones]
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
        right = np.array([b for _, b in rows])
        try:
            found = clarabel.DefaultSolver(
                sp.csc_matrix(np.triu(P)), np.array(self.q), A, right, cones, settings
            ).solve()
        except BaseException as error:  # a panic of the Rust code is no Exception
            if isinstance(error, KeyboardInterrupt):
                raise
            return None, "panic", -np.inf
        return np.array(found.x)[: self.d], str(found.status), float(found.obj_val_dual)


def _model(problem, x, g, H, c):
    """Minimize the model in t, for steps s = c t with |t| <= 1: return t, or None, and a bound on the gain."""
    domain, d = problem.domain, problem.d
    x = np.asarray(x, dtype=LONG)
    free = np.arange(d)
    c = np.array(c, dtype=float)
    if domain.zero is not None:
        c[domain.zero] = 0.0
    smooth_g, smooth_H = np.array(g), np.array(H)
    curved = []
    for group, weight in domain.groups:
        length = float(np.sqrt((x[group] ** 2).sum()))
        if length > 10 * np.linalg.norm(c[group]) and length > 0:
            unit = (x[group] / length).astype(float)
            smooth_g[group] += weight * unit
            smooth_H[np.ix_(group, group)] += weight / length * (np.eye(len(group)) - np.outer(unit, unit))
        else:
            curved.append((group, weight))
    P, q = c[:, None] * smooth_H * c, c * smooth_g
    kinks = []
    if domain.l1_weight is not None:
        for j in free:
            if abs(x[j]) >= c[j] and x[j] != 0:
                q[j] += domain.l1_weight[j] * c[j] * float(np.sign(x[j]))
            elif c[j] > 0 and domain.l1_weight[j] > 0:
                kinks.append(j)
    scale = max(float(np.abs(P).max(initial=0)), float(np.abs(q).max(initial=0)))
    for j in kinks:
        scale = max(scale, float(domain.l1_weight[j] * c[j]))
    for group, weight in curved:
        scale = max(scale, float(weight * c[group].max()))
    if not scale > 0 or not np.isfinite(scale):
        return np.zeros(d), 0.0
    program = _Program(P / scale, q / scale)
    lo, hi = np.full(d, -1.0), np.ones(d)
    movable = c > 0
    if domain.lo is not None:
        lo[movable] = np.maximum(lo, ((domain.lo - x) / np.where(movable, c, 1)).astype(float))[movable]
    if domain.hi is not None:
        hi[movable] = np.minimum(hi, ((domain.hi - x) / np.where(movable, c, 1)).astype(float))[movable]
    if problem.entropy:
        lo = np.maximum(lo, (-0.97 * x / np.where(movable, c, 1)).astype(float))
    for j in free:
        program.at_most({j: 1.0}, hi[j])
        program.at_most({j: -1.0}, -lo[j])
    for j in kinks:
        v = program.variable(float(domain.l1_weight[j] * c[j]) / scale)
        at = float(x[j] / c[j])
        program.at_most({j: 1.0, v: -1.0}, -at)
        program.at_most({j: -1.0, v: -1.0}, at)
    for group, weight in curved:
        unit = float(c[group].max())
        if unit > 0 and weight > 0:
            v = program.variable(float(weight) * unit / scale)
            program.cone([({v: 1.0}, 0.0)] + [({j: c[j] / unit}, float(x[j] / unit)) for j in group])
    for members, origin, radius in domain.balls:
        unit = float(c[members].max())
        if unit == 0:
            continue
        away = x[members] - origin
        length = float(np.sqrt((away**2).sum()))
        if length + np.linalg.norm(c[members]) <= radius:
            continue
        room = max(0.0, float(LONG(radius) ** 2 - (away**2).sum()))
        # |ct|^2 <= room - 2 <away, ct>, both sides divided by scale^2: |2w|^2 + (1 - r)^2 <= (1 + r)^2.
        size = np.sqrt(unit * max(radius, unit))
        linear = {j: float(-2 * a * c[j] / size**2) for j, a in zip(members, away, strict=True)}
        minus = {j: -v for j, v in linear.items()}
        right = room / size**2
        program.cone([(linear, 1 + right), (minus, 1 - right)] + [({j: 2 * c[j] / size}, 0.0) for j in members])
    if domain.l1 is not None:
        origin, radius = domain.l1
        away, unit = x - origin, float(c.max())
        row, room = {}, LONG(radius)
        for j in free:
            if c[j] == 0:
                room -= abs(away[j])
            elif abs(away[j]) >= c[j]:
                row[j] = c[j] / unit * float(np.sign(away[j]))
                room -= abs(away[j])
            else:
                v = program.variable(0.0)
                at = float(away[j] / c[j])
                program.at_most({j: 1.0, v: -1.0}, -at)
                program.at_most({j: -1.0, v: -1.0}, at)
                row[v] = c[j] / unit
        program.at_most(row, max(0.0, float(room / unit)))
    if domain.total is not None:
        unit = float(c.max())
        program.equal({j: c[j] / unit for j in free}, float((domain.total - x.sum()) / unit))
    if domain.normal is not None:
        row = domain.normal * c
        unit = float(np.abs(row).max())
        if unit > 0:
            room = float((domain.height - domain.normal.astype(LONG) @ x) / unit)
            program.at_most({j: row[j] / unit for j in free}, max(0.0, room))
    if domain.A is not None:
        for normal in domain.A:
            row = normal * c
            unit = float(np.abs(row).max())
            if unit > 0:
                program.equal({j: row[j] / unit for j in free}, 0.0)
    t, status, dual = program.solve()
    if t is None or not np.all(np.isfinite(t)) or status not in ("Solved", "AlmostSolved", "InsufficientProgress"):
        return None, np.inf
    # Kinks are part of the program as they are, not as differences from x.
    constant = sum(float(domain.l1_weight[j] * abs(x[j])) for j in kinks)
    constant += sum(float(weight * np.sqrt((x[group] ** 2).sum())) for group, weight in curved)
    return np.clip(t, lo, hi), constant - scale * dual


def _predicted(problem, x, g, H, c, t):
    """How much the model falls."""
    s = (c * t).astype(LONG)
    return float(-(g.astype(LONG) @ s + s @ (H @ s) / 2 + problem.domain.penalty(x + s) - problem.domain.penalty(x)))


def minimize(problem, first=None):
    """Return a point of the set that is nearly optimal, and how nearly.

    Parameters
    ----------
    problem : Convex
        What to minimize.
    first : array, optional
        A point near which to start, 0 by default.
    """
    if isinstance(problem.loss, Rows) and problem.loss.kind in ("huber", "hinge"):
        # Wide quadratic pieces first: from one narrow piece to the next it would be a long way.
        for factor in (512.0, 64.0, 8.0):
            wider = replace(problem, loss=replace(problem.loss, parameter=factor * problem.loss.parameter))
            first = _descend(wider, first, 25)[0]
    x, f, units, steps = _descend(problem, first, _STEPS)
    return Answer(x, float(f), _error(problem, x, units), steps)


def _descend(problem, first, most):
    """The point, its value, units of the coordinates, and the number of steps."""
    d, domain = problem.d, problem.domain
    diagonal = problem.loss.diagonal() + problem.ridge + domain.l2_weight
    units = np.where(diagonal > 0, 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1)), 0.0)
    units = np.where(units > 0, units, units.max() if units.any() else 1.0)
    if problem.entropy:
        units = np.minimum(units, 1.0)
        first = problem.center
    x = domain.project(np.zeros(d) if first is None else first)
    f, radius, polished, failures = problem.value(x), 1.0, 0, 0
    steps = 0
    for _ in range(most):
        steps += 1
        g, H = problem.derivatives(x)
        c = radius * units
        damping = 1e-12 * np.diag(1 / units**2)
        t, _ = _model(problem, x, g, H + damping, c)
        if t is None:
            failures += 1
            if failures > 8:
                break
            radius *= 0.2
            continue
        predicted = _predicted(problem, x, g, H, c, t)
        size = float(np.abs(t).max(initial=0))
        new = domain.project(x + (c * t).astype(LONG))
        f_new = problem.value(new)
        nothing = _NOTHING * problem.size(x)
        if predicted <= nothing and size < 0.9:
            # Below rounding: two more steps make the gradient exact.
            polished += 1
            if f_new <= f:
                x, f = new, f_new
            if polished > 2 or size == 0:
                break
            radius *= max(10 * size, 1e-6)
            continue
        actual = float(f - f_new)
        ratio = actual / predicted if predicted > 0 else -1.0
        if actual > 0:
            x, f = new, f_new
        if ratio < 0.25:
            radius *= 0.25 * max(size, 1e-3)
            if radius < 1e-14:
                break
        elif size > 0.9:
            radius *= 8 if ratio > 0.5 else 1
        elif size < 0.1:
            radius *= max(10 * size, 1e-4)
    return x, f, units, steps


def _error(problem, x, units):
    """A bound on f(x) less its minimum near x, by convexity: what a linear model gains there.

    With the optimum k times as far away as the neighbourhood reaches, the error is at most k times as large.
    """
    g, _ = problem.derivatives(x)
    c = np.minimum(_NEIGHBOURHOOD * (units + np.abs(x).astype(float)), problem.domain.width())
    flat = np.zeros((problem.d, problem.d))
    t, gain = _model(problem, x, g, flat, c)
    if t is None or not np.isfinite(gain):
        return np.inf
    return max(0.0, gain, _predicted(problem, x, g, flat, c, t))
