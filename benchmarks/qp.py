"""Measure quadratic programs of the Maros-Meszaros test set: how many are solved, and how fast, beside other solvers.

The problems lie in the folder qp of the data directory, see CONTRIBUTING.md: MATLAB files with P, q, A, l, u, minimize
x'Px/2 + q'x subject to l <= A x <= u, of which the last n rows are bounds on x. A problem counts as solved if all three
residuals of `gs.SaddleKKT`, computed from the x and the multipliers that a solver returned, are at most 1e-4 or 1e-6,
within the time limit and 1e6 products. Solvers with a tolerance are run with that one, then with a tenth and a
hundredth of it as long as the residuals are too large, and only the last run counts. The mean is the geometric one of
seconds + 1, less 1; a problem that was not solved counts with the time limit.

    python benchmarks/qp.py [--only NAME ...] [--solvers NAME ...] [--seconds 60] [--csv FILE]

Other solvers: pip install osqp clarabel ortools. PDLP takes linear programs and diagonal P only.
"""

import argparse
import csv
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# Before NumPy is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import scipy.sparse as sp
from scipy.io import loadmat

import gradslide as gs
from gradslide.data.libsvm import data_directory
from gradslide.theory.optimality import residuals_at

TOLERANCES = (1e-4, 1e-6)
PRODUCTS = 1_000_000
NO_BOUND = 1e19


class Program(NamedTuple):
    """minimize x'Px/2 + q'x subject to lower <= K x <= upper, low <= x <= high."""

    name: str
    P: sp.csr_array
    q: np.ndarray
    K: sp.csr_array
    lower: np.ndarray
    upper: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def read(cls, path: Path) -> "Program":
        found = loadmat(path)
        q, lower, upper = (found[name].ravel().astype(float) for name in ("q", "l", "u"))
        lower, upper = np.where(lower <= -NO_BOUND, -np.inf, lower), np.where(upper >= NO_BOUND, np.inf, upper)
        P, A, n = sp.csr_array(found["P"]), sp.csr_array(found["A"]), len(q)
        return cls(path.stem, P, q, A[:-n], lower[:-n], upper[:-n], lower[-n:], upper[-n:])

    def problem(self) -> gs.LinearlyConstrained:
        loss = gs.losses.Quadratic(self.P, self.q)
        box = gs.domains.Box(self.low, self.high)
        return gs.LinearlyConstrained(loss, self.K, lower=self.lower, upper=self.upper, domain=box)

    @property
    def stacked(self) -> tuple[sp.csc_array, np.ndarray, np.ndarray]:
        """All rows, those for bounds last."""
        rows = sp.vstack([self.K, sp.eye_array(len(self.q))], format="csc")
        return rows, np.append(self.lower, self.low), np.append(self.upper, self.high)


# From a program, a tolerance and a time limit to x and the multipliers of K x; None without an answer.
Solver = Callable[[Program, float, float], tuple[np.ndarray, np.ndarray] | None]


def with_gradslide(program: Program, tolerance: float, seconds: float, method: object = None):
    stop = gs.Stop(kkt=tolerance, operator_products=PRODUCTS, seconds=seconds)
    solution = gs.solve(program.problem(), method=method, stop=stop, record_every=10 if method else 1)
    return solution.mean, solution.dual


def with_condat_vu(program: Program, tolerance: float, seconds: float):
    return with_gradslide(program, tolerance, seconds, gs.CondatVu())


def with_osqp(program: Program, tolerance: float, seconds: float):
    import osqp

    rows, lower, upper = program.stacked
    solver = osqp.OSQP()
    limits = {"max_iter": 10_000_000, "time_limit": seconds, "verbose": False}
    P = sp.csc_matrix(sp.triu(program.P))
    solver.setup(P, program.q, sp.csc_matrix(rows), lower, upper, eps_abs=tolerance, eps_rel=tolerance, **limits)
    found = solver.solve(raise_error=False)
    return None if found.x is None or found.x[0] is None else (found.x, found.y[: len(program.lower)])


def with_clarabel(program: Program, tolerance: float, seconds: float):
    import clarabel

    rows, lower, upper = program.stacked
    k = len(program.lower)
    is_equation = lower == upper
    parts, ends, cones = [rows.tocsr()[np.flatnonzero(is_equation)]], [lower[is_equation]], []
    cones.append(clarabel.ZeroConeT(int(is_equation.sum())))
    above, below = (np.flatnonzero(np.isfinite(side) & ~is_equation) for side in (upper, lower))
    parts += [rows.tocsr()[above], -rows.tocsr()[below]]
    ends += [upper[above], -lower[below]]
    cones.append(clarabel.NonnegativeConeT(len(above) + len(below)))
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.time_limit, settings.max_iter = False, seconds, 1000
    # Its default, or less: an interior point is a little off the bounds.
    settings.tol_feas = settings.tol_gap_abs = settings.tol_gap_rel = min(1e-8, 1e-4 * tolerance)
    G = sp.csc_matrix(sp.vstack(parts))
    solver = clarabel.DefaultSolver(
        sp.csc_matrix(sp.triu(program.P)), program.q, G, np.concatenate(ends), cones, settings
    )
    found = solver.solve()
    y, multipliers = np.array(found.z), np.zeros(len(lower))
    equations = int(is_equation.sum())
    multipliers[is_equation] = y[:equations]
    multipliers[above] += y[equations : equations + len(above)]
    multipliers[below] -= y[equations + len(above) :]
    return np.array(found.x), multipliers[:k]


