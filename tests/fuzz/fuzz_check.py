"""Solve one problem of the fuzzer with gradslide, and compare what it says with the independent solver."""

import signal
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import clarabel
import numpy as np
import scipy.sparse as sp
from fuzz_cases import Case, make_case
from fuzz_solver import LONG, minimize

import gradslide as gs

# Seconds after which a run counts as hanging: its limits end it long before.
HANG = 60
# A status may be off by this factor of the target.
FACTOR = 10.0
# Of the size of the numbers behind an objective: rounding of double precision, summed over its terms.
ROUNDING = 1e-14
# The independent solver decides where its own error is below this share of the objective.
DECIDED = 1e-9
# Docs: an objective is never small relative to an optimum of 0; these shares of that at the start will do.
LEAST = {"gap": 1e-9, "kkt": 1e-6}
# The independent solver's own numbers are of order 1.
FAR = 1e12
# An objective that is this many times the optimum is no answer.
DIVERGED = 1e5
WRONG = {gs.Status.DIVERGED, gs.Status.INFEASIBLE, gs.Status.UNBOUNDED, gs.Status.CONTRADICTORY}
# Part of a warning that is true of some runs in single precision.
DRIFT = "rounding in single precision added up"
CLAIMS = {gs.Status.CONVERGED, gs.Status.STATIONARY}


class Hanging(Exception):
    """A run took longer than any should."""


@dataclass
class Truth:
    """What the independent solver knows: low <= optimum <= high; x: where it is `high`."""

    high: float
    low: float
    x: np.ndarray | None = None
    size: float = 1.0
    scale: float = 1.0
    status: str = "solved"
    multiplier: float = 0.0

    @property
    def is_decided(self):
        return self.status != "solved" or self.high - self.low <= DECIDED * self.scale


@dataclass
class Outcome:
    """What one seed gave; findings: (kind, what)."""

    seed: int
    kind: str
    label: str
    status: str
    findings: list = field(default_factory=list)
    is_decided: bool = True
    has_drifted: bool = False
    seconds: float = 0.0
    solver_seconds: float = 0.0


