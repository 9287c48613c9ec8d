"""Measure Newton and L-BFGS over exact sums: evaluations and rounds by network, raw columns, far starts, wall time.

Counts: logistic regression on 20,000 rows of ijcnn1 over 100 agents, no ridge, with `gs.Auto()`. A run counts until the
relative error of the objective is 1e-2, 1e-4, 1e-6. Wall time: 1,000 agents with 20 rows of 50 columns each, to 1e-6,
beside NIDS with the best of a grid of steps (without observing it, which would take longer than NIDS itself) and
scikit-learn's "newton-cholesky" on the pooled data; best of several repetitions, one BLAS thread, in one process.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

# Before NumPy is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from auto_bench import problems
from sklearn.linear_model import LogisticRegression

import gradslide as gs

ACCURACIES = (1e-2, 1e-4, 1e-6)
STEPS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)


def spent(problem: gs.Problem, graph: gs.Graph, optimum: float, **given: object) -> tuple[list[str], gs.Solution]:
    """Return evaluations/all rounds to each accuracy, and the solution."""
    found: dict[float, str] = {}

    def watch(record: gs.Record, x: np.ndarray) -> bool:
        for accuracy in ACCURACIES:
            if accuracy not in found and record.objective <= optimum + accuracy * abs(optimum):
                found[accuracy] = f"{record.gradients}/{record.rounds + record.control_rounds}"
        return len(found) == len(ACCURACIES)

    solution = gs.solve(problem, graph, callback=watch, stop=gs.Stop(iterations=500), **given)
    return [found.get(accuracy, "-") for accuracy in ACCURACIES], solution


def counts(data_dir: Path | None) -> None:
    case = problems.case("ijcnn1", data_dir)
    data = gs.data.load("ijcnn1", data_dir)
    features, labels = data.features[:20_000], data.labels[:20_000]
    scaled = gs.Problem(gs.losses.Logistic(features * np.geomspace(1e-4, 1e4, features.shape[1]), labels, agents=100))
    optimum = gs.reference.reference(case.problem).objective
    far = 30 * np.random.default_rng(0).normal(size=features.shape[1])
    print("ijcnn1, evaluations/all rounds to " + ", ".join(f"{accuracy:g}" for accuracy in ACCURACIES))
    for name in problems.NETWORKS:
        if name in problems.FROM_FILE and not problems.network_file(name, data_dir).is_file():
            print(f"  {name}: skipped, {problems.network_file(name, data_dir)} is missing")
            continue
        graph = problems.graph(name, data_dir)
        for label, problem, given in (
            ("", case.problem, {}),
            ("columns scaled by 1e-4 to 1e4", scaled, {}),
            ("start at 30 N(0, I)", case.problem, {"x0": far}),
            ("LBFGS", case.problem, {"method": gs.LBFGS()}),
        ):
            reached, solution = spent(problem, graph, optimum, **given)
            chosen = solution.parameters.get("method", "LBFGS")
            floats = solution.costs.floats_sent / solution.costs.gradients
            print(f"  {name:5} {', '.join(reached):28} {chosen:7} {floats:>9,.0f} floats each  {label}")


def seconds(run: Callable[[], object], repeats: int) -> float:
    found = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        found.append(time.perf_counter() - started)
    return min(found)


def wall_time(agents: int, repeats: int) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(20 * agents, 50))
    labels = np.sign(features @ rng.normal(size=50) + 3 * rng.normal(size=len(features)))
    mu = 0.01
    problem = gs.Problem(gs.losses.Logistic(features, labels, agents=agents), mu=mu)
    graph = gs.Graph.random(agents, 6, seed=1)
    optimum = gs.reference.reference(problem).objective
    level = optimum * (1 + 1e-6)

    def pooled(tolerance: float) -> LogisticRegression:
        model = LogisticRegression(C=1 / (agents * mu), fit_intercept=False, solver="newton-cholesky", tol=tolerance)
        return model.fit(features, labels)

    def value(x: np.ndarray) -> float:
        return float(problem.objective(np.broadcast_to(x, (agents, 50))).sum())

    tolerance = next(t for t in 10.0 ** -np.arange(1, 12) if value(pooled(t).coef_[0]) <= level)
    rows = {"scikit-learn newton-cholesky, pooled": seconds(lambda: pooled(tolerance), repeats)}
    target = gs.Stop(objective=level, iterations=100)
    for name, method in (("Auto", gs.Auto()), ("Newton", gs.Newton()), ("LBFGS", gs.LBFGS())):
        rows[name] = seconds(lambda method=method: gs.solve(problem, graph, method, stop=target), repeats)
    default = gs.solve(problem, graph, gs.NIDS(), stop=gs.Stop(iterations=1)).parameters["step_size"]
    best = None
    for factor in STEPS:
        stop, method = gs.Stop(objective=level, iterations=2000), gs.NIDS(step_size=factor * float(default))
        run = gs.solve(problem, graph, method, stop=stop, record_every=10)
        if run.status is gs.Status.CONVERGED and (best is None or run.costs.gradients < best[1]):
            best = (factor, run.costs.gradients, method)
    if best is not None:
        stop = gs.Stop(iterations=best[1])
        label = f"NIDS, {best[0]:g} times its default step, {best[1]} gradients"
        rows[label] = seconds(lambda: gs.solve(problem, graph, best[2], stop=stop, record_every=10**9), repeats)
    print(f"\n{agents:,} agents x 20 rows x 50 columns, to 1e-6: seconds, and relative to Auto")
    for name, taken in rows.items():
        print(f"  {name:55} {taken:8.3f} {taken / rows['Auto']:8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="holds ijcnn1 and networks/*.edges; default: GRADSLIDE_DATA")
    parser.add_argument("--agents", type=int, default=1000, help="for the wall time")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=("counts", "time"))
    given = parser.parse_args()
    if given.only != "time":
        try:
            counts(given.data_dir)
        except gs.InputError as error:
            print(f"counts: skipped, {error}")
    if given.only != "counts":
        wall_time(given.agents, given.repeats)


if __name__ == "__main__":
    main()
