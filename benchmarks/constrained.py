"""Measure linear constraints: what the default does, expensive gradients beside other tools, and the effect of norm(A).

    default    Random quadratic programs, a linear program and the portfolio of the examples, with nothing but
               `gs.solve(problem)`: relative error of the objective against Clarabel with tolerances of 1e-12 (for the
               portfolio: the better of SLSQP and trust-constr with tight tolerances), largest KKT residual, best
               seconds of several runs, and how many times as long OSQP (eps 1e-6) and Clarabel (1e-8) take, with
               their residuals (for SLSQP, the violation).
    expensive  A logistic loss with a million rows, a kernel matrix of ijcnn1, and the control of a Poisson equation:
               gradients, values, Hessians (or their products with vectors) and seconds until an iterate first has a
               relative error of the objective and a relative violation of at most 1e-6, or the best reached in the time
               limit. Every tool calls the same functions, which count. Each runs in a process of its own; looking at
               iterates costs neither counts nor seconds. The reference is Newton's to KKT residuals of 1e-10, and a
               linear program (HiGHS) proves how far from the optimum it is at most.
    norm       Gradients (KKT checks included) to KKT residuals of 1e-5, with the constraints multiplied by factors, and
               with rows that are never active and whose norms grow by the same factors.

    OMP_NUM_THREADS=1 python benchmarks/constrained.py [--part default expensive norm] [--quick] [--seconds 60]

The kernel needs ijcnn1 in the folder that GRADSLIDE_DATA names. Other tools: pip install osqp clarabel pyproximal.

PyProximal: of its solvers only the forward-backward ones take a general smooth f, the others need its prox. Of those
only `GeneralizedProximalGradient` takes more than one set: here one per row of A, and the box. `ProximalGradient` would
need projections onto all constraints at once.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

# Before NumPy is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import scipy.sparse as sp
from qp import Program, with_clarabel, with_osqp
from qp import measured as largest_residual
from scipy.optimize import BFGS, Bounds, LinearConstraint, linprog, minimize
from scipy.sparse.linalg import LinearOperator, splu
from scipy.special import expit

import gradslide as gs
from gradslide.theory.optimality import residuals_at

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "comparisons"))

# The target of the expensive problems.
ACCURACY = 1e-6
# Ratios of Condat-Vu, relative to norm(z*)/norm(x*), which balances the two terms of its bound.
RATIOS = (0.1, 0.3, 1.0, 3.0, 10.0)
# The factors by which constraints and inactive rows grow.
FACTORS = (1, 10, 100, 1000)
KKT = 1e-5
# Limit for the reference, which ends where rounding lets it get no further: its error is proven in either case.
REFERENCE_SECONDS = 90.0
# Runs of more seconds are not repeated.
SLOW = 5.0
# The share of its time limit that a ratio of the grid gets, and seconds for a process to end by itself.
GRID_SHARE, GRACE = 0.5, 5.0


def best_seconds(run: Callable[[], object], repeats: int = 3) -> float:
    found = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        found.append(time.perf_counter() - started)
        if found[-1] > SLOW:
            break
    return min(found)


# --- By default ------------------------------------------------------------------------------------------------------


def random_programs(n: int, k: int, lp: tuple[int, int]) -> Iterator[Program]:
    """Quadratic programs with n variables and k inequalities, and a linear program: all have a solution."""
    free, no_rows = np.full(n, np.inf), sp.csr_array((0, n))
    for seed, (name, bound, equations) in enumerate(
        (("free", np.inf, 0), ("box", 0.5, 0), ("equations", 0.5, n // 10))
    ):
        rng = np.random.default_rng(seed)
        root, K = rng.normal(size=(n, n)) / np.sqrt(n), rng.normal(size=(k, n)) / np.sqrt(n)
        E = rng.normal(size=(equations, n)) / np.sqrt(n)
        inside = rng.uniform(-0.4, 0.4, size=n)
        upper, equal = K @ inside + rng.uniform(0, 0.1, size=k), E @ inside
        rows = sp.vstack([sp.csr_array(K), sp.csr_array(E) if equations else no_rows], format="csr")
        low, high = (-free, free) if np.isinf(bound) else (np.full(n, -bound), np.full(n, bound))
        P, q = sp.csr_array(root @ root.T + 0.01 * np.eye(n)), rng.normal(size=n)
        below = np.append(np.full(k, -np.inf), equal)
        yield Program(f"QP {name}", P, q, rows, below, np.append(upper, equal), low, high)
    n, k = lp
    rng = np.random.default_rng(3)
    K, inside = rng.normal(size=(k, n)), rng.uniform(0.2, 0.8, size=n)
    upper = K @ inside + rng.uniform(0, 0.5, size=k)
    empty = sp.csr_array((n, n))
    sides = np.full(k, -np.inf), upper, np.zeros(n), np.ones(n)
    yield Program(f"LP {n} x {k}", empty, rng.normal(size=n), sp.csr_array(K), *sides)


def residual_of(program: Program, answer: tuple[np.ndarray, np.ndarray] | None) -> float:
    """The largest residual of an answer; rounding may have left wrong signs, which count as infinite."""
    if answer is None:
        return np.inf
    x, z = answer
    least, most = np.where(np.isinf(program.lower), 0.0, -np.inf), np.where(np.isinf(program.upper), 0.0, np.inf)
    return largest_residual(program, (x, np.clip(z, least, most)))


def by_default(quick: bool, seconds: float) -> None:
    heads = f"{'method':>8}{'status':>11}{'error':>10}{'residual':>10}{'seconds':>9}  others: ratio (residual)"
    print(f"\n{'by default':14}{heads}")

    def line(name: str, solution: gs.Solution, error: float, spent: float, others: dict[str, tuple]) -> None:
        ratios = {other: (taken / spent, residual) for other, (taken, residual) in others.items()}
        told = ", ".join(f"{other} {ratio:.2f} ({residual:.0e})" for other, (ratio, residual) in ratios.items())
        method, residual = solution.parameters.get("method", ""), solution.kkt.largest
        print(
            f"{name:14}{method:>8}{solution.status.name:>11}{error:10.1e}{residual:10.1e}{spent:9.4f}  {told}",
            flush=True,
        )

    sizes = (40, 60, (30, 20)) if quick else (200, 300, (100, 60))
    for program in random_programs(*sizes):

        def objective(x: np.ndarray, program: Program = program) -> float:
            return float(x @ (program.P @ x) / 2 + program.q @ x)

        exact = with_clarabel(program, 1e-8, seconds)
        assert exact is not None
        optimum = objective(exact[0])
        solution = gs.solve(program.problem())
        spent = best_seconds(lambda program=program: gs.solve(program.problem()))
        others = {}
        for other, tolerance, solve in (("OSQP", 1e-6, with_osqp), ("Clarabel", 1e-4, with_clarabel)):
            run = partial(solve, program, tolerance, seconds)
            others[other] = best_seconds(run), residual_of(program, run())
        line(program.name, solution, abs(objective(solution.mean) - optimum) / abs(optimum), spent, others)

    import portfolio

    _, _, stocks, indices = portfolio.monthly_returns()
    loss, A = portfolio.growth_loss(stocks), portfolio.exposures(stocks, indices)
    problem = gs.LinearlyConstrained(loss, A, 0, domain=gs.domains.Simplex())
    rows = np.vstack([A, np.ones(loss.d)])
    equal = np.append(np.zeros(len(A)), 1.0)
    trusted = minimize(
        lambda x: loss.value(x[None])[0],
        np.full(loss.d, 1 / loss.d),
        jac=lambda x: loss.gradient(x[None])[0],
        hess=BFGS(),
        method="trust-constr",
        bounds=Bounds(np.zeros(loss.d), np.ones(loss.d), keep_feasible=True),
        constraints=LinearConstraint(rows, equal, equal),
        options={"gtol": 1e-10, "xtol": 1e-14, "barrier_tol": 1e-12, "maxiter": 5000},
    )
    found = [portfolio.exact(loss, A), trusted]
    # Values of points that are not feasible say nothing.
    optimum = min(each.fun for each in found if np.abs(rows @ each.x - equal).max() <= 1e-9 and each.x.min() >= -1e-12)
    solution = gs.solve(problem)
    error = abs(float(loss.value(solution.mean[None])[0]) - optimum) / abs(optimum)
    others = {"SLSQP": (best_seconds(lambda: portfolio.exact(loss, A)), float(np.abs(rows @ found[0].x - equal).max()))}
    line("portfolio", solution, error, best_seconds(lambda: gs.solve(problem)), others)


# --- Expensive gradients ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """minimize f(x) subject to lower <= A x <= upper, low <= x <= high.

    `loss` is what tools get, `exact` the same f with Hessians; `curvature`: (x, v) -> f''(x) v where those are costly.
    """

    name: str
    loss: gs.losses.Loss
    exact: gs.losses.Loss
    curvature: Callable[[np.ndarray, np.ndarray], np.ndarray] | None
    A: np.ndarray | sp.csr_array
    lower: np.ndarray
    upper: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def start(self) -> np.ndarray:
        return np.clip(np.zeros(self.loss.d), self.low, self.high)

    def problem(self, loss: gs.losses.Loss) -> gs.LinearlyConstrained:
        is_free = np.isinf(self.low).all() and np.isinf(self.high).all()
        domain = gs.domains.Free() if is_free else gs.domains.Box(self.low, self.high)
        return gs.LinearlyConstrained(loss, self.A, lower=self.lower, upper=self.upper, domain=domain)

    def value(self, x: np.ndarray) -> float:
        return float(self.loss.value(x[None])[0])

    def violation(self, x: np.ndarray) -> float:
        """The largest violation of a row or a bound, relative to 1 + the largest entry of A x or x."""
        found = 0.0
        for v, low, high in ((self.A @ x, self.lower, self.upper), (x, self.low, self.high)):
            nearest = np.clip(v, low, high)
            found = max(found, float(np.abs(v - nearest).max() / (1 + max(np.abs(v).max(), np.abs(nearest).max()))))
        return found


class Reference(NamedTuple):
    """A solution, and by how much its objective may exceed the optimum, relative to it."""

    x: np.ndarray
    z: np.ndarray
    objective: float
    error: float

    @classmethod
    def of(cls, task: Task) -> "Reference":
        """Solve with exact Hessians; a linear program bounds the error by convexity.

        The points with f(x) < f(x_hat) are in the box of size `radius` around x_hat if some are anywhere, since those
        on the way are.
        """
        stop = gs.Stop(kkt=1e-10, seconds=REFERENCE_SECONDS)
        solution = gs.solve(task.problem(task.exact), method=gs.Newton(), stop=stop, check_loss=False)
        x, z = solution.mean, np.asarray(solution.dual).ravel()
        objective, gradient = task.value(x), task.loss.gradient(x[None])[0]
        radius = max(1.0, float(np.abs(x).max()))
        low, high = np.maximum(task.low, x - radius), np.minimum(task.high, x + radius)
        above, below = np.isfinite(task.upper), np.isfinite(task.lower)
        rows = sp.csr_array(task.A)
        bound = linprog(
            gradient / np.abs(gradient).max(),
            A_ub=sp.vstack([rows[above], -rows[below]]),
            b_ub=np.append(task.upper[above], -task.lower[below]),
            bounds=np.column_stack([low, high]),
            method="highs",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        gap = gradient @ x - bound.fun * np.abs(gradient).max() if bound.status == 0 else np.inf
        print(
            f"reference: objective {objective:.10g}, {solution.status.name}, KKT residual {solution.kkt.largest:.1e}, "
            f"violation {task.violation(x):.1e}, proven relative error {abs(gap / objective):.1e}"
        )
        return cls(x, z, objective, abs(float(gap)) / abs(objective))


def million_rows(quick: bool) -> Task:
    n, d, k = (20_000, 20, 100) if quick else (1_000_000, 50, 500)
    rng = np.random.default_rng(10)
    X = rng.normal(size=(n, d))
    X *= np.geomspace(0.1, 10, d)
    truth = rng.normal(size=d) / np.geomspace(0.1, 10, d)
    y = np.where(rng.random(n) < expit(X @ truth), 1.0, -1.0)
    # Three variables each; they exclude the truth.
    columns = np.argsort(rng.random((k, d)), axis=1)[:, :3]
    A = sp.csr_array((rng.normal(size=3 * k), (np.repeat(np.arange(k), 3), columns.ravel())), shape=(k, d))
    upper = A @ (0.5 * truth) + rng.uniform(0.05, 0.5, size=k)
    loss = gs.losses.Logistic(X, y)

    free = np.full(d, np.inf)
    name = f"logistic loss, {n:,} x {d}, {k} sparse inequalities"
    return Task(name, loss, loss, None, A, np.full(k, -np.inf), upper, -free, free)


class Composite:
    """f(x) = sum phi(B x) + weight/2 x'M x for functions B, B' and M x, given x and B x; keeps the last B x.

    `outer` gives phi, phi' and phi'' at B x.
    """

    def __init__(self, forward, adjoint, outer, weight, ridge):
        self.forward, self.adjoint, self.outer, self.weight, self.ridge = forward, adjoint, outer, weight, ridge
        self._last: tuple[np.ndarray, np.ndarray] | None = None

    def scores(self, x: np.ndarray) -> np.ndarray:
        if self._last is None or not np.array_equal(self._last[0], x):
            self._last = x.copy(), self.forward(x)
        return self._last[1]

    def value(self, x: np.ndarray) -> float:
        s = self.scores(x)
        return float(self.outer(s)[0].sum() + self.weight / 2 * (x @ self.ridge(x, s)))

    def gradient(self, x: np.ndarray) -> np.ndarray:
        s = self.scores(x)
        return self.adjoint(self.outer(s)[1]) + self.weight * self.ridge(x, s)

    def product(self, x: np.ndarray, v: np.ndarray) -> np.ndarray:
        t = self.forward(v)
        return self.adjoint(self.outer(self.scores(x))[2] * t) + self.weight * self.ridge(v, t)

    def losses(self, d: int, smoothness: float, hessian: Callable[[np.ndarray], np.ndarray]):
        """The loss without Hessians, and with them."""
        given = {
            "value": [self.value],
            "gradient": [self.gradient],
            "value_and_gradient": [lambda x: (self.value(x), self.gradient(x))],
            "smoothness": smoothness,
            "agents": 1,
            "dimension": d,
        }
        return gs.losses.Custom(**given), gs.losses.Custom(**given, hessian=[hessian])


def kernel(quick: bool) -> Task:
    n, groups, lam, bound = (300 if quick else 2500), (8 if quick else 20), 1.0, 0.5
    data = gs.data.load("ijcnn1")
    chosen = np.sort(np.random.default_rng(11).choice(len(data.labels), n, replace=False))
    features, y = data.features[chosen], data.labels[chosen]
    points = np.asarray(features.toarray() if sp.issparse(features) else features, dtype=float)
    squares = np.sum(points**2, axis=1)
    distances = np.maximum(squares[:, None] + squares - 2 * points @ points.T, 0)
    K = np.exp(-distances / np.median(distances))

    def outer(s: np.ndarray):
        share = expit(-y * s)
        return np.logaddexp(0, -y * s), -y * share, share * (1 - share)

    def hessian(a: np.ndarray) -> np.ndarray:
        found = (K * outer(K @ a)[2]) @ K + lam * K
        return (found + found.T) / 2

    f = Composite(lambda a: K @ a, lambda s: K @ s, outer, lam, lambda a, s: s)
    size = float(np.linalg.eigvalsh(K)[-1])
    loss, exact = f.losses(n, size**2 / 4 + lam * size, hessian)
    # Groups by the continuous feature that varies most: mean scores differ little from that of all points.
    by = points[:, np.argmax(np.var(points, axis=0) * [len(np.unique(column)) > n // 2 for column in points.T])]
    members = np.array_split(np.argsort(by, kind="stable"), groups)
    means = np.array([np.isin(np.arange(n), each) / len(each) for each in members])
    A = (means - 1 / n) @ K
    width, box = np.full(groups, 0.05), np.full(n, bound)
    name = f"kernel of ijcnn1, {n} points, {groups} group means in a range, bounds"
    return Task(name, loss, exact, f.product, A, -width, width, -box, box)


def poisson_control(quick: bool) -> Task:
    side, parts = (12, 3) if quick else (40, 5)
    n, h, ridge, scale = side**2, 1 / (side + 1), 1e-3, 0.1
    line = sp.diags_array([-np.ones(side - 1), 2 * np.ones(side), -np.ones(side - 1)], offsets=[-1, 0, 1])
    laplacian = sp.kron(line, sp.eye_array(side)) + sp.kron(sp.eye_array(side), line)
    solve = splu(sp.csc_matrix(laplacian / h**2)).solve
    at = np.arange(1, side + 1) * h
    first, second = np.meshgrid(at, at, indexing="ij")
    # Not reachable: it jumps.
    wanted = ((np.abs(first - 0.4) < 0.2) & (np.abs(second - 0.6) < 0.25)).ravel() * 0.5

    def outer(s: np.ndarray):
        t = np.abs(s - wanted) / scale
        slope = np.tanh((s - wanted) / scale)
        return h**2 * (t + np.log1p(np.exp(-2 * t)) - np.log(2)), h**2 * slope / scale, h**2 * (1 - slope**2) / scale**2

    S = solve(np.eye(n))

    def hessian(u: np.ndarray) -> np.ndarray:
        found = S.T @ (outer(S @ u)[2][:, None] * S) + ridge * h**2 * np.eye(n)
        return (found + found.T) / 2

    f = Composite(solve, solve, outer, ridge * h**2, lambda u, s: u)
    size = 1 / (8 / h**2 * np.sin(np.pi * h / 2) ** 2)
    loss, exact = f.losses(n, h**2 * (size**2 / scale**2 + ridge), hessian)
    # Average states of regions stay near those of a control that is inside its bounds.
    regions = np.array_split(np.arange(side), parts)
    members = [np.ix_(rows, columns) for rows in regions for columns in regions]
    average = np.zeros((len(members), side, side))
    for row, each in zip(average, members, strict=True):
        row[each] = 1 / row[each].size
    A = average.reshape(len(members), n) @ S
    middle = A @ (30 * wanted)
    low, high = np.zeros(n), np.full(n, 30.0)
    name = f"control of a Poisson equation, {side} x {side}, {len(A)} regional averages in a range, bounds"
    return Task(name, loss, exact, f.product, A, middle - 0.02, middle + 0.02, low, high)


class Ended(Exception):
    """The target is met, or the time is spent."""


@dataclass
class Best:
    """What had been spent when the best iterate was seen; `end` says how the run ended."""

    error: float = np.inf
    violation: float = np.inf
    gradients: int = 0
    values: int = 0
    hessians: int = 0
    products: int = 0
    seconds: float = 0.0
    end: str = ""

    @property
    def merit(self) -> float:
        return max(self.error, self.violation)

    @property
    def is_there(self) -> bool:
        return self.merit <= ACCURACY


@dataclass
class Counted:
    """f of a task with counts, a clock that stands still while iterates are looked at, and the best iterate."""

    task: Task
    optimum: float
    limit: float
    connection: Connection
    now: Best = field(default_factory=Best)
    best: Best = field(default_factory=Best)
    started: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def count(self, what: str) -> None:
        if self.seconds > self.limit:
            raise Ended
        setattr(self.now, what, getattr(self.now, what) + 1)

    def value(self, x: np.ndarray) -> float:
        self.count("values")
        return float(self.task.loss.value(x[None])[0])

    def gradient(self, x: np.ndarray) -> np.ndarray:
        self.count("gradients")
        return np.array(self.task.loss.gradient(x[None])[0])

    def hessian(self, x: np.ndarray) -> np.ndarray | LinearOperator:
        """The Hessian, or its products with vectors where the task has those."""
        curvature, at = self.task.curvature, x.copy()
        if curvature is None:
            self.count("hessians")
            return np.array(self.task.loss.hessian(x[None])[0])

        def product(v: np.ndarray) -> np.ndarray:
            self.count("products")
            return curvature(at, v.ravel())

        return LinearOperator((x.size, x.size), matvec=product, dtype=float)

    def observe(self, x: np.ndarray) -> None:
        """Look at an iterate; ends the run at the first one that meets the target."""
        spent, looked = self.seconds, time.perf_counter()
        x = np.asarray(x, dtype=float).ravel()
        error = abs(self.task.value(x) - self.optimum) / abs(self.optimum)
        seen = Best(error, self.task.violation(x), *(getattr(self.now, name) for name in COUNTS), spent)
        if seen.merit < self.best.merit:
            self.best = seen
            self.connection.send(seen)
        self.started += time.perf_counter() - looked
        if self.best.is_there or spent > self.limit:
            raise Ended


COUNTS = ("gradients", "values", "hessians", "products")


class CountedLoss(gs.losses.Loss):
    """Another loss, with counts; checked by `solve` where that one is."""

    def __init__(self, loss: gs.losses.Loss, counted: Counted) -> None:
        super().__init__(loss.m, loss.d, loss.dtype)
        self._loss, self._count = loss, counted.count
        self.is_user_supplied = loss.is_user_supplied

    def value(self, x):
        self._count("values")
        return self._loss.value(x)

    def gradient(self, x):
        self._count("gradients")
        return self._loss.gradient(x)

    def value_and_gradient(self, x):
        self._count("values")
        self._count("gradients")
        return self._loss.value_and_gradient(x)

    @property
    def has_hessian(self):
        return self._loss.has_hessian

    def hessian(self, x):
        self._count("hessians")
        return self._loss.hessian(x)

    def derivatives(self, x):
        for name in ("values", "gradients", "hessians"):
            self._count(name)
        return self._loss.derivatives(x)

    def column_squares(self):
        return self._loss.column_squares()

    def compute_smoothness(self, norm):
        # Known from before: setting it up is no part of the run.
        return self._loss.smoothness(norm)

    def take_agents(self, agents):
        raise NotImplementedError


Tool = Callable[[Task, Counted], None]


def with_gradslide(task: Task, counted: Counted, method: object = None, has_hessians: bool = False) -> None:
    loss = CountedLoss(task.exact if has_hessians else task.loss, counted)

    def watch(record: gs.Record, x: np.ndarray) -> bool:
        counted.observe(x)
        return False

    stop = gs.Stop(seconds=10 * counted.limit)
    solution = gs.solve(task.problem(loss), method=method, stop=stop, callback=watch, record_every=10**9)
    counted.observe(solution.mean)


def with_trust_constr(task: Task, counted: Counted, is_exact: bool) -> None:
    minimize(
        counted.value,
        task.start,
        jac=counted.gradient,
        hess=counted.hessian if is_exact else BFGS(),
        method="trust-constr",
        bounds=None if np.isinf(task.low).all() else Bounds(task.low, task.high),
        # Sparse, or it factorizes a dense matrix with rows for all bounds.
        constraints=LinearConstraint(sp.csc_matrix(task.A), task.lower, task.upper),
        callback=lambda x, state: counted.observe(x),
        options={"gtol": 1e-12, "xtol": 1e-16, "barrier_tol": 1e-12, "maxiter": 10**7},
    )


def with_slsqp(task: Task, counted: Counted, is_scaled: bool) -> None:
    """Scaled: f is multiplied so that the largest entry of its first gradient is 1, since SLSQP depends on that."""
    A = task.A.toarray() if sp.issparse(task.A) else task.A
    above, below = np.isfinite(task.upper), np.isfinite(task.lower)
    rows, ends = np.vstack([-A[above], A[below]]), np.append(task.upper[above], -task.lower[below])
    scale = 1 / float(np.abs(task.loss.gradient(task.start[None])).max()) if is_scaled else 1.0
    minimize(
        lambda x: scale * counted.value(x),
        task.start,
        jac=lambda x: scale * counted.gradient(x),
        method="SLSQP",
        bounds=None if np.isinf(task.low).all() else Bounds(task.low, task.high),
        constraints={"type": "ineq", "fun": lambda x: rows @ x + ends, "jac": lambda x: rows},
        callback=counted.observe,
        options={"ftol": 1e-16, "maxiter": 10**7},
    )


def with_pyproximal(task: Task, counted: Counted) -> None:
    from pyproximal import Box, ProxOperator
    from pyproximal.optimization.primal import GeneralizedProximalGradient

    class Smooth(ProxOperator):
        def __init__(self):
            super().__init__(None, True)

        def __call__(self, x):
            return counted.value(x)

        def grad(self, x):
            return counted.gradient(x)

    class Row(ProxOperator):
        def __init__(self, columns, entries, lower, upper):
            super().__init__(None, False)
            self.columns, self.entries, self.lower, self.upper = columns, entries, lower, upper
            self.square = entries @ entries

        def __call__(self, x):
            return True

        def prox(self, x, tau):
            product = self.entries @ x[self.columns]
            x[self.columns] += (np.clip(product, self.lower, self.upper) - product) / self.square * self.entries
            return x

    A = sp.csr_array(task.A)
    sets: list[ProxOperator] = []
    for i in range(A.shape[0]):
        own = slice(A.indptr[i], A.indptr[i + 1])
        sets.append(Row(A.indices[own], A.data[own], task.lower[i], task.upper[i]))
    if np.isfinite(task.low).any():
        sets.append(Box(task.low, task.high))
    # It refuses weights that do not sum up to 1 exactly: these do, in binary.
    weights = np.full(len(sets), (2**20 // len(sets)) / 2**20)
    weights[-1] = 1 - weights[:-1].sum()
    tau = 1.9 / float(task.loss.smoothness().max())
    GeneralizedProximalGradient(
        [Smooth()], sets, task.start, tau, weights=weights, niter=10**7, callback=lambda x: counted.observe(x)
    )


# More methods go here; those that refuse the problem are reported as such.
METHODS: dict[str, object] = {
    "default": None,
    "LBFGS": gs.LBFGS(),
    "AutoPDS": gs.AutoPDS(),
    "PDS": gs.PDS(),
    "CondatVu": gs.CondatVu(),
}
TOOLS: dict[str, Tool] = {
    **{name: partial(with_gradslide, method=method) for name, method in METHODS.items()},
    "Newton, Hessians given": partial(with_gradslide, method=gs.Newton(), has_hessians=True),
    "trust-constr, BFGS": partial(with_trust_constr, is_exact=False),
    "trust-constr, exact": partial(with_trust_constr, is_exact=True),
    "SLSQP": partial(with_slsqp, is_scaled=False),
    "SLSQP, scaled": partial(with_slsqp, is_scaled=True),
    "PyProximal": with_pyproximal,
}


def run_tool(tool: Tool, task: Task, optimum: float, limit: float, connection: Connection) -> None:
    """What the process of a tool does: it sends better and better iterates, and at last how it ended."""
    counted = Counted(task, optimum, limit, connection)
    try:
        tool(task, counted)
        end = "ended"
    except Ended:
        end = "limit"
    except gs.InputError as error:
        end = f"refused: {error}".partition(";")[0]
    except Exception as error:
        end = f"{type(error).__name__}: {error}"
    connection.send(end)


def measured(tool: Tool, task: Task, optimum: float, limit: float) -> Best:
    """Run a tool in a process of its own, which is killed where it does not come back from compiled code."""
    context = get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=run_tool, args=(tool, task, optimum, limit, there))
    process.start()
    there.close()
    best, end = Best(), "killed"
    # Looking at iterates may take as long as the run.
    last = time.perf_counter() + 3 * limit + GRACE
    while (left := last - time.perf_counter()) > 0 and here.poll(left):
        try:
            got = here.recv()
        except EOFError:
            end = "died"
            break
        if isinstance(got, str):
            end = got
            break
        best = got
    process.kill()
    process.join()
    best.end = end
    return best


def expensive(quick: bool, seconds: float, tools: list[str], tasks: list[str]) -> None:
    # Here and not in processes, whose clocks are running.
    import pyproximal  # noqa: F401

    for name in tasks:
        try:
            task = TASKS[name](quick)
        except gs.InputError as error:
            print(f"\n{name}: skipped, {error}")
            continue
        print(f"\n{task.name}: to {ACCURACY:g}, at most {seconds:g} s each")
        task.loss.smoothness()
        reference = Reference.of(task)
        heads = "".join(f"{each:>10}" for each in (*COUNTS, "seconds"))
        print(f"{'':26}{heads}{'error':>10}{'violation':>10}")

        def line(label: str, best: Best) -> None:
            told = "" if best.is_there else f"  not reached ({best.end})"
            counts = "".join(f"{getattr(best, each):>10}" for each in COUNTS)
            errors = f"{best.seconds:>10.2f}{best.error:>10.1e}{best.violation:>10.1e}"
            print(f"{label:26}{counts}{errors}{told}", flush=True)

        for label in tools:
            if label == "Newton, Hessians given" and task.exact is task.loss:
                continue
            line(label, measured(TOOLS[label], task, reference.objective, seconds))
            if label == "CondatVu":
                balanced = float(np.linalg.norm(reference.z) / np.linalg.norm(reference.x - task.start))
                runs = {}
                for ratio in RATIOS:
                    tool = partial(with_gradslide, method=gs.CondatVu(ratio=ratio * balanced))
                    runs[ratio] = measured(tool, task, reference.objective, GRID_SHARE * seconds)
                ratio = min(runs, key=lambda each: (max(runs[each].merit, ACCURACY), runs[each].gradients))
                line(f"CondatVu, best ratio {ratio:g}", runs[ratio])


TASKS: dict[str, Callable[[bool], Task]] = {"rows": million_rows, "kernel": kernel, "control": poisson_control}


# --- norm(A) ---------------------------------------------------------------------------------------------------------


def norms(quick: bool, seconds: float) -> None:
    n, d, k = (300, 10, 15) if quick else (2000, 30, 60)
    rng = np.random.default_rng(20)
    X, truth = rng.normal(size=(n, d)), rng.normal(size=d)
    y = np.where(rng.random(n) < expit(X @ truth), 1.0, -1.0)
    loss = gs.losses.Logistic(X, y)
    A = rng.normal(size=(k, d)) / np.sqrt(d)
    b = A @ (0.5 * truth) + rng.uniform(0.02, 0.2, size=k)
    optimum = gs.solve(gs.LinearlyConstrained(loss, A, b, sense="<="), stop=gs.Stop(kkt=1e-10, iterations=100))
    extra = rng.normal(size=(k, d)) / np.sqrt(d)
    # Far from active at the solution.
    beyond = extra @ optimum.mean + 2.0
    limit = 100_000

    def to_kkt(method: object, rows: np.ndarray, ends: np.ndarray) -> str:
        problem = gs.LinearlyConstrained(loss, rows, ends, sense="<=")
        stop = gs.Stop(kkt=KKT, gradients=limit, seconds=seconds)
        try:
            solution = gs.solve(problem, method=method, stop=stop, record_every=10**9)
        except gs.InputError:
            return "refused"
        residual = residuals_at(problem, loss, problem.A, solution.mean[None], np.asarray(solution.dual).reshape(1, -1))
        is_there = residual.largest <= KKT
        spent = solution.costs.gradients
        return f"{spent:,}" if is_there else f"{residual.largest:.0e} ({spent:,})"

    active = int(np.sum(np.abs(np.asarray(optimum.dual)) > 1e-8))
    norm, size = np.linalg.norm(A, 2), np.linalg.norm(optimum.dual)
    print(f"\nlogistic loss, {n} x {d}, {k} inequalities, {active} active, norm(A) {norm:.2f}, norm(z*) {size:.2g}")
    print(f"gradients to KKT residuals of {KKT:g}; residual (gradients) after {seconds:g} s or {limit:,}")
    for title in ("A and b times", "inactive rows times"):
        print(f"{title:21}" + "".join(f"{factor:>20,}" for factor in FACTORS))
        for name, method in METHODS.items():
            cells = []
            for factor in FACTORS:
                grown = factor * A, factor * b
                if title.startswith("inactive"):
                    grown = np.vstack([A, factor * extra]), np.append(b, factor * beyond)
                cells.append(to_kkt(method, *grown))
            print(f"  {name:19}" + "".join(f"{cell:>20}" for cell in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--part", nargs="+", choices=("default", "expensive", "norm"), help="all by default")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--seconds", type=float, help="limit for each run; 60 by default, 3 with --quick")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS), help="of the expensive problems")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="the expensive problems")
    given = parser.parse_args()
    parts = given.part or ["default", "expensive", "norm"]
    seconds = given.seconds or (3.0 if given.quick else 60.0)
    if "default" in parts:
        by_default(given.quick, seconds)
    if "expensive" in parts:
        expensive(given.quick, seconds, given.tools, given.tasks)
    if "norm" in parts:
        # Five methods, eight problems.
        norms(given.quick, seconds / 3)


if __name__ == "__main__":
    main()
