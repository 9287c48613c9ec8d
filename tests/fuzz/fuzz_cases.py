"""Seed -> one problem for the fuzzer: as gradslide takes it, and as the independent solver does."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from fuzz_solver import LONG, Convex, Domain, Quadratic, Rows

import gradslide as gs

LOSSES = ("least squares", "huber", "logistic", "hinge", "softmax", "quadratic", "linear", "custom")
DOMAINS = (
    "free",
    "free",
    "box",
    "nonnegative",
    "l2 ball",
    "l1 ball",
    "group ball",
    "simplex",
    "entropy",
    "halfspace",
    "affine",
    "l1 penalty",
    "elastic net",
    "group l1",
    "l1 in a box",
    "net in a ball",
    "per agent",
)
# Baselines that take any set and penalty that is the same for all agents.
BASELINES = ("NIDS", "EXTRA", "DGD", "GradientTracking", "CondatVu", "DualAveraging", "ADMM", "DLM", "OPAPC", "DCS")


@dataclass
class Case:
    """One problem with all that belongs to its solution.

    Attributes
    ----------
    kind : str
        "network", or for linear constraints "feasible", "infeasible", "unbounded".
    label : str
        What was drawn, in words.
    problem : Problem or LinearlyConstrained
        For gradslide.
    convex : Convex or None
        The same for the independent solver; None for linear constraints.
    program : dict
        Linear constraints: what the independent solver needs.
    options : dict
        Arguments of `solve`.
    tolerance : float
        The target.
    is_relative : bool
        Whether the target is relative to the objective.
    may_refuse : bool
        Whether an InputError is no finding: a baseline need not take every problem.
    """

    seed: int
    kind: str
    label: str
    problem: Any
    convex: Convex | None = None
    program: dict = field(default_factory=dict)
    graph: Any = None
    options: dict = field(default_factory=dict)
    tolerance: float = 0.0
    is_relative: bool = True
    may_refuse: bool = False
    is_bounded: bool = True
    method: str = "default"
    dtype: Any = np.float64


def exact(values, dtype):
    """Numbers that the problem's precision holds as they are."""
    return np.asarray(values, dtype=dtype).astype(np.float64)


def binary(values):
    """The nearest powers of 2."""
    return 2.0 ** np.round(np.log2(values))


def power(rng, low, high):
    return float(10.0 ** rng.uniform(low, high))


def features(rng, n, p, notes):
    """Rows with columns of many scales, duplicated, constant, shifted or zero."""
    A = rng.normal(size=(n, p))
    mode = rng.choice(["even", "mild", "wild", "small or large"], p=[0.5, 0.2, 0.15, 0.15])
    if rng.random() < 0.1:
        A += power(rng, 0, 3)
        notes.append("shifted")
    if mode == "mild":
        A *= 10.0 ** rng.uniform(-1, 1, size=p)
    elif mode == "wild":
        A *= 10.0 ** rng.uniform(-6, 6, size=p)
    elif mode == "small or large":
        A *= power(rng, -6, 6)
    if rng.random() < 0.2:
        A[:, rng.integers(p)] = 1.0
        notes.append("constant column")
    if p > 1 and rng.random() < 0.15:
        j, k = rng.choice(p, 2, replace=False)
        A[:, j] = A[:, k]
        notes.append("duplicated column")
    if rng.random() < 0.05:
        A[:, rng.integers(p)] = 0.0
        notes.append("zero column")
    notes.append(f"{mode} columns")
    return A