@contextmanager
def watched(seconds) -> Iterator[None]:
    """Raise Hanging in the block after some time, where the system has such signals."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def ring(*_):
        raise Hanging

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def solve_independently(case: Case) -> Truth:
    """Solve the problem without gradslide."""
    if case.convex is None:
        return solve_program(case)
    start = np.zeros(case.convex.d) if case.convex.center is None else case.convex.center
    answer = minimize(case.convex)
    first = abs(float(case.convex.value(case.convex.domain.project(start))))
    scale = max(abs(answer.value), LEAST["gap"] * first)
    size = case.convex.size(answer.x)
    status = "solved"
    if not case.is_bounded and answer.value < 0 and answer.error > 1e-3 * abs(answer.value):
        # It still falls where the last step led.
        status = "unbounded"
    return Truth(answer.value, answer.value - answer.error, answer.x, size, scale, status)


def solve_program(case: Case) -> Truth:
    """A quadratic program, in units in which all its numbers are of order 1."""
    given = case.program
    d, rows, right, zero = len(given["c"]), [], [], 0
    A, is_equal = given["A"], given["lower"] == given["upper"]
    norms = np.linalg.norm(A, axis=1)
    for equal in (True, False):
        for normal, low, high, same, norm in zip(A, given["lower"], given["upper"], is_equal, norms, strict=True):
            if same != equal:
                continue
            if same:
                rows, right, zero = [*rows, normal / norm], [*right, high / norm], zero + 1
                continue
            if np.isfinite(high):
                rows, right = [*rows, normal / norm], [*right, high / norm]
            if np.isfinite(low):
                rows, right = [*rows, -normal / norm], [*right, -low / norm]
    for j in range(d):
        if np.isfinite(given["hi"][j]):
            rows, right = [*rows, np.eye(d)[j]], [*right, given["hi"][j]]
        if np.isfinite(given["lo"][j]):
            rows, right = [*rows, -np.eye(d)[j]], [*right, -given["lo"][j]]
    P = given["Q"] + given["mu"] * np.eye(d)
    unit = max(np.abs(P).max(), np.abs(given["c"]).max())
    cones = [clarabel.ZeroConeT(zero)] if zero else []
    if len(rows) > zero:
        cones.append(clarabel.NonnegativeConeT(len(rows) - zero))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    matrices = (sp.csc_matrix(np.triu(P / unit)), given["c"] / unit, sp.csc_matrix(np.array(rows)), np.array(right))
    found = clarabel.DefaultSolver(*matrices, cones, settings).solve()
    status = {
        "Solved": "solved",
        "AlmostSolved": "solved",
        "PrimalInfeasible": "infeasible",
        "DualInfeasible": "unbounded",
    }.get(str(found.status), "unknown")
    x = np.array(found.x)
    if status == "solved" and np.max(np.abs(x)) > FAR:
        # So far away that constraints which contradict each other hold up to rounding.
        status = "unknown"
    values = sorted((unit * found.obj_val, unit * found.obj_val_dual))
    # The terms, which the solver's feasibility is relative to.
    size = unit * (np.abs(x) @ np.abs(P / unit) @ np.abs(x) + np.abs(given["c"] / unit) @ np.abs(x) + 1e-300)
    multiplier = unit * float(np.linalg.norm(np.array(found.z)[: zero or None]))
    return Truth(values[1], values[0], x, size, max(abs(values[1]), abs(values[0])), status, multiplier)


def stop_for(case: Case, truth: Truth) -> gs.Stop:
    """The Stop that the case asks for; a target on the objective is relative to the true optimum."""
    wanted = dict(case.options["stop"])
    target = wanted.pop("target")
    if target == "objective":
        wanted["objective"] = gs.Relative(case.tolerance, to=truth.high)
    elif target == "gap":
        wanted["gap"] = gs.Relative(case.tolerance) if case.is_relative else case.tolerance * (truth.scale or 1.0)
    elif target == "kkt":
        wanted["kkt"] = gs.Relative(case.tolerance)
    elif target in ("constrained gap", "residual"):
        wanted["residual"] = gs.Relative(case.tolerance)
        if target == "constrained gap":
            wanted["gap"] = gs.Relative(case.tolerance)
    if case.kind == "network":
        if wanted["iterations"] <= 5_000:
            wanted["rounds"], wanted["gradients"] = 10_000, 5_000
        if case.method == "SPDS":
            del wanted["iterations"]
    else:
        wanted["operator_products"] = 50_000
    return gs.Stop(**wanted)


def check(case: Case, solution: gs.Solution, truth: Truth) -> list:
    """Return what the solution claims that is not so: (kind, what) for each."""
    found = check_program(case, solution, truth) if case.convex is None else check_network(case, solution, truth)
    return [*found, *check_warnings(solution, truth)]


def check_warnings(solution, truth):
    """Warnings of lost messages where none were, of bounds that contradict each other, or of an unbounded problem."""
    known = ("differ in scale", DRIFT, *(["no lower bound"] if truth.status == "unbounded" else []))
    return [("false warning", text) for text in solution.warnings if not any(each in text for each in known)]


def check_network(case: Case, solution, truth):
    convex, found = case.convex, []
    status, certificate = solution.status, solution.certificate
    rounding = ROUNDING * truth.size
    lowers = [record.lower for record in solution.history if record.lower is not None]
    lowers += [certificate.lower] if certificate is not None else []
    if lowers and max(lowers) > truth.high + rounding:
        found.append(("false lower bound", f"{max(lowers)!r} > {truth.high!r}, {excess(max(lowers), truth.high)}"))
    # Where the solver did not get near the optimum, what it knows from below holds near its answer only.
    if certificate is not None and truth.status == "solved" and truth.is_decided:
        upper = certificate.upper
        if upper < truth.low - rounding:
            found.append(("false upper bound", f"{upper!r} < {truth.low!r}, {excess(truth.low, upper)}"))
    if truth.status == "unbounded":
        if status in CLAIMS:
            found.append(("wrong status", f"{status.name} on an unbounded problem"))
        return found
    # Docs of DCS: where X is unbounded and L large, its first steps are too long and may overflow.
    may_diverge = case.method == "DCS" and status is gs.Status.DIVERGED and not convex.domain.bounded
    # Docs: in single precision, columns of wild scales can make a run diverge; it must be true that it did.
    is_single = case.dtype == np.float32 and any("differ in scale" in text for text in solution.warnings)
    may_diverge |= is_single and solution.history[-1].objective > DIVERGED * abs(truth.high)
    if status in WRONG and truth.status == "solved" and not may_diverge:
        found.append(("wrong status", f"{status.name} on a healthy problem"))
    mean = np.asarray(solution.mean, dtype=LONG)
    if not np.all(np.isfinite(mean)):
        return [*found, ("no answer", "the mean is not finite")]
    outside = convex.domain.distance(mean)
    is_common = case.problem.domain.common
    far = float(np.max(np.abs(mean), initial=0)) + float(np.max(np.abs(truth.x), initial=0))
    # Projections of far points round relative to these, and averages of points of X once more in every round.
    roundings = (10_000 if case.dtype == np.float32 else 100_000) + solution.costs.rounds
    if is_common and status is not gs.Status.DIVERGED and outside > roundings * float(np.finfo(case.dtype).eps) * far:
        found.append(("infeasible answer", f"{outside:.2e} outside, of {far:.2e}"))
    if status is gs.Status.CONVERGED and is_common:
        found += check_converged(case, solution, truth, mean)
    return found


def check_converged(case, solution, truth, mean):
    """Whether the objective is within ten times the target."""
    convex, target = case.convex, case.options["stop"]["target"]
    point = convex.domain.project(mean)
    value = float(convex.value(point))
    error = value - truth.high
    first = abs(float(np.sum(case.problem.objective(case.problem.start(case.options.get("x0"))), dtype=np.float64)))
    if target == "gap" and not case.is_relative:
        allowed = case.tolerance * (truth.scale or 1.0)
    else:
        allowed = case.tolerance * max(abs(value), abs(truth.high), LEAST.get(target, 0.0) * first)
    # A value that was rounded meets a target that is below its rounding; upper bounds are in double precision.
    is_rounded = case.dtype != np.float64 and target != "gap"
    allowed += (float(np.finfo(case.dtype).eps) if is_rounded else ROUNDING) * truth.size
    found = []
    if not error <= FACTOR * allowed:
        found.append(("false convergence", f"error {error:.3e}, target {allowed:.3e}: {error / allowed:.3g} times"))
    disagreement = case.options["stop"].get("disagreement")
    if disagreement is not None:
        away = float(np.max(np.linalg.norm(np.asarray(solution.x, dtype=np.float64) - mean.astype(float), axis=1)))
        if away > 2 * disagreement.value * float(np.linalg.norm(mean.astype(float))) + 1e-300:
            found.append(("false agreement", f"disagreement {away:.3e}, norm {np.linalg.norm(mean.astype(float)):.3e}"))
    return found


def check_program(case: Case, solution, truth):
    found, status = [], solution.status
    truly = {"solved": "feasible"}.get(truth.status, truth.status)
    if truth.status == "unknown":
        return found
    if truly == "infeasible":
        # A target on the residual may be wide enough for constraints that contradict each other a little.
        residual, allowed = residual_of(case, solution)
        if status in CLAIMS | {gs.Status.FEASIBLE} and not residual <= allowed:
            found.append(("wrong status", f"{status.name} on an infeasible problem, residual {residual:.2e}"))
        return found
    if truly == "unbounded":
        return [("wrong status", f"{status.name} on an unbounded problem")] if status in CLAIMS else found
    if status in WRONG:
        return [("wrong status", f"{status.name} on a healthy problem")]
    margin = 1e-9 * truth.size + (truth.high - truth.low)
    if solution.certificate is not None and solution.certificate.lower > truth.high + margin:
        lower = solution.certificate.lower
        found.append(("false lower bound", f"{lower!r} > {truth.high!r}, {excess(lower, truth.high)}"))
    if status is gs.Status.CONVERGED:
        given, x = case.program, np.asarray(solution.x, dtype=float).reshape(-1)
        value = float(x @ given["Q"] @ x / 2 + given["c"] @ x + given["mu"] / 2 * x @ x)
        missing, norms = violations(case, x), np.linalg.norm(given["A"], axis=1)
        # KKT residuals are relative to 1 + the size of their terms.
        is_kkt = case.options["stop"]["target"] == "kkt"
        allowed = case.tolerance * max(is_kkt + abs(value), abs(truth.high))
        # Outside of the constraints the objective may be below the optimum, by the multipliers.
        allowed += truth.multiplier * float(np.linalg.norm(missing / norms))
        error = abs(value - truth.high)
        if not error <= FACTOR * allowed + margin:
            found.append(("false convergence", f"error {error:.3e}, target {allowed:.3e}"))
    if status in (gs.Status.CONVERGED, gs.Status.FEASIBLE):
        residual, allowed = residual_of(case, solution)
        if case.options["stop"]["target"] == "kkt":
            product = case.program["A"] @ np.asarray(solution.x, dtype=float).reshape(-1)
            allowed = case.tolerance * (1 + 2 * float(np.linalg.norm(product))) * len(product) ** 0.5
        if not residual <= allowed:
            found.append(("false feasibility", f"residual {residual:.3e}, target {allowed:.3e}"))
    return found


def violations(case, x):
    """How far A x is from what each constraint allows."""
    product = case.program["A"] @ x
    return np.maximum(case.program["lower"] - product, 0) + np.maximum(product - case.program["upper"], 0)


def residual_of(case, solution):
    """The residual, and what the target allows, with a margin for rounding."""
    A, x = case.program["A"], np.asarray(solution.x, dtype=float).reshape(-1)
    missing = violations(case, x)
    product = A @ x
    nearest = np.clip(product, case.program["lower"], case.program["upper"])
    scale = max(float(np.linalg.norm(product)), float(np.linalg.norm(nearest)))
    if not np.any(nearest):
        scale = max(scale, float(np.linalg.norm(A, 2) * np.linalg.norm(x)))
    return float(np.linalg.norm(missing)), case.tolerance * scale * (1 + 1e-6) + 1e-12


def excess(more, less):
    return f"by {(more - less) / max(abs(more), abs(less), 1e-300):.2e} of it"


def run(seed: int, alarm: int = HANG) -> Outcome:
    """Solve the problem of a seed twice, and compare.

    Parameters
    ----------
    seed : int
        Which problem.
    alarm : int
        Seconds after which a run counts as hanging.

    Returns
    -------
    Outcome
    """
    began = time.perf_counter()
    try:
        case = make_case(seed)
    except Exception:
        return Outcome(seed, "network", "", "none", [("traceback", f"making the problem: {last_line()}")])
    truth = solve_independently(case)
    solved = time.perf_counter()
    outcome = Outcome(seed, case.kind, case.label, "none", is_decided=truth.is_decided, solver_seconds=solved - began)
    try:
        with warnings.catch_warnings(record=True) as stray, watched(alarm):
            warnings.simplefilter("always")
            options = {**case.options, "stop": stop_for(case, truth)}
            network = () if case.graph is None else (case.graph,)
            solution = gs.solve(case.problem, *network, **options)
        outcome.status = solution.status.short
        outcome.findings = check(case, solution, truth)
        outcome.has_drifted = any(DRIFT in text for text in solution.warnings)
        outcome.findings += [
            ("stray warning", f"{each.category.__name__}: {each.message} at {each.filename}:{each.lineno}")
            for each in stray
            if str(each.message) not in solution.warnings
        ]
    except Hanging:
        outcome.findings = [("hang", f"more than {alarm} s")]
    except gs.InputError as error:
        outcome.status = "refused"
        if not case.may_refuse:
            outcome.findings = [("refused", str(error))]
    except Exception:
        outcome.findings = [("traceback", last_line())]
    outcome.seconds = time.perf_counter() - solved
    return outcome


def last_line():
    lines = traceback.format_exc().strip().splitlines()
    where = [line.strip() for line in lines if line.strip().startswith("File")]
    return f"{next((line for line in reversed(lines) if ': ' in line), lines[-1])} ({where[-1] if where else ''})"