def with_pdlp(program: Program, tolerance: float, seconds: float):
    from ortools.pdlp import solve_log_pb2, solvers_pb2  # noqa: F401
    from ortools.pdlp.python import pdlp

    if (program.P - sp.diags_array(program.P.diagonal())).nnz:
        return None
    given = pdlp.QuadraticProgram()
    given.objective_vector = program.q
    given.constraint_matrix = sp.csc_matrix(program.K)
    given.constraint_lower_bounds, given.constraint_upper_bounds = program.lower, program.upper
    given.variable_lower_bounds, given.variable_upper_bounds = program.low, program.high
    if program.P.nnz:
        given.set_objective_matrix_diagonal(program.P.diagonal())
    settings = solvers_pb2.PrimalDualHybridGradientParams()
    criteria = settings.termination_criteria
    criteria.simple_optimality_criteria.eps_optimal_absolute = tolerance
    criteria.simple_optimality_criteria.eps_optimal_relative = tolerance
    criteria.time_sec_limit = seconds
    found = pdlp.primal_dual_hybrid_gradient(given, settings)
    return found.primal_solution, -found.dual_solution


SOLVERS: dict[str, tuple[Solver, bool]] = {
    # Whether it may be run with smaller tolerances.
    "gradslide": (with_gradslide, False),
    "Clarabel": (with_clarabel, True),
    "OSQP": (with_osqp, True),
    "PDLP": (with_pdlp, True),
    "CondatVu": (with_condat_vu, False),
}


def measured(program: Program, answer: tuple[np.ndarray, np.ndarray]) -> float:
    """The largest residual of an answer."""
    if not all(np.isfinite(each).all() for each in answer):
        return float("inf")
    problem, (x, z) = program.problem(), answer
    x = np.clip(x, program.low, program.high)
    # Multipliers of an end that does not exist are 0: solvers leave rounding errors there.
    z = np.clip(z, np.where(np.isinf(program.lower), 0.0, -np.inf), np.where(np.isinf(program.upper), 0.0, np.inf))
    return residuals_at(problem, problem.loss, problem.A, x[None], z[None]).largest


def timed(program: Program, name: str, tolerance: float, seconds: float) -> tuple[float, float]:
    """Seconds and the largest residual."""
    solve, can_tighten = SOLVERS[name]
    for share in (1.0, 0.1, 0.01) if can_tighten else (1.0,):
        started = time.perf_counter()
        answer = solve(program, share * tolerance, seconds)
        spent = time.perf_counter() - started
        residual = float("inf") if answer is None else measured(program, answer)
        if answer is None or residual <= tolerance or spent >= seconds:
            break
    return spent, residual


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="*", help="names of problems")
    parser.add_argument("--solvers", nargs="*", default=[name for name in SOLVERS if name != "CondatVu"])
    parser.add_argument("--seconds", type=float, default=60.0, help="limit for each run")
    parser.add_argument("--csv", type=Path, help="a file for all figures")
    arguments = parser.parse_args()
    files = sorted((data_directory() / "qp").glob("*.mat"))
    programs = []
    for program in (Program.read(path) for path in files if not arguments.only or path.stem in arguments.only):
        try:
            program.problem()
            programs.append(program)
        except gs.InputError as refusal:
            print(f"{program.name} is left out: {refusal}")
    rows = []
    for program in programs:
        for name in arguments.solvers:
            for tolerance in TOLERANCES:
                seconds, residual = timed(program, name, tolerance, arguments.seconds)
                is_solved = residual <= tolerance and seconds <= arguments.seconds
                rows.append((program.name, name, tolerance, seconds, residual, is_solved))
                print(f"{program.name:10} {name:10} {tolerance:g} {seconds:8.3f} s {residual:9.2e}", flush=True)
    if arguments.csv:
        with arguments.csv.open("w", newline="") as file:
            csv.writer(file).writerows([("problem", "solver", "tolerance", "seconds", "residual", "solved"), *rows])
    print(f"\n{len(programs)} problems, at most {arguments.seconds:g} s each")
    print(f"{'solver':10} " + "".join(f"{'solved to ' + format(each, 'g'):>16}{'mean':>10}" for each in TOLERANCES))
    for name in arguments.solvers:
        line = f"{name:10} "
        for tolerance in TOLERANCES:
            own = [row for row in rows if row[1:3] == (name, tolerance)]
            spent = [row[3] if row[5] else arguments.seconds for row in own]
            mean = np.exp(np.mean(np.log1p(spent))) - 1
            line += f"{sum(row[5] for row in own):>16}{mean:>8.3f} s"
        print(line)


if __name__ == "__main__":
    main()