def make_rows(rng, kind, m, dtype, notes):
    """A loss with rows: gradslide's, the independent one, a typical size of each coordinate, and of the objective."""
    n = max(m, int(power(rng, np.log10(5), np.log10(200))))
    p = int(rng.integers(1, 5 if kind == "softmax" else 13))
    A = exact(features(rng, n, p, notes), dtype)
    scale = np.sqrt((A**2).mean(axis=0))
    units = 1 / np.where(scale > 0, scale, 1.0)
    truth = rng.normal(size=p) * units
    scores = A @ truth
    classes, parameter = 1, 1.0
    if kind in ("least squares", "huber", "custom"):
        size = power(rng, -6, 6) if rng.random() < 0.2 else 1.0
        noise = 0.0 if rng.random() < 0.05 else power(rng, -2, 1)
        y = exact(size * (scores + noise * rng.normal(size=n)), dtype)
        units = units * size
        parameter = float(exact(size * power(rng, -2, 1), dtype))
        notes.append(f"targets {size:.0e}, noise {noise:.0e}")
    elif kind == "softmax":
        classes = int(rng.integers(2, 4))
        y = rng.integers(classes, size=n)
    else:
        how = rng.choice(["noisy", "separable", "one class"], p=[0.8, 0.16, 0.04])
        y = np.where(scores + (how == "noisy") * rng.normal(size=n) > 0, 1, -1)
        y = np.abs(y) if how == "one class" else y
        parameter = float(exact(power(rng, -2, 0.3), dtype))
        notes.append(how)
    weights = np.ones(n)
    options = {}
    if kind != "custom" and rng.random() < 0.2:
        weights = exact(rng.uniform(0.1, 3.0, size=n) * power(rng, -2, 2), dtype)
        options["sample_weight"] = weights
        notes.append("weights")
    if kind != "custom" and dtype == np.float64 and rng.random() < 0.2:
        options["reduction"] = "mean"
        notes.append("mean")
    blocks = np.array_split(np.arange(n), m)
    if options.get("reduction") == "mean":
        weights = weights.copy()
        for block in blocks:
            weights[block] /= weights[block].sum()
    given = A.astype(dtype)
    if kind != "custom" and rng.random() < 0.12:
        given = sp.csr_matrix(given)
        notes.append("sparse")
    twin = "least squares" if kind == "custom" else kind
    rows = Rows(twin, A.astype(LONG), y.astype(LONG), weights.astype(LONG), parameter, classes)
    if kind == "least squares":
        loss = gs.losses.LeastSquares(given, y.astype(dtype), agents=m, **options)
    elif kind == "huber":
        loss = gs.losses.Huber(given, y.astype(dtype), delta=parameter, agents=m, **options)
    elif kind == "logistic":
        loss = gs.losses.Logistic(given, y, agents=m, **options)
    elif kind == "hinge":
        loss = gs.losses.SmoothedHinge(given, y, gamma=parameter, agents=m, **options)
    elif kind == "softmax":
        loss = gs.losses.Softmax(given, y, classes=classes, agents=m, **options)
    else:
        loss = custom(given, y.astype(dtype), blocks, dtype)
    return loss, rows, np.tile(units, classes)


def doubled(loss):
    """Twice a loss with rows, by a class that a user would derive from the built-in one."""
    kind = type(loss)

    class Doubled(kind):
        def value(self, x):
            return 2 * kind.value(self, x)

        def gradient(self, x):
            return 2 * kind.gradient(self, x)

        def compute_smoothness(self, norm):
            return 2 * kind.compute_smoothness(self, norm)

    loss.__class__ = Doubled
    return loss


def custom(A, y, blocks, dtype):
    """Least squares as a user would write it."""
    parts = [(A[block], y[block]) for block in blocks]

    def value(x):
        return np.array([0.5 * np.sum((a @ x[i] - b) ** 2) for i, (a, b) in enumerate(parts)])

    def gradient(x):
        return np.stack([a.T @ (a @ x[i] - b) for i, (a, b) in enumerate(parts)])

    smoothness = [np.linalg.norm(a.astype(float), 2) ** 2 for a, _ in parts]
    return gs.losses.Custom(
        value=value, gradient=gradient, smoothness=smoothness, agents=len(parts), dimension=A.shape[1], dtype=dtype
    )


def make_quadratic(rng, m, dtype, notes, linear=False):
    d = int(rng.integers(1, 13))
    # Powers of 2, and roots of few digits: Q is what it is in either precision, and positive semidefinite.
    units = binary(power(rng, -3, 3) if rng.random() < 0.2 else 1.0)
    units = units * (binary(10.0 ** rng.uniform(-4, 4, size=d)) if rng.random() < 0.2 else np.ones(d))
    size = float(binary(power(rng, -6, 6))) if rng.random() < 0.2 else 1.0
    c = exact(rng.normal(size=(m, d)) / units, dtype)
    if linear:
        c *= size
        notes.append(f"size {size:.0e}")
        return gs.losses.Linear(c.astype(dtype)), Quadratic(np.zeros((d, d), LONG), c.sum(axis=0).astype(LONG)), units
    rank = int(rng.integers(1, d + 1)) if rng.random() < 0.3 else d
    roots = np.round(8 * rng.normal(size=(m, d, rank))) / 8 / units[:, None]
    Q = roots @ roots.swapaxes(1, 2)
    if rank < d and rng.random() < 0.7:
        # A slope that the curvature can hold: the objective has a minimum.
        c = np.einsum("mij,mj->mi", Q, np.round(4 * rng.normal(size=(m, d))) / 4 * units)
    Q, c = exact(size * Q, dtype), exact(size * c, dtype)
    notes.append(f"rank {rank} of {d}, size {size:.0e}")
    twin = Quadratic(Q.astype(LONG).sum(axis=0), c.astype(LONG).sum(axis=0))
    return gs.losses.Quadratic(Q.astype(dtype), c.astype(dtype)), twin, units


def make_domain(rng, kind, m, d, units, slope, dtype, notes):
    """gradslide's domain and the independent one; slope: the typical slope of one agent's loss, in each coordinate."""
    typical = float(np.median(units))
    radius = float(exact(typical * power(rng, -2, 2), dtype))
    origin = exact(rng.normal(size=d) * typical if rng.random() < 0.3 else np.zeros(d), dtype)
    everything = np.arange(d)
    weight = exact(np.full(d, float(np.median(slope)) * power(rng, -3, 0.3)), dtype)
    if rng.random() < 0.3:
        weight = exact(slope * power(rng, -3, 0.3), dtype)
    cut = int(rng.integers(1, d)) if d > 1 else 1
    groups = [g for g in (everything[:cut], everything[cut:]) if len(g)]
    lo = exact(-units * power(rng, -2, 1), dtype) if rng.random() < 0.5 else exact(np.full(d, -radius), dtype)
    hi = exact(-lo * power(rng, -2, 1), dtype)
    l2 = float(exact(float(np.median(slope / units)) * power(rng, -4, 1), dtype))
    domains = gs.domains
    if kind == "free":
        return domains.Free(), Domain()
    if kind == "box":
        if rng.random() < 0.2:
            hi = np.full(d, np.inf)
        return domains.Box(lo, hi), Domain(lo=lo, hi=hi)
    if kind == "nonnegative":
        return domains.NonNegative(), Domain(lo=np.zeros(d))
    if kind == "l2 ball":
        return domains.L2Ball(radius, origin=origin), Domain(balls=[(everything, origin, radius)])
    if kind == "l1 ball":
        return domains.L1Ball(radius, origin=origin), Domain(l1=(origin, radius))
    if kind == "group ball":
        given = groups if rng.random() < 0.7 else groups[:1]
        zero = np.setdiff1d(everything, np.concatenate(given))
        balls = [(g, np.zeros(len(g)), radius) for g in given]
        return domains.GroupBall(radius, given), Domain(balls=balls, zero=zero if len(zero) else None)
    if kind == "simplex":
        total = float(exact(power(rng, -1, 1) if rng.random() < 0.7 else radius, dtype))
        return domains.Simplex(total), Domain(total=total, lo=np.zeros(d))
    if kind == "entropy":
        return domains.EntropySimplex(), Domain(total=1.0, lo=np.zeros(d))
    if kind == "halfspace":
        # Once bound the normal has length 1: in single precision only such sets stay what they are.
        if dtype == np.float32:
            normal, height = np.eye(d)[0], float(exact(rng.normal() * units[0], dtype))
        else:
            normal = rng.normal(size=d) / units
            height = float(rng.normal())
        return domains.Halfspace(normal, height), Domain(normal=normal, height=height)
    if kind == "affine":
        k = int(rng.integers(1, max(2, d // 2 + 1)))
        A = np.eye(d)[:k] if dtype == np.float32 else rng.normal(size=(k, d)) / units
        b = exact(A @ (rng.normal(size=d) * units), dtype)
        copies = 1 + k % 3
        notes.append(f"{copies - 1} redundant rows")
        return domains.Affine(np.vstack([A, *[A[:1]] * (copies - 1)]), np.append(b, [b[0]] * (copies - 1))), Domain(
            A=A, b=b
        )
    if kind == "l1 penalty":
        return domains.Free(penalty=gs.L1(weight)), Domain(l1_weight=m * weight.astype(LONG))
    if kind == "elastic net":
        net = gs.ElasticNet(weight, l2)
        return domains.Free(penalty=net), Domain(l1_weight=m * weight.astype(LONG), l2_weight=m * l2)
    if kind == "group l1":
        one = float(weight[0])
        return domains.Free(penalty=gs.GroupL1(one, groups)), Domain(groups=[(g, m * one) for g in groups])
    if kind == "l1 in a box":
        return domains.Box(lo, hi, penalty=gs.L1(weight)), Domain(lo=lo, hi=hi, l1_weight=m * weight.astype(LONG))
    if kind == "net in a ball":
        ball = [(everything, np.zeros(d), radius)]
        net = gs.ElasticNet(weight, l2)
        return domains.L2Ball(radius, penalty=net), Domain(
            balls=ball, l1_weight=m * weight.astype(LONG), l2_weight=m * l2
        )
    assert kind == "per agent"
    los = exact(lo * rng.uniform(0.5, 2.0, size=(m, 1)), dtype)
    his = exact(hi * rng.uniform(0.5, 2.0, size=(m, 1)), dtype)
    return domains.PerAgent([domains.Box(a, b) for a, b in zip(los, his, strict=True)]), Domain(
        lo=los.max(axis=0), hi=his.min(axis=0)
    )


def make_graph(rng, m, notes):
    if m == 1:
        return gs.Graph.from_edges(1, [])
    kind = rng.choice(["ring", "star", "path", "complete", "random"])
    if kind == "random":
        graph = gs.Graph.random(m, min(m - 1, max(2, m // 2)), seed=int(rng.integers(1000)))
    else:
        graph = getattr(gs.Graph, kind)(m)
    if rng.random() < 0.25:
        graph = gs.Graph(m, graph.edges, weights=10.0 ** rng.uniform(-2, 2, size=len(graph.edges)))
        notes.append("weighted edges")
    return graph


def make_method(rng, kind, notes):
    """The method, its name, and whether it may refuse a problem."""
    drawn = rng.random()
    if drawn < 0.3:
        return None, "default", False
    if drawn < 0.6:
        return gs.AutoPDS(), "AutoPDS", False
    if drawn < 0.7:
        options = [{"agreement": "early"}, {"restarts": False}, {"balance": "adaptive"}, {"balance": 4.0}]
        options = options[int(rng.integers(len(options)))]
        notes.append(f"AutoPDS {options}")
        try:
            return gs.AutoPDS(**options), "AutoPDS", False
        except gs.InputError:
            return gs.AutoPDS(), "AutoPDS", False
    if drawn < 0.84:
        coupling = str(rng.choice(["incidence", "laplacian"]))
        notes.append(coupling)
        return gs.PDS(coupling=coupling), "PDS", False
    if drawn < 0.88 and kind not in ("quadratic", "linear", "custom") and "derived class" not in notes:
        return gs.SPDS(samples=int(rng.integers(50, 500)), seed=int(rng.integers(100))), "SPDS", True
    name = str(rng.choice(BASELINES))
    return getattr(gs, name)(), name, True


def make_case(seed):
    """Return the problem of a seed.

    Parameters
    ----------
    seed : int
        Any nonnegative number.

    Returns
    -------
    Case
    """
    rng = np.random.default_rng([12, seed])
    if rng.random() < 0.12:
        return make_constrained(seed, rng)
    notes = []
    dtype = np.float32 if rng.random() < 0.2 else np.float64
    m = int(rng.integers(1, 9))
    kind = LOSSES[int(rng.integers(len(LOSSES)))]
    if kind in ("quadratic", "linear"):
        loss, twin, units = make_quadratic(rng, m, dtype, notes, linear=kind == "linear")
    else:
        loss, twin, units = make_rows(rng, kind, m, dtype, notes)
        if kind != "custom" and seed % 10 == 0:
            loss, twin = doubled(loss), replace(twin, weights=2 * twin.weights)
            notes.append("derived class")
    d = loss.d
    diagonal = twin.diagonal()
    slope = np.maximum(diagonal * units, np.abs(twin.gradient(np.zeros(d, LONG))).astype(float)) / m
    slope = np.where(slope > 0, slope, 1.0)
    where = DOMAINS[int(rng.integers(len(DOMAINS)))]
    if where == "group ball" and kind == "linear" and d == 1:
        where = "box"
    domain, set_ = make_domain(rng, where, m, d, units, slope, dtype, notes)
    mu = 0.0
    is_strong = set_.l2_weight > 0
    if rng.random() < (0.9 if kind == "linear" and not set_.bounded else 0.45):
        mu = float(exact(float(np.median(slope / units)) * power(rng, -6, 2), dtype))
    center = np.zeros(d)
    if where == "entropy":
        # In the precision of the data, which the problem has.
        center = np.exp(np.log(np.full(d, 1 / d, dtype=dtype)).astype(LONG))
    convex = Convex(
        twin,
        set_,
        ridge=0.0 if where == "entropy" else m * mu,
        center=center.astype(LONG),
        entropy=m * mu if where == "entropy" else 0.0,
    )
    problem = gs.Problem(loss, domain, mu)
    graph = make_graph(rng, m, notes)
    method, name, may_refuse = make_method(rng, kind, notes)
    if seed % 6 == 5 and loss.has_hessian and domain.euclidean:
        method, name, may_refuse = gs.Newton(), "Newton", where == "per agent"
    elif seed % 6 == 4 and loss.has_value and domain.euclidean:
        method, name, may_refuse = gs.LBFGS(memory=int(rng.choice([1, 5, 20]))), "LBFGS", where == "per agent"
    options = {"method": method}
    start = rng.random()
    if start < 0.4:
        far = power(rng, 3, 6) if start < 0.1 else 1.0
        shape = (m, d) if rng.random() < 0.4 else (d,)
        x0 = rng.normal(size=shape) * units * far
        x0 = np.array([set_.project(row) for row in np.atleast_2d(x0)]).astype(dtype).reshape(shape)
        if where != "entropy":
            options["x0"] = x0
            notes.append("far start" if start < 0.1 else "start")
    tolerance = power(rng, -6, -2)
    limit = int(rng.choice([20, 60, 150, 300]))
    is_endless = kind == "linear" and mu == 0 and not set_.bounded and name in ("default", "AutoPDS", "LBFGS")
    # Long enough to reach points so far away that steps are lost in rounding.
    stop = {"iterations": 20_000 if is_endless else limit}
    is_relative = True
    proves = name in ("default", "AutoPDS", "Newton", "LBFGS", "PDS", "CondatVu")
    has_gap = (set_.bounded or mu > 0 or is_strong) and where != "per agent"
    if not proves:
        stop["target"] = "objective"
    elif has_gap and rng.random() < 0.9:
        is_relative = rng.random() < 0.85
        stop["target"] = "gap"
    else:
        stop["target"] = "kkt"
    if rng.random() < 0.7:
        stop["disagreement"] = gs.Relative(1e-2)
    options["stop"] = stop
    label = f"{kind}, {where}, m={m}, d={d}, mu={mu:.1e}, {name}, {np.dtype(dtype).name}; {', '.join(notes)}"
    is_bounded = set_.bounded or mu > 0 or is_strong or kind not in ("linear", "quadratic")
    return Case(
        seed,
        "network",
        label,
        problem,
        convex,
        graph=graph,
        options=options,
        tolerance=tolerance,
        is_relative=is_relative,
        may_refuse=may_refuse,
        is_bounded=is_bounded,
        method=name,
        dtype=dtype,
    )


CONSTRAINED_METHODS = {
    "default": None,
    "LBFGS": gs.LBFGS(),
    "AutoPDS": gs.AutoPDS(),
    "PDS": gs.PDS(),
    "CondatVu": gs.CondatVu(),
}


def make_constrained(seed, rng):
    """A quadratic or linear program: feasible, infeasible or unbounded."""
    kind = str(rng.choice(["feasible", "infeasible", "unbounded"], p=[0.6, 0.2, 0.2]))
    d, k = int(rng.integers(2, 11)), int(rng.integers(1, 6))
    k = min(k, d - 1) if kind != "infeasible" else k
    A = rng.normal(size=(k, d))
    if rng.random() < 0.3:
        A *= 10.0 ** rng.uniform(-2, 2, size=(k, 1))
    inside = rng.normal(size=d)
    sense = str(rng.choice(["==", "<=", "range"]))
    rank = d if rng.random() < 0.6 else int(rng.integers(0, d))
    has_box = kind == "feasible" and (rank < d or rng.random() < 0.5)
    size = power(rng, -3, 3) if rng.random() < 0.3 else 1.0
    roots = rng.normal(size=(d, rank))
    Q, c = size * roots @ roots.T, size * rng.normal(size=d)
    mu = size * power(rng, -3, 0) if rng.random() < 0.3 else 0.0
    b = A @ inside
    lower = {"==": b, "<=": np.full(k, -np.inf), "range": b - rng.uniform(0.1, 1, k) * np.abs(b)}[sense]
    upper = {"==": b, "<=": b + rng.uniform(0, 1, k), "range": b + rng.uniform(0.1, 1, k) * np.abs(b)}[sense]
    lo, hi = np.full(d, -np.inf), np.full(d, np.inf)
    if has_box:
        lo, hi = inside - rng.uniform(0.1, 3, d), inside + rng.uniform(0.1, 3, d)
    if kind == "infeasible":
        # The first constraint once more, on the other side.
        other = rng.uniform(0.5, 3) * (1 + abs(b[0])) + (upper[0] if np.isfinite(upper[0]) else b[0])
        A = np.vstack([A, A[:1]])
        lower, upper = np.append(lower, other), np.append(upper, other if sense == "==" else np.inf)
    if kind == "unbounded":
        # A direction of no curvature that the constraints allow, along which the objective falls.
        mu = 0.0
        ray = np.linalg.svd(A)[2][-1]
        Q -= np.outer(Q @ ray, ray) + np.outer(ray, Q @ ray) - (ray @ Q @ ray) * np.outer(ray, ray)
        Q = (Q + Q.T) / 2 + 0.0
        values, vectors = np.linalg.eigh(Q)
        keep = values > 1e-9 * max(values[-1], 1e-300)
        Q = (vectors[:, keep] * values[keep]) @ vectors[:, keep].T
        c = c - (c @ ray) * ray - size * rng.uniform(0.5, 2) * ray
    domain = gs.domains.Box(lo, hi) if has_box else gs.domains.Free()
    if rank == 0 and kind != "unbounded":
        Q = np.zeros((d, d))
    loss = gs.losses.Quadratic(Q[None], c[None]) if Q.any() else gs.losses.Linear(c[None])
    if sense == "==" and kind != "infeasible":
        problem = gs.LinearlyConstrained(loss, A, b, domain, mu)
    else:
        problem = gs.LinearlyConstrained(loss, A, domain=domain, mu=mu, lower=lower, upper=upper)
    has_gap = has_box or mu > 0
    tolerance = power(rng, -5, -2)
    stop = {"iterations": int(rng.choice([100, 300, 600])), "target": "constrained gap" if has_gap else "residual"}
    if rng.random() < 0.2:
        stop["target"] = "none"
    name = str(rng.choice(list(CONSTRAINED_METHODS)))
    if rng.random() < 0.4:
        stop["target"] = "kkt"
    program = {"Q": Q, "c": c, "A": A, "lower": lower, "upper": upper, "lo": lo, "hi": hi, "mu": mu}
    return Case(
        seed,
        kind,
        f"{kind} program, {sense}, d={d}, k={k}, rank={rank}, mu={mu:.1e}, size {size:.0e}, box {has_box}",
        problem,
        program=program,
        options={"stop": stop, "method": CONSTRAINED_METHODS[name]},
        tolerance=tolerance,
        method=name,
    )
